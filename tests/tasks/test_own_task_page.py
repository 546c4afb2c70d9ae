"""The complete example of docs/own_task.md: it trains, sweeps, is shown, and gives the same data for the same seed."""

import re
import shlex

import own_pages
import pytest
import torch
from small_tasks import equal

from timescales.runs import record

BLOCKS = own_pages.blocks("own_task.md")
FILES = own_pages.files(BLOCKS)
(COMMANDS,) = [text.splitlines() for language, text in BLOCKS if language == "bash"]
SMALL = ["loop.max_epochs=1", "task.train_size=64", "logger=none", "device=cpu", "model.hidden_size=4"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    with own_pages.written(FILES, tmp_path, monkeypatch, "first") as folder:
        yield folder


def test_the_example_is_short():
    assert sorted(FILES) == ["mine/first.py", "mine/task/first.yaml"]
    assert len([line for line in FILES["mine/first.py"].splitlines() if line]) <= 30


def test_the_same_seed_gives_the_same_data(mine):
    from first import First

    for split in ("train", "test"):
        one, two, other = (next(First(T=9, seed=seed).batches(split, 1)) for seed in (0, 0, 1))
        assert equal(one, two)
        assert not equal(one, other)
        assert torch.equal(one.target, one.x[0])
    assert First(symbols=8).chance() == pytest.approx(2.0794, abs=1e-4)


def test_the_commands_of_the_page_run(mine, train, script, monkeypatch):
    shown, sweep = (shlex.split(command)[2:] for command in COMMANDS)
    monkeypatch.chdir(mine)
    assert shown[0] == "scripts/examples.py"
    printed = script("examples", *shown[1:])
    symbols = re.search(r"^input +(.*)$", printed, re.M)[1].split()
    assert len(symbols) == 8
    assert re.search(r"^target +(\d)$", printed, re.M)[1] == symbols[0]
    done = train(*sweep[1:], *SMALL)
    assert done.status == 0, done
    records = [record.Record.read(path.parent) for path in mine.rglob("record.json")]
    found = sorted((r["config"]["model"]["name"], r["seed"], r["status"]) for r in records)
    assert found == [(model, seed, "finished") for model in ("lstm", "plstm") for seed in (0, 1)]


def test_it_is_learned(mine, train):
    settings = ["task=first", "task.T=5", "model.hidden_size=16", "optimizer.lr=0.01", "loop.max_epochs=3"]
    done = train("--config-dir", "mine", *settings, "logger=none", "device=cpu", "run_dir=out")
    assert done.status == 0, done
    assert record.Record.read(mine / "out")["metrics"]["test/accuracy"] > 0.95


def test_a_wrong_setting_costs_one_line(mine, train):
    for setting, words in (("task.T=0", "T must be at least 1"), ("task.T=x", "task.T must be a whole number; not x")):
        done = train("--config-dir", "mine", "task=first", setting, "logger=none")
        assert done.status == 1
        assert words in done.err.splitlines()[-1]
