"""The fused engine against the eager one in float64: results and every gradient, over cells, shapes, dt and masks."""

from __future__ import annotations

import itertools

import pytest
import torch
from engine_cases import (
    GATED,
    MODELS,
    SHAPES,
    assert_nan_propagates,
    close,
    compare,
    evaluate,
    some_state,
)
from torch.utils._pytree import tree_leaves

from timescales import LSTM, PLSTM, URLSTM, GatedRNN
from timescales.nn import engine as engines
from timescales.nn.engine import eager
from timescales.nn.engine.cpu import fused, workspace


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(name, shape):
    S, B, inputs, H = shape
    model = MODELS[name](inputs, H)
    x = torch.randn(S, B, inputs)
    dt, mask = 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.7
    for (d, m), last, state in itertools.product(
        itertools.product((None, dt), (None, mask)), (False, True), (None, some_state(model, B))
    ):
        compare("fused", model, x, state, d, m, last)


@pytest.mark.parametrize("engine", ["eager", "fused"])
@pytest.mark.parametrize("rows", ["reset", "cell", "output", "power"])
def test_what_is_not_a_number_stays_so(engine, rows):
    model = PLSTM(3, 4, engine=engine)
    (cell,) = model.layers
    with torch.no_grad():
        (cell.power if rows == "power" else cell.bias[cell.rows(rows)]).fill_(float("nan"))
    output, after = model(torch.randn(6, 2, 3))
    (state,) = model.split_state(after)
    assert output.isnan().all()
    assert state.h.isnan().all()


@pytest.mark.parametrize("gate", GATED)
def test_gated_equals_eager(gate):
    S, B, inputs, H = 7, 5, 3, 37
    model = GATED[gate](inputs, H)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    assert engines.pick("auto", model.layers[0], torch.randn(S, B, inputs)) is fused.run
    for mask, last in ((None, False), (torch.rand(S, B) < 0.7, True)):
        compare("fused", model, torch.randn(S, B, inputs), some_state(model, B), None, mask, last)
    compare("fused", GatedRNN(inputs, [H, 5], 2, gate=gate, T_max=30), torch.randn(S, B, inputs))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_any_number_of_threads(name, threads):
    """Slices of the batch, shared units with a barrier, and more threads than rows."""
    torch.set_num_threads(threads)
    for B, H in ((1, 100), (3, 420), (40, 20)):  # units are shared where they are many: 420
        model = MODELS[name](4, H)
        compare("fused", model, torch.randn(6, B, 4), some_state(model, B), mask=torch.rand(6, B) < 0.7)


@pytest.mark.parametrize(("H", "threads"), [(512, 1), (512, 2), (530, 1)])
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_large_layers(name, H, threads):
    """Weights that leave the cache at every step; one tile of rows and two; units beyond whole vectors."""
    torch.set_num_threads(threads)
    S, inputs = 4, 40
    model = MODELS[name](inputs, H)
    for B in (1, 3, 16, 17):
        x, dt, mask, reset = (
            torch.randn(S, B, inputs),
            2.0 * torch.rand(S, B),
            torch.rand(S, B) < 0.8,
            torch.zeros(S, B),
        )
        reset[2, 0] = 1.0
        for d, m, r, last in ((None, None, None, False), (dt, mask, reset, True)):
            compare("fused", model, x, some_state(model, B), d, m, last, reset=r)
            first, again = (evaluate(model, "fused", torch.float32, x, None, d, m, last, reset=r) for _ in range(2))
            for key, value in first.items():
                assert torch.equal(value, again[key]), key


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("side", ["front", "end"])
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_padding_is_left_out_of_the_products(name, side, threads):
    """Sequences of 0 to S steps in any order: products are made for the rows that exist, results are everybody's."""
    torch.set_num_threads(threads)
    S, B = 9, 14
    model = MODELS[name](33, 20)
    lengths = torch.randint(S + 1, (B,))
    lengths[3], lengths[8] = 0, S
    step = torch.arange(S).unsqueeze(1)
    mask = step >= S - lengths if side == "front" else step < lengths
    for last in (False, True):
        compare("fused", model, torch.randn(S, B, 33), some_state(model, B), 3.0 * torch.rand(S, B), mask, last)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_longest_first(threads):
    """Every row once, in each thread's slice those with most steps first."""
    mask = torch.rand(20, 11) < torch.rand(11)
    order, lengths = fused.longest_first(mask, threads), mask.sum(0)
    assert order.sort().values.tolist() == list(range(11))
    for k in range(threads):
        mine = order[11 * k // threads : 11 * (k + 1) // threads]
        assert sorted(mine.tolist()) == list(range(11 * k // threads, 11 * (k + 1) // threads))
        assert (lengths[mine].diff() <= 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_long_sequence(name):
    """500 steps: errors do not grow with time, since age and cell are sums of decaying terms."""
    model = MODELS[name](2, 8)
    compare("fused", model, torch.randn(500, 3, 2), some_state(model, 3), tolerance=5e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("inputs", [3, 40])
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_blocks_of_the_weights_gradients(name, inputs, threads):
    """They are summed in blocks of 256 rows that exist: several, none of them whole, nor the tiles of units."""
    torch.set_num_threads(threads)
    S, B, H = 45, 17, 75
    model, x, mask = MODELS[name](inputs, H), torch.randn(S, B, inputs), torch.rand(S, B) < 0.9
    compare("fused", model, x, some_state(model, B))
    compare("fused", model, x, some_state(model, B), None, mask)


@pytest.mark.parametrize("bias", [-30.0, -12.0, 12.0, 30.0, 200.0])
@pytest.mark.parametrize("name", ["plstm", "plstm_separate", "plstm_authors"])
def test_extreme_reset_gates(name, bias):
    """Reset gates at 0 and 1 to within far less than float32 keeps of 1 - r."""
    model = MODELS[name](3, 9)
    with torch.no_grad():
        model.layers[0].bias[:9] = bias
    S, B = 40, 5
    # A saturated gate's gradient is a product of numbers near 1e-30, which are held at 0: scale + 1e-3 in `close`.
    compare("fused", model, torch.randn(S, B, 3), some_state(model, B), 2.0 * torch.rand(S, B))


def test_time_shorter_than_epsilon():
    """Where dt < epsilon the ratio is held at 1, and no gradient flows through it."""
    model = PLSTM(2, 5, epsilon=0.5)
    with torch.no_grad():
        model.layers[0].bias[:5] = -3.0
    compare("fused", model, torch.randn(12, 4, 2), some_state(model, 4), 0.8 * torch.rand(12, 4))


@pytest.mark.parametrize("name", MODELS)
def test_layers_batch_first(name):
    kinds = {"lstm": LSTM, "ur": URLSTM}
    model = kinds.get(name, PLSTM)(5, [12, 20], 2, batch_first=True)
    compare("fused", model, torch.randn(4, 7, 5), some_state(model, 4), torch.rand(4, 7) + 0.5, torch.rand(4, 7) < 0.7)


def test_numbers_may_lie_anywhere():
    """An input of any strides, and the gradient of a sum, which has strides of 0."""
    model, x = PLSTM(5, 20), torch.randn(5, 4, 7).permute(2, 1, 0)
    compare("fused", model, x)
    found = {}
    for engine in ("fused", "eager"):
        model.engine = engine
        model.zero_grad()
        model(x)[0].sum().backward()
        found[engine] = torch.cat([p.grad.flatten() for p in model.parameters()])
    close(found["fused"], found["eager"])


def test_all_steps_masked():
    model = PLSTM(3, 6)
    state = some_state(model, 2)
    mask = torch.zeros(4, 2)
    compare("fused", model, torch.randn(4, 2, 3), state, None, mask)
    output, after = model(torch.randn(4, 2, 3), state, mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(model.split_state(after)[0], state[0], strict=True))
    assert torch.equal(output, state[0].h.expand(4, 2, 6))


def test_two_forwards_then_two_backwards():
    """Each call's activations are its own, also when workspaces are used again and the shapes differ."""
    model = PLSTM(3, 20, engine="fused")
    inputs = [torch.randn(s, b, 3) for s, b in ((9, 4), (9, 4), (5, 6), (9, 4))]

    def gradients(chosen):
        losses = [model(x)[0].square().sum() for x in chosen]
        return [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]

    together = gradients(inputs)
    for x, grads in zip(inputs, together, strict=True):
        for a, b in zip(grads, gradients([x])[0], strict=True):
            assert torch.equal(a, b)


def test_retained_graph():
    """The first backward uses up the activations; a second one computes them again."""
    model = URLSTM(3, 20, engine="fused")
    loss = model(torch.randn(9, 4, 3))[0].square().sum()
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    model(torch.randn(9, 4, 3))[0].sum().backward()  # may take the memory in between
    second = torch.autograd.grad(loss, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_some_gradients_not_wanted():
    model = PLSTM(3, 20)
    x = torch.randn(7, 4, 3)
    compare("fused", model, x)
    whole = {name: p.grad for name, p in model.named_parameters()}
    for wanted in whole:
        model.engine = "fused"
        model.zero_grad()
        for name, p in model.named_parameters():
            p.requires_grad_(name == wanted)
        out = evaluate(model, "fused", torch.float32, x, None, None, None, False)
        close(out[f"d {wanted}"], whole[wanted])
    frozen = evaluate(model.requires_grad_(False), "fused", torch.float32, x, None, None, None, False)
    assert frozen["d x"].abs().sum() > 0


def test_threads_changed_before_backward():
    """The workspace is laid out for forward's threads."""
    model = PLSTM(3, 20, engine="fused")
    loss = model(torch.randn(9, 8, 3))[0].square().sum()
    torch.set_num_threads(16)
    after = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    torch.set_num_threads(2)
    for a, b in zip(after, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        assert torch.equal(a, b)


def test_double_backward_is_refused():
    model = PLSTM(3, 4, engine="fused")
    loss = model(torch.randn(3, 2, 3))[0].sum()
    with pytest.raises(RuntimeError, match=r"no second derivatives: .* use engine='eager'"):
        torch.autograd.grad(loss, model.layers[0].weight_hh, create_graph=True)


def test_changed_weights_are_noticed():
    """Backward reads the weights: torch's own check must see a change in between."""
    model = LSTM(3, 4, engine="fused")
    loss = model(torch.randn(3, 2, 3))[0].sum()
    with torch.no_grad():
        model.layers[0].weight_hh.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# With 40 inputs, their share is made ahead, for windows of some 200 rows: less than one, one, a step more, several.
@pytest.mark.parametrize(("S", "B", "inputs"), [(9, 7, 3), (30, 2, 40), (193, 1, 40), (97, 4, 40), (9, 60, 40)])
@pytest.mark.parametrize("name", MODELS)
def test_without_gradients(name, S, B, inputs):
    """No activations are kept, and the results are the same numbers."""
    model = MODELS[name](inputs, 40)
    model.engine = "fused"
    x, mask, dt = torch.randn(S, B, inputs), torch.rand(S, B) < 0.7, torch.rand(S, B)
    state = some_state(model, B)
    expected, after = model(x, state, dt, mask)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            output, end = model(x, state, dt, mask)
        assert not output.requires_grad
        assert torch.equal(output, expected)
        assert all(map(torch.equal, tree_leaves(end), tree_leaves(after)))


def test_not_a_number_goes_through():
    assert_nan_propagates("fused")


def test_denormals_flushed_inside_and_restored():
    torch.set_flush_denormal(False)  # an earlier test may have built a run, which turns it on for this thread
    model = LSTM(1, 16, engine="fused")
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.1)
    _, (h, _) = model(torch.randn(300, 4, 1))
    (h.sum() * 1e-30).backward()
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    tiny = torch.finfo(torch.float32).tiny
    assert not ((grads != 0) & (grads.abs() < tiny)).any()
    assert torch.tensor(1e-38) * 0.01 > 0  # this thread still has denormal numbers


def test_pick():
    model, x = LSTM(3, 4), torch.randn(2, 2, 3)
    cell = model.layers[0]
    assert engines.pick("auto", cell, x) is fused.run
    assert engines.pick("eager", cell, x) is eager.run
    with pytest.raises(ValueError, match="engine must be one of auto, eager, fused, compiled, cudnn; not 'fast'"):
        engines.pick("fast", cell, x)
    model.double()
    assert engines.pick("auto", cell, x.double()) is eager.run
    model.engine = "fused"
    with pytest.raises(ValueError, match=r"x must be float32 on the CPU, not torch.float64 on cpu; use engine='eager'"):
        model(x.double())


def test_one_step_at_a_time_equals_the_whole():
    """Single steps are the eager engine's; the state goes from one engine to the other."""
    model = PLSTM(3, 20, engine="fused")
    x = torch.randn(6, 4, 3)
    whole, end = model(x)
    output, state = model(x[:3])
    parts = [output]
    for now in x[3:].split(1):
        output, state = model(now, state)
        parts.append(output)
    close(torch.cat(parts), whole)
    for a, b in zip(tree_leaves(state), tree_leaves(end), strict=True):
        close(a, b)


def test_no_steps_and_no_rows():
    model = PLSTM(3, 4, engine="fused")
    for S, B in ((0, 2), (2, 0)):
        output, state = model(torch.randn(S, B, 3))
        assert output.shape == (S, B, 4)
        assert state.c.shape == (1, B, 4)


@pytest.mark.parametrize("kind", [LSTM, PLSTM])
def test_called_directly_it_reads_no_other_type_as_float32(kind):
    (cell,) = kind(3, 8).layers
    x, state = torch.randn(5, 2, 3), cell.initial_state(2)
    output, _ = fused.run(cell, x, cell.weights(), state)
    again, _ = fused.run(cell, x, cell.weights(), state, torch.ones(5, 2).double(), torch.ones(5, 2))
    close(again, output)
    with pytest.raises(AssertionError):
        fused.run(cell, x, cell.weights(), type(state)(*(v.double() for v in state)))


def test_a_workspace_that_never_was_one_goes_quietly():
    """torch.compile makes objects without calling __init__, and drops them."""
    workspace.Workspace.__new__(workspace.Workspace).release()
