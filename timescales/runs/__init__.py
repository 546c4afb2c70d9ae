"""A run on disk: its record, lock, logs and cost."""
