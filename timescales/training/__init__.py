"""From a task and a model to a trained model."""
