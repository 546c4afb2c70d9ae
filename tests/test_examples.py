"""scripts/examples.py: what is printed and drawn of a task is what its batches hold; bad input costs one line."""

import math
import re

import examples
import pytest
import sample_data
from PIL import Image


def row(text, name):
    return re.search(rf"^{name} +(.*)$", text, re.M)[1]


@pytest.fixture
def data():
    with sample_data.folder():
        yield


def printed(overrides, n=1):
    task, _ = examples.make_task(overrides)
    return [examples.printed(task, example) for example in examples.examples(task, n)]


def test_copy_shows_the_answers_under_the_signal(script):
    first, second = script("examples", "task=copy", "task.T=5", "-n", "2").split("\n\n")
    assert first != second
    for text in (first, second):
        symbols = row(text, "input")[:19]
        assert re.fullmatch(r"[0-7]( [0-7]){9}", symbols)
        assert row(text, "input") == f"{symbols} . . . . . ! . . . . . . . . ."
        assert row(text, "target") == f"{' '.join('.' * 15)} {symbols}"
        assert row(text, "scored").split() == ["-"] * 10
        assert text.splitlines()[2].index("-") == text.splitlines()[0].index("!")
        assert "25 steps" in text


def test_bits_symbols_and_numbers_of_the_memory_tasks():
    bits, several = printed(["task=n_parity", "task.N=4", "task.curriculum=multi"])[0], 3
    read = row(bits, "input").split()
    assert set(read) <= {"0", "1"}
    assert row(bits, "target").split() == [str(read[-n:].count("1") % 2) for n in range(2, 2 + several)]
    (copied,) = printed(["task=selective_copy", "task.T=6", "task.length=3"])
    kept = [word for word in row(copied, "input").split() if word not in ".!"]
    assert len(kept) == 3
    assert set(kept) <= set("123456789abcde")
    assert (row(copied, "target").split(), row(copied, "scored").split()) == (["."] * 9 + kept, ["-"] * 3)
    (sums,) = printed(["task=linear_functional", "task.T=5", "task.kernel=exponential", "task.noise=0"])
    weight = (1 / sum(math.exp(-0.2 * lag) for lag in range(5))) ** 0.5
    first = float(row(sums, "input").split()[0])
    assert float(row(sums, "target").split()[0]) == pytest.approx(weight * first, abs=0.01)
    assert len(row(sums, "scored").split()) == 5


def test_a_program_is_a_line_with_its_answer(script):
    lines = script("examples", "task=program", "task.category=addition", "-n", "5").splitlines()
    assert len(lines) == 5
    for line in lines:
        program, answer = line.split(" -> ")
        numbers = re.findall(r"\d+", program)
        assert re.fullmatch(r"[\d+()]+", program)
        assert int(answer) == sum(map(int, numbers)) % 10 ** (len(numbers[0]) + 1)
    (line,) = printed(["task=program", "task.category=reverse", "task.nesting=1", "task.strategy=baseline"])
    assert re.fullmatch(r"(\d{9}) -> (\d{9})", line)
    assert line[:9] == line[:-10:-1]


def test_delayed_match_shows_places_and_where_to_go():
    (text,) = printed(["task=delayed_match", "task.delay=8", "task.choices=3", "task.distractors=0.5"])
    places = [row(text, f"place {k}").split() for k in (1, 2, 3)]
    target = row(text, "target").split()
    cue = places[0][0]
    assert re.fullmatch("[A-P]", cue)
    assert target[-1] == str(1 + [place[-1] for place in places].index(cue))
    for step in range(1, 9):
        there = [place[step] for place in places]
        assert target[step] == (str(1 + there.index("o")) if "o" in there else ".")
    assert row(text, "scored").split() == ["-"] * sum(word != "." for word in target)


def test_adding_shows_two_numbers_whose_sum_is_the_target():
    (text,) = printed(["task=adding", "task.T=12"])
    numbers, markers = ([float(word) for word in row(text, name).split()] for name in ("number", "marker"))
    assert sum(markers) == 2
    total = sum(number for number, marker in zip(numbers, markers, strict=True) if marker)
    assert float(row(text, "target")) == pytest.approx(total, abs=0.011)
    assert row(text, "scored").split() == ["----"]


def test_dyck2_shows_what_closes_the_innermost_bracket():
    small = ["task.train_size=20", "task.valid_size=5", "task.test_size=5", "task.batch_size=4"]
    for text in printed(["task=dyck2", *small], 4):
        if "..." not in text:
            opened = []
            for bracket, target in zip(row(text, "input").split(), row(text, "target").split(), strict=True):
                opened = [*opened, bracket] if bracket in "([" else opened[:-1]
                assert target == ({"(": ")", "[": "]"}[opened[-1]] if opened else "-")


@pytest.mark.parametrize("task", ["ptb_char", "text8", "ptb_word", "wt2", "wt103"])
def test_the_target_of_a_text_is_its_next_symbol(data, task):
    more = ["task.batch_size=20"] if task in ("wt2", "wt103") else []
    (text,) = printed([f"task={task}", "task.allow_partial=true", "task.length=12", *more])
    words, targets = (row(text, name).split("...")[0].split() for name in ("input", "target"))
    assert words[1:] == targets[: len(words) - 1]
    assert set(row(text, "scored").replace("...", "").split()) <= {"-" * n for n in range(1, 20)}


@pytest.mark.parametrize("task", ["copy", "frequency", "adding", "program"])
def test_a_picture(tmp_path, script, task):
    picture = tmp_path / "some.png"
    assert script("examples", f"task={task}", "-n", "2", "--png", picture) == f"written: {picture}\n"
    image = Image.open(tmp_path / "some.png").convert("L")
    assert image.width > 500
    darkest, brightest = image.getextrema()
    assert darkest < 100 < 200 < brightest


def test_an_image_is_drawn_from_a_permuted_sequence(data):
    from matplotlib.figure import Figure

    small = ["task.train_size=20", "task.valid_size=10", "task.test_size=10"]
    task, settings = examples.make_task(["task=pmnist", *small])
    (example,) = examples.examples(task, 1)
    ax = Figure().subplots()
    examples.draw_image(ax, task, settings, example)
    image = ax.images[0].get_array() * 255
    digit = sample_data.digit(int(example.target)).numpy()
    assert abs(image - digit).max() < 0.01


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["task=cpy"], "did you mean copy?"),
        (["task.TT=3"], "did you mean task.T?"),
        (["task.T=-3"], "T must be at least"),
        (["-n", "0"], "at least 1"),
        (["--png", "/no/such/folder/a.png"], "--png"),
        (["task=smnist", "data_root=/no/such/folder"], "data_root=DIR"),
    ],
)
def test_bad_input_costs_one_line(script, arguments, fix):
    said = script("examples", *arguments)
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1
    assert fix in said
