"""From a sweep or a table to runs (`plan`), all of them trained (`sweep`), and one of them (`train`)."""
