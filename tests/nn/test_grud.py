"""GRU-D against its equations in NumPy; missing inputs, time scales, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state
from own_reference import check_gradients, compare, moved

import timescales
from timescales.nn.cells import GRUDCell

FLAGS = {"two": ((0, 2), (1, 3)), "third": ((2, 1),), "none": ()}  # of I = 4 inputs


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def fade(z):
    return np.exp(-np.maximum(0.0, z))


def reference(own, x, state, dt):
    """Che et al. 2018, Eqs. 10 to 17, with the mean 0; V, the weights of the flags, are columns of W."""
    flags = reference.flags
    known = np.array([x[k] for _, k in flags])
    h, since = state["h"], state["since"] + dt
    last, x = state["last"].copy(), x.copy()
    for k, (d, _) in enumerate(flags):
        faded = fade(own["fade_x_weight"][k] * since[k] + own["fade_x_bias"][k]) * last[k]
        last[k], x[d] = known[k] * x[d] + (1 - known[k]) * last[k], x[d] + (1 - known[k]) * faded
    (W_r, W_z, W), (U_r, U_z, U), (b_r, b_z, b) = (np.split(own[k], 3) for k in ("weight_ih", "weight_hh", "bias"))
    h = fade(own["fade_h_weight"] @ since + own["fade_h_bias"]) * h
    r = sigmoid(W_r @ x + U_r @ h + b_r)
    z = sigmoid(W_z @ x + U_z @ h + b_z)
    h = (1 - z) * h + z * np.tanh(W @ x + U @ (r * h) + b)
    return {"h": h, "last": last, "since": (1 - known) * since if flags else state["since"]}


def missing(cell, x):
    """x, in which the flags are 0 and 1 and missing inputs 0."""
    x = x.clone()
    for k, flag in cell.flags:
        x[..., flag] = (x[..., flag] > 0).to(x.dtype)
        x[..., k] *= x[..., flag]
    return x


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(flags, timed, masked, monkeypatch):
    reference.flags = FLAGS[flags]
    cell = moved(GRUDCell(I, H, flags=FLAGS[flags]))
    state = random_state(cell, B)
    state = state._replace(since=state.since.abs())

    def given(**more):
        x, *rest = random_input(**more)
        return missing(cell, x), *rest

    monkeypatch.setattr("own_reference.random_input", given)
    compare(reference, cell, timed, masked, state, tolerance=1e-11)


@pytest.mark.parametrize("flags", FLAGS)
def test_gradients(flags):
    cell = moved(GRUDCell(4, 3, flags=FLAGS[flags]))
    check_gradients(cell, random_state(cell, 2))


def test_a_missing_input_is_its_last_number_until_it_fades():
    """Without fading of either, a sequence whose input is missing from the second step on is one of constant input."""
    cell = moved(GRUDCell(2, H, flags=[[0, 1]]))
    with torch.no_grad():
        for name in ("fade_x", "fade_h"):
            getattr(cell, f"{name}_weight").zero_()
            getattr(cell, f"{name}_bias").fill_(-1.0)
        cell.weight_ih[:, 1] = 0.0  # the flag itself
        rnn = timescales.RNN([cell])
        x = torch.zeros(5, 1, 2, dtype=torch.float64)
        x[0] = torch.tensor([0.7, 1.0], dtype=torch.float64)
        always = torch.tensor([0.7, 1.0], dtype=torch.float64).expand(5, 1, 2)
        close(rnn(x)[0], rnn(always)[0])
        cell.fade_x_weight.fill_(0.5)  # fade exp(-max(0, .5 d - 1)): of the fourth step, d = 3, exp(-.5)
        _, state = rnn(x[:3])
        gx = cell.act(torch.nn.functional.linear(x[3], *cell.weights()[::2]), None, state_of(cell, state))
        x[3] = torch.tensor([0.7 * np.exp(-0.5), 1.0], dtype=torch.float64)
        known = cell.act(torch.nn.functional.linear(x[3], *cell.weights()[::2]), None, state_of(cell, state))
        close(gx.cell, known.cell)
    assert (state.last.item(), state.since.item()) == (pytest.approx(0.7), 2.0)


def state_of(cell, state):
    """The state of a single layer's only cell."""
    return cell.State(state.h[0], state.last[0], state.since[0])


def test_the_flags_of_a_series_are_those_of_the_first_layer():
    rnn = timescales.GRUD(5, H, 2, flags=[[0, 4], [2, 3]])
    assert [cell.flags for cell in rnn.layers] == [[(0, 4), (2, 3)], []]
    output, state = rnn(torch.randn(3, B, 5))
    output.sum().backward()
    assert output.shape == (3, B, H)
    assert [tuple(each.shape) for each in state.last] == [(B, 2), (B, 1)]
    assert all(p.grad is not None for name, p in rnn.named_parameters() if "fade" not in name)


def test_time_scales():
    """What is kept of h in a step of zero input and state, as measured."""
    cell = moved(GRUDCell(2, 3, flags=[[0, 1]]))
    with torch.no_grad():
        x = torch.tensor([0.0, 1.0], dtype=torch.float64)  # known
        kept = cell.act(torch.nn.functional.linear(x, *cell.weights()[::2]), None, cell.initial_state()).forget
    assert cell.timescales().tolist() == pytest.approx((-1.0 / kept.log()).tolist())


@pytest.mark.parametrize(
    "flags", [[2], [[0, 0]], [[0, -1]], [[True, 2]], [[0, 3]], 3, "ab", [[0, 1, 2]], [[0, 1], [1, 2]], [[[0], 1]]]
)
def test_wrong_flags(flags):
    with pytest.raises(ValueError, match="flags"):
        timescales.GRUD(3, H, flags=flags)
