"""Characteristic times before and after training."""

import math

import pytest
import torch
from analysed import run_of_words
from matplotlib.figure import Figure

from timescales import LSTM, ExpRNN
from timescales.analysis import characteristic_times, study
from timescales.models.sequence import SequenceModel
from timescales.tasks import Copy


def test_characteristic_times_before_and_after(tmp_path):
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    initial = SequenceModel(LSTM(10, 4, forget_init=1.0), task.spec)
    model = SequenceModel(LSTM(10, 4, forget_init={"law": "assigned", "timescales": [3.0, 40.0]}), task.spec)
    with torch.no_grad():
        initial.rnn.layers[0].bias_ih.zero_()
        model.rnn.layers[0].bias_ih.zero_()
    run = run_of_words(model, task, initial, name="lstm")
    found = characteristic_times.study(run)
    began = -1 / math.log(1 / (1 + math.exp(-1.0)))
    assert [row["initial"] for row in found.rows] == pytest.approx([began] * 4, rel=1e-5)
    assert [row["trained"] for row in found.rows] == pytest.approx([3.0, 3.0, 40.0, 40.0], rel=1e-5)
    assert found.values["trained/q90"] == pytest.approx(40.0, rel=1e-5)
    endless = SequenceModel(ExpRNN(10, 4), task.spec)
    both = characteristic_times.compare([run, run_of_words(endless, task, name="exprnn")])
    assert [row["model"] for row in both.rows] == ["lstm"] * 4 + ["exprnn"] * 4
    assert both.values["2/trained/median"] == math.inf
    figure = Figure()
    other = run_of_words(model, task, initial, name="lstm")
    other.record.config["model"]["alpha"] = 2
    characteristic_times.draw(figure, [run, other, run_of_words(endless, task, name="exprnn")])
    (one,) = figure.axes
    lines = {line.get_label(): line.get_linestyle() for line in one.get_lines() if line.get_label()[0] != "_"}
    assert [name for name in lines if "run" in name] == [
        "lstm, alpha=0.56 (1 run)",
        "lstm, alpha=2 (1 run)",
        "exprnn (1 run) (infinite)",
    ]
    assert lines["lstm, alpha=0.56 (1 run)"] != lines["lstm, alpha=2 (1 run)"]
    assert "horizon of the task" in one.texts[0].get_text()
    assert study.write(both, tmp_path, "characteristic_times")[1].is_file()
