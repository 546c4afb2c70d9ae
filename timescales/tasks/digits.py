"""Sequential and permuted MNIST: classify a handwritten digit after reading it pixel by pixel."""

from typing import Unpack

import torch
from torch import Tensor

from timescales.tasks.data import mnist
from timescales.tasks.pixels import ImageSizes, Pixels
from timescales.tasks.task import check_choice

PIXELS = 784


class Digits(Pixels):
    """Sequential MNIST (permutation="none") and permuted MNIST: the digit of an image that is read pixel by pixel.

    Source: Le et al. 2015; Chien et al. 2021, section 4.2; Gu et al. 2020, appendix D.2 and listing 3 (bit reversal).

        input   0 0 0 ... .32 .99 .99 ... 0 0      784 pixels / 255, row by row from the top, or permuted
        target                                7    read from the state after the last pixel

    Input: one number per step. Output: ten classes, after the last pixel. Loss: cross-entropy; ln 10 at chance.
    Metric: accuracy; 10 % at chance.
    The last valid_size of the 60,000 training images are for validation. Training images are shuffled in every epoch.

    permutation: "none"; "bit_reversal" (Gu et al.); "random", one fixed order for all runs, drawn with
        permutation_seed (Chien et al., who do not state which order).
    length: number of (permuted) pixels to read, None for all. With "bit_reversal", 196 are every fourth pixel.
    train_size, test_size: None uses all images.
    Raises MissingData, with the places searched, if MNIST is not found and cannot be downloaded.
    """

    DEFAULTS = ImageSizes(batch_size=128, train_size=None, valid_size=10_000, test_size=None)

    def __init__(
        self,
        *,
        permutation: str = "none",
        permutation_seed: int = 0,
        length: int | None = None,
        data_root: str | None = None,
        **sizes: Unpack[ImageSizes],
    ) -> None:
        check_choice("permutation", permutation, ("none", "bit_reversal", "random"))
        if length is not None and not 1 <= length <= PIXELS:
            raise ValueError(f"length must be between 1 and {PIXELS}, the pixels of an image; not {length}")
        images = mnist.load(data_root)
        order = pixel_order(permutation, permutation_seed)[:length]
        images = images._replace(train=images.train[:, order, None], test=images.test[:, order, None])
        super().__init__("MNIST", images, **sizes)


def pixel_order(permutation: str, seed: int = 0) -> Tensor:
    """Return the pixel read at each step, (784,): step t reads pixel order[t]."""
    if permutation == "bit_reversal":
        return bit_reversal(PIXELS)
    if permutation == "random":
        return torch.randperm(PIXELS, generator=torch.Generator().manual_seed(seed))
    return torch.arange(PIXELS)


def bit_reversal(n: int) -> Tensor:
    """Return the bit-reversed order of the next power of two, without numbers from n on, (n,): Gu et al., listing 3."""
    bits = max(n - 1, 1).bit_length()
    index = torch.arange(2**bits)
    order = torch.zeros_like(index)
    for k in range(bits):
        order += ((index >> k) & 1) << (bits - 1 - k)
    return order[order < n]
