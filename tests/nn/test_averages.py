"""Averages of models keep frozen gates and infinite biases; a parameter that nothing reads wants no gradient.

A moving average moves by (new - old), which is NaN between two infinities, and does not exist between two bools.
"""

import copy
import math

import pytest
import torch
from rnn_cases import H, I, random_input
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

import timescales
from timescales.nn.inits import INFINITE as STORED

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


@pytest.mark.parametrize("how", AVERAGES)
@pytest.mark.parametrize("name", MODELS)
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


def test_a_checkpoint_of_the_former_form_still_loads():
    """The names were those of the cells, frozen_rows was a bool, and an infinite bias was stored as such."""
    torch.manual_seed(0)
    rnn, other = MODELS["mts"](), MODELS["mts"]()
    old = {f"layers.0.{name.removesuffix('_l0')}": value.clone() for name, value in rnn.state_dict().items()}
    old["layers.0.frozen_rows"] = old["layers.0.frozen_rows"].bool()
    for key in ("layers.0.fixed_bias_hh", "layers.0.bias_hh"):
        old[key][old[key] == -STORED] = -math.inf
        old[key][old[key] == STORED] = math.inf
    assert old["layers.0.fixed_bias_hh"].isinf().sum() == 2
    x = random_input()[0].float()
    for assign in (False, True):
        other.load_state_dict(old, assign=assign)
        assert torch.equal(other(x)[0], rnn(x)[0])
        assert torch.equal(other.timescales()[0], rnn.timescales()[0])


@pytest.mark.parametrize("frozen", [("forget", "input"), ("forget",), ("input",), ()])
@pytest.mark.parametrize("kind", ["LSTM", "URLSTM"])
def test_every_parameter_that_wants_a_gradient_gets_one(kind, frozen):
    """DistributedDataParallel refuses others."""
    if kind == "URLSTM":
        frozen = tuple("refine" if gate == "input" else gate for gate in frozen)
    rnn = getattr(timescales, kind)(I, H, forget_init="uniform", frozen=frozen)
    rnn(random_input()[0].float())[0].sum().backward()
    assert [n for n, p in rnn.named_parameters() if p.requires_grad and p.grad is None] == []
    assert rnn.layers[0].gate_bias.requires_grad is (len(frozen) < 2)
