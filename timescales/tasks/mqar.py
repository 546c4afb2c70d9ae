"""Multi-query associative recall: read pairs of a key and a value; when a key comes again, output its value."""

from typing import Unpack

import torch

from timescales.tasks.task import IGNORED, Batch, Sizes, Spec, StepTask, check_at_least

BLANK = 0


class MQAR(StepTask):
    """Multi-query associative recall: whenever a key comes again, the model must output the value it came with.

    Source: Arora et al. 2023 (arXiv 2312.04927, Zoology), and their released code.

        input   C 2 A 5 D 1 . . D . . . C . A .     pairs=3, T=16: letters are keys, numbers values, `.` blank
        target  . . . . . . . . 1 . . . 2 . 5 .
                                -       -   -

    The keys of a sequence differ from each other, and so do its values. Each key comes again once. It may come at every
    second step after the pairs: these places have the numbers g = 1, 2, ..., and are drawn without replacement with
    probabilities proportional to g^(power - 1). With a small power most keys come soon.

    Input: one-hot vectors, the blank (0), the keys (1 to keys) and the values after them, (S, B) with S = T. Output:
    the values. Loss: cross-entropy of the answers; ln(values) at chance. Metrics: accuracy, the share of correct
    answers; sequence_accuracy, the share of sequences with all answers correct.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    T: the number of steps.
    pairs: how many pairs come first; each is asked for.
    keys, values: how many of each there are.
    power: exponent of the distribution of the places at which keys come again.

    Differs: the released code has a vocabulary of 8,192 for both and by default fills the steps without a key with
    random tokens; here these are blanks, as with its random_non_queries=False.
    """

    is_exact = is_balanced = True

    def __init__(
        self,
        *,
        T: int = 64,
        pairs: int = 4,
        keys: int = 16,
        values: int = 16,
        power: float = 0.01,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_at_least(1, pairs=pairs)
        if pairs > min(keys, values):
            raise ValueError(f"keys and values must be at least pairs, not {keys} and {values} for {pairs} pairs")
        if values < 2 or not power > 0.0:
            raise ValueError(f"values must be at least 2 and power above 0, not {values} and {power}")
        if 4 * pairs > T:
            raise ValueError(f"T must be at least 4 pairs, {4 * pairs}: two steps to read one and two to ask; not {T}")
        self.T, self.pairs, self.keys, self.values = T, pairs, keys, values
        place = torch.arange(1, (T - 2 * pairs) // 2 + 1, dtype=torch.float64)
        self.log_p = (power - 1.0) * place.log()  # of each place, up to a constant, (places,)
        self.answers = slice(2 * pairs, None)
        self.spec = Spec("one_hot", 1 + keys + values, values, "all", horizon=T)

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator, n = self.generator(split, epoch, step), end - first
        keys = torch.rand(self.keys, n, generator=generator).argsort(0)[: self.pairs]
        values = torch.rand(self.values, n, generator=generator).argsort(0)[: self.pairs]
        # The places with the largest log p + Gumbel noise are a draw without replacement.
        noise = torch.empty(len(self.log_p), n, dtype=torch.float64).exponential_(generator=generator).log()
        places = (self.log_p.unsqueeze(1) - noise).topk(self.pairs, 0).indices
        keys, values, places = self.moved(keys), self.moved(values), self.moved(places)

        x = torch.full((self.T, n), BLANK, device=self.device)
        x[0 : 2 * self.pairs : 2] = 1 + keys
        x[1 : 2 * self.pairs : 2] = 1 + self.keys + values
        asked = 2 * self.pairs + 2 * places
        x.scatter_(0, asked, 1 + keys)
        return Batch(x, torch.full_like(x, IGNORED).scatter_(0, asked, values))

    def trivial_baselines(self) -> dict[str, float]:
        """Return the accuracy of a random one of the values that were read."""
        return {"a value that was read": 1.0 / self.pairs}
