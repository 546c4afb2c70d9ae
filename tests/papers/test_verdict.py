"""Verdicts on whole tables."""

from dataclasses import replace

import pytest
from made_up import TABLE, quoted

from timescales.papers import verdict
from timescales.papers.parse import parse
from timescales.papers.verdict import CellResult, ClaimResult, Counts, Finding, P, Sample, Verdict, Word, sum_of
from timescales.reports import markdown

TWO = parse(TABLE | {"claims": [quoted("plstm > lstm"), {"claim": "lstm > plstm", "ours": "to see"}]})
QUOTED, OURS = TWO.claims


def cells_of(texts):
    return [CellResult(TWO.cells[0], Sample(), Verdict(Word(text))) for text in texts]


def claims_of(texts, claim=QUOTED):
    """Results that read like this: "refuted (n=1)"."""
    words = [(text.partition(" (")[0], "n=" in text) for text in texts]
    return [ClaimResult(claim, Verdict(Word(word), few=few)) for word, few in words]


@pytest.mark.parametrize(
    ("values", "conclusions", "word", "counts"),
    [
        (
            ["match", "better", "blank"],
            ["holds"],
            "reproduced",
            "1 of 1 conclusions hold; 1 of 2 values agree, 1 better",
        ),
        (["match"], [], "reproduced", "1 of 1 values agree"),
        ([], ["holds"], "reproduced", "1 of 1 conclusions hold"),
        (["match", "worse"], ["holds"], "conclusions hold", "1 of 1 conclusions hold; 1 of 2 values agree, 1 differ"),
        (["compatible"], ["holds"], "conclusions hold", "1 of 1 conclusions hold; 0 of 1 values agree, 1 undecided"),
        (["unstable"], ["holds"], "conclusions hold", "1 of 1 conclusions hold; 0 of 1 values agree, 1 differ"),
        (
            ["match"],
            ["holds", "in order"],
            "partly reproduced",
            "1 of 2 conclusions hold, 1 undecided; 1 of 1 values agree",
        ),
        (["match", "worse"], [], "partly reproduced", "1 of 2 values agree, 1 differ"),
        (["better", "compatible"], [], "not shown", "0 of 2 values agree, 1 better, 1 undecided"),
        (["better", "worse"], [], "values differ", "0 of 2 values agree, 1 better, 1 differ"),
        (["match"], ["not shown"], "not shown", "0 of 1 conclusions hold, 1 undecided; 1 of 1 values agree"),
        ([], ["reversed", "in order"], "not shown", "0 of 2 conclusions hold, 2 undecided"),
        (
            ["missing"],
            ["refuted", "holds"],
            "contradicted",
            "1 of 2 conclusions hold, 1 refuted; 0 of 1 values agree, 1 undecided",
        ),
        ([], ["refuted (n=1)", "holds"], "partly reproduced", "1 of 2 conclusions hold, 1 undecided"),
        ([], ["refuted (n=1)"], "not shown", "0 of 1 conclusions hold, 1 undecided"),
        (["match", "stale"], ["holds"], "open", "1 of 1 conclusions hold; 1 of 2 values agree, 1 undecided"),
        (["blank"], [], "open", ""),
        ([], [], "open", ""),
    ],
)
def test_the_word_of_a_table_follows_from_its_counts(values, conclusions, word, counts):
    found = verdict.judge_table(cells_of(values), claims_of(conclusions))
    assert (markdown.text(found), markdown.counts(found.counts)) == (word, counts)


def test_a_claim_of_ours_decides_nothing():
    for said in ("refuted", "holds", "in order"):
        found = verdict.judge_table(cells_of(["match"]), claims_of(["holds"]) + claims_of([said], OURS))
        assert (found.word, markdown.counts(found.counts)) == (
            "reproduced",
            "1 of 1 conclusions hold; 1 of 1 values agree",
        )
        assert verdict.judge_table([], claims_of([said], OURS)).word == "open"


def test_a_table_with_missing_runs_is_open_unless_it_is_contradicted():
    assert verdict.judge_table([], claims_of(["holds"]), complete=False).word == "open"
    assert verdict.judge_table([], claims_of(["refuted"]), complete=False).word == "contradicted"
    assert verdict.judge_table([], claims_of(["refuted (n=1)"]), complete=False).word == "open"


def test_the_correction_decides_the_words():
    """Of p = .02, .03 and .2 the first alone is significant; corrected, .06, .06 and .2, none is."""
    findings = [Finding(Verdict(Word.IN_ORDER), p, 1 - p) for p in (0.02, 0.03, 0.2)]
    assert [v.word for v in verdict.decide(findings)] == ["in order"] * 3
    assert [v.p_for for v in verdict.decide(findings)] == [P(0.02, pytest.approx(0.06)), (0.03, 0.06), (0.2, 0.2)]
    assert verdict.decide(findings[:1])[0].word == "holds"
    against = [Finding(Verdict(Word.REVERSED), 0.99, 0.01), Finding(Verdict(Word.NOT_SHOWN), 0.001, 0.001)]
    assert [v.word for v in verdict.decide(against)] == ["refuted", "holds"]  # within the margin, though different
    fixed = Finding(Verdict(Word.REFUTED))
    assert verdict.decide([fixed, findings[0]]) == [fixed.verdict, *verdict.decide(findings[:1])]


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (["holds", "holds"], "order shown"),
        (["holds", "in order"], "in order"),
        (["in order"], "in order"),
        (["holds", "reversed"], "not in order"),
        (["refuted"], "not in order"),
        (["holds", "not shown"], "not shown"),
        (["reversed", "not shown"], "not in order"),
        (["holds", "open"], "open"),
        ([], "no order expected"),
    ],
)
def test_the_word_of_a_small_scale_version(said, word):
    verdicts = [Verdict(Word(text)) for text in said]
    assert verdict.judge_small(TWO, verdicts, [{}], complete=True).word == word
    assert verdict.judge_small(TWO, verdicts, [], complete=True).word == "not run"
    assert verdict.judge_small(replace(TWO, tiny=None), verdicts, [{}], complete=True).word == "no small-scale version"
    assert verdict.judge_small(TWO, verdicts, [{}], complete=False).word in ("open", "no order expected")


def test_counts_name_what_is_undecided():
    assert markdown.counts(Counts(11, 6, 2, 18, 11, 3, 2)) == (
        "6 of 11 conclusions hold, 2 refuted, 3 undecided; 11 of 18 values agree, 3 better, 2 differ, 2 undecided"
    )


def test_a_hypothesis_of_our_own_study_counts_like_a_conclusion():
    claim = {"claim": "plstm > lstm", "hypothesis": "it keeps more; refuted if not", "dated": "2026-11-25"}
    (claim,) = parse(TABLE | {"claims": [claim]}).claims
    found = verdict.judge_table([], claims_of(["refuted"], claim))
    assert (found.word, markdown.counts(found.counts)) == ("contradicted", "0 of 1 hypotheses hold, 1 refuted")


@pytest.mark.parametrize(
    ("said", "paper", "study"),
    [
        (["holds", "refuted", "open"], "contradicted", "some hypotheses refuted"),
        (["holds", "holds"], "reproduced", "all hypotheses hold"),
        (["holds", "reversed"], "partly reproduced", "some hypotheses hold"),
        (["in order", "reversed"], "not shown", "not shown"),
    ],
)
def test_the_words_of_a_study_are_about_its_hypotheses(said, paper, study):
    """Of a paper's table they stay as they are."""
    hypothesis = {"claim": "plstm > lstm", "hypothesis": "it keeps more; refuted if not", "dated": "2026-11-25"}
    for node, word in ((hypothesis, study), (quoted("plstm > lstm"), paper)):
        (claim,) = parse(TABLE | {"claims": [node]}).claims
        found = verdict.judge_table([], claims_of(said, claim))
        assert (found.word, markdown.text(found)) == (paper, word)
        assert markdown.most_common([found, found]) == f"2 *{word}*"


def test_the_counts_of_a_papers_tables_add_up():
    counts = [Counts(11, 6, 2, 18, 11, 3, 2), Counts(1, 1, 0, 0, 0, 0, 0)]
    assert sum_of(counts) == Counts(12, 7, 2, 18, 11, 3, 2)
