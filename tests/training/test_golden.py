"""Does this change numbers? The first 20 losses of models on tasks, in full digits."""

import json

import golden
import pytest

from timescales.config import folders
from timescales.runs import provenance

CURVES = json.loads(golden.PATH.read_text())


@pytest.mark.parametrize(("task", "model"), golden.pairs())
def test_curve(task, model, corpora):
    # float64: machines differ in the last digits of a sum, which 20 steps of training leave below 1e-9.
    assert golden.curve(task, model, str(corpora)) == pytest.approx(CURVES[f"{task}/{model}"], rel=1e-9)


def test_nothing_else_is_stored():
    assert sorted(CURVES) == sorted(f"{task}/{model}" for task, model in golden.pairs())


def test_record_names_its_golden_curve():
    hashes = {t: {m: provenance.golden(t, m) for m in folders.choices("model")} for t in folders.choices("task")}
    assert all(len(h) == 12 for one in hashes.values() for h in one.values())
    for one in hashes.values():
        assert len({h for model, h in one.items() if model != "gated"}) == len(one) - 1  # gated is ur by default
    assert provenance.golden("copy", "a cell of one's own") is None
