"""Write results/README.md: the answer to each table's question, and how well small sizes predict large ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from timescales.papers import judge
from timescales.papers.judge import AGAINST, FOR
from timescales.papers.ladder import kept_signs
from timescales.papers.parse import stands_for
from timescales.papers.table import PAPER
from timescales.reports import wording
from timescales.reports.markdown import grid, ours_of
from timescales.reports.report import Report

INTRO = """\
Written by `make report` from the committed runs. Each answer goes by runs with the paper's own settings; *at smaller
sizes* says what the rungs of the table's ladder have shown, which is no verdict on the paper.
"""
READING = """\
## How to read it

- A **conclusion** is a sentence of a paper. It *holds*, is *refuted* or is *undecided*: the 95 % interval of our
  runs is compared with a region. A **value** is a printed number: it *agrees*, *differs* or is *undecided*.
- A **rung** is a smaller size of the same experiment, with seeds that nothing was chosen by. There a conclusion is
  *seen*, *opposite seen* or *unclear*.
- [docs/statistics.md](../docs/statistics.md) has the rules on one page. [verdicts.json](verdicts.json) has every
  verdict for machines. [FINDINGS.md](FINDINGS.md) says in words what we believe. [LOG.md](LOG.md) has dated notes, also
  on what went wrong. [bench](bench) has measurements of speed. [archived/small](archived/small) keeps the small-scale
  runs that the ladders replaced.
"""


def index(reports: Sequence[Report]) -> str:
    """Write results/README.md."""
    papers = [report for report in reports if report.table.paper != "ours"]
    studies = [report for report in reports if report.table.paper == "ours"]
    lines = ["# Results: what is known", "", *summary(papers), "", INTRO]
    lines += ["## The papers' questions", "", *grid(["question", "answer so far", "evidence"], questions(papers)), ""]
    lines += [*predicts(reports), READING]
    lines += ["## All tables", "", *grid(HEAD, [row(report) for report in papers]), ""]
    lines += ["## Studies of our own", "", *grid(HEAD, [row(report) for report in studies]), ""]
    return "\n".join(lines)


HEAD = ("table", "from", "conclusions", "printed values", "runs at the paper's size", "missing", "rungs run")


def summary(reports: Sequence[Report]) -> list[str]:
    """Write how many conclusions and printed values are decided, and in which tables."""
    decided = [r for r in reports if any(r.counts[0].get(word) for word in (*FOR, *AGAINST))]
    words = [wording.counted(sum_of(reports, k), kind) for k, kind in enumerate(("conclusions", "printed values"))]
    return [
        f"We rerun {len(reports)} tables and figures of three papers and check every sentence that the papers draw",
        f"from them. At the papers' own sizes {'; '.join(words)}. Tables with a decided",
        f"conclusion: {', '.join(r.table.name for r in decided) or 'none'}.",
    ]


def sum_of(reports: Sequence[Report], k: int) -> dict[str, int]:
    """Add up the counts of conclusions (k = 0) or of printed values (k = 1) of several tables."""
    total: dict[str, int] = {}
    for report in reports:
        for word, count in report.counts[k].items():
            total[word] = total.get(word, 0) + count
    return total


def questions(reports: Sequence[Report]) -> list[list[str]]:
    """Make a row for each table that asks a question: the question, the answer, a link."""
    return [[r.table.question.asks, answer(r), _link(r)] for r in reports if r.table.question]


def answer(report: Report) -> str:
    """Answer a table's question by the claims that it names, at the paper's size and on the ladder."""
    assert report.table.question is not None
    of_lines = [stands_for(report.table.claims, line) for line in report.table.question.by]
    asked = [claim for claim in of_lines if claim is not None]
    own = [each for claim in asked for each in report.every_claim if each.item.number == claim.number]
    found = Counter(each.word for each in own)
    if set(found) == {judge.NOT_RUN}:
        text_at_paper = "**Open** at the paper's size"
    else:
        first = wording.yes_or_no(found)
        words = []
        for each in own:
            effect = f" ({ours})" if (ours := ours_of(each)) else ""
            words.append(f"{wording.claim_in_words(each.item)}: {wording.group_verdict(each)}{effect}")
        text_at_paper = f"**{first[0].upper()}{first[1:]}**: {'; '.join(words)}"
    small = []  # such as "plstm faster than chrono: unclear at t20, opposite seen at t200"
    for judged in (
        judged
        for claim in asked
        for judged in report.ladder_claims
        if judged.claim.of and stands_for(report.table.claims, judged.claim.of) is claim
    ):
        steps = [f"{step.short or step.word} at {step.name}" for step in judged.steps if step.word != judge.NOT_RUN]
        small += [f"{wording.claim_in_words(judged.claim)}: {', '.join(steps)}"] * bool(steps)
    return f"{text_at_paper}. At smaller sizes: {'; '.join(small)}" if small else text_at_paper


def predicts(reports: Sequence[Report]) -> list[str]:
    """Write how often the sign of an effect at the smallest size is the same at the largest size."""
    found = kept_signs([judged for report in reports for judged in report.ladder_claims])
    total = found[0].total
    lines = ["## Does `make small` predict?", ""]
    if total < 2:
        return [*lines, f'Not known yet: {total} conclusions "A better than B" have runs at two sizes.', ""]
    lines += [
        'Of conclusions "A better than B" that have runs at two sizes or more: how many have at the largest size the',
        "sign that they have at the smallest, and how many would have it by chance.",
        "",
    ]
    body = []
    for each in found:
        share = f"{wording.interval(wording.percent(judge.rate(each.same, each.total)))} %" if each.total else ""
        chance = f"{100 * each.chance:.0f} %" if 0 < each.chance < 1 else "they all point one way" * bool(share)
        body.append([each.of, f"{each.same} of {each.total}", share, chance])
    lines += [*grid(["conclusions", "same sign", "share, 95 %", "by chance"], body), ""]
    if judge.rate(found[0].same, total).low > found[0].chance:
        lines += ["So far small runs predict better than chance."]
    else:
        lines += [
            f"So far nobody can say whether small runs predict: {total} conclusions are few, and chance keeps many,",
            "since most effects point the same way.",
        ]
    lines += [
        "Our advice: take *seen* at a first rung as a reason to run the next one, and no sign that is *unclear* as a",
        "reason for anything. Of two texts to train language models on, DataDecide (arXiv 2504.11393) finds in about",
        "80 % of pairs that the better one at a small size is also the better one at the target.",
        "",
    ]
    return lines


def row(report: Report) -> list[str]:
    """Make the row of a table in the list of all tables."""
    kinds = ("hypotheses" if report.study else "conclusions", "printed values")
    decided = [wording.counted(counts, kind) for counts, kind in zip(report.counts, kinds, strict=True)]
    runs = f"{len(report.rows[PAPER])} of {len(report.planned[PAPER])}"
    return [_link(report), report.table.source, *decided, runs, wording.price(report.open_seconds()), rungs(report)]


def rungs(report: Report) -> str:
    """Write which rungs of a ladder have run: "t20 15 of 15, t100 3 of 25"."""
    ladder = report.table.ladder
    if ladder is None or ladder.none:
        return "no ladder"
    return ", ".join(f"{name}: {len(report.rows[name])} of {len(report.planned[name])}" for name in ladder.rungs)


def _link(report: Report) -> str:
    name = report.table.name
    return f"[{name}]({name}/table.md)"
