"""Sequential CIFAR-10: classify a photograph after reading it pixel by pixel."""

from typing import Unpack

import torch

from timescales.tasks.data import cifar
from timescales.tasks.pixels import ImageSizes, Pixels
from timescales.tasks.task import Batch

MEAN, SD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


class SCIFAR(Pixels):
    """Sequential CIFAR-10: the class of a photograph that is read pixel by pixel.

    Source: Gu et al. 2020, appendix D.2; scaling and split as in the first author's later code.

        red     .31 .33 .30 ... .12 .11    1024 pixels row by row from the top, three channels per step,
        green   .40 .41 .39 ... .20 .22    each / 255, minus its mean, divided by its standard deviation
        blue    .52 .50 .53 ... .31 .30
        target                       3     read from the state after the last pixel

    Input: three numbers per step. Output: ten classes, after the last pixel. Loss: cross-entropy; ln 10 at chance.
    Metric: accuracy; 10 % at chance.
    The last valid_size of the 50,000 training images are for validation. Training images are shuffled in every epoch.

    allow_partial: accept an incomplete data set.
    train_size, test_size: None uses all images.
    Raises MissingData, with the places searched, if CIFAR-10 is not found and cannot be downloaded, and ValueError if
    it is incomplete, unless allow_partial=True.
    """

    DEFAULTS = ImageSizes(batch_size=50, train_size=None, valid_size=5_000, test_size=None)

    def __init__(
        self, *, allow_partial: bool = False, data_root: str | None = None, **sizes: Unpack[ImageSizes]
    ) -> None:
        images = cifar.load(data_root, allow_partial)
        super().__init__("CIFAR-10", images._replace(train=images.train.mT, test=images.test.mT), **sizes)
        self.mean, self.sd = (torch.tensor(values, device=self.device) for values in (MEAN, SD))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        batch = super().batch(split, epoch, step, first, end)
        return batch._replace(x=(batch.x - self.mean) / self.sd)
