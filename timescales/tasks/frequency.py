"""Frequency discrimination: is the period of a sine wave, sampled at some points in time, between 5 and 6?"""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from timescales.tasks.task import Batch, Sizes, Spec, Task, check_choice, entropy_of_bit, time_since_last

DURATION = 125.0  # time units; every wave is within them
SHORTEST = 15.0  # duration of the shortest wave in time units, and the smallest number of asynchronous points
BAND = (5.0, 6.0)  # periods of label 1
PERIODS = (1.0, 100.0)
UNITS = {"raw": 1.0, "longest": DURATION}  # units of the time as an input


class Frequency(Task):
    """Frequency discrimination on regular or irregular samples: is the period of a sine wave within [5, 6]?

    Source: Neil et al. 2016 (Phased LSTM) and their released generator; Chien et al. 2021, section 5.4, table 3, A.2.

        time    ...  31.2   33.9   34.0   38.1      asynchronous: 15 to 124 sorted uniform points
        input   ...   .81   -.33   -.40    .95      sin(2 pi t / period - shift)
        target                               1      1: period within [5, 6]; read from the final state

    Input: the sample of each step. Output: two classes, after the last step. Loss: cross-entropy; at chance the
    entropy of the labels, .69. Metric: accuracy; about 52 % at chance, the share of label 1.
    Sequences are padded at the front and masked. `dt` is the time since the previous point, 1 at the first point.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    A wave starts at a random time and has a random duration of at least 15 within 125 time units. Half of the sequences
    draw their period from [5, 6], uniform.

    sampling: "sync_1" (a point every 1 time unit), "sync_01" (every 0.1) or "async" (at random times).
    time_input: whether the time is added as a second input.
    time_unit: the unit of that input: "raw", the data's own, up to 125; or "longest", the longest sequence, up to 1.
    dt: whether the model gets the time since the previous point; without it a step counts as 1 for every cell.
    negatives: the distribution of the other periods: "log_uniform" on [1, 100] (the released generator; a period that
        falls in the band is labelled 1), or "uniform" on [1, 100] outside the band (Chien et al.'s text).
    """

    SIZES: ClassVar[Sizes] = Sizes(batch_size=32, train_size=5_000, valid_size=500, test_size=5_000)

    def __init__(
        self,
        *,
        sampling: str = "async",
        time_input: bool = False,
        time_unit: str = "raw",
        dt: bool = True,
        negatives: str = "log_uniform",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("sampling", sampling, ("async", "sync_1", "sync_01"))
        check_choice("negatives", negatives, ("log_uniform", "uniform"))
        check_choice("time_unit", time_unit, tuple(UNITS))
        self.sampling, self.time_input, self.negatives = sampling, time_input, negatives
        self.time_unit, self.dt = UNITS[time_unit], dt
        self.interval = {"async": 1.0, "sync_1": 1.0, "sync_01": 0.1}[sampling]
        self.spec = Spec("real", 2 if time_input else 1, 2, "last", horizon=round(DURATION / self.interval))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator = self.generator(split, epoch, step)
        time, exists, phase, label = self._draw(end - first, generator)
        time, exists, phase = (self.moved(values) for values in (time, exists, phase))
        wave = torch.sin(2.0 * math.pi * time / phase[:, :1] - phase[:, 1:]) * exists
        channels = [wave, time / self.time_unit * exists] if self.time_input else [wave]
        dtype = torch.get_default_dtype()
        x = torch.stack(channels, -1).transpose(0, 1).to(dtype)
        dt = time_since_last(time.T, exists.T).to(dtype).contiguous() if self.dt else None
        return Batch(x.contiguous(), self.moved(label), exists.T.contiguous(), dt)

    def _draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw n random waves.

        Returns: the times of their points (n, S) float64, and which points exist (n, S), padded at the front; period
        and shift (n, 2); labels (n,).
        """
        period = self._periods(n, generator)
        label = ((period >= BAND[0]) & (period <= BAND[1])).long()
        duration = _uniform(generator, SHORTEST, DURATION, n)
        shift = _uniform(generator, 0.0, duration, n)
        start = _uniform(generator, 0.0, DURATION - duration, n)
        draw_times = self._irregular_times if self.sampling == "async" else self._regular_times
        time, exists = draw_times(start, duration, generator)
        return time, exists, torch.stack([period, shift], 1), label

    def _periods(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the periods of n waves, (n,): first those in the band. For an odd n, chance decides which are more."""
        inside = _uniform(generator, *BAND, n)
        if self.negatives == "log_uniform":
            other = _uniform(generator, math.log(PERIODS[0]), math.log(PERIODS[1]), n).exp()
        else:  # uniform on [1, 5] and [6, 100] together
            width = BAND[1] - BAND[0]
            other = _uniform(generator, PERIODS[0], PERIODS[1] - width, n)
            other = torch.where(other > BAND[0], other + width, other)
        odd_one = torch.randint(2, (), generator=generator)
        return torch.where(torch.arange(n) < (n + odd_one) // 2, inside, other)

    def _irregular_times(self, start: Tensor, duration: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw sorted random times, and which points exist, (n, S) each. Padding has the time of the first point."""
        n = len(start)
        count = _uniform(generator, SHORTEST, DURATION, n).long()
        most = int(count.max())
        exists = torch.arange(most) >= most - count.unsqueeze(1)
        points = _uniform(generator, 0.0, 1.0, n, most)
        points = torch.where(exists, points, -1.0).sort(1).values  # points that do not exist come first
        first_point = points.gather(1, (most - count).unsqueeze(1))
        points = torch.where(exists, points, first_point)
        return start.unsqueeze(1) + duration.unsqueeze(1) * points, exists

    def _regular_times(self, start: Tensor, duration: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return times at a constant interval, and which points exist, (n, S) each. Padding has the first time."""
        count = torch.ceil(duration / self.interval).long()
        most = int(count.max())
        index = torch.arange(most) - (most - count.unsqueeze(1))
        return start.unsqueeze(1) + self.interval * index.clamp(min=0).double(), index >= 0

    def chance(self) -> float:
        """Return the entropy of the labels: half are 1 by design, and 4 % of the others under log-uniform negatives."""
        extra = math.log(BAND[1] / BAND[0]) / math.log(PERIODS[1] / PERIODS[0])
        positive = 0.5 + (0.5 * extra if self.negatives == "log_uniform" else 0.0)
        return entropy_of_bit(positive)


def _uniform(generator: torch.Generator, low: float, high: float | Tensor, *shape: int) -> Tensor:
    """Draw random numbers between low and high, float64."""
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)
