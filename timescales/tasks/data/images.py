"""The result of `load` of a data set of images. Its `partial` says what is missing from the data set."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Images(NamedTuple):
    """All uint8: images (N, ...) and labels (N,) of training and test. partial: see `Corpus.check`."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    partial: list[str]
