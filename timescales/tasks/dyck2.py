"""Dyck-2: which bracket closes next, in nested strings of two kinds of brackets?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from timescales.tasks.data.cache import cached
from timescales.tasks.task import Batch, Spec, Task, seeded

SYMBOLS = "()[]"
LONGEST, SHORTEST = 200, 2
NOTHING = 255  # closes where no bracket is open


class Dyck2(Task):
    """The Dyck-2 grammar.

    Source: Suzgun et al. 2019; Mahto et al. 2021, section 3.1.2 and appendix A.10, and their code.

        input      [   (   )   (   (   )   )   ]     one-hot, of 4
        target     ]   )   ]   )   )   )   ]   -     what closes the innermost open bracket: (1, 0) for `]`, (0, 1) for
                                                     `)`, (0, 0) where none is open; every step is scored

    Strings are rewritten from S at the left: S becomes (S), [S], SS or nothing, each with probability 1/4; those
    longer than 200 or shorter than 2 are rejected, as are repetitions. One set of strings, drawn with data_seed,
    serves every seed; training strings are shuffled every epoch. A batch is as long as its longest string.
    The outputs are the logistic function of the logits; the loss is the sum of squared errors over twice the number
    of steps. A string is correct if every output is on the right side of 1/2 at every step. Ends as "solved" when the
    validation loss is below 1e-4 (authors' code); what counts is the last epoch.
    timescales[split]: of every string, the steps from the opening to the closing of its longest pair, both counted
    (authors' code).
    """

    def __init__(
        self,
        *,
        data_seed: int = 0,
        batch_size: int = 32,
        train_size: int = 10_000,
        valid_size: int = 2_000,
        test_size: int = 5_000,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            batch_size=batch_size, seed=seed, device=device,
            train_size=train_size, valid_size=valid_size, test_size=test_size,
        )  # fmt: skip
        sizes = list(self.sizes.values())
        found = cached(
            "dyck2",
            {"n": sum(sizes), "data_seed": data_seed, "version": 1},
            lambda: _encoded(strings(sum(sizes), data_seed)),
        )
        self.symbols, self.closers, self.lengths, self.timescales = (
            dict(zip(self.sizes, found[key].split(sizes), strict=True))
            for key in ("symbols", "closers", "lengths", "timescales")
        )
        self.spec = Spec("one_hot", len(SYMBOLS), 2, "all", horizon=LONGEST, select=("loss", "min"))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        index = self.shuffled(epoch)[first:end] if split == "train" else torch.arange(first, end)
        lengths = self.lengths[split][index].long()
        longest = int(lengths.max())  # on the CPU, where all strings lie
        x = self.moved(self.symbols[split][index, :longest].T.long())
        closer = self.moved(self.closers[split][index, :longest].T)
        mask = torch.arange(longest, device=self.device).unsqueeze(1) < self.moved(lengths)
        target = torch.stack([closer == SYMBOLS.index("]"), closer == SYMBOLS.index(")")], -1)
        return Batch(x, target.to(torch.get_default_dtype()), mask)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        assert batch.mask is not None
        return self._squared(logits, batch) / (2 * batch.mask.sum())

    def _squared(self, logits: Tensor, batch: Batch) -> Tensor:
        assert batch.mask is not None
        errors = (logits.sigmoid() - batch.target).square().sum(-1)
        return torch.where(batch.mask, errors, 0.0).sum()

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        assert batch.mask is not None
        right = ((logits.sigmoid() > 0.5) == (batch.target > 0.5)).all(-1)
        return (right | ~batch.mask).all(0)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        assert batch.mask is not None
        n = batch.mask.shape[1]
        return {
            "loss": (self._squared(logits, batch), 2 * int(batch.mask.sum())),
            "accuracy": (self.correct(logits, batch).sum(), n),
        }

    def chance(self) -> float:
        """Mean squared error of the mean target of every step, over the training strings."""
        closers, lengths = self.closers["train"], self.lengths["train"].unsqueeze(1)
        exists = (torch.arange(LONGEST) < lengths).sum(0)
        share = torch.stack([(closers == SYMBOLS.index(c)).sum(0) for c in "])"]) / exists.clamp(min=1)
        return float((share * (1 - share) * exists).sum() / (2 * exists.sum()))

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        return "solved" if metrics["loss"] < 1e-4 else None


def strings(n: int, data_seed: int) -> list[str]:
    """n different strings, shuffled (short ones are found first)."""
    generator = seeded(f"dyck2/{data_seed}")
    rules = _endless(generator)
    found: dict[str, None] = {}
    while len(found) < n:
        string = _rewritten(rules)
        if string is not None and len(string) >= SHORTEST:
            found[string] = None
    every = list(found)
    return [every[k] for k in torch.randperm(n, generator=generator).tolist()]


def _endless(generator: torch.Generator) -> Iterator[int]:
    while True:
        yield from torch.randint(4, (2**16,), generator=generator).tolist()


def _rewritten(rules: Iterator[int]) -> str | None:
    """One string by leftmost rewriting; None as soon as it has more than LONGEST brackets."""
    done: list[str] = []
    rest = ["S"]  # what follows, the leftmost last
    brackets = 0
    while rest:
        symbol = rest.pop()
        if symbol != "S":
            done.append(symbol)
            continue
        rule = next(rules)
        if rule < 2:
            brackets += 2
            if brackets > LONGEST:
                return None
            done.append(SYMBOLS[2 * rule])
            rest += [SYMBOLS[2 * rule + 1], "S"]
        elif rule == 2:
            rest += ["S", "S"]
    return "".join(done)


def _encoded(found: list[str]) -> dict[str, Tensor]:
    """symbols, closers: (N, 200) bytes, numbers in SYMBOLS; lengths, timescales: (N,)."""
    symbols = torch.zeros(len(found), LONGEST, dtype=torch.uint8)
    closers = torch.full((len(found), LONGEST), NOTHING, dtype=torch.uint8)
    timescales = []
    for row, string in enumerate(found):
        numbers, closes, longest = [], [], 0
        opened: list[tuple[int, int]] = []  # (what closes it, where it stands)
        for t, character in enumerate(string):
            number = SYMBOLS.index(character)
            numbers.append(number)
            if number % 2 == 0:
                opened.append((number + 1, t))
            else:
                longest = max(longest, t - opened.pop()[1] + 1)
            closes.append(opened[-1][0] if opened else NOTHING)
        symbols[row, : len(string)] = torch.tensor(numbers, dtype=torch.uint8)
        closers[row, : len(string)] = torch.tensor(closes, dtype=torch.uint8)
        timescales.append(longest)
    lengths = torch.tensor([len(string) for string in found], dtype=torch.int16)
    return {"symbols": symbols, "closers": closers, "lengths": lengths,
            "timescales": torch.tensor(timescales, dtype=torch.int16)}  # fmt: skip
