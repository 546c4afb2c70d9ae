"""RNN: torch.nn.LSTM's calling convention, layers, masks, dropout; the state as a caller sees it."""

import copy
import io
import itertools
import pickle

import pytest
import rnn_cases
import torch
from rnn_cases import KINDS, B, H, I, S, build, close, close_state, layered, random_input, with_fields
from torch.utils._pytree import tree_leaves, tree_map

import timescales
from timescales import RNNState
from timescales.nn.cells import LSTMCell, PLSTMCell
from timescales.nn.engine import eager
from timescales.nn.rnn import RNN


@pytest.mark.parametrize("kind", KINDS)
def test_layers_read_the_layer_below(kind):
    rnn = layered(kind)
    x, dt = random_input()
    output, state = rnn(x, dt=dt)
    for cell, expected in zip(rnn.layers, rnn.split_state(state), strict=True):
        x, last = eager.run(cell, x, cell.weights(), cell.initial_state(B), dt)
        assert isinstance(expected, cell.State)
        assert all(v.shape == (B, cell.width(name)) for name, v in expected._asdict().items())
        close_state([last], [expected])
    close(x, output)
    assert torch.equal(output[-1], rnn.split_state(state)[-1].h)


@pytest.mark.parametrize("kind", sorted({name for name, _ in KINDS.values()}))
def test_hidden_size_per_layer(kind):
    rnn = build(kind, I, [8, 6, 2], 3)
    assert [(c.input_size, c.hidden_size) for c in rnn.layers] == [(4, 8), (8, 6), (6, 2)]
    assert (rnn.input_size, rnn.hidden_size) == (4, 2)
    output, state = rnn(random_input()[0])
    assert output.shape == (S, B, 2)
    assert [s.h.shape[-1] for s in rnn.split_state(state)] == [8, 6, 2]
    assert [t.shape for t in rnn.timescales()] == [(8,), (6,), (2,)]
    assert not any(t.requires_grad for t in rnn.timescales())


@pytest.mark.parametrize("kind", KINDS)
def test_batch_first(kind):
    rnn, turned = layered(kind), layered(kind, batch_first=True)
    x, dt = random_input()
    mask = torch.rand(S, B, generator=torch.Generator().manual_seed(3)) < 0.7
    output, state = rnn(x, dt=dt, mask=mask)
    other, other_state = turned(x.transpose(0, 1), dt=dt.T, mask=mask.T)
    close(other, output.transpose(0, 1))
    close_state(other_state, state)


def test_one_initializer_for_all_layers_or_one_each():
    same = timescales.LSTM(I, H, 2, forget_init=1.0, frozen=("forget",))
    assert all((cell.bias_total("forget") == 1).all() and cell.frozen == ("forget",) for cell in same.layers)
    each = timescales.LSTM(I, H, 2, forget_init=[1.0, "default"], frozen=[("input", "forget"), ()])
    assert (each.layers[0].bias_total("forget") == 1).all()
    assert (each.layers[1].bias_total("forget") != 1).all()
    assert [cell.frozen for cell in each.layers] == [("input", "forget"), ()]


def test_an_rnn_of_mixed_cells():
    rnn = RNN([LSTMCell(I, 3), PLSTMCell(3, 2)]).double()
    output, state = rnn(random_input()[0])
    assert output.shape == (S, B, 2)
    assert [s._fields for s in rnn.split_state(state)] == [("h", "c"), ("h", "c", "age")]
    assert state.h[1].shape == state.age[1].shape == (B, 2)
    assert state.age[0] is None
    close(rnn(random_input()[0], state.detach())[0], rnn(random_input()[0], state)[0])


PADDING = ("front", "middle", "end", "scattered")


@pytest.mark.parametrize(("kind", "where"), [*zip(KINDS, itertools.cycle(PADDING), strict=False)])
def test_padding_changes_nothing(kind, where):
    """Padded steps hold garbage input and dt; the output there is the held h, elsewhere as without them."""
    rnn = layered(kind)
    x, dt = random_input(5, B)
    _, state = rnn(*random_input(2, B, seed=8)[:1])
    real = {"front": [3, 4, 5, 6, 7], "middle": [0, 1, 5, 6, 7], "end": [0, 1, 2, 3, 4], "scattered": [1, 3, 4, 6, 7]}
    padded, padded_dt = (100 * v for v in random_input(8, B, seed=9))
    mask = torch.zeros(8, B)
    padded[real[where]], padded_dt[real[where]], mask[real[where]] = x, dt, 1
    for before in (None, state):
        expected, end = rnn(x, before, dt=dt)
        output, after = rnn(padded, before, dt=padded_dt, mask=mask)
        close_state(after, end)
        close(output[real[where]], expected)
        for other in (mask.bool(), mask.long()):
            assert torch.equal(rnn(padded, before, dt=padded_dt, mask=other)[0], output)
        held = (rnn.layers[-1].initial_state(B) if before is None else rnn.split_state(before)[-1]).h
        for t in range(8):
            if t not in real[where]:
                assert torch.equal(output[t], held)
            held = output[t]


# The fused engine makes the share of 32 or more inputs ahead, for many steps at once.
ENGINES = [(kind, "eager", I) for kind in KINDS]
ENGINES += [
    (kind, "auto", 40 if k % 2 else I) for k, kind in enumerate(KINDS) if KINDS[kind][0] not in rnn_cases.NO_KERNEL
]


@pytest.mark.parametrize(("kind", "engine", "inputs"), ENGINES)
def test_what_stands_at_padding_reaches_no_gradient(kind, engine, inputs):
    """Neither NaN nor infinity, of which 0 times either is NaN, nor a dt below 0, which is refused elsewhere."""
    rnn = build(kind, inputs, H, 3, engine=engine).float()
    x, dt = (v.float() for v in random_input(size=inputs))
    mask = torch.ones(S, B)
    mask[:2, 1] = mask[4, 0] = 0
    found = []
    for garbage in (0.0, torch.nan, torch.inf, -1.0):
        nothing = mask == 0
        padded, padded_dt = x.clone().requires_grad_(), dt.masked_fill(nothing, garbage)
        with torch.no_grad():
            padded[nothing] = garbage
        rnn.zero_grad()
        output, _ = rnn(padded, dt=padded_dt, mask=mask)
        output.square().sum().backward()
        found.append([output.detach(), padded.grad, *(p.grad for p in rnn.parameters())])
    assert all(v.isfinite().all() for v in found[0])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_dt_in_another_type_and_a_mask_of_any_numbers(engine):
    """Times often come in float64 or whole numbers beside a float32 model. A step exists unless its mask is 0."""
    torch.manual_seed(0)
    rnn, x, mask = timescales.PLSTM(I, H, 2, engine=engine), random_input()[0].float(), torch.ones(S, B)
    for dtype in (torch.float32, torch.float64, torch.int64):
        close(rnn(x, dt=torch.ones(S, B, dtype=dtype))[0], rnn(x)[0], 1e-6)
    mask[4:, 1] = 0.0
    output, _ = rnn(x, mask=mask)
    for factor in (0.25, -3.0):
        assert torch.equal(rnn(x, mask=factor * mask)[0], output)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "PLSTM", "LRU", "RMC", "GatedRNN"])
def test_dropout_only_between_layers_and_only_in_training(kind):
    plain, dropped = layered(kind), layered(kind, dropout=0.5)
    x, _ = random_input()
    close(dropped.eval()(x)[0], plain.eval()(x)[0])
    dropped.train()
    torch.manual_seed(1)
    first, first_state = dropped(x)
    second, second_state = dropped(x)
    assert not torch.equal(first, second)
    # Nothing is dropped before the first layer.
    close_state(dropped.split_state(first_state)[0], dropped.split_state(second_state)[0])
    assert (first != 0).all()  # nor after the last one
    with pytest.warns(UserWarning, match="between layers|after all but last recurrent layer"):
        single = build(kind, dropout=0.5).train()
    close(single(x)[0], build(kind)(x)[0])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {*rnn_cases.WITHOUT_MATRIX, "GRUD"}])
def test_only_the_forward_pass_drops_recurrent_weights(kind):
    rnn = layered(kind)
    for cell in rnn.layers:
        cell.weight_drop = 0.5
    before = torch.get_rng_state()
    rnn.timescales()
    for cell in rnn.layers:  # the GORU has computed rows below, the LEM another product's rows
        hh = cell.weights().hh
        rows = min(len(hh), len(cell.weight_hh))
        assert torch.equal(hh[:rows], cell.weight_hh[:rows])
    assert torch.equal(torch.get_rng_state(), before)
    x, _ = random_input()
    assert not torch.equal(rnn(x)[0], rnn(x)[0])
    rnn.eval()
    assert torch.equal(rnn(x)[0], rnn(x)[0])


def test_dropout_drops_and_scales_the_layer_below():
    """With the second layer an identity-like probe: its input is 0 or twice the first layer's output."""
    rnn = build("LSTM", I, H, 2, dropout=0.5).train()
    seen = []
    second = rnn.layers[1]
    step = second.step
    second.step = lambda gx, *rest: (seen.append(gx), step(gx, *rest))[1]
    with torch.no_grad():
        second.weight_ih.zero_()
        second.weight_ih[:H] = torch.eye(H)
        second.bias_ih.zero_()
    x, _ = random_input(40, B)
    rnn(x)
    below, _ = eager.run(rnn.layers[0], x, rnn.layers[0].weights(), rnn.layers[0].initial_state(B))
    ratio = torch.stack(seen)[..., :H] / below
    assert ((ratio.abs() < 1e-9) | ((ratio - 2).abs() < 1e-9)).all()
    assert 0.4 < (ratio > 1).double().mean() < 0.6  # 600 draws: five standard deviations


LSTMS, GRUS = with_fields("h", "c"), with_fields("h")
NAMED = [kind for kind in KINDS if kind not in LSTMS + GRUS]


@pytest.mark.parametrize("kind", LSTMS + GRUS)
def test_lstms_and_grus_return_and_take_torchs_state(kind):
    rnn = layered(kind)
    x, _ = random_input()
    output, state = rnn(x)
    h_n = state[0] if kind in LSTMS else state
    assert {v.shape for v in tree_leaves(state)} == {(3, B, H)}
    assert torch.equal(h_n[-1], output[-1])
    first, middle = rnn(x[:2])
    second, end = rnn(x[2:], middle)
    close(torch.cat([first, second]), output)
    close_state(end, state)
    if kind in LSTMS:
        assert not torch.equal(h_n[-1], state[1][-1])
        close(rnn(x[2:], [*middle])[0], second)


@pytest.mark.parametrize("kind", NAMED)
def test_a_state_with_other_fields_has_names_and_is_not_unpacked(kind):
    rnn = build(kind, I, H, 2)
    x, dt = random_input()
    output, state = rnn(x, dt=dt)
    more = rnn.layers[0].State._fields[-1]
    assert state.h.shape == (2, B, H)
    assert getattr(state, more).shape == (2, B, rnn.layers[0].width(more))
    assert torch.equal(state.h[-1], output[-1])
    with pytest.raises(TypeError, match=rf"not unpacked: read state\.h.*state\.{more} by name"):
        _, (_, _) = rnn(x)
    with pytest.raises(TypeError, match=r"not indexed: .*state\.h\[-1\] is the last layer's"):
        state[-1]
    with pytest.raises(ValueError, match=rf"an RNNState of h,.* {more}, each \(2, B, {H}\)"):
        rnn(x, (state.h, state.h))
    with pytest.raises(ValueError, match="an RNNState"):
        rnn(x, RNNState(h=state.h))
    first, state = rnn(x[:3], dt=dt[:3])
    again = RNNState(**{name: value.clone() for name, value in vars(state).items()})
    close(torch.cat([first, rnn(x[3:], again, dt=dt[3:])[0]]), output)


def test_layers_of_several_sizes_have_one_tensor_each():
    rnn = build("LSTM", I, [7, 6], 2)
    x, _ = random_input()
    output, state = rnn(x)
    assert [value.shape for value in state.h] == [value.shape for value in state.c] == [(B, 7), (B, 6)]
    assert torch.equal(state.h[-1], output[-1])
    with pytest.raises(TypeError, match=r"read state\.h, state\.c by name"):
        _, (_, _) = rnn(x)
    first, state = rnn(x[:2])
    close(torch.cat([first, rnn(x[2:], state.detach())[0]]), output)
    close(rnn(x[2:], rnn.split_state(state))[0], rnn(x[2:], state)[0])
    with pytest.raises(ValueError, match="an RNNState of h, c, each a tuple with one tensor per layer"):
        rnn(x, (x.new_zeros(2, B, 7), x.new_zeros(2, B, 7)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "PLSTM"])
@pytest.mark.parametrize("hidden", [H, [7, 6, 5]])
def test_split_and_join_are_inverse(kind, hidden):
    rnn = build(kind, I, hidden, 3)
    _, state = rnn(random_input()[0])
    layers = rnn.split_state(state)
    assert [type(layer) for layer in layers] == [cell.State for cell in rnn.layers]
    close_state(rnn.join_state(layers), state)
    close_state(rnn.split_state([tuple(layer) for layer in layers]), layers)


@pytest.mark.parametrize("hidden", [H, [7, 6]])
def test_a_state_is_known_to_torchs_tools(hidden):
    rnn = build("PLSTM", I, hidden, 2)
    x, _ = random_input()
    _, state = rnn(x)
    assert len(tree_leaves(state)) == (3 if hidden == H else 6)
    doubled = tree_map(lambda value: 2 * value, state)
    assert isinstance(doubled, RNNState)
    close(doubled.age[1], 2 * state.age[1])
    assert not any(value.requires_grad for value in tree_leaves(state.detach()))
    assert all(value.dtype == torch.float32 for value in tree_leaves(state.to(torch.float32)))
    file = io.BytesIO()
    torch.save(state.detach(), file)
    file.seek(0)
    for other in (torch.load(file), pickle.loads(pickle.dumps(state.detach())), copy.deepcopy(state.detach())):
        close_state(other, state)
    assert repr(state).startswith("RNNState(h=")
