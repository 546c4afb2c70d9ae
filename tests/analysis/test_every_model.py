"""Every analysis of every model gives a result, or says in one line why it gives none."""

import copy
import importlib

import pytest
from analysed import SMALL
from configs import config

from timescales import analysis
from timescales.analysis.run import Trained
from timescales.config import identity
from timescales.errors import ConfigError
from timescales.nn import cells, registry
from timescales.runs.record import Record
from timescales.training import build

MODELS = sorted(registry.BY_NAME)
FORGETTING = [m.name for m in registry.MODELS if "forget" in getattr(cells, m.cells[0]).Act._fields]
BASELINES = [model.name for model in registry.BASELINES]
CASES = [(model, "plain") for model in MODELS]
CASES += [(model, "residual") for model in MODELS if model not in BASELINES]  # blocks are around layers of cells
FOR_ANY_TASK = {
    *("ablation", "assigned", "characteristic_times", "decay_curves", "forgetting", "gate_gradients"),
    *("gate_histograms", "gate_maps", "generalisation", "one_over_e", "timescale_law"),
}


@pytest.mark.covering
@pytest.mark.parametrize(("model", "block"), CASES)
def test_every_analysis_gives_a_result_or_one_line(tmp_path, model, block):
    engine = "auto" if model in BASELINES else "eager"
    sizes = ["model.memories=2", "model.heads=2"] if model == "rmc" else []
    cfg = identity.resolved(config(f"model={model}", *SMALL, *sizes, f"model.block={block}", f"engine={engine}"))
    trained, task, _ = build.build(cfg)
    record = Record(id="a", status="finished", config=cfg, steps=4)
    run = Trained(tmp_path, record, trained.eval(), copy.deepcopy(trained), task)
    results, refused = set(), {}
    for name in analysis.names("study", "measure"):
        module = importlib.import_module(f"timescales.analysis.{name}")
        try:
            values = module.study(run).values if hasattr(module, "study") else module.measure(trained, task)
        except ConfigError as error:
            refused[name] = str(error)
        else:
            assert all(isinstance(value, float | int) for value in values.values()), name
            results.add(name)
    assert "generalisation" in results
    assert ("one_over_e" in results) == (model in FORGETTING)
    if model in BASELINES:
        assert results == {"generalisation"}
    if (model, block) == ("lstm", "plain"):
        assert results == FOR_ANY_TASK
    assert not any("\n" in line for line in refused.values()), refused
