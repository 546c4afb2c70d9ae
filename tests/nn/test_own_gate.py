"""A gate of one's own: the tutorial's file and yaml train with the README's command."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINE = "docs/tutorial"
(COMMAND, _) = re.findall(r"^PYTHONPATH=.*$", (ROOT / "README.md").read_text(), re.M)
SHORT = ["task.batch_size=4", "task.train_size=8", "task.valid_size=4", "task.test_size=4"]
SHORT += ["loop.max_steps=2", "logger=none", "device=cpu"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    shutil.copytree(ROOT / MINE, tmp_path / MINE)
    monkeypatch.syspath_prepend(str(tmp_path / MINE))
    yield tmp_path
    sys.modules.pop("decay", None)


def test_it_trains(mine, train):
    words = COMMAND.split()
    assert words[:3] == [f"PYTHONPATH={MINE}", ".venv/bin/python", "train.py"]
    kept = [word for word in words[3:] if word != "-m" and not word.startswith(("model=", "seed=", "run_dir="))]
    done = train(*kept, "model=decay", *SHORT, "model.hidden_size=5", "run_dir=out")
    assert done.status == 0, done
    record = json.loads((mine / "out" / "record.json").read_text())
    assert (record["status"], record["stopped"]) == ("finished", "max_steps")
    told = {"_target_": "decay.Decay", "name": "decay", "hidden_size": 5, "num_layers": 1, "dropout": 0.0, "rate": 1.0}
    told |= {"block": "plain", "gap_input": False, "auxiliary": "none", "auxiliary_steps": 600}
    assert record["config"]["model"] == told
    start, end = (record["timescales"][when][0] for when in ("start", "end"))
    assert start == pytest.approx([1.0] * len(start), rel=1e-4)
    assert end != start


def test_a_recipe_that_changes_its_yaml_is_named(mine, train):
    command = ["--config-dir", MINE, "model=decay", "task=frequency", *SHORT]
    assert re.search("^note: model.hidden_size=110 .* model.hidden_size=128 ", train(*command).out, re.M)
    assert "note:" not in train(*command, "model.hidden_size=5").out
    assert "note:" not in train("--config-dir", MINE, "model=lstm", "task=frequency", *SHORT).out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["model._target_=decay.Dekay"], "there is no decay.Dekay (module decay has no Dekay)"),
        (["model._target_=decay.DecayCell"], "model._target_: decay.DecayCell is not a subclass of RNN"),
        (["model.rate=fast"], "model.rate must be a number; not fast"),
        (["model=decai"], "did you mean decay?"),
        (["model.rat=1"], "did you mean model.rate?"),
        (["table=decay_wave"], "did you mean decay_waves?"),
    ],
)
def test_its_mistakes_cost_one_line(mine, train, words, line):
    done = train("--config-dir", MINE, "model=decay", "task=frequency", "logger=none", *words)
    assert done.status == 1
    assert line in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_cell_without_time_scales_is_one_line(mine, train):
    """They stand in each run's record, so training does not begin without them."""
    path = mine / MINE / "decay.py"
    path.write_text(re.sub(r"    def timescales\(self\):\n.*\n", "", path.read_text()))
    done = train("--config-dir", MINE, "model=decay", "task=copy", "logger=none")
    assert done.status == 1
    assert "DecayCell needs timescales(), (H,) in steps; return torch.full(" in done.err
    assert not list(mine.glob("runs/*"))


@pytest.mark.parametrize(("text", "line"), [
    ("import notthere", "raises cannot be imported: No module named 'notthere'"),
    ("from torch import notthere", "raises cannot be imported: cannot import name 'notthere' from 'torch'"),
    ("import torch; torch.notthere", "raises cannot be imported: module 'torch' has no attribute 'notthere'"),
    ("", "there is no raises.Mine (module raises has no Mine)"),
])  # fmt: skip
def test_a_module_that_cannot_import_another_is_named_as_such(mine, train, monkeypatch, text, line):
    monkeypatch.delitem(sys.modules, "raises", raising=False)
    (mine / MINE / "raises.py").write_text(f"{text}\n")
    done = train("--config-dir", MINE, "model=decay", "task=copy", "logger=none", "model._target_=raises.Mine")
    assert (done.status, len(done.err.splitlines())) == (1, 1)
    assert line in done.err


@pytest.mark.parametrize(("group", "text", "fix"), [
    ("task", "{_target_: timescales.tasks.copy.Copy, name: bare}", "must begin with the line # @package _global_"),
    ("model", "{_target_: timescales.LSTM, name: bare}", "leave out the key model:"),
])  # fmt: skip
def test_a_file_of_a_group_at_the_wrong_place_is_told_where_it_belongs(mine, train, group, text, fix):
    (mine / MINE / group).mkdir(exist_ok=True)
    (mine / MINE / group / "bare.yaml").write_text(f"{group}: {text}\n")
    done = train("--config-dir", MINE, "model=lstm", "task=copy", f"{group}=bare", "logger=none")
    assert (done.status, len(done.err.splitlines())) == (1, 1)
    assert fix in done.err
