"""Program: what programs look like and come to, by an interpreter of its own; how hard they are; curricula; scores."""

import collections
import itertools
import math
import re

import pytest
import torch
from scipy import stats

from timescales.tasks import Program
from timescales.tasks import program as of_programs
from timescales.tasks.program import ADD, BLANK, FORMS_BY_CATEGORY, GREATER, LESS, LOOP, MULTIPLY, SUBTRACT, SYMBOLS
from timescales.tasks.task import IGNORED

SIZES = ("train_size", "valid_size", "test_size", "batch_size")
IN_PARTS = {"train_size": 20_000, "batch_size": 2_000}
# Four programs of the code released with Santoro et al. 2018, of length 2 and nesting 2, with their answers.
EXAMPLES = {"(95+85)+52": "232", "(x=23for[1]x+=93)if64<79else60": "116"}
EXAMPLES |= {"x=(19*43)for[3]x+=29": "904", "(22if21<23else56)-99": "923"}


def text_of(codes):
    """A text from its codes, without those that are no characters."""
    return "".join(SYMBOLS[k] for k in codes if 0 <= k < BLANK)


def run(text):
    """The value of a program, read from left to right: an integer of any size."""
    a, rest = operand(text.removeprefix("x="))
    if found := re.fullmatch(r"for\[([1-9])\]x\+=(\d+)", rest):
        assert text.startswith("x=")
        return a + int(found[1]) * int(found[2])
    assert not text.startswith("x=")
    if found := re.fullmatch(r"if(\d+)([<>])(\d+)else(\d+)", rest):
        b, c, d = int(found[1]), int(found[3]), int(found[4])
        return a if (b < c if found[2] == "<" else b > c) else d
    operator, b = rest[0], int(rest[1:])
    return {"+": a + b, "-": a - b, "*": a * b}[operator]


def operand(text):
    """The value of the literal or the program in parentheses with which a text begins, and the rest of the text."""
    if not text.startswith("("):
        literal = re.match(r"\d+", text)[0]
        return int(literal), text.removeprefix(literal)
    depth = itertools.accumulate({"(": 1, ")": -1}.get(symbol, 0) for symbol in text)
    end = next(k for k, open_ones in enumerate(depth) if open_ones == 0)
    return run(text[1:end]), text[end + 1 :]


def shown(batch):
    """Program and answer of every sequence of a batch, as texts."""
    reads = batch.mask & (batch.target == IGNORED)
    programs = torch.where(reads, batch.x.argmax(-1), BLANK).T.tolist()
    return list(zip(map(text_of, programs), map(text_of, batch.target.T.tolist()), strict=True))


def levels(text):
    """How many operators a program has."""
    return len(re.findall(r"(?<!x)[+*-]|if|for", text))


def literal(*numbers):
    """Literals of two digits as `Programs` has them."""
    return torch.tensor([[int(n) // 10, int(n) % 10] for n in numbers])


# The same four as the task keeps them, the innermost level first: (form, A, B, C, D, K).
KEPT = [
    [(ADD, 95, 85, 10, 10, 1), (ADD, 10, 52, 10, 10, 1)],
    [(LOOP, 23, 93, 10, 10, 1), (LESS, 10, 64, 79, 60, 1)],
    [(MULTIPLY, 19, 43, 10, 10, 1), (LOOP, 10, 29, 10, 10, 3)],
    [(LESS, 22, 21, 23, 56, 1), (SUBTRACT, 10, 99, 10, 10, 1)],
]


def test_the_examples_of_the_released_code():
    made = of_programs.Programs(
        length=torch.full((4,), 2),
        nesting=torch.full((4,), 2),
        form=torch.tensor([[level[0] for level in program] for program in KEPT]),
        literals=torch.stack([torch.stack([literal(*level[1:5]) for level in program]) for program in KEPT]),
        times=torch.tensor([[level[5] for level in program] for program in KEPT]),
    )
    written = [text_of(codes) for codes in of_programs.texts(made).tolist()]
    digits = of_programs.digits(of_programs.values(made), made)
    answers = [text_of(codes) for codes in of_programs.packed(digits, front=False).tolist()]
    assert dict(zip(written, answers, strict=True)) == EXAMPLES
    assert {text: str(run(text) % 1000) for text in EXAMPLES} == EXAMPLES
    assert run("(22if21<23else56)-99") == -77


@pytest.mark.parametrize(
    ("category", "length", "nesting", "strategy"),
    [
        *(("addition", 1, 1, "mix"), ("addition", 16, 3, "baseline"), ("control", 1, 4, "mix")),
        *(("control", 9, 4, "baseline"), ("program", 1, 1, "baseline"), ("program", 5, 2, "mix")),
        *(("program", 9, 4, "mix"), ("program", 16, 3, "baseline")),
    ],
)
def test_answers_are_the_values_of_the_programs(category, length, nesting, strategy):
    """Modulo 10^(length + 1), of the program's own length. With 16 digits products have up to 10^33."""
    task = Program(category=category, length=length, nesting=nesting, strategy=strategy, train_size=300, batch_size=300)
    seen = set()
    for text, answer in shown(next(task.batches("train"))):
        own = {len(number) for number in re.findall(r"(?<!\[)\d+", text)}
        assert len(own) == 1, "all literals of a program are equally long"
        (own_length,) = own
        assert answer == str(run(text) % 10 ** (own_length + 1))
        assert not re.search(r"(?<![\d\[])0", text), "no literal begins with 0"
        seen.add((own_length, levels(text)))
    wanted = {(length, nesting)}
    if strategy == "mix":
        wanted = set(itertools.product(range(1, length + 1), range(1, nesting + 1)))
    assert seen <= wanted
    assert len(seen) == len(wanted) or (strategy == "mix" and len(seen) > 0.9 * len(wanted))


# Of programs: mean and greatest number of characters; of answers: the same.
LENGTHS = {
    ("addition", 9, 4): (55, 55, 10.0, 10),
    ("control", 9, 4): (123, 151, 9.61, 10),
    ("program", 5, 2): (29, 51, 5.7, 6),
    ("control", 3, 2): (35, 37, 3.6, 4),
    ("program", 2, 2): (18, 30, 2.7, 3),
}
MIXED = {"addition": 23, "program": 36}  # means of mix at length 9, nesting 4


def read_and_written(task):
    """Characters of each training program and of its answer; of small batches, whose inputs take 50 MB, not 500."""
    read, written, steps = [], [], []
    for batch in task.batches("train"):
        answer = batch.target != IGNORED
        read.append((batch.mask & ~answer).sum(0).double())
        written.append(answer.sum(0).double())
        steps.append(len(batch.x))
    return torch.cat(read), torch.cat(written), max(steps)


@pytest.mark.parametrize(("category", "length", "nesting"), LENGTHS)
def test_lengths(category, length, nesting):
    """A hundred thousand programs of the released code: the means are printed to the digits given."""
    task = Program(category=category, length=length, nesting=nesting, strategy="baseline", **IN_PARTS)
    read, written, steps = read_and_written(task)
    mean, longest, mean_answer, longest_answer = LENGTHS[category, length, nesting]
    assert read.max() == longest == steps - longest_answer
    assert written.max() == longest_answer
    assert read.mean().item() == pytest.approx(mean, abs=0.5 + 5 * read.std().item() / math.sqrt(20_000))
    assert written.mean().item() == pytest.approx(mean_answer, abs=0.05 + 5 * written.std().item() / math.sqrt(20_000))
    assert task.spec.horizon == longest + length + 1


@pytest.mark.parametrize("category", MIXED)
def test_mean_length_of_mix(category):
    """Among them the correction: with nestings up to 9 the mean of Program would be 67 characters."""
    read, _, _ = read_and_written(Program(category=category, **IN_PARTS))
    assert read.mean().item() == pytest.approx(MIXED[category], abs=0.5 + 5 * read.std().item() / math.sqrt(20_000))
    assert read.max() <= 151


@pytest.mark.parametrize("category", ["control", "program"])
def test_trivial_baselines_are_those_of_the_rules_on_the_test_set(category):
    """Both rules again, on texts: the most frequent digit of each place, and the last literal of a program."""
    task = Program(category=category, length=3, nesting=2, test_size=12_800)
    pairs = [pair for batch in task.batches("test") for pair in shown(batch)]
    right = collections.Counter()
    for text, answer in pairs:
        last = re.findall(r"\d+", text)[-1]
        right["the last literal"] += sum(a == b for a, b in zip(answer, last, strict=False))
    for place in range(4):
        written = collections.Counter(answer[place] for _, answer in pairs if len(answer) > place)
        right["the best digit for each place"] += max(written.values())
    total = sum(len(answer) for _, answer in pairs)
    assert task.trivial_baselines() == pytest.approx({rule: n / total for rule, n in right.items()}, abs=0.01)


def test_chance_is_about_ln_10_and_lower_for_addition():
    """Sums begin with few digits: at length 1 and nesting 1 the first one of two is a 1."""
    assert Program(category="control").chance() == pytest.approx(math.log(10), abs=0.02)
    task = Program(category="addition", length=1, nesting=1)
    sums = [a + b for a, b in itertools.product(range(1, 10), repeat=2)]
    places = [[str(s)[k] for s in sums if len(str(s)) > k] for k in range(2)]
    total = sum(map(len, places))
    entropy = sum(len(place) / total * stats.entropy(list(collections.Counter(place).values())) for place in places)
    assert task.chance() == pytest.approx(entropy, abs=0.02)  # from 16,384 sums: three times their sampling error
    assert Program(category="addition", length=1, nesting=1, seed=5).chance() == task.chance()  # of all seeds


def drawn(n=30_000, length=3, nesting=2, category="program"):
    generator = torch.Generator().manual_seed(0)
    sizes = torch.full((n,), length), torch.full((n,), nesting)
    return of_programs.draw(*sizes, FORMS_BY_CATEGORY[category], generator)


def test_forms_literals_and_loops_are_uniform():
    """The operators of a category are equally frequent, and so are `<` and `>`."""
    for category, shares in (
        ("program", {ADD: 0.2, SUBTRACT: 0.2, MULTIPLY: 0.2, LESS: 0.1, GREATER: 0.1, LOOP: 0.2}),
        ("control", {LESS: 0.25, GREATER: 0.25, LOOP: 0.5}),
    ):
        made = drawn(category=category)
        counts = torch.bincount(made.form.flatten(), minlength=6)
        expected = torch.tensor([shares.get(k, 0.0) for k in range(6)]) * made.form.numel()
        present = expected > 0
        assert not counts[~present].any()
        assert stats.chisquare(counts[present].numpy(), expected[present].numpy()).pvalue > 1e-3
    assert set(drawn(category="addition").form.flatten().tolist()) == {ADD}
    made = drawn()
    number = (made.literals * torch.tensor([100, 10, 1])).sum(-1)
    assert (int(number.min()), int(number.max())) == (100, 999)
    assert stats.chisquare(torch.bincount(number.flatten())[100:].numpy()).pvalue > 1e-3
    assert stats.chisquare(torch.bincount(made.times.flatten())[1:].numpy()).pvalue > 1e-3
    assert made.times.min() == 1 < made.times.max() == 9


def test_mix_draws_length_and_nesting_of_each_program_independently():
    seen = collections.Counter()
    batches = Program(length=5, nesting=3, **IN_PARTS).batches("train")
    for text, _ in itertools.chain.from_iterable(map(shown, batches)):
        seen[len(re.findall(r"\d+$|\d+(?=\)*$)", text)[-1]), levels(text)] += 1
    counts = [seen[pair] for pair in itertools.product(range(1, 6), range(1, 4))]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("strategy", ["mix", "naive"])
def test_validation_and_test_are_of_the_hardest_level(strategy):
    task = Program(length=4, nesting=3, strategy=strategy, valid_size=200, test_size=200)
    for split in ("valid", "test"):
        for text, _ in shown(next(task.batches(split))):
            assert levels(text) == 3
            assert re.findall(r"\d{4,}", text)


def curve(*losses):
    return [{"valid/loss": loss} for loss in losses]


def test_naive_and_combine_grow_length_first_then_nesting():
    """After `tries` validations a level ends, whether or not the loss falls."""
    flat = curve(*[2.0] * 30)
    for strategy in ("naive", "combine"):
        task = Program(length=3, nesting=3, strategy=strategy, tries=4)
        reached = []
        for n in range(0, 29, 4):
            task.follow(flat[:n])
            reached.append(task.level)
        assert reached == [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (3, 3), (3, 3), (3, 3)]
        task.follow(flat[:7])  # whatever was called before
        assert task.level == (2, 1)
        assert task.derived({"accuracy": 0.5}) == {"accuracy": 0.5, "length": 2.0, "nesting": 1.0}
    for strategy in ("mix", "baseline"):
        task = Program(length=3, nesting=3, strategy=strategy)
        task.follow(flat)
        assert task.level == (3, 3)
        assert task.derived({"accuracy": 0.5}) == {"accuracy": 0.5}


def test_a_loss_that_rises_keeps_the_level():
    """By 5 % of its mean a validation, over the last ten at most; the count goes on, and restarts at each level."""
    task = Program(length=9, nesting=2, strategy="naive", tries=10)
    rising = [1.0 + 0.1 * k for k in range(10)]  # by .1 a validation, 6.9 % of the mean, 1.45
    slowly = [1.0 + 0.05 * k for k in range(10)]  # 4.1 % of 1.225
    for losses, level in (
        (slowly[:9], 1),
        (slowly, 2),
        (rising, 1),
        ([*rising, 1.9], 1),  # from 1.1 to 1.9 in nine: .0889 of 1.54, 5.8 %
        ([*rising, 1.9, 1.9], 2),  # .0778 of 1.61, 4.8 %
        ([*slowly, *rising], 2),
        ([*slowly, *slowly], 3),
        ([1.0] * 100, 9),
    ):
        task.follow(curve(*losses))
        assert task.level[0] == level, losses
    few = Program(length=9, nesting=2, strategy="naive", tries=2)  # then the last five count
    few.follow(curve(1.0, 1.2, 1.44, 1.44, 1.44, 1.44))  # 18 %, 18 %, 11 %, 8 %, then from 1.2: 4.3 %
    assert few.level == (2, 1)
    few.follow(curve(1.0, 1.2, 1.44, 1.44, 1.44))
    assert few.level == (1, 1)


def test_combine_draws_up_to_the_level_and_naive_at_it():
    for strategy, sizes in (("combine", {(1, 1), (2, 1)}), ("naive", {(2, 1)})):
        task = Program(length=5, nesting=3, strategy=strategy, tries=1, train_size=200, batch_size=200)
        task.follow(curve(1.0))
        seen = {(len(re.findall(r"\d+", text)[-1]), levels(text)) for text, _ in shown(next(task.batches("train")))}
        assert seen == sizes


@pytest.mark.parametrize(("category", "strategy"), [("copy", "baseline"), ("reverse", "mix"), ("double", "mix")])
def test_memory(category, strategy):
    task = Program(category=category, length=55, nesting=1, strategy=strategy, **dict.fromkeys(SIZES, 300))
    answers = {"copy": lambda text: text, "reverse": lambda text: text[::-1], "double": lambda text: 2 * text}
    lengths = set()
    for text, answer in shown(next(task.batches("train"))):
        assert re.fullmatch(r"[1-9]\d*", text)
        assert answer == answers[category](text)
        lengths.add(len(text))
    assert lengths == {55} if strategy == "baseline" else {1, 55} <= lengths <= set(range(1, 56))
    assert task.spec.horizon == (165 if category == "double" else 110)
    assert list(task.trivial_baselines()) == ["the best digit for each place"]
    assert task.chance() == pytest.approx(math.log(10), abs=0.01)


def test_layout_of_a_batch():
    """Programs end together; nothing is read at the steps of the answer; mask 0 in front and behind."""
    task = Program(length=4, nesting=2, train_size=60, batch_size=60)
    batch = next(task.batches("train"))
    pairs = shown(batch)
    end, last = max(len(text) for text, _ in pairs), max(len(answer) for _, answer in pairs)
    assert batch.x.shape == (end + last, 60, 28)
    assert batch.mask.shape == batch.target.shape == (end + last, 60)
    assert not batch.x[end:].any()
    for k, (text, answer) in enumerate(pairs):
        exists = [end - len(text) <= step < end + len(answer) for step in range(end + last)]
        assert batch.mask[:, k].tolist() == exists
        read = batch.x[end - len(text) : end, k]
        assert torch.equal(read, torch.eye(28)[[SYMBOLS.index(symbol) for symbol in text]])
        assert not batch.x[: end - len(text), k].any()
        written = [IGNORED] * end + [int(digit) for digit in answer] + [IGNORED] * (last - len(answer))
        assert batch.target[:, k].tolist() == written
