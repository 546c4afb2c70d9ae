"""A report's words: results/<table>/table.md. Only here do verdicts become text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from timescales import paths
from timescales.config.run import Axes
from timescales.papers import reanalysed
from timescales.papers.reanalysed import Evidence
from timescales.papers.table import Assumption, Cell, Cited, columns
from timescales.papers.verdict import (
    AGAINST,
    FOR,
    WAITING,
    CellResult,
    ClaimResult,
    Comparison,
    Counts,
    Failures,
    Outcome,
    P,
    Side,
    Verdict,
    Word,
    items,
)
from timescales.reports.report import Origin, Price, Report, Setting
from timescales.runs.metrics import Censored, is_steps


def number(value: float) -> str:
    """A number as people write it in a table; a censored one as ">3000"."""
    if isinstance(value, Censored):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def say(value: Any) -> str:
    """A setting for people."""
    return {True: "yes", False: "no", None: "none"}[value] if isinstance(value, bool | None) else str(value)


def settings(axes: Axes) -> str:
    """Settings for people: "model=plstm, task.T=200"."""
    return ", ".join(f"{key}={say(value)}" for key, value in axes.items())


def grid(head: Sequence[Any], body: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(str(entry).replace("|", "\\|") for entry in row) + " |" for row in rows]


# The words of a table that is a study of hypotheses, where those of a paper's table would not say what became of them.
OF_STUDIES = {Word.REPRODUCED: "all hypotheses hold", Word.NOT_REPRODUCED: "no hypothesis holds"}


def text(verdict: Verdict) -> str:
    """A verdict with its remarks: "holds under t/125 (n=2, 1 of 3 groups)"."""
    under = [f"under {verdict.under}"] if verdict.under else []
    return " ".join([word(verdict), *under, *(f"({remark})" for remark in remarks(verdict))])


def word(verdict: Verdict) -> str:
    """A verdict's word; of a study of hypotheses "all hypotheses hold" in place of "reproduced", and the like."""
    study = verdict.counts is not None and verdict.counts.hypotheses
    return OF_STUDIES.get(verdict.word, verdict.word) if study else verdict.word


def remarks(verdict: Verdict) -> list[str]:
    """What restricts a verdict: "1 of 3 failed", "n=2, 1 of 3 groups", "part of the data"."""
    found = _less_stable(verdict) if verdict.word == Word.LESS_STABLE else []
    found += [verdict.why] if verdict.why else []
    few = [f"n={verdict.n}"] if verdict.few else []
    if verdict.groups and verdict.groups[0] < verdict.groups[1]:
        few.append("{} of {} groups".format(*verdict.groups))
    if few:
        found.append(", ".join(few))
    if verdict.partial:
        found.append("part of the data")
    if verdict.calibrated:
        found.append("calibrated")
    return found


def _less_stable(verdict: Verdict) -> list[str]:
    """Why a value is less stable than the paper's, and where its median is."""
    found = ["{} of {} failed".format(*verdict.failed)] if verdict.failed else []
    found += ["{} of {} at chance".format(*verdict.at_chance)] if verdict.at_chance else []
    found += ["{} of {} never reached the threshold".format(*verdict.censored)] if verdict.censored else []
    if verdict.p_wider is not None and verdict.p_wider.significant:
        found.append("larger spread")
    if verdict.gap is not None:
        found.append(f"median {'inside' if verdict.gap.median == Word.AGREES else verdict.gap.median}")
    return [", ".join(found)] if found else []


def counts(found: Counts | None) -> str:
    """What a table's word follows from: "6 of 11 conclusions hold, 2 refuted, 3 undecided; 11 of 18 values agree".

    These are of what was run and counts. What is not run, cannot be decided or was calibrated stands in brackets.
    """
    if found is None:
        return ""
    conclusions = _counted(found.conclusions, "hypotheses" if found.hypotheses else "conclusions", Outcome.HOLD)
    return "; ".join(filter(None, [conclusions, _counted(found.values, "values", Outcome.AGREE)]))


def _counted(found: Mapping[Outcome, int], kind: str, best: Outcome) -> str:
    judged = sum(found.values()) - sum(found.get(outcome, 0) for outcome in WAITING)
    waiting = [f"{found[outcome]} {outcome}" for outcome in WAITING if found.get(outcome)]
    if not judged:
        return f"{kind}: {', '.join(waiting)}" if waiting else ""
    others = [outcome for outcome in Outcome if outcome not in (best, *WAITING) and found.get(outcome)]
    more = "".join(f", {found[outcome]} {outcome}" for outcome in others)
    return f"{found.get(best, 0)} of {judged} {kind} {best}{more}" + (f" ({', '.join(waiting)})" if waiting else "")


def text_with_counts(verdict: Verdict) -> str:
    """A table's verdict with the counts behind it."""
    return ": ".join(filter(None, [text(verdict), counts(verdict.counts)]))


def p_text(p: P | None) -> str:
    """A p value, in brackets corrected for the other tests of its family."""
    return "" if p is None else f"{p.raw:.2g} ({p.corrected:.2g})"


def numbers(result: ClaimResult) -> str:
    """The numbers behind the verdict on a claim."""
    found, groups = result.numbers, result.verdict.groups
    if found is None:
        return ""
    if isinstance(found, Comparison):
        words = _comparison(found)
    else:
        words = " against ".join(map(_failures, [found] if isinstance(found, Failures) else found))
    return words + (f"; the weakest of {groups[0]} groups" if groups and groups[0] > 1 else "")


def _failures(found: Failures) -> str:
    return f"{found.failed} of {found.ended} runs fail"


def _comparison(found: Comparison) -> str:
    more = {"diverged": found.diverged, "failed": found.failed}
    lost = "".join(f"; {number} {word}" for word, number in more.items() if number)
    return f"{_side(found.first)} against {_side(found.second)}{lost}"


def _side(side: Side) -> str:
    return f"{number(side.value)} (n={side.n})"


def price(runs: Price) -> str:
    """What missing runs will take."""
    minutes = runs.seconds / 60
    time = f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.{1 if minutes < 600 else 0}f} h"
    timed = [f"{_runs(runs.timed)}: {time}"] if runs.timed else []
    untimed = [f"{_runs(runs.untimed)} not timed"] if runs.untimed else []
    return ", ".join(timed + untimed)


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"


def table(report: Report) -> str:
    """table.md: each cell a row, with its verdict; claims; the small-scale version; what is assumed; cost."""
    lines = _head(report)
    lines += ["## Paper size", "", f"{len(report.rows['paper'])} of {len(report.planned['paper'])} runs are there.", ""]
    lines += _cells(report)
    for title, results in claims(report).items():
        lines += _claims(title, results)
    lines += ([CLAIMS, ""] if report.claims else []) + bootstrap(report)
    lines += evidence(report) + small_scale(report) + about_the_paper(report) + cost(report)
    return "\n".join(lines).rstrip() + "\n"


def _head(report: Report) -> list[str]:
    table = report.table
    lines = [f"# {table.name}: {table.title}", "", f"{table.source}; {table.unit}."]
    lines += [f"At paper size: **{text(report.verdict)}**{_in_brackets(counts(report.verdict.counts))}."]
    lines += decided(report)
    lines += [f"Small-scale version: **{text(report.small_verdict)}**."]
    lines += ["", "```bash", *commands(report), "```", ""]
    if table.figure:
        lines += [f"![{table.title}](figure.png)", ""]
    if any(map(is_steps, columns(table))):
        lines += [
            "`>N`: a run that never reached the threshold, and took N steps. Of steps the median is shown.",
            "",
        ]
    return lines


def decided(report: Report) -> list[str]:
    """What became of each conclusion, where a table's word does not say it, and what is known without a training."""
    found: dict[str, list[str]] = {}
    shown = report.claims if report.verdict.word in (Word.MIXED, Word.PARTLY_DECIDED) else []
    for outcome, results in items([result for result in shown if result.claim.decides]):
        under_one = outcome == Outcome.NOT_RUN and any(result.outcome in (*FOR, *AGAINST) for result in results)
        if under_one or outcome in (*FOR, *AGAINST, Outcome.DEPENDS, Outcome.CALIBRATED):
            all_words = outcome not in (*FOR, *AGAINST)
            words = _in_brackets(", ".join(text(result.verdict) for result in results)) if all_words else ""
            title = "Under one setting alone" if under_one else outcome.capitalize()
            found.setdefault(title, []).append(f"`{results[0].claim.text}`{words}")
    if report.reanalysed:
        found["Without a training"] = [reanalysed.in_words(report.reanalysed)]
    return [f"{title}: {', '.join(parts)}." for title, parts in found.items()]


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""


def commands(report: Report) -> list[str]:
    """What makes the runs: of the paper's size, and of the small-scale version if there is one."""
    name = report.table.name
    paper, small = (
        f"make reproduce TABLE={name}    # paper size",
        f"make tiny TABLE={name}         # small-scale version",
    )
    if report.own or not paths.in_checkout():
        program = "python train.py" if paths.in_checkout() else "timescales-train"
        command = f"{program} --config-dir FOLDER table={name}" if report.own else f"{program} table={name}"
        where = f"; FOLDER has table/{name}.yaml" if report.own else ""
        paper = f"{command}                 # paper size{where}"
        small = f"{command} profile=small    # small-scale version"
    return [paper, small] if report.table.tiny else [paper]


def _cells(report: Report) -> list[str]:
    if not report.cells:
        return []
    return [*grid(*cells(report)), "", *([CELLS, ""] if prints_values(report) else [])]


def prints_values(report: Report) -> bool:
    """Whether the table prints any value; one of our own studies prints none."""
    return any(result.cell.value is not None for result in report.cells)


def cells(report: Report) -> tuple[list[str], list[list[str]]]:
    """The printed values with their verdicts: head and body of a table. Where none is printed: our values."""
    keys = list(dict.fromkeys(key for result in report.cells for key in result.cell.where))
    labelled = any(result.cell.label for result in report.cells)
    others = report.other_selections
    head = [*(["what"] if labelled else []), *(key.split(".")[-1] for key in keys)]
    head += [
        *("paper", "95 %", "margin", "ours", "n", "median", "every seed", "verdict", "agrees to within"),
        *("p different", "p spread"),
        *(f"ours if select={o}" for o in others),
        "missing runs",
    ]
    body = []
    for k, result in enumerate(report.cells):
        row = [result.cell.label] if labelled else []
        row += [say(result.cell.where.get(key, "")) for key in keys] + _cell(result)
        row += [_other(results[k]) for results in others.values()]
        missing = "" if result.verdict.word == Word.CANNOT else price(report.price_of(result.cell.where))
        body.append([*row, missing])
    return (head, body) if prints_values(report) else _our_values(head, body)


# Columns that compare with a printed value.
OF_PRINTED = ("paper", "95 %", "margin", "verdict", "agrees to within", "p different", "p spread")


def _our_values(head: Sequence[str], body: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """A table of cells without the columns that compare, and without those that are empty in all rows."""
    filled = [any(row[k] for row in body) for k in range(len(head))]
    kept = [k for k, name in enumerate(head) if name == "ours" or (filled[k] and name not in OF_PRINTED)]
    return [head[k] for k in kept], [[row[k] for k in kept] for row in body]


CELLS = """\
*95 %*: where the mean of our runs is expected if they are like the paper's, by the paper's spread (by ours where none
is printed). *Agrees to within*: the smallest margin at which two one-sided tests show that both means are equivalent.
A value *agrees* inside the interval if that is no more than *margin*, else it is *consistent, imprecise*; outside it
is *close*, or *higher* or *lower*. It is outside if *p different* is below .05, in brackets corrected for all values
of the table (Benjamini-Hochberg). *Less stable*: more runs failed or ended at chance than in the paper, or *p spread*
(F test) is below .05. [The rules](../../docs/statistics.md)."""
CLAIMS = """\
*p for* and *p against*: tests of the claim and of its opposite; *p small*: that the difference is too small for the
paper to have seen (its runs show such a one once in three). In brackets corrected for all claims of the table
(Benjamini-Hochberg); below .05 the claim holds, is refuted, or is too small."""


def _cell(result: CellResult) -> list[str]:
    """The columns from the printed value to the verdict."""
    sample = result.sample
    values = [value for _, value in sample.values]
    seeds = " ".join(map(number, values)) if len(values) <= 10 else f"{number(min(values))} to {number(max(values))}"
    median = "" if sample.median is None else number(sample.median)
    ours = _with_sd(sample.mean, sample.sd)
    margin = "" if result.cell.value is None else number(result.cell.margin)
    before = [printed(result.cell), _expected(result), margin, ours, str(sample.n or ""), median, seeds]
    return [*before, *_verdict_on_value(result.verdict), p_text(result.verdict.p_wider)]


def _expected(result: CellResult) -> str:
    """The prediction interval of the printed value."""
    value, gap = result.cell.value, result.verdict.gap
    return "" if value is None or gap is None else f"{value - gap.half_width:.4g} to {value + gap.half_width:.4g}"


def _verdict_on_value(verdict: Verdict) -> list[str]:
    """The columns of a verdict on a value: its word, the margin that is shown, p of a difference."""
    return [text(verdict), "" if verdict.gap is None else number(verdict.gap.within), p_text(verdict.p_against)]


def _verdict(verdict: Verdict) -> list[str]:
    """The columns of a verdict on a claim, and its p values."""
    return [text(verdict), *map(p_text, (verdict.p_for, verdict.p_against, verdict.p_small))]


def _other(result: CellResult) -> str:
    """A cell under another selection of values."""
    mean = _with_sd(result.sample.mean, result.sample.sd)
    return f"{mean}: {text(result.verdict)}" if mean else ""


def value_rows(report: Report) -> list[list[Any]]:
    """Every printed value as a row: what, the paper's, ours, n, the verdict, what it agrees to within, p different."""
    rows: list[list[Any]] = []
    for result in report.cells:
        what = ": ".join(filter(None, [result.cell.label, settings(result.cell.where)]))
        sample = result.sample
        ours = _with_sd(sample.mean, sample.sd)
        rows.append([what, printed(result.cell), ours, sample.n, *_verdict_on_value(result.verdict)])
    return rows


def bootstrap(report: Report) -> list[str]:
    """Differences of perplexity between runs on the same words, where there are any."""
    if not report.bootstrap:
        return []
    head = ["runs", "words", "LSTM minus MTS", "95 %", "authors' interval (99.9 %)"]
    body = []
    for found in report.bootstrap:
        intervals = [_interval(found.interval), _interval(found.authors_interval)]
        body.append([settings(found.where), found.words, number(found.mean), *intervals])
    return ["### Paired bootstrap of the difference", "", *grid(head, body), ""]


def evidence(report: Report) -> list[str]:
    """What needs no training, beside what our runs say."""
    if not report.reanalysed:
        return []
    ours = {id(found.cell): text(found.verdict) for found in report.cells}
    ours |= {id(found.claim): text(found.verdict) for found in report.claims}
    body = [[*evidence_row(found), ours.get(id(found.item), "")] for found in report.reanalysed]
    head = ["what", "paper", "reanalysed", "of", "verdict", "our runs"]
    return ["### Without a training", "", EVIDENCE, "", *grid(head, body), ""]


EVIDENCE = """\
The same numbers from the authors' own published models, and from the data alone. *As printed*: a model's number has the
printed digits, one of data is within the tolerance, a claim's two numbers have its order.
[All numbers, and the command](../reanalysed/README.md)."""


def evidence_row(found: Evidence) -> list[str]:
    """What is printed, where, the number or the two that a claim compares, of what they are, and the verdict."""
    item, numbers = found.item, " against ".join(map(number, found.numbers))
    if isinstance(item, Cell):
        words = item.label or settings(item.where)
        return [
            words,
            " ".join(filter(None, [printed(item), item.at and f"({item.at})"])),
            numbers,
            found.of,
            found.word,
        ]
    return [item.text, f'"{item.quote}" ({item.at})', numbers, found.of, found.word]


def _interval(ends: tuple[float, float]) -> str:
    return f"[{number(ends[0])}, {number(ends[1])}]"


def claims(report: Report) -> dict[str, list[ClaimResult]]:
    """The claims by title: the paper's conclusions, or the hypotheses of our own study; and what we look at beside."""
    study = any(result.claim.hypothesis for result in report.claims)
    parts = {
        "What the paper concludes": [result for result in report.claims if result.claim.quote],
        "What we expected": [result for result in report.claims if result.claim.hypothesis],
        "What else we look at" if study else "What the paper does not conclude, and we look at": [
            result for result in report.claims if not result.claim.decides
        ],
    }
    return {title: results for title, results in parts.items() if results}


def _claims(title: str, results: Sequence[ClaimResult]) -> list[str]:
    if not results:
        return []
    told = any(map(source_of, results))
    small = any(result.verdict.p_small for result in results)
    ps = ["p for", "p against", *(["p small"] if small else [])]
    head = ["claim", "verdict", *ps, "ours", *(["source"] if told else [])]
    body = [
        [
            result.claim.text,
            *_verdict(result.verdict)[: 1 + len(ps)],
            numbers(result),
            *([source_of(result)] if told else []),
        ]
        for result in results
    ]
    return [f"### {title}", "", *grid(head, body), ""]


def source_of(result: ClaimResult) -> str:
    """The paper's words for a claim and their place; what we expected and when; or why we look at it."""
    claim = result.claim
    if claim.quote:
        return f'"{claim.quote}" ({claim.at})'
    return f"{claim.hypothesis} (written {claim.dated})" if claim.hypothesis else claim.ours


def small_scale(report: Report) -> list[str]:
    """The small-scale version: a row for each configuration, its mean, and its own claims."""
    small, rows = report.table.tiny, report.small_settings
    if small is None or not rows:
        return []
    head = [*(key.split(".")[-1] for key in rows[0].axes), f"{small.metric} ({small.unit})"]
    head += ["n", "every seed", "", "minutes a run"]
    return [
        *("## Small-scale version", ""),
        "The small-scale version runs on a CPU. It checks the ranking of the models, not the values.",
        *(f"({settings(report.small_shared)})", ""),
        *(*grid(head, [_setting(row) for row in rows]), ""),
        *_claims("The order expected at this size", report.small_claims),
    ]


def _setting(row: Setting) -> list[str]:
    mean = _with_sd(row.mean, row.sd)
    failed = f"{row.failed} failed, not in the mean" if row.failed else ""
    values = " ".join(map(number, row.values))
    return [*map(say, row.axes.values()), mean, str(row.runs), values, failed, f"{row.minutes:.1f}"]


def about_the_paper(report: Report) -> list[str]:
    """What the paper cites, what it does not say, and what contradicts itself in it."""
    table, lines = report.table, []
    if table.cited:
        body = [[cited.label, printed(cited), cited.source] for cited in table.cited]
        lines += ["## Other people's models, cited", "", *grid(["model", "value", "source"], body), ""]
    if table.assumed:
        lines += ["## What the paper does not state, and what is assumed", ""]
        lines += [f"- `{key}`: {_assumed(assumption)}" for key, assumption in table.assumed.items()] + [""]
    if table.notes:
        lines += ["## Notes", "", *(f"- {note}" for note in table.notes), ""]
    return lines


def _assumed(assumption: Assumption) -> str:
    return assumption.said + (" (calibrated)" if assumption.calibrated else "")


def cost(report: Report) -> list[str]:
    """How long the runs took on which machines, and with which code."""
    return ["## Cost and origin", "", *(line for origin in report.origins for line in _origin(origin))]


def _origin(origin: Origin) -> list[str]:
    places = {
        f"{machine}, {threads} thread{'s' if threads != 1 else ''}": hours
        for (machine, threads), hours in origin.hours.items()
    }
    lines = [f"- {origin.size}: {hours:.2f} h on {place}" for place, hours in sorted(places.items())]
    lines += [f"- {origin.size}: code of {', '.join(origin.commits)}"] if origin.commits else []
    return lines + [f"- {origin.size}: not the whole data: {part}" for part in origin.partial]


def most_common(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts have each word, the most frequent first: "8 *not run*, 1 *reproduced*"."""
    return ", ".join(f"{n} *{words}*" for words, n in Counter(map(word, verdicts)).most_common())


def _with_sd(mean: float | None, sd: float | None) -> str:
    if mean is None:
        return ""
    return number(mean) + ("" if sd is None else f" ({sd:.0f})" if sd >= 100 else f" ({sd:.2g})")


def printed(cell: Cell | Cited) -> str:
    """A printed value with its spread."""
    if cell.value is None:
        return ""
    spread = f" ({cell.sd})" if cell.sd is not None else f" +- {cell.se}" if cell.se is not None else ""
    return f"{cell.value}{spread}"
