"""Write the measured parts of results/README.md and of results/reanalysed/README.md, each between its marks.

They are the answer to each table's question, how well small sizes predict large ones, and lists of all tables; and what
numbers without a training show.
"""

from collections import Counter
from collections.abc import Sequence

from timescales.analysis.study import Source
from timescales.papers import judge
from timescales.papers.judge import AGAINST, FOR
from timescales.papers.ladder import kept_signs
from timescales.papers.parse import stands_for
from timescales.papers.reanalysed import in_words
from timescales.papers.table import PAPER
from timescales.reports import wording
from timescales.reports.markdown import grid, ours_of
from timescales.reports.report import Report

HEAD = ("table", "from", "conclusions", "printed values", "runs at the paper's size", "missing", "rungs run")


def blocks(reports: Sequence[Report]) -> dict[str, str]:
    """Return the text for each pair of marks in results/README.md."""
    papers = [report for report in reports if report.table.paper != "ours"]
    studies = [report for report in reports if report.table.paper == "ours"]
    lines = {
        "summary": summary(papers),
        "questions": questions(papers),
        "predicts": predicts(reports),
        "tables": grid(HEAD, [row(report) for report in papers]),
        "studies": grid(HEAD, [row(report) for report in studies]),
    }
    return {name: "\n".join(own) for name, own in lines.items()}


def summary(reports: Sequence[Report]) -> list[str]:
    """Write how many conclusions and printed values are decided, and in which tables."""
    decided = [r for r in reports if any(r.counts[0].get(word) for word in (*FOR, *AGAINST))]
    return [
        f"We rerun {len(reports)} tables and figures of three papers and check every sentence that the papers draw",
        f"from them. At the papers' own sizes {'; '.join(wording.counts(reports))}. Tables with a decided",
        f"conclusion: {', '.join(r.table.name for r in decided) or 'none'}.",
    ]


def questions(reports: Sequence[Report], results: str = "") -> list[str]:
    """Make a table with the questions of tables, the answers, and links. results: the folder as seen from the page."""
    asking = ((report, report.table.name, report.table.question) for report in reports)
    body = [[asked.asks, answer(r), f"[{name}]({results}{name}/table.md)"] for r, name, asked in asking if asked]
    return grid(["question", "answer so far", "evidence"], body)


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
        words = []
        for each in own:
            effect = f" ({ours})" if (ours := ours_of(each)) else ""
            words.append(f"{wording.claim_in_words(each.item)}: {wording.group_verdict(each)}{effect}")
        text_at_paper = f"**{wording.yes_or_no(found)}**: {'; '.join(words)}"
    small = []  # such as "plstm faster than chrono: unclear at t20, opposite seen at t200"
    for judged in (judged for claim in asked for judged in report.ladder_claims if judged.own is claim):
        steps = [f"{step.short or step.word} at {step.name}" for step in judged.steps if step.word != judge.NOT_RUN]
        small += [f"{wording.claim_in_words(judged.claim)}: {', '.join(steps)}"] * bool(steps)
    return f"{text_at_paper}. At smaller sizes: {'; '.join(small)}" if small else text_at_paper


def predicts(reports: Sequence[Report]) -> list[str]:
    """Write how often the sign of an effect at the smallest size is the same at the largest size."""
    found = kept_signs([judged for report in reports for judged in report.ladder_claims])
    total = found[0].total
    if total < 2:
        return [f'Not known yet: {total} conclusions "A better than B" have runs at two sizes.']
    body = []
    for each in found:
        share = f"{wording.interval(wording.percent(judge.rate(each.same, each.total)))} %" if each.total else ""
        chance = f"{100 * each.chance:.0f} %" if 0 < each.chance < 1 else "they all point one way" * bool(share)
        body.append([each.of, f"{each.same} of {each.total}", share, chance])
    lines = [*grid(["conclusions", "same sign", "share, 95 %", "by chance"], body), ""]
    if judge.rate(found[0].same, total).low > found[0].chance:
        return [*lines, "So far small runs predict better than chance."]
    few = f"So far nobody can say whether small runs predict: {total} conclusions are few, and chance keeps many,"
    return [*lines, few, "since most effects point the same way."]


def row(report: Report) -> list[str]:
    """Make the row of a table in the list of all tables."""
    done = {size: f"{len(report.rows[size])} of {len(report.planned[size])}" for size in report.rows}
    rungs = report.table.ladder.rungs if report.table.ladder else {}
    run = ", ".join(f"{name}: {done[name]}" for name in rungs) or "no ladder"
    price, link = wording.price(report.open_seconds()), f"[{report.table.name}]({report.table.name}/table.md)"
    return [link, report.table.source, *wording.counts([report]), done[PAPER], price, run]


UNIT_COLUMNS = {
    "nearest alpha": "probe/timescale_law/alpha",
    "distance": "probe/timescale_law/ks_inverse_gamma",
    "of the nearest normal": "probe/timescale_law/ks_normal",
    "share below 10 steps": "probe/timescale_law/below_10",
    "longest (steps)": "probe/timescale_law/longest",
}


def reanalysed(sources: Sequence[Source], reports: Sequence[Report]) -> dict[str, str]:
    """Return the text for each pair of marks in results/reanalysed/README.md: numbers that need no training."""
    units = [source for source in sources if UNIT_COLUMNS["nearest alpha"] in source.values]
    body = [[source.of, *(wording.number(source.values[key]) for key in UNIT_COLUMNS.values())] for source in units]
    every = [found for report in reports for found in report.reanalysed]
    judged = [f"{in_words(every)}. Each is on the page of its table:", ""]
    for report in (report for report in reports if report.reanalysed):
        link = f"[{report.table.name}](../{report.table.name}/table.md#without-a-training)"
        judged.append(f"- {link}: {in_words(report.reanalysed)}")
    return {"units": "\n".join(grid(["model", *UNIT_COLUMNS], body)), "judged": "\n".join(judged)}
