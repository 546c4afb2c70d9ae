"""From a command line or a table to runs (`plan`), to one of them trained (`execute`), and to all (`queue`)."""
