"""Histograms of forget gates."""

import math

import pytest
import torch
from analysed import copy_task, hold, model_for, run_of, studied

from timescales import LSTM
from timescales.analysis import gate_histograms, study


def test_histograms_are_of_each_units_mean_gate(tmp_path):
    task = copy_task(test_size=2)
    before, after = (model_for(task, LSTM, hidden_size=4) for _ in range(2))
    gates = ([0.5, 0.95, 0.2, 0.999], [0.05, 0.95, 0.995, 0.9])
    for model, f in zip((before, after), gates, strict=True):
        hold(model, forget=torch.tensor(f, dtype=torch.float64).logit())
    found = studied(gate_histograms, after, task, tmp_path, initial=before)
    assert [row["before"] for row in found.rows] == pytest.approx(gates[0])
    assert [row["after"] for row in found.rows] == pytest.approx(gates[1])
    assert found.values["before/smallest"] == pytest.approx(-1 / math.log(0.2))
    assert found.values["after/smallest"] == pytest.approx(-1 / math.log(0.05))
    assert (found.values["before/share_above_0.9"], found.values["after/share_above_0.99"]) == (0.5, 0.25)
    both = gate_histograms.compare([run_of(before, task), run_of(after, task)])
    assert both.values["smallest_ratio"] == pytest.approx(math.log(0.05) / math.log(0.2))
    assert study.write(both, tmp_path, "both")[1].is_file()
