"""Several seeds in one launch: each is its single run, whatever the others do."""

import contextlib
import math
import signal
import time
from types import SimpleNamespace

import pytest
import torch
import trainings
from trainings import COPY, Job, batched, same, signal_at, single

from timescales.tasks import Copy
from timescales.training import loop, seeds, stack
from timescales.training.run import resume_step


def test_a_seed_that_diverges_leaves_the_others_alone(tmp_path, monkeypatch):
    original, calls = Copy.loss, []

    def loss(self, logits, batch):
        if torch.is_grad_enabled() and self.seed == 1:
            calls.append(1)
        bad = self.seed == 1 and torch.is_grad_enabled() and len(calls) == 5
        return original(self, logits, batch) * (math.nan if bad else 1)

    monkeypatch.setattr(Copy, "loss", loss)
    overrides = [*COPY, "model=gru", "loop.max_epochs=3", "loop.log_every=2"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    calls.clear()
    both = batched(overrides, tmp_path / "stacked", (0, 1, 2))
    same(ones, both)
    ends = [(run.progress.stopped, run.progress.diverged_at) for run in both]
    assert ends == [("max_epochs", None), ("diverged", 5), ("max_epochs", None)]


def test_seeds_that_end_early_leave_the_others_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Copy, "stop", lambda self, epoch, found: "solved" if epoch >= self.seed + 1 else None)
    overrides = [*COPY, "model=gru", "loop.max_epochs=4", "optimizer=adam"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    both = batched(overrides, tmp_path / "stacked", (0, 1, 2))
    same(ones, both)
    assert [run.progress.step for run in both] == [5, 10, 15]


def test_patience_is_each_seeds_own(tmp_path, monkeypatch):
    original = Copy.metrics

    def metrics(self, logits, batch):  # seed 1 never gets better
        found = original(self, logits, batch)
        return found | {"accuracy": (0.0 * found["accuracy"][0], 1)} if self.seed == 1 else found

    monkeypatch.setattr(Copy, "metrics", metrics)
    overrides = [*COPY, "model=gru", "loop.max_epochs=6", "loop.patience=2"]
    ones = single(overrides, tmp_path / "single", (0, 1))
    both = batched(overrides, tmp_path / "stacked", (0, 1))
    same(ones, both)
    assert (both[1].progress.stopped, both[1].progress.step) == ("patience", 15)


@pytest.mark.parametrize(("optimizer", "signals"), [("adam", 0), ("rmsprop", 1), ("adam", 2)])
def test_interrupted_seeds_go_on_batched_or_single(tmp_path, optimizer, signals):
    """Whichever seed's log the signal comes in, all stop after the step that they share."""
    overrides = [*COPY, "model=pgru", "loop.max_epochs=3", f"optimizer={optimizer}"]
    whole = batched(overrides, tmp_path / "whole", (0, 1, 2))
    for place, stop in (("batched", 7), ("single", 9)):
        with pytest.raises(KeyboardInterrupt, match=f"at step {stop}"):
            batched(overrides, tmp_path / place, (0, 1, 2), log=signal_at(stop), logs=signals)
        assert [resume_step(tmp_path / place / str(seed)) for seed in (0, 1, 2)] == [stop] * 3
    same(whole, batched(overrides, tmp_path / "batched", (0, 1, 2)), 0.0)  # the same sums in the same order
    same(whole, single(overrides, tmp_path / "single", (0, 1, 2)))


@pytest.mark.parametrize("reason", [None, "for the test"])
def test_an_interrupt_before_all_have_begun_begins_no_more(tmp_path, monkeypatch, reason):
    monkeypatch.setattr(seeds, "reason_not_batched", lambda *parts: reason)

    class First(Job):
        def begin(self):
            if reason is None:
                signal.raise_signal(signal.SIGTERM)
            return super().begin()

        def end(self, run):  # the request comes as it ends
            signal.raise_signal(signal.SIGTERM)

    second = SimpleNamespace(begin=lambda: pytest.fail("it has begun"), run=None)
    with pytest.raises(KeyboardInterrupt, match="before all" if reason else "at step 1"):
        trainings.train([First([*COPY, "model=gru", "loop.max_epochs=1"], tmp_path, 0), second])
    assert resume_step(tmp_path) == (5 if reason else 1)


@pytest.mark.parametrize("error", [None, OSError("this one's checkpoint is damaged")], ids=str)
def test_the_first_run_that_trains_decides_whether_seeds_are_batched(tmp_path, capsys, error):
    class First(Job):  # its training has ended before, or fails as it begins
        def begin(self):
            if error is not None:
                raise error
            run = super().begin()
            run.progress.stopped = "ended"
            return run

    overrides = [*COPY, "model=gru", "+model.head_size=4", "+model.head_dropout=0.5", "loop.max_epochs=1"]
    jobs = [(Job if seed else First)(overrides, tmp_path / str(seed), seed) for seed in (0, 1, 2)]
    before = [next(job.model.parameters()).clone() for job in jobs]
    with contextlib.nullcontext() if error is None else pytest.raises(OSError, match="damaged"):
        trainings.train(jobs)
    assert "3 seeds, one after another: training draws random numbers" in capsys.readouterr().err
    trained = [not torch.equal(w, next(job.model.parameters())) for w, job in zip(before, jobs, strict=True)]
    assert trained == [False, True, True]


@pytest.mark.parametrize("alike", [True, False])
def test_seconds_are_a_runs_share_without_waiting(tmp_path, monkeypatch, alike):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def a_second(original):
        def call(*args):
            clock[0] += 1
            return original(*args)

        return call

    for kind in (stack.Single, stack.Stack):
        monkeypatch.setattr(kind, "__call__", a_second(kind.__call__))
    if not alike:
        monkeypatch.setattr(seeds, "reason_unlike", lambda models: "for the test")
    overrides = [*COPY, "model=gru", "loop.max_epochs=3"]  # 15 steps, a validation after every fifth
    for seed, stop in ((0, 11), (2, 4)):
        with pytest.raises(KeyboardInterrupt):
            single(overrides, tmp_path, (seed,), log=signal_at(stop))
    seconds = [run.progress.seconds for run in batched(overrides, tmp_path, (0, 1, 2))]
    # Seed 1 takes 4 steps alone, 7 and 2 validations with seed 2, the last 4 and a validation with both.
    shared = [13 + 5 / 3, 4 + 9 / 2 + 5 / 3, 4 + 9 / 2 + 5 / 3]
    assert seconds == pytest.approx(shared if alike else [18, 18, 18])


def test_runs_that_stand_at_different_steps_meet(tmp_path, monkeypatch):
    overrides = [*COPY, "model=pgru", "loop.max_epochs=3", "optimizer=adam"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    for seed, stop in ((0, 11), (2, 4)):
        with pytest.raises(KeyboardInterrupt):
            single(overrides, tmp_path / "both", (seed,), log=signal_at(stop))
    groups, original = [], stack.Stack.__init__
    monkeypatch.setattr(stack.Stack, "__init__", lambda self, m: groups.append(len(m)) or original(self, m))
    same(ones, batched(overrides, tmp_path / "both", (0, 1, 2)))
    assert groups == [2, 3]  # seed 1 catches up with seed 2, and both with seed 0


def test_an_error_in_one_run_ends_it_alone(tmp_path):
    def log(values, step):
        if step == 6:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        batched([*COPY, "model=gru", "loop.max_epochs=2"], tmp_path, (0, 1, 2), log=log, logs=1)
    assert [resume_step(tmp_path / str(seed)) for seed in (0, 1, 2)] == [10, 0, 10]


def test_an_error_in_the_data_of_one_run_ends_it_alone(tmp_path, monkeypatch):
    """The others lose no batch that was drawn already."""
    overrides = [*COPY, "model=gru", "loop.max_epochs=2"]
    ones = single(overrides, tmp_path / "single", (0, 2))
    original = Copy.batch

    def batch(self, split, epoch, step, *ends):
        if (self.seed, split, epoch, step) == (1, "train", 1, 2):
            raise OSError("no such file")
        return original(self, split, epoch, step, *ends)

    monkeypatch.setattr(Copy, "batch", batch)
    jobs = [Job(overrides, tmp_path / str(seed), seed) for seed in (0, 1, 2)]
    with pytest.raises(OSError, match="no such file"):
        trainings.train(jobs)
    same(ones, [jobs[0].run, jobs[2].run])


def test_an_error_in_a_shared_step_reaches_every_run(tmp_path, monkeypatch):
    monkeypatch.setattr(stack.Stack, "__call__", lambda *a: (_ for _ in ()).throw(RuntimeError("device lost")))
    jobs = [Job([*COPY, "model=gru"], tmp_path / str(seed), seed) for seed in (0, 1)]
    with pytest.raises(RuntimeError, match="device lost"):
        trainings.train(jobs)
    assert [str(job.error) for job in jobs] == ["device lost"] * 2


def full(original, call):
    """A function that finds the memory full when it is called for the call-th time."""
    calls = []

    def function(*args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(*args, **kwargs)

    return function


@pytest.mark.parametrize(
    ("module", "name", "call"), [(stack, "clip", 1), (stack, "clip", 7), (loop, "evaluate_all", 2)]
)
def test_seeds_that_are_too_large_together_go_on_one_after_another(tmp_path, monkeypatch, capsys, module, name, call):
    overrides = [*COPY, "model=gru", "loop.max_epochs=3", "loop.clip_norm=1", "optimizer=adam"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    monkeypatch.setattr(module, name, full(getattr(module, name), call))
    both = batched(overrides, tmp_path / "batched", (0, 1, 2))
    assert capsys.readouterr().err == "3 seeds, one after another: side by side they do not fit into memory\n"
    same(ones, both)
    for run in both:
        assert run.model.training
        for p in run.model.parameters():  # nothing is shared any more
            assert all(v.untyped_storage().nbytes() == v.nbytes for v in (p, *run.optimizer.state[p].values()))


def test_an_interrupt_after_memory_was_too_small_is_met_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "clip", full(stack.clip, 4))
    overrides = [*COPY, "model=gru", "loop.max_epochs=3", "loop.clip_norm=1"]
    with pytest.raises(KeyboardInterrupt, match="at step 6"):
        batched(overrides, tmp_path, (0, 1, 2), log=signal_at(6))
    assert [resume_step(tmp_path / str(seed)) for seed in (0, 1, 2)] == [6, 4, 4]


def test_memory_that_is_full_within_an_update_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim.Adam, "step", full(torch.optim.Adam.step, 3))
    with pytest.raises(RuntimeError, match=r"out of memory within an update: .*seeds=1"):
        batched([*COPY, "model=gru", "optimizer=adam"], tmp_path, (0, 1))
