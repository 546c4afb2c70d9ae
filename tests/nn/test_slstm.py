"""The sLSTM against the paper's stabilised equations in NumPy; its heads, long sequences, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from own_reference import against_eager, check_gradients, compare, moved

import timescales
from timescales.nn.cells import LSTMCell, SLSTMCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, x, state, dt):
    """Beck et al. 2024, section 2.2: c, n and m. Ours are c / n and m + ln n; here m starts as ln n, and n as 1."""
    own_heads = own["weight_hh"].shape[1]
    h, n, m = state["h"], np.ones_like(state["c"]), state["log_n"]
    c = state["c"] * n
    new = {}
    for unit in range(len(h)):
        head = slice(unit // own_heads * own_heads, unit // own_heads * own_heads + own_heads)
        rows = [unit + gate * len(h) for gate in range(4)]
        i, f, z, o = (own["weight_ih"][r] @ x + own["weight_hh"][r] @ h[head] + own["bias"][r] for r in rows)
        log_f = np.log(sigmoid(f)) if reference.forget == "sigmoid" else f
        m_new = max(log_f + m[unit], i)
        i_stable, f_stable = np.exp(i - m_new), np.exp(log_f + m[unit] - m_new)
        c_new = f_stable * c[unit] + i_stable * np.tanh(z)
        n_new = f_stable * n[unit] + i_stable
        values = {"h": sigmoid(o) * c_new / n_new, "c": c_new / n_new, "log_n": m_new + np.log(n_new)}
        for name, value in values.items():
            new.setdefault(name, []).append(value)
    return new


VARIANTS = pytest.mark.parametrize(("heads", "forget"), [(1, "sigmoid"), (3, "sigmoid"), (2, "exp")])


@VARIANTS
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(heads, forget, timed, masked):
    """dt changes nothing."""
    reference.forget = forget
    compare(reference, moved(SLSTMCell(I, H, heads=heads, forget=forget)), timed, masked)


@VARIANTS
def test_gradients(heads, forget):
    cell = moved(SLSTMCell(2, 6, heads=heads, forget=forget))
    check_gradients(cell, random_state(cell, 2))


@pytest.mark.parametrize("forget", ["sigmoid", "exp"])
def test_the_first_step_writes_all(forget):
    """Nothing was there to be kept: c is z, and n is the input gate."""
    cell = moved(SLSTMCell(I, H, forget=forget))
    x, _, _ = random_input()
    pre = (x[:1] @ cell.weight_ih.T + cell.bias).detach()[0].chunk(4, -1)
    with torch.no_grad():
        _, state = run(cell, x[:1])
    close(state.c, pre[2].tanh())
    close(state.log_n, pre[0])


def test_with_a_forget_gate_of_one_the_cell_is_a_mean():
    """So a unit keeps (t - 1) / t at step t: it forgets as a power."""
    cell = SLSTMCell(1, 1, forget="exp").double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.weight_ih[2] = 1.0
    x = torch.randn(50, 1, 1, dtype=torch.float64)
    output, state = timescales.RNN([cell], engine="eager")(x)
    expected = x.tanh().cumsum(0) / torch.arange(1, 51).view(-1, 1, 1)
    close(2.0 * output, expected)
    close(state.log_n.exp()[0, 0, 0].item(), 50.0)
    assert torch.isinf(cell.timescales()).all()


def test_heads_do_not_read_each_other():
    cell = moved(SLSTMCell(I, H, heads=2))
    assert cell.weight_hh.shape == (4 * H, H // 2)
    h = torch.randn(1, H, dtype=torch.float64, requires_grad=True)
    state = cell.initial_state(1)._replace(h=h)
    _, after = run(cell, torch.randn(1, 1, I, dtype=torch.float64), state)
    (d,) = torch.autograd.grad(after.c[:, : H // 2].sum(), h)
    assert d[:, : H // 2].all()
    assert not d[:, H // 2 :].any()


def test_one_head_has_the_weights_of_an_lstm():
    cells = []
    for kind in (SLSTMCell, LSTMCell):
        torch.manual_seed(0)
        cells.append(kind(I, H))
    assert torch.equal(cells[0].weight_ih, cells[1].weight_ih)
    assert torch.equal(cells[0].weight_hh, cells[1].weight_hh)


@pytest.mark.parametrize("level", [-500.0, 500.0])
@pytest.mark.parametrize("forget", ["sigmoid", "exp"])
def test_nothing_overflows(forget, level):
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


@pytest.mark.parametrize(("heads", "forget"), [(1, "sigmoid"), (3, "exp")])
def test_the_compiled_kernel(heads, forget):
    against_eager(lambda engine: timescales.SLSTM(I, H, 2, heads=heads, forget=forget, engine=engine))


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_time_scales(engine):
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


def test_chrono_initialisation_sets_the_forget_gate_alone():
    torch.manual_seed(0)
    cell = SLSTMCell(1, 500, forget_init={"law": "chrono", "T_max": 50})
    assert 1.0 <= cell.bias_total("forget").exp().min() <= cell.bias_total("forget").exp().max() <= 49.0
    assert cell.bias_total("input").abs().max() <= 500**-0.5


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"heads": 0}, "heads must be a whole number of at least 1"),
        ({"heads": 4}, "hidden_size 6 must be a multiple of heads 4"),
        ({"forget": "tanh"}, "forget must be sigmoid or exp"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.SLSTM(I, H, **arguments)
