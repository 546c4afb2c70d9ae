"""The LSTM equals torch.nn.LSTM, and converts from it and to it."""

import copy

import pytest
import torch
from cell_cases import VARIANTS, H, I, close, random_input
from torch import nn
from torch.nn import functional, utils
from torch.nn.utils import parametrizations, prune

import timescales
from timescales.nn.cells import LSTMCell


@pytest.mark.parametrize(("name", "layers", "batch_first"), [("LSTM", 2, True), ("GRU", 2, True), ("GRU", 1, False)])
def test_from_torch_and_back(name, layers, batch_first):
    torch.manual_seed(8)
    theirs = getattr(nn, name)(I, H, layers, batch_first=batch_first).double()
    ours = getattr(timescales, name).from_torch(theirs)
    back = ours.to_torch()
    x = random_input()[0].transpose(0, 1) if batch_first else random_input()[0]
    expected, end = theirs(x)
    for rnn in (ours, back):
        output, state = rnn(x)
        close(output, expected)
        close(state, end)
        assert (rnn.batch_first, rnn.num_layers) == (batch_first, layers)
    for a, b in zip(theirs.parameters(), back.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()


@pytest.mark.parametrize("name", ["lstm_uniform", "lstm_frozen", "mts"])
def test_to_torch_keeps_initializers(name):
    torch.manual_seed(9)
    ours = timescales.LSTM(I, H, 2, **VARIANTS[name][1]).double()
    x = random_input()[0]
    close(ours.to_torch()(x)[0], ours(x)[0])


def test_dropped_weights_are_not_what_to_torch_gives():
    ours = timescales.LSTM(I, H)
    ours.layers[0].weight_drop = 0.5
    assert torch.equal(ours.to_torch().weight_hh_l0, ours.layers[0].weight_hh)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_what_is_frozen_stays_so_from_torch_and_back(name):
    theirs = getattr(nn, name)(I, H)
    theirs.weight_ih_l0.requires_grad_(False)
    ours = getattr(timescales, name).from_torch(theirs)
    assert [p.requires_grad for p in ours.parameters()] == [False, True, True, True]
    assert [p.requires_grad for p in ours.to_torch().parameters()] == [False, True, True, True]


def test_from_torch_takes_its_own_kind():
    with pytest.raises(ValueError, match=r"timescales\.LSTM takes a torch\.nn\.LSTM, not GRU"):
        timescales.LSTM.from_torch(nn.GRU(I, H))
    with pytest.raises(ValueError, match=r"timescales\.GRU takes a torch\.nn\.GRU, not LSTM"):
        timescales.GRU.from_torch(nn.LSTM(I, H))
    mine = type("Mine", (timescales.GRU,), {})  # one's own kind of GRU, under any name
    assert type(mine.from_torch(nn.GRU(I, H))) is mine


@pytest.mark.parametrize("arguments", [{"bidirectional": True}, {"proj_size": 2}, {"bias": False}, {"dropout": 0.5}])
def test_from_torch_keeps_every_argument_and_evaluation(arguments):
    theirs, x = nn.LSTM(I, H, 2, **arguments).eval(), random_input()[0].float()
    ours = timescales.LSTM.from_torch(theirs)
    for rnn in (ours,) if "proj_size" in arguments else (ours, ours.to_torch()):
        close(rnn(x)[0], theirs(x)[0], 1e-6)
    assert [*ours.state_dict()] == [*theirs.state_dict()]
    assert repr(ours) == repr(theirs)


def _under_weight_drop(layer):
    """As AWD-LSTM's WeightDrop leaves a layer: the raw weight is elsewhere, and what is left of it is no parameter."""
    raw = layer._parameters.pop("weight_hh_l0")
    layer.weight_hh_l0 = functional.dropout(raw, 0.5)
    return {"raw": raw.detach()}


# What makes a weight of torch.nn.LSTM a tensor that is computed.
COMPUTED = {
    "weight_norm": lambda layer: parametrizations.weight_norm(layer, "weight_hh_l0"),
    "old weight_norm": lambda layer: utils.weight_norm(layer, "weight_hh_l0"),
    "spectral_norm": lambda layer: utils.spectral_norm(layer, "weight_hh_l0"),
    "pruned": lambda layer: prune.random_unstructured(layer, "weight_hh_l0", 0.5),
    "weight drop": _under_weight_drop,
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_from_torch_of_a_computed_weight_names_what_takes_it(name):
    theirs, x = nn.LSTM(I, H), random_input()[0].float()
    COMPUTED[name](theirs)
    theirs.eval()  # where spectral_norm leaves its vectors alone
    expected = theirs(x)[0]
    message = r"^weight_hh_l0 of this torch\.nn\.LSTM is computed, not a parameter: use timescales\.accelerate$"
    with pytest.raises(ValueError, match=message):
        timescales.LSTM.from_torch(theirs)
    close(timescales.accelerate(theirs)(x)[0], expected, 1e-6)


def test_to_torch_of_a_computed_weight_has_its_value():
    ours, x = timescales.LSTM(I, H), random_input()[0].float()
    parametrizations.weight_norm(ours, "weight_hh_l0")
    with torch.no_grad():
        ours.parametrizations.weight_hh_l0.original0.mul_(2.0)
    back = ours.to_torch()
    assert torch.equal(back.weight_hh_l0, ours.weight_hh_l0)
    close(back(x)[0], ours(x)[0], 1e-6)
    with pytest.raises(ValueError, match="do this to the module's weight_hh_l0"):
        parametrizations.weight_norm(timescales.LSTM(I, H).layers[0], "weight_hh")


def test_to_torch_refuses_what_has_no_counterpart():
    class Other(LSTMCell):
        def step(self, gx, gh, state, dt=1.0):
            return super().step(gx + 1.0, gh, state, dt)

    class OtherLSTM(timescales.LSTM):
        cell_class = Other

    with pytest.raises(ValueError, match=r"only layers of equal hidden_size convert to torch\.nn\.LSTM"):
        timescales.LSTM(I, [H, H + 1], 2).to_torch()
    with pytest.raises(ValueError, match=r"only cells with the equations of torch\.nn\.LSTM convert to it"):
        OtherLSTM(I, H).to_torch()


def test_a_copy_for_data_parallel_reads_its_own_weights():
    rnn, x = timescales.LSTM(3, 4), torch.ones(5, 2, 3)
    replica = rnn._replicate_for_data_parallel()
    for name, value in rnn._parameters.items():  # as torch.nn.parallel.replicate
        if value is None:
            replica._parameters[name] = None
        else:
            setattr(replica, name, torch.zeros_like(value))
    assert not replica(x)[0].any()
    assert rnn(x)[0].any()


def test_a_subclass_resets_the_parameters_in_its_own_way():
    class Ones(timescales.LSTM):
        def reset_parameters(self):
            assert len(self.layers) == 1
            for parameter in self.parameters():
                nn.init.ones_(parameter)

    assert all((parameter == 1).all() for parameter in Ones(3, 4).parameters())


def test_a_layer_with_a_parametrization_is_copied_after_a_pass():
    rnn, x = timescales.LSTM(3, 4), torch.ones(5, 2, 3)
    nn.utils.parametrizations.weight_norm(rnn, "weight_hh_l0")
    output = rnn(x)[0]
    rnn.timescales()
    assert torch.equal(copy.deepcopy(rnn)(x)[0], output)
