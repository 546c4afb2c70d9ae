"""The gates of Gu et al. 2020 and Chien et al. 2021: formulas, propositions, printed numbers, zoneout, errors."""

import math

import numpy as np
import pytest
import torch
from cell_cases import close, same_distribution
from scipy import integrate, stats

import timescales
from timescales.analysis.gate_gradients import refine_gradient, refine_gradient_bounds
from timescales.models.sequence import SequenceModel
from timescales.nn.cells import PGRUCell, PLSTMCell
from timescales.nn.cells.gates import cumax, refined
from timescales.nn.inits import ChronoUnknown, Uniform
from timescales.tasks import Batch, Spec

S, B, I, H = 9, 3, 4, 6  # noqa: E741


def x(steps=S):
    return torch.randn(steps, B, I, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def gated(gate, core="lstm", hidden=H, seed=0, **arguments):
    torch.manual_seed(seed)
    return timescales.GatedRNN(I, hidden, core=core, gate=gate, **{"downsize": 1, **arguments}).double()


def test_ur_is_its_composition():
    """Same seed, same weights; same weights, the same numbers to the last bit."""
    torch.manual_seed(0)
    whole = timescales.URLSTM(I, H, 2).double()
    parts = timescales.GatedRNN(I, H, 2, gate="ur").double()
    parts.load_state_dict(whole.state_dict(), strict=True)
    torch.manual_seed(0)
    again = timescales.GatedRNN(I, H, 2, gate="ur").double()
    for rnn in (parts, again):
        output, state = rnn(x())
        expected, last = whole(x())
        assert torch.equal(output, expected)
        assert all(map(torch.equal, state, last))
        assert all(torch.equal(a, b) for a, b in zip(rnn.timescales(), whole.timescales(), strict=True))


def test_a_ur_unit_whose_gate_rounds_to_one_never_forgets():
    """As in the composition; -1 / ln 1 would be minus infinity."""
    whole, parts = timescales.URLSTM(I, H), timescales.GatedRNN(I, H, gate="ur")
    for rnn in (whole, parts):
        with torch.no_grad():
            rnn.layers[0].gate_bias.zero_()
            rnn.layers[0].bias.fill_(20.0)
        assert rnn.timescales()[0].tolist() == [math.inf] * H


def test_fixed_bias_is_no_parameter():
    """The authors' later code holds the uniform vector fixed."""
    rnn = gated("ur", train_bias=False)
    assert [name for name, _ in rnn.named_parameters()] == [f"layers.0.{n}" for n in ("weight_ih", "weight_hh", "bias")]
    assert "layers.0.gate_bias" in rnn.state_dict()
    trained = gated("ur")
    trained.load_state_dict(rnn.state_dict(), strict=True)
    assert torch.equal(trained(x())[0], rnn(x())[0])
    constant = gated("r", forget_bias=2.5)
    assert not constant.layers[0].gate_bias.requires_grad
    assert (constant.layers[0].gate_bias == 2.5).all()


@pytest.mark.parametrize(("gate", "subtract", "sign"), [
    ("ur", None, -1), ("ur", False, 0), ("r", None, -1), ("r", False, 0), ("u", None, -1), ("-", None, 0),
    ("-", True, -1), ("or", None, 0),
])  # fmt: skip
def test_where_the_vector_is_subtracted(gate, subtract, sign):
    """As printed: from the refine or input gate, but not in listing 1; the authors' later code never does."""
    cell = gated(gate, subtract_bias=subtract).layers[0]
    counter = "refine" if "refine" in cell.gates else "input"
    shift = cell.bias_total(counter) - cell.bias[cell.rows(counter)]
    close(shift, sign * cell.gate_bias if sign else torch.zeros_like(shift))


def test_cumax():
    printed = torch.tensor([0.09003, 0.33476, 1.0])
    torch.testing.assert_close(cumax(torch.tensor([0.0, 1.0, 2.0])), printed, rtol=0, atol=5.1e-6)
    close(cumax(torch.zeros(8, dtype=torch.float64)), torch.arange(1.0, 9.0, dtype=torch.float64) / 8)
    wild = cumax(30 * torch.randn(500, 300))
    assert (wild.diff() >= 0).all()
    assert wild.max() == 1.0


def test_refine_gate_reaches_half_to_square_of_a_timescale():
    """Proposition 2: with D = 1 / (1 - f), the effective gate's is between D / (1 + f) and D^2."""
    f = torch.linspace(0.01, 0.999, 200, dtype=torch.float64)
    D = 1 / (1 - f)
    close(1 / (1 - refined(f, torch.zeros_like(f))), D / (1 + f), 1e-9)
    close(1 / (1 - refined(f, torch.ones_like(f))), D.square(), 1e-9)


def test_gradient_of_the_refine_gate():
    """Eq. 35 against autograd, and the two partial derivatives as printed above it."""
    a, b = (4 * torch.randn(2, 500, dtype=torch.float64)).requires_grad_().unbind()
    f, r = a.sigmoid(), b.sigmoid()
    g = refined(f, r)
    da, db = torch.autograd.grad(g.sum(), [a, b])
    f, r, g = f.detach(), r.detach(), g.detach()
    close(da, 2 * f * (1 - f) * (r + (1 - 2 * r) * f))
    close(db, 2 * f * (1 - f) * r * (1 - r))
    close(refine_gradient(f, g), (da.square() + db.square()).sqrt(), 1e-9)


def test_bounds_of_the_gradient_at_an_activation():
    """Fig. 3b: every gate that reaches g lies between the bounds, and the bounds are reached."""
    g = torch.tensor([0.02, 0.3, 0.5, 0.9, 0.99], dtype=torch.float64)
    low, high = refine_gradient_bounds(g)
    f = torch.linspace(0.001, 0.999, 4001, dtype=torch.float64).unsqueeze(-1)
    reached = (f * f <= g) & (g <= 1 - (1 - f) ** 2)
    norms = refine_gradient(f, g)
    close(torch.where(reached, norms, torch.inf).amin(0), low, 1e-2)
    close(torch.where(reached, norms, 0.0).amax(0), high, 1e-2)
    assert (torch.where(reached, norms, torch.inf).amin(0) >= low - 1e-9).all()
    sigmoid = g * (1 - g)
    assert (high > sigmoid).all()  # saturated or not, some refine gate learns faster than a sigmoid
    # Near saturation by a factor that grows: the paper's reason for the refine gate.
    assert (high / sigmoid)[-1] > 1.5 * (high / sigmoid)[2]
    close(low, refine_gradient_bounds(1 - g)[0], 1e-6)  # the gate is symmetric


def decay_period(gate, hidden=1151, **arguments):
    """D = 1 / (1 - f) of the main gate by its bias alone."""
    cell = gated(gate, hidden=hidden, **arguments).layers[0]
    return (1 + cell.gate_bias.detach().exp()).numpy()


def test_chrono_is_uniform_in_the_time_scale():
    same_distribution(decay_period("c", T_max=750), stats.uniform(2, 748))
    same_distribution(decay_period("c"), stats.uniform(2, 1149).cdf)  # T_max: the number of units


def test_uniform_gates_have_density_1_over_x_squared():
    n = 1151
    same_distribution(decay_period("ur"), lambda D: np.clip((1 - 1 / D - 1 / n) / (1 - 2 / n), 0, 1))
    torch.manual_seed(4)
    tail = 1 + Uniform().bias(20_000).exp().numpy()
    for limit in (2, 10, 100):
        assert (tail > limit).mean() == pytest.approx(1 / limit, abs=4 * math.sqrt(1 / limit / 20_000))


def test_um_draws_for_its_master_gates():
    cell = gated("um", hidden=1152, downsize=16).layers[0]
    assert cell.gate_bias.shape == (72,)
    f = cell.gate_bias.detach().sigmoid()
    assert f.min() >= 1 / 72 - 1e-9
    assert f.max() <= 1 - 1 / 72 + 1e-9


def test_chrono_without_a_longest_time_scale():
    """P(T = k) proportional to 1 / (k log(k + 1)^2); the sum from a million on by quadrature."""
    torch.manual_seed(2)
    n = 40_000
    b = ChronoUnknown().bias(n).numpy()
    assert np.isfinite(b).all()
    k = np.arange(1, 1_000_001, dtype=float)
    mass = 1 / (k * np.log1p(k) ** 2)
    rest, _ = integrate.quad(lambda y: 1 / y**2, math.log(1_000_000.5), np.inf)  # y = log x
    whole = mass.sum() + rest
    for T in (1, 2, 3, 10, 100, 1e3, 1e5):
        share = mass[: int(T)].sum() / whole
        assert (b <= math.log(T) + 1e-9).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / n)), T
    for log_T in (20.0, 88.0, 1000.0):  # beyond any table: P(T > t) = 1 / log t
        share = 1 / log_T / whole
        assert (b > log_T).mean() == pytest.approx(share, abs=4 * math.sqrt(share / n)), log_T
    # The density of D = 1 + T is nearly 1 / (x log^2 x): the tail's mass per unit of 1 / log x is the same everywhere.
    tail = 1 / np.log1p(np.exp(b[(b > 8) & (b < 700)]))
    same_distribution(tail, stats.uniform(1 / 700, 1 / 8 - 1 / 700).cdf)
    cell = gated("c", T_max="unknown").layers[0]
    assert torch.isfinite(cell.weights().bias_ih).all()
    assert (cell.gate_bias >= 0).all()


@pytest.mark.parametrize(
    ("core", "rates"), [("lstm", {"zoneout_c": 0.5, "zoneout_h": 0.05}), ("gru", {"zoneout_h": 0.1})]
)
def test_zoneout_holds_units_in_training_and_mixes_in_evaluation(core, rates):
    """Krueger et al. 2016; h is made of the cell as it would be without zoneout."""
    plain, rnn = gated("ur", core, hidden=400), gated("ur", core, hidden=400, **rates)
    rnn.load_state_dict(plain.state_dict(), strict=True)
    cell = rnn.layers[0]
    before = cell.State(*(torch.randn(30, 400, dtype=torch.float64) for _ in cell.State._fields))
    pre = torch.randn(2, 30, len(cell.weight_ih), dtype=torch.float64)
    whole = plain.layers[0].step(*pre, before)
    zoned = cell.train().step(*pre, before)
    mixed = cell.eval().step(*pre, before)
    for field, old, new, drawn, mean in zip(before._fields, before, whole, zoned, mixed, strict=True):
        rate = rates[f"zoneout_{field}"]
        held = drawn == old
        assert ((drawn == new) | held).all()
        assert held.double().mean().item() == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / 12_000))
        close(mean, rate * old + (1 - rate) * new)


@pytest.mark.parametrize("readout", ["all", "last"])
def test_head_of_relu_layers(readout):
    spec = Spec("real", I, 3, readout, horizon=5)
    torch.manual_seed(0)
    plain = SequenceModel(timescales.LSTM(I, H), spec)
    assert {name.split(".")[0] for name in plain.state_dict()} == {"rnn", "readout"}  # as ever, without a head
    model = SequenceModel(timescales.LSTM(I, H), spec, head_size=256, head_dropout=0.5).eval()
    extra = H * 256 + 256 + 256 * 3 + 3 - (H * 3 + 3)
    assert sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in plain.parameters()) == extra
    batch = Batch(x().float(), torch.zeros(B))
    h, _ = model.rnn(batch.x)
    hidden = (h if readout == "all" else h[-1]) @ model.head[0].weight.T + model.head[0].bias
    torch.testing.assert_close(model(batch).logits, model.readout(hidden.clamp(min=0)))
    assert not torch.equal(model.train()(batch).logits, model(batch).logits)  # dropout
    model = SequenceModel(timescales.LSTM(I, H), spec, [7, 5], 0.5).eval()
    assert [layer.p for layer in model.head if isinstance(layer, torch.nn.Dropout)] == [0.5, 0.5]
    h, _ = model.rnn(batch.x)
    hidden = h if readout == "all" else h[-1]
    for layer in (model.head[0], model.head[3]):
        hidden = (hidden @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(model(batch).logits, model.readout(hidden))


def test_master_gates_do_not_change_if_all_their_biases_grow_by_as_much():
    """A cumax is of a softmax, here of numbers around 200, whose exp is no float32."""
    rnn = gated("om", hidden=12, downsize=3).float()
    output = rnn(x().float())[0]
    with torch.no_grad():
        rnn.layers[0].bias[:8] += 200.0  # of both master gates, which come first, with four rows each
    torch.testing.assert_close(rnn(x().float())[0], output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("core", ["lstm", "gru"])
@pytest.mark.parametrize(("gate", "last"), [("om", 2), ("o", 1), ("or", 1), ("um", 0)])
def test_the_last_units_of_an_ordered_gate_remember_nothing(core, gate, last):
    output = gated(gate, core, downsize=2)(3 * x(30))[0].abs().amax((0, 1))
    assert (output[H - last :] < 1e-6).all()
    assert (output[: H - last] > 1e-3).all()


@pytest.mark.parametrize(("arguments", "fix"), [
    ({"head_size": 0}, "null for no head"), ({"head_size": [4, 0]}, "null for no head"),
    ({"head_size": [], "head_dropout": 0.5}, "give head_size too"), ({"head_dropout": 0.5}, "give head_size too"),
    ({"head_size": 4, "head_dropout": 1.0}, "below 1"),
])  # fmt: skip
def test_a_bad_head_says_what_to_write(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        SequenceModel(timescales.LSTM(I, H), Spec("real", I, 3, "last", horizon=5), **arguments)


def plstm_gate(age, r, p, epsilon, dt=1.0, form="paper", dtype=torch.float64):
    """The activations of a pLSTM at a given reset gate; r = 0 and r = 1 are reached by saturation."""
    age, r = torch.broadcast_tensors(torch.as_tensor(age, dtype=dtype), torch.as_tensor(r, dtype=torch.float64))
    cell = PLSTMCell(1, r.numel(), power=p, epsilon=epsilon, epsilon_form=form).to(dtype)
    z = torch.logit(r).clamp(-1e4, 1e4).reshape(-1)
    zero = torch.zeros_like(z).to(dtype)
    gx = torch.cat([z.to(dtype), zero, zero])
    return cell.act(gx, torch.zeros_like(gx), cell.State(zero, zero, age.reshape(-1)), dt)


PAPER = [
    (0, 1, 0.5, 0.5, 1e-3, 0.5, 0.57792733), (0, 1, 0, 0.3, 1e-3, 1, 0.81249599), (0, 1, 1, 0.3, 1e-3, 0, 0.12589254),
    (199, 1, 0, 0.3, 1e-3, 200, 0.99850635), (199, 1, 0.01, 0.3, 1e-3, 198, 0.99849132),
    (9, 1, 0.9, 0.2, 1e-3, 1, 0.87072460), (0, 0.1, 0.5, 0.5, 1e-5, 0.05, 0.69007246),
    (3.7, 2.5, 0.2, 0.4, 1e-5, 4.96, 0.83171991), (50, 0.01, 0, 0.3, 1e-5, 50.01, 0.99994124),
    (50, 0.01, 1, 0.3, 1e-5, 0, 0.03162278),
]  # fmt: skip
AUTHORS = [(0, 1, 0.5, 0.5, 1e-3, 0.5005, 0.57811930), (0, 1, 1, 0.3, 1e-3, 0.001, 0.15494543)]
PRINTED = [*(("paper", *numbers) for numbers in PAPER), *(("authors", *numbers) for numbers in AUTHORS)]


@pytest.mark.parametrize(("form", "age", "dt", "r", "p", "epsilon", "new_age", "f"), PRINTED)
def test_printed_numbers(form, age, dt, r, p, epsilon, new_age, f):
    gates = plstm_gate(age, r, p, epsilon, dt, form)
    assert gates.age.item() == pytest.approx(new_age, abs=1e-12)
    assert gates.forget.item() == pytest.approx(f, abs=6e-9)  # eight printed digits
    assert gates.input.item() == pytest.approx(1 - f, abs=6e-9)


@pytest.mark.parametrize(("p", "floor", "authors", "small", "steepest"), [
    (0.01, ".933", ".940", ".891", "9.3"), (0.2, ".251", ".288", ".100", "50.2"),
    (0.5, ".0316", ".0447", ".0032", "15.8"), (1.0, ".001", ".002", ".00001", "1.0"),
])  # fmt: skip
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
    ("form", "dtype"), [("paper", torch.float32), ("paper", torch.float64), ("authors", torch.float32)]
)
def test_forget_never_exceeds_1(form, dtype):
    r = torch.cat([torch.tensor([0.0, 1.0]), torch.logspace(-12, -0.001, 60)]).double()
    for epsilon in (1e-5, 0.5):
        for dt in (0.0, 1e-9, 1e-5, 0.4, 1.0, 100.0):
            for age in (0.0, 1.0, 1e4):
                gates = plstm_gate(age, r, 0.3, epsilon, torch.tensor(dt, dtype=dtype), form, dtype)
                assert ((gates.forget > 0.0) & (gates.forget <= 1.0)).all()
                assert ((gates.input >= 0.0) & (gates.input < 1.0)).all()
                assert (gates.age >= 0.0).all()
                one = torch.ones_like(gates.forget)
                close(gates.forget + gates.input, one, 1e-6 if dtype == torch.float32 else 1e-12)


def test_large_ages_keep_their_input_gate_in_float32():
    """i = 1 - f at age 1e4: log1p and expm1 leave 7e-8, a plain power 6e-4."""
    r = torch.tensor([0.0, 1e-4, 1e-3])
    narrow = plstm_gate(1e4, r, 0.2, 1e-3, dtype=torch.float32).input
    wide = plstm_gate(1e4, r, 0.2, 1e-3).input
    assert ((narrow.double() - wide) / wide)[0].abs() < 3e-7
    # A reset gate in float32 rounds 1 - r, relative 6e-8, and the age with it.
    assert ((narrow.double() - wide) / wide).abs().max() < 1e-6


@pytest.mark.parametrize(("kind", "form"), [(PLSTMCell, "paper"), (PLSTMCell, "authors"), (PGRUCell, "paper")])
def test_float32_is_right_at_any_reset_gate_and_age(kind, form):
    """A reset gate so near 1 that 1 - r is 0 in float32 leaves 1e-8 of an age, which may be large against epsilon."""
    cell = kind(1, 1, power=0.5, epsilon_form=form)
    g = torch.Generator().manual_seed(0)
    z, age = 60 * torch.rand(200_000, generator=g) - 30, 10 ** (7 * torch.rand(200_000, generator=g))
    dt = 4 * torch.rand(200_000, generator=g)
    r, f, _, new_age = cell.forgetting(z, age, dt)
    _, exact, _, exact_age = cell.forgetting(z.double(), age.double(), dt.double())
    assert ((f - exact) / exact).abs().max() < 2**-21
    assert ((new_age - exact_age) / exact_age).abs().max() < 2**-21
    full = r == 1
    assert full.float().mean() > 0.2
    assert (exact / 1e-3**0.5)[full].max() > 10  # f is not what it is at an age of 0


@pytest.mark.parametrize(("kind", "size", "hidden", "outputs", "count"), [
    ("LSTM", 10, 128, 10, 72_970), ("PLSTM", 10, 128, 10, 54_794), ("LSTM", 1, 256, 10, 267_786),
    ("PLSTM", 1, 256, 10, 200_970), ("LSTM", 1, 512, 10, 1_059_850), ("PLSTM", 1, 512, 10, 795_146),
    ("LSTM", 1, 110, 2, 49_942), ("PLSTM", 1, 110, 2, 37_292), ("LSTM", 2, 110, 2, 50_382),
    ("PLSTM", 2, 110, 2, 37_622),
    ("URLSTM", 1, 110, 2, 4 * 110 * (1 + 110 + 1) + 110 + 222),  # one bias and the uniform vector
])  # fmt: skip
def test_printed_counts_of_parameters(kind, size, hidden, outputs, count):
    spec = Spec("one_hot" if size == 10 else "real", size, outputs, "all" if size == 10 else "last", horizon=100)
    model = SequenceModel(getattr(timescales, kind)(size, hidden), spec)
    assert sum(p.numel() for p in model.parameters()) == count
