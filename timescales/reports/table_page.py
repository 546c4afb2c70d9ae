"""The gallery's page of a table: picture, claims beside the sentences that make them, values, curves, all runs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from timescales.papers.table import Row
from timescales.papers.verdict import ClaimResult
from timescales.reports import charts, markdown, wording
from timescales.reports.html import Site, badge, chip, chips, grid, html, picture
from timescales.reports.report import Report


def body(report: Report, site: Site) -> str:
    """All of a table's page below its title, but the other files of its folder."""
    text = _Text(report, site)
    return "".join(
        [
            _verdicts(report),
            _figure(report),
            _claims(report),
            _values(report, text),
            text.html(markdown.bootstrap(report)),
            text.html(markdown.evidence(report)),
            text.html(markdown.small_scale(report)),
            text.html(markdown.about_the_paper(report)),
            _run_it(report, site),
            text.html(markdown.cost(report)),
            charts.of_table(report),
            _all_runs(report.all_rows),
        ]
    )


class _Text:
    """Markdown of a report as HTML, with badges for its verdicts."""

    def __init__(self, report: Report, site: Site) -> None:
        self.folder, self.site = report.folder, site
        results = (report.cells, report.claims, report.small_claims)
        verdicts = [result.verdict for of_kind in results for result in of_kind]
        self.badges = {wording.text(verdict): badge(verdict) for verdict in verdicts}
        self.badges |= {found.word: chip(found.word, found.word) for found in report.reanalysed}

    def html(self, lines: Sequence[str]) -> str:
        return html("\n".join(lines), self.folder, self.site, self.badges)


def _verdicts(report: Report) -> str:
    runs = f"{len(report.rows['paper'])} of {len(report.planned['paper'])} runs"
    return (
        f'<p class="dim">{escape(report.table.source)}; {escape(report.table.unit)}.</p>'
        f'<dl class="verdicts"><dt>Paper size</dt><dd>{badge(report.verdict)} {runs}</dd>'
        f"{chips(report.verdict.counts)}"
        f"<dt>Small-scale</dt><dd>{badge(report.small_verdict)}</dd></dl>"
    )


def _figure(report: Report) -> str:
    path = report.folder / "figure.png"
    return f'<p class="figure">{picture(path, report.table.title)}</p>' if path.is_file() else ""


def _claims(report: Report) -> str:
    """Each sentence that makes claims, and beside it the claims with their verdicts."""
    numbers = {id(result): k for k, result in enumerate(report.claims)}
    parts = []
    for title, results in markdown.claims(report).items():
        parts.append(f"<h2>{title}</h2>")
        for source, group in groupby(results, markdown.source_of):
            judged = "".join(_claim(result, numbers[id(result)]) for result in group)
            parts.append(f'<div class="said"><blockquote>{escape(source)}</blockquote><ul>{judged}</ul></div>')
    if parts:
        parts.append(html(markdown.CLAIMS, report.folder, Site(report.results)))
    return "".join(parts)


def _claim(result: ClaimResult, number: int) -> str:
    verdict = result.verdict
    tests = {"p for": verdict.p_for, "p against": verdict.p_against, "p small": verdict.p_small}
    found = [wording.numbers(result), *(f"{name} {wording.p_text(p)}" for name, p in tests.items() if p)]
    return (
        f'<li id="claim-{number}">{badge(verdict)} <code>{escape(result.claim.text)}</code>'
        f'<span class="dim">{escape("; ".join(filter(None, found)))}</span></li>'
    )


def _values(report: Report, text: _Text) -> str:
    """Printed values beside ours; margins, seeds and tests on demand."""
    if not report.cells:
        return ""
    head, rows = markdown.cells(report)
    printed = markdown.prints_values(report)
    settings = head.index("paper" if printed else "ours")  # how many columns of settings come first
    shown = [k for k, name in enumerate(head) if k < settings or name in ("paper", "ours", "n", "verdict")]
    short = markdown.grid([head[k] for k in shown], [[row[k] for k in shown] for row in rows])
    whole = text.html([*markdown.grid(head, rows), *(["", markdown.CELLS] if printed else [])])
    more = "Margins, every seed, tests" if printed else "Medians, every seed, missing runs"
    return (
        f"<h2>Values</h2><p>In brackets: standard deviations. <em>n</em>: our runs.</p>{text.html(short)}"
        f"<details><summary>{more}</summary>{whole}</details>"
    )


def _run_it(report: Report, site: Site) -> str:
    """The commands, what the missing runs will take, and pages about what is trained."""
    commands = escape("\n".join(markdown.commands(report)))
    missing = wording.price(report.price_of({}))
    cost = f"<p>Missing runs at paper size: {escape(missing)}.</p>" if missing else ""
    links = "".join(f"<li>{link}</li>" for link in _docs(report, site))
    more = f'<p>In the documentation:</p><ul class="links">{links}</ul>' if links else ""
    return f"<h2>Run it</h2><pre>{commands}</pre>{cost}{more}"


def _docs(report: Report, site: Site) -> list[str]:
    """Links to the pages of the paper, and of the table's tasks and models, as far as there are any."""
    axes = [axes for of_size in report.planned.values() for axes in of_size]
    paper = report.table.source.split(",")[0]
    links = [site.link(f"papers/{report.table.paper}.md", paper)]
    for kind in ("task", "model"):
        names = sorted({str(setting[kind]) for setting in axes if kind in setting})
        links += [site.link(f"{kind}s/{name}.md", f"{kind} {name}") for name in names]
    return list(filter(None, [*links, site.link("statistics.md", "how verdicts are made")]))


def _all_runs(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    axes = list(dict.fromkeys(key for row in rows for key in row.axes if key != "seed"))
    metrics = [key for key in dict.fromkeys(k for row in rows for k in row.values) if "probe/" not in key]
    head = ["id", "size", *axes, "seed", "status", *metrics, "minutes", "machine", "commit"]
    table = grid(head, [_run_row(row, axes, metrics) for row in rows])
    return f"<details><summary>All {len(rows)} runs</summary>{table}</details>"


def _run_row(row: Row, axes: Sequence[str], metrics: Sequence[str]) -> list[str]:
    settings = [wording.say(row.axes.get(key, "")) for key in axes]
    values = ["" if (value := row.value(key)) is None else wording.number(value) for key in metrics]
    origin = [f"{row.seconds / 60:.1f}", str(row.machine), str(row.commit)]
    return [row.id, row.profile, *settings, str(row.seed), row.status, *values, *origin]
