"""Trainings of small models."""

import contextlib
import dataclasses
import math
import os
import signal

import pytest
import torch
from configs import config
from synthetic import sizes

from timescales import PLSTM
from timescales.config import schema
from timescales.models.sequence import SequenceModel
from timescales.tasks import Copy
from timescales.training import build, loop
from timescales.training.run import TrainingRun, load_checkpoint

TINY = ["model.hidden_size=6", "task.batch_size=8", "device=cpu", "run_dir=unused", "loop.log_every=3"]
COPY = ["task=copy", "task.T=3", *sizes("copy", 40, 16, 16)]  # five steps an epoch


def quiet(values, step):
    """A log that keeps nothing."""


def fit(model, task, optimizer, log, settings, directory):
    """Train one model to its end; its TrainingRun."""
    directory.mkdir(parents=True, exist_ok=True)
    run = TrainingRun(model, task, optimizer, log, settings, directory)
    loop.fit(run)
    return run


def saved_step(directory):
    """The last step that the checkpoint in a run's directory has finished."""
    content = load_checkpoint(directory / "last.pt")
    return content["progress"]["step"] - content["in_step"]


SMALL = {"T": 3, "batch_size": 8, "train_size": 40, "valid_size": 16, "test_size": 16}


def small_parts(seed=0, rnn=PLSTM, lr=1e-2, **task):
    """A model with dropout, the copy task with five steps an epoch, and Adam."""
    torch.manual_seed(seed)
    job = Copy(**{**SMALL, **task}, seed=seed)
    model = SequenceModel(rnn(job.spec.input_size, 6, num_layers=2, dropout=0.3), job.spec)
    return model, job, torch.optim.Adam(model.parameters(), lr=lr)


def fit_small(directory, settings, log=quiet, **kwargs):
    """Train `small_parts` to its end; its TrainingRun."""
    return fit(*small_parts(**kwargs), log, settings, directory)


def signal_at(stop):
    """A log that interrupts at a step."""
    return lambda values, step: step == stop and signal.raise_signal(signal.SIGINT)


def interrupted_and_resumed(fit, folder, *stops):
    """Two runs of fit(directory, log): an undisturbed one, and one that is interrupted after each of these steps.

    Asserts that both have the same weights and curve and log the same. Returns both, and what they log.
    """
    logged, parts = [], []
    whole = fit(folder / "whole", lambda values, step: logged.append((step, values)))
    for stop in (*stops, None):

        def log(values, step, stop=stop):
            parts.append((step, values))
            if step == stop:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt) if stop else contextlib.nullcontext():
            resumed = fit(folder / "parts", log)
        torch.rand(3)  # whatever happens in between does not matter
    assert parts == logged
    assert resumed.progress.curve == whole.progress.curve
    assert same_weights(whole.model, resumed.model)
    return whole, resumed, logged


def same_weights(a, b):
    """Whether two models are bitwise equal."""
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def parts(overrides, seed, corpora="nowhere", double=True):
    """Model, task, optimizer and settings of one run; float64, where eager is the only engine."""
    plain = schema.resolved(config(*TINY, *overrides, f"seed={seed}", f"data_root={corpora}"))
    model, task, optimizer = build.build(plain)
    return model.double() if double else model, task, optimizer, schema.LoopSettings(**plain["loop"])


def begin(overrides, directory, seed, log=quiet, **kwargs):
    """A run that is begun, or continued from its checkpoint."""
    model, task, optimizer, settings = parts(overrides, seed, **kwargs)
    directory.mkdir(parents=True, exist_ok=True)
    return TrainingRun(model, task, optimizer, log, settings, directory)


def trained(overrides, directory, seed=0, **kwargs):
    """A run that is trained to its end."""
    run = begin(overrides, directory, seed, **kwargs)
    loop.fit(run)
    return run


def two_steps(network, task, optimizer, plain):
    """Take two training steps: the names of the parameters that did not move. Asserts that both losses are finite."""
    settings = dataclasses.replace(schema.LoopSettings(**plain["loop"]), log_every=1)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    losses = []

    def log(values, step):
        losses.append(values["train/loss_nats"])

    run = TrainingRun(network, task, optimizer, log, settings, directory=None)
    loop.fit(run, until=2)
    assert (run.progress.stopped, len(losses)) == (None, 2)
    assert all(map(math.isfinite, losses))
    return {name for name, p in network.named_parameters() if torch.equal(p, before[name])}


def close(a, b, tolerance):
    """Assert that nested numbers are equal up to a relative and absolute tolerance, all else exactly."""
    if dataclasses.is_dataclass(a):
        a, b = dataclasses.asdict(a), dataclasses.asdict(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            close(a[key], b[key], tolerance)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y, tolerance)
    elif isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=tolerance, abs=tolerance, nan_ok=True)
    else:
        assert a == b


def same(one, other):
    """Assert that two runs are equal to the bit: progress, weights, optimizers."""
    for key in ("step", "best", "since_best", "curve", "diverged_at", "stopped"):
        close(getattr(one.progress, key), getattr(other.progress, key), 0.0)
    close(dict(one.model.state_dict()), dict(other.model.state_dict()), 0.0)
    close(one.optimizer.state_dict(), other.optimizer.state_dict(), 0.0)
