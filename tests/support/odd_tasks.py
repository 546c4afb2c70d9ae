"""Tasks for trainings that go wrong or take their time."""

import math
import os
import time
import weakref
from pathlib import Path

import numpy as np
import torch

from timescales.tasks import Copy


class OddMetrics(Copy):
    """The copy task, with sums, counts and derived metrics that are no plain floats."""

    def metrics(self, logits, batch):
        found = super().metrics(logits, batch)
        loss, n = found["loss"]
        right, steps = found["accuracy"]
        found |= {"loss": (loss, torch.tensor(n)), "accuracy": (np.float32(right), np.int64(steps))}
        return found | {"some": (np.bool_(True), 1)}

    def derived(self, metrics):
        return {**metrics, "perplexity": torch.tensor(metrics["loss"]).exp(), "ten": np.float32(10)}

    def chance(self):
        return np.float64(math.log(8))


class NoNumber(Copy):
    """The copy task, with a metric that is no number."""

    def derived(self, metrics):
        return {**metrics, "vector": torch.zeros(3)}


class Paced(Copy):
    """The copy task, which pauses PACE seconds (an environment variable) times the seed before training batches.

    Not before the first two of an epoch: what begins a run takes no pause. Where PAUSES (likewise) names a folder, each
    pause leaves a file there before it begins.
    """

    def batches(self, split, epoch=0, start=0):
        for number, batch in enumerate(super().batches(split, epoch, start)):
            if split == "train" and number >= 2:
                if "PAUSES" in os.environ:
                    Path(os.environ["PAUSES"], f"{os.getpid()}-{epoch}-{number}").touch()
                time.sleep(float(os.environ.get("PACE", "0")) * self.seed)
            yield batch


large_tensors: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()  # of all failures in this process


class Failing(Copy):
    """The copy task, which raises an error after three batches and prints how many large tensors are alive."""

    def batches(self, split, epoch=0, start=0):
        large = torch.ones(5_000_000)  # 20 MB
        large_tensors.add(large)
        for number, batch in enumerate(super().batches(split, epoch, start)):
            if number == 3:
                print(f"large tensors: {len(large_tensors)}", flush=True)
                raise RuntimeError(f"failed as planned, with {large.sum():.0f}")
            yield batch
