"""The state as a caller sees it: torch's form where torch has one, else a state with names; the arguments' order."""

import copy
import io
import pickle

import pytest
import torch
from rnn_cases import KINDS, B, H, I, build, close, close_state, layered, random_input, with_fields
from torch.utils._pytree import tree_leaves, tree_map

from timescales import RNNState

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
