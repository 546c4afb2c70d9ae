"""A task with pauses: trainings that last long enough to be killed on any machine, with the same numbers."""

import os
import time

from timescales.tasks import Copy


class Paced(Copy):
    """The copy task, whose training batches come PACE seconds apart, times the seed; PACE is in the environment."""

    def batches(self, split, epoch=0, start=0):
        for batch in super().batches(split, epoch, start):
            if split == "train":
                time.sleep(float(os.environ.get("PACE", "0")) * self.seed)
            yield batch
