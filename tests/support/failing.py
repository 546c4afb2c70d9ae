"""A task whose training raises an error, with large tensors in the frames of its traceback."""

from pathlib import Path

import torch

from timescales.tasks import Copy


class Failing(Copy):
    """The copy task, which raises an error after three batches and prints how much memory the process uses."""

    def batches(self, split, epoch=0, start=0):
        large = torch.ones(5_000_000)  # 20 MB
        for number, batch in enumerate(super().batches(split, epoch, start)):
            if number == 3:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                print(f"MB {pages * 4096 / 1e6:.1f}", flush=True)
                raise RuntimeError(f"failed as planned, with {large.sum():.0f}")
            yield batch
