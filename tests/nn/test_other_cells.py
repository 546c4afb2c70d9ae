"""What is special to the cells with other recurrent matrices, memories and heads, and to JANET, ELSTM and GRU."""

import copy
import math

import pytest
import torch
from cell_cases import B, H, I, build, close, random_input, random_state, run
from configs import config

import timescales
from timescales.config import identity
from timescales.errors import ConfigError
from timescales.nn import engine as engines
from timescales.nn.cells import EURNNCell, ExpRNNCell, GORUCell, NRUCell, RMCCell, SLSTMCell, SRUCell, URNNCell
from timescales.nn.engine import eager
from timescales.training import build as builder


def count(module):
    return sum(p.numel() for p in module.parameters())


# --- GRUs and LSTMs ---------------------------------------------------------------------------------------------------


def test_with_a_forget_gate_of_one_an_slstm_is_a_mean():
    """So a unit keeps (t - 1) / t at step t: it forgets as a power."""
    cell = SLSTMCell(1, 1, forget="exp").double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.weight_ih[2] = 1.0
        x = torch.randn(50, 1, 1, dtype=torch.float64)
        output, state = run(cell, x)
    close(2.0 * output, x.tanh().cumsum(0) / torch.arange(1, 51).view(-1, 1, 1))
    close(state.log_n.exp().item(), 50.0)
    assert torch.isinf(cell.timescales()).all()


@pytest.mark.parametrize(("forget", "level"), [("sigmoid", 500.0), ("exp", 500.0), ("exp", -500.0)])
def test_nothing_overflows_in_an_slstm(forget, level):
    """Input gates of e^500, which no float holds, and forget gates of e^500, over 2,000 steps."""
    rnn = timescales.SLSTM(1, 2, forget=forget, engine="fused")
    with torch.no_grad():
        rnn.layers[0].set_bias("input", torch.tensor([level, -level]))
        rnn.layers[0].set_bias("forget", torch.full((2,), level))
    x = torch.randn(2000, 1, 1, requires_grad=True)
    output, state = rnn(x)
    output.sum().backward()
    assert all(value.isfinite().all() for value in (output, *rnn.split_state(state)[0], x.grad))
    assert output.abs().max() < 1.0


# --- orthogonal and unitary matrices ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        *(lambda n=n: URNNCell(3, n).double().weights().hh for n in (2, 4, 30, 64)),
        *(lambda n=n: ExpRNNCell(I, n).double().weights().hh for n in (1, 2, 7, 64)),
        lambda: EURNNCell(I, 6, capacity=5).double().matrix(),
        lambda: EURNNCell(I, 4, capacity=1).double().matrix(),
        lambda: EURNNCell(I, 16, style="fft").double().matrix(),
        lambda: GORUCell(I, 5, capacity=3).double().weights().hh[10:],
        lambda: GORUCell(I, 1).double().weights().hh[2:],
        lambda: GORUCell(I, 8, style="fft").double().weights().hh[16:],
    ],
)
def test_the_matrix_is_unitary(make):
    torch.manual_seed(1)
    W = make()
    close(W @ W.mH, torch.eye(len(W), dtype=W.dtype), 1e-11)


def test_exprnn_in_other_types():
    torch.manual_seed(0)
    x = torch.randn(6, B, I)
    plain = timescales.ExpRNN(I, H)
    half = copy.deepcopy(plain).bfloat16()
    torch.testing.assert_close(half(x.bfloat16())[0].float(), plain(x)[0], rtol=0.05, atol=0.05)
    assert timescales.ExpRNN(I, H, dtype=torch.float64).layers[0].weights().hh.dtype == torch.float64


def test_a_urnn_starts_from_its_learned_state_and_runs_in_half_precision():
    cell = build("urnn")
    x, start = random_input()[0], cell.start.detach().expand(B, H)
    close(run(cell, x)[0], run(cell, x, cell.State(start))[0])
    assert torch.autograd.grad(run(cell, x)[0].sum(), cell.start)[0].all()
    cell = cell.bfloat16()
    assert cell.weights().hh.dtype == torch.bfloat16
    assert run(cell, torch.randn(3, B, I).bfloat16())[0].isfinite().all()
    torch.manual_seed(3)
    assert torch.equal(URNNCell(I, H).permutation, cell.permutation)  # that of seeds trained together, too


# --- memories ---------------------------------------------------------------------------------------------------------


def test_a_memory_of_an_nru_that_nothing_changes_stays():
    """With heads of strength 0 the memory is what it was after 1,000 steps: it does not decay."""
    cell = NRUCell(I, H, memory_size=8, heads=2).double()
    with torch.no_grad():
        cell.weight_heads[:4].zero_()
        cell.bias_heads[:4].zero_()
        state = random_state(cell, B)
        _, final = run(cell, torch.randn(1000, B, I, dtype=torch.float64), state)
    assert torch.equal(final.memory, state.memory)
    assert cell.timescales().isinf().all()
    torch.manual_seed(0)
    with torch.no_grad():  # that of a new network stays small after the steps of a digit
        _, state = timescales.NRU(1, 16, memory_size=64)(torch.rand(784, 4, 1))
    assert 0.0 < state.memory.abs().max() < 100.0
    cell = NRUCell(I, H, memory_size=8, heads=2)
    for size in (0.0, 1e-15, 1e15):
        p = torch.full((1, 4), size, requires_grad=True)
        rows = cell._directions(p, torch.full((1, 4), size))
        rows.sum().backward()
        assert rows.isfinite().all()
        assert p.grad.isfinite().all()


def test_an_average_of_an_sru_decays_by_its_rate():
    """Without new statistics, what an average had is alpha^t of it after the time t."""
    cell = SRUCell(1, H, statistics=2, alphas=(0.5, 0.9)).double()
    with torch.no_grad():
        cell.bias.fill_(-100.0)  # no statistic is above 0
    start = cell.State(torch.zeros(1, H).double(), torch.ones(1, 4).double())
    _, final = run(cell, torch.zeros(6, 1, 1).double(), start, torch.full((6, 1), 0.5).double())
    close(final.averages[0], torch.tensor([0.5**3] * 2 + [0.9**3] * 2, dtype=torch.float64))
    close(cell.timescales(), torch.full((H,), -1 / math.log(0.9), dtype=torch.float64))
    assert not SRUCell(1, H, alphas=(0.0,)).timescales().any()
    cell = SRUCell(3, 80)
    assert (cell.statistics, cell.width("averages"), cell.weight_summary.shape) == (80, 400, (20, 400))


# Counted on another implementation of Santoro et al.'s code, with inputs of size 45 or 27 and memories of size S. They
# depend on the size of a memory alone.
@pytest.mark.parametrize(
    ("inputs", "size", "style", "memories", "heads", "expected"),
    [
        (45, 512, "unit", 2, 2, 2_392_576),
        (45, 512, "unit", 4, 4, 2_392_576),
        (45, 512, "memory", 2, 4, 1_344_004),
        (27, 512, "unit", 4, 2, 2_383_360),
        (27, 64, "unit", 2, 2, 39_872),
        (27, 32, "unit", 4, 4, 10_720),
    ],
)
def test_counts_of_an_rmc(inputs, size, style, memories, heads, expected):
    rnn = timescales.RMC(inputs, memories * size, memories=memories, heads=heads, gate_style=style)
    assert count(rnn) == expected


@pytest.mark.parametrize(
    ("memories", "hidden", "rows"), [(2, 6, [[1, 0, 0], [0, 1, 0]]), (3, 6, [[1, 0], [0, 1], [0, 0]]), (1, 2, [[1, 0]])]
)
def test_an_rmc_starts_as_rows_of_the_identity(memories, hidden, rows):
    state = RMCCell(I, hidden, memories=memories).double().initial_state(2, B)
    assert torch.equal(state.h, torch.tensor(rows, dtype=torch.float64).flatten().expand(2, B, hidden))
    rnn, x = timescales.RMC(I, hidden, memories=memories), torch.randn(5, B, I)
    assert torch.equal(rnn(x)[0], rnn(x, rnn.layers[0].initial_state(B).h.unsqueeze(0))[0])


@pytest.mark.parametrize(
    ("gate", "rows", "low", "high"), [("u", 64, 1 / 64, 63 / 64), ("um", 4, 1 / 4, 3 / 4), ("c", 64, 1 / 2, 63 / 64)]
)
def test_b_is_shared_by_the_memories_of_an_rmc(gate, rows, low, high):
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


def test_an_rmc_runs_on_the_eager_engine_alone(recwarn):
    rnn = timescales.RMC(I, 8)
    assert engines.pick("auto", rnn.layers[0], torch.zeros(2, B, I)) is eager.run
    rnn(torch.zeros(2, B, I))
    assert not recwarn.list
    for name, reason in (("fused", "RMCCell has no kernel"), ("cudnn", "runs only the plain LSTM and GRU, not RMC")):
        with pytest.raises(ValueError, match=f"^the {name} engine cannot run here: .*{reason}.*; use engine=.*$"):
            engines.pick(name, rnn.layers[0], torch.zeros(2, B, I))


def test_sizes_of_an_rmc_on_the_command_line():
    message = r"^model=rmc: hidden_size 130 must be a multiple of memories 4: give 128 or 132$"
    with pytest.raises(ConfigError, match=message):
        builder.build(identity.resolved(config("model=rmc", "model.hidden_size=130", "model.memories=4")))
    settings = ["model.hidden_size=24", "model.memories=3", "model.memory_size=8", "model.heads=2", "task.T=3"]
    network, *_ = builder.build(identity.resolved(config("model=rmc", *settings)))
    assert (network.rnn.hidden_size, network.rnn.layers[0].units) == (24, 8)
