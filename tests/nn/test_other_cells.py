"""What is special to the cells with other recurrent matrices, memories and heads, and to JANET, ELSTM and GRU."""

import copy
import math

import pytest
import torch
from cell_cases import B, H, I, build, close, random_input, random_state, run
from configs import config
from torch import nn

import timescales
from timescales.config import identity
from timescales.errors import ConfigError
from timescales.nn import engine as engines
from timescales.nn.cells import (
    ELSTMCell,
    EURNNCell,
    ExpRNNCell,
    GORUCell,
    LSTMCell,
    NRUCell,
    RMCCell,
    SLSTMCell,
    SRUCell,
    URNNCell,
)
from timescales.nn.cells.eurnn import chain
from timescales.nn.engine import eager
from timescales.training import build as builder

ENGINES = pytest.mark.parametrize("engine", ["eager", "fused"])


def count(module):
    return sum(p.numel() for p in module.parameters())


# --- GRUs and LSTMs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
def test_gru_is_torchs(layers):
    torch.manual_seed(7)
    theirs = nn.GRU(I, H, layers)
    torch.manual_seed(7)
    ours = timescales.GRU(I, H, layers)
    for k, cell in enumerate(ours.layers):
        for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            assert torch.equal(getattr(cell, key), getattr(theirs, f"{key}_l{k}"))
    theirs.double()
    x, h = random_input()[0], torch.randn(layers, B, H, dtype=torch.float64)
    expected, end = theirs(x, h)
    converted = timescales.GRU.from_torch(theirs)
    output, state = converted(x, [cell.State(h[k]) for k, cell in enumerate(converted.layers)])
    close(output, expected)
    close(state, end)
    close(converted.to_torch()(x, h)[0], expected)
    both = nn.GRU(I, H, bidirectional=True)
    close(timescales.GRU.from_torch(both)(x.float())[0], both(x.float())[0], 1e-6)
    with pytest.raises(ValueError, match=r"equal hidden_size"):
        timescales.GRU(I, [H, 2], 2).to_torch()


def test_janet_is_a_gru_without_a_reset_gate():
    """Gu et al. 2020, footnote 5: with beta = 0."""
    janet, gru = build("janet_tied"), timescales.GRU(I, H).double()
    (cell,) = gru.layers
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh"):
            for gate in ("forget", "cell"):
                getattr(cell, name)[cell.rows(gate)] = getattr(janet, name)[janet.rows(gate)]
        cell.bias_hh.zero_()
        cell.bias_ih.copy_(torch.cat([torch.full((H,), 1e3, dtype=torch.float64), janet.bias]))
    close(gru(random_input()[0])[0], run(janet, random_input()[0])[0])


def test_a_separate_elstm_is_torchs_lstm_at_unit_steps():
    lstm, cell = nn.LSTM(I, H).double(), ELSTMCell(I, H, coupled=False).double()
    with torch.no_grad():
        for theirs, gate in enumerate(("input", "forget", "cell", "output")):
            rows, own = slice(theirs * H, (theirs + 1) * H), cell.rows(gate)
            cell.weight_ih[own], cell.weight_hh[own] = lstm.weight_ih_l0[rows], lstm.weight_hh_l0[rows]
            cell.bias[own] = (lstm.bias_ih_l0 + lstm.bias_hh_l0)[rows]
    output, (h, c) = run(cell, random_input()[0])
    expected, (h_n, c_n) = lstm(random_input()[0])
    close(output, expected)
    close(h, h_n[0])
    close(c, c_n[0])


@pytest.mark.parametrize("forget", ["sigmoid", "exp"])
def test_the_first_step_of_an_slstm_writes_all(forget):
    """Nothing was there to be kept: c is z, and n is the input gate."""
    cell, x = build("slstm" if forget == "sigmoid" else "slstm_exp"), random_input()[0][:1]
    pre = (x @ cell.weight_ih.T + cell.bias).detach()[0].chunk(4, -1)
    with torch.no_grad():
        _, state = run(cell, x)
    close(state.c, pre[2].tanh())
    close(state.log_n, pre[0])


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


def test_heads_of_an_slstm_do_not_read_each_other():
    cell = build("slstm_exp")
    assert cell.weight_hh.shape == (4 * H, H // 2)
    h = torch.randn(1, H, dtype=torch.float64, requires_grad=True)
    _, after = run(cell, torch.randn(1, 1, I, dtype=torch.float64), cell.initial_state(1)._replace(h=h))
    (d,) = torch.autograd.grad(after.c[:, : H // 2].sum(), h)
    assert d[:, : H // 2].all()
    assert not d[:, H // 2 :].any()
    cells = []
    for kind in (SLSTMCell, LSTMCell):  # one head has the weights of an LSTM
        torch.manual_seed(0)
        cells.append(kind(I, H))
    assert torch.equal(cells[0].weight_ih, cells[1].weight_ih)
    assert torch.equal(cells[0].weight_hh, cells[1].weight_hh)


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


@ENGINES
def test_time_scales_of_an_slstm(engine):
    """Without input the cell decays by f once the sum of the weights has come to rest."""
    rnn = timescales.SLSTM(1, 3, engine=engine)
    (cell,) = rnn.layers
    with torch.no_grad():
        cell.weight_ih.zero_()
        cell.weight_hh.zero_()
        cell.set_bias("cell", torch.zeros(3))
        cell.set_bias("forget", torch.tensor([-1.0, 0.0, 2.0]))
    rest = -torch.log1p(-cell.bias_total("forget").sigmoid()) + cell.bias_total("input")
    start = cell.State(torch.zeros(B, 3), torch.ones(B, 3), rest.detach().expand(B, 3))
    _, state = rnn(torch.zeros(10, B, 1), [start])
    close(-10.0 / rnn.split_state(state)[0].c.log(), cell.timescales().expand(B, 3), 1e-5)


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


@pytest.mark.parametrize("skew_init", ["cayley", "henaff"])
def test_exprnn_has_the_matrix_of_torchs_parametrization(skew_init):
    torch.manual_seed(7)
    cell = ExpRNNCell(I, 7, skew_init=skew_init).double()
    theirs = nn.Linear(7, 7, bias=False).double()
    nn.utils.parametrizations.orthogonal(theirs, orthogonal_map="matrix_exp", use_trivialization=False)
    lower = torch.zeros(7, 7, dtype=torch.float64)
    j, k = torch.tril_indices(7, 7, -1)
    with torch.no_grad():
        cell.skew.add_(torch.randn_like(cell.skew))
        lower[j, k] = cell.skew
        theirs.parametrizations.weight.original.copy_(lower)
    close(cell.weights().hh, theirs.weight, 1e-10)
    assert count(cell) == 7 * (I + 1) + 21


def test_exprnn_in_other_types():
    torch.manual_seed(0)
    x = torch.randn(6, B, I)
    plain = timescales.ExpRNN(I, H)
    half = copy.deepcopy(plain).bfloat16()
    torch.testing.assert_close(half(x.bfloat16())[0].float(), plain(x)[0], rtol=0.05, atol=0.05)
    assert timescales.ExpRNN(I, H, dtype=torch.float64).layers[0].weights().hh.dtype == torch.float64


def test_a_states_length_is_kept():
    """Without input and threshold nothing is lost, forward or backward."""
    rnn = timescales.ExpRNN(I, H).double()
    with torch.no_grad():
        rnn.layers[0].bias.zero_()
    h = torch.randn(B, H, dtype=torch.float64, requires_grad=True)
    _, (after,) = rnn(torch.zeros(300, B, I, dtype=torch.float64), [rnn.layers[0].State(h)])
    close(after.norm(dim=-1), h.norm(dim=-1), 1e-10)
    probe = torch.randn(B, H, dtype=torch.float64)
    (back,) = torch.autograd.grad((after * probe).sum(), h)
    close(back.norm(dim=-1), probe.norm(dim=-1), 1e-10)
    assert torch.isinf(rnn.timescales()[0]).all()
    rnn = timescales.URNN(2, 64)
    with torch.no_grad():
        rnn.layers[0].bias.zero_()
        output, _ = rnn(torch.zeros(1000, 3, 2))
    start = rnn.layers[0].start.norm().expand(3)
    torch.testing.assert_close(output[-1].norm(dim=-1), start, rtol=1e-4, atol=0)
    assert rnn.timescales()[0].isinf().all()


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


def test_enough_layers_of_a_eurnn_mix_all_units():
    """Two layers reach neighbours alone; N layers, and the FFT style, leave no zeros in W."""
    assert (EURNNCell(I, 32).matrix() == 0).sum() > 150
    assert (EURNNCell(I, 32, capacity=16).matrix() != 0).all()
    assert (EURNNCell(I, 32, style="fft").matrix() != 0).all()
    assert chain(1, 2, "tunable") == [[], []]  # a single unit has no partner
    assert chain(1, 2, "fft") == []


@ENGINES
def test_a_goru_keeps_and_turns(engine):
    """f = 1 keeps the state; f = 0 and r = 1 turn it, and keep its length."""
    rnn = timescales.GORU(2, 4, engine=engine)
    x, h = torch.zeros(50, 3, 2), torch.randn(1, 3, 4)
    for bias, turns in ((40.0, False), (-200.0, True)):
        with torch.no_grad():
            for name, parameter in rnn.layers[0].named_parameters():
                if name != "theta":
                    parameter.zero_()
            rnn.layers[0].bias[:4] = bias
            rnn.layers[0].bias[4:8] = 40.0
        output, _ = rnn(x, h)
        close(output.norm(dim=-1), h.norm(dim=-1).expand(50, 3), 1e-4)
        assert (output[-1] - h[0]).abs().max().item() > 0.1 if turns else torch.equal(output[-1], h[0])


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


def test_counts_of_the_other_gates_of_an_rmc():
    """c, u and ur have a vector b more; om has two gates more, with one row for every 32 units, and no vector."""
    plain = count(timescales.RMC(45, 1024))
    for gate in ("c", "u", "ur"):
        assert count(timescales.RMC(45, 1024, gate=gate)) == plain + 512
    rows = 2 * 512 // 32
    assert count(timescales.RMC(45, 1024, gate="om", downsize=32)) == plain + rows * (2 * 512 + 2)
    assert count(timescales.RMC(45, 1024, gate="um", downsize=32)) == plain + rows * (2 * 512 + 2) + 16


@pytest.mark.parametrize(
    ("memories", "hidden", "rows"),
    [(2, 6, [[1, 0, 0], [0, 1, 0]]), (3, 6, [[1, 0], [0, 1], [0, 0]]), (1, 2, [[1, 0]])],
)
def test_an_rmc_starts_as_rows_of_the_identity(memories, hidden, rows):
    state = RMCCell(I, hidden, memories=memories).double().initial_state(2, B)
    assert torch.equal(state.h, torch.tensor(rows, dtype=torch.float64).flatten().expand(2, B, hidden))
    rnn, x = timescales.RMC(I, hidden, memories=memories), torch.randn(5, B, I)
    assert torch.equal(rnn(x)[0], rnn(x, rnn.layers[0].initial_state(B).h.unsqueeze(0))[0])


def test_memories_of_an_rmc_have_no_order():
    """Memories in another order at the start are those of the end in this order: nothing tells them apart but M_0."""
    cell = RMCCell(I, 12, memories=4, heads=3, blocks=2, gate="ur").double()
    x, M, order = torch.randn(5, B, I, dtype=torch.float64), torch.randn(B, 4, 3, dtype=torch.float64), [2, 0, 3, 1]
    _, end = run(cell, x, cell.State(M.flatten(-2)))
    _, other = run(cell, x, cell.State(M[:, order].flatten(-2)))
    torch.testing.assert_close(cell.by_memory(other.h), cell.by_memory(end.h)[:, order])
    assert (end.h - other.h).abs().max() > 0.01


def test_the_input_of_an_rmc_is_attended_to():
    """Without the gates' share of the input, it still reaches every memory, through attention alone."""
    cell = RMCCell(I, 12, memories=4).double()
    with torch.no_grad():
        cell.weight_gates.zero_()
    x = torch.randn(1, B, I, dtype=torch.float64, requires_grad=True)
    for memory in cell.by_memory(run(cell, x)[0][0, 0]):
        (gradient,) = torch.autograd.grad(memory.square().sum(), x, retain_graph=True)
        assert gradient[0, 0].abs().min() > 0
        assert not gradient[0, 1:].any()


@pytest.mark.parametrize(
    ("gate", "rows", "low", "high"),
    [("u", 64, 1 / 64, 63 / 64), ("um", 4, 1 / 4, 3 / 4), ("c", 64, 1 / 2, 63 / 64)],
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
