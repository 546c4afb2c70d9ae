"""Do the numbers stay the same? The first 20 losses of models on tasks, to the last digits."""

import itertools
import json

import golden
import pytest

from timescales.config import folders
from timescales.runs import provenance

CURVES = json.loads(golden.PATH.read_text())


# Every task but those of a thousand steps, with the LSTM and the pLSTM in turn, and every model on the copy task.
TASKS = [task for task in folders.choices("task") if task not in ("smnist", "pmnist", "scifar")]
MODELS = folders.choices("model")
QUICK = {*zip(TASKS, itertools.cycle(["lstm", "plstm"]), strict=False), *(("copy", model) for model in MODELS)}
CASES = [pair if pair in QUICK else pytest.param(*pair, marks=pytest.mark.slow) for pair in golden.pairs()]


@pytest.mark.parametrize(("task", "model"), CASES)
def test_curve(task, model, corpora):
    # float64: machines differ in the last digits of a sum, which stays below 1e-9 after 20 steps of training.
    assert golden.curve(task, model, str(corpora)) == pytest.approx(CURVES[f"{task}/{model}"], rel=1e-9)


def test_every_stored_curve_is_compared():
    assert sorted(CURVES) == sorted(f"{task}/{model}" for task, model in golden.pairs())


def test_a_record_names_its_golden_curve():
    for task in folders.choices("task"):
        hashes = {model: provenance.golden(task, model) for model in folders.choices("model")}
        assert all(len(text) == 12 for text in hashes.values())
        distinct = {text for model, text in hashes.items() if model != "gated"}  # gated equals ur by default
        assert len(distinct) == len(hashes) - 1
    assert provenance.golden("copy", "a cell of your own") is None
