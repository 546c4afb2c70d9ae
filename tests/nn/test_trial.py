"""The trial of a trace: its expressions have the values and gradients of the step in float64."""

from __future__ import annotations

import cell_models
import pytest
import torch
from engine_cases import batched_seeds

from timescales import GatedRNN
from timescales.nn.engine import graph, trial
from timescales.nn.engine.equations import of_cell


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


@pytest.mark.parametrize("name", cell_models.NAMES)
def test_every_cell_passes(name, monkeypatch):
    """To the roundings of float64, but for a constant that torch rounds to float32."""
    monkeypatch.setattr(trial, "TOLERANCE", 1e-8 if name == "odd" else 1e-12)
    cell = cell_models.model(name, 3, 12).layers[0]
    for with_dt in (False, True):
        trial.compare_with_step(cell, of_cell(cell, with_dt))
    together = batched_seeds([cell_models.model(name, 3, 12).layers[0] for _ in range(2)])
    trial.compare_with_step(together, of_cell(together, with_dt=True))


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_zoneout_in_training_passes_and_draws_no_number(core):
    cell = GatedRNN(3, 8, gate="ur", core=core, zoneout_h=0.3).train().layers[0]
    before = torch.get_rng_state()
    trial.compare_with_step(cell, of_cell(cell, with_dt=False))
    assert torch.equal(torch.get_rng_state(), before)


PARTS = {
    **dict.fromkeys(("plstm", "adversarial"), ("new", "d_blocks", "d_state", "d_vectors", "d_dt")),
    **dict.fromkeys(("gru", "gated_lstm_om_4"), ("new", "d_blocks", "d_state")),
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in PARTS.items() for part in parts])
def test_a_wrong_expression_is_found(name, part):
    cell = cell_models.model(name, 3, 8).layers[0]
    found = of_cell(cell, with_dt=True)
    right = getattr(found, part)
    wrong = right * 1.001 if part == "d_dt" else (*right[:-1], right[-1] + 1e-4)
    with pytest.raises(RuntimeError, match=f"its expressions for {type(cell).__name__} are off by"):
        trial.compare_with_step(cell, found._replace(**{part: wrong}))


def test_the_graph_engine_takes_no_wrong_trace(monkeypatch, capsys):
    monkeypatch.setattr(graph, "_trials", {})
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())  # there is none here
    cell = cell_models.model("plstm", 3, 8).layers[0]
    found = of_cell(cell, with_dt=False)
    device = torch.device("cpu")
    assert graph.trial(cell, found, device) is None
    graph._trials.clear()
    wrong = found._replace(new=(found.new[0] * 1.01, *found.new[1:]))
    reason = graph.trial(cell, wrong, device)
    assert reason is not None
    assert "its expressions for PLSTMCell are off by" in reason
    assert capsys.readouterr().err.count("\n") == 1
