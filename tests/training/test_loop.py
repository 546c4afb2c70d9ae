"""fit, evaluate, checkpoints: determinism, resume, selection, ends."""

import dataclasses
import json
import math
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch

from timescales import LSTM, PLSTM
from timescales.config.schema import Loop
from timescales.errors import ConfigError
from timescales.tasks import Copy
from timescales.training import checkpoint, loop
from timescales.training.interrupt import Interrupt
from timescales.training.model import SequenceModel

OPTIMIZER = torch.optim.SGD([torch.zeros(1)])  # one that evaluates with the weights as they are
SMALL = {"T": 3, "batch_size": 8, "train_size": 40, "valid_size": 16, "test_size": 16}


def parts(seed=0, rnn=PLSTM, lr=1e-2, **task):
    torch.manual_seed(seed)
    job = Copy(**{**SMALL, **task}, seed=seed)
    model = SequenceModel(rnn(job.spec.input_size, 6, num_layers=2, dropout=0.3), job.spec)
    return model, job, torch.optim.Adam(model.parameters(), lr=lr)


def fit(directory, settings, log=lambda values, step: None, **kwargs):
    directory.mkdir(exist_ok=True)
    model, job, optimizer = parts(**kwargs)
    return loop.fit(model, job, optimizer, log, settings, directory), model, job


def signal_at(stop):
    return lambda values, step: step == stop and signal.raise_signal(signal.SIGINT)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_two_runs_are_bitwise_equal(tmp_path):
    (a, model_a, _), (b, model_b, _) = (fit(tmp_path / name, Loop(max_epochs=2)) for name in "ab")
    assert same(model_a, model_b)
    assert a.curve == b.curve
    assert [row["step"] for row in a.curve] == [5, 10]


def test_a_task_that_selects_by_no_metric_of_its_own_is_told(tmp_path):
    model, job, optimizer = parts()
    job.spec = dataclasses.replace(job.spec, select=("acuracy", "max"))
    with pytest.raises(ConfigError, match="selects by acuracy; its metrics are loss, accuracy, sequence_accuracy"):
        loop.fit(model, job, optimizer, lambda values, step: None, Loop(max_epochs=1), tmp_path)


@pytest.mark.parametrize("stop_after", [1, 4, 5, 7, 12])
def test_interrupted_and_resumed_is_bitwise_equal_to_undisturbed(tmp_path, stop_after):
    settings = Loop(max_epochs=3, log_every=2, checkpoint_every=1e9)
    whole_log, parts_log = [], []
    whole, model, _ = fit(tmp_path / "whole", settings, lambda v, s: whole_log.append((s, v)))

    def log(values, step):
        parts_log.append((step, values))
        if step == stop_after:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "parts", settings, log)
    torch.rand(3)  # whatever happens in between does not matter
    resumed, resumed_model, _ = fit(tmp_path / "parts", settings, lambda v, s: parts_log.append((s, v)))
    assert same(model, resumed_model)
    assert resumed.curve == whole.curve
    assert resumed.best == whole.best
    assert parts_log == whole_log


def test_second_signal_is_not_held_back():
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_test_split_is_untouched_until_fitting_has_ended(tmp_path, monkeypatch):
    seen = []
    original = Copy.batches
    monkeypatch.setattr(Copy, "batches", lambda self, split, *a: seen.append(split) or original(self, split, *a))
    progress, model, job = fit(tmp_path / "run", Loop(max_epochs=2))
    assert set(seen) == {"train", "valid"}
    loop.outcome(model, job, OPTIMIZER, progress, Loop(), tmp_path / "run")
    assert seen[-1] == "test"


def test_best_step_is_chosen_on_validation(tmp_path, monkeypatch):
    values = iter([0.1, 0.4, 0.4, 0.2])
    weights = {}
    original = loop.evaluate

    def evaluate(model, job, split, max_batches=None):
        found = original(model, job, split, max_batches)
        if split == "valid":
            found["accuracy"] = next(values)
            weights[len(weights) + 1] = model.readout.bias.detach().clone()
        return found

    monkeypatch.setattr(loop, "evaluate", evaluate)
    progress, model, job = fit(tmp_path / "run", Loop(max_epochs=4))
    assert progress.best == {"metric": "valid/accuracy", "value": 0.4, "step": 10}  # the first of equals
    outcome = loop.outcome(model, job, OPTIMIZER, progress, Loop(), tmp_path / "run")
    assert outcome["metrics"]["valid/accuracy"] == 0.4
    assert outcome["last"]["valid/accuracy"] == 0.2
    assert torch.equal(model.readout.bias, weights[2])
    kept = checkpoint.load(tmp_path / "run" / "best.pt")
    assert kept["step"] == 10
    assert torch.equal(kept["model"]["readout.bias"], weights[2])
    assert outcome["metrics"]["test/loss"] != outcome["last"]["test/loss"]


def test_a_validation_that_is_not_finite_is_never_the_best(tmp_path, monkeypatch):
    original, values, weights = loop.evaluate, iter([(0.4, 1.0), (0.9, math.nan)]), []

    def evaluate(model, job, split, max_batches=None):
        found = original(model, job, split, max_batches)
        if split == "valid":
            weights.append(model.readout.bias.detach().clone())
            found["accuracy"], found["loss"] = next(values)
        return found

    monkeypatch.setattr(loop, "evaluate", evaluate)
    progress, model, job = fit(tmp_path / "run", Loop(max_epochs=2))
    assert (progress.stopped, progress.best["step"]) == ("diverged", 5)
    loop.outcome(model, job, OPTIMIZER, progress, Loop(), tmp_path / "run")
    assert torch.equal(model.readout.bias, weights[0])
    assert not torch.equal(weights[0], weights[1])


def test_patience_ends_training(tmp_path, monkeypatch):
    values = iter([0.3, 0.2, 0.4, 0.3, 0.4, 0.9])
    monkeypatch.setattr(loop, "evaluate", lambda *a: {"accuracy": next(values), "sequence_accuracy": 0.0, "loss": 1.0})
    progress, *_ = fit(tmp_path / "run", Loop(max_epochs=20, patience=2))
    assert progress.stopped == "patience"
    assert len(progress.curve) == 5


def test_patience_goes_on_counting_after_an_interruption(tmp_path, monkeypatch):
    values = iter([0.3, 0.2, 0.1, 0.1, 0.1, 0.1])
    monkeypatch.setattr(loop, "evaluate", lambda *a: {"accuracy": next(values), "sequence_accuracy": 0.0, "loss": 1.0})
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", Loop(max_epochs=20, patience=3), signal_at(15))
    progress, *_ = fit(tmp_path / "run", Loop(max_epochs=20, patience=3))
    assert (progress.stopped, progress.step) == ("patience", 20)


def test_task_ends_training(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "evaluate", lambda *a: {"accuracy": 1.0, "sequence_accuracy": 0.9995, "loss": 0.0})
    progress, *_ = fit(tmp_path / "run", Loop(max_epochs=20))
    assert progress.stopped == "solved"
    assert progress.step == 5


@pytest.mark.parametrize(("settings", "step", "word"), [
    (Loop(max_epochs=2), 10, "max_epochs"),
    (Loop(max_epochs=2, max_steps=3), 3, "max_steps"),
    (Loop(max_epochs=2, max_steps=99), 10, "max_epochs"),
])  # fmt: skip
def test_ends(tmp_path, settings, step, word):
    progress, *_ = fit(tmp_path / "run", settings)
    assert (progress.step, progress.stopped) == (step, word)
    assert progress.curve[-1]["step"] == step  # the last step is always validated


def test_a_run_that_ends_as_a_signal_comes_has_ended(tmp_path):
    try:
        progress, *_ = fit(tmp_path / "run", Loop(max_epochs=2), signal_at(10))
    except KeyboardInterrupt:
        pytest.fail("nothing was left to interrupt")
    assert (progress.stopped, progress.step) == ("max_epochs", 10)


def test_eval_every(tmp_path):
    progress, *_ = fit(tmp_path / "run", Loop(max_epochs=2, eval_every=4))
    assert [row["step"] for row in progress.curve] == [4, 8, 10]
    assert [row["epoch"] for row in progress.curve] == [0.8, 1.6, 2.0]


def test_the_logged_loss_is_the_mean_since_the_last_one(tmp_path, monkeypatch):
    original, losses, logged = Copy.loss, [], []

    def loss(self, logits, batch):
        found = original(self, logits, batch)
        losses.extend([found.item()] * torch.is_grad_enabled())
        return found

    monkeypatch.setattr(Copy, "loss", loss)
    fit(tmp_path / "run", Loop(max_epochs=1, log_every=2), lambda v, s: logged.append(v.get("train/loss_nats")))
    assert logged == [None, math.fsum(losses[:2]) / 2, None, math.fsum(losses[2:4]) / 2, losses[4]]


def test_every_evaluation_is_shortened_alike(tmp_path, monkeypatch):
    values, calls = iter([0.4, 0.2, 0.0, 0.0]), []

    def evaluate(model, job, split, max_batches=None):
        calls.append((split, max_batches))
        return {"accuracy": next(values), "sequence_accuracy": 0.0, "loss": 1.0}

    monkeypatch.setattr(loop, "evaluate", evaluate)
    settings = Loop(max_epochs=2, max_eval_batches=3)
    progress, model, job = fit(tmp_path / "run", settings)
    loop.outcome(model, job, OPTIMIZER, progress, settings, tmp_path / "run")
    assert calls == [("valid", 3), ("valid", 3), ("test", 3), ("test", 3)]


@pytest.mark.parametrize(("bad_step", "noticed"), [(8, 9), (9, 9), (7, 9)])
def test_a_loss_that_is_not_finite_ends_the_run_as_diverged(tmp_path, monkeypatch, bad_step, noticed):
    original, trained = Copy.loss, []

    def loss(self, logits, batch):
        trained.extend([1] * torch.is_grad_enabled())
        return original(self, logits, batch) * (math.nan if torch.is_grad_enabled() and len(trained) == bad_step else 1)

    monkeypatch.setattr(Copy, "loss", loss)
    progress, model, job = fit(tmp_path / "run", Loop(max_epochs=9, eval_every=5, log_every=3))
    assert progress.stopped == "diverged"
    assert (progress.step, progress.diverged_at) == (noticed, bad_step)
    outcome = loop.outcome(model, job, OPTIMIZER, progress, Loop(), tmp_path / "run")
    assert outcome["status"] == "diverged"
    assert outcome["last"] == {}
    assert math.isfinite(outcome["metrics"]["test/loss"])  # of the best weights before


@pytest.mark.parametrize(("bad_step", "log_every", "found"), [(8, 6, 8), (10, 6, 10), (7, 100, 7), (None, 3, 10)])
def test_a_validation_that_is_not_finite_names_the_step_that_was_not(tmp_path, monkeypatch, bad_step, log_every, found):
    """Validations come at steps 5 and 10, before the losses since the last log step were looked at."""
    original, evaluate, trained = Copy.loss, loop.evaluate, []

    def loss(self, logits, batch):
        trained.extend([1] * torch.is_grad_enabled())
        return original(self, logits, batch) * (math.nan if torch.is_grad_enabled() and len(trained) == bad_step else 1)

    def validated(*args):
        return evaluate(*args) | ({"loss": math.nan} if len(trained) == 10 else {})

    monkeypatch.setattr(Copy, "loss", loss)
    monkeypatch.setattr(loop, "evaluate", validated)
    progress, *_ = fit(tmp_path / "run", Loop(max_epochs=9, eval_every=5, log_every=log_every))
    assert (progress.stopped, progress.step, progress.diverged_at) == ("diverged", 10, found)


def test_a_finished_fit_resumes_to_nothing(tmp_path):
    before, model, _ = fit(tmp_path / "run", Loop(max_epochs=1))
    after, again, _ = fit(tmp_path / "run", Loop(max_epochs=1), lambda *a: pytest.fail("a step was taken"))
    assert same(model, again)
    assert before.curve == after.curve


def test_a_checkpoint_does_not_choose_how_the_optimizer_is_computed(tmp_path):
    """A run begun on a GPU, in one kernel, goes on on a CPU as its optimizer was built there; and the other way."""
    fit(tmp_path, Loop(max_epochs=1))
    content = checkpoint.load(tmp_path / "last.pt")
    content["optimizer"]["param_groups"][0] |= {"fused": True, "foreach": False}
    checkpoint.save(tmp_path / "last.pt", content)
    model, _, optimizer = parts()
    loop._resume(model, optimizer, tmp_path, torch.device("cpu"))
    (group,) = optimizer.param_groups
    assert (group["fused"], group["foreach"], group["lr"]) == (None, None, 1e-2)
    assert optimizer.state_dict()["state"][0]["step"] == 5


def test_random_generators_of_as_many_gpus_as_there_are(monkeypatch):
    """A run on a CPU asks for none, which would start the GPU; one begun on two GPUs goes on on one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: pytest.fail("the GPU was asked"))
    state = checkpoint.rng_state()
    assert state["cuda"] == []
    put = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", put.extend)
    checkpoint.set_rng_state(state | {"cuda": [torch.tensor([1]), torch.tensor([2])]})
    assert put == [torch.tensor([1])]


def test_evaluate_weighs_batches_by_their_size():
    class Uneven:
        spec = SimpleNamespace(select=("loss", "min"), carried=False)

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


def test_seconds_are_of_the_training_without_its_checkpoints(tmp_path, monkeypatch):
    clock, original = [0.0], checkpoint.save

    def save(*args):
        clock[0] += 100
        original(*args)

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(checkpoint, "save", save)

    def log(values, step):
        clock[0] += 1
        if step == 7:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", Loop(max_epochs=2), log)
    clock[0] += 1000
    assert fit(tmp_path / "run", Loop(max_epochs=2, checkpoint_every=0), log)[0].seconds == 10


def test_checkpoints_take_at_most_a_fiftieth_of_the_time(tmp_path, monkeypatch):
    clock, steps, saved, original = [0.0], [0], [], checkpoint.save

    def save(*args):
        clock[0] += 0.5
        saved.append(steps[0])
        original(*args)

    def log(values, step):
        clock[0] += 1
        steps[0] = step

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(checkpoint, "save", save)
    fit(tmp_path / "run", Loop(max_epochs=12, eval_every=100, checkpoint_every=10), log)
    assert saved == [10, 35, 60]


def test_better():
    best = {"value": 0.5}
    assert loop.better(0.6, best, "max")
    assert not loop.better(0.5, best, "max")
    assert loop.better(0.4, best, "min")
    assert not loop.better(math.nan, best, "max")
    assert loop.better(0.0, None, "max")


def test_quantiles_of_time_scales_are_named_by_the_share_below():
    units = SimpleNamespace(rnn=SimpleNamespace(timescales=lambda: [torch.arange(100.0, -1.0, -1.0)]))
    expected = {f"timescale/layer1/q{q}": float(q) for q in (0, 10, 25, 50, 75, 90, 100)}
    assert loop.timescale_values(loop.timescale_quantiles(units)) == expected


def test_checkpoint_round_trip_and_damage(tmp_path):
    path = tmp_path / "last.pt"
    assert checkpoint.load(path) is None
    content = {"a": torch.arange(3.0), "b": {"c": [1, 2.5, None, "x"]}}
    checkpoint.save(path, content)
    found = checkpoint.load(path)
    assert torch.equal(found["a"], content["a"])
    assert found["b"] == content["b"]
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"not a checkpoint"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"last\.pt is damaged: start over with resume=false"):
            checkpoint.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]  # no temporary file stays


def test_a_checkpoint_is_whole_or_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 1})
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, {"step": 2})
    assert checkpoint.load(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def test_learns_a_short_copy(tmp_path):
    # T = 0 is remembering ten symbols in order; 400 steps take an LSTM visibly below chance (.942 against 1.040 nats).
    torch.manual_seed(0)
    job = Copy(T=0, batch_size=32, train_size=6400, valid_size=200, test_size=100)
    model = SequenceModel(LSTM(10, 64), job.spec)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    progress = loop.fit(model, job, optimizer, lambda v, s: None, Loop(max_epochs=2, clip_norm=1.0), tmp_path)
    assert progress.curve[-1]["valid/loss"] < 0.95 * job.chance()
    assert progress.curve[-1]["valid/accuracy"] > 1.5 / 8


def test_what_is_not_this_runs_checkpoint_is_named(tmp_path):
    fit(tmp_path / "run", Loop(max_epochs=1))
    path = tmp_path / "run" / "last.pt"
    found = checkpoint.load(path)
    for wrong in ({"model": {}}, [1, 2], found | {"model": {"other": torch.zeros(2)}}):
        checkpoint.save(path, wrong)
        with pytest.raises(ConfigError, match=r"last\.pt is .*: start over with resume=false"):
            fit(tmp_path / "run", Loop(max_epochs=2))


def test_kill_9_and_resume_is_bitwise_equal(tmp_path, train, train_process):
    overrides = ["model=plstm", "task=copy", "task.T=5", "model.hidden_size=8", "task.batch_size=8", "seed=3",
                 "task.train_size=400", "task.valid_size=50", "task.test_size=50", "logger=csv", "loop.log_every=5",
                 "loop.max_steps=260", "loop.eval_every=40", "loop.checkpoint_every=0"]  # fmt: skip
    killed = tmp_path / "killed"
    process = train_process(*overrides, f"run_dir={killed}")
    for patience in (12, 35):  # twice, at other places
        while not (
            (killed / "curve.csv").is_file() and len((killed / "curve.csv").read_text().splitlines()) > patience
        ):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.005)
        process.kill()
        process.wait()
        process.stdout.close()
        assert json.loads((killed / "record.json").read_text())["status"] == "interrupted"
        if patience == 12:
            process = train_process(*overrides, f"run_dir={killed}")
    resumed = train(*overrides, f"run_dir={killed}")
    assert resumed.status == 0, resumed
    assert train(*overrides, f"run_dir={tmp_path / 'whole'}").status == 0
    records = [json.loads((tmp_path / name / "record.json").read_text()) for name in ("killed", "whole")]
    for key in ("status", "metrics", "last", "best", "curve", "timescales", "id", "steps", "stopped"):
        assert records[0][key] == records[1][key], key
    assert (killed / "curve.csv").read_text() == (tmp_path / "whole" / "curve.csv").read_text()
    last = [checkpoint.load(tmp_path / name / "last.pt") for name in ("killed", "whole")]
    assert all(torch.equal(last[0]["model"][k], last[1]["model"][k]) for k in last[0]["model"])
    assert not [p.name for p in killed.iterdir() if p.name.startswith(".")]
