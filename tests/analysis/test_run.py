"""Runs on disk: their weights, records and earlier studies."""

import os

import pytest
import torch
from analysed import SMALL, language_model, run_of_words, words

from timescales import analysis
from timescales.analysis import forgetting, study, word_ablation
from timescales.analysis.run import load
from timescales.errors import ConfigError
from timescales.runs import lock, record
from timescales.runs.record import Record


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_has_not_ended_is_read_at_its_best_so_far(train, tmp_path, status):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    whole = load(str(run))
    assert torch.equal(torch.randn(3), expected), "loading draws nothing from the caller's generator"
    (run / "best.pt").unlink()
    record.update(run, status=status)
    found = load(run)
    for a, b in zip(found.model.parameters(), whole.model.parameters(), strict=True):
        assert (a == b).all()
    assert any((a != b).any() for a, b in zip(found.model.parameters(), found.initial.parameters(), strict=True))
    before = (run / "record.json").read_text()
    analysis.study_run(found, "timescale_law")
    with pytest.raises(ConfigError, match=r"run has not ended: let it finish, or continue it with resume=true"):
        analysis.measure_run(run, "timescale_law")  # its answer would outlive these weights
    assert (run / "record.json").read_text() == before  # the run itself may be writing it


def test_values_of_other_weights_do_not_go_into_the_record(train, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    loaded = load(run)
    with lock.hold(run):  # it is being trained again
        assert "is being run by" in analysis.study_run(loaded, "timescale_law").notes[-1]
        with pytest.raises(lock.RunningElsewhere):
            analysis.measure_run(run, "timescale_law")
    record.update(run, seconds=loaded.record.seconds + 1.0)
    assert "was retrained meanwhile" in analysis.study_run(loaded, "timescale_law").notes[-1]
    with monkeypatch.context() as patched:
        patched.setattr(analysis, "load", lambda *_: loaded)
        with pytest.raises(ConfigError, match="was retrained meanwhile"):
            analysis.measure_run(run, "timescale_law")
    assert not Record.read(run).probes
    assert not any("record" in note for note in analysis.study_run(load(run), "timescale_law").notes)
    assert "timescale_law/alpha" in Record.read(run).probes


def test_forgetting_is_asked_of_the_last_weights(train, tmp_path):
    run = tmp_path / "run"
    assert (
        train(
            "task=adding",
            "task.T=12",
            "task.train_size=64",
            "task.valid_size=16",
            "task.test_size=16",
            "model=gated",
            "model.hidden_size=8",
            "loop.max_steps=6",
            "loop.eval_every=2",
            "logger=none",
            f"run_dir={run}",
        ).status
        == 0
    )
    last = load(run, "last")
    kept = torch.load(run / "last.pt", weights_only=True)
    for key, value in last.model.state_dict().items():
        assert (value.cpu() == kept["model"][key]).all()
    assert analysis.measure_run(run, "forgetting") == forgetting.measure(last.model, last.task)
    (run / "last.pt").unlink()
    with pytest.raises(ConfigError, match=r"last\.pt is missing: force=true retrains the run"):
        analysis.measure_run(run, "forgetting")


def test_the_initial_model_is_the_runs(train, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=chrono", "logger=none", f"run_dir={run}").status == 0
    started = Record.read(run).timescales["start"][0]
    found = load(run).initial.rnn.timescales()[0]
    assert (float(found.min()), float(found.max())) == pytest.approx((started[0], started[-1]), rel=1e-6)


def test_pictures_say_which_corpus_where_the_task_does_not(root):
    task = words(root)
    run = run_of_words(language_model(task), task)
    assert run.title == "ptb_word, mts, seed 0, 10 steps"
    run.record.config["task"]["corpus"] = "markov_ptb"
    assert run.title == "ptb_word (markov_ptb), mts, seed 0, 10 steps"


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
