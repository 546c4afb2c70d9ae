"""Write Markdown: grids, blocks of pages, and table.md, the page of a table with its claims and values."""

import itertools
import os
import string
from collections.abc import Mapping, Sequence
from typing import Any

from timescales import paths
from timescales.papers import judge
from timescales.papers.table import PAPER, RATES, Cell, Claim, Ladder, Layout, Table, matches, varying
from timescales.reports import wording
from timescales.reports.forest import printed_lead
from timescales.reports.report import Judged, Report
from timescales.reports.wording import number, printed, settings
from timescales.runs.metrics import Censored


def grid(head: Sequence[Any], body: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return [
        "| " + " | ".join(str(entry).replace("|", "\\|").replace("\n", " ") for entry in row) + " |" for row in rows
    ]


MARK = "<!-- {}: written by {} -->"  # before a block of a page, and below it <!-- /NAME -->


def put(text: str, blocks: Mapping[str, str], by: str = "make report") -> str:
    """Put blocks between their marks on a page. by: the command in the marks, which writes the blocks."""
    for name, block in blocks.items():
        begin, end = MARK.format(name, by), f"<!-- /{name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{block}\n\n{end}{rest.split(end)[1]}"
    return text


def table(report: Report) -> str:
    """Write table.md."""
    found = report.table
    runs = f"{len(report.rows[PAPER])} of {len(report.planned[PAPER])} runs have ended"
    lines = [f"# {found.title}", "", f"{found.name}: {found.source}."]
    asked = "Do the hypotheses hold?" if report.study else "Is it reproduced?"
    lines += ["", f"**{asked}** {wording.answer(report)}"]
    price = wording.price(report.open_seconds())
    missing = f" (missing: {price}, on one CPU core)" if price else ""
    lines += [f"At {wording.full_size(report)} {runs}{missing}. {_chance(report)}".rstrip(), ""]
    if any(verdict.interval or verdict.values for judged in report.judged for verdict in judged):
        lines += [f"![Claims and values of {found.name}](verdicts.png)", "", reading(report), ""]
    lines += ladder(report)
    lines += claims(report, report.claims, "What we expected" if report.study else "What the paper concludes")
    beside = [each for each in report.every_claim if not each.item.decides]
    lines += claims(report, beside, "What else we look at") + values(report)
    drawn = [row for size, rows in report.rows.items() if size != RATES for row in rows]
    if any(matches(row.axes, figure.where) for figure in found.figure for row in drawn):
        lines += ["## The curves", "", f"![{found.title}](figure.png)", ""]
    lines += evidence(report) + bootstrap(report) + about_the_paper(report) + runs_and_cost(report)
    return "\n".join(lines).rstrip() + "\n"


def reading(report: Report) -> str:
    """Say how to read the picture of intervals."""
    rules = "docs/statistics.md of the project has the rules"
    if paths.in_checkout():  # seen from the report, which may be in runs/reports
        rules = f"[the rules]({os.path.relpath(paths.ROOT / 'docs' / 'statistics.md', report.folder)})"
    return f"""\
A line is a 95 % interval. A claim *holds* and a value *agrees* if the line is inside the shaded region; outside it is
*refuted* or *differs*; across an edge it is *undecided* ({rules}). Several lines in a
row: the values of a setting that the paper leaves open; the item is decided if all say the same."""


def _chance(report: Report) -> str:
    """Write how many tests would be decided by chance if nothing differed. Tests are not corrected for their number."""
    comparisons = [each for each in report.claims if each.item.sign == ">" and not each.item.calibrated]
    complete = [verdict for each in comparisons for verdict in each.verdicts if verdict.word != judge.NOT_RUN]
    tests = sum(v.interval is not None and v.interval.has_ends for v in complete)  # without an end none is decided
    if tests < 2:
        return ""
    return f'If nothing differed, about {0.05 * tests:.1f} of the {tests} tests of "better" would be decided by chance.'


# --- the ladder -------------------------------------------------------------------------------------------------------


def ladder(report: Report) -> list[str]:
    """Write the section on smaller sizes: what was seen there, and how the effects change with size."""
    ladder = report.table.ladder
    if ladder is None:
        return []
    if ladder.none:
        return ["## At smaller sizes", "", ladder.none, ""]
    growing = {"task.T": "the delay T", "task.high": "the longest delay"}.get(ladder.over, ladder.over)
    lines = ["## At smaller sizes", "", f"What grows from rung to rung: {growing}. {_commands(report)}", ""]
    if not any(report.rows[name] for name in ladder.rungs):
        return [*lines, "No rung has been run yet:", "", *_rungs(report, ladder), ""]
    if any(s.verdict.interval for judged in report.ladder_claims for s in judged.steps):
        lines += [f"![The claims of {report.table.name} by size](ladder.png)", ""]
    body = []
    for judged in report.ladder_claims:
        steps = {step.name: wording.step(judged, step) for step in judged.steps}
        shown = [steps.get(name, "") for name in ladder.rungs]
        body.append([wording.claim_in_words(judged.claim), *shown, wording.slope(judged), judged.trend])
    lines += grid(["claim", *ladder.rungs, f"change with each doubling of {growing}", "trend"], body)
    return [*lines, "", LADDER, "", *_rungs(report, ladder), ""]


def _rungs(report: Report, ladder: Ladder) -> list[str]:
    """Write how each rung differs from the paper's size and how many of its runs have ended; how rates were chosen."""
    lines = []
    for name, rung in ladder.rungs.items():
        done, planned = len(report.rows[name]), len(report.planned[name])
        more = f"; missing: {missing}" if (missing := wording.price(report.open_seconds(name))) else ""
        lines.append(f"- {name}: {rung.differs}. {done} of {planned} runs have ended{more}.")
    if ladder.rates and report.rows.get(RATES):
        runs = report.rows[RATES]
        keys = {"model", *varying([row.axes for row in runs])} - {"optimizer.lr"}
        found: dict[str, list[tuple[float, str]]] = {}
        for row in runs:
            value = row.value(ladder.rates.column)
            name = wording.in_words({key: value for key, value in row.axes.items() if key in keys})
            shown = "no value" if value is None else number(value)
            found.setdefault(name, []).append((row.axes["optimizer.lr"], shown))
        listed = "; ".join(f"{name}: {', '.join(f'{r:g}: {v}' for r, v in sorted(of))}" for name, of in found.items())
        seeds = ", ".join(map(str, sorted({row.seed for row in runs})))
        how = f"by {ladder.rates.metric} {ladder.rates.differs}".rstrip()
        lines.append(f"- Learning rates were chosen on seed {seeds}, {how}: {listed}.")
    return lines


LADDER = """\
*Seen*: the interval of the effect is inside the region that is claimed; *opposite seen*: outside; else *unclear*. A
rung is *too short* if no model gets anywhere there, *too easy* if all models reach the ceiling. What a rung says is no
verdict on the paper."""


def _commands(report: Report) -> str:
    name = report.table.name
    if report.own or not paths.in_checkout():  # make only knows tables of a checkout
        program = "python train.py" if paths.in_checkout() else "timescales-train"
        return f"`{program}{' --config-dir FOLDER' * report.own} table={name} rung=NAME` runs a rung."
    return f"`make small TABLE={name}` runs the first rung, `make reproduce TABLE={name} RUNG=NAME` another one."


# --- claims and values ------------------------------------------------------------------------------------------------

LETTERS = [*string.ascii_lowercase, *map("".join, itertools.product(string.ascii_lowercase, repeat=2))]


def claims(report: Report, shown: Sequence[Judged[Claim]], title: str) -> list[str]:
    """Make a row for each claim of a section. Add the paper's words."""
    if not shown:
        return []
    quotes = list(dict.fromkeys(source_of(each.item) for each in shown))
    body = []
    for each in shown:
        leads = printed_lead(each.item, report)
        lead = " to ".join(f"{x:+.3g}" for x in dict.fromkeys((min(leads), max(leads)))) if leads else ""
        letter = LETTERS[quotes.index(source_of(each.item))]
        name = wording.claim_in_words(each.item) + "†" * each.item.calibrated
        body.append([name, lead, ours_of(each), wording.group_verdict(each), wording.notes(each.verdicts), letter])
    head = ["claim", "printed", "ours, 95 %", "verdict", "notes", ""]
    shown_columns = [k for k in range(len(head)) if k in (0, 3, 5) or any(row[k] for row in body)]
    lines = grid([head[k] for k in shown_columns], [[row[k] for k in shown_columns] for row in body])
    words = " ".join(f"**{LETTERS[k]}** {quote}" for k, quote in enumerate(quotes))
    return [f"## {title}", "", *lines, "", words, *_dagger(shown), ""]


def _dagger(shown: Sequence[Judged[Any]]) -> list[str]:
    if not any(each.item.calibrated for each in shown):
        return []
    return ["", "†: a setting was chosen by looking at this result, so it is shown and not counted."]


def ours_of(each: Judged[Any]) -> str:
    """Write our effect or value with its interval, under each value of the settings that the paper does not state."""
    views: dict[str, list[str]] = {}
    for item, verdict in zip(each.items, each.verdicts, strict=True):
        found = verdict.interval
        text = wording.effect(item, found) if isinstance(item, Claim) else wording.interval(found)
        if text and isinstance(item, Claim) and "fails" not in item.sign:
            text += f" {wording.unit_of_effect(item)}"
        if text:
            views.setdefault(text, []).append(item.under)
    if len(views) < 2:
        return "".join(views)
    return "; ".join(f"{text} ({', '.join(filter(None, under))})" for text, under in views.items())


def source_of(claim: Claim) -> str:
    """Return the paper's words for a claim and their place; or what we expected and when; or why we look at it."""
    if claim.quote:
        return f'"{claim.quote}" ({claim.at}).'
    return f"{claim.hypothesis} (written {claim.dated})." if claim.hypothesis else f"{claim.ours}."


def values(report: Report) -> list[str]:
    """Make a row for each printed value; in a study of our own for each value that it measures."""
    shown, assumed = report.values, report.table.assumed
    if not shown:
        return []
    if not any(each.item.value is not None for each in shown):
        body = [[wording.value_in_words(each.item, assumed), _mean(each, report.table)] for each in shown]
        return ["## What we measure", "", *grid(["what", f"mean, 95 % ({report.table.unit})"], body), ""]
    if report.table.layout:
        return layout(report, report.table.layout)
    body = []
    for each in shown:
        cell = each.item
        if cell.value is not None:
            name = wording.value_in_words(cell, assumed) + "†" * cell.calibrated
            unit = f" {cell.unit}" if cell.unit != report.table.unit else ""
            verdict = [wording.group_verdict(each), wording.notes(each.verdicts)]
            body.append([name, f"{printed(cell)}{unit}", number(cell.margin), ours_of(each), *verdict])
    head = ["value", f"printed ({report.table.unit})", "margin", "ours, 95 %", "verdict", "notes"]
    return ["## What the paper prints", "", *grid(head, body), *_dagger(shown), ""]


def layout(report: Report, form: Layout) -> list[str]:
    """Write the printed values beside ours in the paper's own layout."""
    found: dict[str, dict[str, str]] = {}
    for each in (each for each in report.values if each.item.value is not None):
        where, value = each.item.where, printed(each.item) + "†" * each.item.calibrated
        row = found.setdefault(wording.in_words({key: where[key] for key in form.rows if key in where}), {})
        head = wording.in_words({key: where[key] for key in (form.columns,) if key in where})
        row[head] = "<br>".join(filter(None, [row.get(head), value, ours_of(each), f"*{wording.group_verdict(each)}*"]))
    heads = list(dict.fromkeys(itertools.chain(*found.values())))
    body = [[name, *(row.get(head, "") for head in heads)] for name, row in found.items()]
    intro = "In the paper's own layout: the printed value, below it ours with its interval, and the verdict."
    title = f"## What the paper prints ({report.table.unit})"
    return [title, "", intro, "", *grid(["", *heads], body), *_dagger(report.values), ""]


def _mean(each: Judged[Cell], table: Table) -> str:
    """Write the mean of a value that no paper prints; for steps to a threshold, a bound if a run never got there."""
    means = []
    for cell, verdict in zip(each.items, each.verdicts, strict=True):
        if verdict.values:
            under = f" ({cell.under})" if len(each.items) > 1 else ""
            unit = f" {cell.unit}" if cell.unit != table.unit else ""
            found, late = judge.mean_of(cell, verdict.values), sum(isinstance(x, Censored) for x in verdict.values)
            mean = f"at least {wording.number(found.mid)}" if late else wording.interval(found)
            runs = len(verdict.values)
            text = f"{mean}{unit}{under}, {runs} run{'s' * (runs > 1)}"
            means.append(f"{text}, of which {late} never got there" if late else text)
    return "; ".join(means)


# --- what needs no training -------------------------------------------------------------------------------------------


def evidence(report: Report) -> list[str]:
    """Write what the authors' published models and the data show, beside what our runs show."""
    if not report.reanalysed:
        return []
    items, verdicts = (*report.table.claims, *report.table.cells), (*report.judged[0], *report.judged[1])
    ours = {id(item): verdict.word for item, verdict in zip(items, verdicts, strict=True)}
    body = []
    for found in report.reanalysed:
        item = found.item
        if isinstance(item, Cell):
            what = item.label or settings(item.where)
            paper = " ".join(filter(None, [printed(item), item.at and f"({item.at})"]))
        else:
            what, paper = wording.claim_in_words(item), f'"{item.quote}" ({item.at})'
        numbers = " against ".join(map(number, found.numbers))
        body.append([what, paper, numbers, found.of, found.word, ours.get(id(item), "")])
    head = ["what", "paper", "reanalysed", "of", "verdict", "our runs"]
    return ["## Without a training", "", EVIDENCE, "", *grid(head, body), ""]


EVIDENCE = """\
The same numbers from the authors' own published models, and from the data. *As printed*: a model's number has the
printed digits, one of the data is within the tolerance, a claim's two numbers have its order.
[All numbers, and the command](../reanalysed/README.md)."""


def bootstrap(report: Report) -> list[str]:
    """Write a footnote on single runs: differences of perplexity between LSTM and MTS runs on the same words."""
    blocks: dict[str, dict[str, str]] = {}
    for row in report.rows[PAPER] if "bins" in report.table.probe else ():
        if row.blocks:
            where = {key: value for key, value in row.axes.items() if key.partition(".")[0] != "model"}
            blocks.setdefault(wording.in_words(where), {})[row.axes["model"]] = row.blocks
    both = {words: texts for words, texts in blocks.items() if {"lstm", "mts"} <= texts.keys()}
    if not both:
        return []
    from timescales.analysis import bins  # imports torch

    lines = ["LSTM minus MTS, by a bootstrap over blocks of the same words (single runs):", ""]
    for words, texts in both.items():
        found = bins.intervals(bins.differences(bins.from_text(texts["lstm"]), bins.from_text(texts["mts"])))
        for name, ends in zip((*bins.NAMES, "all"), found, strict=True):
            lines.append(f"- {words}, {name}: {wording.interval(judge.Interval(*ends), signed=True)}")
    return [*lines, ""]


# --- about the paper and the runs -------------------------------------------------------------------------------------


def about_the_paper(report: Report) -> list[str]:
    """Write what the paper cites, what it does not state, and where it contradicts itself."""
    found, lines = report.table, []
    if found.cited:
        body = [[cited.label, printed(cited), cited.source] for cited in found.cited]
        lines += ["## Other people's models, cited", "", *grid(["model", "value", "source"], body), ""]
    if found.assumed:
        lines += ["## What the paper does not state, and what we assume", ""]
        for key, assumption in found.assumed.items():
            tries, shown = map(wording.setting_value, assumption.tries), assumption.shown.values()
            text = f"- `{key}`: {assumption.said}"
            text += f" (other values to try: {', '.join(tries)})" if assumption.tries else ""
            text += f" (each is judged: {', '.join(shown)})" if shown else ""
            lines.append(f"{text}. **Chosen by looking at results**" if assumption.calibrated else text)
        lines.append("")
    if found.notes:
        lines += ["## Notes", "", *(f"- {note}" for note in found.notes), ""]
    return lines


def runs_and_cost(report: Report) -> list[str]:
    """Write where the numbers come from: machines, hours, commits."""
    lines = []
    for size, rows in report.rows.items():
        if rows:
            hours: dict[str, float] = {}
            for row in rows:
                device = f"{row.machine}, {row.threads} thread{'s' if row.threads != 1 else ''}"
                hours[device] = hours.get(device, 0.0) + row.seconds / 3600
            machines = "; ".join(f"{h:.1f} h on {device}" for device, h in hours.items())
            commits = ", ".join(sorted({str(row.commit) for row in rows}))
            lines.append(f"- {size}: {len(rows)} run{'s' * (len(rows) > 1)}, {machines}; commits {commits}.")
            lines += [f"  Part of the data: {p}." for p in sorted({row.partial for row in rows if row.partial})]
    if not lines:
        return []
    return ["## Runs", "", "Every run, with its values, seed and commit: [runs.csv](runs.csv).", "", *lines]
