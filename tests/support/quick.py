"""Overrides of a training that takes a moment."""

SIZES = ["task.train_size=16", "task.valid_size=8", "task.test_size=8", "task.batch_size=8", "model.hidden_size=4"]
QUICK = ["task=copy", "task.T=2", *SIZES, "loop.max_steps=2"]
