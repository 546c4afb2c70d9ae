"""What is special to cells whose gates read the input alone: closed forms, equalities, and long memories."""

import copy
import math

import pytest
import torch
from cell_cases import ALL, B, H, I, build, close, random_input, random_state, run

import timescales
from timescales.nn import cells

SCANS = [name for name, (kind, _) in ALL.items() if not kind.recurrent]
ENGINES = pytest.mark.parametrize("engine", ["eager", "fused"])


# In a ParaGRU and a ParaLSTM something comes back through the gates, too; an IndRNN forgets by the size of u.
@pytest.mark.parametrize("name", [name for name in SCANS if not name.startswith(("para", "indrnn_"))])
def test_a_units_jacobian_is_the_product_of_its_forget_gates(name):
    """So T_1/e, which sums ln f, is exact: nothing is left out. For the complex state of the LRU it is its modulus."""
    x, dt, _ = random_input()
    cell, gates = build(name), []
    act = cell.act
    cell.act = lambda *arguments: gates.append(act(*arguments)) or gates[-1]
    state = random_state(cell, B)
    held = "c" if "c" in cell.State._fields else "h"
    state = state._replace(**{held: getattr(state, held).requires_grad_()})
    _, last = run(cell, x, state, dt)
    kept = math.prod(getattr(g, "factor", g.forget) for g in gates)  # with its sign, where it has one
    (d,) = torch.autograd.grad(getattr(last, held).sum(), getattr(state, held), retain_graph=True)
    if isinstance(cell, cells.LRUCell):
        (d_imaginary,) = torch.autograd.grad(last.imaginary.sum(), state.h)
        d = (d.square() + d_imaginary.square()).sqrt()
    close(d, kept)


@pytest.mark.parametrize("kind", [cells.MinGRUCell, cells.MinLSTMCell, cells.PLScanCell])
def test_long_memories_keep_their_digits(kind):
    """20,000 steps in float32 against float64, with units that forget after 1e5 steps.

    f is rounded to 2^-25, which makes up to 6e-4 in 20,000 steps. 1 - f is about 1e-5: as a difference of rounded
    numbers it could be wrong by 3e-3.
    """
    torch.manual_seed(0)
    cell = kind(1, 3)
    with torch.no_grad():
        gate = "reset" if kind is cells.PLScanCell else "forget"
        cell.weight_ih[cell.rows(gate)] = 0.0
        cell.set_bias(gate, torch.full((3,), -17.0 if gate == "reset" else math.log(1e5)))
        if kind is cells.MinLSTMCell:
            cell.weight_ih[cell.rows("input")] = 0.0
            cell.set_bias("input", torch.full((3,), -math.log(1e5)))
        x = torch.randn(20_000, 1, 1)
        found = timescales.RNN([cell], engine="fused")(x)[0]
        expected = timescales.RNN([copy.deepcopy(cell).double()], engine="eager")(x.double())[0]
    assert (found - expected).abs().max() < 6e-4 * expected.abs().max()


def test_lru_rings():
    """The response to an impulse is |lambda|^k times a cosine of theta k, from the phase at which B writes."""
    torch.manual_seed(0)
    rnn = timescales.LRU(1, 4, r_min=0.9, r_max=0.999).double()
    (cell,) = rnn.layers
    x = torch.zeros(500, 1, 1, dtype=torch.float64)
    x[0] = 1.0
    output, state = rnn(x)
    k = torch.arange(500, dtype=torch.float64).unsqueeze(1)
    real, imaginary = cell.weight_ih.detach().squeeze(1).chunk(2)
    size = cell.gamma_log.detach().exp() * torch.hypot(real, imaginary)
    angle = 2 * math.pi * k / cell.periods().detach() + torch.atan2(imaginary, real)
    decay = torch.exp(-k / rnn.timescales()[0])
    close(output[:, 0], size * decay * angle.cos(), 1e-10)
    close(state.imaginary[0, 0], (size * decay * angle.sin())[-1], 1e-10)


def test_what_needs_recurrent_weights_says_so():
    cell = cells.MinGRUCell(I, H)
    cell.weight_drop = 0.5
    with pytest.raises(ValueError, match="MinGRUCell has no recurrent weights to drop: set its weight_drop to 0"):
        timescales.RNN([cell])(torch.zeros(2, 1, I))

    class TwoBiases(cells.LSTMCell):
        recurrent = False

    with pytest.raises(TypeError, match="TwoBiases has recurrent = False: it has one bias vector, write biases = 1"):
        TwoBiases(I, H)


@ENGINES
def test_a_unit_of_an_indrnn_that_is_on_decays_by_u(engine):
    """After one input, h falls as u^t; a unit that an input turns off has forgotten all."""
    rnn = timescales.IndRNN(1, 2, engine=engine)
    with torch.no_grad():
        rnn.layers[0].weight_ih.fill_(1.0)
        rnn.layers[0].bias.zero_()
        rnn.layers[0].u.copy_(torch.tensor([0.9, 0.5]))
    x = torch.zeros(12, 2, 1)
    x[0] = 1.0
    x[6, 1] = -5.0
    output, _ = rnn(x)
    t = torch.arange(12.0)
    close(output[:, 0], torch.stack([0.9**t, 0.5**t], 1), 1e-6)
    assert not output[6:, 1].any()
    cell = cells.IndRNNCell(I, 4)
    with torch.no_grad():
        cell.u.copy_(torch.tensor([0.5, -0.5, 1.0, 1.3]))
    assert cell.timescales().tolist() == pytest.approx([1 / math.log(2), 1 / math.log(2), math.inf, math.inf])


def test_a_signed_mingru_forgets_by_the_absolute_factor():
    cell = cells.SignedMinGRUCell(I, 4).double()
    cell.set_bias("forget", torch.tensor([math.log(3.0), -math.log(3.0), 0.0, 30.0]))  # f = 3/4, 1/4, 1/2
    half = 1.0 / math.log(2.0)
    assert cell.timescales().tolist() == pytest.approx([half, half, 0.0, math.exp(30.0) / 2], rel=1e-6)
    gates = cell.act(torch.randn(B, 8, dtype=torch.float64), None, cell.initial_state(B))
    assert (gates.factor < 0).any()
    close(gates.forget, gates.factor.abs())


@ENGINES
def test_an_rglru_at_no_time_at_all(engine):
    """A step after dt = 0 changes nothing, and has finite gradients, where that of the square root is infinite."""
    rnn = timescales.RGLRU(I, H, engine=engine)
    x, h, dt = torch.randn(3, B, I), torch.randn(1, B, H), torch.zeros(3, B, requires_grad=True)
    output, _ = rnn(x, h, dt)
    close(output, h.expand_as(output), 1e-6)
    output.sum().backward()
    assert all(v.grad.isfinite().all() for v in (dt, *rnn.parameters()))


def test_layers_of_an_hgrn_start_with_rising_bounds():
    layers = timescales.HGRN(I, H, 4).layers
    assert layers[0].bound is None
    for k, cell in enumerate(layers[1:], 1):
        assert cell.bound.sigmoid().tolist() == pytest.approx([k / 4] * H)
        assert (cell.timescales() > -1.0 / math.log(k / 4)).all()
    cell = cells.HGRNCell(I, H, lower_bound=0.7)  # no input makes a unit forget faster
    gates = cell.act(torch.full((B, 3 * H), -1e4), None, cell.initial_state(B))
    assert gates.forget.flatten().tolist() == pytest.approx([0.7] * B * H)
