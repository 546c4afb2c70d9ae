"""Ladders: their rungs as runs, what is seen at each, how an effect moves with size, and which sign is kept."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
from made_up import LADDER, TABLE, made_row, quoted, rows

from timescales.errors import ConfigError
from timescales.papers import judge, ladder
from timescales.papers.parse import parse, stands_for
from timescales.papers.table import columns, expand
from timescales.runs.metrics import Censored

NODE = TABLE | {"claims": [quoted("plstm > lstm"), quoted("plstm ~ lstm")], "ladder": LADDER}
STEPS = "steps to valid/accuracy >= 0.9"


def with_ladder(**changes):
    """The made-up table with other keys of its ladder; None leaves a key out."""
    node = copy.deepcopy(LADDER) | changes
    return NODE | {"ladder": {key: value for key, value in node.items() if value is not None}}


def at(T, plstm, lstm=(0.5, 0.5, 0.5), **values):
    """Runs of a rung by their accuracies."""
    return rows(plstm, first=200, **{"task.T": T}) + rows(lstm, "lstm", first=200, **{"task.T": T})


def around(mid, half=0.01):
    return [mid - half, mid, mid + half]


def judged_ladder(node, **found):
    (first, *_) = ladder.ladder_claims(parse(node), found)
    return first


# --- runs ---
def test_a_rung_has_the_tables_runs_with_its_own_settings_and_fresh_seeds():
    table = parse(NODE)
    assert list(table.sizes) == ["paper", "t5", "t20"]
    runs = [(model, seed) for model in ("lstm", "plstm") for seed in (200, 201, 202)]
    expected = [{"task": "copy", "model": model, "seed": seed, "task.T": 5} for model, seed in runs]
    assert sorted(expand(table, "t5"), key=str) == sorted(expected, key=str)
    assert {axes["task.T"] for axes in expand(table, "t20", {"seed": [201]})} == {20}
    assert [rung.at for rung in table.ladder.rungs.values()] == [5, 20]
    assert (table.ladder.rungs["t5"].cells, table.ladder.rungs["t5"].ladder) == ((), None)


def test_settings_are_shared_by_rungs_and_a_set_with_models_is_for_these():
    sets = [{"model": "lstm", "model.hidden_size": 6, "seed": [200]}, {"model": ["plstm"], "model.hidden_size": [7, 8]}]
    rungs = {"one": {"at": 1, "seeds": 2, "set": sets}}
    runs = expand(parse(with_ladder(set={"task.T": 9}, rungs=rungs, claims=[])), "one")
    assert {axes["task.T"] for axes in runs} == {9}
    found = [(axes["model"], axes["model.hidden_size"], axes["seed"]) for axes in runs]
    assert found == [("lstm", 6, 200), *(("plstm", size, seed) for seed in (200, 201) for size in (7, 8))]


def test_rates_are_runs_of_their_own_and_no_rung():
    table = parse(with_ladder(rates={"set": {"optimizer.lr": [0.1, 0.2], "seed": 100}, "metric": "valid/accuracy"}))
    assert list(table.sizes) == ["paper", "t5", "t20", "rates"]
    assert {(axes["seed"], axes["optimizer.lr"]) for axes in expand(table, "rates")} == {(100, 0.1), (100, 0.2)}
    assert list(table.ladder.rungs) == ["t5", "t20"]
    assert columns(table) == ["last test/accuracy", "last valid/accuracy"]


def test_what_a_word_means_as_a_size():
    table = parse(NODE)
    for word, size in ((None, "paper"), ("small", "t5"), ("t20", "t20"), ("paper", "paper")):
        assert table.size_of(word) == size
    with pytest.raises(ConfigError, match=r"rung=t2: .*t5, t20"):
        table.size_of("t2")
    for without in (TABLE, TABLE | {"ladder": {"none": "its data are not published"}}):
        for word in ("small", "t5"):
            with pytest.raises(ConfigError, match=f"rung={word}: .*has no ladder"):
                parse(without).size_of(word)
    with pytest.raises(ConfigError, match="its data are not published"):
        parse(TABLE | {"ladder": {"none": "its data are not published"}}).size_of("small")


def test_rungs_read_what_they_judge():
    rungs = {"t5": {**LADDER["rungs"]["t5"], "select": "best", "success": "valid/loss < 1"}}
    assert columns(parse(with_ladder(rungs=rungs))) == ["last test/accuracy", "best test/accuracy", "best valid/loss"]
    told = {"reach": "valid/accuracy > 0.5", "share": 1, "ceiling": "test/loss < 0.1"}
    read = columns(parse(with_ladder(competence=told)))
    assert read == ["last test/accuracy", "last valid/accuracy", "last test/loss"]


SMALL = {"set": {"task.T": 5}}
WRONG = [
    ({"over": None}, "table.ladder needs over"),
    ({"rungs": {}}, "table.ladder needs over"),
    ({"none": "no data"}, "table.ladder.none.*leave out"),
    ({"rung": {}}, r"table.ladder.rung: no such key; did you mean rungs\?"),
    ({"pair": "model"}, "table.ladder.pair"),
    ({"over": 5}, "table.ladder.over must be a string"),
    ({"set": {"seeds": 3}}, r"table.ladder.rungs.t5.set.seeds: .*seed: \[0, 1, 2\]"),
    ({"competence": {"share": 0.8}}, "rungs.t5.competence.reach is missing"),
    ({"competence": {"reach": "x", "share": 0.8}}, "cannot read 'x'"),
    ({"competence": {"reach": "valid/loss < 1", "share": 0}}, "rungs.t5.competence.share must be above 0"),
    ({"competence": {"reach": "valid/loss < 1", "share": 1, "floor": 1}}, "rungs.t5.competence.floor: no such key"),
    ({"claims": ["plstm wins"]}, "cannot read the claim 'plstm wins'"),
    ({"claims": ["plstm > gru"]}, "no runs decide the claim 'plstm > gru'"),
    ({"claims": [{"claim": "plstm > lstm", "of": "plstm > lst"}]}, r"of: 'plstm > lst' .*did you mean plstm > lstm\?"),
    ({"claims": ["plstm ~ lstm"], "metric": STEPS}, "claim 'plstm ~ lstm': times of a rung .*use >"),
    ({"claims": [{"claim": "plstm > lstm", "by": 9}], "metric": STEPS}, "compared as ratios: use times"),
    ({"claims": [{"claim": "plstm", "than": STEPS}], "metric": STEPS}, "as ratios: leave out than, which is a diff"),
    ({"rungs": {"t5": SMALL, "t20": SMALL}}, r"table.ladder.rungs must be in the order of their sizes.*; not \[5, 5\]"),
    ({"rungs": {"t5": {"set": {"task.T": [5, 6]}}}}, "rungs.t5.at is missing"),
    ({"over": "size"}, "rungs.t5.at is missing"),
    ({"rungs": {"t5": {"seeds": 5}}}, "rungs.t5.set is missing"),
    ({"rungs": {"t5": SMALL | {"seeds": 0}}}, "rungs.t5.seeds must be above 0"),
    ({"rungs": {"t5": SMALL | {"seeds": 1.5}}}, "rungs.t5.seeds must be a whole number"),
    ({"rungs": {"t5": SMALL | {"sucess": "x"}}}, r"rungs.t5.sucess: no such key; did you mean success\?"),
    ({"rungs": {"t5": {"set": {"task.T": 5, "model": "gru"}}}}, "rungs.t5.set names model gru"),
    ({"rungs": {"small": SMALL}}, "rungs.small: "),
    ({"rungs": {"paper": SMALL}}, "rungs.paper: "),
    ({"rungs": {"t5": None}}, "rungs.t5 must be keys with their values"),
    ({"rungs": {"t5": {"set": [5]}}}, "rungs.t5.set must be keys with their values"),
    ({"rungs": {5: SMALL}}, "rungs.5: .*string"),
    ({"rates": {"metric": "valid/loss"}}, "table.ladder.rates.set is missing"),
    ({"rates": {"set": {"seed": 100}}}, "table.ladder.rates.set has no optimizer.lr: give the learning rates"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_a_wrong_ladder_names_its_key_in_one_line(changes, words):
    with pytest.raises(ConfigError, match=rf"^table/made_up.yaml: .*{words}") as error:
        parse(with_ladder(**changes))
    assert "\n" not in str(error.value)


def test_of_names_one_claim_by_its_line_or_by_its_line_with_its_metrics():
    other = {"claim": "plstm > lstm", "metric": "test/loss", "better": "lower"}
    claims = parse(TABLE | {"claims": [quoted("plstm > lstm"), quoted(other), quoted("plstm ~ lstm")]}).claims
    assert stands_for(claims, "plstm ~ lstm") is claims[2]
    assert stands_for(claims, "plstm > lstm (test/loss)") is claims[1]
    assert stands_for(claims, "plstm > lstm") is claims[0], "its whole text"
    both = parse(TABLE | {"claims": [quoted(other), quoted({**other, "metric": "valid/loss"})]}).claims
    assert stands_for(both, "plstm > lstm") is None, "either of two"
    assert stands_for(claims, "plstm") is None


# --- what is seen ---
@pytest.mark.parametrize(("plstm", "word"), [(0.9, "seen"), (0.1, "opposite seen"), (0.5, "unclear")])
def test_each_rung_has_a_word(plstm, word):
    judged = judged_ladder(NODE, t5=at(5, around(plstm)))
    assert [step.word for step in judged.steps] == [word, "not run"]
    (first, second) = judged.steps
    assert (first.name, first.at, first.verdict.interval.mid) == ("t5", 5, pytest.approx(100 * plstm - 50))
    assert (second.verdict.interval, second.counts) == (None, False)
    assert judged.trend == ""


def test_a_rung_compares_nothing_where_no_model_gets_anywhere_or_all_are_at_the_ceiling():
    told = {"reach": "valid/accuracy >= 0.8", "share": 0.6, "ceiling": "valid/accuracy >= 0.99"}
    node = with_ladder(competence=told)
    for plstm, lstm, short in (
        ([0.81, 0.82, 0.7], [0.5] * 3, ""),  # two of three reach it
        ([0.81, 0.7, 0.7], [0.81, 0.6, 0.6], "too short"),  # one of each side
        ([0.99, 1.0, 1.0], [0.99] * 3, "too easy"),
        ([0.99, 1.0, 1.0], [0.99, 0.99, 0.98], ""),
        ([None, 0.9, None], [0.5] * 3, "too short"),
    ):
        judged = judged_ladder(node, t5=at(5, plstm, lstm), t20=at(20, around(0.9)))
        assert judged.steps[0].short == short
        assert judged.steps[0].counts is not bool(short)
        assert bool(judged.slope) is not bool(short)
        if short:
            assert judged.steps[0].word == "unclear"
    assert judged_ladder(node).steps[0].short == "", "without any runs"


def three(**changes):
    """A ladder of three rungs, each twice the size of the one before."""
    rungs = {f"t{T}": {"set": {"task.T": T}, "seeds": 3, "at": T} for T in (5, 10, 20)}
    return with_ladder(rungs=rungs, **changes)


@pytest.mark.parametrize(
    ("mids", "half", "trend"),
    [
        ((0.6, 0.7, 0.8), 0.005, "grows"),
        ((0.8, 0.7, 0.6), 0.005, "shrinks"),
        ((0.7, 0.7, 0.7), 0.0005, "flat"),  # by the tolerance of .5 points over the ladder
        ((0.7, 0.7, 0.7), 0.005, "unclear"),
        ((0.6, 0.7, 0.8), 0.2, "unclear"),
    ],
)
def test_a_trend_is_where_the_slope_over_doublings_lies(mids, half, trend):
    found = {f"t{T}": at(T, around(mid, half)) for T, mid in zip((5, 10, 20), mids, strict=True)}
    judged = judged_ladder(three(), **found)
    told = [step.verdict.interval for step in judged.steps]
    slope = np.polyfit(np.log2([5, 10, 20]), [each.mid for each in told], 1)[0]
    assert judged.slope.mid == pytest.approx(slope, abs=1e-9)
    ends = math.hypot(*(told[k].mid - told[k].low for k in (0, 2))) / 2  # the middle rung has no weight
    assert judged.slope.mid - judged.slope.low == pytest.approx(ends)
    assert judged.trend == trend


def test_a_slope_goes_by_the_rungs_that_count_at_their_own_distances():
    found = {"t5": at(5, around(0.6)), "t20": at(20, around(0.9))}
    judged = judged_ladder(three(), **found)
    assert judged.slope.mid == pytest.approx(15), "30 points over two doublings"
    found["t10"] = at(10, [0.7], [0.5])  # a single run has no interval
    assert judged_ladder(three(), **found).slope.mid == pytest.approx(15)
    (slope,) = {judged_ladder(three(), t5=found["t5"]).slope}
    assert slope is None


def test_rungs_that_share_runs_have_no_slope():
    shared = at(5, around(0.6))
    found = {"t5": shared, "t20": [replace(row, axes={**row.axes, "task.T": 20}) for row in shared]}
    judged = judged_ladder(three(), **found)
    assert [step.word for step in judged.steps] == ["seen", "not run", "seen"]
    assert (judged.slope, judged.trend) == (None, "")


def timed(T, plstm, lstm):
    runs = at(T, [0.9] * len(plstm), [0.9] * len(lstm))
    return [made_row({STEPS: value}, row) for value, row in zip([*plstm, *lstm], runs, strict=True)]


def test_times_are_ratios_with_runs_that_never_got_there():
    node = three(metric=STEPS, claims=[{"claim": "plstm > lstm", "of": "plstm > lstm", "better": "lower"}])
    found = {
        "t5": timed(5, [100] * 4, [200] * 4),
        "t10": timed(10, [100] * 4, [400] * 4),
        "t20": timed(20, [100] * 4, [Censored(800)] * 4),
    }
    judged = judged_ladder(node, **found)
    assert judged.ratio
    assert [step.verdict.interval.mid for step in judged.steps] == pytest.approx([1, 2, 3])
    assert judged.steps[2].verdict.interval.high == math.inf
    assert (judged.slope.mid, judged.trend) == (pytest.approx(1), "grows")
    assert judged.tolerance == math.log2(1.25)
    equal = {f"t{T}": timed(T, [100] * 4, [101] * 4) for T in (5, 10, 20)}
    assert judged_ladder(node, **equal).trend == "flat"


def test_runs_of_a_ladder_are_paired_where_it_says_so():
    plstm, lstm = [0.7, 0.8, 0.9], [0.69, 0.785, 0.89]
    words = [judged_ladder(with_ladder(pair=pair), t5=at(5, plstm, lstm)).steps[0].word for pair in ("", "seed")]
    assert words == ["unclear", "seen"]


def test_claims_of_rungs_are_one_where_they_stand_for_the_same_claim():
    rungs = copy.deepcopy(LADDER["rungs"])
    rungs["t5"]["claims"] = [{"claim": "plstm > lstm @ task.T=5", "of": "plstm > lstm"}, "lstm > plstm"]
    table = parse(with_ladder(rungs=rungs))
    first, second = ladder.ladder_claims(table, {"t5": at(5, around(0.9)), "t20": at(20, around(0.9))})
    assert [step.word for step in first.steps] == ["seen", "seen"]
    assert [(step.name, step.word) for step in second.steps] == [("t5", "opposite seen")]
    assert ladder.ladder_claims(parse(TABLE), {}) == []


# --- signs ---
def test_the_sign_at_a_smaller_size_is_compared_with_that_at_the_largest():
    up, down = around(0.9), around(0.1)
    kept = judged_ladder(three(), t5=at(5, up), t10=at(10, down), t20=at(20, up))
    turned = judged_ladder(three(), t5=at(5, down), t20=at(20, up))
    alone = judged_ladder(three(), t5=at(5, down))
    assert [judged.signs for judged in (kept, turned, alone)] == [[True, False, True], [False, True], [False]]
    every = [kept, turned, alone]
    for number, judged in enumerate(every):  # each of runs of its own
        vars(judged)["steps"] = [replace(step, runs=frozenset({f"{number}{step.name}"})) for step in judged.steps]
    whole, decided, accuracy = ladder.kept_signs(every)
    assert whole[1:] == accuracy[1:] == (1, 2, 0.5), "of the larger ones all, of the smaller ones half are positive"
    assert (decided.same, decided.total, accuracy.of) == (1, 2, "accuracy"), "seen and opposite seen at the smallest"
    assert ladder.kept_signs([kept, turned, kept, turned])[0] == whole, "the same runs count once"
    assert [each.total for each in ladder.kept_signs([])] == [0, 0]
    alone = judged_ladder(with_ladder(claims=["plstm > lstm"]), t5=at(5, up), t20=at(20, up))
    claims = [{"claim": "plstm ~ lstm", "of": "plstm ~ lstm"}]
    like = judged_ladder(with_ladder(claims=claims), t5=at(5, up), t20=at(20, up))
    assert ladder.kept_signs([alone, like])[0].total == 0, "of no sentence of the paper, or of no order"


def test_a_claim_in_other_units_at_other_rungs_is_refused():
    rungs = copy.deepcopy(LADDER["rungs"])
    rungs["t20"]["metric"] = "steps to valid/accuracy >= 0.5"
    with pytest.raises(ConfigError, match="'plstm > lstm' is in another unit at another rung: use one"):
        parse(with_ladder(rungs=rungs))


def test_the_papers_size_is_the_largest_size():
    small = {"t5": at(5, around(0.1)), "t20": at(20, around(0.1))}
    paper = rows(around(0.9)) + rows([0.5] * 3, "lstm")
    judged = judged_ladder(NODE, **small, paper=paper)
    assert (judged.signs, judged.paper.word) == ([False, False, True], "holds")
    assert ladder.kept_signs([judged])[0] == ("all", 0, 1, 0)
    assert judged_ladder(NODE, **small, paper=paper[1:]).paper is None, "runs are missing"
    alone = with_ladder(claims=["plstm > lstm"])  # it stands for no claim of the paper
    assert judged_ladder(alone, **small, paper=paper).paper is None
    assert judged_ladder(NODE, **small).signs == [False, False]


def test_a_share_of_failures_has_a_slope():
    node = with_ladder(claims=["lstm fails"], success="valid/accuracy > 0.6")
    judged = judged_ladder(node, t5=at(5, around(0.9), [0.5] * 3), t20=at(20, around(0.9), [0.5, 0.9, 0.9]))
    assert judged.steps[0].verdict.interval.mid == 1
    assert judged.slope.mid == pytest.approx(-1 / 3), "from 1 to 1/3 over two doublings"


def test_every_word_of_a_verdict_is_one_at_a_rung():
    assert set(ladder.RUNG_WORDS) == {*judge.CLAIM_WORDS.values(), judge.NOT_RUN}
    assert set(ladder.RUNG_WORDS.values()) == {"seen", "opposite seen", "unclear", "not run"}
