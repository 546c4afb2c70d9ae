"""The relational memory core: counts of parameters, where it starts, its symmetry, its gates, errors, engines.

tests/nn/test_equations.py compares it with a reference implementation, and test_cells.py has what holds for all cells.
"""

import math

import pytest
import torch
from configs import config
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.config import identity
from timescales.errors import ConfigError
from timescales.nn import engine as engines
from timescales.nn.cells import RMCCell
from timescales.nn.engine import eager
from timescales.training import build

B, I = 3, 4  # noqa: E741


def parameters(module):
    return sum(p.numel() for p in module.parameters())


# Counted on another implementation of Santoro et al.'s code, with inputs of size 45 or 27 and memories of size S.
@pytest.mark.parametrize(
    ("inputs", "size", "style", "expected"),
    [
        (45, 512, "unit", 2_392_576),
        (45, 512, "memory", 1_344_004),
        (27, 512, "unit", 2_383_360),
        (27, 64, "unit", 39_872),
        (27, 32, "unit", 10_720),
    ],
)
@pytest.mark.parametrize(("memories", "heads"), [(2, 2), (2, 4), (4, 2), (4, 4)])
def test_parameters(inputs, size, style, expected, memories, heads):
    """They depend on the size of a memory alone."""
    rnn = timescales.RMC(inputs, memories * size, memories=memories, heads=heads, gate_style=style)
    assert parameters(rnn) == expected


def test_parameters_of_the_other_gates():
    """c, u and ur have a vector b more; om has two gates more, with one row for every 32 units, and no vector."""
    plain = parameters(timescales.RMC(45, 1024))
    for gate in ("c", "u", "ur"):
        assert parameters(timescales.RMC(45, 1024, gate=gate)) == plain + 512
    rows = 2 * 512 // 32
    assert parameters(timescales.RMC(45, 1024, gate="om", downsize=32)) == plain + rows * (2 * 512 + 2)
    assert parameters(timescales.RMC(45, 1024, gate="um", downsize=32)) == plain + rows * (2 * 512 + 2) + 16


@pytest.mark.parametrize(
    ("memories", "hidden", "rows"),
    [(2, 6, [[1, 0, 0], [0, 1, 0]]), (3, 6, [[1, 0], [0, 1], [0, 0]]), (1, 2, [[1, 0]])],
)
def test_it_starts_as_rows_of_the_identity(memories, hidden, rows):
    for dtype in (torch.float32, torch.float64):
        state = RMCCell(I, hidden, memories=memories).to(dtype).initial_state(2, B)
        assert state.h.dtype == dtype
        assert torch.equal(state.h, torch.tensor(rows, dtype=dtype).flatten().expand(2, B, hidden))
    rnn = timescales.RMC(I, hidden, memories=memories)
    x = torch.randn(5, B, I)
    assert torch.equal(rnn(x)[0], rnn(x, rnn.layers[0].initial_state(B).h.unsqueeze(0))[0])


def test_memories_have_no_order():
    """Memories in another order at the start are those of the end in this order: nothing tells them apart but M_0."""
    cell = RMCCell(I, 12, memories=4, heads=3, blocks=2, gate="ur").double()
    x, M = torch.randn(5, B, I, dtype=torch.float64), torch.randn(B, 4, 3, dtype=torch.float64)
    order = [2, 0, 3, 1]
    _, end = eager.run(cell, x, cell.weights(), cell.State(M.flatten(-2)))
    _, other = eager.run(cell, x, cell.weights(), cell.State(M[:, order].flatten(-2)))
    torch.testing.assert_close(cell.by_memory(other.h), cell.by_memory(end.h)[:, order])
    assert (end.h - other.h).abs().max() > 0.01


def test_the_input_is_attended_to():
    """Without the gates' share of the input, it still reaches every memory, through attention alone."""
    cell = RMCCell(I, 12, memories=4).double()
    with torch.no_grad():
        cell.weight_gates.zero_()
    x = torch.randn(1, B, I, dtype=torch.float64, requires_grad=True)
    output, _ = eager.run(cell, x, cell.weights(), cell.initial_state(B))
    for memory in cell.by_memory(output[0, 0]):
        (gradient,) = torch.autograd.grad(memory.square().sum(), x, retain_graph=True)
        assert gradient[0, 0].abs().min() > 0
        assert not gradient[0, 1:].any()


def test_init():
    """Normal with deviation 1/sqrt(fan-in), cut at two of them; biases 0, gains 1."""
    torch.manual_seed(0)
    cell = RMCCell(30, 120, memories=2, heads=2, key_size=7, blocks=2)
    cut = stats.truncnorm(-2, 2)
    for name, parameter in cell.named_parameters():
        if parameter.dim() == 2:
            standard = parameter.detach().double().flatten() * math.sqrt(parameter.shape[1])
            same_distribution(standard, cut)
            assert standard.abs().max() <= 2.0
        else:
            assert (parameter == (0.0 if "bias" in name else 1.0)).all(), name


@pytest.mark.parametrize(
    ("gate", "rows", "low", "high"),
    [("u", 64, 1 / 64, 63 / 64), ("ur", 64, 1 / 64, 63 / 64), ("um", 4, 1 / 4, 3 / 4), ("c", 64, 1 / 2, 63 / 64)],
)
def test_b_is_shared_by_the_memories(gate, rows, low, high):
    """One value for each row of the main gate of one memory; c: ln U[1, 64 - 1], so sigmoid(b) is T / (T + 1)."""
    torch.manual_seed(0)
    drawn = [RMCCell(I, 256, memories=4, gate=gate).gate_bias for _ in range(200)]
    assert drawn[0].shape == (rows,)
    f = torch.cat(drawn).detach().sigmoid()
    assert low - 1e-6 <= f.min() < low + 0.01
    assert high - 0.01 < f.max() <= high + 1e-6
    cell = RMCCell(I, 256, memories=4, gate=gate)
    by_memory = cell.by_memory(cell.bias_total(cell.main))
    assert by_memory.shape == (4, rows)
    assert all(torch.equal(one, cell.gate_bias) for one in by_memory)
    assert torch.equal(cell.bias_total(cell.opposite), -cell.bias_total(cell.main))


@pytest.mark.parametrize(("style", "rows"), [("unit", 12), ("memory", 4)])
def test_timescales_at_init(style, rows):
    """f = sigmoid(1) at zero input: -1 / ln f = 3.19 steps."""
    cell = RMCCell(I, 12, memories=4, gate_style=style)
    assert cell.height("forget") == rows
    torch.testing.assert_close(cell.timescales(), torch.full((12,), 1 / math.log1p(math.exp(-1))))


@pytest.mark.parametrize(
    ("hidden", "arguments", "fix"),
    [
        (130, {"memories": 4}, "hidden_size 130 must be a multiple of memories 4: give 128 or 132"),
        (3, {"memories": 4}, "hidden_size 3 must be a multiple of memories 4: give 4"),
        (
            130,
            {"heads": 4},
            "hidden_size / memories = 65 must be a multiple of heads 4: give 128 or 136 as hidden_size",
        ),
        (
            128,
            {"memory_size": 512},
            "hidden_size is 128, but memories x memory_size is 2 x 512 = 1024: give that as hidden_size, or leave "
            "memory_size out",
        ),
        (
            24,
            {"gate": "om"},
            "hidden_size / memories = 12 must be a multiple of downsize 16: give downsize=1, or 32 as hidden_size",
        ),
        (24, {"gate_style": "memory", "gate": "ur"}, "gate_style=memory is for gate='-': give gate_style=unit with"),
        (24, {"gate_style": "vector"}, "gate_style must be unit or memory, not 'vector'"),
        (24, {"gate": "x"}, "gate must be one of -, c, o, u, r, om, um, or, ur; not 'x'"),
        *((24, {name: 0}, f"{name} must be a whole number") for name in ("memories", "heads", "blocks", "key_size")),
        (24, {"memories": 2.0}, "memories must be a whole number of at least 1, not 2.0"),
        (24, {"heads": True}, "heads must be a whole number of at least 1, not True"),
    ],
)
def test_sizes_that_do_not_fit(hidden, arguments, fix):
    with pytest.raises(ValueError, match="^" + fix.replace(".", r"\.")) as raised:
        timescales.RMC(I, hidden, **arguments)
    assert "\n" not in str(raised.value)


def test_sizes_that_do_not_fit_on_the_command_line():
    with pytest.raises(
        ConfigError, match=r"^model=rmc: hidden_size 130 must be a multiple of memories 4: give 128 or 132$"
    ):
        build.build(identity.resolved(config("model=rmc", "model.hidden_size=130", "model.memories=4")))
    settings = ["model.hidden_size=24", "model.memories=3", "model.memory_size=8", "model.heads=2", "task.T=3"]
    network, *_ = build.build(identity.resolved(config("model=rmc", *settings)))
    assert (network.rnn.hidden_size, network.rnn.layers[0].units) == (24, 8)


@pytest.mark.parametrize("name", ["fused", "cudnn"])
def test_engines_with_kernels_refuse(name, recwarn):
    rnn = timescales.RMC(I, 8)
    assert engines.pick("auto", rnn.layers[0], torch.zeros(2, B, I)) is eager.run
    rnn(torch.zeros(2, B, I))
    assert not recwarn.list
    reason = "runs only the plain LSTM and GRU, not RMCCell" if name == "cudnn" else "RMCCell has no kernel"
    with pytest.raises(ValueError, match=f"the {name} engine cannot run here: .*{reason}.*; use engine=") as raised:
        engines.pick(name, rnn.layers[0], torch.zeros(2, B, I))
    assert "\n" not in str(raised.value)


def test_recurrent_weights_that_are_not_there_cannot_be_dropped():
    cell = RMCCell(3, 8)
    cell.weight_drop = 0.5
    with pytest.raises(ValueError, match="RMCCell has no recurrent weights to drop: set its weight_drop to 0"):
        timescales.RNN([cell])(torch.randn(4, 2, 3))
