"""Learning curves of runs, beside what papers print."""

import functools
import math
from dataclasses import replace

import pytest
import torch
from analysed import rows, run_of, run_of_words
from matplotlib.figure import Figure
from quick import change_record

from timescales import LSTM, analysis
from timescales.analysis import learning_curves, study, timescale_law
from timescales.analysis.run import load
from timescales.config import compose, folders, schema
from timescales.models.sequence import SequenceModel
from timescales.papers import load as load_table
from timescales.papers import printed
from timescales.paths import ROOT
from timescales.runs.loggers import metric_at_chance
from timescales.tasks import Adding, Copy, Frequency, skill
from timescales.training import build


def test_two_runs_of_one_seed_are_two_curves(trained, tmp_path):
    """As those of two engines, which have one id."""
    first = load(trained("lstm"))
    loaded = [first, replace(first, directory=tmp_path / "again", record=replace(first.record))]
    loaded[1].record.curve = loaded[1].record.curve[:2]
    found = learning_curves.compare(loaded)
    assert [row["step"] for row in found.rows] == [1, 2, 3, 4, 1, 2]
    assert len(found.values) == 6


def test_dollar_signs_of_settings_are_no_formula(trained, tmp_path):
    """matplotlib reads what is between two of them as TeX, and $_a_$ is none."""
    first = load(trained("lstm"))
    names = ("$_a_$", "$_b_$")
    configs = {name: first.config | {"model": first.config["model"] | {"name": name}} for name in names}
    runs = [replace(first, directory=tmp_path / k, record=replace(first.record, config=v)) for k, v in configs.items()]
    for module in (learning_curves, timescale_law):
        assert study.write(module.compare(runs), tmp_path, "compared")[1].is_file()


def test_curves_of_a_finished_and_an_interrupted_run_side_by_side(trained, tmp_path):
    runs = [trained(name) for name in ("lstm", "plstm")]
    loaded = [load(run) for run in runs]
    whole = [replace(run.record) for run in loaded]
    loaded[1].record.change(status="interrupted", curve=[])  # it goes on: its curve.csv knows
    found = learning_curves.compare(loaded)
    for name, kept in zip(("lstm", "plstm"), whole, strict=True):
        curve = [(point["step"], point["valid/accuracy"], point["valid/loss"]) for point in kept.curve]
        mine = [row for row in found.rows if row["run"] == name]
        assert [(row["step"], row["valid/accuracy"], row["valid/loss"]) for row in mine] == curve
        assert found.values[f"{name}/best"] == pytest.approx(kept.best.value)
        assert (found.values[f"{name}/best_step"], found.values[f"{name}/last"]) == (kept.best.step, curve[-1][1])
    loaded[0].record.curve = [*whole[0].curve, {"step": 5, "epoch": 2.0, "valid/loss": None}]  # it was NaN
    loaded[0].record.curve.append({"step": 6, "epoch": 3.0, "valid/loss": math.inf, "valid/accuracy": math.nan})
    again = learning_curves.compare(loaded)
    assert again.values == found.values
    assert (len(found.rows), found.notes) == (8, ["no table has a printed score of such runs"])
    figure = Figure()
    found.draw(figure)
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in left.lines] == [4, 4, 2]
    assert left.lines[-1].get_label().startswith("always the same answer, 0.1")
    assert [line.get_label() for line in right.lines] == ["lstm (1 run)", "plstm (1 run)", "chance, 0.832"]
    loaded[1].record.change(status="interrupted", curve=[], chance=0.5)
    (runs[1] / "curve.csv").unlink()
    paper = learning_curves.Printed("test/sequence_accuracy", 0.25, "made_up")
    loaded[1].task.spec = replace(loaded[1].task.spec, horizon=99)
    said = {("lstm", loaded[0].task.spec.horizon): [], ("plstm", 99): [paper]}
    found = learning_curves.compare(loaded, lambda config, horizon: said[config["model"]["name"], horizon])
    assert found.values["plstm/made_up/test/sequence_accuracy"] == 0.25
    assert found.notes == ["plstm: no validation in its record or curve.csv"]
    found.draw(figure := Figure())
    first, sequences, losses = figure.axes
    labels = ["validation accuracy", "validation sequence accuracy", "validation loss"]
    assert [one.get_ylabel() for one in figure.axes] == labels
    assert [list(line.get_ydata()) for line in sequences.lines if len(line.get_xdata()) == 2] == [[0.25, 0.25]]
    assert [len(axes.lines) for axes in (first, sequences)] == [2, 2]  # a run, and what no skill reaches or is printed
    assert [line.get_label() for line in losses.lines[1:]] == ["chance, 0.5", "chance, 0.832"]
    assert study.write(found, tmp_path, "learning_curves")[1].is_file()


@pytest.fixture(scope="module", autouse=True)
def few_tables():
    """What papers print of a run may be in any table; these are enough here, and are read once."""
    few = ["chien_copy", "chien_table1", "chien_table2", "chien_table3", "gu_table5"]
    choices = folders.choices
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(load_table, "table", functools.cache(load_table.table))
        monkeypatch.setattr(folders, "choices", lambda group: few if group == "table" else choices(group))
        printed._scores.cache_clear()
        yield
    printed._scores.cache_clear()


def test_curves_need_no_weights(trained, analyse, tmp_path):
    """Records alone will do, as they lie in results/, and a run before its first checkpoint."""
    runs = [trained(name) for name in ("lstm", "plstm")]
    for path in [file for run in runs for file in (*run.glob("*.pt"), run / "curve.csv")]:
        path.unlink()
    change_record(runs[1], status="interrupted", curve=[])
    said = analyse(*runs, "--only=learning_curves", f"--to={tmp_path / 'both'}")
    assert said.splitlines()[-1] == "  plstm: no validation in its record or curve.csv"
    assert {row["run"] for row in rows(tmp_path / "both" / "learning_curves.csv")} == {"lstm"}
    assert "best.pt is missing" in analyse(*runs, f"--to={tmp_path / 'both'}")


@pytest.mark.parametrize(("kind", "best"), [(Copy, (0.6, 20)), (Adding, (0.2, 10))])
def test_the_best_of_a_curve_is_what_the_task_selects_by(kind, best):
    task = kind(T=4, train_size=1, valid_size=1, test_size=1)
    run = run_of_words(SequenceModel(LSTM(task.spec.width, 3), task.spec), task, name="lstm")
    run.record.curve = [
        {"step": step, "epoch": step / 10, "valid/accuracy": value, "valid/loss": value}
        for step, value in ((10, 0.2), (20, 0.6), (30, 0.4))
    ]
    found = learning_curves.compare([run]).values
    assert (found["lstm/best"], found["lstm/best_step"], found["lstm/last"]) == (*best, 0.4)
    said = {Copy: "accuracy 0.6 at step 20; 0.4", Adding: "loss 0.2 at step 10; 0.4"}[kind]
    assert learning_curves.compare([run]).words == [f"lstm: best validation {said} at the last one, step 30"]


def made(name="lstm", seed=0, values=(0.2, 0.6, 0.4), **settings):
    """A run of the copy task with a validation every ten steps; settings: of its model."""
    task = Copy(T=4, train_size=1, valid_size=200, test_size=1)
    run = run_of(SequenceModel(LSTM(task.spec.width, 3), task.spec), task, seed=seed)
    run.config["model"] = {"name": name, **settings}
    run.record.curve = [
        {"step": 10 * k, "epoch": k, "valid/accuracy": value, "valid/loss": value} for k, value in enumerate(values, 1)
    ]
    return run


def test_seeds_are_a_mean_and_a_band_as_far_as_all_of_them_go():
    runs = [made(seed=0, values=(0.2, 0.4)), made(seed=1, values=(0.4, 0.8, 0.9))]
    learning_curves.compare(runs).draw(figure := Figure(layout="constrained"))
    axes = figure.axes[0]
    mean, later = [line for line in axes.lines if len(line.get_xdata()) > 1][:2]
    assert (list(mean.get_xdata()), list(mean.get_ydata())) == ([10, 20], [pytest.approx(0.3), pytest.approx(0.6)])
    assert (list(later.get_xdata()), list(later.get_ydata())) == ([20, 30], [0.8, 0.9])
    (band,) = axes.collections
    corners = {(float(x), float(y)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(10, 0.2), (10, 0.4), (20, 0.4), (20, 0.8)}


def test_the_range_of_seeds_that_share_one_validation_is_a_line():
    """A band at one step has no width, so that nothing of it was seen."""
    runs = [made(seed=0, values=(0.2,)), made(seed=1, values=(0.4, 0.8)), made(seed=2, values=(0.9,))]
    learning_curves.compare(runs).draw(figure := Figure())
    (span,) = figure.axes[0].collections
    assert [segment.tolist() for segment in span.get_segments()] == [[[10, 0.2], [10, 0.9]]]
    assert span.get_linewidth()[0] > figure.axes[0].lines[0].get_linewidth()


@pytest.mark.parametrize(
    ("task", "metric", "value"),
    [
        (Frequency(valid_size=200, test_size=1), "accuracy", "share of label"),
        (Copy(T=4, train_size=1, valid_size=200, test_size=1), "sequence_accuracy", 0.0),
        (Copy(T=4, train_size=1, valid_size=200, test_size=1), "loss", 0.7),
        (Adding(T=4, train_size=1, valid_size=200, test_size=1), "loss", 0.7),
        (Adding(T=4, train_size=1, valid_size=1, test_size=1), "bpc", 0.7 / math.log(2)),
    ],
)
def test_what_no_skill_reaches(task, metric, value):
    if value == "share of label":
        labels = torch.cat([batch.target for batch in task.batches("valid")])
        value = float(torch.bincount(labels).max() / len(labels))
    assert skill.no_skill(task, metric, 0.7) == pytest.approx(value)


def test_the_bars_chance_is_that_of_the_first_four_batches():
    """One batch of waves may have many more of one label than another."""
    task = Frequency(valid_size=2500, test_size=1)
    labels = [batch.target for batch in task.batches("valid")]
    assert [len(each) for each in labels] == [500] * 5
    shares = [float(torch.cat(labels[:n]).float().mean()) for n in (1, 4, 5)]
    assert len({*shares, 0.5}) == 4
    assert metric_at_chance(task, 0.7) == pytest.approx(shares[1])


PIXELS = ["task=pmnist", "task.permutation=random", "model.hidden_size=256"]
OFTEN = ["loop.eval_every=100", "loop.log_every=1", "loop.max_eval_batches=2"]


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        ([*PIXELS, "model=plstm", "loop.max_epochs=3", "seed=9"], [("test/accuracy", 0.944, "chien_table1")]),
        ([*PIXELS, "model=plstm", "task.batch_size=64"], []),
        ([*PIXELS, "model=lstm", *OFTEN], [("test/accuracy", 0.913, "chien_table1")]),
        (
            ["task=frequency", "task.sampling=async", "task.time_input=false", "model=chrono"],
            [("test/accuracy", 0.6964, "chien_table3")],
        ),
        (["task=ptb_char", "model=lstm", "loop.max_steps=10"], [("test/bpc", 1.426, "chien_table2")]),
        (
            ["paper=gu", "task=pmnist", "model=gated", "model.gate=ur", "optimizer.lr=5e-4", "loop.max_epochs=1"],
            [("valid/accuracy", 0.9643, "gu_table5")],
        ),
        (["task=copy", "task.T=200", "model=plstm"], []),  # steps to 99 %: no score
    ],
)
def test_what_papers_print_of_a_configuration(overrides, values):
    composer = compose.Composer()
    config = schema.resolved(composer(overrides))
    build.fill_horizon(config["model"], 125)  # as a run records it
    found = printed.printed(config, 125)
    assert [(one.metric, pytest.approx(one.value), one.table) for one in found] == values


@pytest.mark.parametrize(
    ("folder", "runs"),
    [
        ("copy_T200", ["copy-plstm-s0-13403dd51704", "copy-chrono-s0-be36e84924a8", "copy-lstm-s0-8c702aa0450c"]),
        ("first_epochs/dyck2", ["dyck2-lstm-s1-d470a8dd2a69", "dyck2-mts-s1-639f486a4072"]),
    ],
)
@pytest.mark.slow
def test_committed_curves_are_those_of_the_archived_runs(folder, runs, tmp_path):
    loaded = [load(ROOT / "results" / "archived" / run, None) for run in runs]
    found = analysis.compare_runs(loaded, "learning_curves", printed=printed.printed)
    path, _ = study.write(found, tmp_path, "learning_curves")
    assert path.read_text() == (ROOT / "results" / "analysis" / folder / path.name).read_text()
