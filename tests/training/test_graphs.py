"""Captured training steps, on a CPU: a tape replays the operations of a step in the memory in which they ran.

It is to a CUDA graph what a CPU can be: numbers and addresses are those of the capture, and no code of Python runs
again. What reads a number on the CPU is refused, as a capture does.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from timescales import GRU, PLSTM
from timescales.config.schema import LoopSettings
from timescales.models.sequence import SequenceModel
from timescales.nn.engine import caches
from timescales.tasks import Adding, Copy
from timescales.training import graphs, loop
from timescales.training.run import TrainingRun

READS = ("_local_scalar_dense", "nonzero", "item")


class Tape(TorchDispatchMode):
    """Notes every operation; `replay` runs them again, into the tensors that they made."""

    def __init__(self):
        super().__init__()
        self.calls, self.replays = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(name in str(func) for name in READS):
            raise RuntimeError("operation not permitted when stream is capturing")
        made = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, made))
        return made

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for func, args, kwargs, made in self.calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@pytest.fixture
def tapes(monkeypatch):
    """Steps are captured on a CPU, on the tapes in this list."""
    made = []

    def capture(launch, device):
        made.append(Tape())
        with made[-1]:
            launch()
        return made[-1].replay

    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(graphs, "is_wanted", lambda model, device: True)
    monkeypatch.setattr(caches, "WARNED", set())
    return made


SETTINGS = LoopSettings(max_epochs=3, clip_norm=0.5, log_every=2)


def run_of(seed, kind=PLSTM, task=None, optimizer=torch.optim.Adam, settings=SETTINGS, log=lambda values, step: None):
    """A run of ten steps an epoch, of which the last batch is smaller."""
    task = task or Copy(T=5, batch_size=8, train_size=76, valid_size=20, test_size=20, seed=seed)
    torch.manual_seed(seed)
    model = SequenceModel(kind(task.spec.width, 7, engine="eager"), task.spec)
    return TrainingRun(model, task, optimizer(model.parameters(), lr=1e-2), log, settings, None)


def numbers(run):
    return [*run.model.state_dict().values(), *(torch.tensor(list(row.values())) for row in run.progress.curve)]


@pytest.mark.parametrize(("kind", "dropout"), [(PLSTM, 0.0), (GRU, 0.3)])
def test_a_captured_training_is_the_launched_one(kind, dropout, tapes):
    """To the last bit: weights, validations, and losses of a run with a schedule; two shapes are captured. With dropout
    on what is read a replay draws from the generator as it stands."""
    settings = LoopSettings(max_epochs=4, clip_norm=0.5, log_every=2, schedule="cosine", warmup=3)
    ends = []
    for captured in (False, True):
        logged = []
        run = run_of(3, kind, settings=settings, log=lambda values, step, logged=logged: logged.append(values))
        run.model.spec = run.model.spec.__class__(**vars(run.model.spec) | {"dropout": dropout})
        torch.manual_seed(9)
        with pytest.MonkeyPatch.context() as patch:
            if not captured:
                patch.setattr(graphs, "is_wanted", lambda *a: False)
            loop.fit(run)
        ends.append((numbers(run), logged))
    (first, logs), (second, others) = ends
    assert [tape.replays for tape in tapes] == [36 - 2, 4 - 2]  # of whole and of last batches; the trial replays once
    assert all(map(torch.equal, first, second))
    assert logs == others


def test_a_loss_that_is_not_finite_ends_a_captured_training(tapes):
    """At the step at which it was seen, and with the step at which it came."""
    task = Adding(T=6, batch_size=8, train_size=400, valid_size=20, test_size=20, seed=0)
    real, steps = task.batches, []

    def batches(*arguments):
        for batch in real(*arguments):
            steps.append(batch)
            yield batch._replace(x=batch.x * float("nan")) if len(steps) == 9 else batch

    task.batches = batches
    run = run_of(0, task=task, settings=LoopSettings(max_epochs=1, clip_norm=1.0, log_every=5))
    loop.fit(run)
    assert tapes[0].replays > 0
    assert (run.progress.stopped, run.progress.diverged_at, run.progress.step) == ("diverged", 9, 10)


class Read(Copy):
    def loss(self, logits, batch):
        return super().loss(logits, batch) / max(float(batch.x.max()), 1.0)


class Counted(Copy):
    """Its loss depends on how often it was called: what a graph cannot know."""

    calls = 0

    def loss(self, logits, batch):
        self.calls += 1
        return super().loss(logits, batch) * (2.0 if self.calls == 3 else 1.0)


@pytest.mark.parametrize(("task", "reason"), [(Read, "RuntimeError: operation"), (Counted, "its graph gives other")])
def test_what_cannot_be_captured_is_launched_as_before(task, reason, tapes, capsys):
    sizes = {"T": 5, "batch_size": 8, "train_size": 64, "valid_size": 20, "test_size": 20, "seed": 1}
    run, other = (run_of(1, task=task(**sizes)) for _ in range(2))
    loop.fit(run)
    assert capsys.readouterr().err.count(f"without a CUDA graph: {reason}") == 1
    assert len(tapes) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "is_wanted", lambda *a: False)
        loop.fit(other)
    if task is Read:
        assert all(map(torch.equal, numbers(run), numbers(other)))


def test_a_model_that_changes_a_buffer_is_not_captured(tapes, capsys):
    run = run_of(1)
    run.model.register_buffer("count", torch.zeros(1))
    run.model.register_forward_hook(lambda model, *_: model.count.add_(1.0) and None)
    loop.fit(run)
    assert "without a CUDA graph: it changes a buffer of the model" in capsys.readouterr().err
    assert tapes == []
    assert run.model.count >= 30


def test_a_replay_that_writes_nothing_is_refused(tapes, monkeypatch, capsys):
    """As on another device than the current one, where nothing is captured: what a capture left must not count."""

    def capture(launch, device):
        launch()
        return lambda: None

    monkeypatch.setattr(graphs, "is_wanted", lambda model, device: False)
    launched = run_of(3)
    loop.fit(launched)
    monkeypatch.setattr(graphs, "is_wanted", lambda model, device: True)
    monkeypatch.setattr(graphs, "capture", capture)
    found = run_of(3)
    loop.fit(found)
    assert "its graph gives other numbers" in capsys.readouterr().err
    assert all(map(torch.equal, numbers(found), numbers(launched)))


def test_only_gpus_and_plain_models_are_captured():
    run = run_of(0)
    assert not graphs.is_wanted(run.model, torch.device("cpu"))
    assert graphs.is_wanted(run.model, torch.device("cuda"))
    assert not graphs.is_wanted(torch.nn.Linear(1, 1), torch.device("cuda"))


def test_few_shapes_are_kept(tapes, monkeypatch):
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 1)
    loop.fit(run_of(2))
    assert len(tapes) == 1
