"""Pixel-by-pixel digits: name a handwritten digit after reading it one pixel at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.data import mnist
from timescales.tasks.task import Batch, Spec, Task, check_choice, class_metrics

PIXELS, CLASSES = 784, 10


class Digits(Task):
    """Sequential MNIST (permutation="none") and permuted MNIST.

    Source: Le et al. 2015; Chien et al. 2021, section 4.1; Gu et al. 2020, appendix D.2 and listing 3 (bit reversal).

        input   0 0 0 ... .32 .99 .99 ... 0 0      784 pixels / 255, row by row from the top, or permuted
        target                                7    read from the state after the last pixel

    permutation: "none", "bit_reversal", or "random" (one fixed order for every run, drawn from permutation_seed).
    The last valid_size of the 60,000 training images are for validation; training images are shuffled every epoch.
    Raises ValueError naming where it looked when MNIST is not there and cannot be downloaded.
    """

    def __init__(
        self,
        *,
        permutation: str = "none",
        permutation_seed: int = 0,
        batch_size: int = 128,
        train_size: int | None = None,
        valid_size: int = 10_000,
        test_size: int | None = None,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("permutation", permutation, ("none", "bit_reversal", "random"))
        images, labels, test_images, test_labels = mnist.load(data_root)
        train_size = len(images) - valid_size if train_size is None else train_size
        test_size = len(test_images) if test_size is None else test_size
        super().__init__(
            batch_size=batch_size, seed=seed, device=device,
            train_size=train_size, valid_size=valid_size, test_size=test_size,
        )  # fmt: skip
        if train_size + valid_size > len(images) or test_size > len(test_images):
            raise ValueError(
                f"MNIST has {len(images)} training and {len(test_images)} test images; "
                f"train_size {train_size} + valid_size {valid_size} and test_size {test_size} are too many"
            )
        order = pixel_order(permutation, permutation_seed)
        cut = len(images) - valid_size
        splits = {
            "train": (images[:train_size], labels[:train_size]),
            "valid": (images[cut:], labels[cut:]),
            "test": (test_images[:test_size], test_labels[:test_size]),
        }
        self.splits = {k: (x[:, order].to(self.device), y.long().to(self.device)) for k, (x, y) in splits.items()}
        self.spec = Spec("real", 1, CLASSES, "last", horizon=PIXELS)
        self._order: tuple[int, Tensor] | None = None

    def size(self, split: str) -> int:
        return len(self.splits[split][0])

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        images, labels = self.splits[split]
        index: Tensor | slice = slice(first, end)
        if split == "train":
            if self._order is None or self._order[0] != epoch:
                shuffled = torch.randperm(len(images), generator=self.generator("train", epoch))
                self._order = epoch, shuffled.to(self.device)
            index = self._order[1][first:end]
        x = images[index].T.unsqueeze(-1).to(torch.get_default_dtype()) / 255.0
        return Batch(x.contiguous(), labels[index])

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(logits, batch.target)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        return class_metrics(logits, batch.target)

    def chance(self) -> float:
        return math.log(CLASSES)


def pixel_order(permutation: str, seed: int = 0) -> Tensor:
    """The pixel read at each step, (784,): step t reads pixel order[t]."""
    if permutation == "bit_reversal":
        return bit_reversal(PIXELS)
    if permutation == "random":
        return torch.randperm(PIXELS, generator=torch.Generator().manual_seed(seed))
    return torch.arange(PIXELS)


def bit_reversal(n: int) -> Tensor:
    """0..n-1 in bit-reversed order: that of the next power of two, keeping what is below n (Gu et al., listing 3)."""
    bits = max(n - 1, 1).bit_length()
    index = torch.arange(2**bits)
    reversed_ = sum(((index >> k) & 1) << (bits - 1 - k) for k in range(bits))
    return reversed_[reversed_ < n]  # type: ignore[index]
