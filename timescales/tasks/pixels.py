"""Images read pixel by pixel: the base class of `Digits` and `SCIFAR`."""

from typing import Any, ClassVar, TypedDict, Unpack

import torch

from timescales.tasks.data.corpus import Images
from timescales.tasks.task import Batch, Spec, Task, sizes_within

CLASSES = 10


class ImageSizes(TypedDict, total=False):
    """The arguments of a task on images. train_size, test_size: None uses all images."""

    batch_size: int
    train_size: int | None
    valid_size: int
    test_size: int | None
    seed: int
    device: str


class Pixels(Task):
    """Images of ten classes: at step s the model reads the I channels of pixel s, each divided by 255.

    The last valid_size training images are for validation. Training images are shuffled in every epoch.

    name: the data set, for error messages.
    images: (N, S, I) each.
    sizes: the others are those of `DEFAULTS`.
    """

    DEFAULTS: ClassVar[ImageSizes]
    is_balanced = True

    def __init__(self, name: str, images: Images, **sizes: Unpack[ImageSizes]) -> None:
        train, labels, test, test_labels, partial = images
        given: Any = self.DEFAULTS | sizes
        valid_size, wanted = given["valid_size"], (given["train_size"], given["valid_size"], given["test_size"])
        super().__init__(**given | sizes_within(name, "images", len(train), len(test), *wanted))
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
