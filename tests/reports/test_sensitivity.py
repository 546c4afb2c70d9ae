"""Settings that the paper does not state, varied."""

from dataclasses import replace

from timescales import paths
from timescales.config import compose
from timescales.papers import claims, load
from timescales.papers.table import Assumption, columns
from timescales.reports import sensitivity
from timescales.runs import provenance, store


def test_sensitivity_judges_a_setting_that_one_model_alone_has(tmp_path, monkeypatch):
    """model.forget_init is the LSTM's, model.epsilon_form the pLSTM's: the two are compared all the same."""
    row = {"status": "finished", "seed": 0, "run": "copy/lstm", "partial": ""}
    row |= {"golden": provenance.golden("copy", "lstm")}
    with compose.composing() as composer:
        table = load.table("chien_copy").tiny
        row |= dict.fromkeys(columns(table), 1.0)
        variations = sensitivity.variations(table, composer)
        slugs = [slug for variation in variations for _, slug in sensitivity.runs_of(table, composer, variation)]
        ids = [slug.rpartition("-")[2] for slug in slugs]
        monkeypatch.setattr(store, "committed", lambda results: {run_id: row | {"id": run_id} for run_id in ids})
        found = sensitivity.gather(table, composer, paths.RESULTS, tmp_path)  # with the committed sensitivity.csv
        same = replace(table, assumed={"loop.checkpoint_every": Assumption(said="how often", tries=(7,))})
        assert sensitivity.variations(same, composer) == [sensitivity.Variation()]  # it changes no run
        row["golden"] = "of older code"
        old = sensitivity.gather(table, composer, tmp_path, tmp_path)
        assert all(row["stale"] for rows in old.values() for row in rows)
    assert {"model.forget_init=1.0", "model.epsilon_form=authors"} < set(found)
    for words, rows in found.items():
        judged = claims.judge_claims(table.claims, rows)
        assert [result.claim.text for result in judged if result.verdict.word == "open"] == [], words
    head = ["setting", "runs", *(claim.text for claim in table.claims)]
    assert f"| {' | '.join(head)} |" in sensitivity.page(table, found).splitlines()
