"""Check what holds for every analysis: names, a result or one line for every model, your own cells, groups of runs."""

import copy
import importlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from analysed import SMALL, copy_task, model_for, run_of
from configs import config

from timescales import LSTM, Cell, ExpRNN, LeakyRNN, analysis, plotting
from timescales.analysis import ablation, decay_factors, forgetting, gate_gradients, generalisation, reset_units
from timescales.analysis.groups import groups, titles
from timescales.analysis.run import Trained
from timescales.config import schema
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn import cells, registry
from timescales.nn.rnn import RNN
from timescales.runs.record import Record
from timescales.tasks import Frequency
from timescales.training import build, memory

KINDS = ("measure", "study", "compare")
SHARED = {"__init__", "groups", "needs", "observe", "released", "run", "study", "weights"}


def module_of(name):
    return importlib.import_module(f"timescales.analysis.{name}")


def test_the_table_has_the_functions_of_each_module():
    modules = {path.stem for path in Path(analysis.__file__).parent.glob("*.py")}
    assert modules - SHARED == set(analysis.ANALYSES)
    assert list(analysis.ANALYSES) == sorted(analysis.ANALYSES)
    for name, listed in analysis.ANALYSES.items():
        module = module_of(name)
        assert [kind for kind in KINDS if hasattr(module, kind)] == [kind for kind in KINDS if kind in listed], name
        assert all(callable(getattr(module, function)) for function in listed)
    # Names need no torch.
    code = "import sys; from timescales import analysis; analysis.names('measure'); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Every model -----------------------------------------------------------------------------------------------------
MODELS = sorted(registry.BY_NAME)
FORGETTING = [m.name for m in registry.MODELS if "forget" in getattr(cells, m.cells[0]).Act._fields]
BASELINES = [model.name for model in registry.BASELINES]
QUICK = [  # one for each kind of gate, state and block; a block is around layers of cells
    *(("lstm", "plain"), ("plstm", "residual"), ("gru", "plain"), ("mts", "residual"), ("minlstm", "residual")),
    *(("lru", "plain"), ("rmc", "residual"), ("leaky", "plain"), ("eurnn", "residual"), ("torch_lstm", "plain")),
]
REST = [(model, "plain") for model in MODELS if model not in dict(QUICK)]
FOR_ANY_TASK = {
    *("ablation", "assigned", "characteristic_times", "decay_curves", "forgetting", "gate_gradients"),
    *("gate_histograms", "gate_maps", "generalisation", "one_over_e", "timescale_law"),
}


@pytest.mark.parametrize(("model", "block"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)])
def test_every_analysis_gives_a_result_or_one_line(tmp_path, monkeypatch, model, block):
    monkeypatch.setattr(generalisation, "SEQUENCES", 20)
    monkeypatch.setattr(ablation, "ORDERS", 2)
    engine = "auto" if model in BASELINES else "eager"
    sizes = ["model.memories=2", "model.heads=2"] if model == "rmc" else []
    cfg = schema.resolved(config(f"model={model}", *SMALL, *sizes, f"model.block={block}", f"engine={engine}"))
    trained, task, _ = build.build(cfg)
    record = Record(id="a", status="finished", config=cfg, steps=4)
    run = Trained(tmp_path, record, trained.eval(), copy.deepcopy(trained), task)
    results, refused = set(), {}
    for name in analysis.names("study", "measure"):
        module = module_of(name)
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


# --- What analyses are not made for, and cells of your own -----------------------------------------------------------
@pytest.mark.parametrize("name", ["reference_times", "reset_units", "decay_factors"])
def test_analyses_of_power_laws_refuse_other_models(name):
    task = copy_task()
    with pytest.raises(ConfigError, match="for power-law LSTMs and GRUs: LSTMCell has no reference time"):
        module_of(name).study(run_of(model_for(task, LSTM), task))
    with pytest.raises(ConfigError, match="for power-law LSTMs and GRUs: Averages has no reference time"):
        decay_factors.learned(own_model(Averages, task))  # a state with an age is no power law
    waves = Frequency(train_size=1, valid_size=1, test_size=2)
    with pytest.raises(ConfigError, match="copy task with one delay, not for Frequency"):
        reset_units.measure(model_for(waves), waves)


GATED = ("assigned", "decay_curves", "forgetting", "gate_gradients", "gate_maps", "one_over_e", "timescale_law")


@pytest.mark.parametrize("name", GATED)
def test_models_without_forget_gates_are_refused(name):
    task, module = copy_task(), module_of(name)
    run = run_of(model_for(task, ExpRNN), task)
    with pytest.raises(ConfigError, match="has no forget gate"):
        module.study(run) if hasattr(module, "study") else module.measure(run.model, task)


class Averages(Cell):
    """A cell of one's own as analyses need it: f is one constant per unit. It has an age that is no power law's."""

    gates = ("cell",)

    class State(NamedTuple):
        h: torch.Tensor
        age: torch.Tensor

    class Act(NamedTuple):
        forget: torch.Tensor
        cell: torch.Tensor

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.register_buffer("kept", torch.linspace(0.3, 0.9, hidden_size))

    def act(self, gx, gh, state, dt=1.0):
        u = (gx + gh).tanh()
        return self.Act(self.kept.expand_as(u), u)

    def step(self, gx, gh, state, dt=1.0):
        f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1 - f) * u, state.age + dt)

    def timescales(self):
        return -1 / self.kept.log()


class NotCalled(Averages):
    def step(self, gx, gh, state, dt=1.0):
        return self.State((gx + gh).tanh(), state.age)


class NoAct(NotCalled):
    Act = property()  # as if it had none


class OfUnits(Averages):
    def act(self, gx, gh, state, dt=1.0):
        return super().act(gx, gh, state, dt)._replace(forget=self.kept)


def own_model(kind, task):
    return SequenceModel(RNN([kind(task.spec.input_size, 3)]), task.spec).double().eval()


def test_a_cell_of_ones_own_is_analysed():
    task = copy_task(T=40)
    model = own_model(Averages, task)
    (found,) = memory.one_over_e(model, task)
    torch.testing.assert_close(found, -1 / torch.tensor([0.3, 0.6, 0.9]).double().log(), rtol=1e-6, atol=0)
    forgetting.measure(model, task)
    assert "later_first/0" not in ablation.measure(model, task)
    assert "act" not in vars(model.rnn.layers[0])


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (NoAct, "NoAct has no class Act: .* needs one with a field forget, and a method act that returns it"),
        (NotCalled, r"NotCalled\.step must call self.act, .*"),
        (OfUnits, r"OfUnits\.act must return forget of shape \(batch, hidden\), here \(2, 3\), not .*: use expand_as"),
    ],
)
@pytest.mark.parametrize("name", ["one_over_e", "forgetting"])
def test_what_is_missing_for_analyses_is_one_line(name, kind, line):
    task = copy_task()
    with pytest.raises(ConfigError, match=rf"^{line}; see docs/gates\.md$"):
        module_of(name).measure(own_model(kind, task), task)


@pytest.mark.parametrize("make", [lambda task: own_model(Averages, task), lambda task: model_for(task, LeakyRNN)])
def test_gates_without_pre_activations_have_no_gradients(make):
    task = copy_task()
    with pytest.raises(ConfigError, match=r"the forget gate of (Averages|LeakyRNNCell) reads none"):
        gate_gradients.observed(make(task), task)


# --- Runs that differ in their seed only -----------------------------------------------------------------------------
def test_runs_are_grouped_by_all_but_their_seed():
    task = copy_task()
    plain, power = model_for(task, LSTM), model_for(task)
    runs = [run_of(power, task, seed=0), run_of(plain, task), run_of(power, task, seed=1)]
    found = groups([*runs, run_of(power, copy_task(T=30), seed=0)])
    expected = [("plstm, T=8", 2, "-"), ("lstm", 1, "-"), ("plstm, T=30", 1, "--")]
    assert [(g.name, len(g.runs), g.style) for g in found] == expected
    assert found[0].colour == plotting.COLOURS["plstm"]
    assert [g.name for g in groups(runs)] == ["plstm", "lstm"]


def test_groups_of_runs_are_those_of_their_identity():
    """Nothing is pooled that a table holds apart, nor held apart that it pools; a run is one, however often given."""
    task = copy_task()
    model = model_for(task)
    changes = [{}, {"precision": "tf32"}, {"deterministic": True}]
    changes += [{"paper": {"name": "gu"}}, {"loop": {"clip_norm": 1}}]
    runs = [run_of(model, task, directory=f"run{k}") for k in range(10)]
    for run, change in zip(runs, changes * 2, strict=True):
        run.config.update(change)
    for k, run in enumerate(runs[5:]):
        run.record.seed = run.config["seed"] = 1
        run.config["task"]["allow_partial"] = k % 2 == 0
        run.config["loop"] = {**run.config["loop"], "checkpoint_every": 5}
    runs[5].config.update(precision="fp32", deterministic=False)  # as said as unsaid
    runs[5].config["loop"]["log_every"] = 50
    found = groups(runs)
    assert [[run.directory.name for run in g.runs] for g in found] == [[f"run{k}", f"run{k + 5}"] for k in range(5)]
    plain = "plstm, deterministic=False, clip_norm=None, paper=None, precision=fp32"
    others = [("fp32", "tf32"), ("False", "True"), ("paper=None", "paper=gu"), ("clip_norm=None", "clip_norm=1")]
    assert [g.name for g in found] == [plain, *(plain.replace(*other) for other in others)]
    twice = [run_of(model, task, directory=d) for d in ("run0", Path.cwd() / "run0", "x/../run0")]
    assert [g.label for g in groups([*twice, runs[5]])] == ["plstm (2 runs)"]
    assert titles([*twice, runs[5]]) == ["plstm, seed 0"] * 3 + ["plstm, seed 1"]
    engines = [run_of(model, task, directory=f"runs/{engine}") for engine in ("eager", "fused")]
    assert titles([*engines, runs[5]]) == ["plstm, seed 0, runs/eager", "plstm, seed 0, runs/fused", "plstm, seed 1"]


def test_an_optimizer_is_named_by_its_name_and_its_rate():
    """Not by its class, nor by the settings that the other one lacks."""
    task = copy_task()
    sgd = {"name": "sgd", "_target_": "torch.optim.SGD", "lr": 0.1, "momentum": 0.0}
    adam = {"name": "adam", "_target_": "torch.optim.Adam", "lr": 0.01, "eps": 1e-8}
    runs = [run_of(model_for(task), task, directory=f"run{k}") for k in range(3)]
    for run, optimizer in zip(runs, (sgd, adam, {**adam, "eps": 0.1}), strict=True):
        run.config["optimizer"] = optimizer
    names = [group.name for group in groups(runs)]
    assert names[0] == "plstm, lr=0.1, optimizer=sgd"
    assert names[1:] == [f"plstm, eps={eps}, lr=0.01, optimizer=adam" for eps in ("1e-08", "0.1")]
