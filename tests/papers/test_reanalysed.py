"""What needs no training: the released models and the data, judged by a table's values and claims."""

import dataclasses
import math

import numpy as np
import pytest
import released_files
from made_up import TABLE

from timescales import paths
from timescales.analysis import released
from timescales.analysis.study import Source
from timescales.errors import ConfigError
from timescales.papers import load, reanalysed
from timescales.papers.parse import parse
from timescales.papers.reanalysed import AS_PRINTED, NOT_AS_PRINTED
from timescales.tasks.data import released as files

SHARE, MEAN = "probe/law/share", "probe/law/mean"
QUOTED = {"quote": "it does", "at": "section 1", "better": "higher", "unit": "share"}


def source(model="lstm", task="copy", kind="published model", **values):
    axes, named = {"task": task, "model": model}, {f"probe/law/{key}": value for key, value in values.items()}
    return Source(kind, f"{model} on {task}", axes, named)


def judged(sources, **changes):
    """(word, numbers, of) of each piece of evidence of a made-up table with these keys."""
    found = reanalysed.judge(parse(TABLE | {"cells": [], "claims": []} | changes), sources)
    return [(one.word, one.numbers, one.of) for one in found]


def test_a_models_number_must_have_the_printed_digits():
    cell = {"metric": MEAN, "unit": "steps", "tolerance": 0.1, "where": {"model": "lstm"}}
    for printed, as_printed, not_as_printed in ((1.4, 1.44, 1.5), (80, 79.51, 79.4)):
        for number, word in ((as_printed, AS_PRINTED), (not_as_printed, NOT_AS_PRINTED)):
            assert judged([source(mean=number)], cells=[cell | {"value": printed}])[0][:2] == (word, (number,))
    percent = cell | {"value": 80, "unit": "percent"}
    assert judged([source(mean=0.8)], cells=[percent])[0][:2] == (AS_PRINTED, (pytest.approx(80.0),))
    three = [source(mean=1.4), source("plstm", mean=1.4), source(share=1.4)]
    assert judged(three, cells=[cell | {"value": 1.4}]) == [(AS_PRINTED, (1.4,), "lstm on copy")]


def test_a_number_of_data_must_be_within_the_tolerance():
    cell = {"metric": "data/slope", "value": 1.5, "unit": "exponent", "tolerance": 0.2, "where": {"task": "copy"}}
    for number, word in ((1.61, AS_PRINTED), (1.71, NOT_AS_PRINTED)):
        found = Source("data", "strings", {"task": "copy"}, {"data/slope": number})
        assert judged([found], data=[cell]) == [(word, (number,), "strings")]


def test_a_claim_by_two_numbers_of_a_model():
    claim = {"claim": "lstm", "metric": SHARE, "than": MEAN, "times": 9, **QUOTED}
    both = [source(share=0.95, mean=0.05), source("plstm", share=0.1, mean=0.9)]
    assert judged(both, claims=[claim]) == [(AS_PRINTED, (0.95, 0.05), "lstm on copy")]
    assert judged([source(share=0.89, mean=0.11)], claims=[claim])[0][0] == NOT_AS_PRINTED
    lower = claim | {"better": "lower", "times": 2}
    assert judged([source(share=0.4, mean=1.0)], claims=[lower])[0][0] == AS_PRINTED
    assert judged([source(share=0.6, mean=1.0)], claims=[lower])[0][0] == NOT_AS_PRINTED
    equal = claim | {"times": 1}
    assert judged([source(share=0.5, mean=0.5)], claims=[equal])[0][0] == NOT_AS_PRINTED
    ours = {key: value for key, value in claim.items() if key not in ("quote", "at")} | {"ours": "to see"}
    assert judged(both, claims=[ours]) == []  # the paper does not say it


def test_a_claim_by_two_models():
    models = [source(share=0.1), source("plstm", share=0.2)]
    for line, tolerance, word in (
        ("plstm > lstm", {}, AS_PRINTED),
        ("lstm > plstm", {}, NOT_AS_PRINTED),
        ("lstm >= plstm", {"tolerance": 0.15}, AS_PRINTED),
        ("lstm ~ plstm", {"tolerance": 0.15}, AS_PRINTED),
        ("lstm ~ plstm", {"tolerance": 0.05}, NOT_AS_PRINTED),
    ):
        claim = {"claim": line, "metric": SHARE, **QUOTED, **tolerance}
        assert judged(models, claims=[claim])[0][0] == word, line
    claim = {"claim": "plstm > lstm", "metric": SHARE, **QUOTED}
    assert judged(models, claims=[claim])[0][1:] == ((0.2, 0.1), "plstm on copy against lstm on copy")
    assert judged(models[:1], claims=[claim]) == []
    assert judged([source(task="adding", share=0.1), source("plstm", "adding", share=0.2)], claims=[claim]) == []


def test_numbers_in_a_file_are_those_that_were_written(tmp_path):
    written = [source(share=0.25, mean=1234.5678), Source("data", "a, b", {"task": "copy"}, {"data/slope": math.nan})]
    (tmp_path / "reanalysed").mkdir()
    (tmp_path / "reanalysed" / "values.csv").write_text(reanalysed.text(written))
    first, second = reanalysed.read(tmp_path)
    assert first == dataclasses.replace(written[0], values={SHARE: 0.25, MEAN: 1234.57})
    assert math.isnan(second.values["data/slope"])
    assert reanalysed.read(tmp_path / "nowhere") == []


def test_what_is_about_data_names_their_numbers():
    with pytest.raises(ConfigError, match=r"table/made_up.yaml: table.data\[0\].metric must begin with data/"):
        parse(TABLE | {"data": [{"claim": "lstm", "metric": SHARE, "than": MEAN, **QUOTED}]})


def test_the_released_models_follow_an_inverse_gamma(tmp_path, monkeypatch):
    """The nearest exponents: 1.5 on the Penn Treebank, where 1.4 is printed, and 1.4 on WikiText-2."""
    folder = released_files.real()
    if folder is None:
        folder = released_files.write(tmp_path)
        released_files.accepted(monkeypatch, folder)
    ptb, ptb_mts, wt2, wt2_mts, ratios = released.models(folder.parent)
    assert ptb.values["probe/timescale_law/alpha"] == 1.5
    assert ptb_mts.values["probe/assigned/layer2/spearman"] > 0.95
    assert "probe/assigned/layer2/spearman" not in ptb.values
    assert ptb_mts.values["probe/gate_maps/in_one_layer"] > ptb.values["probe/gate_maps/in_one_layer"]
    if released_files.real():
        assert wt2.values["probe/timescale_law/alpha"] == 1.4
        distances = [ptb.values[f"probe/timescale_law/ks_{kind}"] for kind in ("inverse_gamma", "normal")]
        assert distances == pytest.approx([0.1628, 0.3071], abs=5e-5)
        assert ptb.values["probe/timescale_law/below_10"] == pytest.approx(2588 / 2700)
        longest = [model.values["probe/timescale_law/longest"] for model in (ptb, wt2)]
        assert longest == pytest.approx([88.83, 205.91], abs=0.01)
        spearman = [model.values["probe/assigned/layer2/spearman"] for model in (ptb_mts, wt2_mts)]
        assert spearman == pytest.approx([0.9788, 0.9752], abs=5e-5)
        assert ratios.values["probe/routing/long/below_100"] == pytest.approx(1.0460, abs=5e-5)
        assert ratios.values["probe/routing/shortest/above_10K"] == pytest.approx(0.9919, abs=5e-5)
    committed = {one.of: one for one in reanalysed.read(paths.RESULTS)}
    for model in (ptb, ptb_mts, wt2, wt2_mts, ratios):
        assert committed[model.of].values.keys() == model.values.keys()
        if released_files.real():
            assert committed[model.of].values == pytest.approx(model.values, rel=1e-5)


def test_before_training_neither_distribution_fits_and_the_normal_one_is_nearer():
    found = released.untrained()
    values = {key.rpartition("/")[2]: value for key, value in found.values.items()}
    assert (values["shortest"], values["longest"]) == pytest.approx((1.3495, 1.5426), abs=5e-4)
    assert (values["ks_inverse_gamma"], values["ks_normal"]) == pytest.approx((0.4773, 0.4459), abs=5e-4)
    assert (values["alpha"], values["mu"], values["below_10"]) == (1.0, 1.4, 1.0)
    committed = {one.of: one for one in reanalysed.read(paths.RESULTS)}
    assert committed[found.of].values == pytest.approx(found.values, rel=1e-5)
    assert reanalysed.judge(load.table("mahto_figure1"), [found]) == []


def test_mean_forget_gates_are_those_of_the_time_scales():
    """A mean gate above .9 is a time scale above 9.49 steps."""
    layers = [np.array(times, np.float32) for times in ([1.0, 9.4, 9.6], [50.0, 200.0], [3.0])]
    values = released.of_time_scales(layers, "lstm")
    assert values["probe/gate_maps/layer1/above_0.9"] == pytest.approx(1 / 3)
    assert values["probe/gate_maps/above_0.9"] == pytest.approx(3 / 6)
    assert values["probe/gate_maps/in_one_layer"] == pytest.approx(2 / 3)


def test_bands_of_ratios_are_those_of_the_assigned_time_scales():
    """Groups 3 to 5 and the second have mean time scales of 20 to 300 steps, the last four below 1."""
    ratios = np.ones((4, 23))
    ratios[3, 1:5] = 1.1
    ratios[0, 19:] = 0.9
    values = released.of_ratios(ratios)
    assert values["probe/routing/long/below_100"] == pytest.approx(1.1)
    assert values["probe/routing/shortest/above_10K"] == pytest.approx(0.9)
    assert values["probe/routing/not_shortest/above_10K"] == pytest.approx(1.0)
    assert "probe/routing/long/all" not in values


def test_pairs_of_a_known_distribution():
    """Numbers that fall as length^-1.5 give this exponent; those of an inverse gamma distribution give its alpha."""
    falling = {k: 1e9 * k**-1.5 for k in range(2, 201, 2)}
    values = released.of_pairs(falling)
    assert values["data/pairs/exponent_4_to_100"] == pytest.approx(1.5)
    assert values["data/pairs/exponent_2_to_50"] == pytest.approx(1.5)
    from scipy import stats

    law = stats.invgamma(1.5)
    drawn = {k: law.cdf(k + 1) - (law.cdf(k - 1) if k > 2 else 0.0) for k in range(2, 20_001, 2)}
    values = released.of_pairs(drawn)
    assert (values["data/pairs/alpha"], values["data/pairs/distance"]) == (1.5, pytest.approx(0.0, abs=1e-4))


@pytest.mark.parametrize(
    ("name", "words"),
    [("mahto_figure1", "-++"), ("mahto_dyck2", "+-"), ("mahto_alpha", "++"), ("mahto_table3", "+++-")],
)
def test_what_the_tables_say_by_the_committed_numbers(name, words):
    found = reanalysed.judge(load.table(name), reanalysed.read(paths.RESULTS))
    assert "".join({AS_PRINTED: "+", NOT_AS_PRINTED: "-"}[one.word] for one in found) == words


def test_the_script_writes_the_numbers_and_compares(script, tmp_path, monkeypatch):
    found = [source(share=0.5)]
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    monkeypatch.setattr(released, "sources", lambda: found)
    assert "values.csv" in script("report", "--reanalyse")
    assert reanalysed.read(tmp_path) == found
    assert script("report", "--reanalyse", "--check") == ""
    found[0].values[SHARE] = 0.6
    assert "has other numbers" in script("report", "--reanalyse", "--check")
    monkeypatch.setattr(released, "sources", lambda: released.models(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    line = script("report", "--reanalyse")
    assert line.startswith("error: released time scales of Mahto et al. 2021 is not under")
    assert "fetch_data.py mahto_released" in line
    assert files.FILES[0] in line
