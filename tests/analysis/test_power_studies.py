"""Studies of power-law models and of gates: against literal twins and closed forms, on tiny models."""

import itertools
import math
import statistics
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import synthetic
import torch
from matplotlib.figure import Figure
from scipy import stats
from test_analysis import copy_task, hold, model_for

from timescales import LSTM, PLSTM, URLSTM, ExpRNN, GatedRNN, plotting
from timescales.analysis import (
    ablation,
    decay_curves,
    decay_factors,
    gate_gradients,
    gate_histograms,
    generalisation,
    length_accuracy,
    longest_pair,
    reference_times,
    reset_units,
    study,
)
from timescales.analysis.gate_gradients import refine_gradient_bounds
from timescales.analysis.run import Run, groups, titles
from timescales.errors import ConfigError
from timescales.nn.engine import eager
from timescales.tasks import IMDB, Batch, Dyck2, Frequency, VariableCopy
from timescales.training.model import SequenceModel

DIRECTORIES = itertools.count()


def run_of(model, task, initial=None, seed=0, directory=None, **settings):
    """A run that lies on no disk."""
    name = {PLSTM: "plstm", LSTM: "lstm", URLSTM: "ur"}.get(type(model.rnn), "gated")
    found = {
        "config": {"task": {"name": "copy", "T": getattr(task, "T", None)}, "model": {"name": name, **settings},
                   "loop": {}},
        "seed": seed, "steps": 10, "status": "finished",
    }  # fmt: skip
    return Run(Path(directory or f"nowhere{next(DIRECTORIES)}"), found, model, initial or model, task)


def studied(module, model, task, folder, initial=None):
    """The answer of a study, written to a folder; its picture is small enough for git."""
    found = module.study(run_of(model, task, initial))
    written = study.write(found, folder, module.__name__.rpartition(".")[2])
    assert all(path.stat().st_size for path in written)
    assert written[1].stat().st_size <= plotting.LARGEST
    assert all(isinstance(value, float) for value in found.values.values())
    return found


def variable(low=3, high=9, test_size=12):
    return VariableCopy(low=low, high=high, train_size=1, valid_size=1, test_size=test_size)


def waves(n=4):
    return Frequency(train_size=1, valid_size=1, test_size=n, sampling="async")


# ---------------------------------------------------------------------------------------------- runs in groups


def test_runs_are_grouped_by_all_but_their_seed():
    task = copy_task()
    plain, power = model_for(task, LSTM), model_for(task)
    runs = [run_of(power, task, seed=0), run_of(plain, task), run_of(power, task, seed=1),
            run_of(power, copy_task(T=30), seed=0)]  # fmt: skip
    found = groups(runs)
    assert [(g.name, len(g.runs), g.style) for g in found] == [
        ("plstm, T=8", 2, "-"), ("lstm", 1, "-"), ("plstm, T=30", 1, "--"),
    ]  # fmt: skip
    assert found[0].colour == plotting.COLOURS["plstm"]
    assert [g.name for g in groups(runs[:3])] == ["plstm", "lstm"]


def test_groups_of_runs_are_those_of_their_identity():
    """Nothing is pooled that a table holds apart, nor held apart that it pools; a run is one, however often given."""
    task = copy_task()
    model = model_for(task)
    changes = [
        {},
        {"precision": "tf32"},
        {"deterministic": True},
        {"paper": {"name": "gu"}},
        {"loop": {"clip_norm": 1}},
    ]
    runs = [run_of(model, task, directory=f"run{k}") for k in range(10)]
    for run, change in zip(runs, changes * 2, strict=True):
        run.config.update(change)
    for k, run in enumerate(runs[5:]):
        run.record["seed"] = run.config["seed"] = 1
        run.config["task"]["allow_partial"] = k % 2 == 0
        run.config["loop"] = {**run.config["loop"], "checkpoint_every": 5}
    runs[5].config.update(precision="fp32", deterministic=False)  # as said as unsaid
    runs[5].config["loop"]["log_every"] = 50
    found = groups(runs)
    assert [[run.directory.name for run in g.runs] for g in found] == [[f"run{k}", f"run{k + 5}"] for k in range(5)]
    plain = "plstm, deterministic=False, clip_norm=None, paper=None, precision=fp32"
    assert [g.name for g in found] == [
        plain, plain.replace("fp32", "tf32"), plain.replace("False", "True"), plain.replace("paper=None", "paper=gu"),
        plain.replace("clip_norm=None", "clip_norm=1"),
    ]  # fmt: skip
    twice = [run_of(model, task, directory=d) for d in ("run0", Path.cwd() / "run0", "x/../run0")]
    assert [g.label for g in groups([*twice, runs[5]])] == ["plstm (2 runs)"]
    assert titles([*twice, runs[5]]) == ["plstm, seed 0"] * 3 + ["plstm, seed 1"]


# ---------------------------------------------------------------------------------------------- reference times


@torch.no_grad()
def literal_trace(model, batch, k):
    """Time and ages (units) after each step of sequence k that exists, one step after the other."""
    cell = model.rnn.layers[0]
    one_hot = model.spec.input == "one_hot"
    x = torch.nn.functional.one_hot(batch.x, 10).double() if one_hot else batch.x.double()
    ih, hh, bias_ih, bias_hh = cell.weights()
    state, time, found = cell.initial_state(), 0.0, []
    for s in range(len(x)):
        if batch.mask is not None and not batch.mask[s, k]:
            continue
        dt = 1.0 if batch.dt is None else float(batch.dt[s, k].double())
        state = cell.step(eager.project(x[s, k], ih, bias_ih), eager.project(state.h, hh, bias_hh), state, dt)
        time += dt
        found.append((time, state.age))
    return torch.tensor([t for t, _ in found], dtype=torch.float64), torch.stack([age for _, age in found])


@pytest.mark.parametrize("task", [variable(), waves()], ids=["variable copy", "frequency"])
def test_traces_are_the_literal_ones(task):
    model = model_for(task)
    (batch,) = task.batches("test")
    for k in (0, 3):
        time, ages = literal_trace(model, batch, k)
        found = reference_times.trace(model, task, k)
        torch.testing.assert_close(found.time, time, rtol=0, atol=1e-9)
        torch.testing.assert_close(found.ages, ages, rtol=0, atol=1e-9)
        k_t = reference_times.trace(model, task, k).reference
        torch.testing.assert_close(k_t, time.unsqueeze(1) - ages, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pad", ["end", "front"])
@pytest.mark.parametrize("readout", ["last_step", "true_length"])
def test_padding_has_no_age(tmp_path, monkeypatch, pad, readout):
    """The age of a review's unit counts from its first word to its last, whatever padding the model reads."""
    synthetic.stand_alone(monkeypatch, tmp_path)
    synthetic.write_corpora(tmp_path)
    task = IMDB(data_root=str(tmp_path), allow_partial=True, steps=50, valid_size=40, pad=pad, readout=readout)
    torch.manual_seed(0)
    model = SequenceModel(PLSTM(task.spec.width, 3), task.spec).double().eval()
    hold(model, reset=[-50.0, 0.0, 50.0])
    n = int(task.lengths["test"][0])
    assert 5 < n < 50
    found = reference_times.trace(model, task, 0)
    t = torch.arange(1, n + 1, dtype=torch.float64)
    torch.testing.assert_close(found.time, t, rtol=0, atol=0)
    # d' = (1 - r)(d + 1) from 0: t itself for r = 0, and 1 - 2^-t for r = 1/2.
    torch.testing.assert_close(found.ages, torch.stack([t, 1 - 0.5**t, 0 * t], 1), rtol=0, atol=1e-9)
    run = run_of(model, task)
    run.config["task"]["name"] = "imdb"
    answer = reference_times.study(run)
    assert answer.values == {"late/sequence": 1.0}
    assert [row["sequence/age"] for row in answer.rows] == pytest.approx([n, 1 - 0.5**n, 0.0], abs=1e-9)


def test_ages_before_each_sequences_own_signal():
    task = variable()
    model = model_for(task)
    (batch,) = task.batches("test")
    ages, delays = reference_times.ages_before_signals(model, task)
    assert delays.tolist() == task.delays("test").tolist()
    assert len(set(delays.tolist())) > 2
    for k, delay in enumerate(delays.tolist()):
        expected = literal_trace(model, batch, k)[1][delay + 10 - 1]
        torch.testing.assert_close(ages[k].double(), expected, rtol=1e-6, atol=1e-6)
    one = copy_task(T=8)
    ages, delays = reference_times.ages_before_signals(model, one)
    torch.testing.assert_close(ages.double().mean(0), reset_units.ages_before_signal(model, one), rtol=1e-6, atol=1e-6)
    assert set(delays.tolist()) == {8}


def test_units_that_never_reset_stay_at_their_beginning(tmp_path):
    task = variable(low=4, high=11)
    model = model_for(task, hidden_size=3)
    hold(model, reset=[-50.0, 50.0, -50.0])
    k_t = reference_times.trace(model, task, 0).reference
    t = torch.arange(1, len(k_t) + 1, dtype=torch.float64)
    torch.testing.assert_close(k_t, torch.stack([0 * t, t, 0 * t], 1), rtol=0, atol=1e-9)
    found = studied(reference_times, model, task, tmp_path)
    assert found.values == {
        "late/short": 2.0, "late/long": 2.0, "late/both": 2.0,
        "late/mean_short": 2.0, "late/mean_long": 2.0, "late/mean_both": 2.0,
    }  # fmt: skip
    assert [round(row["long/age"], 6) for row in found.rows] == [21.0, 0.0, 21.0]  # delay 11 and the ten symbols


def test_units_are_late_over_short_and_long_delays_each_by_itself(tmp_path, monkeypatch):
    delays = torch.tensor([40, 10, 30, 20])
    ages = torch.stack([torch.full((4,), 10.0), delays.float(), torch.zeros(4)], 1)
    monkeypatch.setattr(reference_times, "ages_before_signals", lambda model, task: (ages, delays))
    task = variable(low=4, high=11)
    values = studied(reference_times, model_for(task, hidden_size=3), task, tmp_path).values
    assert [values[f"late/mean_{name}"] for name in ("short", "long", "both")] == [2.0, 1.0, 1.0]


def test_pictures_of_128_units_over_long_delays_are_small(tmp_path):
    task = variable(low=150, high=200, test_size=20)
    torch.manual_seed(0)
    assert "late/both" in studied(reference_times, model_for(task, hidden_size=128), task, tmp_path).values


def test_waves_have_reference_times_too(tmp_path):
    task = waves()
    assert list(studied(reference_times, model_for(task), task, tmp_path).values) == ["late/sequence"]


@pytest.mark.parametrize("module", [reference_times, reset_units, decay_factors])
def test_questions_for_power_laws_are_asked_of_them_alone(module):
    task = copy_task()
    model = model_for(task, LSTM)
    with pytest.raises(ConfigError, match="this question is for power-law LSTMs and GRUs"):
        module.study(run_of(model, task))


def test_later_reset_units_and_their_factors(tmp_path):
    task = copy_task(T=40)
    model = model_for(task, hidden_size=6)
    cell = hold(model, reset=[-20.0, 20.0, -20.0, 20.0, 20.0, -20.0])
    p = torch.tensor([0.1, 0.9, 0.2, 0.7, 0.6, 0.4], dtype=torch.float64)
    with torch.no_grad():
        cell.power.copy_(p.logit())
    found = studied(reset_units, model, task, tmp_path)
    assert found.values.items() >= reset_units.measure(model, task).items()
    expected = stats.ttest_ind(p[[0, 2, 5]], p[[1, 3, 4]]).statistic
    assert found.values["later_t"] == pytest.approx(expected)
    assert found.values["later_cohens_d"] == pytest.approx(expected * math.sqrt(2 / 3))
    assert (found.values["later_p_mean"], found.values["others_p_mean"]) == pytest.approx((0.7 / 3, 2.2 / 3))
    ages = [row["of_delay"] for row in found.rows]
    assert ages == sorted(ages, reverse=True)
    assert {row["unit"] for row in found.rows[:3]} == {0, 2, 5}


# ---------------------------------------------------------------------------------------------- decay factors


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


# ---------------------------------------------------------------------------------------------- decay curves


@torch.no_grad()
def literal_kept(model, batch, first, last):
    """Products of forget gates from each sequence's own first step that counts on: a list of means (H,) by n."""
    cell = model.rnn.layers[0]
    x = torch.nn.functional.one_hot(batch.x, 10).double() if model.spec.input == "one_hot" else batch.x.double()
    ih, hh, bias_ih, bias_hh = cell.weights()
    by_n = {}
    for k in range(x.shape[1]):
        state, left, n = cell.initial_state(), torch.ones(cell.hidden_size, dtype=torch.float64), 0
        for s in range(len(x)):
            if batch.mask is not None and not batch.mask[s, k]:
                continue
            dt = 1.0 if batch.dt is None else batch.dt[s, k].double()
            gx, gh = eager.project(x[s, k], ih, bias_ih), eager.project(state.h, hh, bias_hh)
            if first(k) <= s < last(k):
                left, n = left * cell.act(gx, gh, state, dt).forget, n + 1
                by_n.setdefault(n, []).append(left)
            state = cell.step(gx, gh, state, dt)
    return [(torch.stack(by_n[n]).mean(0), torch.stack(by_n[n]).log().mean(0)) for n in sorted(by_n)]


@pytest.mark.parametrize("kind", [LSTM, PLSTM, URLSTM])
@pytest.mark.parametrize(
    "task", [copy_task(T=5, test_size=3), variable(test_size=5), waves()], ids=["copy", "variable", "waves"]
)
def test_what_is_left_is_the_literal_product(kind, task):
    model = model_for(task, kind, hidden_size=4)
    (batch,) = task.batches("test")
    if isinstance(task, Frequency):
        ends = (lambda k: 0), (lambda k: len(batch.x))
    else:
        delays = task.delays("test") if isinstance(task, VariableCopy) else [task.T] * 3
        ends = (lambda k: 10), (lambda k: 10 + int(delays[k]))
    (found,) = decay_curves.kept(model, task)
    expected = literal_kept(model, batch, *ends)
    for own, values, first in zip(found, zip(*expected, strict=True), (1.0, 0.0), strict=True):
        assert len(own) == 1 + len(values)
        assert (own[0] == first).all()
        torch.testing.assert_close(own[1:], torch.stack(values), rtol=1e-9, atol=1e-9)


def test_a_unit_that_never_resets_decays_as_a_power(tmp_path):
    """Its age is t: the product of ((t + 1) / (t + eps))^-p from t = 11 on is ((n + 11) / 11)^-p for small eps."""
    task = copy_task(T=60, test_size=2)
    model = model_for(task, hidden_size=2, epsilon=1e-9)
    cell = hold(model, reset=[-60.0, 0.0])
    ((curve, _),) = decay_curves.kept(model, task)
    n, p = torch.arange(61, dtype=torch.float64), cell.p.detach()
    torch.testing.assert_close(curve[:, 0], ((n + 11) / 11) ** -p[0], rtol=1e-6, atol=0)
    # Held at r = 1/2 the age rests at 1, and f = 2^-p: an exponential.
    torch.testing.assert_close(curve[:, 1], 2.0 ** (-p[1] * n), rtol=1e-2, atol=0)
    found = studied(decay_curves, model, task, tmp_path)
    assert found.values["steps"] == 60.0
    assert found.values["share_power_law"] == 0.5
    assert {row["unit"]: row["nearer"] for row in found.rows} == {0: "power law", 1: "exponential"}


def test_the_nearest_law_is_the_one_that_made_the_curve():
    n = torch.arange(201, dtype=torch.float64)
    law = decay_curves.nearest(torch.stack([0.97**n, (n + 1) ** -0.3], 1).log())  # the paper's two
    assert law.power.tolist() == [False, True]
    assert float(law.f[0]) == pytest.approx(0.97)
    assert float(law.p[1]) == pytest.approx(0.3)
    # Exponential in every sequence, but not equally fast: so is the mean logarithm, the logarithm of the mean is not.
    several = (1.0 - torch.logspace(-3, -0.3, 50, dtype=torch.float64)) ** n.unsqueeze(1)
    means = several.log().mean(1, keepdim=True), several.mean(1, keepdim=True).log()
    assert [decay_curves.nearest(mean).power.item() for mean in means] == [False, True]


def test_laws_are_fitted_to_the_mean_logarithm_and_what_is_left_is_the_mean():
    n = torch.arange(21, dtype=torch.float64).unsqueeze(1)
    rows, values = decay_curves.summary([decay_curves.Left(0.9**n, -0.3 * (n + 1.0).log())])
    assert rows[0]["p"] == pytest.approx(0.3, rel=1e-6)
    assert rows[0]["nearer"] == "power law"
    assert [rows[0][f"left_{k}"] for k in (1, 2, 10, 20)] == pytest.approx([0.9, 0.81, 0.9**10, 0.9**20])
    assert values["left_median"] == pytest.approx(0.9**20)


def test_several_models_decay_on_one_axis(tmp_path):
    task = copy_task()
    runs = [run_of(model_for(task, kind), task) for kind in (LSTM, PLSTM)]
    found = decay_curves.compare(runs)
    assert {row["run"] for row in found.rows} == {"lstm", "plstm"}
    assert study.write(found, tmp_path, "decay_curves")[1].is_file()
    empty = copy_task(T=0)
    with pytest.raises(ConfigError, match=r"give a run with a longer task\.T"):
        decay_curves.kept(model_for(empty), empty)
    model = model_for(task, ExpRNN)
    with pytest.raises(ConfigError, match="ExpRNNCell has no forget gate"):
        decay_curves.kept(model, task)


# ---------------------------------------------------------------------------------------------- ablation, other delays


def test_the_ablation_study_is_the_probe_with_its_spread(tmp_path):
    task = copy_task(test_size=20)
    model = model_for(task)
    found = studied(ablation, model, task, tmp_path)
    assert found.values == ablation.measure(model, task)
    for row in found.rows:
        each = [row[f"order {k}"] for k in range(1, 11)]
        assert row["accuracy"] == pytest.approx(statistics.fmean(each))
        assert row["accuracy"] == pytest.approx(found.values[f"{row['silenced']}/{row['units']}"])
        assert row["standard_error"] == pytest.approx(statistics.stdev(each) / math.sqrt(10))


def test_ablation_of_several_seeds_is_their_mean(tmp_path):
    task = copy_task(test_size=20)
    runs = [run_of(model_for(task, LSTM, seed=k), task, seed=k) for k in range(3)]
    each = [ablation.measure(run.model, task) for run in runs]
    found = ablation.compare([*runs, run_of(model_for(task), task)])
    assert found.values["lstm/random/mean"] == pytest.approx(statistics.fmean(one["random/mean"] for one in each))
    row = next(row for row in found.rows if row["run"] == "lstm" and row["units"] == 4)
    accuracies = [one["random/4"] for one in each]
    assert row["accuracy"] == pytest.approx(statistics.fmean(accuracies))
    assert row["standard_error"] == pytest.approx(statistics.stdev(accuracies) / math.sqrt(3))
    assert {"plstm/random/mean", "plstm/later_first/mean"} < set(found.values)
    assert study.write(found, tmp_path, "ablation")[1].is_file()


def test_groups_of_one_model_are_told_apart(monkeypatch):
    monkeypatch.setattr(ablation, "ORDERS", 2)
    monkeypatch.setattr(ablation, "SEQUENCES", 4)
    task = copy_task()
    runs = [run_of(model_for(task), task, alpha=alpha) for alpha in (1, 2)]
    figure = Figure()
    ablation.compare(runs).draw(figure)
    lines = [line for line in figure.axes[0].get_lines() if line.get_label().startswith("plstm")]
    kinds = ("at random", "later-reset units first")
    labels = [f"plstm, alpha={alpha} (1 run), {words}" for alpha in (1, 2) for words in kinds]
    assert [line.get_label() for line in lines] == labels
    assert [line.get_linestyle() for line in lines] == ["-", "-", "--", "--"]
    assert [line.get_markerfacecolor() for line in lines] == [plotting.COLOURS["plstm"], "white"] * 2


def test_the_generalisation_study_is_the_probe(tmp_path, monkeypatch):
    monkeypatch.setattr(generalisation, "SEQUENCES", 50)
    task = copy_task(T=6)
    model = model_for(task)
    found = studied(generalisation, model, task, tmp_path)
    assert found.values == generalisation.measure(model, task)
    row = found.rows[0]
    assert (row["T"], row["trained"]) == (2, 6)
    each = generalisation.shares(model, generalisation.at_delay(task, 2)).tolist()
    assert len(each) == 50
    assert row["accuracy"] == pytest.approx(statistics.fmean(each))
    assert row["standard_error"] == pytest.approx(statistics.stdev(each) / math.sqrt(50))
    runs = [run_of(model, task, seed=0), run_of(model_for(task, seed=1), task, seed=1)]
    both = [generalisation.measure(run.model, task) for run in runs]
    several = generalisation.compare(runs)
    assert several.values["plstm/6"] == pytest.approx((both[0]["6"] + both[1]["6"]) / 2)
    assert study.write(several, tmp_path, "several")[1].is_file()


# ---------------------------------------------------------------------------------------------- lengths


class Reviews(IMDB):
    """800 texts of which the model is right about those whose number is no multiple of its own."""

    def __init__(self, wrong):
        lengths = torch.randint(1, 700, (800,), generator=torch.Generator().manual_seed(0))
        self.lengths, self.wrong = {"test": lengths}, wrong

    def size(self, split):
        return 800

    def batches(self, split):
        for first in range(0, 800, 500):
            x = torch.arange(first, min(first + 500, 800))
            yield Batch(x, x)

    def correct(self, logits, batch):
        return logits % self.wrong > 0


def echo(batch):
    return SimpleNamespace(logits=batch.x)


def test_accuracy_by_length_is_counted_text_by_text(tmp_path):
    task = Reviews(3)
    run = SimpleNamespace(config={"model": {"name": "lstm"}}, colour="#666666", model=echo, task=task)
    found = length_accuracy.study(run)
    lengths = task.lengths["test"].tolist()
    edges = [0, 100, 150, 200, 250, 300, 400, 10**9]
    for row, low, high in zip(found.rows, edges[:-1], edges[1:], strict=True):
        inside = [k for k, n in enumerate(lengths) if low < n <= high]
        right = sum(k % 3 > 0 for k in inside)
        assert (row["n"], row["right"]) == (len(inside), right)
        assert row["accuracy"] == right / len(inside)
        spread = statistics.pstdev([k % 3 > 0 for k in inside])
        assert row["standard_error"] == pytest.approx(spread / len(inside) ** 0.5)
    short = [k for k, n in enumerate(lengths) if n <= 150]
    assert found.values["up_to_150"] == pytest.approx(sum(k % 3 > 0 for k in short) / len(short))
    assert list(found.values)[-3:] == ["above_400", "up_to_150", "above_150"]
    assert study.write(found, tmp_path, "length_accuracy")[1].is_file()


def test_texts_of_all_seeds_count_together(tmp_path):
    runs = []
    for seed, wrong in enumerate((3, 5)):
        run = run_of(SimpleNamespace(rnn=None), Reviews(wrong), seed=seed)
        run.model = echo
        runs.append(run)
    found = length_accuracy.compare(runs)
    alone = [length_accuracy.table(run.task.lengths["test"], length_accuracy.answers(echo, run.task)) for run in runs]
    for row, a, b in zip(found.rows, *alone, strict=True):
        assert (row["n"], row["right"]) == (a["n"] + b["n"], a["right"] + b["right"])
    assert study.write(found, tmp_path, "length_accuracy")[1].is_file()
    for task in (copy_task(), brackets()):  # strings of brackets have lengths too, but the claim is not of them
        model = model_for(task)
        with pytest.raises(ConfigError, match=f"for texts of different length .imdb., not for {type(task).__name__}"):
            length_accuracy.study(run_of(model, task))


# ---------------------------------------------------------------------------------------------- brackets


def brackets(seed=0):
    return Dyck2(train_size=300, valid_size=20, test_size=200, batch_size=50, seed=seed, data_seed=3)


def text_of(task, split, k):
    return "".join("()[]"[s] for s in task.symbols[split][k, : task.lengths[split][k]].tolist())


def pairs_of(string):
    """Lengths of its pairs, by taking innermost pairs out one after the other."""
    at, found = list(enumerate(string)), []
    while at:
        k = next(k for k in range(1, len(at)) if at[k - 1][1] + at[k][1] in ("()", "[]"))
        found.append(at[k][0] - at[k - 1][0] + 1)
        del at[k - 1 : k + 1]
    return found


def test_lengths_of_pairs_are_those_found_pair_by_pair():
    task = brackets()
    expected = Counter(n for k in range(300) for n in pairs_of(text_of(task, "train", k)))
    found = longest_pair.pair_lengths(task)
    assert found == dict(expected)
    points = [(math.log(k), math.log(n)) for k, n in expected.items() if 4 <= k <= 100]
    assert longest_pair.slope(found) == pytest.approx(statistics.linear_regression(*zip(*points, strict=True)).slope)


def test_right_strings_are_counted_by_their_longest_pair(tmp_path, monkeypatch):
    torch.manual_seed(0)
    task = brackets()
    model = model_for(task)
    run = run_of(model, task)
    found = longest_pair.study(run)
    rows = [row for row in found.rows if row["what"] == "accuracy"]
    right = {k: [] for k in range(len(rows))}
    for k in range(200):
        batch = task.batch("test", 0, 0, k, k + 1)
        output = (model(batch).logits[:, 0].sigmoid() > 0.5).tolist()
        longest = max(pairs_of(text_of(task, "test", k)))
        (place,) = [j for j, row in enumerate(rows) if row["above"] - 0.05 < longest <= row["up_to"] + 0.05]
        right[place].append(output == (batch.target[:, 0] > 0.5).tolist())
    for k, row in enumerate(rows):
        assert (row["n"], row["value"]) == (len(right[k]), pytest.approx(statistics.fmean(right[k])))
    beyond = task.timescales["test"] > 75
    assert 0 < beyond.sum() < 200
    monkeypatch.setattr(longest_pair, "answers", lambda model, task: beyond)
    values = longest_pair.study(run).values
    assert (values["up_to_75"], values["above_75"]) == (0.0, 1.0)  # 75 itself, not a bin's edge
    assert study.write(found, tmp_path, "longest_pair")[1].is_file()
    with pytest.raises(ConfigError, match="strings of brackets"):
        longest_pair.study(run_of(model, copy_task()))


def test_bins_of_several_runs_are_averaged(tmp_path, monkeypatch):
    runs = [run_of(SimpleNamespace(rnn=None), brackets(seed), seed=seed) for seed in (0, 1)]
    wrong = iter((2, 4))
    monkeypatch.setattr(longest_pair, "answers", lambda model, task: torch.arange(200) % next(wrong) > 0)
    found = longest_pair.compare(runs)
    first = next(row for row in found.rows if row["what"] == "accuracy")
    inside = (runs[0].task.timescales["test"] <= first["up_to"]).nonzero().squeeze(1).tolist()
    shares = [statistics.fmean(k % n > 0 for k in inside) for n in (2, 4)]
    assert (first["runs"], first["n"]) == (2, len(inside))
    assert (first["value"], first["spread"]) == pytest.approx((statistics.fmean(shares), statistics.pstdev(shares)))
    assert study.write(found, tmp_path, "longest_pair")[1].is_file()


# ---------------------------------------------------------------------------------------------- gates


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


def test_gradients_of_sigmoid_gates_follow_their_activation(tmp_path):
    task = copy_task()
    model = model_for(task, LSTM, num_layers=2)
    layers, units, g, gradient = gate_gradients.observed(model, task)
    torch.testing.assert_close(gradient, g * (1 - g), rtol=0, atol=1e-12)
    assert set(layers.tolist()) == {1, 2}
    assert set(units.tolist()) == set(range(6))
    found = studied(gate_gradients, model, task, tmp_path)
    assert found.values["over_sigmoid_median"] == pytest.approx(1.0)
    assert found.values["formula_error"] < 1e-12
    assert all("act" not in vars(cell) for cell in model.rnn.layers)


def test_gradients_of_refined_gates_lie_between_the_bounds():
    task = copy_task()
    _, _, g, gradient = (found[::8] for found in gate_gradients.observed(model_for(task, URLSTM), task))
    low, high = refine_gradient_bounds(g)
    assert (gradient >= low - 1e-6).all()
    assert (gradient <= high + 1e-6).all()
    assert float((gradient / (g * (1 - g))).min()) >= 1.0


def test_refined_gates_have_more_gradient_than_sigmoids(tmp_path):
    task = copy_task()
    model = model_for(task, URLSTM)
    _, _, g, gradient = gate_gradients.observed(model, task)
    found = studied(gate_gradients, model, task, tmp_path)
    assert found.values["over_sigmoid_median"] == pytest.approx(float((gradient / (g * (1 - g))).median()))
    assert found.values["over_sigmoid_median"] > 1.0


def test_gradients_of_power_law_gates_are_the_closed_form():
    """df/dz = -p f r (1 - eps) d / ((d + eps)(d + 1)) in the pre-activation z of the reset gate, d the new age."""
    task = copy_task()
    model = model_for(task, epsilon=1e-3)
    cell = model.rnn.layers[0]
    seen = []
    with (
        torch.no_grad(),
        gate_gradients.called(model, lambda layer, step, cell, act, *given: seen.append((given, act(*given)))),
    ):
        model(next(iter(task.batches("test"))))
    _, units, g, gradient = gate_gradients.observed(model, task)
    expected = {}
    for _, act in seen:
        d, p = act.age, cell.p.detach()
        slope = p * act.forget * act.reset * (1 - 1e-3) * d / ((d + 1e-3) * (d + 1))
        for row_f, row_s in zip(act.forget, slope, strict=True):
            for unit, (f, s) in enumerate(zip(row_f.tolist(), row_s.tolist(), strict=True)):
                expected[unit, round(f, 10)] = s
    for unit, f, value in zip(units.tolist(), g.tolist(), gradient.tolist(), strict=True):
        assert value == pytest.approx(expected[unit, round(f, 10)], rel=1e-6, abs=1e-12)


def test_steps_that_do_not_exist_have_no_gradients():
    task = waves(2)
    (batch,) = task.batches("test")
    assert not batch.mask.bool().all()
    _, _, g, _ = gate_gradients.observed(model_for(task, LSTM, hidden_size=2), task)
    S = len(batch.x)
    every = -(-S // 100)
    assert len(g) == 2 * int(batch.mask[::every].sum())


def test_gates_that_hang_on_other_units_are_refused():
    task = copy_task()
    for gate in ("o", "om", "um", "or"):
        model = model_for(task, GatedRNN, hidden_size=16, gate=gate)
        with pytest.raises(ConfigError, match=f"those of gate={gate} hang on others"):
            gate_gradients.observed(model, task)
    with pytest.raises(ConfigError, match="ExpRNNCell has no forget gate"):
        gate_gradients.observed(model_for(task, ExpRNN), task)
