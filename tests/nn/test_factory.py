"""`dtype=` of a constructor: the numbers are those that the default dtype would give, and no other thread sees it."""

import threading

import pytest
import torch
from rnn_cases import KINDS, H, I
from torch import nn

import timescales
from timescales.nn.factory import made_on

DTYPES = [torch.float64, torch.bfloat16]


def numbers(make):
    torch.manual_seed(0)
    return list(make().state_dict().values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_of_the_default_dtype(kind, dtype):
    name, arguments = KINDS[kind]
    given = numbers(lambda: getattr(timescales, name)(I, H, dtype=dtype, **arguments))
    try:
        torch.set_default_dtype(dtype)
        expected = numbers(lambda: getattr(timescales, name)(I, H, **arguments))
    finally:
        torch.set_default_dtype(torch.float32)
    assert [value.dtype for value in given] == [value.dtype for value in expected]
    assert all(map(torch.equal, given, expected))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_numbers_are_torchs(kind, dtype):
    given, expected = (numbers(lambda m=m: getattr(m, kind)(3, 6, 2, dtype=dtype)) for m in (timescales, nn))
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
    found = []
    with made_on(None, torch.float64):
        thread = threading.Thread(target=lambda: found.extend((torch.empty(1).dtype, torch.get_default_dtype())))
        thread.start()
        thread.join()
        assert torch.empty(1).dtype is torch.float64
    assert found == [torch.float32, torch.float32]
