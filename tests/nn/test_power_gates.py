"""The forget gates of the pLSTM, the pGRU and the UR-LSTM against closed forms and numbers printed in the papers."""

import pytest
import torch
from cell_cases import close

import timescales
from timescales.models.sequence import SequenceModel
from timescales.nn.cells import PGRUCell, PLSTMCell
from timescales.tasks import Spec


def plstm_gate(age, r, p, epsilon, dt=1.0, form="paper", dtype=torch.float64):
    """The activations of a pLSTM at a given reset gate; r = 0 and r = 1 are reached by saturation."""
    age, r = torch.broadcast_tensors(torch.as_tensor(age, dtype=dtype), torch.as_tensor(r, dtype=torch.float64))
    cell = PLSTMCell(1, r.numel(), power=p, epsilon=epsilon, epsilon_form=form).to(dtype)
    z = torch.logit(r).clamp(-1e4, 1e4).reshape(-1)
    zero = torch.zeros_like(z).to(dtype)
    gx = torch.cat([z.to(dtype), zero, zero])
    return cell.act(gx, torch.zeros_like(gx), cell.State(zero, zero, age.reshape(-1)), dt)


@pytest.mark.parametrize(
    ("age", "dt", "r", "p", "epsilon", "new_age", "f"),
    [
        (0, 1, 0.5, 0.5, 1e-3, 0.5, 0.57792733),
        (0, 1, 0, 0.3, 1e-3, 1, 0.81249599),
        (0, 1, 1, 0.3, 1e-3, 0, 0.12589254),
        (199, 1, 0, 0.3, 1e-3, 200, 0.99850635),
        (199, 1, 0.01, 0.3, 1e-3, 198, 0.99849132),
        (9, 1, 0.9, 0.2, 1e-3, 1, 0.87072460),
        (0, 0.1, 0.5, 0.5, 1e-5, 0.05, 0.69007246),
        (3.7, 2.5, 0.2, 0.4, 1e-5, 4.96, 0.83171991),
        (50, 0.01, 0, 0.3, 1e-5, 50.01, 0.99994124),
        (50, 0.01, 1, 0.3, 1e-5, 0, 0.03162278),
    ],
)
def test_printed_numbers_of_the_paper(age, dt, r, p, epsilon, new_age, f):
    gates = plstm_gate(age, r, p, epsilon, dt)
    assert gates.age.item() == pytest.approx(new_age, abs=1e-12)
    assert gates.forget.item() == pytest.approx(f, abs=6e-9)  # eight printed digits
    assert gates.input.item() == pytest.approx(1 - f, abs=6e-9)


@pytest.mark.parametrize(("r", "p", "new_age", "f"), [(0.5, 0.5, 0.5005, 0.57811930), (1, 0.3, 0.001, 0.15494543)])
def test_printed_numbers_of_the_authors_form(r, p, new_age, f):
    gates = plstm_gate(0, r, p, 1e-3, form="authors")
    assert gates.age.item() == pytest.approx(new_age, abs=1e-12)
    assert gates.forget.item() == pytest.approx(f, abs=6e-9)


@pytest.mark.parametrize(
    ("p", "floor", "authors", "small", "steepest"),
    [
        (0.01, ".933", ".940", ".891", "9.3"),
        (0.2, ".251", ".288", ".100", "50.2"),
        (0.5, ".0316", ".0447", ".0032", "15.8"),
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
def test_printed_counts_of_parameters(kind, size, hidden, outputs, count):
    spec = Spec("one_hot" if size == 10 else "real", size, outputs, "all" if size == 10 else "last", horizon=100)
    model = SequenceModel(getattr(timescales, kind)(size, hidden), spec)
    assert sum(p.numel() for p in model.parameters()) == count
