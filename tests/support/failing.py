"""A task whose training raises an error, with large tensors in the frames of its traceback."""

import weakref

import torch

from timescales.tasks import Copy

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
