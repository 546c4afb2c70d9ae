"""Initializers of the forget bias against their distributions and the papers' printed values."""

import functools
import math

import numpy as np
import pytest
import torch
from cell_cases import same_distribution
from scipy import stats

import timescales
from timescales.nn import cells, inits
from timescales.nn.inits import Assigned, Chrono, ChronoUnknown, Constant, InverseGamma, Uniform, timescale_of_bias

CHRONO = {"forget_init": {"law": "chrono", "T_max": 50}}


def draws(width, one):
    """At least 1,151 values from layers of `width` units; one() gives the (width,) values of a new layer."""
    torch.manual_seed(width)
    return torch.cat([one().detach().double().flatten() for _ in range(-(-1151 // width))]).numpy()


@pytest.mark.parametrize(("width", "T_max"), [(1, 3), (2, 30.5), (1151, 750)])
def test_chrono_is_the_log_of_a_uniform(width, T_max):
    same_distribution(draws(width, lambda: Chrono(T_max).bias(width).exp()), stats.uniform(1, T_max - 2))


@pytest.mark.parametrize("width", [2, 1151])
def test_chrono_reaches_the_cells_biases(width):
    for gate, sign in (("forget", 1), ("input", -1)):
        drawn = draws(width, lambda g=gate, s=sign: (s * cells.LSTMCell(1, width, **CHRONO).bias_total(g)).exp())
        same_distribution(drawn, stats.uniform(1, 48))


@pytest.mark.parametrize("width", [1, 2, 1151])
def test_uniform_gate_init(width):
    """f = sigmoid(b) uniform on [1/n, 1 - 1/n]; one or two units leave no width, f = 1/2."""
    f = draws(width, lambda: Uniform().bias(width).sigmoid())
    if width <= 2:
        assert abs(f - 0.5).max() < 1e-12
    else:
        same_distribution(f, stats.uniform(1 / width, 1 - 2 / width))
        assert f.min() >= 1 / width - 1e-12
        assert f.max() <= 1 - 1 / width + 1e-12


@pytest.mark.parametrize(("width", "low", "high"), [(2, 0.0, 1.0), (1151, 0.0, 1.0), (1151, 0.2, 0.4)])
def test_powers_are_uniform(width, low, high):
    p = draws(width, lambda: cells.PLSTMCell(1, width, power_init=(low, high)).p)
    same_distribution(p, stats.uniform(low, high - low))
    assert p.min() >= max(low, 1e-4) * (1 - 1e-4)
    assert p.max() <= min(high, 1 - 1e-4) + 1e-6


def test_powers_stay_inside_the_open_interval():
    made = [cells.PLSTMCell(1, 50, power_init=ends) for ends in ((0.0, 0.0), (1.0, 1.0))]
    assert torch.isfinite(torch.cat([cell.power for cell in made])).all()
    torch.testing.assert_close(made[0].p, torch.full((50,), 1e-4), rtol=1e-3, atol=0)
    torch.testing.assert_close(made[1].p, torch.full((50,), 1 - 1e-4), rtol=1e-6, atol=0)


@pytest.mark.parametrize("width", [2, 400])
@pytest.mark.parametrize(
    "kind", [cells.LSTMCell, cells.URLSTMCell, cells.PLSTMCell, cells.GRUCell, cells.JANETCell, cells.PGRUCell]
)
def test_everything_else_is_uniform_on_1_over_sqrt_h(kind, width):
    torch.manual_seed(width)
    made = [kind(3, width) for _ in range(-(-400 // width))]
    bound = 1 / math.sqrt(width)
    for key in {key for key, _ in made[0].named_parameters()} - {"power", "gate_bias"}:
        sample = torch.cat([getattr(cell, key).detach().flatten()[:4000] for cell in made]).double().numpy()
        assert abs(sample).max() <= bound
        same_distribution(sample, stats.uniform(-bound, 2 * bound))


@pytest.mark.parametrize(("width", "alpha"), [(1, 0.56), (2, 1.5), (1151, 0.56)])
def test_inverse_gamma_quantiles_are_the_distribution(width, alpha):
    """Quantiles, not samples: the distribution function at T_k is 1 - k/(n+1) exactly, its KS distance 1/(n+1)."""
    T = InverseGamma(alpha, 2.0).timescales(width)
    expected = stats.invgamma(alpha, scale=2.0).isf(torch.arange(1, width + 1).numpy() / (width + 1))
    torch.testing.assert_close(T, torch.from_numpy(expected), rtol=1e-10, atol=0)
    assert (T.diff() < 0).all()
    assert stats.kstest(T.numpy(), stats.invgamma(alpha, scale=2.0).cdf).statistic <= 1 / (width + 1) + 1e-9


@pytest.mark.parametrize(("alpha", "scale"), [
    (0.05, 1.0), (0.1, 0.25), (0.56, 30.0), (1.0, 1.0), (5.0, 0.25), (20.0, 1.0), (50.0, 1.0), (1e4, 30.0),
])  # fmt: skip
def test_isf_equals_scipys(alpha, scale):
    q = torch.cat([torch.logspace(-8, -1, 30), torch.linspace(0.1, 0.999, 50)]).double()
    ours, theirs = inits.inverse_gamma_isf(q, alpha, scale), stats.invgamma.isf(q.numpy(), alpha, scale=scale)
    # For shapes above 20 torch's gammainc is a short asymptotic series near its middle: 2e-9 against SciPy's.
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=1e-10 if alpha <= 20 else 1e-9, atol=0)


# --- printed values ----------------------------------------------------------------------------------------------
def test_language_model_layer_2_as_published():
    init = InverseGamma(0.56, quantiles="authors")
    T, b = init.timescales(1150), init.bias(1150)
    assert [round(t) for t in T[:3].tolist()] == [359_932, 104_391, 50_607]
    assert T[-2].item() == pytest.approx(0.1739, abs=5.1e-5)
    assert T[-1] == 0.0
    assert b[:3].tolist() == pytest.approx([12.7937, 11.5559, 10.8318], abs=5.1e-5)
    assert b[-2].item() == pytest.approx(-5.7471, abs=5.1e-5)
    assert b[-1] == -math.inf
    assert T.quantile(0.5).item() == pytest.approx(3.57, abs=0.0051)
    for limit, share in ((1, 0.182), (3, 0.459), (10, 0.702), (20, 0.794)):
        assert (limit > T).double().mean().item() == pytest.approx(share, abs=5.1e-4)
    for limit, share in ((100, 0.084), (1000, 0.023), (10_000, 0.006)):
        assert (limit < T).double().mean().item() == pytest.approx(share, abs=5.1e-4)
    groups = [360_000, 320.7, 94.2, 45.6, 27.1, 18.0, 12.8, 9.6, 7.4, 5.9, 4.8, 3.9, 3.2, 2.7, 2.3, 1.9, 1.6, 1.4, 1.2]
    assert T[:950:50].tolist()[1:] == pytest.approx(groups[1:], abs=0.051)


def test_dyck_as_published():
    T = InverseGamma(1.5).timescales(256)  # interior quantiles, k/257: the Dyck-2 code drops both ends
    assert T[:4].tolist() == pytest.approx([33.0, 20.7, 15.7, 12.9], abs=0.051)
    assert T.quantile(0.5).item() == pytest.approx(0.85, abs=0.0051)
    assert (T > 20).sum() == 2
    assert T.max() < 75


@pytest.mark.parametrize(
    ("form", "printed"), [("eq5", (0.9273, 1.2587)), ("log_t_minus_1", (math.log(2), math.log(3)))]
)
def test_layer_1_as_published(form, printed):
    b = Assigned((3.0, 4.0), form).bias(1150)
    assert b[:575].tolist() == pytest.approx([printed[0]] * 575, abs=5.1e-5)
    assert b[575:].tolist() == pytest.approx([printed[1]] * 575, abs=5.1e-5)
    T = timescale_of_bias(b[[0, -1]]).tolist()
    assert pytest.approx([3.0, 4.0] if form == "eq5" else [2.47, 3.48], abs=0.0051) == T


@pytest.mark.parametrize(("width", "threes"), [(1, 1), (2, 1), (1151, 576), (1150, 575)])
def test_assigned_shares(width, threes):
    T = timescale_of_bias(Assigned((3.0, 4.0)).bias(width))
    torch.testing.assert_close(T, torch.tensor([3.0] * threes + [4.0] * (width - threes), dtype=torch.float64))


def test_eq5_and_its_inverse():
    T = torch.logspace(-2, 6, 200, dtype=torch.float64)
    b = inits.bias_of_timescale(T)
    torch.testing.assert_close(-1 / torch.sigmoid(b[40:120]).log(), T[40:120], rtol=1e-9, atol=0)
    torch.testing.assert_close(timescale_of_bias(b), T, rtol=1e-10, atol=0)


def test_ends_of_the_time_scales():
    ends = torch.tensor([0.0, math.inf])
    assert inits.inverse_gamma_isf(torch.tensor([0.0, 1.0]), 0.56).tolist() == [math.inf, 0.0]
    assert inits.bias_of_timescale(ends).tolist() == [-math.inf, math.inf]
    assert timescale_of_bias(torch.tensor([-math.inf, math.inf])).tolist() == ends.tolist()
    f = torch.tensor([0.0, math.exp(-1.0), 1.0], dtype=torch.float64)
    assert inits.timescale_of_gate(f).tolist() == [0.0, pytest.approx(1.0), math.inf]


@pytest.mark.parametrize("b", [1.0, -2.5, 0])
def test_constant(b):
    cell = cells.LSTMCell(2, 3, forget_init=b)
    assert cell.bias_total("forget").tolist() == [b] * 3
    others = draws(3, lambda: cells.LSTMCell(2, 3, forget_init=b).bias_ih[:3])
    same_distribution(others, stats.uniform(-(3**-0.5), 2 * 3**-0.5))


# --- where the bias goes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "init", [{"law": "chrono", "T_max": 20}, {"law": "inverse_gamma"}, {"law": "assigned"}], ids=lambda x: x["law"]
)
def test_a_tied_initializer_fills_one_bias_and_zeroes_the_other(init):
    torch.manual_seed(0)
    plain = cells.LSTMCell(4, 6)
    torch.manual_seed(0)
    cell = cells.LSTMCell(4, 6, forget_init=init)
    forget, entry = cell.rows("forget"), cell.rows("input")
    assert not cell.bias_ih[forget].any()
    assert not cell.bias_ih[entry].any()
    assert torch.equal(cell.bias_hh[entry], -cell.bias_hh[forget])
    for gate in ("cell", "output"):  # as torch drew them
        for key in ("bias_ih", "bias_hh"):
            assert torch.equal(getattr(cell, key)[cell.rows(gate)], getattr(plain, key)[cell.rows(gate)])
    assert torch.equal(cell.weight_ih, plain.weight_ih)
    assert torch.equal(cell.weight_hh, plain.weight_hh)
    assert all(p.requires_grad for p in cell.parameters())


@pytest.mark.parametrize(("kind", "counter"), [(cells.LSTMCell, "input"), (cells.URLSTMCell, "refine")])
def test_uniform_is_a_separate_vector(kind, counter):
    cell = kind(4, 6, forget_init="uniform")
    bare = kind(4, 6, forget_init="default")
    bare.load_state_dict({k: v for k, v in cell.state_dict().items() if k != "gate_bias"})
    assert cell.gate_bias.requires_grad
    assert cell.gate_bias.shape == (6,)
    for gate in cell.gates:
        sign = {"forget": 1.0, counter: -1.0}.get(gate, 0.0)
        torch.testing.assert_close(cell.bias_total(gate), bare.bias_total(gate) + sign * cell.gate_bias)
    output = cell.weights().bias_ih.sum()
    assert output.requires_grad


def test_mts_layers():
    torch.manual_seed(0)
    rnn = timescales.MTSLSTM(3, [10, 8, 4], 3)
    first, second, third = rnn.timescales()
    assert first.tolist() == pytest.approx([3.0] * 5 + [4.0] * 5, rel=1e-5)
    torch.testing.assert_close(second.double(), InverseGamma(0.56).timescales(8), rtol=1e-5, atol=0)
    assert (third < 3).all()  # free: torch's default, f near 1/2
    assert not rnn.layers[2].frozen
    published = timescales.MTSLSTM(3, [10, 8, 4], 3, layer1_bias="log_t_minus_1", quantiles="authors", alpha=0.56)
    assert published.layers[0].bias_total("forget").tolist() == pytest.approx([math.log(2)] * 5 + [math.log(3)] * 5)
    assert published.timescales()[1][-1] == 0.0


def test_mts_layers_with_another_timescale():
    torch.manual_seed(0)
    rnn = timescales.MTSLSTM(3, [10, 8, 4], 3, layer1_timescale=20, layer3_timescale=100, freeze_gates="ifgo")
    first, second, third = rnn.timescales()
    assert first.tolist() == pytest.approx([20.0] * 10, rel=1e-5)
    torch.testing.assert_close(second.double(), InverseGamma(0.56).timescales(8), rtol=1e-5, atol=0)
    assert third.tolist() == pytest.approx([100.0] * 4, rel=1e-4)
    assert [len(layer.frozen) for layer in rnn.layers] == [4, 4, 4]
    published = timescales.MTSLSTM(3, [10, 8, 4], 3, layer1_timescale=20, layer1_bias="log_t_minus_1")
    assert published.layers[0].bias_total("forget").tolist() == pytest.approx([math.log(19)] * 10)
    assert not published.layers[2].frozen


@pytest.mark.parametrize(("size", "hidden", "layers", "count"), [
    (4, 256, 1, 2 * 4 * 256), (5, [115, 115, 4], 3, 1_840),
], ids=["dyck", "small_language_model"])  # fmt: skip
def test_the_authors_code_freezes_whole_biases(size, hidden, layers, count):
    """2,048 of Dyck-2's 268,802 parameters, 1,840 of a language model of a tenth of the units get no gradient."""
    rnn = timescales.MTSLSTM(size, hidden, layers, freeze_gates="ifgo")
    biases = [p for key, p in rnn.named_parameters() if "bias" in key]
    output, state = rnn(torch.randn(2, 1, size))
    loss = sum(s.h.sum() + s.c.sum() for s in rnn.split_state(state)) + output.square().sum()
    gradients = torch.autograd.grad(loss, biases)
    assert sum((g == 0).sum().item() for g in gradients) == count
    paper = timescales.MTSLSTM(4, 16, 1)  # input and forget only
    loss = paper(torch.randn(2, 1, 4))[0].sum()
    gradients = torch.autograd.grad(loss, [paper.layers[0].bias_ih, paper.layers[0].bias_hh])
    assert all((g[:32] == 0).all() and (g[32:] != 0).all() for g in gradients)


@pytest.mark.parametrize("frozen", [(), ("input", "forget"), ("input", "forget", "cell", "output")])
def test_an_infinite_last_unit_stays_finite(frozen):
    torch.manual_seed(1)
    init = {"law": "inverse_gamma", "quantiles": "authors"}
    rnn = timescales.LSTM(3, 8, forget_init=init, frozen=frozen)
    x = torch.randn(6, 2, 3, requires_grad=True)
    output, after = rnn(x)
    (state,) = rnn.split_state(after)
    assert torch.isfinite(output).all()
    assert torch.isfinite(state.c).all()
    # f = 0 and i = 1: its cell is the last candidate.
    ih, hh, bias_ih, bias_hh = rnn.layers[0].weights()
    gates = rnn.layers[0].act(x[-1] @ ih.T + bias_ih, output[-2] @ hh.T + bias_hh, state)
    assert (gates.forget[:, -1] == 0).all()
    assert (gates.input[:, -1] == 1).all()
    torch.testing.assert_close(state.c[:, -1], gates.cell[:, -1])
    output.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in [x, *rnn.parameters()])


def test_weight_decay_leaves_no_nan_at_an_infinite_last_unit():
    """Weight decay times infinity: the paper's own recipe has decay 1.2e-6."""
    torch.manual_seed(1)
    rnn = timescales.MTSLSTM(3, 8, quantiles="authors")
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1, weight_decay=1.2e-6)
    rnn(torch.randn(6, 2, 3))[0].square().sum().backward()
    optimizer.step()
    assert not any(torch.isnan(p).any() for p in rnn.parameters())


# --- what a configuration may say --------------------------------------------------------------------------------
@pytest.mark.parametrize(("spec", "expected"), [
    (None, None), ("default", None), (1, Constant(1.0)), (-0.5, Constant(-0.5)), ("uniform", Uniform()),
    ("chrono_unknown", ChronoUnknown()), ("constant", Constant(1.0)), ({"law": "chrono", "T_max": 750}, Chrono(750)),
    ("inverse_gamma", InverseGamma(0.56, 1.0, "interior")), ("assigned", Assigned((3.0, 4.0), "eq5")),  # the papers'
    ({"law": "inverse_gamma", "alpha": 1.5, "quantiles": "authors"}, InverseGamma(1.5, 1.0, "authors")),
    ({"law": "assigned", "timescales": [3, 4]}, Assigned((3, 4))), (Chrono(9), Chrono(9)),
])  # fmt: skip
def test_forget_initializer_reads(spec, expected):
    assert inits.forget_initializer(spec) == expected


# --- what other cells draw ---------------------------------------------------------------------------------------
def uniform(low, high):
    return stats.uniform(low, high - low)


def decays(cell):
    """The squared radii of an LRU's eigenvalues."""
    return torch.exp(-2.0 / cell.timescales())


BOUND = 190**-0.5
URNN = functools.partial(cells.URNNCell, 20, 600)
NRU = functools.partial(cells.NRUCell, 3, 90, memory_size=100, heads=4)
MINLSTM = functools.partial(cells.MinLSTMCell, 1, 1151, **CHRONO)
RGLRU = functools.partial(cells.RGLRUCell, 3, 20_000, decay_init=(0.2, 0.7))
PHASED = functools.partial(cells.PhasedLSTMCell, 1, 1_000, period_init=(1, 3), shift_init=(0, 100))
# The cell, the numbers of it, and their distribution.
DRAWN = {
    "janet": (lambda: cells.JANETCell(1, 1151, **CHRONO), lambda c: c.bias_total("forget").exp(), uniform(1, 49)),
    "elstm": (lambda: cells.ELSTMCell(1, 1151, **CHRONO), lambda c: c.bias_total("forget").exp(), uniform(1, 49)),
    "mingru": (lambda: cells.MinGRUCell(1, 1151, **CHRONO), lambda c: c.bias_total("forget").exp(), uniform(1, 49)),
    "minlstm": (MINLSTM, lambda c: 1.0 / torch.expm1(1.0 / c.timescales()), uniform(1, 49)),
    "slstm": (lambda: cells.SLSTMCell(1, 1151, **CHRONO), lambda c: c.bias_total("forget").exp(), uniform(1, 49)),
    "leaky": (lambda: cells.LeakyRNNCell(1, 2001, T_max=400.0), lambda c: c.log_tau, uniform(0, math.log(400))),
    "indrnn": (lambda: cells.IndRNNCell(3, 20_000, u_init=(0.2, 0.7)), lambda c: c.u, uniform(0.2, 0.7)),
    "rglru": (RGLRU, lambda c: c.decay.double().sigmoid() ** 8, uniform(0.2, 0.7)),
    "paragru": (lambda: cells.ParaGRUCell(2, 10_000), lambda c: c.diagonal, stats.norm(0, 0.01)),
    "paralstm": (lambda: cells.ParaLSTMCell(2, 10_000), lambda c: c.diagonal, stats.norm(0, 0.01)),
    "paralstm's peephole": (lambda: cells.ParaLSTMCell(2, 10_000), lambda c: c.peephole, stats.norm(0, 0.01)),
    "lru": (lambda: cells.LRUCell(3, 2001, r_min=0.5, r_max=0.9, max_phase=1.0), decays, uniform(0.25, 0.81)),
    "lru's phase": (lambda: cells.LRUCell(3, 2001, max_phase=1.0), lambda c: c.theta_log.double().exp(), uniform(0, 1)),
    "lru's B": (lambda: cells.LRUCell(3, 2001), lambda c: c.weight_ih, stats.norm(0, 6**-0.5)),
    "sru": (lambda: cells.SRUCell(3, 80), lambda c: c.weight_output, uniform(-0.05, 0.05)),
    "urnn's phases": (URNN, lambda c: c.phases, uniform(-math.pi, math.pi)),
    "urnn's reflections": (URNN, lambda c: c.reflections, uniform(-((3 / 301) ** 0.5), (3 / 301) ** 0.5)),
    "urnn's start": (URNN, lambda c: c.start, uniform(-(0.005**0.5), 0.005**0.5)),
    "urnn's input": (URNN, lambda c: c.weight_ih, uniform(-((6 / 620) ** 0.5), (6 / 620) ** 0.5)),
    "eurnn": (lambda: cells.EURNNCell(20, 800), lambda c: c.theta, uniform(-math.pi, math.pi)),
    "eurnn's phi": (lambda: cells.EURNNCell(20, 800), lambda c: c.phi, uniform(-math.pi, math.pi)),
    "eurnn's phases": (lambda: cells.EURNNCell(20, 800), lambda c: c.phases, uniform(-math.pi, math.pi)),
    "eurnn's input": (lambda: cells.EURNNCell(20, 800), lambda c: c.weight_ih, uniform(-0.01, 0.01)),
    "goru": (lambda: cells.GORUCell(20, 200, capacity=4), lambda c: c.theta, uniform(-math.pi, math.pi)),
    "goru's weights": (lambda: cells.GORUCell(20, 200), lambda c: c.weight_hh, uniform(-0.01, 0.01)),
    "nru's strengths": (NRU, lambda c: 10 * c.weight_heads[:8], uniform(-BOUND, BOUND)),
    "nru's factors": (NRU, lambda c: c.weight_heads[8:], uniform(-BOUND, BOUND)),
    "nru's memory": (NRU, lambda c: c.weight_memory, uniform(-(193**-0.5), 193**-0.5)),
    "phased": (lambda: cells.PhasedLSTMCell(1, 1_000), lambda c: c.period.log(), uniform(0, 3)),
    "phased's shift": (lambda: cells.PhasedLSTMCell(1, 1_000), lambda c: c.shift / c.period, uniform(0, 1)),
    "phased's peephole": (lambda: cells.PhasedLSTMCell(1, 1_000), lambda c: c.peephole_forget, stats.norm(0, 0.1)),
    "phased, other arguments": (PHASED, lambda c: c.shift, uniform(0, 100)),
    "surnn": (lambda: cells.SuRNNCell(1, 500), lambda c: c.amplitude, stats.norm(0, 1)),
    "surnn's phase": (lambda: cells.SuRNNCell(1, 500), lambda c: c.phase, uniform(0, 2 * math.pi)),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_a_cell_draws(name):
    make, numbers, distribution = DRAWN[name]
    torch.manual_seed(0)
    same_distribution(numbers(make()).detach().double().flatten(), distribution)


def test_numbers_that_are_not_drawn():
    assert not cells.JANETCell(1, 40, **CHRONO).bias_total("cell").any()
    separate = cells.ELSTMCell(1, 40, coupled=False, **CHRONO)
    assert torch.equal(separate.bias_total("input"), -separate.bias_total("forget"))
    for name in ("JANET", "ELSTM", "MinGRU", "MinLSTM"):  # without T_max torch's default
        bias = getattr(timescales, name)(1, 99).layers[0].bias_total("forget")
        assert 0 < bias.abs().max() < 1 / math.sqrt(99)
    assert torch.equal(timescales.LeakyRNN(1, 3, T_max=1.0).timescales()[0], torch.ones(3))
    for kind in (cells.ParaGRUCell, cells.ParaLSTMCell):
        cell = kind(2, 9, forget_init=2.0)
        assert cell.timescales()[0].item() == pytest.approx(1.0 / math.log1p(math.exp(-2.0)), rel=1e-5)
    assert cells.RGLRUCell(3, 1000).decay.sigmoid().pow(8.0).min() >= 0.9
    squared = decays(cells.LRUCell(3, 200, r_min=0.5, r_max=0.9))
    lru = cells.LRUCell(3, 20_001)
    assert all(p.isfinite().all() for p in lru.parameters())
    torch.testing.assert_close(lru.gamma_log.exp().square(), 1.0 - decays(lru), rtol=1e-3, atol=1e-5)
    assert squared.min() >= 0.25 - 1e-6
    assert not lru.bias.any()
    assert cells.LRUCell(1, 3, r_min=1.0).timescales().min() > 1e11  # a radius of 1, as far as gamma can be positive
    assert cells.EURNNCell(20, 800).theta.shape == (399,)  # 200 pairs, and 199 between them
    assert not cells.EURNNCell(20, 800).bias.any()
    goru = cells.GORUCell(20, 200, capacity=4)
    assert goru.bias.view(3, 200).unique(dim=1).flatten().tolist() == pytest.approx([0.0, 2.0, 0.01])
    assert goru.theta.shape == (2 * 100 + 2 * 99,)
    assert goru.timescales().tolist() == pytest.approx([1 / math.log(2)] * 200)
    assert sum(p.numel() for p in URNN().parameters()) == 20 * 600 + 7 * 300 + 300 + 600
    # Six linear maps of torch as the released code has them, which gives 212 units and a memory of 256 for digits
    count = sum(p.numel() for p in cells.NRUCell(1, 212, memory_size=256, heads=4).parameters())
    assert count == 212 * (1 + 212 + 256 + 1) + (4 * 32 + 2 * 4) * (212 + 256 + 1)
    assert cells.PhasedLSTMCell(1, 9).open_ratio.unique().tolist() == pytest.approx([0.05])
    assert "open_ratio" not in dict(cells.PhasedLSTMCell(1, 9).named_parameters())
    surnn = cells.SuRNNCell(1, 500)
    assert surnn.amplitude.shape == surnn.phase.shape == (2_000,)
    assert not surnn.switch_bias.any()
    low, high = surnn.timescales().quantile(torch.tensor([0.1, 0.9])).tolist()
    assert 1.5 < low < 2.5 < 8.0 < high < 20.0
    slstm = cells.SLSTMCell(1, 500, **CHRONO)
    assert slstm.bias_total("input").abs().max() <= 500**-0.5


@pytest.mark.parametrize("skew_init", ["cayley", "henaff"])
def test_angles_of_an_exprnn(skew_init):
    torch.manual_seed(0)
    A = torch.zeros(2001, 2001)
    cell = cells.ExpRNNCell(1, 2001, skew_init=skew_init)
    j, k = torch.tril_indices(2001, 2001, -1)
    A[j, k] = cell.skew.detach()
    angles = A[A != 0]
    assert len(angles) == 1000  # the odd one out has none
    assert 0.009 < cell.bias.abs().max() <= 0.01
    assert torch.equal(A.diagonal(-1)[::2], angles)
    if skew_init == "henaff":
        same_distribution(angles.double(), uniform(-math.pi, math.pi))
    else:  # s = sqrt((1 - cos v) / (1 + cos v)) = tan(v / 2), v ~ U(0, pi / 2)
        same_distribution(angles.double(), lambda s: 4 / math.pi * np.arctan(s))


def test_what_an_rmc_draws():
    """Normal with deviation 1/sqrt(fan-in), cut at two of them; biases 0, gains 1. f = sigmoid(1) at zero input."""
    torch.manual_seed(0)
    cell = cells.RMCCell(30, 120, memories=2, heads=2, key_size=7, blocks=2)
    for name, parameter in cell.named_parameters():
        if parameter.dim() == 2:
            standard = parameter.detach().double().flatten() * math.sqrt(parameter.shape[1])
            same_distribution(standard, stats.truncnorm(-2, 2))
            assert standard.abs().max() <= 2.0
        else:
            assert (parameter == (0.0 if "bias" in name else 1.0)).all(), name
    for style, rows in (("unit", 12), ("memory", 4)):
        cell = cells.RMCCell(3, 12, memories=4, gate_style=style)
        assert cell.height("forget") == rows
        torch.testing.assert_close(cell.timescales(), torch.full((12,), 1 / math.log1p(math.exp(-1))))
