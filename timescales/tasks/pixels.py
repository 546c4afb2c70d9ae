"""Images read one pixel at a time: what the digits and sequential CIFAR-10 have in common."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from timescales.tasks.task import Batch, Spec, Task, sizes_within

CLASSES = 10


class Pixels(Task):
    """Ten classes of images, (N, S, I) bytes: at step s the RNN reads the I channels of pixel s, divided by 255.

    images: training images and labels, then test images and labels. The last valid_size training images are for
    validation; training images are shuffled every epoch. train_size, test_size: None takes all that there are.
    """

    def __init__(
        self,
        name: str,
        images: tuple[Tensor, Tensor, Tensor, Tensor],
        *,
        batch_size: int,
        train_size: int | None,
        valid_size: int,
        test_size: int | None,
        seed: int,
        device: str,
    ) -> None:
        train, labels, test, test_labels = images
        sizes = sizes_within(name, "images", len(train), len(test), train_size, valid_size, test_size)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **sizes)
        cut = len(train) - valid_size
        splits = {
            "train": (train[: self.size("train")], labels[: self.size("train")]),
            "valid": (train[cut:], labels[cut:]),
            "test": (test[: self.size("test")], test_labels[: self.size("test")]),
        }
        self.splits = {k: (x.to(self.device), y.long().to(self.device)) for k, (x, y) in splits.items()}
        self.spec = Spec("real", train.shape[2], CLASSES, "last", horizon=train.shape[1])

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        images, labels = self.splits[split]
        index = slice(first, end) if split != "train" else self.moved(self.shuffled(epoch)[first:end])
        x = images[index].transpose(0, 1).to(torch.get_default_dtype()) / 255.0
        return Batch(x.contiguous(), labels[index])

    def chance(self) -> float:
        return math.log(CLASSES)
