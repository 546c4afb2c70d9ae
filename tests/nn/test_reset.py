"""reset_parameters: the numbers of a new layer, from the same seed."""

import copy
import pickle

import pytest
import torch
from rnn_cases import KINDS, H, I, build, layered, random_input
from torch.nn.utils import prune

import timescales

MORE = {
    "uniform": lambda: timescales.LSTM(I, H, 2, forget_init="uniform"),
    "frozen": lambda: timescales.LSTM(I, H, 2, forget_init={"law": "chrono", "T_max": 50}, frozen=("forget",)),
    "chrono_gate": lambda: timescales.GatedRNN(I, H, 2, gate="c", train_bias=False),
    "henaff": lambda: timescales.ExpRNN(I, H, 2, skew_init="henaff"),
}


def tensors(rnn):
    return [*rnn.parameters(), *rnn.buffers()]


@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_reset_gives_the_numbers_of_a_new_layer(kind):
    make = MORE.get(kind) or (lambda: layered(kind).float())
    torch.manual_seed(3)
    rnn = make()
    new = [value.clone() for value in tensors(rnn)]
    with torch.no_grad():
        for value in tensors(rnn):
            value.fill_(7.0)
    parameters = list(rnn.parameters())
    torch.manual_seed(0 if kind in KINDS else 3)  # `layered` seeds by itself
    rnn.reset_parameters()
    assert all(map(torch.equal, tensors(rnn), new))
    assert all(a is b for a, b in zip(rnn.parameters(), parameters, strict=True))
    rnn.reset_parameters()
    assert not torch.equal(rnn.layers[0].weight_ih, new[0])


def test_a_layer_made_without_memory_is_reset():
    torch.manual_seed(0)
    expected = timescales.MTSLSTM(I, H, 3)
    with torch.device("meta"):
        rnn = timescales.MTSLSTM(I, H, 3)
    rnn.to_empty(device="cpu")
    torch.manual_seed(0)
    rnn.reset_parameters()
    assert all(map(torch.equal, tensors(rnn), tensors(expected)))


def test_copies_are_reset_too():
    rnn = build("PLSTM")
    for copied in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        torch.manual_seed(0)
        copied.reset_parameters()
        assert all(map(torch.equal, tensors(copied), tensors(build("PLSTM"))))


@pytest.mark.parametrize("kind", ["PLSTM", "LSTM"])
def test_a_pruned_weight_is_refused(kind):
    rnn = getattr(timescales, kind)(I, H)
    place = (rnn, "weight_hh_l0") if kind == "LSTM" else (rnn.layers[0], "weight_hh")  # where the parameter is
    prune.l1_unstructured(*place, amount=0.5)
    with pytest.raises(
        ValueError,
        match=r"weight_hh is parametrized, pruned .* call reset_parameters\(\) before that, or make it permanent",
    ):
        rnn.reset_parameters()


def test_flatten_parameters_does_nothing():
    rnn = build("LSTM")
    x, _ = random_input()
    before = rnn(x)[0]
    rnn.flatten_parameters()
    assert torch.equal(rnn(x)[0], before)
