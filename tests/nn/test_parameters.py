"""Parameters: drawn again, drawn in another type, and averaged with frozen gates and infinite biases."""

import copy
import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from rnn_cases import KINDS, H, I, build, layered, random_input
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

import timescales
from timescales.nn.factory import made_on

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
    reason = r"weight_hh is parametrized, pruned .* call reset_parameters\(\) before that, or make it permanent"
    with pytest.raises(ValueError, match=reason):
        rnn.reset_parameters()


# --- dtype= of a constructor ---
DTYPES = [torch.float64, torch.bfloat16]


def drawn(make):
    torch.manual_seed(0)
    rnn = make()
    return rnn, [value.clone() for value in rnn.state_dict().values()]


@pytest.mark.parametrize(("kind", "dtype"), [*zip(KINDS, itertools.cycle(DTYPES), strict=False)])
def test_the_numbers_are_those_of_the_default_dtype_also_after_a_reset(kind, dtype):
    name, arguments = KINDS[kind]
    rnn, given = drawn(lambda: getattr(timescales, name)(I, H, dtype=dtype, **arguments))
    try:
        torch.set_default_dtype(dtype)
        _, expected = drawn(lambda: getattr(timescales, name)(I, H, **arguments))
    finally:
        torch.set_default_dtype(torch.float32)
    assert [value.dtype for value in given] == [value.dtype for value in expected]
    assert all(map(torch.equal, given, expected))
    _, again = drawn(lambda: rnn.reset_parameters() or rnn)
    assert all(map(torch.equal, again, expected))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_numbers_are_torchs(kind, dtype):
    given, expected = (drawn(lambda m=m: getattr(m, kind)(3, 6, 2, dtype=dtype))[1] for m in (timescales, nn))
    assert all(map(torch.equal, given, expected))


def test_whole_numbers_stay_and_a_given_dtype_counts():
    with made_on("meta", torch.float64):
        made = [torch.empty(2), torch.tensor([1.0]), torch.tensor([1]), torch.full((1,), True), torch.arange(3)]
        made += [torch.arange(0.5, 2), torch.rand(2, dtype=torch.float16), torch.tensor(2.0, dtype=torch.float32)]
    types = [torch.float64, torch.float64, torch.int64, torch.bool]
    types += [torch.int64, torch.float64, torch.float16, torch.float32]
    assert [value.dtype for value in made] == types
    assert {value.device.type for value in made} == {"meta"}


def test_other_threads_do_not_see_it():
    with made_on(None, torch.float64), ThreadPoolExecutor() as pool:
        found = pool.submit(lambda: (torch.empty(1).dtype, torch.get_default_dtype())).result()
        assert torch.empty(1).dtype is torch.float64
    assert found == (torch.float32, torch.float32)


# --- averages of models: a moving average moves by (new - old), which is NaN between two infinities ---
AVERAGES = {
    "default": {},
    "ema": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "swa": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "product": {"avg_fn": lambda old, new, n: 0.999 * old + (1 - 0.999) * new},
}
INFINITE = {"law": "inverse_gamma", "quantiles": "authors"}  # f = 0 in the last unit
MODELS = {
    "mts": lambda: timescales.MTSLSTM(I, 8, quantiles="authors"),
    "mts_all_frozen": lambda: timescales.MTSLSTM(I, 8, quantiles="authors", freeze_gates="ifgo"),
    "trained": lambda: timescales.LSTM(I, 8, forget_init=INFINITE),
    "ur": lambda: timescales.URLSTM(I, 8, frozen=("forget",)),
}


@pytest.mark.parametrize(("name", "how"), [*zip(MODELS, AVERAGES, strict=True)])
def test_an_average_of_equal_models_is_the_model(name, how):
    torch.manual_seed(0)
    rnn = MODELS[name]()
    averaged = AveragedModel(rnn, use_buffers=True, **AVERAGES[how])
    for _ in range(3):
        averaged.update_parameters(rnn)
    x = random_input()[0].float()
    torch.testing.assert_close(averaged(x)[0], rnn(x)[0], rtol=0, atol=1e-6)
    for name, value in rnn.state_dict().items():
        torch.testing.assert_close(averaged.module.state_dict()[name], value, rtol=1e-6, atol=1e-6)


def test_an_average_moves_what_is_trained_alone():
    rnn = MODELS["mts"]()
    averaged = AveragedModel(rnn, use_buffers=True, multi_avg_fn=get_ema_multi_avg_fn(0.75))
    averaged.update_parameters(rnn)  # the first one is copied
    before = copy.deepcopy(rnn.state_dict())
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(1.0)
    averaged.update_parameters(rnn)
    after = averaged.module.state_dict()
    torch.testing.assert_close(after["weight_hh_l0"], before["weight_hh_l0"] + 0.25)
    assert torch.equal(after["fixed_bias_hh_l0"], before["fixed_bias_hh_l0"])
    assert averaged.module.timescales()[0].tolist() == pytest.approx(rnn.timescales()[0].tolist())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_infinite_bias_is_finite_and_its_gates_exact(dtype):
    rnn = timescales.MTSLSTM(I, 8, quantiles="authors").to(dtype)
    cell = rnn.layers[0]
    assert all(value.isfinite().all() for value in rnn.state_dict().values())
    z = cell.bias_total("forget")[-1] + torch.tensor([-50.0, 0.0, 50.0], dtype=dtype)
    assert z.sigmoid().tolist() == [0.0] * 3
    assert (-z).sigmoid().tolist() == [1.0] * 3
    assert rnn.timescales()[0][-1] == 0.0
    cell.set_bias("output", torch.full((8,), math.inf))
    assert (cell.bias_total("output").sigmoid() == 1.0).all()


@pytest.mark.parametrize(
    ("kind", "frozen"), [("LSTM", ("forget", "input")), ("LSTM", ("input",)), ("URLSTM", ("forget",)), ("URLSTM", ())]
)
def test_every_parameter_that_wants_a_gradient_gets_one(kind, frozen):
    """DistributedDataParallel refuses others."""
    rnn = getattr(timescales, kind)(I, H, forget_init="uniform", frozen=frozen)
    rnn(random_input()[0].float())[0].sum().backward()
    assert [n for n, p in rnn.named_parameters() if p.requires_grad and p.grad is None] == []
    assert rnn.layers[0].gate_bias.requires_grad is (len(frozen) < 2)
