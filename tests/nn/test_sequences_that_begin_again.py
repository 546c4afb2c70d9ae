"""`rnn(x, reset=reset)`: each sequence as if it was cut at its resets and each part read by itself; in every engine."""

from __future__ import annotations

import itertools

import cell_models
import pytest
import torch
from engine_cases import (
    MODELS,
    close,
    compare,
    gradient,
    learned_start,
    some_state,
)
from everyday import only
from rnn_cases import KINDS, B, H, I, S, layered, random_input
from torch.utils._pytree import tree_leaves

import timescales
from timescales import LSTM, PLSTM, RNN, GatedRNN
from timescales.nn import cells

ENGINES = ("eager", "fused")
# A learned power with an age, shares computed apart, a cumax, three fields, and scans.
FEW = {"lstm", "plstm", "gru", "gated_gru_om_4", "adversarial", "plscan", "lru"}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def some_resets(S, B):
    """Some in each row: before the first step, twice in succession, before the last step."""
    reset = torch.rand(S, B) < 0.2
    reset[0, 0] = reset[1:3, -1] = reset[-1, 0] = True
    return reset


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
    last = [
        type(layer[0])(*(torch.cat(field) for field in zip(*layer, strict=True))) for layer in zip(*ends, strict=True)
    ]
    return torch.cat(rows, 1), last


def loss_of(tensors):
    return sum(
        (torch.linspace(-1.0, k + 1.5, v.numel(), dtype=v.dtype).view_as(v) * v).sum() for k, v in enumerate(tensors)
    )


@pytest.mark.parametrize("kind", only(["LSTM", "PLSTM", "GRU", "MinGRU", "LRU", "RMC"], KINDS))
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


@pytest.mark.parametrize("name", only(FEW, cell_models.NAMES))
def test_every_compiled_cell_equals_eager(name):
    model = cell_models.model(name, 3, 28)
    x, dt, mask, reset = torch.randn(6, 5, 3), 3.0 * torch.rand(6, 5), torch.rand(6, 5) < 0.6, some_resets(6, 5)
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("fused", model, x, some_state(model, 5) if k % 2 else None, d, m, k in (1, 2),
                reset=reset, states=k > 1)  # fmt: skip


@pytest.mark.parametrize("kind", [cells.LSTMCell, cells.PLSTMCell, cells.MinLSTMCell, cells.PLScanCell])
def test_a_learned_initial_state_gets_its_gradient(kind):
    """From every reset, with and without a state that is given. 40 inputs: their shares are made ahead."""
    for S_, inputs, units in ((9, 40, 17), (6, 2, 3)):
        model = RNN([learned_start(kind)(inputs, units), learned_start(kind)(units, units)])
        x, mask, reset = torch.randn(S_, B, inputs), torch.rand(S_, B) < 0.7, some_resets(S_, B)
        for state, m in itertools.product((None, some_state(model, B)), (None, mask)):
            compare("fused", model, x, state, None, m, reset=reset)
            compare("fused", model, x, state, None, m, last=True, reset=reset, states=True)
    assert model.layers[0].start.grad.abs().sum() > 0


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("name", only({"plstm", "mingru"}, ["lstm", "plstm", "gru", "mingru", "plscan"]))
def test_any_number_of_threads(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for B, H in ((1, 100), (3, 420), (14, 20)):  # units are shared where they are many
            model = cell_models.model(name, 4, H)
            compare("fused", model, torch.randn(6, B, 4), some_state(model, B), None, torch.rand(6, B) < 0.7,
                    reset=some_resets(6, B))  # fmt: skip
    finally:
        torch.set_num_threads(before)


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


@pytest.mark.parametrize("which", ENGINES)
def test_the_state_that_is_given_counts_up_to_the_first_reset(which):
    model = PLSTM(I, H, engine=which)
    x = random_input()[0].float()
    (state,) = some_state(model, B)
    reset = torch.zeros(S, B)
    reset[0, 0] = reset[3, 1] = 1
    output, after = model(x, [state], reset=reset)
    fresh, given = model(x)[0], model(x, [state])[0]
    close(output[:, 0], fresh[:, 0])
    close(output[:3, 1], given[:3, 1])
    close(output[:, 2], given[:, 2])
    close(output[3:, 1:2], model(x[3:, 1:2])[0])
    reset[-1, 2] = 1
    assert after.age.shape == (1, B, H)
    close(model(x, [state], reset=reset)[1].age[0, 2], model(x[-1:, 2:])[1].age[0, 0])


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


def test_without_resets_the_numbers_are_the_same():
    for which in ENGINES:
        rnn = PLSTM(I, H, engine=which)
        x = random_input()[0].float()
        assert torch.equal(rnn(x, reset=torch.zeros(S, B))[0], rnn(x)[0])


def test_without_gradients_and_with_saved_tensors_that_are_moved():
    """Backward computes again what hooks did not keep."""
    model = RNN([learned_start(cells.PLSTMCell)(3, 7)], engine="fused")
    S, B = 70, 4
    x, mask, reset = torch.randn(S, B, 3), torch.rand(S, B) < 0.7, some_resets(S, B)
    expected, after, every = model(x, mask=mask, reset=reset, states=True)
    with torch.no_grad():
        output, end, steps = model(x, mask=mask, reset=reset, states=True)
    for a, b in zip(tree_leaves((output, end, steps)), tree_leaves((expected, after, every)), strict=True):
        close(a, b)
    gradients = torch.autograd.grad(loss_of([expected, *every.age]), list(model.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss_of([expected, *every.age]), list(model.parameters()))
    with torch.autograd.graph.save_on_cpu():
        output, _, every = model(x, mask=mask, reset=reset, states=True)
        moved = torch.autograd.grad(loss_of([output, *every.age]), list(model.parameters()))
    for one, two, three in zip(gradients, again, moved, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_padding_beside_resets():
    """Sequences of all lengths in any order, so that the loop has another order of rows."""
    S, B = 9, 14
    model = RNN([learned_start(cells.PLSTMCell)(33, 20)])
    lengths = torch.randint(S + 1, (B,))
    lengths[3], lengths[8] = 0, S
    mask = torch.arange(S).unsqueeze(1) < lengths
    compare("fused", model, torch.randn(S, B, 33), some_state(model, B), 3.0 * torch.rand(S, B), mask,
            reset=some_resets(S, B), states=True)  # fmt: skip


def test_no_step_one_step_and_no_row():
    rnn = PLSTM(I, H)
    (state,) = some_state(rnn, B)
    output, after = rnn(torch.zeros(0, B, I), [state], reset=torch.zeros(0, B))
    assert output.shape == (0, B, H)
    assert torch.equal(after.c[0], state.c)
    x = torch.randn(1, B, I)
    close(rnn(x, [state], reset=torch.ones(1, B))[0], rnn(x)[0])
    assert rnn(torch.zeros(S, 0, I), reset=torch.zeros(S, 0))[0].shape == (S, 0, H)


def test_zoneout_draws_what_it_draws_without():
    model = GatedRNN(3, 8, zoneout_h=0.3).train()
    x, reset, found = torch.randn(7, 5, 3), some_resets(7, 5), []
    for which in ENGINES:
        model.engine = which
        torch.manual_seed(5)
        found.append(model(x, reset=reset)[0])
    for output in found[1:]:
        close(output, found[0])


def test_torchs_kernel_is_not_taken():
    with pytest.raises(
        ValueError, match=r"it can neither reset the state within a sequence nor return states; use .*auto"
    ):
        LSTM(I, H, engine="cudnn")(torch.zeros(S, B, I), reset=torch.zeros(S, B))


@pytest.mark.parametrize(
    ("reset", "line"),
    [
        (torch.zeros(S), r"reset must be \(6, 3\), like x without its features: it is \(6,\)"),
        (torch.zeros(B, S), r"reset must be \(6, 3\), like x without its features: it is \(3, 6\)"),
        ([0] * S, "reset must be a tensor, not list"),
    ],
)
def test_another_shape_is_one_line(reset, line):
    with pytest.raises(ValueError, match=line):
        LSTM(I, H)(torch.zeros(S, B, I), reset=reset)


def test_under_tracers():
    """torch.func sees plain operations."""
    rnn = timescales.GRU(I, H)
    x, reset = torch.randn(S, B, I), some_resets(S, B)
    expected = rnn(x, reset=reset)[0]
    close(torch.func.vmap(lambda v: rnn(v, reset=reset)[0])(x[None])[0], expected)


@pytest.mark.parametrize("name", only({"plstm"}, MODELS))
def test_long_sequences(name):
    model = MODELS[name](2, 8)
    reset = torch.rand(300, 3) < 0.02
    compare("fused", model, torch.randn(300, 3, 2), some_state(model, 3), tolerance=5e-5, reset=reset)
