"""fit and evaluate: determinism, selection, ends, what is logged."""

import dataclasses
import itertools
import json
import math
import re
import signal
import time
from types import SimpleNamespace

import pytest
import torch
import trainings
from quick import QUICK, records
from trainings import fit_small as fit
from trainings import quiet, small_parts

from timescales import LSTM
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.tasks import Copy
from timescales.training import loop
from timescales.training.best import Best
from timescales.training.memory import named, timescale_quantiles
from timescales.training.outcome import outcome
from timescales.training.run import load_checkpoint, save_checkpoint

ODD = [*QUICK, "logger=csv"]


def test_a_task_that_selects_by_no_metric_of_its_own_is_told(tmp_path):
    model, job, optimizer = small_parts()
    job.spec = dataclasses.replace(job.spec, select=("acuracy", "max"))
    line = "selects weights by acuracy, but its metrics are loss, accuracy, sequence_accuracy"
    with pytest.raises(ConfigError, match=line):
        trainings.fit(model, job, optimizer, quiet, LoopSettings(max_epochs=1), tmp_path)


def test_metrics_of_any_number_type_are_plain_floats_in_the_record(train):
    """A record is JSON. Tensors and NumPy's numbers came to their end only after the whole training."""
    assert train(*ODD, "task._target_=odd_tasks.OddMetrics").status == 0
    (saved,) = records()
    assert {name: type(value) for name, value in saved["metrics"].items()} == dict.fromkeys(saved["metrics"], float)
    assert {"test/some", "test/ten", "test/perplexity", "valid/accuracy"} <= saved["metrics"].keys()
    assert saved["metrics"]["test/ten"] == 10.0
    assert saved["metrics"]["test/perplexity"] == pytest.approx(math.exp(saved["metrics"]["test/loss"]), rel=1e-6)
    assert saved["chance"] == pytest.approx(math.log(8))
    assert "finished, skipped" in train(*ODD, "task._target_=odd_tasks.OddMetrics").out


def test_a_metric_that_is_no_number_is_refused_at_the_first_validation(train):
    done = train(*ODD, "task._target_=odd_tasks.NoNumber", "loop.max_steps=1000", "loop.eval_every=1")
    assert (done.status, "the task's metric vector must be a number" in done.err) == (1, True)
    (saved,) = records()
    assert saved["status"] == "failed"


def test_seconds_while_a_process_is_stopped_do_not_count(monkeypatch):
    """SIGSTOP for an hour: the clock goes on, the processor does not work."""
    times = SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: now[1])
    now = [100.0, 5.0]
    monkeypatch.setattr(loop, "time", times)
    run = SimpleNamespace(progress=SimpleNamespace(seconds=0.0))
    clock = loop.Clock(run)
    now[:] = [103.0, 7.5]
    with clock.paused():
        now[:] = [200.0, 8.0]  # a pause, as for a checkpoint
    assert run.progress.seconds == 3.0
    for later, seconds in (([3800.0, 9.0], 4.0), ([3860.0, 10.0], 64.0)):  # a slow disk: it works little, but it works
        now[:] = later
        with clock.paused():
            assert run.progress.seconds == seconds


def test_test_split_is_untouched_until_fitting_has_ended(tmp_path, monkeypatch):
    seen = []
    original = Copy.batches
    monkeypatch.setattr(Copy, "batches", lambda self, split, *a: seen.append(split) or original(self, split, *a))
    run = fit(tmp_path / "run", LoopSettings(max_epochs=2))
    assert set(seen) == {"train", "valid"}
    outcome(run)
    assert seen[-1] == "test"


def test_best_step_is_chosen_on_validation(tmp_path, monkeypatch):
    values = iter([0.1, 0.4, 0.4, 0.2])
    weights = {}
    original = loop.evaluate

    def evaluate(model, task, split, max_batches=None):
        found = original(model, task, split, max_batches)
        if split == "valid":
            found["accuracy"] = next(values)
            weights[len(weights) + 1] = model.readout.bias.detach().clone()
        return found

    monkeypatch.setattr(loop, "evaluate", evaluate)
    run = fit(tmp_path / "run", LoopSettings(max_epochs=4))
    assert run.progress.best == Best("valid/accuracy", 0.4, 10)  # the first of equals
    result = outcome(run)
    assert (result.metrics["valid/accuracy"], result.last["valid/accuracy"]) == (0.4, 0.2)
    assert torch.equal(run.model.readout.bias, weights[2])
    kept = load_checkpoint(tmp_path / "run" / "best.pt")
    assert kept["step"] == 10
    assert torch.equal(kept["model"]["readout.bias"], weights[2])
    assert result.metrics["test/loss"] != result.last["test/loss"]


def test_a_validation_that_is_not_finite_is_never_the_best(tmp_path, monkeypatch):
    original, values, weights = loop.evaluate, iter([(0.4, 1.0), (0.9, math.nan)]), []

    def evaluate(model, task, split, max_batches=None):
        found = original(model, task, split, max_batches)
        if split == "valid":
            weights.append(model.readout.bias.detach().clone())
            found["accuracy"], found["loss"] = next(values)
        return found

    monkeypatch.setattr(loop, "evaluate", evaluate)
    run = fit(tmp_path / "run", LoopSettings(max_epochs=2))
    assert (run.progress.stopped, run.progress.best.step) == ("diverged", 5)
    outcome(run)
    assert torch.equal(run.model.readout.bias, weights[0])
    assert not torch.equal(weights[0], weights[1])


def test_a_metric_that_is_not_a_number_is_the_best_only_until_one_is(tmp_path, monkeypatch):
    values = iter([math.nan, math.nan, 0.2, 0.3, math.nan])
    monkeypatch.setattr(loop, "evaluate", lambda *a: {"accuracy": next(values), "sequence_accuracy": 0.0, "loss": 0.5})
    run = fit(tmp_path / "run", LoopSettings(max_epochs=5))
    assert (run.progress.best.value, run.progress.best.step, run.progress.since_best) == (0.3, 20, 1)
    values = itertools.repeat(math.nan)
    run = fit(tmp_path / "none", LoopSettings(max_epochs=5, patience=2))
    assert (run.progress.stopped, run.progress.best.step, run.progress.step) == ("patience", 5, 15)


@pytest.mark.parametrize(
    ("accuracies", "whole", "patience", "stopped"),
    [([0.3, 0.2, 0.4, 0.3, 0.4, 0.9], 0.0, 2, ("patience", 25)), ([1.0], 0.9995, None, ("solved", 5))],
    ids=["patience", "the task"],
)
def test_patience_or_the_task_ends_training(tmp_path, monkeypatch, accuracies, whole, patience, stopped):
    values, others = iter(accuracies), {"sequence_accuracy": whole, "loss": 0.0}
    monkeypatch.setattr(loop, "evaluate", lambda *a: {"accuracy": next(values), **others})
    run = fit(tmp_path / "run", LoopSettings(max_epochs=20, patience=patience))
    assert (run.progress.stopped, run.progress.step) == stopped


@pytest.mark.parametrize(("max_steps", "step", "word"), [(None, 10, "epochs"), (3, 3, "steps"), (99, 10, "epochs")])
def test_ends(tmp_path, max_steps, step, word):
    run = fit(tmp_path / "run", LoopSettings(max_epochs=2, max_steps=max_steps))
    assert (run.progress.step, run.progress.stopped) == (step, f"max_{word}")
    assert run.progress.curve[-1]["step"] == step  # the last step is always validated


def test_eval_every(tmp_path):
    run = fit(tmp_path / "run", LoopSettings(max_epochs=2, eval_every=4))
    assert [row["step"] for row in run.progress.curve] == [4, 8, 10]
    assert [row["epoch"] for row in run.progress.curve] == [0.8, 1.6, 2.0]


def test_the_logged_loss_is_the_mean_since_the_last_one(tmp_path, monkeypatch):
    original, losses, logged = Copy.loss, [], []

    def loss(self, logits, batch):
        found = original(self, logits, batch)
        losses.extend([found.item()] * torch.is_grad_enabled())
        return found

    monkeypatch.setattr(Copy, "loss", loss)
    fit(tmp_path / "run", LoopSettings(max_epochs=1, log_every=2), lambda v, s: logged.append(v.get("train/loss_nats")))
    assert logged == [None, math.fsum(losses[:2]) / 2, None, math.fsum(losses[2:4]) / 2, losses[4]]


def test_every_evaluation_is_shortened_alike(tmp_path, monkeypatch):
    values, calls = iter([0.4, 0.2, 0.0, 0.0]), []

    def evaluate(model, task, split, max_batches=None):
        calls.append((split, max_batches))
        return {"accuracy": next(values), "sequence_accuracy": 0.0, "loss": 1.0}

    monkeypatch.setattr(loop, "evaluate", evaluate)
    outcome(fit(tmp_path / "run", LoopSettings(max_epochs=2, max_eval_batches=3)))
    assert calls == [("valid", 3), ("valid", 3), ("test", 3), ("test", 3)]


def with_a_bad_loss(monkeypatch, bad_step):
    """The loss of one training step is NaN. Returns a list, which grows by one with each training step."""
    original, trained = Copy.loss, []

    def loss(self, logits, batch):
        trained.extend([1] * torch.is_grad_enabled())
        return original(self, logits, batch) * (math.nan if torch.is_grad_enabled() and len(trained) == bad_step else 1)

    monkeypatch.setattr(Copy, "loss", loss)
    return trained


@pytest.mark.parametrize(("bad_step", "noticed"), [(8, 9), (9, 9), (7, 9)])
def test_a_loss_that_is_not_finite_ends_the_run_as_diverged(tmp_path, monkeypatch, bad_step, noticed):
    with_a_bad_loss(monkeypatch, bad_step)
    run = fit(tmp_path / "run", LoopSettings(max_epochs=9, eval_every=5, log_every=3))
    assert run.progress.stopped == "diverged"
    assert (run.progress.step, run.progress.diverged_at) == (noticed, bad_step)
    result = outcome(run)
    assert result.status == "diverged"
    assert result.last == {}
    assert math.isfinite(result.metrics["test/loss"])  # of the best weights before


@pytest.mark.parametrize(("bad_step", "log_every", "found"), [(8, 6, 8), (10, 6, 10), (7, 100, 7), (None, 3, 10)])
def test_a_validation_that_is_not_finite_names_the_step_that_was_not(tmp_path, monkeypatch, bad_step, log_every, found):
    """Validations come at steps 5 and 10, before the losses since the last log step were looked at."""
    evaluate, trained = loop.evaluate, with_a_bad_loss(monkeypatch, bad_step)

    def validated(*args):
        return evaluate(*args) | ({"loss": math.nan} if len(trained) == 10 else {})

    monkeypatch.setattr(loop, "evaluate", validated)
    run = fit(tmp_path / "run", LoopSettings(max_epochs=9, eval_every=5, log_every=log_every))
    assert (run.progress.stopped, run.progress.step, run.progress.diverged_at) == ("diverged", 10, found)


def test_a_gradient_is_clipped_to_its_norm(tmp_path):
    model, job, _ = small_parts()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainings.fit(model, job, optimizer, quiet, LoopSettings(max_epochs=1, max_steps=1, clip_norm=1e-3), tmp_path)
    moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_evaluate_weighs_batches_by_their_size():
    class Uneven:
        spec = SimpleNamespace(select=("loss", "min"), carried=False)
        n_batches = {"valid": 2}.get

        def batches(self, split):
            yield SimpleNamespace(n=3, value=1.0)
            yield SimpleNamespace(n=1, value=5.0)

        def metrics(self, logits, batch):
            return {"loss": (torch.tensor(batch.n * batch.value), batch.n)}

        def derived(self, metrics):
            return metrics | {"twice": 2 * metrics["loss"]}

    model = torch.nn.Identity()
    model.forward = lambda batch, state: SimpleNamespace(logits=None)
    assert loop.evaluate(model, Uneven(), "valid") == {"loss": 2.0, "twice": 4.0}
    assert loop.evaluate(model, Uneven(), "valid", max_batches=1) == {"loss": 1.0, "twice": 2.0}


def test_seconds_are_of_the_training_without_its_checkpoints_and_times(tmp_path, monkeypatch):
    """Times are T_1/e, on request."""
    clock, original = [0.0], save_checkpoint

    def save(*args):
        clock[0] += 100
        original(*args)

    def one_over_e(*args):
        clock[0] += 100
        return {}

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("timescales.training.run.save_checkpoint", save)
    monkeypatch.setattr(loop, "one_over_e_values", one_over_e)

    def log(values, step):
        clock[0] += 1
        if step == 7:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", LoopSettings(max_epochs=2), log)
    clock[0] += 1000
    assert fit(tmp_path / "run", LoopSettings(max_epochs=2, checkpoint_every=0), log).progress.seconds == 10


def test_quantiles_of_time_scales_are_named_by_the_share_below(monkeypatch):
    units = SimpleNamespace(rnn=LSTM(1, 101))
    monkeypatch.setattr(LSTM, "timescales", lambda self: [torch.arange(100.0, -1.0, -1.0)])
    expected = {f"timescale/layer1/q{q}": float(q) for q in (0, 10, 25, 50, 75, 90, 100)}
    assert named("timescale", timescale_quantiles(units)) == expected


# --- Trainings of some minutes: `make test-slow` ----------------------------------------------------------------------
@pytest.mark.slow
def test_the_demos_point(script, tmp_path, monkeypatch):
    """On irregularly sampled waves a pLSTM tells the periods apart and an LSTM does not (94.0 and 66.9 %)."""
    import demo

    monkeypatch.setattr(demo, "FOLDER", tmp_path / "demo")
    said = script("demo")
    accuracy = {saved["config"]["model"]["name"]: saved["metrics"]["test/accuracy"] for saved in records(demo.FOLDER)}
    assert accuracy["plstm"] > 0.85
    assert accuracy["lstm"] < 0.80
    shown = re.findall(r"^  (LSTM|power-law LSTM) +([\d.]+) %", said, re.M)
    assert shown == [(demo.MODELS[name], f"{100 * accuracy[name]:.1f}") for name in ("lstm", "plstm")]
    assert (demo.FOLDER / "demo.png").stat().st_size > 0


@pytest.mark.slow
def test_a_plstm_learns_to_copy_over_ten_steps(train, tmp_path):
    """Copy at T = 10 to below a third of the loss of a model without memory: 10 ln 8 / 30 = .693."""
    sizes = ["task.train_size=20000", "task.valid_size=500", "task.test_size=500", "loop.max_epochs=10"]
    overrides = ["task=copy", "task.T=10", "model=plstm", "optimizer.lr=0.005", *sizes, "logger=none"]
    assert train(*overrides).status == 0
    (path,) = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(path.read_text())["metrics"]["test/loss"] < 0.231
