"""Cells against the reference implementations of their papers' equations in NumPy (tests/support/reference.py)."""

from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from cell_cases import (
    CELLS,
    PAPER_PLSTMS,
    PLSTMS,
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

from timescales.nn import registry
from timescales.nn.cells import (
    ELSTMCell,
    ExpRNNCell,
    GatedGRUCell,
    GatedLSTMCell,
    GRUCell,
    JANETCell,
    LeakyRNNCell,
    LRUCell,
    LSTMCell,
    MinGRUCell,
    MinLSTMCell,
    PGRUCell,
    PLScanCell,
    RMCCell,
    URLSTMCell,
)
from timescales.nn.cells.gated import GatedCell


def by_gate(cell, initial=None):
    """Weights by gate in NumPy, read from the parameters by name; frozen gates have their biases from `initial`."""
    own = {k: v.detach().numpy() for k, v in cell.named_parameters()}
    biases = [name for name in ("bias", "bias_ih", "bias_hh") if name in own]
    split = {}
    for gate in cell.gates:
        rows = cell.rows(gate)
        frozen = gate in getattr(cell, "frozen", ())
        bias = initial[gate] if frozen else sum(own[name][rows] for name in biases)
        split[gate] = (own["weight_ih"][rows], own["weight_hh"][rows] if cell.recurrent else None, bias)
    return split


def run_rmc(cell, arguments, x, state, mask):
    """The reference of the RMC; its gates' own bias is in their linear maps."""
    own = {k: v.detach().numpy() for k, v in cell.named_parameters()}
    blocks = [
        {key.removeprefix(f"blocks.{k}."): value for key, value in own.items() if key.startswith(f"blocks.{k}.")}
        for k in range(arguments.get("blocks", 1))
    ]
    N, heads, gate = arguments.get("memories", 2), arguments.get("heads", 1), arguments.get("gate", "-")
    downsize = arguments.get("downsize", 1)
    heights = [
        1 if "gate_style" in arguments else H // N // downsize if "master" in name else H // N
        for name in cell.gates[1:]
    ]
    ends = np.cumsum(heights)
    w = {
        name: tuple(
            sum(own[part][end - height : end] for part in parts)
            for parts in (["weight_gates"], ["weight_memory"], ["bias_gates", "bias_memory"])
        )
        for name, height, end in zip(cell.gates[1:], heights, ends, strict=True)
    }
    b = own.get("gate_bias", arguments.get("forget_bias", 1.0))
    key_size = arguments.get("key_size", H // N // heads)
    return reference.rmc(own, w, gate, b, downsize, N, heads, key_size, blocks, x, state, mask)


def run_reference(name, cell, initial, x, state, dt, mask):
    if isinstance(cell, RMCCell):
        return run_rmc(cell, CELLS[name][1], x.numpy(), state.h.numpy(), None if mask is None else mask.numpy())
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
    if isinstance(cell, ELSTMCell):
        return reference.elstm(w, x, *state, None if dt is None else dt.numpy(), mask, arguments.get("coupled", True))
    if isinstance(cell, LeakyRNNCell):
        return reference.leaky(w, np.exp(own["log_tau"]), x, *state, None if dt is None else dt.numpy(), mask)
    if isinstance(cell, MinGRUCell | MinLSTMCell):
        function = reference.mingru if isinstance(cell, MinGRUCell) else reference.minlstm
        return function(w, x, *state, None if dt is None else dt.numpy(), mask)
    if isinstance(cell, LRUCell):
        own = [own[name] for name in ("nu_log", "theta_log", "gamma_log")]
        return reference.lru(w, *own, x, *state, None if dt is None else dt.numpy(), mask)
    if isinstance(cell, PLScanCell):
        p, epsilon = arguments.get("power") or reference.sigmoid(own["power"]), arguments.get("epsilon", 1e-3)
        return reference.plscan(w, p, epsilon, x, *state, None if dt is None else dt.numpy(), mask)
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


# Models whose reference stands in a test file of their own, tests/nn/test_<name>.py.
APART = [model.name for model in registry.MODELS if (Path(__file__).parent / f"test_{model.name}.py").is_file()]
APART = [name for name in APART if name != "rmc"]


def test_every_model_has_a_reference():
    compared = {CELLS[name][0].__name__ for name in CELLS if name not in APART}
    missing = [model.name for model in registry.MODELS if model.name not in APART and not {*model.cells} <= compared]
    assert missing == []
    for name in APART:
        assert "def reference(" in (Path(__file__).parent / f"test_{name}.py").read_text()


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
@pytest.mark.parametrize("name", [name for name in CELLS if name not in APART])
def test_equals_the_reference(name, timed, masked):
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
    expected, expected_final = run_reference(name, cell, initial, x, state, dt if timed else None, mask)
    close(output, torch.from_numpy(expected), 1e-10)
    for value, reference_value in zip(final, expected_final, strict=True):
        close(value, torch.from_numpy(reference_value), 1e-10)


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


# The steps of a Phased LSTM and a GORU have more than gates in them: their own tests compare them.
GATED = [name for name in CELLS if {"forget", "cell"} <= set(CELLS[name][0].Act._fields)]


@pytest.mark.parametrize("name", [name for name in GATED if name not in APART and name not in ("phased", "goru")])
def test_act_names_the_gates_in_order_and_step_uses_them(name):
    cell = build(name)
    state = random_state(cell, B)
    generator = torch.Generator().manual_seed(3)
    gx, gh = torch.randn(2, B, sum(map(cell.height, cell.gates)), dtype=torch.float64, generator=generator)
    arguments = *shares(cell, gx, gh), state
    gates, new = cell.act(*arguments), cell.step(*arguments)
    pre = cell.by_gate(gx + gh if cell.recurrent else gx)
    read = {GRUCell: "reset", GatedGRUCell: "reset", PGRUCell: "read"}.get(type(cell))
    if read:  # the gate comes after the recurrent product
        pre["cell"] = cell.by_gate(gx)["cell"] + getattr(gates, read) * cell.by_gate(gh)["cell"]
    effective = {"forget", "input"} if isinstance(cell, GatedCell | MinLSTMCell) else {"forget"}
    for gate in set(cell.gates) & set(gates._fields) - effective:
        if gate != "cell":
            expected = pre[gate].sigmoid()
        else:
            expected = pre[gate] if isinstance(cell, MinGRUCell | MinLSTMCell) else pre[gate].tanh()
        close(getattr(gates, gate), expected)
    write = getattr(gates, "input", 1.0 - gates.forget)
    if "c" in state._fields:
        close(new.c, gates.forget * state.c + write * gates.cell)
        close(new.h, gates.output * new.c.tanh())
    else:
        close(new.h, gates.forget * state.h + write * gates.cell)
    assert cell.State._fields[0] == "h"
