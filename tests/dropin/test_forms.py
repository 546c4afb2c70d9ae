"""Every form of a call, against torch's layer with the same weights: values, types, and all gradients.

The layer is `timescales.LSTM` or `GRU`, and torch's own after `accelerate`. Each of them must have run our engine.
"""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.backends import mkldnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import timescales

S, B, I, H = 6, 4, 5, 7  # noqa: E741
LENGTHS = torch.tensor([3, 6, 1, 4])
FORMS = ("batch", "batch+state", "one", "one+state", "unsorted", "unsorted+state", "sorted", "equal")
# Layers, bias, batch_first, bidirectional: each form has two of these, the LSTM and the GRU different ones.
OPTIONS = [(1, True, False, False), (2, False, True, True), (1, True, True, True), (2, True, False, True)]
OPTIONS += [(2, True, True, False), (1, False, False, True)]
CASES = [
    (kind, *OPTIONS[(2 * k + j + 3 * (kind == "GRU")) % len(OPTIONS)], form)
    for kind, (k, form), j in itertools.product(("LSTM", "GRU"), enumerate(FORMS), range(2))
]


def packed(x, form, batch_first):
    lengths = {"unsorted": LENGTHS, "sorted": torch.tensor([6, 5, 3, 3]), "equal": torch.tensor([S] * B)}
    kind = form.partition("+")[0]
    if kind not in lengths:
        return x
    return pack_padded_sequence(x, lengths[kind], batch_first, enforce_sorted=kind != "unsorted")


def results(rnn, x, state, form):
    """Output, last state, and the gradients of x, of the state and of every parameter."""
    x = x.clone().requires_grad_()
    state = None if state is None else tuple(value.clone().requires_grad_() for value in state)
    given = state if state is None or rnn.mode == "LSTM" else state[0]
    output, last = rnn(packed(x, form, rnn.batch_first), given)
    data = output.data if isinstance(output, PackedSequence) else output
    random = torch.Generator().manual_seed(1)
    parts = [data, *(last if isinstance(last, tuple) else [last])]
    loss = sum((part * torch.randn(part.shape, generator=random)).sum() for part in parts)
    wanted = [x, *(state or ()), *rnn.parameters()]
    return output, parts, torch.autograd.grad(loss, wanted)


@pytest.mark.parametrize("how", ["class", "accelerate"])
@pytest.mark.parametrize(("kind", "layers", "bias", "batch_first", "bidirectional", "form"), CASES)
def test_a_call_is_torchs(kind, layers, bias, batch_first, bidirectional, form, how, runs):
    torch.manual_seed(0)
    options = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    theirs = getattr(nn, kind)(I, H, layers, **options)
    if how == "class":
        ours = getattr(timescales, kind)(I, H, layers, **options)
        ours.load_state_dict(theirs.state_dict())
    else:
        ours = timescales.accelerate(copy.deepcopy(theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    one, directions = form.startswith("one"), layers * (1 + bidirectional)
    x = torch.randn(*([S] if one else [B, S] if batch_first else [S, B]), I)
    shape = (directions, H) if one else (directions, B, H)
    state = tuple(torch.randn(shape) for _ in range(2 if kind == "LSTM" else 1)) if "state" in form else None

    found, parts, grads = results(ours, x, state, form)
    assert len(runs) == directions
    expected, their_parts, their_grads = results(theirs, x, state, form)
    assert type(found) is type(expected)
    if isinstance(found, PackedSequence):
        for a, b in zip(found[1:], expected[1:], strict=True):
            assert a is b is None or torch.equal(a, b)
    torch.testing.assert_close(parts, their_parts, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grads, their_grads, rtol=1e-4, atol=1e-5)


REFUSED = {
    "4-D": lambda rnn: rnn(torch.zeros(2, 3, 4, I)),
    "features": lambda rnn: rnn(torch.zeros(S, B, I + 1)),
    "state's batch": lambda rnn: rnn(torch.zeros(S, B, I), (torch.zeros(1, B + 1, H),) * 2),
    "state of one sequence": lambda rnn: rnn(torch.zeros(S, B, I), (torch.zeros(1, H),) * 2),
    "dtype": lambda rnn: rnn(torch.zeros(S, B, I, dtype=torch.float64)),
    "no step": lambda rnn: rnn(torch.zeros(0, B, I)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(name):
    layers = nn.LSTM(I, H), timescales.accelerate(nn.LSTM(I, H)), timescales.LSTM(I, H)
    if name == "no step":
        layers = layers[:2]  # ours returns the state
    said = []
    for rnn in layers:
        with pytest.raises((RuntimeError, ValueError)) as raised:
            REFUSED[name](rnn)
        said.append(str(raised.value))
    assert len(set(said)) == 1


@pytest.mark.parametrize("arguments", [{"dropout": 1.5}, {"bias": 1}, {"batch_first": "no"}, {"num_layers": 0}])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_what_torchs_constructor_refuses_is_refused_by_its_kind_of_error(kind, arguments):
    with pytest.raises((ValueError, TypeError)) as theirs:
        getattr(nn, kind)(I, H, **arguments)
    with pytest.raises(theirs.type, match=str(theirs.value)[:20]):
        getattr(timescales, kind)(I, H, **arguments)


KERNEL = {  # what torch's own kernel runs
    "one step": lambda rnn: rnn(torch.ones(1, B, I))[0],
    "float64": lambda rnn: rnn.double()(torch.ones(S, B, I, dtype=torch.float64))[0],
    "bfloat16": lambda rnn: rnn.bfloat16()(torch.ones(S, B, I, dtype=torch.bfloat16))[0],
    "empty batch": lambda rnn: rnn(torch.ones(S, 0, I))[0],
}


@pytest.mark.parametrize("name", KERNEL)
@pytest.mark.parametrize("how", ["class", "accelerate"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_where_our_engine_does_not_run_torchs_kernel_does(kind, how, name, runs):
    torch.manual_seed(0)
    theirs = getattr(nn, kind)(I, H, 2)
    torch.manual_seed(0)
    ours = getattr(timescales, kind)(I, H, 2) if how == "class" else timescales.accelerate(getattr(nn, kind)(I, H, 2))
    assert torch.equal(KERNEL[name](ours), KERNEL[name](theirs))
    assert not runs


def test_projections_are_torchs():
    torch.manual_seed(0)
    theirs = nn.LSTM(I, H, 2, proj_size=3)
    torch.manual_seed(0)
    ours, x = timescales.LSTM(I, H, 2, proj_size=3), torch.randn(S, B, I)
    assert torch.equal(ours(x)[0], theirs(x)[0])
    with pytest.raises(ValueError, match="runs only in torch"):
        ours(x, mask=torch.ones(S, B))


def test_under_autocast_the_results_are_torchs(runs):
    theirs, x = nn.LSTM(I, H), torch.randn(S, B, I)
    ours = timescales.accelerate(copy.deepcopy(theirs))
    with torch.autocast("cpu", torch.bfloat16), mkldnn.flags(enabled=False):  # oneDNN: not on every CPU
        found, expected = ours(x)[0], theirs(x)[0]
    assert torch.equal(found, expected)
    assert not torch.equal(found, theirs(x)[0])
    assert not runs
