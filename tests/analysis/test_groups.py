"""Runs in groups that differ in their seed alone."""

from pathlib import Path

from analysed import copy_task, model_for, run_of
from matplotlib.figure import Figure

from timescales import LSTM, plotting
from timescales.analysis import ablation
from timescales.analysis.groups import groups, titles


def test_runs_are_grouped_by_all_but_their_seed():
    task = copy_task()
    plain, power = model_for(task, LSTM), model_for(task)
    runs = [
        run_of(power, task, seed=0),
        run_of(plain, task),
        run_of(power, task, seed=1),
        run_of(power, copy_task(T=30), seed=0),
    ]
    found = groups(runs)
    assert [(g.name, len(g.runs), g.style) for g in found] == [
        ("plstm, T=8", 2, "-"),
        ("lstm", 1, "-"),
        ("plstm, T=30", 1, "--"),
    ]
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
        run.record.seed = run.config["seed"] = 1
        run.config["task"]["allow_partial"] = k % 2 == 0
        run.config["loop"] = {**run.config["loop"], "checkpoint_every": 5}
    runs[5].config.update(precision="fp32", deterministic=False)  # as said as unsaid
    runs[5].config["loop"]["log_every"] = 50
    found = groups(runs)
    assert [[run.directory.name for run in g.runs] for g in found] == [[f"run{k}", f"run{k + 5}"] for k in range(5)]
    plain = "plstm, deterministic=False, clip_norm=None, paper=None, precision=fp32"
    assert [g.name for g in found] == [
        plain,
        plain.replace("fp32", "tf32"),
        plain.replace("False", "True"),
        plain.replace("paper=None", "paper=gu"),
        plain.replace("clip_norm=None", "clip_norm=1"),
    ]
    twice = [run_of(model, task, directory=d) for d in ("run0", Path.cwd() / "run0", "x/../run0")]
    assert [g.label for g in groups([*twice, runs[5]])] == ["plstm (2 runs)"]
    assert titles([*twice, runs[5]]) == ["plstm, seed 0"] * 3 + ["plstm, seed 1"]


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
