"""Analyse runs on disk: their weights and records, and `scripts/analyse.py`."""

import json
import os

import pytest
import torch
from analysed import SMALL, language_model, rows, run_of_words, words
from quick import change_record

from timescales import analysis
from timescales.analysis import characteristic_times, forgetting, study, word_ablation
from timescales.analysis.run import load
from timescales.errors import ConfigError
from timescales.runs import lock, wandb_run
from timescales.runs.record import Record


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_has_not_ended_is_read_at_its_best_so_far(trained, status):
    run = trained("lstm")
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    whole = load(str(run))
    assert torch.equal(torch.randn(3), expected), "loading draws nothing from the caller's generator"
    (run / "best.pt").unlink()
    change_record(run, status=status)
    found = load(run)
    for a, b in zip(found.model.parameters(), whole.model.parameters(), strict=True):
        assert (a == b).all()
    assert any((a != b).any() for a, b in zip(found.model.parameters(), found.initial.parameters(), strict=True))
    before = (run / "record.json").read_text()
    analysis.study_run(found, "timescale_law")
    with pytest.raises(ConfigError, match=r"lstm has not ended: let it finish, or continue it with resume=true"):
        analysis.measure_run(run, "timescale_law")  # its answer would outlive these weights
    assert (run / "record.json").read_text() == before  # the run itself may be writing it


def test_values_of_other_weights_do_not_go_into_the_record(trained, monkeypatch):
    run = trained("lstm")
    loaded = load(run)
    with lock.hold(run):  # it is being trained again
        assert "is being run by" in analysis.study_run(loaded, "timescale_law").notes[-1]
        with pytest.raises(lock.RunningElsewhere):
            analysis.measure_run(run, "timescale_law")
    change_record(run, seconds=loaded.record.seconds + 1.0)
    assert "was trained again meanwhile" in analysis.study_run(loaded, "timescale_law").notes[-1]
    with monkeypatch.context() as patched:
        patched.setattr(analysis, "load", lambda *_: loaded)
        with pytest.raises(ConfigError, match="was trained again meanwhile"):
            analysis.measure_run(run, "timescale_law")
    assert not Record.read(run).probes
    assert not any("record" in note for note in analysis.study_run(load(run), "timescale_law").notes)
    assert "timescale_law/alpha" in Record.read(run).probes


def test_forgetting_is_asked_of_the_last_weights(train, tmp_path):
    run = tmp_path / "run"
    small = ["task=adding", "task.T=12", "model=gated", *SMALL[2:-1], "loop.max_steps=6", "loop.eval_every=2"]
    assert train(*small, "logger=none", f"run_dir={run}").status == 0
    last = load(run, "last")
    kept = torch.load(run / "last.pt", weights_only=True)
    for key, value in last.model.state_dict().items():
        assert (value.cpu() == kept["model"][key]).all()
    assert analysis.measure_run(run, "forgetting") == forgetting.measure(last.model, last.task)


def test_the_initial_model_is_the_runs(trained):
    run = trained("chrono")
    started = Record.read(run).timescales["start"][0]
    found = load(run).initial.rnn.timescales()[0]
    assert (float(found.min()), float(found.max())) == pytest.approx((started[0], started[-1]), rel=1e-6)


def test_what_was_measured_of_these_weights_before_is_taken(root, tmp_path):
    task = words(root)
    run = run_of_words(language_model(task), task)
    run.directory = tmp_path
    assert run.earlier("word_ablation") is None
    found = word_ablation.study(run)
    study.write(found, tmp_path / "analysis", "word_ablation")
    assert run.earlier("word_ablation") is None  # there are no weights it could be of
    (tmp_path / "best.pt").touch()
    os.utime(tmp_path / "best.pt", (0, 0))
    assert run.earlier("word_ablation") == found.rows
    os.utime(tmp_path / "best.pt", (2**33, 2**33))
    assert run.earlier("word_ablation") is None  # of other weights than these
    os.utime(tmp_path / "best.pt", (0, 0))
    os.utime(tmp_path / "analysis" / "word_ablation.csv", (9, 9))
    assert run.earlier("word_ablation") is None  # newer than the weights, older than the module of the analysis
    os.utime(tmp_path / "analysis" / "word_ablation.csv")
    both = word_ablation.compare([run, run])
    assert len(both.rows) == 2 * len(found.rows)
    assert both.values["2/layer1/left_1"] == found.values["layer1/left_1"]


# --- The script ------------------------------------------------------------------------------------------------------
@pytest.fixture
def probe(script):
    """Call probe(RUN_DIR, NAME): measure a run for its record."""
    return lambda run, name: script("analyse", run, f"--record={name}")


def test_measures_of_a_run_on_disk(trained, probe, script, tmp_path, monkeypatch):
    run = trained("plstm")
    assert "reset_units/units " in probe(run, "reset_units")
    answer = json.loads((run / "record.json").read_text())["probes"]
    assert answer["reset_units/units"] == 8.0
    assert 0.0 < answer["reset_units/p_mean"] < 1.0
    probe(run, "forgetting")
    both = Record.read(run).probes
    assert set(answer) < set(both)
    assert both["forgetting/min"] <= both["forgetting/median"]
    assert "decay_factors/after_mean " in probe(run, "decay_factors")  # of an analysis without a measure: its study's
    expected = analysis.study_run(analysis.load(run), "decay_factors").values
    kept = Record.read(run).probes
    assert {name: kept[f"decay_factors/{name}"] for name in expected} == expected

    brought = study.Answer({"x": 1.5}, {"blocks.csv": "a,b\n"})
    monkeypatch.setattr(forgetting, "measure", lambda model, task: brought)
    assert analysis.measure_run(run, "forgetting") == {"x": 1.5}
    assert (run / "blocks.csv").read_text() == "a,b\n"
    last = Record.read(run).probes
    assert [key for key in last if key.startswith("forgetting/")] == ["forgetting/x"]  # the older answer is gone

    for name in ("bins", "word_ablation"):
        assert "for language models of words, not for Copy" in probe(run, name)
    assert "for strings of brackets (dyck2), not for Copy" in probe(run, "longest_pair")
    assert "for forecasts of series (task=series task.kind=forecast), not for Copy" in probe(run, "forecast")
    assert "for texts of different length (imdb), not for Copy" in probe(run, "length_accuracy")
    assert "--record=forgetin: no such analysis; did you mean forgetting?" in probe(run, "forgetin")
    assert "has no record.json: give the directory of a run" in probe(tmp_path, "forgetting")
    assert "no such analysis; did you mean timescale_law? (there are " in script("analyse", run, "--only=timescal_law")
    assert "--record is for one run" in script("analyse", run, tmp_path, "--record=forgetting")
    assert "leave out --only, --to and --svg" in script("analyse", run, "--record=forgetting", "--svg")
    for weights, name in (("best.pt", "reset_units"), ("last.pt", "forgetting")):
        (run / weights).unlink()
        assert f"{weights} is missing: force=true retrains the run" in probe(run, name)


def test_the_studies_of_a_run(trained, analyse, monkeypatch):
    run = trained("plstm")
    shown = []
    monkeypatch.setattr(wandb_run, "pictures", lambda directory: shown.append((directory, *directory.rglob("*.png"))))
    some = ["characteristic_times", "routing", "timescale_law", "word_ablation"]
    monkeypatch.setattr(analysis, "names", lambda *functions: some)
    said = analyse(run)
    assert "timescale_law/alpha" in said
    last = said.splitlines()[-1]
    assert last.startswith("skipped, not made for this model or task: ")
    assert ("routing" in last, "word_ablation" in last, "timescale_law" in last) == (True, True, False)
    pictures = [run / "analysis" / f"{name}.png" for name in ("characteristic_times", "timescale_law")]
    assert [(one, *sorted(files)) for one, *files in shown] == [(run, *pictures)]  # they go to the run's page
    assert not list((run / "analysis").glob("*.svg"))
    analyse(run, "--only=timescale_law", "--svg")
    assert (run / "analysis" / "timescale_law.svg").is_file()
    times = [float(row["timescale"]) for row in rows(run / "analysis" / "timescale_law.csv")]
    assert (len(times), times) == (8, sorted(times, reverse=True))
    assert Record.read(run).probes["timescale_law/alpha"] == analysis.measure_run(run, "timescale_law")["alpha"]

    def raising(error):
        def study(run):
            raise error

        return study

    for error in (FileNotFoundError(2, "No such file", "its data"), OSError(), RuntimeError("shapes do not fit")):
        monkeypatch.setattr(characteristic_times, "study", raising(error))
        (run / "analysis" / "timescale_law.png").unlink()
        assert analyse(run).startswith("error: characteristic_times failed (--only=NAME shows where)")
        assert (run / "analysis" / "timescale_law.png").is_file()  # the others are made
    with pytest.raises(RuntimeError, match="shapes"):
        analyse(run, "--only=characteristic_times")


def test_several_runs_go_into_one_picture(trained, train, analyse, tmp_path):
    runs = [trained(model) for model in ("lstm", "plstm")]
    assert "timescale_law/2/alpha" in analyse(*runs, "--only=timescale_law", f"--to={tmp_path / 'both'}")
    assert {row["run"] for row in rows(tmp_path / "both" / "timescale_law.csv")} == {"lstm", "plstm"}
    assert (tmp_path / "both" / "timescale_law.png").is_file()
    assert "pictures of several runs need a directory: --to=DIR" in analyse(*runs)
    assert "--to=DIR is for several runs" in analyse(runs[0], "--to=x")
    file = runs[0] / "record.json"
    assert f"error: {file}/record.json: Not a directory" in analyse(file)
    expected = f"error: cannot write into {file} (File exists): give another folder as --to=DIR"
    assert analyse(*runs, f"--to={file}") == expected
    (runs[0] / "analysis").write_text("")
    assert "/analysis (File exists): change its permissions, or copy the run" in analyse(runs[0])
    other = tmp_path / "adding"
    assert train("task=adding", "task.T=6", *SMALL[2:], "logger=none", f"run_dir={other}").status == 0
    assert "give runs of one task" in analyse(runs[0], other, "--only=timescale_law", f"--to={tmp_path / 'both'}")
