"""Write pages and figures of tables and runs. The verdicts come from papers/."""
