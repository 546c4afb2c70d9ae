"""Pages and pictures of tables and runs. Nothing is judged here."""
