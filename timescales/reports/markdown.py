"""A report as a page: results/<table>/table.md. `wording.py` says verdicts and numbers in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales import paths
from timescales.papers import reanalysed
from timescales.papers.reanalysed import Evidence
from timescales.papers.table import Assumption, Cell, columns
from timescales.papers.verdict import (
    AGAINST,
    FOR,
    CellResult,
    ClaimResult,
    Outcome,
    Verdict,
    Word,
    items,
)
from timescales.reports.report import Origin, Report, Setting
from timescales.reports.wording import (
    counts,
    number,
    numbers,
    p_text,
    price,
    printed,
    say,
    settings,
    text,
    with_sd,
)
from timescales.runs.metrics import is_steps


def grid(head: Sequence[Any], body: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(str(entry).replace("|", "\\|") for entry in row) + " |" for row in rows]


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
    lines += [f"Small-scale version: **{text(report.small_verdict)}**."]
    lines += ["", "```bash", *commands(report), "```", ""]
    if table.figure:
        lines += [f"![{table.title}](figure.png)", ""]
    if known := decided(report):
        lines += ["What is known:", "", *(f"- {line}" for line in known), ""]
    if any(map(is_steps, columns(table))):
        lines += [
            "`>N`: a run that never reached the threshold, and took N steps. Of steps the median is shown.",
            "",
        ]
    return lines


def decided(report: Report) -> list[str]:
    """What became of each conclusion, where a table's word does not say it, and what is known without a training."""
    shown = report.claims if report.verdict.word in (Word.MIXED, Word.PARTLY_DECIDED) else []
    decided = (*FOR, *AGAINST, Outcome.DEPENDS, Outcome.CALIBRATED)
    lines = [
        f"`{results[0].claim.text}`: {', '.join(text(result.verdict) for result in results)}"
        for _, results in items([result for result in shown if result.claim.decides])
        if any(result.outcome in decided for result in results)
    ]
    return lines + ([f"without a training: {reanalysed.in_words(report.reanalysed)}"] if report.reanalysed else [])


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""


def commands(report: Report) -> list[str]:
    """What makes the runs: of the paper's size, and of the small-scale version if there is one."""
    name = report.table.name
    paper, small = (
        f"make reproduce TABLE={name}    # paper size",
        f"make small TABLE={name}        # small-scale version",
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
    ours = with_sd(sample.mean, sample.sd)
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
    mean = with_sd(result.sample.mean, result.sample.sd)
    return f"{mean}: {text(result.verdict)}" if mean else ""


def value_rows(report: Report) -> list[list[Any]]:
    """Every printed value as a row: what, the paper's, ours, n, the verdict, what it agrees to within, p different."""
    rows: list[list[Any]] = []
    for result in report.cells:
        what = ": ".join(filter(None, [result.cell.label, settings(result.cell.where)]))
        sample = result.sample
        ours = with_sd(sample.mean, sample.sd)
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
    mean = with_sd(row.mean, row.sd)
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
