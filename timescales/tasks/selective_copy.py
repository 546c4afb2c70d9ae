"""Selective copy: remember symbols at random places among many blanks, then repeat them."""

import math
from typing import Unpack

import torch

from timescales.tasks.task import IGNORED, Batch, Sizes, Spec, StepTask, check_at_least, check_choice

BLANK = 0


class SelectiveCopy(StepTask):
    """Selective copying: symbols are at random places among T blanks, and the model must repeat them in order.

    Source: Gu & Dao 2023 (arXiv 2312.00752), section 4.1.1 and appendix E.1; data as in the released code of S4, which
    they build on. In the copy task the places are always the same, and a model with a fixed time scale can count.

        input   . 3 . . 1 4 . . 1 . ! ! ! !     T = 6, length = 4 (`.` blank, `!` signal, answers underlined)
        target  . . . . . . . . . . 3 1 4 1
                                    -------

    Input: one-hot vectors of `alphabet` classes: the blank (0), the symbols (1 to alphabet - 2) and the signal (the
    last), (S, B) with S = T + 2 length. Output: the same classes at every step. Loss: cross-entropy of the answers;
    ln(alphabet - 2) at chance. Metrics: accuracy, the share of correct answers; sequence_accuracy, the share of
    sequences with all answers correct.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    T: the number of blanks.
    length: the number of symbols.
    alphabet: the number of classes.
    gaps: "uniform" (each set of places is equally probable) or "irregular": the blanks before, between and after the
        symbols are shared in proportion to weights that are log-uniform on [1, 100], so that symbols come in bursts
        and after long silences.

    Differs: the paper states sequences of 4,096 steps with 16 symbols, of 16 classes with the blank. From the code of
    S4 this task assumes that the signal is one of the 16 classes, and that `length` steps of signals follow the 4,096
    blanks and the symbols. Irregular gaps are our addition.
    """

    is_exact = True

    def __init__(
        self,
        *,
        T: int = 4096,
        length: int = 16,
        alphabet: int = 16,
        gaps: str = "uniform",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_at_least(1, length=length)
        check_choice("gaps", gaps, ("uniform", "irregular"))
        check_at_least(0, T=T)
        if alphabet < 4:
            raise ValueError(f"alphabet must be at least 4, the blank, two symbols and the signal; not {alphabet}")
        self.T, self.length, self.alphabet = T, length, alphabet
        self.irregular = gaps == "irregular"
        self.answers = slice(-length, None)
        self.spec = Spec("one_hot", alphabet, alphabet, "all", horizon=T + length)

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator, n = self.generator(split, epoch, step), end - first
        symbols = torch.randint(1, self.alphabet - 1, (self.length, n), generator=generator)
        if self.irregular:  # the gaps are shares of the blanks, by log-uniform weights
            weights = 100.0 ** torch.rand(self.length + 1, n, generator=generator, dtype=torch.float64)
            before = self.T * weights.cumsum(0) / weights.sum(0)  # blanks before each symbol
            places = before[:-1].floor().long() + torch.arange(self.length).unsqueeze(1)
        else:  # all sets of places are equally probable
            order = torch.rand(self.T + self.length, n, generator=generator)
            places = order.topk(self.length, 0).indices.sort(0).values
        symbols, places = self.moved(symbols), self.moved(places)
        x = torch.full((self.T + 2 * self.length, n), BLANK, device=self.device)
        x.scatter_(0, places, symbols)
        x[-self.length :] = self.alphabet - 1
        target = torch.full_like(x, IGNORED)
        target[-self.length :] = symbols
        return Batch(x, target)

    def chance(self) -> float:
        return math.log(self.alphabet - 2)
