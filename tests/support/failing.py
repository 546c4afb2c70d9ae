"""A task whose training ends in an error, with large tensors in the frames that the error remembers."""

from pathlib import Path

import torch

from timescales.tasks import Copy


class Failing(Copy):
    """The copy task, for three batches."""

    def batches(self, split, epoch=0, start=0):
        large = torch.ones(5_000_000)  # 20 MB
        for number, batch in enumerate(super().batches(split, epoch, start)):
            if number == 3:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                print(f"MB {pages * 4096 / 1e6:.1f}", flush=True)
                raise RuntimeError(f"failed as it should, with {large.sum():.0f}")
            yield batch
