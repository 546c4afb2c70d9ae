"""Every layer in every form of a call, against the same layer in plain form; and what earlier versions saved."""

import copy
import itertools

import pytest
import torch
from rnn_cases import KINDS, B, H, I, S, build, close, close_state, random_input
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

import timescales
from timescales.nn.forms import reversed_dt, reversed_reset

LENGTHS = torch.tensor([3, 6, 1])
# Their hidden size must be one that a second layer of twice the inputs allows, and each has them all.
BIDIRECTIONAL = [kind for kind in KINDS if kind != "MTSLSTM"]


def mask_of(lengths):
    return (torch.arange(S).unsqueeze(1) < lengths).double()


@pytest.mark.parametrize(("kind", "sorted_"), [*zip(KINDS, itertools.cycle((False, True)), strict=False)])
def test_packed_sequences_are_those_with_a_mask(kind, sorted_):
    """Packed sequences in any order: output, state, dt, and the state that is given back."""
    rnn, lengths = build(kind), LENGTHS.sort(descending=True).values if sorted_ else LENGTHS
    x, dt = random_input()
    packed, packed_dt = (pack_padded_sequence(value, lengths, enforce_sorted=sorted_) for value in (x, dt))
    output, state = rnn(packed, dt=packed_dt)
    expected, end = rnn(x, dt=dt, mask=mask_of(lengths))
    found, found_lengths = pad_packed_sequence(output)
    assert found_lengths.tolist() == lengths.tolist()
    close(found, expected * mask_of(lengths).unsqueeze(-1))
    close_state(state, end)
    again, after = rnn(packed, state)
    expected, end = rnn(x, end, mask=mask_of(lengths))
    close(pad_packed_sequence(again)[0], expected * mask_of(lengths).unsqueeze(-1))
    close_state(after, end)


@pytest.mark.parametrize(("kind", "batch_first"), [*zip(KINDS, itertools.cycle((False, True)), strict=False)])
def test_one_sequence_is_a_batch_of_one(kind, batch_first):
    rnn, (x, dt) = build(kind, batch_first=batch_first), random_input()
    at = 0 if batch_first else 1
    reset = torch.zeros(S)
    reset[2] = 1.0
    output, state, every = rnn(x[:, 0], dt=dt[:, 0], reset=reset, states=True)
    named = {"dt": dt[:, 0].unsqueeze(at), "reset": reset.unsqueeze(at)}
    expected, end, all_ = rnn(x[:, 0].unsqueeze(at), **named, states=True)
    assert torch.equal(output, expected.squeeze(at))
    for a, b in zip(pytree.tree_leaves(state), pytree.tree_leaves(end), strict=True):
        assert torch.equal(a, b.squeeze(1))
    for a, b in zip(pytree.tree_leaves(every), pytree.tree_leaves(all_), strict=True):
        assert torch.equal(a, b.squeeze(at))
    again, _ = rnn(x[:, 0], state)
    assert torch.equal(again, rnn(x[:, 0].unsqueeze(at), end)[0].squeeze(at))


@pytest.mark.parametrize("kind", BIDIRECTIONAL)
def test_both_directions_are_two_layers(kind):
    """Two layers of two directions: a cell for each, the second over the sequence in reverse."""
    rnn, (x, dt) = build(kind, I, H, 2, bidirectional=True), random_input()
    mask = mask_of(LENGTHS)
    output, state = rnn(x, dt=dt, mask=mask)
    cells = [timescales.RNN([cell]) for cell in rnn.layers]
    below, ends = x, []
    for forward, backward in (cells[:2], cells[2:]):
        there, end = forward(below, dt=dt, mask=mask)
        back, last = backward(below.flip(0), dt=reversed_dt(dt, mask, None), mask=mask.flip(0))
        below = torch.cat([there, back.flip(0)], -1)
        ends += [*forward.split_state(end), *backward.split_state(last)]
    close(output, below)
    close_state(state, rnn.join_state(ends))
    assert output.shape == (S, B, 2 * H)
    close(rnn(x, state)[0], rnn(x, rnn.split_state(state))[0])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "PLSTM", "MinGRU", "RMC"])
def test_in_reverse_a_sequence_begins_at_its_last_step(kind):
    """reset and states in both directions equal a call for each sequence; each one's dt is turned by itself."""
    rnn, (x, dt) = build(kind, I, H, 2, bidirectional=True), random_input()
    reset = torch.zeros(S, B)
    reset[4] = 1.0
    output, state, every = rnn(x, dt=dt, reset=reset, states=True)
    parts = [rnn(x[part], dt=dt[part], states=True) for part in (slice(0, 4), slice(4, S))]
    close(output, torch.cat([part[0] for part in parts]))
    close(every.h[-1], torch.cat([part[2].h[-1] for part in parts]))
    assert len(every.h) == 4
    close(torch.cat([every.h[2], every.h[3]], -1), output)
    ends = zip(*(rnn.split_state(part[1]) for part in parts), strict=True)
    # Forward ends in the last part, backward in the first.
    close_state(state, rnn.join_state([end[1 - k % 2] for k, end in enumerate(ends)]))


def test_times_in_reverse():
    dt = torch.arange(1.0, 7.0).view(6, 1)
    assert reversed_dt(dt, None, None).flatten().tolist() == [1, 6, 5, 4, 3, 2]
    reset = torch.tensor([1, 0, 0, 1, 0, 0]).view(6, 1)
    assert reversed_reset(reset).flatten().tolist() == [0, 0, 0, 1, 0, 0]
    assert reversed_dt(dt, None, reset).flatten().tolist() == [4, 6, 5, 1, 3, 2]
    mask = torch.tensor([0, 1, 1, 0, 1, 0]).view(6, 1)
    found = reversed_dt(dt, mask, None).flatten()[mask.flip(0).flatten().bool()]
    assert found.tolist() == [2, 5, 3]  # of the steps 5, 3 and 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_cell_is_a_step_of_the_layer(kind):
    """`PLSTM.Cell` is called like torch.nn.LSTMCell."""
    rnn, (x, dt) = build(kind), random_input()
    cell = rnn.layers[0]
    assert issubclass(type(cell), timescales.Cell)
    assert type(rnn).Cell is (type(rnn).cell_classes or (type(rnn).cell_class,))[0]
    state, outputs = None, []
    for t in range(S):
        state = cell(x[t], state, dt[t])
        outputs.append(state if isinstance(state, torch.Tensor) else state.h)
    expected, end = rnn(x, dt=dt)
    close(torch.stack(outputs), expected)
    last = (state,) if isinstance(state, torch.Tensor) else state
    close_state(rnn.join_state([cell.State(*last)]), end)


@pytest.mark.parametrize(
    ("name", "arguments"), [("LSTM", {}), ("LSTM", {"forget_init": "uniform", "frozen": ("forget",)}), ("GRU", {})]
)
def test_what_earlier_versions_saved_loads(name, arguments):
    """The names were those of the cells: layers.0.weight_hh."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"rnn": getattr(timescales, name)(I, H, 2, **arguments), "head": nn.Linear(H, 1)})
    old = {}
    for key, value in model.state_dict().items():
        own, _, layer = key.removeprefix("rnn.").rpartition("_l")
        old[f"rnn.layers.{layer}.{own}" if key.startswith("rnn.") else key] = value.clone()
    assert "rnn.layers.1.weight_hh" in old
    torch.manual_seed(1)
    other = nn.ModuleDict({"rnn": getattr(timescales, name)(I, H, 2, **arguments), "head": nn.Linear(H, 1)})
    before = copy.copy(old)
    other.load_state_dict(old)  # strict
    assert old.keys() == before.keys()
    for key, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[key], value), key
    with pytest.raises(RuntimeError, match=r"Unexpected key.*layers\.2\.weight_hh"):
        other.load_state_dict(old | {"rnn.layers.2.weight_hh": old["rnn.layers.1.weight_hh"]})
