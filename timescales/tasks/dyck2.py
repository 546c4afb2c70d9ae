"""Dyck-2: which bracket closes next, in nested strings of two kinds of brackets?"""

import itertools
from collections.abc import Iterator
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from timescales.tasks.data.cache import cached
from timescales.tasks.task import Batch, Sizes, Spec, Task, seeded

SYMBOLS = "()[]"
LONGEST, SHORTEST = 200, 2
SHORTEST_LIMIT = 16  # the smallest `longest`: there are millions of strings with up to 16 brackets
NONE_OPEN = 255  # stands for the closing bracket if no bracket is open


class Dyck2(Task):
    """The Dyck-2 grammar: after each bracket the model must output which bracket closes the innermost open one.

    Source: Suzgun et al. 2019; Mahto et al. 2021, section 3.1.2 and appendix A.10, and their code.

        input      [   (   )   (   (   )   )   ]     one-hot, of 4
        target     ]   )   ]   )   )   )   ]   -     (1, 0) for `]`, (0, 1) for `)`, (0, 0) where no bracket is open;
                                                     every step is scored

    Output: two logits at every step; their logistic functions are the outputs. Loss: the sum of squared errors
    divided by twice the number of steps. Metric: accuracy, the share of strings in which both outputs are on the
    correct side of 1/2 at every step. A run ends as "solved" when the validation loss is below 1e-4 (authors' code).
    Mahto et al. test the weights of the last epoch.

    Strings are derived from S by leftmost rewriting: S becomes (S), [S], SS or the empty string, each with
    probability 1/4. Strings longer than `longest` or shorter than 2 are rejected, and so are repetitions. A batch is as
    long as its longest string. Training strings are shuffled in every epoch.

    data_seed: seed of the strings, which are the same for every `seed`.
    longest: the most brackets of a string.
    The attribute timescales[split] has, for every string, the length in steps of its longest pair of brackets, both
    brackets counted (authors' code), (N,).
    """

    SIZES: ClassVar[Sizes] = Sizes(batch_size=32, train_size=10_000, valid_size=2_000, test_size=5_000)
    is_exact = True

    def __init__(self, *, data_seed: int = 0, longest: int = LONGEST, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**self.SIZES | sizes)
        if not SHORTEST_LIMIT <= longest <= LONGEST:
            raise ValueError(f"longest must be from {SHORTEST_LIMIT} (shorter strings are too few) to {LONGEST}")
        n = sum(self.sizes.values())
        key = {"n": n, "data_seed": data_seed, "version": 1} | ({} if longest == LONGEST else {"longest": longest})
        encoded = cached("dyck2", key, lambda: _encoded(strings(n, data_seed, longest)))
        splits = {
            name: dict(zip(self.sizes, values.split(list(self.sizes.values())), strict=True))
            for name, values in encoded.items()
        }
        self.symbols, self.closers = splits["symbols"], splits["closers"]  # of each split (N, 200), on the CPU
        self.lengths, self.timescales = splits["lengths"], splits["timescales"]  # of each split (N,)
        self.spec = Spec("one_hot", len(SYMBOLS), 2, "all", horizon=longest, select=("loss", "min"))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        index = self.shuffled(epoch)[first:end] if split == "train" else torch.arange(first, end)
        lengths = self.lengths[split][index].long()
        longest = int(lengths.max())
        x = self.moved(self.symbols[split][index, :longest].T.long())
        closer = self.moved(self.closers[split][index, :longest].T)
        mask = torch.arange(longest, device=self.device).unsqueeze(1) < self.moved(lengths)
        target = torch.stack([closer == SYMBOLS.index("]"), closer == SYMBOLS.index(")")], -1)
        return Batch(x, target.to(torch.get_default_dtype()), mask)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return _squared_error(logits, batch) / (2 * _mask(batch).sum())

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        correct = ((logits.sigmoid() > 0.5) == (batch.target > 0.5)).all(-1)
        return (correct | ~_mask(batch)).all(0)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        mask = _mask(batch)
        return {
            "loss": (_squared_error(logits, batch), 2 * int(mask.sum())),
            "accuracy": (self.correct(logits, batch).sum(), mask.shape[1]),
        }

    def chance(self) -> float:
        """Return the mean squared error of the mean target of every step, over the training strings."""
        closers, lengths = self.closers["train"], self.lengths["train"].unsqueeze(1)
        exists = (torch.arange(LONGEST) < lengths).sum(0)
        share = torch.stack([(closers == SYMBOLS.index(c)).sum(0) for c in "])"]) / exists.clamp(min=1)
        return float((share * (1 - share) * exists).sum() / (2 * exists.sum()))

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        return "solved" if metrics["loss"] < 1e-4 else None


def _mask(batch: Batch) -> Tensor:
    assert batch.mask is not None, "every batch of Dyck-2 has a mask"
    return batch.mask


def _squared_error(logits: Tensor, batch: Batch) -> Tensor:
    """Return the sum of squared errors over both outputs and all steps that exist."""
    errors = (logits.sigmoid() - batch.target).square().sum(-1)
    return torch.where(_mask(batch), errors, 0.0).sum()


def strings(n: int, data_seed: int, longest: int = LONGEST) -> list[str]:
    """Return n different strings, shuffled, since short strings are found first."""
    generator = seeded(f"dyck2/{data_seed}")
    # Random numbers 0 to 3, without end.
    rules = (rule for _ in itertools.count() for rule in torch.randint(4, (2**16,), generator=generator).tolist())
    distinct: dict[str, None] = {}
    while len(distinct) < n:
        string = _derive(rules, longest)
        if string is not None and len(string) >= SHORTEST:
            distinct[string] = None
    ordered = list(distinct)
    return [ordered[k] for k in torch.randperm(n, generator=generator).tolist()]


def _derive(rules: Iterator[int], longest: int = LONGEST) -> str | None:
    """Return a string derived by leftmost rewriting; None as soon as it has more than `longest` brackets."""
    string: list[str] = []
    rest = ["S"]  # the symbols that follow, the leftmost last
    brackets = 0
    while rest:
        symbol = rest.pop()
        if symbol != "S":
            string.append(symbol)
            continue
        rule = next(rules)
        if rule < 2:  # (S) or [S]
            brackets += 2
            if brackets > longest:
                return None
            string.append(SYMBOLS[2 * rule])
            rest += [SYMBOLS[2 * rule + 1], "S"]
        elif rule == 2:  # SS
            rest += ["S", "S"]
    return "".join(string)


def _encoded(strings: list[str]) -> dict[str, Tensor]:
    """Return symbols, closers (N, 200) uint8, indices in SYMBOLS; lengths, timescales (N,) int16. As in `Dyck2`."""
    symbols = torch.zeros(len(strings), LONGEST, dtype=torch.uint8)
    closers = torch.full((len(strings), LONGEST), NONE_OPEN, dtype=torch.uint8)
    timescales = []
    for row, string in enumerate(strings):
        indices, closing, longest = [], [], 0
        opened: list[tuple[int, int]] = []  # of each open bracket: its closing bracket, and the step at which it opened
        for step, character in enumerate(string):
            index = SYMBOLS.index(character)
            indices.append(index)
            if index % 2 == 0:
                opened.append((index + 1, step))
            else:
                longest = max(longest, step - opened.pop()[1] + 1)
            closing.append(opened[-1][0] if opened else NONE_OPEN)
        symbols[row, : len(string)] = torch.tensor(indices, dtype=torch.uint8)
        closers[row, : len(string)] = torch.tensor(closing, dtype=torch.uint8)
        timescales.append(longest)
    return {
        "symbols": symbols,
        "closers": closers,
        "lengths": torch.tensor([len(string) for string in strings], dtype=torch.int16),
        "timescales": torch.tensor(timescales, dtype=torch.int16),
    }
