"""Several seeds in one launch: each run is its single run, whatever the others do."""

import copy
import json
import math
import os
import signal
import time
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.plugins import Plugins
from synthetic import SMALL, sizes

from hydra_plugins import timescales_sweeper
from timescales import paths, sweep
from timescales.config import identity, schema
from timescales.nn.cells import Cell
from timescales.nn.rnn import RNN
from timescales.runs import cost, lock, record
from timescales.tasks import Copy
from timescales.training import build, checkpoint, loop, stack

TINY = ["model.hidden_size=6", "task.batch_size=8", "device=cpu", "run_dir=unused", "loop.log_every=3"]
COPY = ["task=copy", "task.T=3", *sizes("copy", 40, 16, 16)]
QUICK = [*COPY, "model=gru", "model.hidden_size=6", "task.batch_size=8", "logger=csv", "loop.max_epochs=2",
         "loop.log_every=3"]  # fmt: skip


def parts(overrides, seed, corpora="nowhere", double=True):
    """Model, task, optimizer and settings of one run; float64, where eager is the only engine."""
    identity.register()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose("config", [*TINY, *overrides, f"seed={seed}", f"data_root={corpora}"])
    config = identity.resolved(cfg)
    model, task, optimizer = build.build(config)
    return model.double() if double else model, task, optimizer, schema.Loop(**config["loop"])


def begun(overrides, directory, seed, log=None, **kwargs):
    """The training of one run as it asks for its steps, and what it trains."""
    directory.mkdir(parents=True, exist_ok=True)
    model, task, optimizer, settings = parts(overrides, seed, **kwargs)
    ignore = lambda values, step: None  # noqa: E731
    return loop.training(model, task, optimizer, log or ignore, settings, directory), model, task, optimizer, settings


def single(overrides, directory, seeds, **kwargs):
    runs = [begun(overrides, directory / str(seed), seed, **kwargs) for seed in seeds]
    return [(loop.answered(run, loop.take), *rest) for run, *rest in runs]


def stacked(overrides, directory, seeds, log=None, logs=0, **kwargs):
    runs = [begun(overrides, directory / str(seed), seed, log if seed == logs else None, **kwargs) for seed in seeds]
    progress = stack.together([run for run, *_ in runs])
    return [(found, *rest) for found, (_, *rest) in zip(progress, runs, strict=True)]


def close(a, b, tolerance):
    """Assert that nested numbers are equal up to a relative and absolute tolerance, all else exactly."""
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


def same(ones, others, tolerance=1e-9):
    """Assert that runs are equal: progress, weights, optimizers."""
    for (a, model_a, _, optimizer_a, _), (b, model_b, _, optimizer_b, _) in zip(ones, others, strict=True):
        for key in ("step", "best", "since_best", "curve", "diverged_at", "stopped"):
            close(getattr(a, key), getattr(b, key), tolerance)
        close(dict(model_a.state_dict()), dict(model_b.state_dict()), tolerance)
        close(optimizer_a.state_dict(), optimizer_b.state_dict(), tolerance)


CASES = {
    "lstm": [*COPY, "model=lstm", "loop.clip_norm=0.05"],  # always clipped
    "plstm, two layers": [*COPY, "model=plstm", "model.num_layers=2", "optimizer=adam"],
    "plstm, fixed power": [*COPY, "model=plstm", "model.power=0.5", "loop.clip_norm=null"],
    "ur": [*COPY, "model=ur", "optimizer=sgd", "optimizer.momentum=0.9"],
    "chrono": [*COPY, "model=chrono", "optimizer.momentum=0.5", "optimizer.weight_decay=0.01"],
    "mts": [*COPY, "model=mts", "model.num_layers=3", "optimizer.weight_decay=0.1"],
    "om": [*COPY, "model=gated", "model.gate=om", "model.downsize=2"],
    "gru, ur, head": [*COPY, "model=gated", "model.core=gru", "model.head_size=5"],
    "gru": [*COPY, "model=gru", "loop.eval_every=2"],
    "pgru": [*COPY, "model=pgru"],
    "janet": [*COPY, "model=janet"],
    "exprnn": [*COPY, "model=exprnn"],
    "mask, dt and uneven lengths": ["task=frequency", "model=plstm", *sizes("frequency", 40, 16, 16)],
    "uneven lengths, all read": ["task=variable_copy", "model=lstm", *SMALL["variable_copy"], *sizes("", 40, 16, 16)],
    "strings": ["task=dyck2", "model=gru", *sizes("dyck2", 40, 16, 16)],
    "vectors": ["task=imdb", "model=gru", "task.dropout=0", *SMALL["imdb"], *sizes("imdb", 40, 16, 16)],
    "vectors, mask": ["task=imdb", "model=plstm", "task.dropout=0", "task.readout=true_length", *SMALL["imdb"],
                      *sizes("imdb", 40, 16, 16)],
    "carried state": ["task=ptb_char", "model=plstm", "loop.max_steps=12", "loop.eval_every=6", *SMALL["ptb_char"]],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_stacked_is_single(tmp_path, corpora, capsys, name):
    overrides = ["loop.max_epochs=3", *CASES[name]]
    ones = single(overrides, tmp_path / "single", (0, 1, 2), corpora=str(corpora))
    both = stacked(overrides, tmp_path / "stacked", (0, 1, 2), corpora=str(corpora))
    assert "one after another" not in capsys.readouterr().err
    same(ones, both)
    assert ones[0][0].curve != ones[1][0].curve  # the seeds differ
    for (a, *rest_a, settings), (b, *rest_b, _), seed in zip(ones, both, (0, 1, 2), strict=True):
        found = [loop.outcome(*rest, progress, settings, tmp_path / kind / str(seed))
                 for rest, progress, kind in ((rest_a, a, "single"), (rest_b, b, "stacked"))]  # fmt: skip
        for outcome in found:
            del outcome["seconds"]
        close(*found, 1e-9)


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
    both = stacked(overrides, tmp_path / "stacked", (0, 1, 2))
    same(ones, both)
    assert [(run[0].stopped, run[0].diverged_at) for run in both] == [
        ("max_epochs", None), ("diverged", 5), ("max_epochs", None)
    ]  # fmt: skip


def test_seeds_that_end_early_leave_the_others_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Copy, "stop", lambda self, epoch, found: "solved" if epoch >= self.seed + 1 else None)
    overrides = [*COPY, "model=gru", "loop.max_epochs=4", "optimizer=adam"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    both = stacked(overrides, tmp_path / "stacked", (0, 1, 2))
    same(ones, both)
    assert [run[0].step for run in both] == [5, 10, 15]


def test_patience_is_each_seeds_own(tmp_path, monkeypatch):
    original = Copy.metrics

    def metrics(self, logits, batch):  # seed 1 never gets better
        found = original(self, logits, batch)
        return found | {"accuracy": (0.0 * found["accuracy"][0], 1)} if self.seed == 1 else found

    monkeypatch.setattr(Copy, "metrics", metrics)
    overrides = [*COPY, "model=gru", "loop.max_epochs=6", "loop.patience=2"]
    ones = single(overrides, tmp_path / "single", (0, 1))
    both = stacked(overrides, tmp_path / "stacked", (0, 1))
    same(ones, both)
    assert (both[1][0].stopped, both[1][0].step) == ("patience", 15)


@pytest.mark.parametrize(("optimizer", "signals"), [("adam", 0), ("rmsprop", 1), ("adam", 2)])
def test_interrupted_stacks_go_on_stacked_or_single(tmp_path, optimizer, signals):
    overrides = [*COPY, "model=pgru", "loop.max_epochs=3", f"optimizer={optimizer}"]
    whole = stacked(overrides, tmp_path / "whole", (0, 1, 2))

    def at(stop):
        return lambda values, step: os.kill(os.getpid(), signal.SIGINT) if step == stop else None

    for place, stop in (("stacked", 7), ("single", 9)):
        with pytest.raises(KeyboardInterrupt, match=f"at step {stop + (signals > 0)}"):
            stacked(overrides, tmp_path / place, (0, 1, 2), log=at(stop), logs=signals)
        steps = [loop.resume_step(tmp_path / place / str(seed)) for seed in (0, 1, 2)]
        assert steps == [stop + (seed < signals) for seed in (0, 1, 2)]  # who was past its check takes one more
    # Bitwise where all stand at the same step: the same sums in the same order.
    same(whole, stacked(overrides, tmp_path / "stacked", (0, 1, 2)), 1e-9 if signals else 0.0)
    same(whole, single(overrides, tmp_path / "single", (0, 1, 2)))


@pytest.mark.parametrize("reason", [None, "for the test"])
def test_an_interrupt_before_all_have_begun_begins_no_more(tmp_path, monkeypatch, reason):
    monkeypatch.setattr(stack, "why_not", lambda step: reason)

    def first():
        run = begun([*COPY, "model=gru", "loop.max_epochs=1"], tmp_path, 0)[0]
        if reason is None:
            os.kill(os.getpid(), signal.SIGTERM)
            yield from run
        else:  # it ends as the request arrives
            yield next(run)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match="before all" if reason else "at step 1"):
        stack.together([first(), (pytest.fail("it has begun") for _ in "1")])
    assert loop.resume_step(tmp_path) == (0 if reason else 1)


@pytest.mark.parametrize("error", [None, OSError("this one's checkpoint is damaged")], ids=str)
def test_what_may_be_stacked_is_asked_of_the_first_that_trains(tmp_path, capsys, error):
    overrides = [*COPY, "model=gru", "+model.head_size=4", "+model.head_dropout=0.5", "loop.max_epochs=1"]
    runs = [begun(overrides, tmp_path / str(seed), seed) for seed in (0, 1, 2)]  # each built before any is trained
    dead = [next(model.parameters()).clone() for _, model, *_ in runs]

    def first():  # its training has ended before, or fails as it begins
        if error is not None:
            raise error
        return "ended"
        yield

    if error is None:
        assert stack.together([first(), *(run for run, *_ in runs[1:])])[0] == "ended"
    else:
        with pytest.raises(OSError, match="damaged"):
            stack.together([first(), *(run for run, *_ in runs[1:])])
    said = capsys.readouterr().err
    assert "3 seeds, one after another: training draws random numbers" in said
    assert [torch.equal(w, next(model.parameters())) for w, (_, model, *_) in zip(dead, runs, strict=True)] == [
        True, False, False
    ]  # fmt: skip


@pytest.mark.parametrize("alike", [True, False])
def test_seconds_are_of_the_time_in_which_a_run_is_answered(tmp_path, monkeypatch, alike):
    clock = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def a_second(original):
        def take(*args):
            clock[0] += 1
            return original(*args)

        return take

    monkeypatch.setattr(loop, "take", a_second(loop.take))
    monkeypatch.setattr(stack.Stack, "take", a_second(stack.Stack.take))
    if not alike:
        monkeypatch.setattr(stack, "_unlike", lambda asked: "for the test")
    overrides = [*COPY, "model=gru", "loop.max_epochs=3"]  # 15 steps, a validation after every fifth
    for seed, stop in ((0, 11), (2, 4)):
        log = lambda values, step, stop=stop: os.kill(os.getpid(), signal.SIGTERM) if step == stop else None  # noqa: E731
        with pytest.raises(KeyboardInterrupt):
            single(overrides, tmp_path, (seed,), log=log)
    seconds = [run[0].seconds for run in stacked(overrides, tmp_path, (0, 1, 2))]
    # Seed 1 takes 4 steps alone, 7 and 2 validations with seed 2, the last 4 and a validation with both.
    shared = [13 + 5 / 3, 4 + 9 / 2 + 5 / 3, 4 + 9 / 2 + 5 / 3]
    assert seconds == pytest.approx(shared if alike else [18, 18, 18])


def test_runs_that_stand_at_different_steps_meet(tmp_path):
    overrides = [*COPY, "model=pgru", "loop.max_epochs=3", "optimizer=adam"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    for seed, stop in ((0, 11), (2, 4)):
        log = lambda values, step, stop=stop: os.kill(os.getpid(), signal.SIGTERM) if step == stop else None  # noqa: E731
        with pytest.raises(KeyboardInterrupt):
            single(overrides, tmp_path / "both", (seed,), log=log)
    groups = []
    with pytest.MonkeyPatch.context() as patch:
        original = stack.Stack.__init__
        patch.setattr(stack.Stack, "__init__", lambda self, runs: groups.append(len(runs)) or original(self, runs))
        same(ones, stacked(overrides, tmp_path / "both", (0, 1, 2)))
    assert groups == [2, 3]  # seed 1 catches up with seed 2, and both with seed 0


def test_a_checkpoint_of_a_stack_is_no_larger_than_a_single_runs(tmp_path):
    overrides = [*COPY, "model=gru", "model.hidden_size=40", "loop.max_epochs=1"]
    single(overrides, tmp_path / "single", (0,))
    stacked(overrides, tmp_path / "stacked", (0, 1, 2, 3))
    size = [(tmp_path / kind / "0" / "last.pt").stat().st_size for kind in ("single", "stacked")]
    assert size[1] < 1.05 * size[0]


def test_an_error_in_one_run_ends_it_alone(tmp_path):
    def log(values, step):
        if step == 6:
            raise OSError("disk full")

    overrides = [*COPY, "model=gru", "loop.max_epochs=2"]
    runs = [begun(overrides, tmp_path / str(seed), seed, log=log if seed == 1 else None) for seed in (0, 1, 2)]
    with pytest.raises(OSError, match="disk full"):
        stack.together([run for run, *_ in runs])
    assert [loop.resume_step(tmp_path / str(seed)) for seed in (0, 1, 2)] == [10, 0, 10]


def test_an_error_of_the_stack_reaches_every_run(tmp_path, monkeypatch):
    seen = []

    def training():
        try:
            yield from begun([*COPY, "model=gru"], tmp_path / str(len(seen)), 0)[0]
        except RuntimeError as error:
            seen.append(str(error))
            raise

    monkeypatch.setattr(stack.Stack, "step", lambda *a: (_ for _ in ()).throw(RuntimeError("device lost")))
    with pytest.raises(RuntimeError, match="device lost"):
        stack.together([training(), training()])
    assert seen == ["device lost"] * 2


def full(original, call):
    """A function that finds the memory full when it is called for the call-th time."""
    calls = []

    def function(*args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(*args, **kwargs)

    return function


@pytest.mark.parametrize(("name", "call"), [("clip", 1), ("clip", 7), ("in_step", 2)])
def test_a_stack_that_is_too_large_goes_on_one_after_another(tmp_path, monkeypatch, capsys, name, call):
    overrides = [*COPY, "model=gru", "loop.max_epochs=3", "loop.clip_norm=1", "optimizer=adam"]
    ones = single(overrides, tmp_path / "single", (0, 1, 2))
    monkeypatch.setattr(stack, name, full(getattr(stack, name), call))
    both = stacked(overrides, tmp_path / "stacked", (0, 1, 2))
    assert capsys.readouterr().err == "3 seeds, one after another: side by side they do not fit into memory\n"
    same(ones, both)
    for _, model, _, optimizer, _ in both:
        assert model.training
        for p in model.parameters():  # nothing is shared any more
            assert all(v.untyped_storage().nbytes() == v.nbytes for v in (p, *optimizer.state[p].values()))


def test_an_interrupt_after_the_stack_was_too_large_is_met_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "clip", full(stack.clip, 4))
    log = lambda values, step: os.kill(os.getpid(), signal.SIGINT) if step == 6 else None  # noqa: E731
    with pytest.raises(KeyboardInterrupt, match="at step 6"):
        stacked([*COPY, "model=gru", "loop.max_epochs=3", "loop.clip_norm=1"], tmp_path, (0, 1, 2), log=log)
    assert [loop.resume_step(tmp_path / str(seed)) for seed in (0, 1, 2)] == [6, 4, 4]


def test_memory_that_is_full_within_an_update_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim.Adam, "step", full(torch.optim.Adam.step, 3))
    with pytest.raises(RuntimeError, match=r"out of memory within an update: .*seeds=1"):
        stacked([*COPY, "model=gru", "optimizer=adam"], tmp_path, (0, 1))


def test_what_the_stacks_optimizer_would_leave_out_is_refused(tmp_path):
    model, task, optimizer, settings = parts([*COPY, "model=gru"], 0)
    step = loop.Step(0, model, task, optimizer, settings, next(task.batches("train")), None, loop.Clock())
    assert stack.why_not(step) is None
    scaled = step._replace(batch=step.batch._replace(lr_scale=0.5))
    assert "lr_scale" in stack.why_not(scaled)
    one = stack.Stack([(model, optimizer)])
    with pytest.raises(AssertionError):
        one.step([scaled])
    optimizer.add_param_group({"params": [torch.zeros(1)]})
    assert "several parameter groups" in stack.why_not(step)
    with pytest.raises(AssertionError):
        stack.Stack([(model, optimizer)])


class Careless(Cell):
    """Reads a parameter of its own without `per_unit`: with as many seeds as sequences it would be the wrong one's."""

    gates = ("cell",)

    class State(NamedTuple):
        h: torch.Tensor

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.scale = torch.nn.Parameter(torch.rand(hidden_size))

    def step(self, gx, gh, state, dt=1.0):
        return self.State((self.scale * (gx + gh)).tanh())

    def timescales(self):
        return self.scale


@pytest.mark.parametrize(("overrides", "reason"), [
    ([*COPY, "model=gru", "+model.head_size=4", "+model.head_dropout=0.5"], "draws random numbers"),
    ([*COPY, "model=gated", "model.zoneout_h=0.1"], "draws random numbers"),
    ([*COPY, "model=gru", "model.dropout=0.3", "model.num_layers=2"], "draws random numbers"),
    (["task=imdb", "model=gru", *SMALL["imdb"], *sizes("imdb", 40, 16, 16)], "draws random numbers"),
    ([*COPY, "model=gru", "optimizer=nt_asgd", "optimizer.lr=0.1"], "NTASGD has no stacked form"),
    (["task=ptb_word", "model=lstm", "loop.max_steps=2", *SMALL["ptb_word"]], "AWDModel has no stacked form"),
])  # fmt: skip
def test_what_cannot_be_stacked_runs_one_after_another(tmp_path, corpora, capsys, overrides, reason):
    overrides = ["loop.max_epochs=1", *overrides]
    both = stacked(overrides, tmp_path / "stacked", (0, 1), corpora=str(corpora))
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("2 seeds, one after another: ")
    assert reason in line
    # Built in turn, as the command does: both would draw from one generator here.
    for seed, found in enumerate(both if reason != "draws random numbers" else ()):
        same(single(overrides, tmp_path / "single", (seed,), corpora=str(corpora)), [found], 0.0)


@pytest.mark.parametrize("batch", [2, 3])
def test_a_cell_that_takes_no_stacked_parameters_is_seen(tmp_path, batch):
    model, task, optimizer, settings = parts([*COPY, "model=gru"], 0)
    model.rnn = RNN([Careless(10, 6)]).double()
    step = loop.Step(0, model, task, optimizer, settings, next(task.batches("train")), None, loop.Clock())
    step = step._replace(batch=copy.copy(step.batch)._replace(x=step.batch.x[:, :batch]))
    assert "does not take stacked parameters" in stack.why_not(step)


def test_clip_is_torchs_for_each_replica():
    torch.manual_seed(0)
    grads = [torch.randn(3, 4, 5), torch.randn(3, 7)]
    for grad in grads:
        grad[1] *= 1e-3  # not clipped
        grad[2, 0] = math.nan
    expected = []
    for r in range(3):
        own = [torch.zeros_like(grad[r]) for grad in grads]
        for p, grad in zip(own, grads, strict=True):
            p.grad = grad[r].clone()
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        expected.append([p.grad for p in own])
    stack.clip(grads, 1.0)
    for r in range(3):
        close([grad[r] for grad in grads], expected[r], 1e-6)


KEYS = ("id", "status", "stopped", "steps", "seed", "metrics", "last", "best", "curve", "parameters", "timescales",
        "partial", "golden")  # fmt: skip


def test_every_seed_leaves_the_record_of_its_single_run(train, tmp_path):
    several = train(*QUICK, "seed=1", "seeds=3")
    assert several.status == 0, several
    assert sorted(d.name[:11] for d in (tmp_path / "runs").iterdir()) == ["copy-gru-s1", "copy-gru-s2", "copy-gru-s3"]
    for seed in (1, 2, 3):
        assert train(*QUICK, f"seed={seed}", f"run_dir=single/{seed}").status == 0
        (place,) = (tmp_path / "runs").glob(f"copy-gru-s{seed}-*")
        found, alone = (record.read(d) for d in (place, tmp_path / "single" / str(seed)))
        close({key: found[key] for key in KEYS}, {key: alone[key] for key in KEYS}, 1e-5)
        del found["config"]["run_dir"], alone["config"]["run_dir"]
        assert found["config"] == alone["config"]
        assert place.name.endswith(found["id"])
        lines = [(d / "curve.csv").read_text().splitlines() for d in (place, tmp_path / "single" / str(seed))]
        assert [len(text) for text in lines] == [len(lines[0])] * 2
    again = train(*QUICK, "seed=1", "seeds=3")
    assert again.out.count("finished, skipped") == 3
    assert train(*QUICK, "seed=0", "seeds=3").out.count("finished, skipped") == 2  # seed 0 is new
    assert "finished, skipped" in train(*QUICK, "seed=0").out


@pytest.mark.parametrize("place", ["mine", "${oc.env:PLACE}"])
def test_run_dir_holds_them_under_their_names(train, tmp_path, monkeypatch, place):
    monkeypatch.setenv("PLACE", "mine")
    assert train(*QUICK, "seeds=2", f"run_dir={place}").status == 0
    assert sorted(d.name[:12] for d in (tmp_path / "mine").iterdir() if d.is_dir()) == ["copy-gru-s0-", "copy-gru-s1-"]


@pytest.mark.parametrize(("seeds", "words"), [
    ("0", "seeds must be at least 1"), ("-2", "seeds must be at least 1"), ("many", "seeds: Value 'many'"),
])  # fmt: skip
def test_seeds_that_cannot_be_are_one_line(train, tmp_path, seeds, words):
    outcome = train(*QUICK, f"seeds={seeds}")
    assert outcome.status == 1
    (line,) = outcome.err.strip().splitlines()
    assert words in line
    assert not list((tmp_path / "runs").glob("*"))


def test_a_sweep_of_endless_seeds_is_one_line(train):
    """Their list is not even begun."""
    outcome = train("-m", *QUICK, "seeds=1000000000")
    assert outcome.status == 1
    assert "seeds must be at least 1 and at most 1000" in outcome.out


def test_a_seed_that_is_run_elsewhere_is_left_alone(train, tmp_path):
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose("config", [*QUICK, "seed=1"])
    place = tmp_path / "runs" / identity.slug(cfg)
    with lock.hold(place):
        record.start(place, identity.identity(cfg), identity.resolved(cfg))
        outcome = train(*QUICK, "seeds=2")
        assert outcome.status == 1
        assert "is being run by process" in outcome.err
        assert record.read(place)["status"] == "interrupted"
    others = [d for d in (tmp_path / "runs").iterdir() if d != place]
    assert [record.read(d)["status"] for d in others] == ["finished"]  # the rest is trained


def test_the_fused_engine_takes_one_seed_at_a_time(train, tmp_path):
    outcome = train(*QUICK, "model=lstm", "seeds=2")
    assert outcome.status == 0, outcome
    if "fused" not in outcome.err:  # there is a compiler here
        assert "2 seeds, one after another: the engine of one seed is faster" in outcome.err
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 2


def test_a_sweep_groups_runs_that_differ_in_their_seed_alone(train, tmp_path, monkeypatch):
    groups = []
    original = stack.together
    monkeypatch.setattr(stack, "together", lambda runs: groups.append(len(runs)) or original(runs))
    assert train(*QUICK, "seed=1").status == 0
    outcome = train("-m", *QUICK, "optimizer.lr=0.001,0.01", "seeds=3")
    assert outcome.status == 0, outcome
    assert "6 runs: 1 finished, skipped; 5 to run" in outcome.out
    assert sorted(groups) == [3]  # of the other rate seeds 0 and 2 are left, which do not follow on each other
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 6


def test_no_launch_has_more_seeds_than_were_asked_for(train, monkeypatch):
    planned = sweep_plan(train, monkeypatch, "seed=0,1,2,3,4", "seeds=2")
    together = [[job.seed for job in jobs] for jobs in sweep.launches(planned)]
    assert together == [[0, 1], [2, 3], [4, 5]]


def test_a_sweep_goes_seed_by_seed_and_the_longest_first(train, monkeypatch):
    sweep = ("model=lstm,gru,janet", "seed=1,0")
    kinds = {job.directory.name.split("-")[1]: job.kind for job in sweep_plan(train, monkeypatch, *sweep)}
    monkeypatch.setattr(cost, "known", lambda: {kinds["lstm"]: 10.0, kinds["gru"]: 20.0})  # of janet nothing is known
    order = [job.directory.name[:-13] for job in sweep_plan(train, monkeypatch, *sweep)]
    assert order == [f"copy-{model}-s{seed}" for seed in (0, 1) for model in ("janet", "gru", "lstm")]


def test_what_is_left_counts_unknown_kinds_as_the_mean_of_the_known():
    todo = [SimpleNamespace(kind=kind) for kind in "aabc"]
    assert sweep.minutes_left(todo, {"a": 60.0, "b": 300.0}) == " (about 9 min left)"
    assert sweep.minutes_left(todo[3:], {"a": 60.0, "b": 300.0}) == ""


def sweep_plan(train, monkeypatch, *sweep):
    """The jobs of a sweep in their order, none of which is launched."""
    Plugins.instance()  # which runs the sweeper's file again, and its class is another one then
    planned = []
    monkeypatch.setattr(timescales_sweeper.TimescalesSweeper, "_launch_all",
                        lambda self, jobs, *_: planned.extend(jobs) or [])  # fmt: skip
    outcome = train("-m", *QUICK, *sweep)
    assert outcome.status == 0, outcome
    return planned


def test_kill_9_and_the_same_command_go_on(train, train_process, tmp_path):
    overrides = [*QUICK, "loop.max_epochs=40", "loop.checkpoint_every=0", "loop.eval_every=20", "seeds=2"]
    process = train_process(*overrides, "run_dir=killed")
    while not all(loop.resume_step(d) > 30 for d in (tmp_path / "killed").glob("copy*")) or not list(
        (tmp_path / "killed").glob("copy*/last.pt")
    ):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    process.kill()
    process.wait()
    process.stdout.close()
    assert train(*overrides, "run_dir=killed").status == 0
    assert train(*overrides, "run_dir=whole").status == 0
    for place in (tmp_path / "whole").glob("copy*"):
        both = [place, tmp_path / "killed" / place.name]
        found, whole = (json.loads((d / "record.json").read_text()) for d in both)
        close({key: found[key] for key in KEYS}, {key: whole[key] for key in KEYS}, 1e-4)
        last = [checkpoint.load(d / "last.pt")["model"] for d in both]
        close(last[0], last[1], 1e-4)
