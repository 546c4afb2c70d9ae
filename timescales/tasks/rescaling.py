"""Time rescaling: letters in Morse code, learned at one speed and tested at others."""

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import Batch, Sizes, Spec, Task, check_at_least

# International Morse code (ITU-R M.1677-1), the letters from A to Z.
MORSE = (
    *(".-", "-...", "-.-.", "-..", ".", "..-.", "--.", "....", "..", ".---", "-.-", ".-..", "--"),
    *("-.", "---", ".--.", "--.-", ".-.", "...", "-", "..-", "...-", ".--", "-..-", "-.--", "--.."),
)


class TimeRescaling(Task):
    """Time rescaling: the model must recognise letters in Morse code, at other speeds than in training.

    Source: Jacques et al. 2022 (ICML, arXiv 2107.04616, SITHCon), whose Morse decoder is trained at one speed and
    tested at others; lengths of signals as in ITU-R M.1677-1.

        unit 1   1 0 1 1 1 0 0 0                      .- (A): a dot has 1 unit, a dash 3, the gaps 1 and 3
        unit 2   1 1 0 0 1 1 1 1 1 1 0 0 0 0 0 0      the same at half the speed; a random silence comes before
        target   0                                    the number of the letter, read from the final state

    Input: one number, 1 in a signal and 0 in silence, (S, B, 1). Output: a class for each letter, after the last step.
    Before a letter there are 0 to `lead` units of silence, uniform; shorter sequences are padded at the front and
    masked. Loss: cross-entropy; ln(letters) at chance. Metrics: accuracy, over all speeds of the split;
    accuracy_at_<unit>, at each of them. Training and validation are at the speed of `unit`, so only this speed selects
    the weights; the test has equally many sequences at each speed of `test_units`.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    unit: steps of a unit of time in training.
    test_units: the same in the test, a list.
    letters: how many letters there are, the first ones of the alphabet.
    lead: the longest silence before a letter, in units.

    Differs: the paper's decoder reads symbols of a larger alphabet and classifies at each step. Here a sequence has one
    letter, with a random silence before it.
    """

    is_exact = is_balanced = True

    def __init__(
        self,
        *,
        unit: int = 4,
        test_units: Sequence[int] = (2, 4, 8),
        letters: int = 26,
        lead: int = 4,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_at_least(1, unit=unit)
        if not test_units or min(test_units) < 1:
            raise ValueError(f"test_units must be whole numbers of at least 1, not {list(test_units)}")
        if not 2 <= letters <= len(MORSE):
            raise ValueError(f"letters must be from 2 to {len(MORSE)}, not {letters}")
        check_at_least(0, lead=lead)
        if self.size("test") < len(test_units):
            raise ValueError(f"test_size must be at least {len(test_units)}, one for each of test_units")
        self.units = {"train": (unit,), "valid": (unit,), "test": tuple(test_units)}
        self.letters, self.lead = letters, lead
        self.signals = signals(MORSE[:letters])
        self.spec = Spec("real", 1, letters, "last", horizon=unit * len(self.signals))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator, n = self.generator(split, epoch, step), end - first
        letter = torch.randint(self.letters, (n,), generator=generator)
        silence = torch.randint(self.lead + 1, (n,), generator=generator)
        speeds = torch.tensor(self.units[split])
        unit = speeds[torch.arange(first, end) % len(speeds)]
        letter, silence, unit = self.moved(letter), self.moved(silence), self.moved(unit)

        lengths = self.moved((self.signals >= 0).sum(0))[letter]  # in units, with the silence after the letter
        steps = int((unit * (silence + lengths)).max())
        # The units from each step to the end of its sequence, counted from 0: the last unit of each letter is row 0.
        left = torch.arange(steps - 1, -1, -1, device=self.device).unsqueeze(1).div(unit, rounding_mode="floor")
        exists = left < silence + lengths
        signal = self.moved(self.signals)[left.clamp(max=len(self.signals) - 1), letter]
        x = torch.where(left < lengths, signal, 0).to(torch.get_default_dtype())
        return Batch(x.unsqueeze(-1), torch.stack([letter, unit], 1), exists)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(logits, batch.target[:, 0])

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return logits.argmax(-1) == batch.target[:, 0]

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        correct, unit = self.correct(logits, batch), batch.target[:, 1]
        loss, n = F.cross_entropy(logits, batch.target[:, 0], reduction="sum"), len(correct)
        found = {"loss": (loss, n), "accuracy": (correct.sum(), n)}
        for speed in unit.unique().tolist():
            found[f"accuracy_at_{speed}"] = (correct[unit == speed].sum(), int((unit == speed).sum()))
        return found


def signals(codes: Sequence[str]) -> Tensor:
    """Return each code as signals, from its end: 1 or 0 for each unit, -1 before its beginning, (units, letters)."""
    # In units: a dot has 1, a dash 3, the gap between them 1, and the silence after a letter 3.
    heard = [[on for mark in code for on in [1] * (1 if mark == "." else 3) + [0]][:-1] + [0] * 3 for code in codes]
    longest = max(map(len, heard))
    return torch.tensor([[-1] * (longest - len(units)) + units for units in heard]).flip(1).T
