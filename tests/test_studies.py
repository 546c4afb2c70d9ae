"""Pictures and tables of trained runs: against literal twins, on tiny models."""

import csv
import json
import sys
from pathlib import Path

import pytest

from timescales import analysis, loggers, record

ROOT = Path(__file__).resolve().parents[1]
SMALL = ["task=copy", "task.T=5", "model.hidden_size=8", "task.train_size=64", "task.valid_size=16",
         "task.test_size=16", "loop.max_steps=4"]  # fmt: skip


@pytest.fixture
def analyse(monkeypatch, capsys):
    """Call `python scripts/analyse.py ...` in this process: what it prints, or its error."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import analyse as script

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["analyse.py", *map(str, arguments)])
        try:
            script.main()
        except SystemExit as leaving:
            return str(leaving.code) + capsys.readouterr().err
        return capsys.readouterr().out

    return call


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------------------------------- the script


def test_every_question_of_a_run(train, analyse, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=plstm", "logger=csv", f"run_dir={run}").status == 0
    said = analyse(run, "--svg")
    assert "timescale_law/alpha" in said
    for name in ("timescale_law.png", "timescale_law.svg"):
        assert (run / "analysis" / name).is_file()
    assert all(path.stat().st_size <= 200_000 for path in (run / "analysis").glob("*.png"))
    found = rows(run / "analysis" / "timescale_law.csv")
    assert len(found) == 8
    times = [float(row["timescale"]) for row in found]
    assert times == sorted(times, reverse=True)
    assert record.read(run)["probes"]["timescale_law/alpha"] == analysis.measure(run, "timescale_law")["alpha"]


def test_several_runs_go_into_one_picture(train, analyse, tmp_path):
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        assert train(*SMALL, f"model={run.name}", "logger=none", f"run_dir={run}").status == 0
    assert "timescale_law/2/alpha" in analyse(*runs, "--only=timescale_law", f"--to={tmp_path / 'both'}")
    assert {row["run"] for row in rows(tmp_path / "both" / "timescale_law.csv")} == {"lstm", "plstm"}
    assert (tmp_path / "both" / "timescale_law.png").is_file()
    assert "--to=DIR is for several runs" in analyse(*runs)
    assert "--to=DIR is for several runs" in analyse(runs[0], "--to=x")
    other = tmp_path / "adding"
    assert train("task=adding", "task.T=6", *SMALL[2:], "logger=none", f"run_dir={other}").status == 0
    assert "give runs of one task" in analyse(runs[0], other, "--only=timescale_law", f"--to={tmp_path / 'both'}")


def test_what_is_no_run_or_no_question(train, analyse, tmp_path):
    assert "has no record.json: give the directory of a run" in analyse(tmp_path)
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    assert "no such question; did you mean timescale_law? (there are " in analyse(run, "--only=timescal_law")
    assert "error: " in analyse(run, "--only=word_ablation")
    (run / "best.pt").unlink()
    (run / "last.pt").unlink()
    assert "best.pt is not there: force=true trains the run again" in analyse(run)


def test_a_run_that_goes_on_is_read_at_its_best_so_far(train, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    whole = analysis.load(run)
    (run / "best.pt").unlink()
    record.update(run, status="interrupted")
    found = analysis.load(run)
    for a, b in zip(found.model.parameters(), whole.model.parameters(), strict=True):
        assert (a == b).all()
    assert any((a != b).any() for a, b in zip(found.model.parameters(), found.initial.parameters(), strict=True))
    before = (run / "record.json").read_text()
    analysis.study(found, "timescale_law")
    assert (run / "record.json").read_text() == before  # the run itself may be writing it


def test_the_initial_model_is_the_runs(train, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=chrono", "logger=none", f"run_dir={run}").status == 0
    started = record.read(run)["timescales"]["start"][0]
    found = analysis.load(run).initial.rnn.timescales()[0]
    assert (float(found.min()), float(found.max())) == pytest.approx((started[0], started[-1]), rel=1e-6)


def test_pictures_of_a_run_at_wandb_go_there(train, analyse, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=csv", f"run_dir={run}").status == 0
    shown = []
    monkeypatch.setattr(loggers, "Wandb", lambda *arguments: shown.append(arguments[1:3]) or Recorder(shown))
    analyse(run, "--only=timescale_law")
    assert shown == []
    content = json.loads((run / "record.json").read_text())
    content["config"]["logger"] = {"name": "wandb", "project": "p", "entity": None}
    (run / "record.json").write_text(json.dumps(content))
    (run / "wandb").mkdir()
    analyse(run, "--only=timescale_law")
    assert shown[0] == (f"copy-lstm-s0-{content['id']}", content["id"])
    assert shown[1:] == [({"timescale_law": run / "analysis" / "timescale_law.png"}, 4), "finished"]


class Recorder:
    def __init__(self, shown):
        self.shown = shown

    def show(self, pictures, step):
        self.shown.append((pictures, step))

    def finish(self, record):
        self.shown.append(record["status"])
