"""A task with pauses, so that a training lasts long enough to be killed on any machine. Its numbers are the same."""

import os
import time

from timescales.tasks import Copy


class Paced(Copy):
    """The copy task, which pauses PACE seconds (an environment variable) times the seed before training batches.

    Not before the first two of an epoch: what begins a run takes no pause.
    """

    def batches(self, split, epoch=0, start=0):
        for number, batch in enumerate(super().batches(split, epoch, start)):
            if split == "train" and number >= 2:
                time.sleep(float(os.environ.get("PACE", "0")) * self.seed)
            yield batch
