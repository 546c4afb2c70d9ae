"""`rnn(x, reset=reset)`: each sequence as if it was cut at its resets and each part read by itself; in every engine."""

import itertools

import pytest
import torch
from engine_cases import close, gradient, learned_start, some_resets
from rnn_cases import B, H, I, S, layered, random_input
from torch.utils._pytree import tree_leaves

import timescales
from timescales import LSTM, RNN
from timescales.nn import cells

ENGINES = ("eager", "fused")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def by_parts(rnn, x, state, dt, mask, reset):
    """Output and last state, row by row: each part from one reset to the next is a call of its own."""
    rows, ends = [], []
    for b in range(x.shape[1]):
        starts = sorted({0, *reset[:, b].nonzero().flatten().tolist()})
        own = None if reset[0, b] else [type(s)(*(v[b : b + 1] for v in s)) for s in state]
        parts = []
        for first, end in itertools.pairwise([*starts, len(x)]):
            there = slice(first, end), slice(b, b + 1)
            output, own = rnn(x[there], own, dt[there], mask[there])
            own = rnn.split_state(own)
            parts.append(output)
            state_after, own = own, None
        rows.append(torch.cat(parts))
        ends.append(state_after)
    by_layer = zip(*ends, strict=True)
    last = [type(layer[0])(*map(torch.cat, zip(*layer, strict=True))) for layer in by_layer]
    return torch.cat(rows, 1), last


def loss_of(tensors):
    factors = [torch.linspace(-1.0, k + 1.5, v.numel(), dtype=v.dtype) for k, v in enumerate(tensors)]
    return sum((factor.view_as(v) * v).sum() for factor, v in zip(factors, tensors, strict=True))


@pytest.mark.parametrize("kind", ["LSTM", "PLSTM", "GRU", "MinGRU", "LRU", "RMC", "PhasedLSTM", "URNN", "SLSTM", "NRU"])
def test_it_is_as_if_each_part_was_read_by_itself(kind):
    """Results, and the gradients of inputs, dt, the state and all weights, to float64's rounding."""
    torch.manual_seed(0)
    rnn = layered(kind, engine="eager").eval()
    mask, reset = torch.rand(S, B) < 0.7, some_resets(S, B)
    found = []
    for run in (lambda *a: rnn(*a[:-1], reset=a[-1]), lambda *a: by_parts(rnn, *a)):
        rnn.zero_grad()
        x, dt = (v.requires_grad_() for v in random_input())
        torch.manual_seed(1)
        state = [
            type(s)(*((0.5 + torch.rand(s_.shape).to(s_)).requires_grad_() for s_ in s))
            for s in (cell.initial_state(B) for cell in rnn.layers)
        ]
        output, after = run(x, state, dt, mask, reset)
        after = after if isinstance(after, list) else rnn.split_state(after)
        results = [output, *(v for s in after for v in s)]
        loss_of(results).backward()
        leaves = [x, dt, *(v for s in state for v in s), *rnn.parameters()]
        found.append([*(v.detach() for v in results), *map(gradient, leaves)])
    for a, b in zip(*found, strict=True):
        close(a, b, 1e-12)


@pytest.mark.parametrize("which", ENGINES)
def test_a_reset_counts_at_a_step_that_does_not_exist(which):
    """The output there is the initial h, and the next step that exists begins from the initial state."""
    model = RNN([learned_start(cells.PLSTMCell)(I, H)], engine=which)
    x, _ = random_input()
    x, mask, reset = x.float(), torch.ones(S, B), torch.zeros(S, B)
    mask[2, 1], reset[2, 1] = 0, 1
    output, _ = model(x, mask=mask, reset=reset)
    assert torch.equal(output[2, 1], model.layers[0].start)
    close(output[3:, 1:2], model(x[3:, 1:2])[0])
    close(output[:, :1], model(x[:, :1])[0])


@pytest.mark.parametrize("kind", ["LSTM", "PLSTM", "RMC"])
def test_any_numbers_and_batch_first(kind):
    """Every number but 0 is a reset; B and S are exchanged; an engine that is not named is `auto`."""
    rnn = layered(kind).float()
    x = random_input()[0].float()
    reset = some_resets(S, B)
    expected, last = rnn(x, reset=reset)
    for numbers in (reset.float() * 0.5, reset.long() * -3, reset.to(torch.float16)):
        assert torch.equal(rnn(x, reset=numbers)[0], expected)
    rnn.batch_first = True
    output, state = rnn(x.transpose(0, 1), reset=reset.transpose(0, 1))
    assert torch.equal(output.transpose(0, 1), expected)
    assert all(map(torch.equal, tree_leaves(state), tree_leaves(last)))


@pytest.mark.parametrize(("reset", "line"), [
    (torch.zeros(S), r"reset must be \(6, 3\), like x without its features: it is \(6,\)"),
    (torch.zeros(B, S), r"reset must be \(6, 3\), like x without its features: it is \(3, 6\)"),
    ([0] * S, "reset must be a tensor, not list"),
])  # fmt: skip
def test_another_shape_is_one_line(reset, line):
    with pytest.raises(ValueError, match=line):
        LSTM(I, H)(torch.zeros(S, B, I), reset=reset)


def test_under_tracers():
    """torch.func sees plain operations."""
    rnn = timescales.GRU(I, H)
    x, reset = torch.randn(S, B, I), some_resets(S, B)
    expected = rnn(x, reset=reset)[0]
    close(torch.func.vmap(lambda v: rnn(v, reset=reset)[0])(x[None])[0], expected)
