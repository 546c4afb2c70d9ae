"""scripts/analyse.py: pictures of a run, of several, values for the record."""

import json

import pytest
from analysed import SMALL, rows

from timescales import analysis
from timescales.analysis import characteristic_times, forgetting, study
from timescales.runs import wandb_run
from timescales.runs.record import Record


@pytest.fixture
def probe(script):
    """Call probe(RUN_DIR, NAME): measure a run for its record."""
    return lambda run, name: script("analyse", run, f"--record={name}")


def test_measures_of_a_run_on_disk(train, probe, script, tmp_path, monkeypatch):
    run = tmp_path / "run"
    trained = train(
        "model=plstm",
        *SMALL,
        "logger=none",
        f"run_dir={run}",
    )
    assert trained.status == 0, trained
    said = probe(run, "reset_units")
    assert "reset_units/units " in said
    answer = json.loads((run / "record.json").read_text())["probes"]
    assert answer["reset_units/units"] == 8.0
    assert 0.0 < answer["reset_units/p_mean"] < 1.0
    probe(run, "forgetting")
    both = Record.read(run).probes
    assert set(answer) < set(both)
    assert both["forgetting/min"] <= both["forgetting/median"]

    brought = study.Answer({"x": 1.5}, {"blocks.csv": "a,b\n"})
    monkeypatch.setattr(forgetting, "measure", lambda model, task: brought)
    assert analysis.measure_run(run, "forgetting") == {"x": 1.5}
    assert (run / "blocks.csv").read_text() == "a,b\n"
    last = Record.read(run).probes
    assert [key for key in last if key.startswith("forgetting/")] == ["forgetting/x"]  # the older answer is gone

    assert "for language models of words, not for Copy" in probe(run, "bins")
    assert "--record=forgetin: no such analysis; did you mean forgetting?" in probe(run, "forgetin")
    assert "has no record.json: give the directory of a run" in probe(tmp_path, "forgetting")
    assert "--record is for one run" in script("analyse", run, tmp_path, "--record=forgetting")
    for weights, name in (("best.pt", "reset_units"), ("last.pt", "forgetting")):
        (run / weights).unlink()
        assert f"{weights} is missing: force=true retrains the run" in probe(run, name)


def test_an_analysis_without_a_measure_gives_the_values_of_its_study(train, probe, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=plstm", "logger=csv", f"run_dir={run}").status == 0
    assert "decay_factors/after_mean " in probe(run, "decay_factors")
    expected = analysis.study_run(analysis.load(run), "decay_factors").values
    probes = Record.read(run).probes
    assert probes == {f"decay_factors/{name}": value for name, value in expected.items()}


def test_every_measure_has_a_name(probe):
    assert all(
        name in probe("run", "?")
        for name in ("ablation", "bins", "forgetting", "generalisation", "reset_units", "routing", "word_ablation")
    )


@pytest.mark.full  # fifteen seconds
def test_every_study_of_a_run(train, analyse, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=plstm", "engine=eager", "logger=csv", f"run_dir={run}").status == 0
    said = analyse(run)
    assert "timescale_law/alpha" in said
    assert said.splitlines()[-1].startswith("not made for this model and task: ")
    assert all(name in said.splitlines()[-1] for name in ("mutual_information", "routing", "word_ablation"))
    assert (run / "analysis" / "timescale_law.png").is_file()
    assert not list((run / "analysis").glob("*.svg"))
    analyse(run, "--only=timescale_law", "--svg")
    assert (run / "analysis" / "timescale_law.svg").is_file()
    assert all(path.stat().st_size <= 200_000 for path in (run / "analysis").glob("*.png"))
    found = rows(run / "analysis" / "timescale_law.csv")
    assert len(found) == 8
    times = [float(row["timescale"]) for row in found]
    assert times == sorted(times, reverse=True)
    assert Record.read(run).probes["timescale_law/alpha"] == analysis.measure_run(run, "timescale_law")["alpha"]


def test_several_runs_go_into_one_picture(train, analyse, tmp_path):
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        assert train(*SMALL, f"model={run.name}", "logger=none", f"run_dir={run}").status == 0
    assert "timescale_law/2/alpha" in analyse(*runs, "--only=timescale_law", f"--to={tmp_path / 'both'}")
    assert {row["run"] for row in rows(tmp_path / "both" / "timescale_law.csv")} == {"lstm", "plstm"}
    assert (tmp_path / "both" / "timescale_law.png").is_file()
    assert "pictures of several runs need a directory: --to=DIR" in analyse(*runs)
    assert "--to=DIR is for several runs" in analyse(runs[0], "--to=x")
    other = tmp_path / "adding"
    assert train("task=adding", "task.T=6", *SMALL[2:], "logger=none", f"run_dir={other}").status == 0
    assert "give runs of one task" in analyse(runs[0], other, "--only=timescale_law", f"--to={tmp_path / 'both'}")


def test_an_unexpected_error_of_one_analysis_stops_no_other(train, analyse, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert train(*SMALL, "model=plstm", "logger=none", f"run_dir={run}").status == 0

    def broken(*_):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(characteristic_times, "study", broken)
    monkeypatch.setattr(analysis, "names", lambda *functions: ["characteristic_times", "timescale_law"])  # not all
    assert analyse(run).startswith("error: characteristic_times failed (--only=NAME shows where)")
    assert (run / "analysis" / "timescale_law.png").is_file()
    with pytest.raises(RuntimeError, match="shapes"):
        analyse(run, "--only=characteristic_times")


def test_what_is_no_run_or_no_analysis(train, analyse, tmp_path):
    assert "has no record.json: give the directory of a run" in analyse(tmp_path)
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    assert "no such analysis; did you mean timescale_law? (there are " in analyse(run, "--only=timescal_law")
    assert "error: " in analyse(run, "--only=word_ablation")
    (run / "best.pt").unlink()
    (run / "last.pt").unlink()
    assert "best.pt is missing: force=true retrains the run" in analyse(run)


def test_pictures_go_to_the_runs_page(train, analyse, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=csv", f"run_dir={run}").status == 0
    shown = []
    monkeypatch.setattr(wandb_run, "pictures", lambda directory: shown.append((directory, *directory.rglob("*.png"))))
    analyse(run, "--only=timescale_law")
    assert shown == [(run, run / "analysis" / "timescale_law.png")]
