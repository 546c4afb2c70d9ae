"""Check your own text and your own task: parts, vocabulary, errors with the line, the example of docs/own.md."""

import math
import re
import shlex
from collections import Counter

import own_pages
import pytest
import torch

from timescales import analysis
from timescales.runs import record
from timescales.tasks import OwnText
from timescales.tasks.data import own
from timescales.tasks.data.text import EOS
from timescales.tasks.task import IGNORED

TEXT = "".join(f"{line}\n" for line in ("abc abd", "the cab", "bad a cab") for _ in range(20))


@pytest.fixture
def write(tmp_path):
    def call(content=TEXT, name="book.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return call


def made(path, **more):
    return OwnText(**{"data": path, "batch_size": 4, "length": 7, "embedding": None, "min_count": 1} | more)


def read_in_order(task, split):
    """The symbols of a split that are scored, stream after stream."""
    targets = torch.cat([batch.target for batch in task.batches(split)]).T.flatten()
    return "".join(task.symbols[k] for k in targets[targets != IGNORED].tolist())


def test_the_parts_are_the_beginning_the_middle_and_the_end(write):
    task = made(write(), valid_fraction=0.2, test_fraction=0.1)
    n = len(TEXT)
    ends = [n - round(0.1 * n) - round(0.2 * n), n - round(0.1 * n)]
    train, valid, test = TEXT[: ends[0]], TEXT[ends[0] : ends[1]], TEXT[ends[1] :]
    assert [task.size(split) for split in ("train", "valid", "test")] == [len(train), len(valid), len(test)]
    assert read_in_order(task, "valid").replace(own.UNKNOWN, "?") == "".join(c if c in train else "?" for c in valid)
    assert read_in_order(task, "test").replace(own.UNKNOWN, "?") == "".join(c if c in train else "?" for c in test)
    assert read_in_order(task, "train") == train[: len(train) // 4 * 4]


def test_the_vocabulary_is_that_of_the_training_part(write):
    text = "aaaabbbc" * 20 + "zzzz" * 10  # z in the validation and test parts alone
    task = made(write(text), min_count=2, valid_fraction=0.1, test_fraction=0.1)
    assert task.symbols == [own.UNKNOWN, "a", "b", "c"]
    assert task.unknown == {"train": 0.0, "valid": 1.0, "test": 1.0}
    assert "<unk>: 0 % of train, 100 % of valid" in task.notes()[1]
    rare = made(write("q" + text), min_count=2, valid_fraction=0.1, test_fraction=0.1)
    assert (rare.symbols, int(rare.counts[0])) == (task.symbols, 1)


def test_words_lines_and_chance(write):
    task = made(write(), unit="words", valid_fraction=0.1, test_fraction=0.1)
    tokens = [word for line in TEXT.splitlines() for word in (*line.split(), EOS)]
    assert sum(task.sizes.values()) == len(tokens)
    train = Counter(tokens[: task.size("train")])
    assert task.symbols[1] == EOS
    assert {task.symbols[k]: int(n) for k, n in enumerate(task.counts.tolist()) if n} == dict(train)
    total = sum(train.values())
    assert task.chance() == pytest.approx(-sum(n / total * math.log(n / total) for n in train.values()))
    assert task.words(torch.tensor([1, 0])) == [EOS, own.UNKNOWN]
    assert made(write()).words(torch.tensor([1])) is None


def test_the_metric_is_bits_per_character_or_perplexity(write):
    for unit, name in (("characters", "bpc"), ("words", "perplexity")):
        task = made(write(), unit=unit)
        batch = next(iter(task.batches("valid")))
        logits = torch.zeros(*batch.target.shape, len(task.symbols), dtype=torch.float64)
        sums = task.metrics(logits, batch)
        means = task.derived({key: float(total) / n for key, (total, n) in sums.items()})
        bits = math.log2(len(task.symbols))
        assert task.spec.select == (name, "min")
        assert set(means) == {"loss", name}
        assert means[name] == pytest.approx(bits if name == "bpc" else len(task.symbols))


def test_a_short_part_has_few_streams(write):
    task = made(write("the river rose\n" * 300), length=10)
    assert [task.streams[split].shape[1] for split in ("train", "valid", "test")] == [4, 4, 4]
    assert made(write("the river rose\n" * 300), length=100).streams["valid"].shape[1] == 1


def test_inputs_are_the_targets_one_symbol_late_and_line_ends_and_a_byte_order_mark_do_not_count(write):
    plain = made(write())
    first = next(iter(plain.batches("valid")))
    assert plain.symbols[int(first.x[0, 0])] == "\n", "they begin after a line"
    assert torch.equal(first.x[1:], first.target[:-1])
    same = made(write(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()))
    assert same.symbols == plain.symbols
    assert torch.equal(same.streams["train"], plain.streams["train"])


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        (b"one\ntwo\ncaf\xe9 three" * 9, {}, "line 3: byte 0xe9 at 11 is not UTF-8; save the file as UTF-8"),
        (b"one\n\0two" * 50, {}, "line 2 has a zero byte, so it is no plain text"),
        ("", {}, "has no text: give a file with more"),
        (" \n \n", {}, "has no text"),
        ("abcdefghij", {}, "has 8 characters for training, too few for batch_size 16: give a longer text, or a batch"),
        (TEXT, {"unit": "letters"}, "unit must be one of characters, words; not 'letters'"),
        (TEXT, {"valid_fraction": 0.6, "test_fraction": 0.5}, "leave nothing to train on: their sum must be below 1"),
        (TEXT, {"test_fraction": 0.0}, "test_fraction must be above 0 and below 1, not 0.0"),
        (TEXT, {"min_count": 0}, "min_count must be at least 1, not 0"),
    ],
)
def test_a_bad_file_or_setting_costs_one_line(write, content, more, words):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        OwnText(data=write(content), **more)
    assert words in str(error.value)


def test_a_file_is_found_where_it_is_or_in_data_root(write, tmp_path, monkeypatch):
    path = write()
    assert made("book.txt", data_root=str(tmp_path)).data.keys() == {path}
    monkeypatch.chdir(tmp_path)
    assert made("book.txt").data.keys() == {path}
    for data, words in (
        (None, "this task reads your own file: give task.data=FILE.txt"),
        ("~none.txt", f"there is no file at {tmp_path}/~none.txt and not at {tmp_path}/root/~none.txt: give its path"),
        ("none.txt", f"there is no file at {tmp_path}/none.txt and not at {tmp_path}/root/none.txt: give its path"),
        (str(tmp_path), f"{tmp_path} is a folder: give task.data the file in it"),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
            made(data, data_root=str(tmp_path / "root"))
        assert words in str(error.value)


def test_a_model_learns_a_text_resumes_and_is_analysed(train, write, tmp_path):
    write("the river rose in the night and the bridge was closed\n" * 60)
    common = ["task=text", "task.data=book.txt", "task.length=20", "task.embedding=8", "model.hidden_size=16"]
    common += ["optimizer.lr=0.02", "logger=csv", "device=cpu", "loop.checkpoint_every=0"]
    assert train(*common, "loop.max_epochs=12", "run_dir=whole").status == 0
    whole = record.Record.read(tmp_path / "whole")
    assert whole["metrics"]["test/bpc"] < 0.7 < 3.5 < whole["chance"] / math.log(2.0)
    assert whole["select"] == ["bpc", "min"]
    run = analysis.load(tmp_path / "whole")
    assert analysis.study_run(run, "one_over_e").values["median"] > 0


# --- The example of docs/own.md --------------------------------------------------------------------------------------
BLOCKS = own_pages.blocks("own.md")
FILES = own_pages.files(BLOCKS)
COMMANDS = next(text.splitlines() for language, text in BLOCKS if language == "bash" and "scripts/examples" in text)
SMALL = ["loop.max_epochs=1", "task.train_size=64", "logger=none", "device=cpu", "model.hidden_size=4"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    with own_pages.written(FILES, tmp_path, monkeypatch, "first") as folder:
        yield folder


@pytest.mark.slow
def test_the_commands_of_the_page_run(mine, train, script, monkeypatch):
    shown, sweep = (shlex.split(command)[2:] for command in COMMANDS)
    monkeypatch.chdir(mine)
    assert shown[0] == "scripts/examples.py"
    printed = script("examples", *shown[1:])
    symbols = re.search(r"^input +(.*)$", printed, re.M)[1].split()
    assert len(symbols) == 8
    assert re.search(r"^target +(\d)$", printed, re.M)[1] == symbols[0]
    assert train(*sweep[1:], *SMALL).status == 0
    records = [record.Record.read(path.parent) for path in mine.rglob("record.json")]
    found = sorted((r["config"]["model"]["name"], r["seed"], r["status"]) for r in records)
    assert found == [(model, seed, "finished") for model in ("lstm", "plstm") for seed in (0, 1)]


@pytest.mark.slow
def test_it_is_learned(mine, train):
    settings = ["task=first", "task.T=5", "model.hidden_size=16", "optimizer.lr=0.01", "loop.max_epochs=3"]
    assert train("--config-dir", "mine", *settings, "logger=none", "device=cpu", "run_dir=out").status == 0
    assert record.Record.read(mine / "out")["metrics"]["test/accuracy"] > 0.95
