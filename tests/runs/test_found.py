"""What there is of a run, and whether it is skipped, resumed or restarted."""

import json

import pytest
from made_up import made_row
from quick import QUICK

from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.runs import found, provenance
from timescales.runs.found import Action
from timescales.runs.record import Record, State

QUICK = [*QUICK, "logger=none"]


def write(directory, state, golden="today", partial=(), job=None):
    """A record in this state; none for State.ABSENT."""
    config = {"task": {"name": "copy"}, "model": {"name": "lstm"}}
    rest = {"metrics": {}, "seconds": 0.0, "golden": golden, "partial": list(partial), "job": job}
    if state is not State.ABSENT:
        Record.of({"id": "a", "status": state.value, "config": config, **rest}).write(directory)


def decide(directory, run_id, force=False, resume=True, allow_partial=True):
    """What follows for a run of this id from what lies in a directory."""
    config = {"force": force, "resume": resume, "task": {"allow_partial": allow_partial}}
    return found.action(Run(config, run_id, directory), found.read_state(directory))


@pytest.fixture(autouse=True)
def golden(monkeypatch):
    monkeypatch.setattr(provenance, "golden", lambda task, model: "today")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


@pytest.mark.parametrize("state", State)
def test_what_follows_from_a_state(tmp_path, state):
    write(tmp_path, state)
    assert found.read_state(tmp_path).state is state
    assert found.read_state(tmp_path).state.ended is state.ended is (state in (State.FINISHED, State.DIVERGED))
    assert decide(tmp_path, "a") is (Action.SKIP if state.ended else Action.RESUME)
    assert decide(tmp_path, "a", resume=False) is (Action.SKIP if state.ended else Action.RESTART)
    assert decide(tmp_path, "a", force=True) is Action.RESTART
    assert decide(tmp_path, "a", force="stale") is decide(tmp_path, "a")


@pytest.mark.parametrize("state", [State.FAILED, State.FINISHED, State.DIVERGED, State.INTERRUPTED])
def test_a_stale_run_is_restarted_on_request(tmp_path, state):
    write(tmp_path, state, golden="of older code")
    assert decide(tmp_path, "a", force="stale") is Action.RESTART
    if state is State.INTERRUPTED:  # two halves of different numbers make no run
        with pytest.raises(ConfigError, match="restart it with force=stale"):
            decide(tmp_path, "a")
    else:
        assert decide(tmp_path, "a") is (Action.SKIP if state.ended else Action.RESUME)


@pytest.mark.parametrize(
    ("here", "committed", "counts"),
    [((), "", "record"), (["a part"], "", "row"), ((), "a part", "record"), (["a part"], "a part", "record")],
)
def test_what_was_made_of_more_data_counts(tmp_path, here, committed, counts):
    write(tmp_path, State.FINISHED, partial=here)
    both = found.Found(found.read_state(tmp_path).record, made_row(partial=committed))
    assert both.outcome is getattr(both, counts)


def test_the_run_of_another_configuration_is_refused(tmp_path):
    write(tmp_path, State.FINISHED)
    with pytest.raises(ConfigError, match="has another run, a; this command asks for b: choose another run_dir"):
        decide(tmp_path, "b")
    assert decide(tmp_path, "b", force=True) is Action.RESTART


def test_a_run_on_a_part_of_the_data_will_do_where_it_is_allowed(tmp_path):
    write(tmp_path, State.FINISHED, partial=["MNIST subset"])
    assert decide(tmp_path, "a", allow_partial=True) is Action.SKIP
    with pytest.raises(ConfigError, match="retrain it on the complete data with force=true"):
        decide(tmp_path, "a", allow_partial=False)


@pytest.mark.parametrize("status", ["diverged", "failed"])
@pytest.mark.parametrize("partial", ["", "a part"])
@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_committed_run_counts_if_it_ended_on_data_that_will_do(tmp_path, status, partial, allow_partial):
    config = {"force": False, "resume": False, "task": {"allow_partial": allow_partial}}
    row = found.Found(None, made_row(status=status, partial=partial))
    counts = status == "diverged" and (allow_partial or not partial)
    asked = found.action(Run(config, "a", tmp_path, skip="committed"), row)
    assert asked is (Action.SKIP if counts else Action.RESTART)
    assert found.action(Run(config, "a", tmp_path), row) is Action.RESTART


def test_a_requeued_job_resumes_what_it_began(tmp_path, monkeypatch):
    write(tmp_path, State.INTERRUPTED, job="17")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    assert decide(tmp_path, "a", force=True) is Action.RESTART
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert decide(tmp_path, "a", force=True) is decide(tmp_path, "a", resume=False) is Action.RESUME
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    assert decide(tmp_path, "a", force=True) is Action.RESTART


def test_resume_false_restarts(train, tmp_path):
    from timescales.training.run import load_checkpoint, save_checkpoint

    train(*QUICK)
    (directory,) = (tmp_path / "runs").iterdir()
    record = json.loads((directory / "record.json").read_text())
    (directory / "record.json").write_text(json.dumps(record | {"status": "interrupted", "sha256": None}))
    found = load_checkpoint(directory / "last.pt")
    found["model"]["readout.bias"] += 100.0
    save_checkpoint(directory / "last.pt", found)
    assert train(*QUICK, "resume=false").status == 0
    assert json.loads((directory / "record.json").read_text())["metrics"] == record["metrics"]
