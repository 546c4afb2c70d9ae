"""Sequential CIFAR-10: name a picture after reading it one pixel at a time."""

from __future__ import annotations

import torch

from timescales.tasks.data import cifar
from timescales.tasks.pixels import Pixels
from timescales.tasks.task import Batch

MEAN, SD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


class SCIFAR(Pixels):
    """Pixel-by-pixel CIFAR-10.

    Source: Gu et al. 2020, appendix D.2; scaling and split as in its first author's later code.

        red     .31 .33 .30 ... .12 .11    1024 pixels row by row from the top, three channels at a time,
        green   .40 .41 .39 ... .20 .22    each / 255, less its mean, over its standard deviation
        blue    .52 .50 .53 ... .31 .30
        target                       3     read from the state after the last pixel

    The last valid_size of the 50,000 training images are for validation; training images are shuffled every epoch.
    Raises ValueError naming where it looked when CIFAR-10 is not there and cannot be downloaded, and when it is not all
    there, unless allow_partial=True.
    """

    def __init__(
        self,
        *,
        allow_partial: bool = False,
        batch_size: int = 50,
        train_size: int | None = None,
        valid_size: int = 5_000,
        test_size: int | None = None,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        images, partial = cifar.load(data_root, allow_partial)
        super().__init__(
            "CIFAR-10", (images.train.mT, images.train_labels, images.test.mT, images.test_labels),
            batch_size=batch_size, train_size=train_size, valid_size=valid_size, test_size=test_size,
            seed=seed, device=device,
        )  # fmt: skip
        self.partial = partial
        self.mean, self.sd = (torch.tensor(v, device=self.device) for v in (MEAN, SD))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        plain = super().batch(split, epoch, step, first, end)
        return plain._replace(x=(plain.x - self.mean) / self.sd)
