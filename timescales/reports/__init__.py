"""Pages and pictures of the tables. Nothing is judged here."""
