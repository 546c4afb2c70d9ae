"""Draw pictures of verdicts: the claims and values of a table (verdicts.png), and its ladder (ladder.png).

A line is a 95 % interval. It is green inside the claimed region, red outside the region, grey across an edge.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from timescales.papers import judge
from timescales.papers.judge import Interval, Verdict
from timescales.papers.ladder import OPPOSITE, SEEN, LadderClaim
from timescales.papers.table import PAPER, Cell, Claim, printed_pairs
from timescales.plotting import empty_figure, literal
from timescales.reports import wording
from timescales.reports.report import Judged, Report
from timescales.runs.metrics import Censored

GREEN, RED, GREY, PALE, BLUE, REGION = "#1a7f4b", "#c0392b", "#8a8a8a", "#c4c4c4", "#2b6cb0", "#dcefe2"
LOOK = {  # colour and marker of each word
    **dict.fromkeys((*judge.FOR, SEEN), (GREEN, "o")),
    **dict.fromkeys((*judge.AGAINST, OPPOSITE), (RED, "X")),
    judge.NOT_RUN: (PALE, "D"),
}
DOT: dict[str, Any] = {"color": "black", "marker": ".", "ls": "", "ms": 3.5}  # a run
EMPTY = DOT | {"marker": "o", "fillstyle": "none"}  # a run that never reached the threshold
FAR = 8.0  # in margins: values farther away are drawn at the edge


# --- claims and values ------------------------------------------------------------------------------------------------


def verdicts(report: Report) -> Any:
    """Draw the claims that have an interval on the left, a panel for each unit, and the values on the right."""
    claims = [each for each in report.claims if any(v.interval for v in each.verdicts)]
    values = [each for each in report.values if any(v.interval or v.values for v in each.verdicts)]
    values = values if len(values) <= 60 else []  # more would not be readable; the page lists them
    if not claims and not values:
        return None
    columns: list[dict[str, list[Any]]] = [found for found in (_by_unit(claims), _by_unit(values)) if found]
    rows = max(sum(map(len, column.values())) + 2.2 * len(column) for column in columns)
    figure = empty_figure(7.5 * len(columns), 0.32 * rows + 0.9)
    grid = figure.add_gridspec(1, len(columns))
    for k, column in enumerate(columns):
        parts = grid[k].subgridspec(len(column), 1, height_ratios=[len(own) + 1.6 for own in column.values()])
        for m, (unit, own) in enumerate(column.items()):
            ax = figure.add_subplot(parts[m])
            if isinstance(own[0].item, Claim):
                _claims_on(ax, own, unit, report)
            else:
                _values_on(ax, own, unit, report)
    of_paper = any(v.item.value is not None for v in values)
    printed = of_paper or any(printed_lead(each.item, report) for each in claims)
    late = any(isinstance(x, Censored) for each in values for verdict in each.verdicts for x in verdict.values)
    if handles := _legend(bool(claims) or of_paper, printed, late):
        figure.legend(handles=handles, loc="outside upper left", ncols=7, frameon=False, fontsize=8)
    return figure


def _by_unit(each: Sequence[Judged[Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for judged in each:
        item = judged.item
        fails = isinstance(item, Claim) and "fails" in item.sign
        found.setdefault("% of runs that fail" if fails else item.unit, []).append(judged)
    return found


def _legend(judged: bool, printed: bool, late: bool) -> list[Any]:
    """Return the entries of the legend.

    judged: whether anything has a verdict; printed: whether numbers of a paper are drawn; late: whether a run never
    reached the threshold.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    dots = [("holds, agrees", GREEN, "o"), ("refuted, differs", RED, "X"), ("undecided", GREY, "D")]
    dots.append(("runs are missing", PALE, "D"))
    lines: list[Any] = []
    if judged:
        lines += [Line2D([], [], color=colour, marker=mark, label=name) for name, colour, mark in dots]
        lines.append(Patch(color=REGION, label="what is claimed, or printed"))
    if printed:
        lines.append(Line2D([], [], color=BLUE, marker="|", ls="", ms=10, mew=1.5, label="printed by the paper"))
    if late:
        lines.append(Line2D([], [], **EMPTY, label="run that never reached the threshold, at its last step"))
    return lines


def _rows(ax: Any, names: Sequence[str], title: str, letters: int = 70) -> None:
    """Label the rows of a panel, the first at the top. letters: those that fit into a line of the title."""
    shown = [literal(textwrap.shorten(name, 78, placeholder=" ...")) for name in names]
    ax.set_yticks(range(len(names)), shown, fontsize=8)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_title(literal(textwrap.fill(title, letters)), loc="left", fontsize=9)


def _claims_on(ax: Any, claims: Sequence[Judged[Claim]], unit: str, report: Report) -> None:
    shares = unit.startswith("%")
    drawn = [[_percent(v) if shares else v for v in each.verdicts] for each in claims]
    leads = [[] if shares else printed_lead(each.item, report) for each in claims]
    ends = [x for own in drawn for v in own if v.interval for x in v.interval] + [x for own in leads for x in own]
    low, high = _limits([0.0, *ends])
    for y, (own, lead) in enumerate(zip(drawn, leads, strict=True)):
        region = [max(low, min(high, x)) for x in own[0].region]
        ax.barh(y, region[1] - region[0], left=region[0], height=0.86, color=REGION, zorder=1)
        for k, verdict in enumerate(own):
            _line(ax, y + (k - (len(own) - 1) / 2) * 0.36, verdict.interval, verdict.word, low, high)
        ax.vlines(lead, y - 0.43, y + 0.43, color=BLUE, lw=1.5, zorder=5)
    ax.axvline(0, color="black", lw=0.8, zorder=2)
    ax.set_xlim(low, high)
    title = "What we expected" if report.study else "What the paper concludes"
    what = unit if shares else f"lead of the first side, {wording.unit_of_effect(claims[0].item)}"
    _rows(ax, [wording.claim_in_words(c.item) + "†" * c.item.calibrated for c in claims], f"{title}: {what}")


def _percent(verdict: Verdict) -> Verdict:
    interval = verdict.interval and wording.percent(verdict.interval)
    return Verdict(verdict.word, interval, (100 * verdict.region[0], 100 * verdict.region[1]))


def _limits(values: Sequence[float]) -> tuple[float, float]:
    known = [x for x in values if math.isfinite(x)]
    room = 0.06 * ((max(known) - min(known)) or 1.0)
    return min(known) - room, max(known) + room


def _line(ax: Any, y: float, interval: Interval | None, word: str, low: float, high: float) -> None:
    if interval is not None:
        colour, mark = LOOK.get(word, (GREY, "D"))
        ends = [max(interval.low, low), min(interval.high, high)]
        ax.plot(ends, [y, y], color=colour, lw=2 * interval.has_ends, zorder=3)
        ax.plot(max(low, min(high, interval.mid)), y, mark, color=colour, ms=5.5, zorder=4)


def _values_on(ax: Any, values: Sequence[Judged[Cell]], unit: str, report: Report) -> None:
    """Draw values: printed ones as their distance from the printed value in margins, others in their unit."""
    printed = all(each.item.value is not None for each in values)

    def place(cell: Cell, x: float) -> float:
        if not printed or cell.value is None:
            return x
        return max(-FAR, min(FAR, (x - cell.value) / (cell.margin or 1e-9)))  # a margin of 0: at the value or far away

    points = []
    for y, each in enumerate(values):
        for k, (cell, verdict) in enumerate(zip(each.items, each.verdicts, strict=True)):
            dy = y + (k - (len(each.items) - 1) / 2) * 0.36
            if verdict.interval:
                interval = Interval(*(place(cell, x) for x in verdict.interval))
                _line(ax, dy, interval, verdict.word, -math.inf, math.inf)
            for late in sorted({isinstance(x, Censored) for x in verdict.values}):  # that never reached the threshold
                runs = [place(cell, x) for x in verdict.values if isinstance(x, Censored) is late]
                ax.plot(runs, [dy] * len(runs), **(EMPTY if late else DOT), alpha=0.6, zorder=5)
                points += runs
    if printed:
        ax.axvspan(-1, 1, color=REGION, zorder=0)
        ax.axvline(0, color=BLUE, lw=1)
        ax.set_xlim(-FAR * 1.03, FAR * 1.03)
        ax.set_xticks([-8, -4, 0, 4, 8], ["below -8", "-4", "printed", "+4", "above 8"])
        title = f"What it prints: distance of our values, in margins ({unit}); a dot is a run"
    else:
        ax.set_xlim(*_limits(points))
        title = f"What we measure: {unit}; a dot is a run"
    names = [wording.value_in_words(e.item, report.table.assumed) + "†" * e.item.calibrated for e in values]
    _rows(ax, names, title)


def printed_lead(claim: Claim, report: Report) -> list[float]:
    """Return the differences between the printed values that a claim compares."""
    pairs = printed_pairs(claim, report.table.cells, report.planned[PAPER])
    a, b = claim.weights
    return [a * x.value + b * y.value for x, y in pairs if x.value is not None and y.value is not None]


# --- the ladder -------------------------------------------------------------------------------------------------------

ACROSS = 3  # panels in a row
LETTERS = 44  # of a title of such a panel, in a line


def ladder(report: Report) -> Any:
    """Draw a panel for each claim of the ladder: a row for each rung from the smallest, the paper's size last."""
    ladder_claims = [judged for judged in report.ladder_claims if any(s.verdict.interval for s in judged.steps)]
    if not ladder_claims:
        return None
    down = -(-len(ladder_claims) // ACROSS)
    across = min(ACROSS, len(ladder_claims))
    tall = max(len(judged.steps) for judged in ladder_claims) + 1
    lines = max(len(textwrap.wrap(_title(judged), LETTERS)) for judged in ladder_claims)
    figure = empty_figure(4.9 * across, down * (0.32 * tall + 0.8 + 0.17 * lines))
    axes = figure.subplots(down, across, squeeze=False).flat
    for ax, judged in zip(axes, ladder_claims, strict=False):
        _ladder_claim_on(ax, judged, report)
    for ax in figure.axes[len(ladder_claims) :]:
        ax.remove()
    return figure


def _ladder_claim_on(ax: Any, judged: LadderClaim, report: Report) -> None:
    shares = "fails" in judged.claim.sign
    verdicts = [_percent(step.verdict) if shares else step.verdict for step in judged.steps]
    paper = judged.paper and (_percent(judged.paper) if shares else judged.paper)
    ends = [x for verdict in (*verdicts, paper) if verdict and verdict.interval for x in verdict.interval]
    own = judged.own
    comparable = own and own.column == judged.claim.column and not (judged.ratio or shares)
    lead = printed_lead(own, report) if own and comparable else []
    low, high = _limits([0.0, *ends, *lead])
    region = judge.region_of(judged.claim, judged.ratio)
    region = (100 * region[0], 100 * region[1]) if shares else region
    ax.axvspan(max(region[0], low), min(region[1], high), color=REGION, zorder=0)
    names = []
    for y, (step, verdict) in enumerate(zip(judged.steps, verdicts, strict=True)):
        _line(ax, y, verdict.interval, step.word, low, high)
        names.append(step.name.replace("_", ", ") + (f" ({step.short})" if step.short else ""))
    if paper is not None:
        _line(ax, len(names), paper.interval, paper.word, low, high)
    ax.vlines(lead, len(names) - 0.4, len(names) + 0.4, color=BLUE, lw=1.5, zorder=5)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_xlim(low, high)
    place = f" ({wording.in_words(own.place)})" if own and own.place else ""
    names.append(f"paper's size{place}" + ("" if paper is not None or lead else ": open"))
    _rows(ax, names, _title(judged), LETTERS)
    ax.set_yticks(range(len(names)), [literal(textwrap.fill(name, 24)) for name in names], fontsize=8)
    if not judged.ratio:
        ax.locator_params(axis="x", nbins=5)
    else:
        spacing = 2.0 ** max(-3, math.ceil(math.log2((high - low) / 4)))  # doublings between two ticks
        ticks = [k * spacing for k in range(math.ceil(low / spacing), math.floor(high / spacing) + 1)]
        ax.set_xticks(ticks, [f"{2.0**t:.2g}" for t in ticks])
    ax.set_xlabel("% of runs" if shares else "times as fast" if judged.ratio else judged.claim.unit, fontsize=8)


def _title(judged: LadderClaim) -> str:
    """Return the title of a claim's panel."""
    trends = {"flat": "; with size flat", "unclear": "; trend unclear", "": ""}
    return wording.claim_in_words(judged.claim) + trends.get(judged.trend, f"; with size it {judged.trend}")
