"""Settings that the paper does not state, varied."""

from dataclasses import replace

from timescales import paths
from timescales.config import compose
from timescales.papers import judge, load
from timescales.papers.table import Assumption, columns
from timescales.reports import sensitivity
from timescales.runs import provenance, store


def test_sensitivity_judges_a_setting_that_one_model_alone_has(tmp_path, monkeypatch):
    """model.forget_init is the LSTM's, model.epsilon_form the pLSTM's: the two are compared all the same."""
    with compose.composing() as composer:
        table = load.table("chien_copy").sizes["t20"]
        about = {"run": "copy/lstm", "values": dict.fromkeys(columns(table), 1.0)}
        row = store.Row(id="", status="finished", seed=0, axes={}, golden=provenance.golden("copy", "lstm"), **about)
        variations = sensitivity.variations(table, composer)
        ids = [run.id for variation in variations for run in sensitivity.runs_of(table, composer, variation)]
        monkeypatch.setattr(store, "committed", lambda results: {run_id: replace(row, id=run_id) for run_id in ids})
        found = sensitivity.gather(table, composer, paths.RESULTS, tmp_path)  # with the committed sensitivity.csv
        same = replace(table, assumed={"loop.checkpoint_every": Assumption(said="how often", tries=(7,))})
        assert sensitivity.variations(same, composer) == [sensitivity.Variation()]  # it changes no run
        row = replace(row, golden="of older code")
        old = sensitivity.gather(table, composer, tmp_path, tmp_path)
        assert all(row.stale for rows in old.values() for row in rows)
    assert {"model.forget_init=1.0", "model.epsilon_form=authors"} < set(found)
    for words, rows in found.items():
        for claim in table.claims:
            assert judge.judge_claim(claim, rows, [row.axes for row in rows]).interval is not None, (words, claim.text)
    head = ["setting", "runs", *(claim.text for claim in table.claims)]
    assert f"| {' | '.join(head)} |" in sensitivity.page(table, found).splitlines()


def test_overrides_choose_and_change_the_runs():
    with compose.composing() as composer:
        table = load.table("chien_copy").sizes["t20"]
        overrides = ["seed=200", "model=lstm,plstm", "model.epsilon=.1", "task.layout=authors"]
        part = sensitivity.narrowed(table, overrides, composer)
        assert "task.layout" in {variation.key for variation in sensitivity.variations(table, composer)}
        varied = sensitivity.variations(part, composer)
        assert "task.layout" not in {variation.key for variation in varied}
        for variation in varied:
            runs = [run.axes for run in sensitivity.runs_of(part, composer, variation)]
            assert [(axes["model"], axes["seed"]) for axes in runs] == [("lstm", 200), ("plstm", 200)]
            assert [axes.get("model.epsilon") for axes in runs] == [None, 0.1]  # the LSTM has none
            assert {axes["task.layout"] for axes in runs} == {"authors"}


def test_a_part_is_printed_and_not_written(script):
    files = sorted((paths.RESULTS / "chien_copy").glob("sensitivity.*"))
    before = [path.read_bytes() for path in files]
    printed = script("sensitivity", "chien_copy", "--no-run", "seed=200")
    assert "| as assumed |" in printed
    assert "with seed=200; not written" in printed
    assert [path.read_bytes() for path in files] == before
    assert "did you mean seed?" in script("sensitivity", "chien_copy", "seeed=0")
