"""Images read pixel by pixel: the base class of `Digits` and `SCIFAR`."""

from __future__ import annotations

import math

import torch

from timescales.tasks.data.images import Images
from timescales.tasks.task import Batch, Spec, Task, sizes_within

CLASSES = 10


class Pixels(Task):
    """Images of ten classes: at step s the model reads the I channels of pixel s, each divided by 255.

    The last valid_size training images are for validation. Training images are shuffled in every epoch.

    name: the data set, for error messages.
    images: (N, S, I) each.
    train_size, test_size: None uses all images.
    """

    def __init__(
        self,
        name: str,
        images: Images,
        *,
        batch_size: int,
        train_size: int | None,
        valid_size: int,
        test_size: int | None,
        seed: int,
        device: str,
    ) -> None:
        train, labels, test, test_labels, partial = images
        sizes = sizes_within(name, "images", len(train), len(test), train_size, valid_size, test_size)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **sizes)
        self.partial = partial
        first_valid = len(train) - valid_size
        splits = {
            "train": (train[: self.size("train")], labels[: self.size("train")]),
            "valid": (train[first_valid:], labels[first_valid:]),
            "test": (test[: self.size("test")], test_labels[: self.size("test")]),
        }
        self.splits = {split: (x.to(self.device), y.long().to(self.device)) for split, (x, y) in splits.items()}
        self.spec = Spec("real", train.shape[2], CLASSES, "last", horizon=train.shape[1])

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        images, labels = self.splits[split]
        index = slice(first, end) if split != "train" else self.moved(self.shuffled(epoch)[first:end])
        x = images[index].transpose(0, 1).to(torch.get_default_dtype()) / 255.0
        return Batch(x.contiguous(), labels[index])

    def chance(self) -> float:
        return math.log(CLASSES)
