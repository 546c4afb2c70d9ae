"""A report's words: results/<table>/table.md and the index of all tables. Only here do verdicts become text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from timescales.papers.table import Cell, Cited, columns
from timescales.papers.verdict import CellResult, ClaimResult, Comparison, Failures, Side, Verdict, Word
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


def settings(axes: Mapping[str, Any]) -> str:
    """Settings for people: "model=plstm, task.T=200"."""
    return ", ".join(f"{key}={say(value)}" for key, value in axes.items())


def grid(head: Sequence[Any], body: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(str(entry).replace("|", "\\|") for entry in row) + " |" for row in rows]


def word(verdict: Verdict) -> str:
    """A verdict without its remarks: "reproduced so far"."""
    return verdict.word + (" so far" if verdict.so_far else "")


def text(verdict: Verdict) -> str:
    """A verdict with its remarks: "holds (n=2, 1 of 3 groups)"."""
    return " ".join([word(verdict), *(f"({remark})" for remark in _remarks(verdict))])


def _remarks(verdict: Verdict) -> list[str]:
    remarks = []
    if verdict.failed:
        remarks.append("{} of {} failed".format(*verdict.failed))
    if verdict.censored:
        remarks.append("{} of {} never reached the threshold".format(*verdict.censored))
    if verdict.spreads:
        remarks.append("sd {} against {}".format(*map(number, verdict.spreads)))
    few = [f"n={verdict.n}"] if verdict.few else []
    if verdict.groups and verdict.groups[0] < verdict.groups[1]:
        few.append("{} of {} groups".format(*verdict.groups))
    if few:
        remarks.append(", ".join(few))
    if verdict.partial:
        remarks.append("part of the data")
    return remarks


def text_with_p(verdict: Verdict) -> str:
    """A verdict of a cell with the p of its test."""
    return text(verdict) + ("" if verdict.p is None else f", p = {verdict.p:.2g}")


def numbers(result: ClaimResult) -> str:
    """The numbers behind the verdict on a claim."""
    found, groups = result.numbers, result.verdict.groups
    if found is None:
        return ""
    words = _failures(found) if isinstance(found, Failures) else _comparison(found)
    return words + (f"; the weakest of {groups[0]} groups" if groups and groups[0] > 1 else "")


def _failures(found: Failures) -> str:
    return f"{found.failed} of {found.ended} runs fail"


def _comparison(found: Comparison) -> str:
    diverged = f"; {found.diverged} diverged" if found.diverged else ""
    return f"{_side(found.first)} against {_side(found.second)}{diverged}"


def _side(side: Side) -> str:
    return f"{'>' if side.censored else ''}{number(side.mean)} (n={side.n})"


def price(runs: Price) -> str:
    """What open runs will take."""
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
    lines += _cells(report) + _claims("What the paper concludes", report.claims) + _bootstrap(report)
    lines += _small(report) + _about_the_paper(report) + ["## Cost and origin", ""]
    for origin in report.origins:
        lines += _origin(origin)
    return "\n".join(lines).rstrip() + "\n"


def _head(report: Report) -> list[str]:
    table = report.table
    lines = [f"# {table.name}: {table.title}", "", f"{table.source}; {table.unit}."]
    lines += [f"At paper size: **{text(report.verdict)}**. Small-scale version: **{text(report.small_verdict)}**."]
    lines += ["", "```bash", *_commands(report), "```", ""]
    if table.figure:
        lines += [f"![{table.title}](figure.png)", ""]
    if any(map(is_steps, columns(table))):
        lines += [
            "`>N`: a run that never reached the threshold; it counts as all of the N steps that it might have taken.",
            "",
        ]
    return lines


def _commands(report: Report) -> list[str]:
    """What makes the runs: of the paper's size, and of the small-scale version if there is one."""
    name = report.table.name
    command = f"python train.py --config-dir FOLDER table={name}"
    paper, small = (
        f"make reproduce TABLE={name}    # paper size",
        f"make tiny TABLE={name}         # small-scale version",
    )
    if report.own:
        paper = f"{command}                 # paper size; FOLDER has table/{name}.yaml"
        small = f"{command} profile=tiny    # small-scale version"
    return [paper, small] if report.table.tiny else [paper]


def _cells(report: Report) -> list[str]:
    if not report.cells:
        return []
    keys = list(dict.fromkeys(key for result in report.cells for key in result.cell.where))
    labelled = any(result.cell.label for result in report.cells)
    others = report.other_selections
    head = [*(["what"] if labelled else []), *(key.split(".")[-1] for key in keys)]
    head += [
        "paper",
        "ours",
        "n",
        "median",
        "every seed",
        "verdict",
        *(f"ours if select={o}" for o in others),
        "missing runs",
    ]
    body = []
    for k, result in enumerate(report.cells):
        row = [result.cell.label] if labelled else []
        row += [say(result.cell.where.get(key, "")) for key in keys] + _cell(result)
        row += [_other(results[k]) for results in others.values()]
        body.append([*row, price(report.price_of(result.cell.where))])
    return [*grid(head, body), ""]


def _cell(result: CellResult) -> list[str]:
    """The columns from the printed value to the verdict."""
    sample = result.sample
    values = [value for _, value in sample.values]
    seeds = " ".join(map(number, values)) if len(values) <= 10 else f"{number(min(values))} to {number(max(values))}"
    median = "" if sample.median is None else number(sample.median)
    ours = _with_sd(sample.mean, sample.sd)
    return [printed(result.cell), ours, str(sample.n or ""), median, seeds, text_with_p(result.verdict)]


def _other(result: CellResult) -> str:
    """A cell under another selection of values."""
    mean = _with_sd(result.sample.mean, result.sample.sd)
    return f"{mean}: {text(result.verdict)}" if mean else ""


def verdicts(report: Report) -> tuple[list[str], list[list[Any]]]:
    """Every printed value and every claim as a row, for whoever takes a table elsewhere: head and body."""
    body: list[list[Any]] = []
    for result in report.cells:
        what = ": ".join(filter(None, [result.cell.label, settings(result.cell.where)]))
        sample, verdict = result.sample, result.verdict
        ours = _with_sd(sample.mean, sample.sd)
        body.append([what, printed(result.cell), ours, sample.n, text(verdict), verdict.p])
    for size, results in (("", report.claims), (" (tiny)", report.small_claims)):
        body += [[c.claim.text + size, "", numbers(c), "", text(c.verdict), c.verdict.p] for c in results]
    return ["what", "paper", "ours", "n", "verdict", "p"], body


def _bootstrap(report: Report) -> list[str]:
    if not report.bootstrap:
        return []
    head = ["runs", "words", "LSTM minus MTS", "95 %", "authors' interval (99.9 %)"]
    body = []
    for found in report.bootstrap:
        intervals = [_interval(found.interval), _interval(found.authors_interval)]
        body.append([settings(found.where), found.words, number(found.mean), *intervals])
    return ["### Paired bootstrap of the difference", "", *grid(head, body), ""]


def _interval(ends: tuple[float, float]) -> str:
    return f"[{number(ends[0])}, {number(ends[1])}]"


def _claims(title: str, results: Sequence[ClaimResult]) -> list[str]:
    if not results:
        return []
    body = []
    for result in results:
        p = "" if result.verdict.p is None else f"{result.verdict.p:.2g}"
        body.append([result.claim.text, text(result.verdict), p, numbers(result)])
    return [f"### {title}", "", *grid(["claim", "verdict", "p", "ours"], body), ""]


def _small(report: Report) -> list[str]:
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
    mean = ((">" if row.censored else "") + _with_sd(row.mean, row.sd)) if row.mean is not None else ""
    failed = f"{row.failed} failed, not in the mean" if row.failed else ""
    values = " ".join(map(number, row.values))
    return [*map(say, row.axes.values()), mean, str(row.runs), values, failed, f"{row.minutes:.1f}"]


def _about_the_paper(report: Report) -> list[str]:
    """What the paper cites, what it does not say, and what contradicts itself in it."""
    table, lines = report.table, []
    if table.cited:
        body = [[cited.label, printed(cited), cited.source] for cited in table.cited]
        lines += ["## Other people's models, cited", "", *grid(["model", "value", "source"], body), ""]
    if table.assumed:
        lines += ["## What the paper does not state, and what is assumed", ""]
        lines += [f"- `{key}`: {assumption.said}" for key, assumption in table.assumed.items()] + [""]
    if table.notes:
        lines += ["## Notes", "", *(f"- {note}" for note in table.notes), ""]
    return lines


def _origin(origin: Origin) -> list[str]:
    places = {
        f"{machine}, {threads} thread{'s' if threads != 1 else ''}": hours
        for (machine, threads), hours in origin.hours.items()
    }
    lines = [f"- {origin.size}: {hours:.2f} h on {place}" for place, hours in sorted(places.items())]
    lines += [f"- {origin.size}: code of {', '.join(origin.commits)}"] if origin.commits else []
    return lines + [f"- {origin.size}: not the whole data: {part}" for part in origin.partial]


INDEX = """\
Written by `make report` from the records.
At *paper size*, runs use the paper's settings. The *small-scale version* of a table runs on a CPU in minutes. Its
verdict is about the ranking of the models alone, and it has its own claims, often fewer than the paper has.
[docs/reproduce.md](../docs/reproduce.md) defines the verdicts.
The column *missing runs* gives the hours that the missing runs at paper size need. They are estimated from finished
runs of the same kind, otherwise from a few steps on the fastest machine that was timed ([speed.csv](speed.csv)). They
are upper bounds, since tasks may stop early. A run that several tables share is counted in each of them.
There is no correction for multiple comparisons: each printed value is tested at 5 %. If all 18 values of a table are
reproduced in truth, at least one is still judged better or worse with probability 0.6 (1 - .95^18).
[LOG.md](LOG.md) has dated notes, also on what went wrong. [bench](bench) has the speed measurements.
"""


def index(reports: Sequence[Report]) -> str:
    """results/README.md: every table with its verdicts."""
    head = ["table", "source", "paper size", "cells", "claims", "small-scale version", "missing runs"]
    body = [_index_row(report) for report in reports]
    return "\n".join(["# Results", "", *outcome(reports), "", INDEX, *grid(head, body), ""])


def _index_row(report: Report) -> list[str]:
    name = report.table.name
    link = f"[{name}]({name}/table.md)" if report.all_rows else name
    cells = _counts([result.verdict for result in report.cells]) or "no printed values"
    held = [result.verdict for result in report.claims]
    claims = _counts(held)
    if any(verdict.word != Word.OPEN for verdict in held) and not report.complete("paper"):
        claims += " so far"
    verdict, small = text(report.verdict), text(report.small_verdict)
    return [link, report.table.source, verdict, cells, claims, small, price(report.price_of({}))]


def _counts(verdicts: Sequence[Verdict]) -> str:
    """How often each word was said: "2 hold, 1 open"."""
    count = Counter(verdict.word for verdict in verdicts)
    return ", ".join(f"{n} {'hold' if word == Word.HOLDS and n > 1 else word}" for word, n in sorted(count.items()))


def outcome(reports: Sequence[Report]) -> list[str]:
    """What became of all tables, in a line for each size; the verdicts' remarks are left out."""
    return [f"Of {len(reports)} tables and figures:", "", *(f"- {line}" for line in outcome_lines(reports))]


def outcome_lines(reports: Sequence[Report]) -> list[str]:
    """The lines of `outcome`: how many tables have which verdict at each size."""
    sizes = {
        "At paper size": [report.verdict for report in reports],
        "Small-scale version": [report.small_verdict for report in reports],
    }
    return [f"{size}: {_most_common(verdicts)}." for size, verdicts in sizes.items()]


def _most_common(verdicts: Sequence[Verdict]) -> str:
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
