"""The code of docs/gates.md runs in the order of the page; its complete example trains, is compiled and is analysed."""

import shlex

import own_pages
import pytest
import torch

from timescales import analysis
from timescales.analysis.gate_gradients import observed

BLOCKS = own_pages.blocks("gates.md")
FILES = own_pages.files(BLOCKS)
(COMMAND,) = [text for language, text in BLOCKS if language == "bash"]
SMALL = ["task.batch_size=4", "task.train_size=8", "task.valid_size=4", "task.test_size=4", "loop.max_steps=2"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    with own_pages.written(FILES, tmp_path, monkeypatch, "leak") as folder:
        yield folder


def test_every_block_runs():
    names = {"__name__": "gates"}
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "docs/gates.md", "exec"), names)
    assert names["output"].shape == (200, 32, 128)
    x = torch.randn(5, 2, 3)
    assert names["RNN"]([names["Average"](3, 4)])(x)[0].shape == (5, 2, 4)


@pytest.mark.slow
def test_the_complete_example_trains_and_is_analysed(mine, train):
    assert sorted(FILES) == ["mine/leak.py", "mine/model/leak.yaml"]
    words = shlex.split(COMMAND)
    assert words[:3] == ["PYTHONPATH=mine", ".venv/bin/python", "train.py"]
    done = train(*words[3:], *SMALL, "logger=none", "device=cpu", "seeds=2", "run_dir=out")
    assert done.status == 0, done
    (directory, _) = sorted(path.parent for path in mine.rglob("record.json"))
    run = analysis.load(directory)
    assert analysis.study_run(run, "one_over_e").values["median"] > 0
    assert observed(run.model, run.task).gate.numel() > 0
    assert "note:" not in done.out
