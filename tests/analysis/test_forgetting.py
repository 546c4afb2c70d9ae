"""The spread of time scales."""

import pytest
import torch
from analysed import copy_task, hold, model_for

from timescales import LSTM
from timescales.analysis import forgetting
from timescales.nn import inits


def test_forgetting_names_the_spread_of_time_scales():
    task = copy_task(T=2, test_size=2)
    model = model_for(task, LSTM, hidden_size=11)
    times = [404.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0, 0.5]
    hold(model, forget=inits.bias_of_timescale(torch.tensor(times, dtype=torch.float64)))
    found = forgetting.measure(model, task)
    expected = {"min": 0.5, "q10": 1.0, "median": 8.0, "q90": 55.0, "max": 404.0}
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)
    assert all(type(value) is float for value in found.values())
    shares = {key.removeprefix("share/"): 11 * value for key, value in found.items() if key.startswith("share/")}
    units = {"0.5": 1, "1": 1, "2": 1, "4": 2, "8": 1, "16": 2, "32": 1, "64": 1, "512": 1}  # 3 and 5 are nearest to 4
    assert {key: n for key, n in shares.items() if n} == pytest.approx(units)
    assert len(shares) == 17
