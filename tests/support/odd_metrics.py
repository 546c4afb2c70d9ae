"""A task whose metrics have the types that people's own code returns."""

import math

import numpy as np
import torch

from timescales.tasks import Copy


class OddMetrics(Copy):
    """The copy task, with sums, counts and derived metrics that are no plain floats."""

    def metrics(self, logits, batch):
        found = super().metrics(logits, batch)
        loss, n = found["loss"]
        right, steps = found["accuracy"]
        return found | {
            "loss": (loss, torch.tensor(n)),
            "accuracy": (np.float32(right), np.int64(steps)),
            "some": (np.bool_(True), 1),
        }

    def derived(self, metrics):
        return {**metrics, "perplexity": torch.tensor(metrics["loss"]).exp(), "ten": np.float32(10)}

    def chance(self):
        return np.float64(math.log(8))


class NoNumber(Copy):
    """The copy task, with a metric that is no number."""

    def derived(self, metrics):
        return {**metrics, "vector": torch.zeros(3)}
