"""Initializers of the forget bias against their distributions and the papers' printed values."""

import math

import pytest
import torch
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.nn.cells import GRUCell, JANETCell, LSTMCell, PGRUCell, PLSTMCell, URLSTMCell
from timescales.nn.inits import (
    Assigned,
    Chrono,
    ChronoUnknown,
    Constant,
    InverseGamma,
    Uniform,
    bias_of_timescale,
    forget_initializer,
    inverse_gamma_isf,
    timescale_of_bias,
    timescale_of_gate,
)

WIDTHS = [1, 2, 1151]


def draws(width, one):
    """At least 1,151 values from layers of `width` units; one() gives the (width,) values of a new layer."""
    torch.manual_seed(width)
    return torch.cat([one().detach().double().flatten() for _ in range(-(-1151 // width))]).numpy()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("T_max", [3, 30.5, 750])
def test_chrono_is_the_log_of_a_uniform(width, T_max):
    same_distribution(draws(width, lambda: Chrono(T_max).bias(width).exp()), stats.uniform(1, T_max - 2))


@pytest.mark.parametrize("width", WIDTHS)
def test_chrono_reaches_the_cells_biases(width):
    def cell():
        return LSTMCell(1, width, forget_init={"law": "chrono", "T_max": 50})

    same_distribution(draws(width, lambda: cell().bias_total("forget").exp()), stats.uniform(1, 48))
    same_distribution(draws(width, lambda: (-cell().bias_total("input")).exp()), stats.uniform(1, 48))


@pytest.mark.parametrize("width", WIDTHS)
def test_uniform_gate_init(width):
    """f = sigmoid(b) uniform on [1/n, 1 - 1/n]; one or two units leave no width, f = 1/2."""
    f = draws(width, lambda: Uniform().bias(width).sigmoid())
    if width <= 2:
        assert abs(f - 0.5).max() < 1e-12
    else:
        same_distribution(f, stats.uniform(1 / width, 1 - 2 / width))
        assert f.min() >= 1 / width - 1e-12
        assert f.max() <= 1 - 1 / width + 1e-12


def test_uniform_gate_init_of_a_small_layer():
    same_distribution(draws(4, lambda: URLSTMCell(1, 4).gate_bias.sigmoid()), stats.uniform(0.25, 0.5))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.2, 0.4)])
def test_powers_are_uniform(width, low, high):
    def powers():
        return PLSTMCell(1, width, power_init=(low, high)).p

    p = draws(width, powers)
    same_distribution(p, stats.uniform(low, high - low))
    assert p.min() >= max(low, 1e-4) * (1 - 1e-4)
    assert p.max() <= min(high, 1 - 1e-4) + 1e-6


def test_powers_stay_inside_the_open_interval():
    cells = [PLSTMCell(1, 50, power_init=ends) for ends in ((0.0, 0.0), (1.0, 1.0))]
    assert torch.isfinite(torch.cat([cell.power for cell in cells])).all()
    torch.testing.assert_close(cells[0].p, torch.full((50,), 1e-4), rtol=1e-3, atol=0)
    torch.testing.assert_close(cells[1].p, torch.full((50,), 1 - 1e-4), rtol=1e-6, atol=0)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [LSTMCell, URLSTMCell, PLSTMCell, GRUCell, JANETCell, PGRUCell])
def test_everything_else_is_uniform_on_1_over_sqrt_h(kind, width):
    torch.manual_seed(width)
    cells = [kind(3, width) for _ in range(-(-400 // width))]
    bound = 1 / math.sqrt(width)
    for key in {key for key, _ in cells[0].named_parameters()} - {"power", "gate_bias"}:
        sample = torch.cat([getattr(cell, key).detach().flatten()[:4000] for cell in cells]).double().numpy()
        assert abs(sample).max() <= bound
        same_distribution(sample, stats.uniform(-bound, 2 * bound))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("alpha", [0.56, 1.5])
def test_inverse_gamma_quantiles_are_the_distribution(width, alpha):
    """Quantiles, not samples: the distribution function at T_k is 1 - k/(n+1) exactly, its KS distance 1/(n+1)."""
    T = InverseGamma(alpha, 2.0).timescales(width)
    expected = stats.invgamma(alpha, scale=2.0).isf(torch.arange(1, width + 1).numpy() / (width + 1))
    torch.testing.assert_close(T, torch.from_numpy(expected), rtol=1e-10, atol=0)
    assert (T.diff() < 0).all()
    assert stats.kstest(T.numpy(), stats.invgamma(alpha, scale=2.0).cdf).statistic <= 1 / (width + 1) + 1e-9


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.56, 1.0, 1.4, 5.0, 20.0, 50.0, 1e4])
@pytest.mark.parametrize("scale", [1.0, 0.25, 30.0])
def test_isf_equals_scipys(alpha, scale):
    q = torch.cat([torch.logspace(-8, -1, 30), torch.linspace(0.1, 0.999, 50)]).double()
    ours, theirs = inverse_gamma_isf(q, alpha, scale), stats.invgamma.isf(q.numpy(), alpha, scale=scale)
    # For shapes above 20 torch's gammainc is a short asymptotic series near its middle: 2e-9 against SciPy's.
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=1e-10 if alpha <= 20 else 1e-9, atol=0)


def test_isf_at_the_ends():
    assert inverse_gamma_isf(torch.tensor([0.0, 1.0]), 0.56).tolist() == [math.inf, 0.0]


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
    b = bias_of_timescale(T)
    torch.testing.assert_close(-1 / torch.sigmoid(b[40:120]).log(), T[40:120], rtol=1e-9, atol=0)
    torch.testing.assert_close(timescale_of_bias(b), T, rtol=1e-10, atol=0)
    assert bias_of_timescale(torch.tensor([0.0, math.inf])).tolist() == [-math.inf, math.inf]
    assert timescale_of_bias(torch.tensor([-math.inf, math.inf])).tolist() == [0.0, math.inf]


def test_ends_of_the_time_scales():
    f = torch.tensor([0.0, math.exp(-1.0), 1.0], dtype=torch.float64)
    assert timescale_of_gate(f).tolist() == [0.0, pytest.approx(1.0), math.inf]


@pytest.mark.parametrize("b", [1.0, -2.5, 0])
def test_constant(b):
    cell = LSTMCell(2, 3, forget_init=b)
    assert cell.bias_total("forget").tolist() == [b] * 3
    same_distribution(
        draws(3, lambda: LSTMCell(2, 3, forget_init=b).bias_ih[:3]), stats.uniform(-(3**-0.5), 2 * 3**-0.5)
    )


# --- where the bias goes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "init", [{"law": "chrono", "T_max": 20}, {"law": "inverse_gamma"}, {"law": "assigned"}], ids=lambda x: x["law"]
)
def test_a_tied_initializer_fills_one_bias_and_zeroes_the_other(init):
    torch.manual_seed(0)
    plain = LSTMCell(4, 6)
    torch.manual_seed(0)
    cell = LSTMCell(4, 6, forget_init=init)
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


def test_a_constant_leaves_the_other_gates_alone():
    torch.manual_seed(0)
    plain = LSTMCell(4, 6)
    torch.manual_seed(0)
    cell = LSTMCell(4, 6, forget_init=1.0)
    for gate in ("input", "cell", "output"):
        assert torch.equal(cell.bias_total(gate), plain.bias_total(gate))


@pytest.mark.parametrize(("kind", "counter"), [(LSTMCell, "input"), (URLSTMCell, "refine")])
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


def test_ur_writes_other_initializers_to_its_bias():
    cell = URLSTMCell(4, 6, forget_init={"law": "chrono", "T_max": 20})
    assert cell.gate_bias is None
    assert torch.equal(cell.bias_total("refine"), -cell.bias_total("forget"))


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


@pytest.mark.parametrize(
    ("size", "hidden", "layers", "count"),
    [
        (4, 256, 1, 2 * 4 * 256),
        (5, [115, 115, 4], 3, 1_840),
        pytest.param(5, [1150, 1150, 4], 3, 18_400, marks=pytest.mark.full),
    ],
    ids=["dyck", "small_language_model", "language_model"],
)
def test_the_authors_code_freezes_whole_biases(size, hidden, layers, count):
    """2,048 of Dyck-2's 268,802 parameters, 18,400 of the language model's: these never get a gradient."""
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
    gates = rnn.layers[0].act(
        torch.nn.functional.linear(x[-1], rnn.layers[0].weight_ih, rnn.layers[0].weights().bias_ih),
        torch.nn.functional.linear(output[-2], rnn.layers[0].weight_hh, rnn.layers[0].weights().bias_hh),
        state,
    )
    assert (gates.forget[:, -1] == 0).all()
    assert (gates.input[:, -1] == 1).all()
    torch.testing.assert_close(state.c[:, -1], gates.cell[:, -1])
    output.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in [x, *rnn.parameters()])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_an_infinite_last_unit_leaves_no_nan_in_the_parameters(optimizer):
    """Weight decay times infinity: the paper's own recipe has decay 1.2e-6."""
    torch.manual_seed(1)
    rnn = timescales.MTSLSTM(3, 8, quantiles="authors")
    opt = optimizer(rnn.parameters(), lr=0.1, weight_decay=1.2e-6)
    rnn(torch.randn(6, 2, 3))[0].square().sum().backward()
    opt.step()
    assert not any(torch.isnan(p).any() for p in rnn.parameters())


# --- what a configuration may say --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, None),
        ("default", None),
        (1, Constant(1.0)),
        (-0.5, Constant(-0.5)),
        ("uniform", Uniform()),
        ("chrono_unknown", ChronoUnknown()),
        ("inverse_gamma", InverseGamma()),
        ({"law": "chrono", "T_max": 750}, Chrono(750)),
        ({"law": "inverse_gamma", "alpha": 1.5, "quantiles": "authors"}, InverseGamma(1.5, 1.0, "authors")),
        ({"law": "assigned", "timescales": [3, 4]}, Assigned((3, 4))),
        (Chrono(9), Chrono(9)),
    ],
)
def test_forget_initializer_reads(spec, expected):
    assert forget_initializer(spec) == expected


def test_an_initializer_without_arguments_is_the_papers():
    assert forget_initializer("inverse_gamma") == InverseGamma(0.56, 1.0, "interior")
    assert forget_initializer("assigned") == Assigned((3.0, 4.0), "eq5")
    assert forget_initializer("constant") == Constant(1.0)


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        ("chrno", "chrono"),
        (True, "chrono"),
        ({"T_max": 750}, "chrono"),
        ({"law": None}, "chrono"),
        (["chrono"], "chrono"),
        ({"law": ["chrono"]}, "chrono"),
        ("chrono", "T_max"),
        ({"law": "chrono"}, "T_max"),
        ({"law": "chrono", "T_max": 750, "alpha": 1}, "alpha"),
        ({"law": "chrono", "t_max": 750}, "T_max"),
        ({"law": "chrono", "T_max": 2}, "above 2"),
        ({"law": "chrono", "T_max": -5}, "above 2"),
        ({"law": "chrono", "T_max": "auto"}, "above 2"),
        ({"law": "chrono", "T_max": True}, "above 2"),
        ({"law": "chrono", "T_max": math.nan}, "above 2"),
        ({"law": "chrono", "T_max": math.inf}, "above 2"),
        ({"law": "uniform", "low": 0}, "low"),
        ({"law": "inverse_gamma", "alpha": 0}, "above 0"),
        ({"law": "inverse_gamma", "alpha": -1.0}, "above 0"),
        ({"law": "inverse_gamma", "scale": 0.0}, "above 0"),
        ({"law": "inverse_gamma", "alpha": math.nan}, "above 0"),
        ({"law": "inverse_gamma", "alpha": math.inf}, "above 0"),
        ({"law": "inverse_gamma", "alpha": "large"}, "above 0"),
        ({"law": "inverse_gamma", "alpha": 0.04}, "between 0.05 and 10000"),
        ({"law": "inverse_gamma", "alpha": 1e6}, "between 0.05 and 10000"),
        ({"law": "inverse_gamma", "quantiles": "both"}, "interior or authors"),
        ({"law": "assigned", "timescales": []}, "above 0"),
        ({"law": "assigned", "timescales": [3, 0]}, "above 0"),
        ({"law": "assigned", "timescales": [3, "4"]}, "above 0"),
        ({"law": "assigned", "timescales": 3}, "above 0"),
        ({"law": "assigned", "timescales": [1, 4], "form": "log_t_minus_1"}, "above 1"),
        ({"law": "assigned", "form": "eq6"}, "eq5 or log_t_minus_1"),
        ({"law": "constant", "b": "one"}, "number"),
        ({"law": "constant", "b": math.nan}, "number"),
        (math.nan, "number"),
        (math.inf, "number"),
    ],
    ids=str,
)
def test_a_bad_initializer_says_what_to_write(spec, fix):
    with pytest.raises(ValueError, match=fix):
        LSTMCell(2, 3, forget_init=spec)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"num_layers": 2}, "1 or 3 layers"),
        ({"freeze_gates": "fi"}, "if or ifgo"),
        ({"alpha": 0}, "above 0"),
        ({"quantiles": "ends"}, "interior or authors"),
        ({"num_layers": 3, "layer1_bias": "log"}, "eq5 or log_t_minus_1"),
        ({"layer1_timescale": 20}, "need num_layers=3"),
        ({"num_layers": 3, "layer3_timescale": 0}, "numbers above 0"),
    ],
)
def test_mts_says_what_its_arguments_must_be(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.MTSLSTM(3, 4, **arguments)
