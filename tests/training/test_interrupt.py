"""Signals: acknowledged at once, obeyed after a step or a batch of an evaluation, and nothing is lost."""

import json
import signal
import subprocess
import sys

import pytest
from quick import QUICK
from trainings import fit_small, quiet, same_weights, saved_step

from timescales.config.schema import LoopSettings
from timescales.models.sequence import SequenceModel
from timescales.tasks import task
from timescales.training import build, outcome, progress
from timescales.training.interrupt import Interrupt


@pytest.fixture
def evaluations(monkeypatch):
    """Evaluations have four batches, which are counted; `evaluations(17)` raises SIGTERM in the 17th."""
    original, counted = SequenceModel.forward, []

    def forward(self, batch, state=None):
        if not self.training:
            counted.append(1)
            if len(counted) == at[0]:
                signal.raise_signal(signal.SIGTERM)
        return original(self, batch, state)

    def signal_in(batch):
        counted.clear()
        at[0] = batch
        return counted

    at = [0]
    monkeypatch.setattr(task, "EVAL_BATCH", 4)
    monkeypatch.setattr(SequenceModel, "forward", forward)
    return signal_in


@pytest.mark.parametrize("batch", [2, 4, 6])
def test_a_signal_in_a_validation_is_obeyed_after_the_batch(tmp_path, evaluations, batch):
    """The validation is repeated when the run continues, and nothing differs from a run that nobody disturbed."""
    settings = LoopSettings(max_epochs=3, log_every=2, checkpoint_every=1e9)  # validations after steps 5, 10 and 15
    whole_log, parts_log = [], []
    whole = fit_small(tmp_path / "whole", settings, lambda values, step: whole_log.append((step, values)))
    counted = evaluations(batch)
    step = 5 if batch <= 4 else 10
    with pytest.raises(KeyboardInterrupt, match=f"at step {step}"):
        fit_small(tmp_path / "parts", settings, lambda values, step: parts_log.append((step, values)))
    assert len(counted) == batch
    validated = batch == 4  # the signal came in the last batch
    assert saved_step(tmp_path / "parts") == parts_log[-1][0] == (step if validated else step - 1)
    resumed = fit_small(tmp_path / "parts", settings, lambda values, step: parts_log.append((step, values)))
    assert parts_log == whole_log
    assert same_weights(whole.model, resumed.model)
    assert (resumed.progress.curve, resumed.progress.best) == (whole.progress.curve, whole.progress.best)


def test_a_signal_in_the_test_is_obeyed_after_the_batch(train, tmp_path, evaluations):
    overrides = [*QUICK, "task.test_size=16", "logger=csv"]
    assert train(*overrides, f"run_dir={tmp_path / 'whole'}").status == 0
    counted = evaluations(4)  # two batches of the validation, and two of the four of the test
    stopped = train(*overrides, f"run_dir={tmp_path / 'parts'}")
    assert (stopped.status, len(counted)) == (130, 4)
    assert stopped.err.index("Stopping: ") < stopped.err.index("Saved in the evaluation on test. Run the same command")
    evaluations(0)
    assert train(*overrides, f"run_dir={tmp_path / 'parts'}").status == 0
    records = [json.loads((tmp_path / name / "record.json").read_text()) for name in ("whole", "parts")]
    for key in ("status", "metrics", "last", "best", "curve", "steps", "stopped"):
        assert records[0][key] == records[1][key], key


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def number(request):
    """A signal that ends a run. Under `nohup make test` SIGHUP is ignored: here it is not."""
    before = signal.getsignal(request.param)
    if before is signal.SIG_IGN:
        signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_ends_a_run_after_the_step(tmp_path, number):
    with pytest.raises(KeyboardInterrupt, match="at step 3"):
        fit_small(tmp_path, LoopSettings(max_epochs=2), lambda values, step: step == 3 and signal.raise_signal(number))
    assert saved_step(tmp_path) == 3


def test_sighup_stays_ignored_under_nohup(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        fit_small(tmp_path, LoopSettings(max_epochs=1), lambda values, step: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert saved_step(tmp_path) == 5


def test_a_signal_ends_a_run_that_is_being_built_at_once(train, monkeypatch, number):
    def slow(config):
        signal.raise_signal(number)
        pytest.fail("it was built")

    monkeypatch.setattr(build, "build", slow)
    assert train(*QUICK, "logger=csv").status == 130


@pytest.mark.parametrize("sweep", [["seeds=2"], ["-m", "seed=0,1"]], ids=["seeds", "sweep"])
def test_a_signal_after_the_last_evaluation_ends_a_sweep(train, tmp_path, monkeypatch, sweep):
    """The run has ended, and no other begins; the same command trains the rest."""
    original = outcome.outcome
    monkeypatch.setattr(outcome, "outcome", lambda run: (original(run), signal.raise_signal(signal.SIGINT))[0])
    stopped = train(*QUICK, "logger=csv", *sweep)
    assert stopped.status == 130
    (saved,) = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(saved.read_text())["status"] == "finished"
    monkeypatch.setattr(outcome, "outcome", original)
    assert train(*QUICK, "logger=csv", *sweep).status == 0
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 2


def test_a_signal_that_is_passed_on_is_never_a_second_one():
    with Interrupt() as interrupt:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1):
            signal.raise_signal(number)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


LONG_BATCH = """
import hashlib
from timescales.training.interrupt import Interrupt

with Interrupt():
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # half an hour outside of Python, whose handlers wait for it
"""


def test_signals_within_a_long_batch_are_acknowledged_and_the_second_ends_it():
    process = subprocess.Popen([sys.executable, "-c", LONG_BATCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline() == b"\n"
    assert process.stderr.readline().startswith(b"Stopping: ")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Stopped without saving" in err


@pytest.mark.parametrize("delay", [0.0, 1e9])
def test_a_long_evaluation_shows_its_progress(tmp_path, monkeypatch, capsys, evaluations, delay):
    monkeypatch.setattr(progress, "DELAY", delay)
    fit_small(tmp_path, LoopSettings(max_epochs=1), quiet)
    shown = capsys.readouterr().err
    assert ("evaluation on valid" in shown and "/4 [" in shown) == (delay == 0.0)
