"""Frequency discrimination: does a sine wave, seen at some points in time, have a period between 5 and 6?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from timescales.tasks.task import Batch, Spec, Task, check_choice

DURATION = 125.0  # time units within which every wave lies; the shortest lasts 15
SHORTEST = 15.0
BAND = (5.0, 6.0)  # periods of label 1
PERIODS = (1.0, 100.0)


class Frequency(Task):
    """Frequency discrimination on regular or irregular samples.

    Source: Neil et al. 2016 (Phased LSTM) and its released generator; Chien et al. 2021, section 5.4, table 3, A.2.

        time    ...  31.2   33.9   34.0   38.1      asynchronous: 15 to 124 sorted uniform points
        input   ...   .81   -.33   -.40    .95      sin(2 pi t / period - shift)
        target                               1      1: period within [5, 6]; read from the final state

    sampling: "sync_1" (a point every 1), "sync_01" (every 0.1), "async". A wave starts and lasts at random within 125
    time units. Half of the sequences draw their period from [5, 6]; the others from [1, 100], log-uniform
    (negatives="log_uniform", the released generator; it may fall in the band, then labelled 1) or uniform outside
    the band ("uniform", the paper's words). time_input adds the raw time as a second input channel.
    Sequences are padded at the front and masked. `dt` is the time since the previous point, 1 at the first.
    Training sequences are fresh in every epoch; validation and test sets are fixed by the seed.
    """

    def __init__(
        self,
        *,
        sampling: str = "async",
        time_input: bool = False,
        negatives: str = "log_uniform",
        batch_size: int = 32,
        train_size: int = 5_000,
        valid_size: int = 500,
        test_size: int = 5_000,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            batch_size=batch_size, seed=seed, device=device,
            train_size=train_size, valid_size=valid_size, test_size=test_size,
        )  # fmt: skip
        check_choice("sampling", sampling, ("async", "sync_1", "sync_01"))
        check_choice("negatives", negatives, ("log_uniform", "uniform"))
        self.sampling, self.time_input, self.negatives = sampling, time_input, negatives
        self.interval = {"async": 1.0, "sync_1": 1.0, "sync_01": 0.1}[sampling]
        self.spec = Spec("real", 2 if time_input else 1, 2, "last", horizon=round(DURATION / self.interval))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator = self.generator(split, epoch if split == "train" else 0, step)
        time, exists, phase, label = self._draw(end - first, generator)
        time, exists, phase = (self.moved(v) for v in (time, exists, phase))
        wave = torch.sin(2.0 * math.pi * time / phase[:, :1] - phase[:, 1:]) * exists
        gap = time.diff(dim=1, prepend=time[:, :1])
        first_point = torch.cat([exists[:, :1], exists[:, 1:] & ~exists[:, :-1]], 1)
        dt = torch.where(exists & ~first_point, gap, 1.0)
        channels = [wave, time * exists] if self.time_input else [wave]
        dtype = torch.get_default_dtype()
        x = torch.stack(channels, -1).transpose(0, 1).to(dtype)
        return Batch(x.contiguous(), self.moved(label), exists.T.contiguous(), dt.T.to(dtype).contiguous())

    def _draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Times (n, S) and which of them exist, front-padded, float64; (period, shift) (n, 2); labels (n,)."""

        def uniform(low: float, high: float | Tensor, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(*(shape or (n,)), generator=generator, dtype=torch.float64)

        inside = uniform(*BAND)
        if self.negatives == "log_uniform":
            other = uniform(math.log(PERIODS[0]), math.log(PERIODS[1])).exp()
        else:  # uniform on [1, 5] and [6, 100] together
            other = uniform(PERIODS[0], PERIODS[1] - (BAND[1] - BAND[0]))
            other = torch.where(other > BAND[0], other + (BAND[1] - BAND[0]), other)
        odd_one = torch.randint(2, (), generator=generator)
        period = torch.where(torch.arange(n) < (n + odd_one) // 2, inside, other)
        label = ((period >= BAND[0]) & (period <= BAND[1])).long()
        duration = uniform(SHORTEST, DURATION)
        shift = uniform(0.0, duration)
        start = uniform(0.0, DURATION - duration)
        if self.sampling == "async":
            count = uniform(SHORTEST, DURATION).long()
            most = int(count.max())
            exists = torch.arange(most) >= most - count.unsqueeze(1)
            points = uniform(0.0, 1.0, n, most)
            # Absent points sort to the front; there the time is that of the first real one, so that no gap is odd.
            points = torch.where(exists, points, -1.0).sort(1).values
            points = torch.where(exists, points, points.gather(1, (most - count).unsqueeze(1)))
            time = start.unsqueeze(1) + duration.unsqueeze(1) * points
        else:
            count = torch.ceil(duration / self.interval).long()
            most = int(count.max())
            index = torch.arange(most) - (most - count.unsqueeze(1))
            exists = index >= 0
            time = start.unsqueeze(1) + self.interval * index.clamp(min=0).double()
        return time, exists, torch.stack([period, shift], 1), label

    def chance(self) -> float:
        """Entropy of the labels: half are 1 by design, and of the others 4 % under log-uniform negatives."""
        extra = math.log(BAND[1] / BAND[0]) / math.log(PERIODS[1] / PERIODS[0])
        positive = 0.5 + (0.5 * extra if self.negatives == "log_uniform" else 0.0)
        return -positive * math.log(positive) - (1.0 - positive) * math.log(1.0 - positive)
