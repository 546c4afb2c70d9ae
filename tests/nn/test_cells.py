"""Cells against their papers: NumPy twins, printed numbers, closed forms, and what every cell must keep."""

import copy
import math

import numpy as np
import pytest
import reference
import torch
from torch import nn

import timescales
from timescales.nn.cells import (
    ExpRNNCell,
    GatedGRUCell,
    GatedLSTMCell,
    GRUCell,
    JANETCell,
    LSTMCell,
    PGRUCell,
    PLSTMCell,
    URLSTMCell,
    Weights,
)
from timescales.nn.engine import eager
from timescales.tasks import Spec
from timescales.training.model import SequenceModel

S, B, I, H = 7, 3, 4, 5  # noqa: E741

CELLS = {
    "lstm": (LSTMCell, {}),
    "lstm_bias_1": (LSTMCell, {"forget_init": 1.0}),
    "lstm_frozen": (LSTMCell, {"forget_init": 2.0, "frozen": ("forget", "output")}),
    "lstm_uniform": (LSTMCell, {"forget_init": "uniform"}),
    "chrono": (LSTMCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "mts": (LSTMCell, {"forget_init": {"law": "inverse_gamma"}, "frozen": ("input", "forget")}),
    "ur": (URLSTMCell, {}),
    "refine_only": (URLSTMCell, {"forget_init": "default"}),
    "ur_chrono": (URLSTMCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "ur_frozen": (URLSTMCell, {"forget_init": 1.0, "frozen": ("forget", "refine")}),
    "plstm": (PLSTMCell, {}),
    "plstm_separate": (PLSTMCell, {"coupled": False}),
    "plstm_fixed_p": (PLSTMCell, {"power": 1.7}),
    "plstm_small_epsilon": (PLSTMCell, {"epsilon": 1e-5, "power_init": (0.1, 0.4)}),
    "plstm_authors": (PLSTMCell, {"epsilon_form": "authors"}),
    "plstm_authors_separate": (PLSTMCell, {"epsilon_form": "authors", "coupled": False}),
    "gru": (GRUCell, {}),
    "gru_chrono": (GRUCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "pgru": (PGRUCell, {}),
    "pgru_fixed_p": (PGRUCell, {"power": 0.3, "epsilon": 0.1}),
    "janet": (JANETCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "janet_tied": (JANETCell, {"beta": 0.0}),
    "exprnn": (ExpRNNCell, {}),
    "exprnn_henaff": (ExpRNNCell, {"skew_init": "henaff"}),
}
for gate in reference.GATES_OF_GU:
    CELLS[f"gated_lstm_{gate}"] = (GatedLSTMCell, {"gate": gate, "downsize": 1, "T_max": 30})
    CELLS[f"gated_gru_{gate}"] = (GatedGRUCell, {"gate": gate, "downsize": 1, "T_max": "unknown"})
CELLS["gated_gru_update"] = (GatedGRUCell, {"gate": "ur", "gru_form": "update"})
PLSTMS = [name for name in CELLS if name.startswith("plstm")]
TIMED = [*PLSTMS, "pgru", "pgru_fixed_p"]  # what knows dt
PAPER_PLSTMS = [name for name in PLSTMS if "authors" not in name]


def build(name, seed=0, shape=(I, H), dtype=torch.float64):
    """A cell with every parameter moved well away from its init (p̂ and the frozen gates' values included)."""
    kind, arguments = CELLS[name]
    torch.manual_seed(seed)
    cell = kind(*shape, **arguments).to(dtype)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter))
    return cell


def random_state(cell, *batch, seed=1):
    g = torch.Generator().manual_seed(seed)
    draw = {
        name: torch.randn(*batch, cell.hidden_size, generator=g, dtype=torch.float64) for name in cell.State._fields
    }
    if "age" in draw:
        draw["age"] = 5.0 * draw["age"].abs()
    return cell.State(**draw)


def random_input(seed=2, shape=(S, B), size=I, tiny_dt=True):
    """x, and dt between .05 and 4 with two steps far below any epsilon, and a mask."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, size, generator=g, dtype=torch.float64)
    dt = 0.05 + 3.95 * torch.rand(*shape, generator=g, dtype=torch.float64)
    if tiny_dt:
        dt[2, 0], dt[4, 1] = 0.0, 1e-7
    mask = torch.rand(*shape, generator=g) < 0.7
    return x, dt, mask


def run(cell, x, state=None, dt=None, mask=None):
    state = cell.initial_state(*x.shape[1:-1]) if state is None else state
    return eager.run(cell, x, cell.weights(), state, dt, mask)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def close_state(a, b, tolerance=1e-12):
    assert a._fields == b._fields
    for x, y in zip(a, b, strict=True):
        close(x, y, tolerance)


# --- equations ---------------------------------------------------------------------------------------------------


def by_gate(cell, initial=None):
    """Weights by gate in NumPy, read from the parameters by name; frozen gates have their biases from `initial`."""
    own = {k: v.detach().numpy() for k, v in cell.named_parameters()}
    biases = [name for name in ("bias", "bias_ih", "bias_hh") if name in own]
    split = {}
    for gate in cell.gates:
        rows = cell.rows(gate)
        frozen = gate in getattr(cell, "frozen", ())
        bias = initial[gate] if frozen else sum(own[name][rows] for name in biases)
        split[gate] = (own["weight_ih"][rows], own["weight_hh"][rows], bias)
    return split


def run_twin(name, cell, initial, x, state, dt, mask):
    if isinstance(cell, ExpRNNCell):
        A = np.zeros((H, H))
        A[np.tril_indices(H, -1)] = cell.skew.detach().numpy()
        bias, W_x = cell.bias.detach().numpy(), cell.weight_ih.detach().numpy()
        return reference.exprnn(W_x, A - A.T, bias, x.numpy(), state.h.numpy(), None if mask is None else mask.numpy())
    w = by_gate(cell, initial)
    x, mask = x.numpy(), None if mask is None else mask.numpy()
    state = [v.numpy() for v in state]
    own = {k: v.detach().numpy() for k, v in cell.named_parameters()}
    arguments = CELLS[name][1]
    if isinstance(cell, GatedLSTMCell | GatedGRUCell):
        b = None if cell.gate_bias is None else cell.gate_bias.detach().numpy()
        if arguments["gate"] in ("-", "r"):
            b = 1.0
        if isinstance(cell, GatedLSTMCell):
            return reference.gated_lstm(w, arguments["gate"], b, 1, x, *state, mask)
        return reference.gated_gru(w, arguments["gate"], b, 1, x, *state, mask, arguments.get("gru_form", "forget"))
    if isinstance(cell, GRUCell):
        apart = {
            gate: (W_x, W_h, *(own[key][cell.rows(gate)] for key in ("bias_ih", "bias_hh")))
            for gate, (W_x, W_h, _) in w.items()
        }
        return reference.gru(apart, x, *state, mask)
    if isinstance(cell, JANETCell):
        return reference.janet(w, arguments.get("beta", 1.0), x, *state, mask)
    if isinstance(cell, PGRUCell):
        h, age = state
        t = np.array([37.0, 5.5, 11.0])
        p, epsilon = arguments.get("power") or reference.sigmoid(own["power"]), arguments.get("epsilon", 1e-3)
        return reference.pgru(w, p, epsilon, x, h, t[:, None] - age, t, None if dt is None else dt.numpy(), mask)
    if isinstance(cell, URLSTMCell):
        return reference.ur_lstm(w, own.get("gate_bias", 0.0), x, *state, mask)
    if isinstance(cell, LSTMCell):
        if "gate_bias" in own:  # Gu et al.'s U- gate: added to forget, subtracted from input
            for gate, sign in (("forget", 1.0), ("input", -1.0)):
                w[gate] = (*w[gate][:2], w[gate][2] + sign * own["gate_bias"])
        return reference.lstm(w, x, *state, mask)
    p, epsilon = arguments.get("power") or reference.sigmoid(own["power"]), arguments.get("epsilon", 1e-3)
    coupled = arguments.get("coupled", True)
    h, c, age = state
    t = np.array([37.0, 5.5, 1000.0])  # any time will do: the age form must not know it
    if dt is None:
        form = arguments.get("epsilon_form", "paper")
        return reference.plstm_printed(w, p, epsilon, x, h, c, t[:, None] - age, t, mask, form, coupled)
    return reference.plstm_lag(w, p, epsilon, x, h, c, age, dt.numpy(), mask, coupled)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
@pytest.mark.parametrize("name", CELLS)
def test_equals_twin(name, timed, masked):
    if timed and "authors" in name:
        timed = False  # the authors' code has unit steps only: here they are given as dt = 1
        dt = torch.ones(S, B, dtype=torch.float64)
    x, times, mask = random_input()
    dt = times if timed else None if "authors" not in name else torch.ones(S, B, dtype=torch.float64)
    kind, arguments = CELLS[name]
    torch.manual_seed(0)
    fresh = kind(I, H, **arguments).double()
    initial = {gate: fresh.bias_total(gate).detach().double().numpy() for gate in fresh.gates}
    cell = build(name)
    state = random_state(cell, B)
    mask = mask if masked else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt, mask)
    expected, expected_final = run_twin(name, cell, initial, x, state, dt if timed else None, mask)
    close(output, torch.from_numpy(expected), 1e-10)
    for value, twin in zip(final, expected_final, strict=True):
        close(value, torch.from_numpy(twin), 1e-10)


@pytest.mark.parametrize("name", PAPER_PLSTMS)
def test_variable_time_equals_the_printed_equations_with_absolute_time(name):
    x, dt, mask = random_input(tiny_dt=False)
    cell, coupled = build(name), CELLS[name][1].get("coupled", True)
    state = random_state(cell, B)
    p = CELLS[name][1].get("power") or cell.power.sigmoid().detach().numpy()
    t = np.array([3.0, 50.0, 0.0])
    h, c, age = (v.numpy() for v in state)
    expected, (_, c_end, lag) = reference.plstm_printed_time(
        by_gate(cell), p, cell.epsilon, x.numpy(), h, c, t[:, None] - age, t, dt.numpy(), mask.numpy(), coupled
    )
    with torch.no_grad():
        output, final = run(cell, x, state, dt, mask)
    close(output, torch.from_numpy(expected), 1e-10)
    close(final.c, torch.from_numpy(c_end), 1e-10)
    close(final.age, torch.from_numpy(lag), 1e-10)


@pytest.mark.parametrize("name", PLSTMS)
def test_unit_steps_are_the_case_dt_1(name):
    x, _, mask = random_input()
    cell = build(name)
    with torch.no_grad():
        plain, state = run(cell, x, random_state(cell, B), None, mask)
        timed, timed_state = run(cell, x, random_state(cell, B), torch.ones(S, B, dtype=torch.float64), mask)
    close(plain, timed)
    close_state(state, timed_state)


@pytest.mark.parametrize("name", [name for name in CELLS if "exprnn" not in name])
def test_act_names_the_gates_in_order_and_step_uses_them(name):
    cell = build(name)
    state = random_state(cell, B)
    generator = torch.Generator().manual_seed(3)
    gx, gh = torch.randn(2, B, len(cell.weight_ih), dtype=torch.float64, generator=generator)
    gates, new = cell.act(gx, gh, state), cell.step(gx, gh, state)
    pre = cell.by_gate(gx + gh)
    read = {GRUCell: "reset", GatedGRUCell: "reset", PGRUCell: "read"}.get(type(cell))
    if read:  # the gate comes after the recurrent product
        pre["cell"] = cell.by_gate(gx)["cell"] + getattr(gates, read) * cell.by_gate(gh)["cell"]
    effective = {"forget", "input"} if isinstance(cell, GatedLSTMCell | GatedGRUCell) else {"forget"}
    for gate in set(cell.gates) & set(gates._fields) - effective:
        close(getattr(gates, gate), pre[gate].tanh() if gate == "cell" else pre[gate].sigmoid())
    write = getattr(gates, "input", 1.0 - gates.forget)
    if "c" in state._fields:
        close(new.c, gates.forget * state.c + write * gates.cell)
        close(new.h, gates.output * new.c.tanh())
    else:
        close(new.h, gates.forget * state.h + write * gates.cell)
    assert cell.State._fields[0] == "h"


# --- what every cell must keep -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CELLS)
def test_gradcheck(name):
    cell = build(name, shape=(2, 2))
    names = [k for k, _ in cell.named_parameters()]
    g = torch.Generator().manual_seed(4)
    x = torch.randn(3, 2, 2, generator=g, dtype=torch.float64)
    dt = 0.2 + torch.rand(3, 2, generator=g, dtype=torch.float64)
    mask = torch.tensor([[1, 0], [0, 1], [1, 1]])
    state = random_state(cell, 2)

    class Run(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, dt, *state):
            output, final = eager.run(self.cell, x, self.cell.weights(), self.cell.State(*state), dt, mask)
            return (output, *final)

    module, n = Run(), len(state)

    def function(x, dt, *rest):
        parameters = {f"cell.{k}": v for k, v in zip(names, rest[n:], strict=True)}
        return torch.func.functional_call(module, parameters, (x, dt, *rest[:n]))

    inputs = [x, dt, *state, *(v.detach() for v in cell.parameters())]
    assert torch.autograd.gradcheck(function, [v.clone().requires_grad_() for v in inputs])


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


@pytest.mark.parametrize("name", CELLS)
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


@pytest.mark.parametrize("name", CELLS)
def test_starts_at_zero_in_the_parameters_type(name):
    for dtype in (torch.float32, torch.float64):
        state = build(name, dtype=dtype).initial_state(2, 3)
        assert all(v.shape == (2, 3, H) and v.dtype == dtype and not v.any() for v in state)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("replicas", [2, B])  # as many replicas as sequences must not be mistaken for them
def test_stacked_replicas_equal_single_runs(name, replicas):
    cells = [build(name, seed) for seed in range(replicas)]
    x = torch.stack([random_input(r)[0] for r in range(replicas)], 1)
    dt = torch.stack([random_input(r)[1] for r in range(replicas)], 1)
    mask = torch.stack([random_input(r)[2] for r in range(replicas)], 1)
    states = [random_state(cell, B, seed=r) for r, cell in enumerate(cells)]
    stacked = copy.deepcopy(cells[0])
    for key, _ in list(stacked.named_parameters()):
        setattr(stacked, key, nn.Parameter(torch.stack([getattr(cell, key).detach() for cell in cells])))
    for key, value in list(stacked.named_buffers()):
        if value.is_floating_point():
            setattr(stacked, key, torch.stack([getattr(cell, key) for cell in cells]))
    state = stacked.State(*map(torch.stack, zip(*states, strict=True)))
    fields = zip(*(cell.weights() for cell in cells), strict=True)
    by_field = Weights(*(None if values[0] is None else torch.stack(values) for values in fields))
    with torch.no_grad():
        single = [run(c, x[:, r], states[r], dt[:, r], mask[:, r]) for r, c in enumerate(cells)]
        for weights in (by_field, stacked.weights()):
            output, end = eager.run(stacked, x, weights, state, dt, mask)
            assert output.shape == (S, replicas, B, H)
            for r, (expected, last) in enumerate(single):
                close(output[:, r], expected)
                close_state(stacked.State(*(v[r] for v in end)), last)
        output, _ = eager.run(stacked, x, by_field, stacked.initial_state(replicas, B))
        close(output[:, 1], run(cells[1], x[:, 1])[0])
        close(stacked.timescales(), torch.stack([cell.timescales() for cell in cells]))


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("level", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_saturated_gates_stay_finite_forward_and_backward(name, level, dtype):
    cell = build(name, dtype=dtype)
    x, dt, _ = random_input()
    x, dt = x.to(dtype), dt.to(dtype)
    for gate in (*cell.gates, None):  # each gate alone, then all together
        gh = torch.zeros(B, len(cell.weight_ih), dtype=dtype)
        gh[:, slice(None) if gate is None else cell.rows(gate)] = level
        for ages in (0.0, 3.0, 1e6):
            state = [torch.full((B, H), ages if f == "age" else 0.5, dtype=dtype) for f in cell.State._fields]
            state = [v.requires_grad_() for v in state]
            pre, step = gh.clone().requires_grad_(), dt[2].unsqueeze(-1).clone().requires_grad_()
            new = cell.step(torch.zeros_like(pre), pre, cell.State(*state), step)
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


@pytest.mark.parametrize("kind", [LSTMCell, PLSTMCell, PGRUCell, GRUCell])
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


@pytest.mark.parametrize("name", [name for name in CELLS if "exprnn" not in name])
def test_timescales_equal_a_simulated_decay(name):
    """-n / ln(what is left of a cell after n steps) at zero input and state, once the age has come to rest."""
    kind, arguments = CELLS[name]
    torch.manual_seed(5)
    cell = kind(I, H, **arguments).double()
    _, _, bias_ih, bias_hh = cell.weights()
    zero = torch.zeros_like(bias_ih)
    state, left = cell.initial_state(), torch.ones(H, dtype=torch.float64)
    n, settle = 20, 300
    with torch.no_grad():
        for t in range(settle + n):
            gates = cell.act(bias_ih, zero if bias_hh is None else bias_hh, state)
            if "age" in cell.State._fields:
                state = state._replace(age=gates.age)
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
    """The uniform law's bias is a vector of its own; a frozen forget and input gate must not move through it."""
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


# --- LSTM is torch's ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 3])
def test_same_seed_gives_torchs_init_and_outputs(layers):
    torch.manual_seed(7)
    theirs = nn.LSTM(I, H, layers)
    torch.manual_seed(7)
    ours = timescales.LSTM(I, H, layers)
    for k, cell in enumerate(ours.layers):
        for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            assert torch.equal(getattr(cell, key), getattr(theirs, f"{key}_l{k}"))
    x = random_input()[0]
    close(ours.double()(x)[0], theirs.double()(x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_from_torch_and_back(layers, batch_first):
    torch.manual_seed(8)
    theirs = nn.LSTM(I, H, layers, batch_first=batch_first, dropout=0.0).double()
    ours = timescales.LSTM.from_torch(theirs)
    back = ours.to_torch()
    x = random_input()[0].transpose(0, 1) if batch_first else random_input()[0]
    h, c = torch.randn(2, layers, B, H, dtype=torch.float64)
    state = [LSTMCell.State(h[k], c[k]) for k in range(layers)]
    expected, (h_end, c_end) = theirs(x, (h, c))
    output, end = ours(x, state)
    close(output, expected)
    close(torch.stack([s.h for s in end]), h_end)
    close(torch.stack([s.c for s in end]), c_end)
    close(back(x, (h, c))[0], expected)
    assert back.batch_first == batch_first
    assert back.num_layers == layers
    for a, b in zip(theirs.parameters(), back.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()


@pytest.mark.parametrize("name", ["lstm_uniform", "lstm_frozen", "chrono", "mts"])
def test_to_torch_carries_what_the_laws_did(name):
    torch.manual_seed(9)
    ours = timescales.LSTM(I, H, 2, **CELLS[name][1]).double()
    x = random_input()[0]
    close(ours.to_torch()(x)[0], ours(x)[0])


def test_dropped_weights_are_not_what_to_torch_gives():
    ours = timescales.LSTM(I, H)
    ours.layers[0].weight_drop = 0.5
    assert torch.equal(ours.to_torch().weight_hh_l0, ours.layers[0].weight_hh)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_what_is_frozen_stays_so_from_torch_and_back(name):
    theirs = getattr(nn, name)(I, H)
    theirs.weight_ih_l0.requires_grad_(False)
    ours = getattr(timescales, name).from_torch(theirs)
    assert [p.requires_grad for p in ours.parameters()] == [False, True, True, True]
    assert [p.requires_grad for p in ours.to_torch().parameters()] == [False, True, True, True]


def test_from_torch_takes_its_own_kind():
    with pytest.raises(ValueError, match=r"timescales\.LSTM takes a torch\.nn\.LSTM, not GRU"):
        timescales.LSTM.from_torch(nn.GRU(I, H))
    with pytest.raises(ValueError, match=r"timescales\.GRU takes a torch\.nn\.GRU, not LSTM"):
        timescales.GRU.from_torch(nn.LSTM(I, H))
    mine = type("Mine", (timescales.GRU,), {})  # one's own kind of GRU, under any name
    assert type(mine.from_torch(nn.GRU(I, H))) is mine


def test_from_torch_keeps_training_and_dropout():
    theirs = nn.LSTM(I, H, 2, dropout=0.5).double().eval()
    x = random_input()[0]
    ours = timescales.LSTM.from_torch(theirs)
    assert ours.dropout == 0.5
    close(ours(x)[0], theirs(x)[0])
    close(ours.to_torch()(x)[0], theirs(x)[0])


@pytest.mark.parametrize("arguments", [{"bidirectional": True}, {"proj_size": 2}, {"bias": False}])
def test_from_torch_refuses_what_has_no_counterpart(arguments):
    with pytest.raises(ValueError, match="biases"):
        timescales.LSTM.from_torch(nn.LSTM(I, H, **arguments))


@pytest.mark.parametrize("rnn", [timescales.URLSTM(I, H), timescales.LSTM(I, [H, H + 1], 2)], ids=["ur", "unequal"])
def test_to_torch_refuses_what_has_no_counterpart(rnn):
    with pytest.raises(ValueError, match=r"torch\.nn\.LSTM"):
        rnn.to_torch()


# --- closed forms and printed numbers ----------------------------------------------------------------------------


def plstm_gate(age, r, p, epsilon, dt=1.0, form="paper", dtype=torch.float64, **kwargs):
    """The activations of a pLSTM at a given reset gate; r = 0 and r = 1 are reached by saturation."""
    age, r = torch.as_tensor(age, dtype=dtype), torch.as_tensor(r, dtype=torch.float64)
    age, r = torch.broadcast_tensors(age, r)
    cell = PLSTMCell(1, r.numel(), power=p, epsilon=epsilon, epsilon_form=form, **kwargs).to(dtype)
    z = torch.logit(r).clamp(-1e4, 1e4).reshape(-1)
    gx = torch.cat([z] + [torch.zeros_like(z)] * (len(cell.gates) - 1)).to(dtype)
    state = cell.State(torch.zeros_like(z).to(dtype), torch.zeros_like(z).to(dtype), age.reshape(-1))
    return cell.act(gx, torch.zeros_like(gx), state, dt)


@pytest.mark.parametrize(
    ("age", "r", "p", "epsilon", "new_age", "f"),
    [
        (0, 0.5, 0.5, 1e-3, 0.5, 0.57792733),
        (0, 0, 0.3, 1e-3, 1, 0.81249599),
        (0, 1, 0.3, 1e-3, 0, 0.12589254),
        (199, 0, 0.3, 1e-3, 200, 0.99850635),
        (199, 0.01, 0.3, 1e-3, 198, 0.99849132),
        (9, 0.9, 0.2, 1e-3, 1, 0.87072460),
    ],
)
def test_unit_step_vectors(age, r, p, epsilon, new_age, f):
    gates = plstm_gate(age, r, p, epsilon)
    assert gates.age.item() == pytest.approx(new_age, abs=1e-12)
    assert gates.forget.item() == pytest.approx(f, abs=6e-9)  # eight printed digits
    assert gates.input.item() == pytest.approx(1 - f, abs=6e-9)


@pytest.mark.parametrize(("r", "p", "new_age", "f"), [(0.5, 0.5, 0.5005, 0.57811930), (1, 0.3, 0.001, 0.15494543)])
def test_authors_form_vectors(r, p, new_age, f):
    gates = plstm_gate(0, r, p, 1e-3, form="authors")
    assert gates.age.item() == pytest.approx(new_age, abs=1e-12)
    assert gates.forget.item() == pytest.approx(f, abs=6e-9)


def test_paper_and_authors_forms_differ_by_half_a_percent_at_most():
    r = torch.linspace(0.0, 1.0, 101, dtype=torch.float64)
    worst = 0.0
    for p in (0.1, 0.3, 0.5):
        for age in (0.0, 1.0, 10.0):
            inner = r[r <= 0.9]  # at r = 1 the floors eps^p and (2 eps/(1+eps))^p differ more: next test
            a, b = plstm_gate(age, inner, p, 1e-3), plstm_gate(age, inner, p, 1e-3, form="authors")
            worst = max(worst, (a.forget - b.forget).abs().max().item())
    assert 0.0 < worst < 0.005


@pytest.mark.parametrize(
    ("p", "floor", "authors", "small", "steepest"),
    [
        (0.01, ".933", ".940", ".891", "9.3"),
        (0.05, ".708", ".733", ".562", "35.4"),
        (0.1, ".501", ".537", ".316", "50.1"),
        (0.2, ".251", ".288", ".100", "50.2"),
        (0.3, ".126", ".155", ".0316", "37.7"),
        (0.5, ".0316", ".0447", ".0032", "15.8"),
        (0.7, ".0079", ".0129", ".0003", "5.6"),
        (0.9, ".0020", ".0037", ".00003", "1.8"),
        (1.0, ".001", ".002", ".00001", "1.0"),
    ],
)
def test_a_full_reset_leaves_a_floor(p, floor, authors, small, steepest):
    """A reset is not f = 0 but epsilon^p, (2 eps / (1 + eps))^p in the authors' form."""

    def printed(value, text):
        decimals = len(text.partition(".")[2])
        assert value == pytest.approx(float(text), abs=0.51 * 10.0**-decimals)

    printed(plstm_gate(7.0, 1.0, p, 1e-3).forget.item(), floor)
    printed(plstm_gate(7.0, 1.0, p, 1e-3, form="authors").forget.item(), authors)
    printed(plstm_gate(7.0, 1.0, p, 1e-5).forget.item(), small)
    # The steepest slope is at d = 0; r = 0 and dt = 1 bring the age from d - 1 to d.
    age = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(plstm_gate(age, 0.0, p, 1e-3).forget.sum(), age)
    assert slope.item() == pytest.approx(p * 1e-3 ** (p - 1) * (1 - 1e-3), rel=1e-9)
    printed(slope.item(), steepest)


@pytest.mark.parametrize(
    ("age", "dt", "r", "p", "epsilon", "new_age", "f"),
    [
        (0, 0.1, 0.5, 0.5, 1e-5, 0.05, 0.69007246),
        (0, 1, 0.5, 0.5, 1e-3, 0.5, 0.57792733),
        (3.7, 2.5, 0.2, 0.4, 1e-5, 4.96, 0.83171991),
        (50, 0.01, 0, 0.3, 1e-5, 50.01, 0.99994124),
        (50, 0.01, 1, 0.3, 1e-5, 0, 0.03162278),
    ],
)
def test_variable_time_vectors(age, dt, r, p, epsilon, new_age, f):
    gates = plstm_gate(age, r, p, epsilon, dt)
    assert gates.age.item() == pytest.approx(new_age, abs=1e-12)
    assert gates.forget.item() == pytest.approx(f, abs=6e-9)


@pytest.mark.parametrize("p", [0.2, 0.5, 1.5])
def test_variable_time_limits(p):
    for dt in (0.1, 1.0, 10.0):
        assert plstm_gate(50.0, 1.0, p, 1e-5, dt).forget.item() == pytest.approx((1e-5) ** p, rel=1e-12)
        free = ((20.0 + 1 + 1e-5) / (20.0 + dt + 1)) ** p
        assert plstm_gate(20.0, 0.0, p, 1e-5, dt).forget.item() == pytest.approx(free, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("form", ["paper", "authors"])
def test_forget_never_exceeds_1(form, dtype):
    r = torch.cat([torch.tensor([0.0, 1.0]), torch.logspace(-12, -0.001, 60)]).double()
    for epsilon in (1e-5, 1e-3, 0.5):
        for dt in (0.0, 1e-9, 1e-5, 1e-3, 0.4, 1.0, 100.0):
            for age in (0.0, 1.0, 1e4):
                gates = plstm_gate(age, r, 0.3, epsilon, torch.tensor(dt, dtype=dtype), form, dtype)
                assert (gates.forget <= 1.0).all()
                assert (gates.forget > 0.0).all()
                assert (gates.input >= 0.0).all()
                assert (gates.input < 1.0).all()
                assert (gates.age >= 0.0).all()
                close(
                    gates.forget + gates.input, torch.ones_like(gates.forget), 1e-6 if dtype == torch.float32 else 1e-12
                )


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5])
def test_slope_in_the_reset_preactivation_is_bounded_like_a_sigmoids(epsilon):
    """df/dz = -p f r (1 - eps) d / ((d + eps)(d + 1)): never above 1/4, although df/dd is large near d = 0."""
    for p in (0.05, 0.145, 0.5, 0.95):
        for age in (0.0, 1.0, 1e4):
            z = torch.linspace(-20, 20, 401, dtype=torch.float64, requires_grad=True)
            cell = PLSTMCell(1, 401, power=p, epsilon=epsilon).double()
            zero = torch.zeros(401, dtype=torch.float64)
            gx = torch.cat([z, zero, zero])
            f = cell.act(gx, torch.zeros_like(gx), cell.State(zero, zero, zero + age)).forget
            (slope,) = torch.autograd.grad(f.sum(), z)
            r, keep = torch.sigmoid(z).detach(), torch.sigmoid(-z).detach()
            d = keep * (age + 1)
            exact = -p * f.detach() * r * (1 - epsilon) * d / ((d + epsilon) * (d + 1))
            # 1 - r cancels as r -> 1: absolute error ~ ulp(1) / epsilon, 1e-11.
            torch.testing.assert_close(slope, exact, rtol=1e-7, atol=1e-10)
            assert slope.abs().max() <= 0.2501


def test_large_ages_keep_their_input_gate_in_float32():
    """i = 1 - f at age 1e4: log1p and expm1 leave 7e-8, a plain power 6e-4."""
    r = torch.tensor([0.0, 1e-4, 1e-3])
    narrow = plstm_gate(1e4, r, 0.2, 1e-3, dtype=torch.float32).input
    wide = plstm_gate(1e4, r, 0.2, 1e-3).input
    assert ((narrow.double() - wide) / wide)[0].abs() < 3e-7
    # A reset gate in float32 rounds 1 - r, relative 6e-8, and the age with it.
    assert ((narrow.double() - wide) / wide).abs().max() < 1e-6


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
def test_free_decay_after_a_reset_is_a_power_of_time(p):
    """r = 0, zero input: the product of n forget gates is (n + 1)^-p as epsilon -> 0."""
    n = 200

    def product(epsilon):
        age, left = torch.zeros(1, dtype=torch.float64), 1.0
        for _ in range(n):
            gates = plstm_gate(age, 0.0, p, epsilon)
            age, left = gates.age, left * gates.forget.item()
        return left

    assert product(1e-12) == pytest.approx((n + 1.0) ** -p, rel=1e-10)
    if p == 0.3:
        assert product(1e-12) == pytest.approx(0.20372, abs=5.1e-6)
        assert product(1e-3) == pytest.approx(0.20408, abs=5.1e-6)


def test_a_whole_plstm_decays_as_a_power_of_time():
    """Through the engine: no reset, no input, output gate open."""
    cell = PLSTMCell(1, 1, power=0.4, epsilon=1e-12, coupled=False).double()
    with torch.no_grad():
        cell.weight_ih.zero_()
        cell.weight_hh.zero_()
        cell.bias.copy_(torch.tensor([-1e4, -1e4, 0.0, 1e4]))
        one = torch.ones(1, 1, dtype=torch.float64)
        output, state = run(cell, torch.zeros(50, 1, 1, dtype=torch.float64), cell.State(0 * one, one, 0 * one))
    expected = torch.arange(2.0, 52.0, dtype=torch.float64) ** -0.4
    close(output.flatten(), expected.tanh(), 1e-10)
    assert state.age.item() == 50.0


def test_a_constant_forget_gate_decays_exponentially():
    """LSTM with f = .97, no input: .97^200 = .0023, the curve of Chien et al.'s Fig. 1."""
    cell = LSTMCell(1, 1).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.bias_ih.copy_(torch.tensor([-1e4, math.log(0.97 / 0.03), 0.0, 1e4], dtype=torch.float64))
        one = torch.ones(1, 1, dtype=torch.float64)
        output, state = run(cell, torch.zeros(200, 1, 1, dtype=torch.float64), cell.State(0 * one, one))
    close(output.flatten(), (0.97 ** torch.arange(1.0, 201.0, dtype=torch.float64)).tanh(), 1e-10)
    assert state.c.item() == pytest.approx(0.0023, abs=5e-5)
    assert cell.timescales().item() == pytest.approx(-1 / math.log(0.97), rel=1e-12)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_at_its_init_the_resting_gate_forgets_2_to_the_minus_p(p):
    cell = PLSTMCell(3, 4, power=p, epsilon=1e-12).double()
    with torch.no_grad():
        cell.bias.zero_()  # r = 1/2, age at rest 1
    close(torch.exp(-1.0 / cell.timescales()), torch.full((4,), 2.0**-p, dtype=torch.float64), 1e-10)


@pytest.mark.parametrize(
    ("f", "r", "g"), [(0.5, 0.5, 0.5), (0.9, 0.1, 0.828), (0.9, 0.9, 0.972), (0.99, 1, 0.9999), (0.99, 0, 0.9801)]
)
def test_refine_gate_vectors(f, r, g):
    cell = URLSTMCell(1, 1, forget_init="default").double()
    z = torch.tensor([f, r, 0.5, 0.5], dtype=torch.float64).logit().clamp(-1e4, 1e4).requires_grad_()
    gates = cell.act(z, torch.zeros_like(z), cell.initial_state())
    assert gates.forget.item() == pytest.approx(g, abs=1e-12)
    assert f**2 - 1e-12 <= gates.forget.item() <= 1 - (1 - f) ** 2 + 1e-12
    (slope,) = torch.autograd.grad(gates.forget.sum(), z)
    assert slope[0].item() == pytest.approx(2 * f * (1 - f) * (r + (1 - 2 * r) * f), abs=1e-12)
    assert slope[1].item() == pytest.approx(2 * f * (1 - f) * r * (1 - r), abs=1e-12)


def test_ur_with_zero_maps_starts_at_the_cubic():
    """r = 1 - f, so g = 2 f - 3 f^2 + 2 f^3."""
    torch.manual_seed(10)
    cell = URLSTMCell(2, 64).double()
    with torch.no_grad():
        for key, parameter in cell.named_parameters():
            if key != "gate_bias":
                parameter.zero_()
    f = cell.gate_bias.detach().sigmoid()
    close(torch.exp(-1.0 / cell.timescales()), 2 * f - 3 * f**2 + 2 * f**3)


@pytest.mark.parametrize(
    ("kind", "size", "hidden", "outputs", "count"),
    [
        ("LSTM", 10, 128, 10, 72_970),
        ("PLSTM", 10, 128, 10, 54_794),
        ("LSTM", 1, 256, 10, 267_786),
        ("PLSTM", 1, 256, 10, 200_970),
        ("LSTM", 1, 512, 10, 1_059_850),
        ("PLSTM", 1, 512, 10, 795_146),
        ("LSTM", 1, 110, 2, 49_942),
        ("PLSTM", 1, 110, 2, 37_292),
        ("LSTM", 2, 110, 2, 50_382),
        ("PLSTM", 2, 110, 2, 37_622),
        ("URLSTM", 1, 110, 2, 4 * 110 * (1 + 110 + 1) + 110 + 222),  # one bias and the uniform vector
    ],
)
def test_parameter_counts(kind, size, hidden, outputs, count):
    spec = Spec("one_hot" if size == 10 else "real", size, outputs, "all" if size == 10 else "last", horizon=100)
    model = SequenceModel(getattr(timescales, kind)(size, hidden), spec)
    assert sum(p.numel() for p in model.parameters()) == count


def test_parameter_counts_of_the_character_models():
    """PTB: 20-d embedding and decoder of 50 symbols; Text8: two layers on one-hot letters."""

    def count(module):
        return sum(p.numel() for p in module.parameters())

    assert count(timescales.LSTM(20, 716)) + 716 * 50 + 50 + 50 * 20 == 2_150_482
    assert count(timescales.PLSTM(20, 828)) + 828 * 50 + 50 + 50 * 20 == 2_152_194
    assert count(timescales.LSTM(27, 512, 2)) + 512 * 27 + 27 == 3_223_067
    assert count(timescales.PLSTM(27, 592, 2)) + 592 * 27 + 27 == 3_222_875


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        ({"epsilon": 0}, "between 0 and 1"),
        ({"epsilon": 1.0}, "between 0 and 1"),
        ({"epsilon": -1e-3}, "between 0 and 1"),
        ({"epsilon": math.nan}, "between 0 and 1"),
        ({"epsilon": "small"}, "between 0 and 1"),
        ({"epsilon_form": "code"}, "paper or authors"),
        ({"power": 0.0}, "learned or a number above 0"),
        ({"power": -0.2}, "learned or a number above 0"),
        ({"power": math.inf}, "learned or a number above 0"),
        ({"power": math.nan}, "learned or a number above 0"),
        ({"power": True}, "learned or a number above 0"),
        ({"power": "fixed"}, "learned or a number above 0"),
        ({"power_init": (0.5, 0.1)}, "low <= high"),
        ({"power_init": (0.0, 1.5)}, "low <= high"),
        ({"power_init": (0.1, 0.2, 0.3)}, "two numbers"),
        ({"power_init": 0.3}, "two numbers"),
    ],
)
def test_plstm_says_what_its_arguments_must_be(arguments, mend):
    with pytest.raises(ValueError, match=mend):
        PLSTMCell(2, 3, **arguments)
