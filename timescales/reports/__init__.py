"""Pages and pictures of tables and runs. Verdicts come from papers/."""
