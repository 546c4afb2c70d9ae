"""Keep a run on disk: record, lock, logs and cost."""
