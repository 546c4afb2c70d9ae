"""Verdicts on whole tables."""

from collections import Counter
from dataclasses import replace

import pytest
from made_up import TABLE, made_row, quoted

from timescales.papers import verdict
from timescales.papers.parse import parse
from timescales.papers.verdict import CellResult, ClaimResult, Counts, Finding, Outcome, Sample, Verdict, Word, sum_of
from timescales.reports import wording

TWO = parse(TABLE | {"claims": [quoted("plstm > lstm"), {"claim": "lstm > plstm", "ours": "to see"}]})
QUOTED, OURS = TWO.claims


def cells_of(texts):
    return [CellResult(replace(TWO.cells[0], number=k), Sample(), Verdict(Word(text))) for k, text in enumerate(texts)]


def claims_of(texts, claim=QUOTED):
    """Results that read like this: "refuted (n=1)", "in order (missing)"."""
    found = []
    for k, text in enumerate(texts):
        word, _, remark = text.partition(" (")
        about = Verdict(Word(word), few="n=" in remark, missing="missing" in remark)
        found.append(ClaimResult(replace(claim, number=k), about))
    return found


RUN = [made_row()]


@pytest.mark.parametrize(
    ("conclusions", "word", "counts"),
    [
        (["holds", "holds"], "reproduced", "2 of 2 conclusions hold"),
        (["refuted", "too small"], "not reproduced", "0 of 2 conclusions hold, 1 refuted, 1 too small"),
        (["holds", "refuted"], "mixed", "1 of 2 conclusions hold, 1 refuted"),
        (["holds", "too small"], "mixed", "1 of 2 conclusions hold, 1 too small"),
        (["holds", "in order"], "partly decided", "1 of 2 conclusions hold, 1 undecided"),
        (["refuted", "not shown"], "partly decided", "0 of 2 conclusions hold, 1 refuted, 1 undecided"),
        (["holds", "not run"], "partly decided", "1 of 1 conclusions hold (1 not run)"),
        (["holds", "in order (missing)"], "partly decided", "1 of 1 conclusions hold (1 not run)"),
        (["in order", "reversed"], "undecided", "0 of 2 conclusions hold, 2 undecided"),
        (["refuted (n=1)"], "undecided", "0 of 1 conclusions hold, 1 undecided"),
        (["too small (n=1)"], "undecided", "0 of 1 conclusions hold, 1 undecided"),
        (["in order", "in order (missing)"], "unfinished", "0 of 1 conclusions hold, 1 undecided (1 not run)"),
        (["not run", "stale"], "unfinished", "conclusions: 2 not run"),
        (["holds", "cannot be decided"], "reproduced", "1 of 1 conclusions hold (1 cannot be decided)"),
        (
            ["refuted", "cannot be decided"],
            "not reproduced",
            "0 of 1 conclusions hold, 1 refuted (1 cannot be decided)",
        ),
        (["cannot be decided"], "cannot be decided", "conclusions: 1 cannot be decided"),
        ([], "cannot be decided", ""),
    ],
)
def test_the_word_of_a_table_follows_from_its_conclusions(conclusions, word, counts):
    found = verdict.judge_table([], claims_of(conclusions), RUN)
    assert (wording.text(found), wording.counts(found.counts)) == (word, counts)


@pytest.mark.parametrize(
    ("values", "word", "counts"),
    [
        (["agrees", "close, but lower", "blank"], "reproduced", "1 of 2 values agree, 1 close"),
        (["higher", "less stable"], "not reproduced", "0 of 2 values agree, 2 differ"),
        (["agrees", "lower"], "mixed", "1 of 2 values agree, 1 differ"),
        (["agrees", "consistent, imprecise"], "partly decided", "1 of 2 values agree, 1 undecided"),
        (["consistent, imprecise", "undecided"], "undecided", "0 of 2 values agree, 2 undecided"),
        (["agrees", "cannot be decided"], "reproduced", "1 of 1 values agree (1 cannot be decided)"),
        (["not run", "not run"], "unfinished", "values: 2 not run"),
        (["blank"], "cannot be decided", ""),
    ],
)
def test_where_nothing_is_concluded_it_follows_from_the_values(values, word, counts):
    found = verdict.judge_table(cells_of(values), [], RUN)
    assert (wording.text(found), wording.counts(found.counts)) == (word, counts)
    beside = verdict.judge_table(cells_of(values), claims_of(["holds"]), RUN)
    assert beside.word == "reproduced"  # conclusions decide where there are some
    assert wording.counts(beside.counts) == "; ".join(filter(None, ["1 of 1 conclusions hold", counts]))


def test_a_claim_of_ours_decides_nothing():
    for said in ("refuted", "holds", "in order"):
        found = verdict.judge_table([], claims_of(["holds"]) + claims_of([said], OURS), RUN)
        assert (found.word, wording.counts(found.counts)) == ("reproduced", "1 of 1 conclusions hold")
        assert verdict.judge_table([], claims_of([said], OURS), RUN).word == "cannot be decided"


def test_a_table_whose_conclusions_are_decided_needs_no_more_runs():
    assert verdict.judge_table([], claims_of(["holds"]), RUN, complete=False).word == "reproduced"
    assert verdict.judge_table([], claims_of(["refuted"]), RUN, complete=False).word == "not reproduced"
    assert verdict.judge_table([], claims_of(["refuted (n=1)"]), RUN, complete=False).word == "unfinished"
    assert verdict.judge_table([], claims_of(["not run"]), [], complete=False).word == "not run"


def test_what_a_setting_was_chosen_by_is_shown_and_not_counted():
    cell = replace(TWO.cells[0], calibrated=True, number=1)
    chosen = [CellResult(cell, Sample(), Verdict(Word.AGREES, calibrated=True))]
    assert wording.text(chosen[0].verdict) == "agrees (calibrated)"
    found = verdict.judge_table([*chosen, *cells_of(["lower"])], [], RUN)
    assert (wording.text(found), wording.counts(found.counts)) == (
        "partly decided (calibrated)",
        "0 of 1 values agree, 1 differ (1 calibrated)",
    )
    claim = claims_of(["holds"], replace(QUOTED, calibrated=True))
    found = verdict.judge_table([], [*claim, claims_of(["holds", "refuted"])[1]], RUN)
    assert (found.word, wording.counts(found.counts)) == (
        "partly decided",
        "0 of 1 conclusions hold, 1 refuted (1 calibrated)",
    )
    assert verdict.judge_table([], claim, RUN).word == "cannot be decided"


def test_the_correction_decides_the_words():
    """Of p = .02, .04 and .2 the first two are significant alone; corrected, .06, .06 and .2, none is."""
    findings = [Finding(Verdict(Word.IN_ORDER), p, 1 - p) for p in (0.02, 0.04, 0.2)]
    assert [v.word for v in verdict.decide(findings)] == ["in order"] * 3
    ps = [v.p_for for v in verdict.decide(findings)]
    assert [p.raw for p in ps] == [0.02, 0.04, 0.2]
    assert [p.corrected for p in ps] == pytest.approx([0.06, 0.06, 0.2])
    assert verdict.decide(findings[:1])[0].word == "holds"
    against = [Finding(Verdict(Word.REVERSED), 0.99, 0.01), Finding(Verdict(Word.NOT_SHOWN), 0.001, 0.001)]
    assert [v.word for v in verdict.decide(against)] == ["refuted", "holds"]  # within the margin, though different
    small = [Finding(Verdict(Word.REVERSED), 0.99, 0.01, 0.001), Finding(Verdict(Word.REVERSED), 0.9, 0.1, 0.001)]
    assert [v.word for v in verdict.decide(small)] == ["refuted", "too small"]
    fixed = Finding(Verdict(Word.REFUTED))
    assert verdict.decide([fixed, findings[0]]) == [fixed.verdict, *verdict.decide(findings[:1])]
    assert verdict.decide([Finding(Verdict(Word.CANNOT), 0.001)])[0].word == "cannot be decided"


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
        (["holds", "not run"], "unfinished"),
        (["holds", "undecided"], "not shown"),
        ([], "no order expected"),
    ],
)
def test_the_word_of_a_small_scale_version(said, word):
    verdicts = [Verdict(Word(text)) for text in said]
    assert verdict.judge_small(TWO, verdicts, RUN, complete=True).word == word
    assert verdict.judge_small(TWO, verdicts, [], complete=True).word == "not run"
    assert verdict.judge_small(replace(TWO, tiny=None), verdicts, RUN, complete=True).word == "no small-scale version"
    assert verdict.judge_small(TWO, verdicts, RUN, complete=False).word in ("unfinished", "no order expected")


def test_a_hypothesis_of_our_own_study_counts_like_a_conclusion():
    claim = {"claim": "plstm > lstm", "hypothesis": "it keeps more; refuted if not", "dated": "2026-11-25"}
    (claim,) = parse(TABLE | {"claims": [claim]}).claims
    found = verdict.judge_table([], claims_of(["refuted"], claim), RUN)
    assert (found.word, wording.counts(found.counts)) == ("not reproduced", "0 of 1 hypotheses hold, 1 refuted")


@pytest.mark.parametrize(
    ("said", "paper", "study"),
    [
        (["holds", "holds"], "reproduced", "all hypotheses hold"),
        (["refuted"], "not reproduced", "no hypothesis holds"),
        (["holds", "refuted"], "mixed", "mixed"),
        (["holds", "reversed"], "partly decided", "partly decided"),
    ],
)
def test_the_words_of_a_study_are_about_its_hypotheses(said, paper, study):
    """Of a paper's table they stay as they are."""
    hypothesis = {"claim": "plstm > lstm", "hypothesis": "it keeps more; refuted if not", "dated": "2026-11-25"}
    for node, word in ((hypothesis, study), (quoted("plstm > lstm"), paper)):
        (claim,) = parse(TABLE | {"claims": [node]}).claims
        found = verdict.judge_table([], claims_of(said, claim), RUN)
        assert (found.word, wording.text(found)) == (paper, word)
        assert wording.most_common([found, found]) == f"2 *{word}*"


def test_the_counts_of_a_papers_tables_add_up():
    first = Counts(Counter({Outcome.HOLD: 6, Outcome.NOT_RUN: 2}), Counter({Outcome.AGREE: 3}))
    second = Counts(Counter({Outcome.HOLD: 1, Outcome.REFUTED: 1}), hypotheses=True)
    assert sum_of([first, second]) == Counts(
        Counter({Outcome.HOLD: 7, Outcome.NOT_RUN: 2, Outcome.REFUTED: 1}), Counter({Outcome.AGREE: 3}), hypotheses=True
    )
