"""What is at the edge: not a number, no steps, one step, one sequence, one unit, no delay."""

import functools
import itertools
import math

import configs
import pytest
import torch

from timescales.config import schema
from timescales.nn import cells, engine, registry
from timescales.tasks import Copy
from timescales.training import build

MODELS = [model.name for model in registry.MODELS]
UNBOUNDED = ("exprnn", "indrnn", "nru", "sru", "urnn", "eurnn", "goru")  # their activations have no bound
SHAPES = [(0, 3, 3), (1, 3, 3), (4, 1, 3), (4, 3, 1), (1, 1, 1), (4, 0, 3)]


def config(*overrides):
    return schema.resolved(configs.config("run_dir=unused", *overrides))


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
    """NaN goes on from where it is; an infinity ends as NaN or saturates a gate. Nothing reaches other sequences."""
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
