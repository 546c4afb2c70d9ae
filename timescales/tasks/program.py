"""Program: a short program is read character by character, then its result is written (Learning to Execute)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import IGNORED, Batch, Sizes, Spec, StepTask, check_at_least, check_choice, seeded

SYMBOLS = "0123456789+-*<>=()[]ifelsorx"  # the characters of programs; a digit is its own number
BLANK = len(SYMBOLS)  # code of a place without a character

# One level of a program: A is the level inside it, B, C and D are literals, K is a digit from 1 to 9.
FORMS = ("A+B", "A-B", "A*B", "AifB<CelseD", "AifB>CelseD", "x=Afor[K]x+=B")
ADD, SUBTRACT, MULTIPLY, LESS, GREATER, LOOP = range(len(FORMS))
# The forms of a category are drawn uniformly. `if` has two forms, so the others are listed twice to be as frequent.
FORMS_BY_CATEGORY = {
    "addition": (ADD,),
    "control": (LESS, GREATER, LOOP, LOOP),
    "program": (ADD, ADD, SUBTRACT, SUBTRACT, MULTIPLY, MULTIPLY, LESS, GREATER, LOOP, LOOP),
}
MEMORY = ("copy", "reverse", "double")  # categories whose programs are only a literal
LONGEST = 16  # most digits of a literal, so that its product with a number below 10^17 can be computed in 64 bits


class Program(StepTask):
    """Learning to Execute: the model reads a program, one character a step, and then writes its result digit by digit.

    Source: Zaremba & Sutskever 2014; in the form of Santoro et al. 2018 (arXiv 1806.01822), section 5.2, and the data
    of their released code; Gu et al. 2020, appendices D.4 and E.3 (length 9, nesting 4, strategy "mix").

        (95+85)+52 -> 232                         length=2, nesting=2
        (x=23for[1]x+=93)if64<79else60 -> 116
        x=(19*43)for[3]x+=29 -> 904
        (22if21<23else56)-99 -> 923               -77 modulo 1000

        input   ( 9 5 + 8 5 ) + 5 2 . . .         `.` zeros: no answer is fed back
        target                      2 3 2         only the digits of the answer are scored

    A program is built from the inside: a literal, then `nesting` times a form with the level before as its first
    operand A, in parentheses unless that is the literal. Other operands are new literals. Literals have exactly
    `length` digits, the first one from 1 to 9. Forms are drawn uniformly:

        category   forms
        addition   A+B
        control    A if the comparison of B and C holds, else D (`<` or `>`); x=A, then k times x+=B, k from 1 to 9
        program    both, A+B, A-B, A*B
        copy, reverse, double    no form, nesting=1: the literal itself, backwards, or twice

    The answer is the value modulo 10^(length + 1), at least 0, without leading zeros.

    Input: one-hot vectors of 28 characters, (S, B, 28), zeros at the steps of the answer. Programs of a batch end at
    the same step: shorter ones are padded at the front, with mask 0, so that they begin in the first state. The
    mask is also 0 after the end of an answer. Output: ten digits at every step. Loss: cross-entropy, the mean over the
    digits of all answers. Metrics: accuracy, the share of correct digits; sequence_accuracy, the share of answers
    without an error.

    length, nesting: the hardest level, which validation and test use. Training sequences are new in every epoch.
    strategy: the level of training programs. "mix": length and nesting are uniform from 1 to the hardest, independent
    of
        each other; "naive": the current level; "combine": uniform up to the current level; "baseline": the hardest.
        The first level has length 1 and nesting 1; the length grows by 1 up to its maximum, then the nesting.
    tries: for naive and combine, the number of validations of a level. Then the next level begins, unless the
        validation loss has risen by at least 5 % of its mean per validation over the last `tries` validations (at
        least 5, at most 10; released code).

    Differs: the released code draws the nesting of mix from 1 to the greatest length, which is an error (corrected in
    its commit 2d3194e), and divides the loss by the number of all steps. What the papers leave open is listed in
    conf/table/gu_figure14.yaml.
    """

    SIZES: ClassVar[Sizes] = Sizes(batch_size=128, train_size=128_000, valid_size=1_280, test_size=12_800)

    def __init__(
        self,
        *,
        category: str = "program",
        length: int = 9,
        nesting: int = 4,
        strategy: str = "mix",
        tries: int = 10,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("category", category, (*FORMS_BY_CATEGORY, *MEMORY))
        check_choice("strategy", strategy, ("mix", "combine", "naive", "baseline"))
        check_at_least(1, length=length, nesting=nesting, tries=tries)
        if category in MEMORY and nesting > 1:
            raise ValueError(f"category={category} has one literal and no levels: give task.nesting=1, not {nesting}")
        if category in FORMS_BY_CATEGORY and length > LONGEST:
            raise ValueError(f"length must be at most {LONGEST} for category={category}, not {length}")
        self.category, self.length, self.nesting, self.strategy, self.tries = category, length, nesting, strategy, tries
        self.level = (length, nesting) if strategy in ("mix", "baseline") else (1, 1)
        self.forms = FORMS_BY_CATEGORY.get(category, (ADD,))  # MEMORY categories read only the innermost literal
        self.spec = Spec("real", len(SYMBOLS), 10, "all", horizon=self.longest())

    def longest(self) -> int:
        """Return the largest number of steps that a program and its answer can have."""
        if self.category in MEMORY:
            return self.length * (3 if self.category == "double" else 2)
        widths = [len(form) - 1 + (self.length - 1) * sum(map(form.count, "BCD")) for form in FORMS]
        program = self.length + self.nesting * max(widths[k] for k in self.forms) + 2 * (self.nesting - 1)
        return program + self.length + 1

    def follow(self, curve: Sequence[Mapping[str, float]]) -> None:
        """Set the level of naive and combine from the validations so far."""
        if self.strategy in ("mix", "baseline"):
            return
        length, nesting, losses = 1, 1, []
        for row in curve:
            losses.append(row["valid/loss"])
            last = losses[-max(5, min(self.tries, 10)) :]
            rise = (last[-1] - last[0]) / max(1, len(last) - 1)
            if len(losses) >= self.tries and rise < 0.05 * sum(last) / len(last):
                grows = length < self.length
                length, nesting, losses = length + grows, min(nesting + (not grows), self.nesting), []
        self.level = length, nesting

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        training = split == "train"
        generator, n = self.generator(split, epoch, step), end - first
        level = torch.tensor(self.level if training else (self.length, self.nesting))
        size = level.unsqueeze(1).expand(2, n)
        if training and self.strategy in ("mix", "combine"):
            size = 1 + (torch.rand(2, n, generator=generator, dtype=torch.float64) * size).long()
        program, answer = self.written(draw(size[0], size[1], self.forms, generator))
        program, answer = self.moved(program.T), self.moved(answer.T)
        x = F.one_hot(torch.cat([program, torch.full_like(answer, BLANK)]), BLANK + 1)[..., :BLANK]
        target = torch.cat([torch.full_like(program, IGNORED), answer.where(answer != BLANK, IGNORED)])
        mask = torch.cat([program, answer]) != BLANK
        return Batch(x.to(torch.get_default_dtype()), target, mask)

    def written(self, programs: Programs) -> tuple[Tensor, Tensor]:
        """Return texts of programs, padded at the front, and answers, padded at the end, (n, longest) each."""
        literal = programs.literals[:, 0, 0]
        if self.category in MEMORY:
            backwards = packed(literal.flip(1), front=False)
            answers = {"copy": literal, "reverse": backwards, "double": torch.cat([literal, literal], 1)}
            return packed(literal, front=True), packed(answers[self.category], front=False)
        return packed(texts(programs), front=True), packed(digits(values(programs), programs), front=False)

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the means of the metrics; for naive and combine with the level at which the model was trained."""
        if self.strategy in ("mix", "baseline"):
            return metrics
        return metrics | dict(zip(("length", "nesting"), map(float, self.level), strict=True))

    def chance(self) -> float:
        """Return the loss of the best predictor that knows only a digit's place in the answer, at the hardest level."""
        shares, weights = self.places
        return float((torch.special.entr(shares).sum(1) * weights).sum())

    def trivial_baselines(self) -> dict[str, float]:
        """Return the accuracy of two rules: always each place's most frequent digit; the last literal as the answer."""
        shares, weights = self.places
        found = {"the best digit for each place": float((shares.amax(1) * weights).sum())}
        if self.category in FORMS_BY_CATEGORY:
            programs, answer = self.measured
            last = programs.form[:, -1].unsqueeze(1)
            is_choice = (last == LESS) | (last == GREATER)
            literal = torch.where(is_choice, programs.literals[:, -1, 3], programs.literals[:, -1, 1])
            correct = answer[:, : self.length] == literal
            found["the last literal"] = float(correct.sum() / (answer != BLANK).sum())
        return found

    @functools.cached_property
    def measured(self) -> tuple[Programs, Tensor]:
        """Return programs of the hardest level, the same for all seeds, and their answers."""
        size = torch.tensor([[self.length], [self.nesting]]).expand(2, 16_384)
        programs = draw(size[0], size[1], self.forms, seeded("program/chance"))
        return programs, self.written(programs)[1]

    @functools.cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """Return each place's share of each digit, (places, 10), and its share of all digits, (places,)."""
        answers = self.measured[1]
        counts = torch.stack([(answers == digit).sum(0) for digit in range(10)], 1).double()
        return counts / counts.sum(1, keepdim=True), counts.sum(1) / counts.sum()


class Programs(NamedTuple):
    """n programs with at most L digits a literal and N levels, the innermost level first.

    length, nesting: of each program, (n,).
    form: an index in FORMS for each level, (n, N).
    literals: the digits of A, B, C and D at each level, (n, N, 4, L), BLANK after the last. A is read only at the first
        level.
    times: the number K of each level, (n, N).
    """

    length: Tensor
    nesting: Tensor
    form: Tensor
    literals: Tensor
    times: Tensor


def draw(length: Tensor, nesting: Tensor, forms: Sequence[int], generator: torch.Generator) -> Programs:
    """Draw random programs of the given lengths and nestings, (n,) each. forms: numbers of the possible forms."""
    n, L, N = len(length), int(length.max()), int(nesting.max())
    form = torch.tensor(forms)[torch.randint(len(forms), (n, N), generator=generator)]
    literals = torch.randint(10, (n, N, 4, L), generator=generator)
    literals[..., 0] = torch.randint(1, 10, (n, N, 4), generator=generator)
    literals = literals.where(torch.arange(L) < length.view(-1, 1, 1, 1), BLANK)
    return Programs(length, nesting, form, literals, torch.randint(1, 10, (n, N), generator=generator))


def values(programs: Programs) -> Tensor:
    """Return the value of each program modulo 10^(length + 1), (n,) int64."""
    modulus = 10 ** (programs.length + 1)
    numbers = torch.zeros(programs.literals.shape[:3], dtype=torch.int64)
    for digit in programs.literals.unbind(-1):
        numbers = torch.where(digit == BLANK, numbers, 10 * numbers + digit)
    value = numbers[:, 0, 0]
    for level in range(programs.form.shape[1]):
        b, c, d = numbers[:, level, 1:].unbind(-1)
        product = torch.zeros_like(value)
        for digit in programs.literals[:, level, 1].unbind(-1):  # value * b at once would need more than 64 bits
            product = torch.where(digit == BLANK, product, (10 * product + value * digit) % modulus)
        of_form = {
            ADD: value + b,
            SUBTRACT: value - b,
            MULTIPLY: product,
            LESS: torch.where(b < c, value, d),
            GREATER: torch.where(b > c, value, d),
            LOOP: value + programs.times[:, level] * b,
        }
        results = torch.stack([of_form[k] for k in range(len(FORMS))]) % modulus
        result = results.gather(0, programs.form[:, level].unsqueeze(0)).squeeze(0)
        value = torch.where(level < programs.nesting, result, value)
    return value


def digits(values: Tensor, programs: Programs) -> Tensor:
    """Return the decimal digits of values, (n, L + 1), BLANK in place of leading zeros."""
    power = 10 ** torch.arange(int(programs.length.max()), -1, -1)
    values = values.unsqueeze(1)
    return torch.where((values >= power) | (power == 1), values // power % 10, BLANK)


def texts(programs: Programs) -> Tensor:
    """Return the characters of programs with BLANK between them: each level's part before A, and its part after."""
    n, N, _, L = programs.literals.shape
    levels = torch.arange(N)
    constants = torch.arange(BLANK + 1).expand(n, N, -1)
    source = torch.cat([constants, programs.literals[:, :, 1:].flatten(2), programs.times.unsqueeze(-1)], -1)
    before, after = (source.gather(-1, table[programs.form]) for table in layouts(L))
    inner = (levels < programs.nesting.unsqueeze(1) - 1).unsqueeze(-1)
    opening, closing = (torch.where(inner, SYMBOLS.index(bracket), BLANK) for bracket in "()")
    unused = (levels >= programs.nesting.unsqueeze(1)).unsqueeze(-1)
    front, back = (torch.cat(parts, -1).masked_fill(unused, BLANK) for parts in ((opening, before), (after, closing)))
    return torch.cat([front.flip(1).flatten(1), programs.literals[:, 0, 0], back.flatten(1)], 1)


@functools.cache
def layouts(L: int) -> tuple[Tensor, Tensor]:
    """Return what stands before A and after it in each form, (forms, width) each.

    The entries are indices in characters, BLANK, B, C, D and K, one after another, with L digits a literal.
    """
    place = {symbol: [k] for k, symbol in enumerate(SYMBOLS)}
    place |= {name: list(range(BLANK + 1 + k * L, BLANK + 1 + (k + 1) * L)) for k, name in enumerate("BCD")}
    place["K"] = [BLANK + 1 + 3 * L]
    tables = []
    for side in (0, 2):
        rows = [[index for symbol in form.partition("A")[side] for index in place[symbol]] for form in FORMS]
        width = max(map(len, rows))
        tables.append(torch.tensor([row + [BLANK] * (width - len(row)) for row in rows]))
    return tables[0], tables[1]


def packed(codes: Tensor, front: bool) -> Tensor:
    """Return rows of codes (n, W) with every BLANK moved to the front or to the end, cut to the longest row."""
    blank = codes == BLANK
    order = (blank != front).to(torch.uint8).argsort(dim=1, stable=True)
    longest = int((~blank).sum(1).max())
    gathered = codes.gather(1, order)
    return gathered[:, gathered.shape[1] - longest :] if front else gathered[:, :longest]
