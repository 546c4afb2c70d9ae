"""What holds for every cell: gradients, invariances, masks, dtypes, saturated gates, time scales, frozen biases."""

import pytest
import torch
from cell_cases import (
    CELLS,
    RMCS,
    TIMED,
    B,
    H,
    I,
    S,
    build,
    close,
    close_state,
    random_input,
    random_state,
    run,
    shares,
)
from everyday import only
from own_reference import check_gradients

from timescales.nn.cells import (
    ELSTMCell,
    GRUCell,
    LSTMCell,
    MinGRUCell,
    PGRUCell,
    PLScanCell,
    PLSTMCell,
)
from timescales.nn.engine import eager

ONE_OF_EACH = ("lstm_frozen", "ur", "plstm", "pgru", "gru", "janet", "elstm", "leaky", "minlstm", "plscan", "lru")
ONE_OF_EACH += ("exprnn", "gated_gru_om", "rmc_um", "slstm", "rglru", "signed_mingru", "lem", "cornn", "cfc")
ONE_OF_EACH += ("paragru", "paralstm", "hgrn")


@pytest.mark.parametrize("name", only(ONE_OF_EACH, [name for name in CELLS if name != "surnn"]))  # it has its own
def test_gradcheck(name):
    cell = build(name, shape=(2, 6 if name in RMCS else 2))
    check_gradients(cell, random_state(cell, 2))


@pytest.mark.parametrize("name", CELLS)
def test_split_invariance(name):
    x, dt, mask = random_input()
    cell = build(name)
    with torch.no_grad():
        whole, end = run(cell, x, random_state(cell, B), dt, mask)
        state, parts = random_state(cell, B), []
        for piece in (slice(0, 2), slice(2, 3), slice(3, S)):
            output, state = run(cell, x[piece], state, dt[piece], mask[piece])
            parts.append(output)
    close(torch.cat(parts), whole)
    close_state(state, end)


@pytest.mark.parametrize("name", CELLS)
def test_batch_invariance(name):
    x, dt, mask = random_input()
    cell = build(name)
    state = random_state(cell, B)
    with torch.no_grad():
        whole, end = run(cell, x, state, dt, mask)
        for b in range(B):
            one = slice(b, b + 1)
            alone, last = run(cell, x[:, one], cell.State(*(v[one] for v in state)), dt[:, one], mask[:, one])
            close(alone, whole[:, one])
            close_state(last, cell.State(*(v[one] for v in end)))


@pytest.mark.parametrize("name", CELLS)
def test_causality(name):
    x, dt, _ = random_input(tiny_dt=False)
    cell = build(name)
    x.requires_grad_()
    dt.requires_grad_()
    output, _ = run(cell, x, random_state(cell, B), dt)
    gx, gdt = torch.autograd.grad(output[3, 1].sum(), [x, dt], allow_unused=True)
    assert gx[4:].abs().max() == 0
    assert gx[:, [0, 2]].abs().max() == 0
    assert (gx[:4, 1].abs().sum(-1) > 0).all()
    if name in TIMED:
        assert gdt[4:].abs().max() == 0
        assert (gdt[:4, 1] != 0).all()
    else:
        assert gdt is None


@pytest.mark.parametrize("name", [name for name in CELLS if name != "grud"])  # without flags it has fields that rest
def test_masked_steps_hold_every_field(name):
    x, dt, _ = random_input()
    cell = build(name)
    before = random_state(cell, B)
    mask = torch.zeros(S, B)
    mask[:, 1] = 1
    with torch.no_grad():
        output, after = run(cell, x, before, dt, mask)
    for old, new in zip(before, after, strict=True):
        assert torch.equal(new[[0, 2]], old[[0, 2]])
        assert not torch.equal(new[1], old[1])
    assert torch.equal(output[:, 0], before.h[0].expand(S, H))


@pytest.mark.parametrize("name", [name for name in CELLS if name not in (*RMCS, "urnn", "slstm")])
def test_starts_at_zero_in_the_parameters_type(name):
    for dtype in (torch.float32, torch.float64):
        cell = build(name, dtype=dtype)
        for field, value in cell.initial_state(2, 3)._asdict().items():
            assert value.shape == (2, 3, cell.width(field))
            assert value.dtype == dtype
            assert not value.any()


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("level", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_saturated_gates_stay_finite_forward_and_backward(name, level, dtype):
    cell = build(name, dtype=dtype)
    x, dt, _ = random_input()
    x, dt = x.to(dtype), dt.to(dtype)
    for gate in (*cell.gates, None):  # each gate alone, then all together
        z = torch.zeros(B, sum(map(cell.height, cell.gates)), dtype=dtype)
        z[:, slice(None) if gate is None else cell.rows(gate)] = level
        for ages in (0.0, 3.0, 1e6):
            fill = {"age": ages}
            state = [torch.full((B, cell.width(f)), fill.get(f, 0.5), dtype=dtype) for f in cell.State._fields]
            state = [v.requires_grad_() for v in state]
            pre, step = z.clone().requires_grad_(), dt[2].unsqueeze(-1).clone().requires_grad_()
            arguments = (torch.zeros_like(pre), pre) if cell.recurrent else (pre, None)
            if name in RMCS:  # it reads gx alone
                arguments = pre, torch.zeros_like(pre)
            new = cell.step(*arguments, cell.State(*state), step)
            loss = sum(v.square().sum() for v in new)
            parameters = [v for k, v in cell.named_parameters() if k == "power"]
            gradients = torch.autograd.grad(loss, [pre, step, *state, *parameters], allow_unused=True)
            for value in (*new, *(g for g in gradients if g is not None)):
                assert torch.isfinite(value).all(), (gate, ages)


@pytest.mark.parametrize("name", CELLS)
def test_autocast_keeps_the_state_in_float32(name):
    cell = build(name, dtype=torch.float32)
    x = random_input()[0].float()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = run(cell, x)
    assert all(v.dtype == torch.float32 for v in state)
    assert output.dtype == torch.float32


@pytest.mark.parametrize("kind", [LSTMCell, PLSTMCell, PGRUCell, GRUCell, ELSTMCell, MinGRUCell, PLScanCell])
def test_long_memories_survive_autocast(kind):
    """What is left after 1,000 empty steps. In bfloat16 the gate that keeps .998 would be 1 and forget nothing."""
    cell = kind(I, H)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        gate, bias = ("forget", 6.0) if "forget" in cell.gates else ("reset", -6.0)
        cell.set_bias(gate, torch.full((H,), bias))
    x = torch.zeros(1000, 1, I)
    start = type(cell.initial_state(1))(*(torch.ones(1, H) for _ in cell.State._fields))
    with torch.no_grad():
        expected = eager.run(cell, x, cell.weights(), start)[1]
        with torch.autocast("cpu", torch.bfloat16):
            found = eager.run(cell, x, cell.weights(), start)[1]
    for name, ours, exact in zip(cell.State._fields, found, expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-3, atol=1e-6, msg=name)
    assert 0.0 < float(expected[-2 if "age" in cell.State._fields else -1][0, 0]) < 0.5


# Those of the IndRNN and the Phased LSTM, whose state of rest is another, are in their own tests; CfC has none.
FORGETTING = [name for name, (kind, _) in CELLS.items() if "forget" in kind.Act._fields]


@pytest.mark.parametrize("name", [name for name in FORGETTING if name not in ("indrnn", "phased", "cornn", "cfc")])
def test_timescales_equal_a_simulated_decay(name):
    """-n / ln(what is left of a cell after n steps) at zero input and state, once age and log_n have come to rest."""
    kind, arguments = CELLS[name]
    torch.manual_seed(5)
    cell = kind(I, H, **arguments).double()
    _, _, bias_ih, bias_hh = cell.weights()
    zero = torch.zeros_like(bias_ih)
    state = cell.State(*(torch.zeros(cell.width(k), dtype=torch.float64) for k in cell.State._fields))
    left = torch.ones(H, dtype=torch.float64)
    n, settle = 20, 300
    with torch.no_grad():
        for t in range(settle + n):
            gates = cell.act(*shares(cell, bias_ih, zero if bias_hh is None else bias_hh), state)
            slow = {"age", "log_n"} & set(cell.State._fields)
            state = state._replace(**{field: getattr(gates, field) for field in slow})
            if t >= settle:
                left = left * gates.forget
        assert cell.timescales().shape == (H,)
        close(cell.timescales(), n / left.log().abs(), 1e-9)


@pytest.mark.parametrize("name", ["lstm_frozen", "mts", "ur_frozen"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_frozen_rows_do_not_move(name, optimizer):
    kind, arguments = CELLS[name]
    torch.manual_seed(6)
    cell = kind(I, H, **arguments)
    choose = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, weight_decay=0.1),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    }
    opt = choose[optimizer](cell.parameters())
    start = [cell.bias_total(gate).detach().clone() for gate in cell.gates]
    x = random_input()[0].float()
    for _ in range(5):
        opt.zero_grad()
        output, _ = run(cell, x)
        (output - 1.0).square().mean().backward()
        opt.step()
    for gate, before in zip(cell.gates, start, strict=True):
        moved = (cell.bias_total(gate) - before).abs()
        assert (moved == 0).all() if gate in cell.frozen else (moved > 0).all(), gate


def test_frozen_holds_the_uniform_vector_too():
    """The uniform initializer's bias is a separate vector; a frozen forget and input gate must not move through it."""
    torch.manual_seed(6)
    cell = LSTMCell(I, H, forget_init="uniform", frozen=("input", "forget"))
    before = {gate: cell.bias_total(gate).detach().clone() for gate in cell.frozen}
    opt = torch.optim.SGD(cell.parameters(), lr=0.5, weight_decay=0.1)
    output, _ = run(cell, random_input()[0].float())
    (output - 1.0).square().mean().backward()
    opt.step()
    for gate in cell.frozen:
        assert torch.equal(cell.bias_total(gate), before[gate]), gate


@pytest.mark.parametrize("bad", ["forgot", "refine", 3])
def test_frozen_names_existing_gates(bad):
    with pytest.raises(ValueError, match=r"input, forget, cell, output"):
        LSTMCell(2, 3, frozen=(bad,))


@pytest.mark.parametrize("size", [0, -1, 2.5, "4", True, None])
@pytest.mark.parametrize("kind", sorted({kind for kind, _ in CELLS.values()}, key=str))
def test_sizes_are_whole_numbers(kind, size):
    with pytest.raises(ValueError, match="input_size"):
        kind(size, 3)
    with pytest.raises(ValueError, match="hidden_size"):
        kind(3, size)
