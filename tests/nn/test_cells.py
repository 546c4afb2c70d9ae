"""What holds for every cell: its equations, gradients, invariances, masks, types, saturated gates, time scales."""

import pytest
import reference
import torch
from cell_cases import ALL, CELLS, B, H, I, S, build, close, close_state, random_input, random_state, run, shares

from timescales.nn import cells, registry
from timescales.nn.cells import LSTMCell
from timescales.nn.engine import eager

RMCS = [name for name in ALL if name.startswith("rmc")]
TOLERANCE = 1e-10  # where the reference, in absolute times or with 1 - a^2, loses digits at a dt of 1e-7
EXACT = 1e-11


def test_every_model_has_a_reference():
    compared = {kind.__name__ for kind, _ in ALL.values()}
    assert {cell for model in registry.MODELS for cell in model.cells} == compared
    assert {kind for kind, _ in ALL.values()} == reference.STEPS.keys()


@pytest.mark.parametrize(("timed", "masked"), [(False, False), (True, True)], ids=["unit", "timed and masked"])
@pytest.mark.parametrize("name", ALL)
def test_equals_the_reference(name, timed, masked):
    kind, arguments = ALL[name]
    cell = build(name).train(name != "phased_plain")
    torch.manual_seed(0)
    fresh = kind(I, cell.hidden_size, **arguments).double()
    initial = {gate: fresh.bias_total(gate).detach().numpy() for gate in getattr(cell, "frozen", ())}
    (x, dt, mask), state = random_input(flags=arguments.get("flags", ())), random_state(cell, B)
    if "authors" in name:
        dt = torch.ones_like(dt)  # the authors' code has unit steps only: here they are given as dt = 1
    dt, mask = dt if timed else None, mask if masked else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt, mask)
    expected, last = reference.unrolled(cell, arguments, x, state, dt, mask, initial)
    tolerance = TOLERANCE if {"age"} & {*cell.State._fields} or "rglru" in name else EXACT
    close(output, torch.from_numpy(expected), tolerance)
    for field, value in final._asdict().items():
        close(value, torch.from_numpy(last[field]), tolerance)


# The suRNN's switch has a gradient that no difference has: test_special_cells.py.
DIFFERENTIABLE = [name for name in CELLS if name != "surnn"]
DIFFERENTIABLE += ["lstm_frozen", "plstm_separate", "plstm_authors", "phased_ratio", "slstm_heads", "slstm_exp"]
DIFFERENTIABLE += ["hgrn_bound", "rglru_signed", "eurnn_fft", "grud_two", "gated_gru_om", "rmc_um"]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_differences(name):
    """Of x, dt, the state and all parameters. As torch.autograd.gradcheck, with all differences in one batch."""
    least = 6 if name in RMCS or name.startswith("slstm") else 4 if "urnn" in name else 2
    cell = build(name, shape=(4 if name == "grud_two" else 2, 8 if name == "eurnn_fft" else least))
    g = torch.Generator().manual_seed(4)
    x = torch.randn(3, 2, cell.input_size, generator=g, dtype=torch.float64)
    dt = 0.2 + torch.rand(3, 2, generator=g, dtype=torch.float64)
    mask, state = torch.tensor([[1, 0], [0, 1], [1, 1]]), random_state(cell, 2)
    names, n = [k for k, _ in cell.named_parameters()], len(state)

    class Run(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, dt, *state):
            output, final = run(self.cell, x, self.cell.State(*state), dt, mask)
            return torch.cat([value.flatten() for value in (output, *final)])

    module = Run()

    def function(x, dt, *rest):
        parameters = {f"cell.{k}": v for k, v in zip(names, rest[n:], strict=True)}
        return torch.func.functional_call(module, parameters, (x, dt, *rest[:n]))

    inputs = [v.detach().clone().requires_grad_() for v in (x, dt, *state, *cell.parameters())]
    rows = [torch.autograd.grad(v, inputs, retain_graph=True, materialize_grads=True) for v in function(*inputs)]
    for k, value in enumerate(inputs):
        found = torch.stack([row[k].flatten() for row in rows], 1)
        steps = 1e-6 * torch.eye(value.numel(), dtype=torch.float64).view(-1, *value.shape)
        with torch.no_grad():
            after, before = (
                torch.func.vmap(lambda v, k=k: function(*inputs[:k], v, *inputs[k + 1 :]))(value + sign * steps)
                for sign in (1, -1)
            )
        torch.testing.assert_close(found, (after - before) / 2e-6, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_pieces_and_single_sequences_have_the_numbers_of_the_whole(name):
    x, dt, mask = random_input()
    cell = build(name)
    state = start = random_state(cell, B)
    with torch.no_grad():
        whole, end = run(cell, x, start, dt, mask)
        parts = []
        for piece in (slice(0, 2), slice(2, 3), slice(3, S)):
            output, state = run(cell, x[piece], state, dt[piece], mask[piece])
            parts.append(output)
        close(torch.cat(parts), whole)
        close_state(state, end)
        one = slice(1, 2)
        alone, last = run(cell, x[:, one], cell.State(*(v[one] for v in start)), dt[:, one], mask[:, one])
    close(alone, whole[:, one])
    close_state(last, cell.State(*(v[one] for v in end)))


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


@pytest.mark.parametrize("name", [*CELLS, "plstm_authors", "gated_lstm_ur", "gated_gru_om", "rmc_um"])
@pytest.mark.parametrize(("level", "dtype"), [(1e4, torch.float32), (-1e4, torch.float32), (1e4, torch.float64)])
def test_saturated_gates_stay_finite_forward_and_backward(name, level, dtype):
    cell = build(name, dtype=dtype)
    for gate in (*cell.gates, None):  # each gate alone, then all together
        z = torch.zeros(B, sum(map(cell.height, cell.gates)), dtype=dtype)
        z[:, slice(None) if gate is None else cell.rows(gate)] = level
        for age in (0.0, 3.0, 1e6) if "age" in cell.State._fields else (0.5,):
            fill = {"age": age}
            state = [torch.full((B, cell.width(f)), fill.get(f, 0.5), dtype=dtype) for f in cell.State._fields]
            state = [v.requires_grad_() for v in state]
            dt = random_input()[1][2].to(dtype).unsqueeze(-1).requires_grad_()
            pre = z.clone().requires_grad_()
            arguments = (torch.zeros_like(pre), pre) if cell.recurrent else (pre, None)
            if name in RMCS:  # it reads gx alone
                arguments = pre, torch.zeros_like(pre)
            new = cell.step(*arguments, cell.State(*state), dt)
            wanted = [pre, dt, *state, *(v for k, v in cell.named_parameters() if k == "power")]
            gradients = torch.autograd.grad(sum(v.square().sum() for v in new), wanted, allow_unused=True)
            for value in (*new, *(g for g in gradients if g is not None)):
                assert torch.isfinite(value).all(), (gate, age)


@pytest.mark.parametrize("name", CELLS)
def test_autocast_keeps_the_state_in_float32(name):
    cell = build(name, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output, state = run(cell, random_input()[0].float())
    assert {v.dtype for v in (output, *state)} == {torch.float32}


@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "mingru"])
def test_long_memories_survive_autocast(name):
    """What is left after 1,000 empty steps. In bfloat16 the gate that keeps .998 would be 1 and forget nothing."""
    cell = CELLS[name][0](I, H)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        gate, bias = ("forget", 6.0) if "forget" in cell.gates else ("reset", -6.0)
        cell.set_bias(gate, torch.full((H,), bias))
    x = torch.zeros(1000, 1, I)
    start = cell.State(*(torch.ones(1, H) for _ in cell.State._fields))
    with torch.no_grad():
        expected = eager.run(cell, x, cell.weights(), start)[1]
        with torch.autocast("cpu", torch.bfloat16):
            found = eager.run(cell, x, cell.weights(), start)[1]
    for field, ours, exact in zip(cell.State._fields, found, expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-3, atol=1e-6, msg=field)
    assert 0.0 < float(expected[-2 if "age" in cell.State._fields else -1][0, 0]) < 0.5


# Cells whose state of rest is another one have tests of their own; CfC has no time scales.
FORGETTING = [name for name, (kind, _) in ALL.items() if "forget" in kind.Act._fields]
ELSEWHERE = ("indrnn", "phased", "cornn", "cfc", "slstm_exp", "grud_")
FORGETTING = [name for name in FORGETTING if not name.startswith(ELSEWHERE)]


@pytest.mark.parametrize("name", FORGETTING)
def test_timescales_equal_a_simulated_decay(name):
    """-n / ln(what is left of a cell after n steps) at zero input and state, once age and log_n have come to rest."""
    kind, arguments = ALL[name]
    torch.manual_seed(5)
    cell = kind(I, 8 if name == "goru_fft" else H, **arguments).double()
    _, _, bias_ih, bias_hh = cell.weights()
    zero = torch.zeros_like(bias_ih)
    state = cell.State(*(torch.zeros(cell.width(k), dtype=torch.float64) for k in cell.State._fields))
    left, n, slow = torch.ones(cell.hidden_size, dtype=torch.float64), 20, {"age", "log_n"} & set(cell.State._fields)
    settle = 300 if slow else 0
    with torch.no_grad():
        for t in range(settle + n):
            gates = cell.act(*shares(cell, bias_ih, zero if bias_hh is None else bias_hh), state)
            state = state._replace(**{field: getattr(gates, field) for field in slow})
            if t >= settle:
                left = left * gates.forget
        assert cell.timescales().shape == (cell.hidden_size,)
        close(cell.timescales(), n / left.log().abs(), 1e-9)


# The steps of a Phased LSTM, a GORU and some others have more than gates in them.
FILES = ("lstm", "ur", "plstm", "gru", "pgru", "janet", "elstm", "leaky", "mingru", "minlstm", "plscan", "gated")
PLAIN = [name for name, (kind, _) in ALL.items() if kind.__module__.rpartition(".")[2] in FILES]


@pytest.mark.parametrize("name", PLAIN)
def test_act_names_the_gates_in_order_and_step_uses_them(name):
    cell = build(name)
    state, generator = random_state(cell, B), torch.Generator().manual_seed(3)
    gx, gh = torch.randn(2, B, sum(map(cell.height, cell.gates)), dtype=torch.float64, generator=generator)
    arguments = *shares(cell, gx, gh), state
    gates, new = cell.act(*arguments), cell.step(*arguments)
    pre = cell.by_gate(gx + gh if cell.recurrent else gx)
    read = {cells.GRUCell: "reset", cells.GatedGRUCell: "reset", cells.PGRUCell: "read"}.get(type(cell))
    if read:  # the gate comes after the recurrent product
        pre["cell"] = cell.by_gate(gx)["cell"] + getattr(gates, read) * cell.by_gate(gh)["cell"]
    linear = isinstance(cell, cells.MinGRUCell | cells.MinLSTMCell)
    effective = {"forget", "input"} if name.startswith(("gated", "ur", "refine", "minlstm")) else {"forget"}
    for gate in set(cell.gates) & set(gates._fields) - effective:
        expected = pre[gate].sigmoid() if gate != "cell" else pre[gate] if linear else pre[gate].tanh()
        close(getattr(gates, gate), expected)
    write = getattr(gates, "input", 1.0 - gates.forget)
    if "c" in state._fields:
        close(new.c, gates.forget * state.c + write * gates.cell)
        close(new.h, gates.output * new.c.tanh())
    else:
        close(new.h, gates.forget * state.h + write * gates.cell)
    assert cell.State._fields[0] == "h"


@pytest.mark.parametrize("name", ["elstm", "leaky", "mingru", "minlstm"])
def test_two_short_steps_are_a_long_one_and_short_ones_keep_their_digits(name):
    """Without recurrent weights time can be divided at will. At dt = 1e-6, 1 - exp(...) would be off by percents."""
    torch.manual_seed(0)
    cell = ALL[name][0](I, H).double()
    with torch.no_grad():
        if cell.recurrent:
            cell.weight_hh.zero_()
        one, start = random_input()[0][:1], random_state(cell, B)
        _, long = run(cell, one, start, torch.full((1, B), 3.0, dtype=torch.float64))
        steps = torch.tensor([0.5, 0.0, 2.5], dtype=torch.float64).unsqueeze(1).expand(3, B)
        close_state(run(cell, one.expand(3, -1, -1), start, steps)[1], long)
    gates = torch.zeros(B, len(cell.weight_ih))
    rate = 1 / cell.timescales().expand(B, H) if name == "leaky" else torch.full((B, H), 0.5).double().log().neg()
    cell.float()
    written = cell.act(*shares(cell, gates, gates), cell.initial_state(B), torch.full((B, 1), 1e-6)).input
    torch.testing.assert_close(written.double(), 1e-6 * rate, rtol=2e-6, atol=0)


@pytest.mark.parametrize("name", ["lstm_frozen", "mts", "ur_frozen", "both"])
@pytest.mark.parametrize("decay", [torch.optim.SGD, torch.optim.AdamW])
def test_frozen_rows_do_not_move(name, decay):
    """Also those of the uniform initializer, whose bias is a vector of its own."""
    kind, arguments = ALL.get(name, (LSTMCell, {"forget_init": "uniform", "frozen": ("input", "forget")}))
    torch.manual_seed(6)
    cell = kind(I, H, **arguments)
    optimizer = decay(cell.parameters(), lr=0.2, weight_decay=0.1)
    start = [cell.bias_total(gate).detach().clone() for gate in cell.gates]
    for _ in range(5):
        optimizer.zero_grad()
        (run(cell, random_input()[0].float())[0] - 1.0).square().mean().backward()
        optimizer.step()
    for gate, before in zip(cell.gates, start, strict=True):
        change = (cell.bias_total(gate) - before).abs()
        assert (change == 0).all() if gate in cell.frozen else (change > 0).all(), gate


@pytest.mark.parametrize("size", [0, -1, 2.5, "4", True, None])
def test_sizes_are_whole_numbers(size):
    for kind, _ in CELLS.values():
        with pytest.raises(ValueError, match="input_size"):
            kind(size, 3)
        with pytest.raises(ValueError, match="hidden_size"):
            kind(3, size)
