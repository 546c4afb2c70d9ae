"""The cuDNN engine by torch's CPU kernel, and which engine "auto" takes on a GPU."""

from __future__ import annotations

import csv
from typing import NamedTuple

import pytest
import torch
from engine_cases import (
    SHAPES,
    compare,
    some_state,
)
from synthetic import SMALL, sizes

import timescales.nn.cells
from timescales import GRU, LSTM, PLSTM, RNN, ChronoLSTM, GatedRNN
from timescales.nn import engine as engines
from timescales.nn.cells import LSTMCell
from timescales.nn.engine import eager, kept
from timescales.nn.engine.gpu import choice, cudnn, graph


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cudnn_engine_by_torchs_cpu_kernel(shape):
    S, B, inputs, H = shape
    for model in (LSTM(inputs, H), GatedRNN(inputs, H, gate="-"), LSTM(inputs, H, forget_init="uniform")):
        x = torch.randn(S, B, inputs)
        compare("cudnn", model, x, some_state(model, B))
        compare("cudnn", model, x, last=True)


class Renamed(LSTMCell):
    """torch's equations in a class of one's own, whose fields have other names."""

    class State(NamedTuple):
        h: torch.Tensor
        memory: torch.Tensor

    def step(self, gx, gh, state, dt=1.0):
        return self.State(*super().step(gx, gh, LSTMCell.State(*state), dt))


def test_cudnn_runs_ones_own_cell_with_torchs_equations():
    model = RNN([Renamed(3, 5)])
    compare("cudnn", model, torch.randn(6, 2, 3), some_state(model, 2))


def test_cudnn_engine_takes_no_steps():
    model, state = LSTM(3, 5, engine="cudnn"), some_state(LSTM(3, 5), 2)
    output, after = model(torch.randn(0, 2, 3), state)
    assert output.shape == (0, 2, 5)
    assert torch.equal(after[1][0], state[0].c)


def test_cudnn_engine_keeps_float32_under_autocast():
    torch.manual_seed(0)
    model, x = LSTM(3, 5, 2, forget_init=6.0, engine="cudnn"), torch.randn(40, 2, 3)
    expected, _ = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, state = model(x)
        again, _ = model(x, state)  # taken as it was given
    assert torch.equal(output, expected)
    assert again.dtype == state[1].dtype == torch.float32


class Mixed(LSTMCell):
    """It takes the maximum over the units, which no kernel can."""

    def step(self, gx, gh, state, dt=1.0):
        h, c = super().step(gx, gh, state, dt)
        return self.State(h - h.amax(-1, keepdim=True), c)


def measured(monkeypatch, text):
    rows = tuple(
        choice.Row(c, int(s), int(b), int(h), e, float(ms), d)
        for c, s, b, h, e, ms, d in (line.split(",") for line in text.split())
    )
    monkeypatch.setattr(choice, "measured", lambda: rows)


def test_choice_by_the_nearest_measured_size(monkeypatch):
    measured(
        monkeypatch,
        """
        lstm,220,128,128,cudnn,1.0,H200 lstm,220,128,128,graph,2.0,H200
        lstm,784,100,512,cudnn,9.0,H200 lstm,784,100,512,graph,7.0,H200
        lstm,100,1,64,cudnn,1.0,H200
        lstm,784,100,512,cudnn,5.0,A100 lstm,784,100,512,graph,8.0,A100
        PLSTMCell,220,128,128,graph,2.0,H200 PLSTMCell,220,128,128,eager,80.0,H200
    """,
    )
    assert choice.ranking("lstm", 200, 128, 100, "H200") == ["cudnn", "graph", "eager"]
    assert choice.ranking("lstm", 784, 100, 700, "H200") == ["graph", "cudnn", "eager"]
    assert choice.ranking("lstm", 784, 100, 700, "A100") == ["cudnn", "graph", "eager"]
    assert choice.ranking("lstm", 100, 1, 64, "H200")[0] == "cudnn"  # alone at its size: nothing was compared there
    assert choice.ranking("PLSTMCell", 1000, 1, 512, "L4") == ["graph", "eager", "cudnn"]
    assert choice.ranking("URLSTMCell", 220, 128, 128, "H200") == list(choice.DEFAULT)
    assert choice.ranking("lstm", 450, 110, 260, "H200") == ["graph", "cudnn", "eager"]  # by ratios, not differences


def test_measurements_are_well_formed():
    with choice.MEASURED.open(newline="") as file:
        assert csv.DictReader(file).fieldnames == list(choice.Row._fields)
    for row in choice.measured():
        assert row.cell == "lstm" or hasattr(timescales.nn.cells, row.cell)
        assert row.engine in choice.MEASURABLE


def test_kinds_of_cells():
    """cuDNN runs every LSTM, whatever its initializer; the other cells go by their classes."""
    plain = (LSTM(3, 4), LSTM(3, 4, forget_init="uniform"), ChronoLSTM(3, 4, T_max=20), GatedRNN(3, 4, gate="c"))
    for model in plain:
        assert choice.kind_of(model.layers[0]) == "lstm"
    for model, kind in ((PLSTM(3, 4), "PLSTMCell"), (GRU(3, 4), "GRUCell"), (GatedRNN(3, 4), "GatedLSTMCell")):
        assert choice.kind_of(model.layers[0]) == kind


def test_choice_on_a_gpu(monkeypatch):
    """What auto takes: by the ranking, the first that can run."""
    measured(monkeypatch, "")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H200")
    lstm, plstm, ordered = LSTM(3, 4).layers[0], PLSTM(3, 4).layers[0], GatedRNN(3, 4, gate="o").layers[0]
    mixed = Mixed(3, 4)
    x = torch.randn(5, 2, 3)
    assert engines.pick_on_gpu(lstm, x, masked=False) is cudnn.run
    assert engines.pick_on_gpu(lstm, x, masked=True) is graph.run_or_eager
    assert engines.pick_on_gpu(plstm, x, masked=False) is graph.run_or_eager
    assert engines.pick_on_gpu(lstm, x.unsqueeze(1), masked=False) is graph.run_or_eager  # replicas
    assert engines.pick_on_gpu(ordered, x, masked=False) is graph.run_or_eager
    monkeypatch.setattr(kept, "SAID", set())
    with pytest.warns(UserWarning, match=r"runs on the eager engine.*mixes units .*; engine='eager' silences this"):
        assert engines.pick_on_gpu(mixed, x, masked=False) is eager.run
    torch.use_deterministic_algorithms(True)
    try:
        assert engines.pick_on_gpu(lstm, x, masked=False) is graph.run_or_eager
    finally:
        torch.use_deterministic_algorithms(False)
    monkeypatch.setattr(graph, "unsupported_reason", lambda *_: "Triton is broken")
    assert engines.pick_on_gpu(plstm, x, masked=False) is eager.run


@pytest.mark.parametrize(("task", "masks"), [("variable_copy", True), ("copy", False)])
def test_cudnn_on_a_task_with_masks_is_one_line(task, masks, train, tmp_path):
    found = train(
        f"task={task}",
        "model=lstm",
        "engine=cudnn",
        "device=cpu",
        "model.hidden_size=4",
        "logger=none",
        "loop.max_steps=1",
        "task.batch_size=4",
        *sizes(task, 8, 4, 4),
        *SMALL.get(task, []),
    )
    assert (found.status != 0) is masks, found
    if masks:
        (line,) = found.err.strip().splitlines()
        assert "the cudnn engine cannot run here: it cannot hold the state where a mask is 0; use engine='auto'" in line
        assert not list((tmp_path / "runs").glob("*/record.json"))
