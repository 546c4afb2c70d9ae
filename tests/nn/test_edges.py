"""What is at the edge: not a number, no steps, one step, one sequence, one unit, no delay; the same seed twice."""

import functools
import itertools
import math

import configs
import pytest
import torch
from synthetic import SMALL, sizes
from trainings import fit, quiet

from timescales.config import folders, identity, schema
from timescales.nn import cells, engine, registry
from timescales.runs.record import Record
from timescales.tasks import Adding, Copy
from timescales.training import build, checkpoint

MODELS, TASKS = [model.name for model in registry.MODELS], folders.choices("task")
UNBOUNDED = ("exprnn", "indrnn", "nru", "sru", "urnn", "eurnn", "goru")  # their activations have no bound
SHAPES = [(0, 3, 3), (1, 3, 3), (4, 1, 3), (4, 3, 1), (1, 1, 1), (4, 0, 3)]


def config(*overrides):
    return identity.resolved(configs.config("run_dir=unused", *overrides))


@functools.cache
def arguments_of(model):
    """The arguments in a model's yaml."""
    plain = {key: value for key, value in config(f"model={model}")["model"].items() if key not in build.AROUND_RNN}
    build.fill_horizon(plain, 20)
    return plain


def rnn(model, hidden, layers=1):
    """A model of its yaml, for two inputs."""
    hidden *= {"gated": 16, "rmc": 2, "urnn": 2, "eurnn": 2}.get(model, 1)
    layers = 1 if model == "mts" else layers  # one initializer for one layer, or three for three
    torch.manual_seed(0)
    arguments = arguments_of(model) | {"hidden_size": hidden, "num_layers": layers}
    return build.construct("model", arguments, input_size=2, engine="eager")


def on(made, name):
    """The same on another engine."""
    engine.pick(name, made.layers[0], torch.zeros(2, 1, 2))  # any other refusal is a fault
    made.engine = name
    return made


COMPILED = [model.name for model in registry.MODELS if model.cells and getattr(cells, model.cells[0]).compiled]
PAIRS = [("eager", model) for model in MODELS]
PAIRS += [(engine_name, model) for engine_name in ("fused", "compiled") for model in COMPILED]


def each(values):
    """List each pair of an engine and a model with one of the values, in turn."""
    return [(*pair, value) for pair, value in zip(PAIRS, itertools.cycle(values), strict=False)]


@pytest.mark.parametrize(("name", "model", "bad"), each((math.nan, math.inf, -math.inf)))
def test_what_is_no_number_stays_in_its_sequence(model, name, bad):
    """NaN goes through from where it is; an infinity ends as NaN, or saturates a gate; nothing reaches other sequences,
    and nothing that came before."""
    made = on(rnn(model, 3, layers=2), name)
    x = torch.randn(5, 3, 2)
    sound, _ = made(x)
    x[2, 1, 0] = bad
    output, end = made(x)
    assert torch.allclose(output[:, [0, 2]], sound[:, [0, 2]], rtol=0, atol=1e-6)
    assert torch.allclose(output[:2, 1], sound[:2, 1], rtol=0, atol=1e-6)
    if math.isnan(bad):
        assert output[2:, 1].isnan().any(-1).all()
        assert made.split_state(end)[-1].h[1].isnan().any()
    else:
        # All ReLUs of an SRU may be off, and all units of a suRNN at rest.
        assert model in ("sru", "surnn") or not torch.equal(output[2:, 1], sound[2:, 1])
        assert model in UNBOUNDED or not output[2:, 1].isinf().any()


@pytest.mark.parametrize(("name", "model", "shape"), each(SHAPES))
def test_the_smallest_shapes_run_forwards_and_backwards(model, name, shape):
    steps, batch, hidden = shape
    reference = rnn(model, hidden)
    made = on(rnn(model, hidden), name)
    x = torch.randn(steps, batch, 2)
    outputs = []
    for one in (reference, made):
        output, end = one(x)
        (state,) = one.split_state(end)
        assert output.shape == (steps, batch, one.layers[0].hidden_size)
        assert all(value.isfinite().all() for value in state)
        if not steps:
            assert all(map(torch.equal, state, one.layers[0].initial_state(batch))), "the state is where it began"
        if steps:
            (output.sum() + sum(value.sum() for value in state)).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in one.parameters())
        outputs.append(output)
    assert torch.allclose(*outputs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["paper", "gu"])  # the others say that T must be at least 1
def test_no_delay_is_a_copy_task(layout):
    task = Copy(T=0, layout=layout, batch_size=2, train_size=4, valid_size=2, test_size=2)
    batch = next(task.batches("train"))
    assert batch.x.shape[1] == 2
    assert math.isfinite(task.chance())


def trained(task, model, name, corpora, directory):
    """Two steps and a validation: progress, last.pt's content."""
    small = [*sizes(task, 16, 4, 4), *SMALL.get(task, [])]
    plain = config(
        f"task={task}",
        f"model={model}",
        f"engine={name}",
        "model.hidden_size=16",
        "task.batch_size=4",
        f"data_root={corpora}",
        "loop.max_steps=2",
        "loop.max_eval_batches=1",
        *small,
    )
    network, job, optimizer = build.build(plain)
    run = fit(network, job, optimizer, quiet, schema.LoopSettings(**plain["loop"]), directory)
    return run.progress, checkpoint.load(directory / "last.pt")


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a if key != "seconds")
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


# Every model, and every task.
SEEDED = [*itertools.islice(zip(itertools.cycle(MODELS), itertools.cycle(TASKS)), max(len(MODELS), len(TASKS)))]


@pytest.mark.parametrize(("model", "task"), SEEDED)
def test_the_same_seed_twice_is_bitwise_equal(task, model, corpora, tmp_path):
    """By the engine that auto picks; what was drawn in between does not matter."""
    first, kept = trained(task, model, "auto", corpora, tmp_path / "a")
    torch.rand(7)
    again, kept_again = trained(task, model, "auto", corpora, tmp_path / "b")
    assert first.curve == again.curve
    assert same(kept, kept_again)


def test_data_that_are_no_number_end_a_run_as_diverged(train, tmp_path, monkeypatch):
    """A record of a run on broken data says so; its metrics are no numbers that look like any."""
    original = Adding.batch

    def batch(self, *arguments):
        found = original(self, *arguments)
        found.x[0] = math.nan
        return found

    monkeypatch.setattr(Adding, "batch", batch)
    outcome = train(
        "task=adding",
        "task.T=4",
        "task.train_size=16",
        "task.valid_size=8",
        "task.test_size=8",
        "task.batch_size=8",
        "model.hidden_size=4",
        "loop.log_every=1",
        "logger=csv",
        f"run_dir={tmp_path}/mine",
    )
    assert outcome.status == 0, outcome
    found = Record.read(tmp_path / "mine")
    assert (found.status, found.diverged_at) == ("diverged", 1)
    assert found.metrics == {}
