"""`seeds=N` on the command line is a loop: every seed has the directory and the record of its single run."""

import math
import signal
from types import SimpleNamespace

import pytest
import torch
from quick import SIZES, records
from trainings import COPY, close, saved_step

from timescales.config.compose import Composer
from timescales.config.run import run_of, runs_of
from timescales.experiment.sweep import Sweep
from timescales.runs import cost, lock, record
from timescales.runs.record import Record
from timescales.tasks import Copy
from timescales.training.run import TrainingRun

FOUR_STEPS = ["task=copy", "task.T=2", *SIZES, "model=gru", "loop.max_epochs=2", "loop.log_every=1", "logger=csv"]
THREE = [*FOUR_STEPS, "seeds=3"]
ALONE = ("status", "stopped", "steps", "metrics", "last", "best", "curve")
QUICK = [*COPY, "model=gru", "model.hidden_size=6", "task.batch_size=8", "logger=csv", "loop.max_epochs=2"]
QUICK += ["loop.log_every=3"]
KEYS = ("id", "seed", *ALONE, "parameters", "timescales", "partial", "golden")


def test_every_seed_leaves_the_record_of_its_single_run(train, tmp_path):
    assert train(*QUICK, "seed=1", "seeds=3").status == 0
    assert sorted(d.name[:11] for d in (tmp_path / "runs").iterdir()) == ["copy-gru-s1", "copy-gru-s2", "copy-gru-s3"]
    for seed in (1, 2, 3):
        assert train(*QUICK, f"seed={seed}", f"run_dir=single/{seed}").status == 0
        (place,) = (tmp_path / "runs").glob(f"copy-gru-s{seed}-*")
        found, alone = (Record.read(d) for d in (place, tmp_path / "single" / str(seed)))
        close(*({key: saved.content()[key] for key in KEYS} for saved in (found, alone)), 0.0)
        del found.config["run_dir"], alone.config["run_dir"]
        assert found.config == alone.config
        assert place.name.endswith(found.id)
        lines = [(d / "curve.csv").read_text().splitlines() for d in (place, tmp_path / "single" / str(seed))]
        assert [len(text) for text in lines] == [len(lines[0])] * 2
    again = train(*QUICK, "seed=1", "seeds=3")
    assert again.out.count("finished, skipped") == 3
    assert train(*QUICK, "seed=0", "seeds=3").out.count("finished, skipped") == 2  # seed 0 is new
    assert "finished, skipped" in train(*QUICK, "seed=0").out


def test_run_dir_holds_them_under_their_names(train, tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", "mine")
    assert train(*QUICK, "seeds=2", "run_dir=${oc.env:PLACE}").status == 0
    assert sorted(d.name[:12] for d in (tmp_path / "mine").iterdir() if d.is_dir()) == ["copy-gru-s0-", "copy-gru-s1-"]


def test_a_run_dir_with_the_seed_is_that_of_the_first():
    asked = [*QUICK, "seeds=3", "seed=5", "run_dir=mine/${seed}"]
    composer = Composer()
    found = runs_of(composer(asked))
    assert [str(run.directory)[:18] for run in found] == [f"mine/5/copy-gru-s{seed}" for seed in (5, 6, 7)]


def test_a_seed_that_is_run_elsewhere_is_left_alone(train, tmp_path):
    composer = Composer()
    run = run_of(composer([*QUICK, "seed=1"]))
    place = tmp_path / "runs" / run.name
    with lock.hold(place):
        record.start(place, run)
        outcome = train(*QUICK, "seeds=2")
        assert outcome.status == 1
        assert "is being run by process" in outcome.err
        assert Record.read(place).status == "interrupted"
    others = [d for d in (tmp_path / "runs").iterdir() if d != place]
    assert [Record.read(d).status for d in others] == ["finished"]  # the rest is trained


def test_a_sweep_goes_seed_by_seed_and_the_longest_first_but_the_shortest_in_limited_time(train, monkeypatch):
    sweep = ("model=lstm,gru,janet", "seed=1,0")
    keys = {run.directory.name.split("-")[1]: run.cost_key for run in sweep_plan(train, monkeypatch, *sweep)}
    monkeypatch.setattr(cost, "known", lambda: {keys["lstm"]: 10.0, keys["gru"]: 20.0})  # of janet nothing is known
    order = [run.directory.name[:-13] for run in sweep_plan(train, monkeypatch, *sweep)]
    assert order == [f"copy-{model}-s{seed}" for seed in (0, 1) for model in ("janet", "gru", "lstm")]
    # With limited time as many as possible are to end: the shortest first, each with all its seeds.
    order = [run.directory.name[:-13] for run in sweep_plan(train, monkeypatch, *sweep, "hydra.sweeper.minutes=9")]
    assert order == [f"copy-{model}-s{seed}" for model in ("lstm", "gru", "janet") for seed in (0, 1)]


def test_what_is_left_counts_runs_of_unknown_cost_as_the_mean_of_the_known():
    todo = [SimpleNamespace(cost_key=key) for key in "aabc"]
    known = SimpleNamespace(seconds={"a": 60.0, "b": 300.0})
    assert Sweep.time_left(known, todo) == " (about 9 min left)"
    assert Sweep.time_left(known, todo[3:]) == ""


def sweep_plan(train, monkeypatch, *overrides):
    """The runs of a sweep in the order in which they would be trained."""
    planned = []
    monkeypatch.setattr(Sweep, "train", lambda self, todo: planned.extend(todo))
    assert train("-m", *QUICK, *overrides).status == 0
    return planned


def of_seed_1(monkeypatch, factor):
    """The training losses of seed 1 are multiplied by what `factor` returns."""
    original = Copy.loss

    def loss(self, logits, batch):
        found = original(self, logits, batch)
        return found * factor() if self.seed == 1 and torch.is_grad_enabled() else found

    monkeypatch.setattr(Copy, "loss", loss)


def test_a_seed_that_diverges_leaves_the_others_alone(train, monkeypatch):
    of_seed_1(monkeypatch, lambda: math.nan)
    assert train(*THREE).status == 0
    assert [saved["status"] for saved in records()] == ["finished", "diverged", "finished"]


def test_a_seed_that_fails_leaves_the_others_alone(train, monkeypatch):
    """Its error comes when they have ended."""
    of_seed_1(monkeypatch, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(*THREE)
    assert [saved["status"] for saved in records()] == ["finished", "failed", "finished"]


def test_an_interruption_leaves_the_later_seeds(train, tmp_path, monkeypatch):
    """The seed that it comes in goes on where it stopped, and those before it are skipped."""
    assert train(*THREE, "run_dir=whole").status == 0
    original = TrainingRun.record_step

    def record_step(self, *arguments):
        original(self, *arguments)
        if self.task.seed == 1 and self.progress.step == 3:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as stopping:
        stopping.setattr(TrainingRun, "record_step", record_step)
        assert train(*THREE, "run_dir=stopped").status == 130
    assert [saved["status"] for saved in records("stopped")] == ["finished", "interrupted"]
    places = sorted(path.parent for path in (tmp_path / "stopped").glob("*/record.json"))
    assert [saved_step(place) for place in places] == [4, 3]
    assert train(*THREE, "run_dir=stopped").out.count("finished, skipped") == 1
    for found, whole in zip(records("stopped"), records("whole"), strict=True):
        assert {key: found[key] for key in ALONE} == {key: whole[key] for key in ALONE}
