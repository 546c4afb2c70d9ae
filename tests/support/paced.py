"""A task with pauses, so that a training lasts long enough to be killed on any machine. Its numbers are the same."""

import os
import time
from pathlib import Path

from timescales.tasks import Copy


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
