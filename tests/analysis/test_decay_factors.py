"""Decay factors before and after training."""

import math

import numpy as np
import pytest
import torch
from analysed import copy_task, model_for, run_of, studied
from scipy import stats

from timescales.analysis import decay_factors, study
from timescales.errors import ConfigError


def test_factors_before_and_after(tmp_path):
    task = copy_task()
    before, after = model_for(task, hidden_size=20, seed=1), model_for(task, hidden_size=20, seed=1)
    with torch.no_grad():
        after.rnn.layers[0].power += torch.linspace(-0.2, 1.0, 20, dtype=torch.float64)
    a, b = (m.rnn.layers[0].p.detach().numpy() for m in (before, after))
    found = studied(decay_factors, after, task, tmp_path, initial=before)
    assert found.values["t"] == pytest.approx(stats.ttest_ind(b, a).statistic)
    assert found.values["p_value"] == pytest.approx(stats.ttest_ind(b, a).pvalue)
    assert found.values["t_paired"] == pytest.approx(stats.ttest_rel(b, a).statistic)
    pooled = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert found.values["cohens_d"] == pytest.approx((b.mean() - a.mean()) / pooled)
    assert [row["after"] - row["before"] for row in found.rows] == pytest.approx((b - a).tolist())
    assert {"later_reset"} == set(found.rows[0]) - {"layer", "unit", "before", "after"}
    fixed = model_for(task, power=0.2)
    with pytest.raises(ConfigError, match=r"here it is fixed at 0\.2"):
        decay_factors.study(run_of(fixed, task))


def test_factors_of_two_delays_are_compared_as_in_the_paper(tmp_path):
    runs = []
    for k, (T, mean) in enumerate([(200, 0.41), (500, 0.19)]):
        task = copy_task(T=T)
        model = model_for(task, hidden_size=128, seed=k)
        p = np.linspace(-1.0, 1.0, 128) if k else np.sin(np.arange(128.0))
        p = (p - p.mean()) / p.std(ddof=1) * 0.1 + mean
        with torch.no_grad():
            model.rnn.layers[0].power.copy_(torch.from_numpy(p).logit())
        runs.append(run_of(model, task, directory=f"T{T}"))
    found = decay_factors.compare(runs)
    assert found.values["1_2/cohens_d"] == pytest.approx(0.22 / 0.1)
    assert found.values["1_2/t"] == pytest.approx(0.22 / 0.1 * math.sqrt(64))
    assert (found.values["1/mean"], found.values["2/mean"]) == pytest.approx((0.41, 0.19))
    assert len(found.rows) == 256
    assert study.write(found, tmp_path, "decay_factors")[1].is_file()
