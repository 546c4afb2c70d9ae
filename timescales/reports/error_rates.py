"""The page on the error rates of verdicts, results/statistics: its tables and figures.

scripts/error_rates.py draws the tables of known truth and counts the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales import plotting
from timescales.files import csv_rows, csv_text, write_atomic
from timescales.papers.verdict import Word
from timescales.reports.markdown import grid

Line = Mapping[str, Any]  # of a CSV file: what was judged, and the share of each word, from 0 to 1
Lines = Sequence[Line]
CASE = ("shape", "truth", "n")
COLUMNS = {
    "cells": (*CASE, "value", "values"),
    "claims": (*CASE, "sign", "claim", "claims"),
    "tables": (*CASE, "tables"),
}
ERRORS = ("false difference", "false agreement", "false holds", "false refuted")
BIG = "chien_table3"
MANY = "18 values"
PRINTED_AGAIN = "as printed, the paper's runs drawn, too"
RIGHT = ("true", "equal", "within the tolerance")  # of claims `~`; of others only the first
SEEDS = (2, 3, 5, 10, 20)


def write(found: Mapping[str, Lines], folder: Path) -> list[Path]:
    """Write cells.csv, claims.csv, tables.csv, README.md and two figures."""
    files = {folder / f"{name}.csv": _csv(name, lines) for name, lines in found.items()}
    files[folder / "README.md"] = page(found)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_atomic(path, text.encode())
    power = plotting.write(lambda figure: draw_power(figure, found), folder / "power", "How often a verdict comes out")
    words = f"{BIG}: how often a table has each word, with n runs of each setting"
    return [
        *files,
        *power,
        *plotting.write(lambda figure: draw_tables(figure, found["tables"]), folder / "tables", words),
    ]


def read(folder: Path) -> dict[str, list[Line]]:
    """The lines of the three CSV files."""
    return {name: [_parsed(row) for row in csv_rows(folder / f"{name}.csv")] for name in COLUMNS}


def _parsed(row: Mapping[str, str]) -> Line:
    words = {*Word, *ERRORS}
    counts = {"n", "values", "claims", "tables"}
    return {k: float(v) if k in words else int(v) if k in counts else v for k, v in row.items()}


def _csv(name: str, lines: Lines) -> str:
    columns = _columns(lines, name)
    return csv_text([dict.fromkeys(columns, 0) | dict(line) for line in lines], columns)


def _columns(lines: Lines, name: str) -> list[str]:
    """What was judged, and the words and errors that come out at all."""
    errors = ERRORS if name == "tables" else ()
    return [*COLUMNS[name], *(word for word in Word if any(word in line for line in lines)), *errors]


def pick(lines: Lines, shape: str, truth: str | None = None, n: int | None = None, **more: str) -> list[Line]:
    """The lines of a case; None: of all."""
    wanted = {"shape": shape, "truth": truth, "n": n, **more}
    return [line for line in lines if all(value is None or line[key] == value for key, value in wanted.items())]


def percent(lines: Lines, word: str) -> str:
    """How often a word came out in these lines, in per cent; "-" where nothing was judged."""
    return f"{100 * share(lines, word):.1f}" if lines else "-"


def share(lines: Lines, word: str) -> float:
    """The mean of a word's shares, by the number of what was judged."""
    judged = [next(line[key] for key in ("values", "claims", "tables") if key in line) for line in lines]
    return float(sum(line.get(word, 0) * number for line, number in zip(lines, judged, strict=True)) / sum(judged))


PAGE = """\
# Error rates of the verdicts

Written by `python scripts/error_rates.py`. Runs are drawn from known distributions, by a fixed seed, and judged by the
functions that judge reports. [docs/statistics.md](../../docs/statistics.md) explains the rules. All shares are in per
cent; a share of 5 % in 1,000 tables is known to 1.4 points (two standard errors), in 200 tables to 3.

- `chien_table3`: the committed table, 18 values with spreads of 5 runs, 16 conclusions.
- `gu_table2`: the committed table, 9 values without spreads, no conclusion.
- `18 values`: values with a spread of 1 of 5 runs, which are drawn, too. A run that has *fallen* is 30 spreads below.
- `1 value`: one printed value, a mean of 5 runs. `1 claim`, `10 claims`: a made-up table of two models.
- "drawn, too": what the paper prints is itself the mean and spread of 5 drawn runs. Elsewhere it is the truth.
"""


def page(found: Mapping[str, Lines]) -> str:
    """README.md."""
    parts = [*_main_numbers(found), *_needed(found), *_tables(found["tables"])]
    parts += [*_values(found["cells"]), *_claims(found["claims"])]
    return "\n".join([PAGE, *parts, ""])


def _main_numbers(found: Mapping[str, Lines]) -> list[str]:
    tables = found["tables"]
    body = []
    for shape, truth, n in ((BIG, "as printed", 5), (BIG, PRINTED_AGAIN, 5), (BIG, "all models the same", 5)):
        lines = pick(tables, shape, truth, n)
        body.append([f"{shape}: {truth}", n, *(percent(lines, word) for word in ERRORS)])
    for n in (2, 3, 5, 10):
        lines = [line for line in pick(tables, "gu_table2", n=n) if line["truth"].startswith("as printed")]
        body.append(["gu_table2: as printed", n, *(percent(lines, word) for word in ERRORS)])
    head = ["tables with at least one", "n", *ERRORS]
    text = [
        '*False difference*: "higher", "lower" or "close" for a value that is as printed. *False agreement*: "agrees"',
        'or "close" for one whose true mean is outside the margin. *False holds*: of a claim that is untrue.',
        '*False refuted*: of one that is true. ("Too small" may be right of a claim that is true.)',
        "The correction promises that 5 % of the differences that a table calls significant are false, not that 5 % of",
        "the tables have one; where nothing differs both are the same.",
    ]
    return ["## Errors", "", *grid(head, body), "", *text, "", "![How often a verdict comes out](power.png)", ""]


def _needed(found: Mapping[str, Lines]) -> list[str]:
    """The smallest number of runs with which a word that is right comes out four times out of five."""
    claims = [
        (found["claims"], line, Word.HOLDS)
        for line in pick_first(found["claims"], "")
        if "claim" in line["shape"] and line["claim"] in (RIGHT if line["sign"] == "~" else RIGHT[:1])
    ]
    values = [
        (found["cells"], line, Word.AGREES)
        for line in pick_first(found["cells"], "")
        if line["truth"].startswith("as printed")
    ]
    body = [
        [line["shape"], line["truth"], word, _enough(lines, line, word)] for lines, line, word in [*claims, *values]
    ]
    text = [
        "The smallest simulated number of runs with which the word comes out for at least 80 % of claims or values,",
        "corrected for the others of the same table.",
    ]
    return ["## Runs that one needs", "", *text, "", *grid(["table", "truth", "word", "runs"], body), ""]


def _enough(lines: Lines, line: Line, word: Word) -> str:
    tried = sorted({each["n"] for each in pick(lines, line["shape"], line["truth"])})
    enough = [n for n in tried if share(pick(lines, line["shape"], line["truth"], n), word) >= 0.8]
    return str(enough[0]) if enough else f"> {tried[-1]}"


def _tables(lines: Lines) -> list[str]:
    parts = ["## Words of tables", "", f"![Words of {BIG}](tables.png)", ""]
    for shape in (BIG, "gu_table2"):
        words = [word for word in Word if any(line.get(word) for line in pick(lines, shape))]
        body = [
            [line["truth"], line["n"], line["tables"], *(percent([line], word) for word in (*words, *ERRORS))]
            for line in pick(lines, shape)
        ]
        parts += [f"### {shape}", "", *grid(["truth", "n", "tables", *words, *ERRORS], body), ""]
    return parts


def _values(lines: Lines) -> list[str]:
    """The words of printed values, over all values of a table."""
    whole = [line for line in lines if line["truth"].startswith("as printed") and "1 value" not in line["shape"]]
    whole = [line for line in whole if line["shape"] != MANY]
    words = _words(lines)
    many = [[line["truth"], line["n"], *(percent([line], word) for word in words)] for line in pick(lines, MANY)]
    body = [[line["shape"], line["truth"], line["n"], *(percent([line], word) for word in words)] for line in whole]
    match = [
        [line["shape"].partition(", ")[2], line["truth"], *_by_n(lines, line["shape"], line["truth"], Word.AGREES)]
        for line in pick_first(lines, "1 value")
    ]
    return [
        *("## Words of printed values", "", f"{MANY}, in per cent of them:", ""),
        *grid(["truth", "n", *words], many),
        *("", "How often a single value, the only one of its table, *agrees*:", ""),
        *grid(["margin", "truth", *(f"n={n}" for n in SEEDS)], match),
        *("", "All values of a table, where they are as printed ([cells.csv](cells.csv) has the others):", ""),
        *grid(["table", "truth", "n", *words], body),
        "",
    ]


def _words(lines: Lines) -> list[Word]:
    return [word for word in Word if any(line.get(word) for line in lines)]


def pick_first(lines: Lines, shape: str) -> list[Line]:
    """One line for each truth of the tables whose names begin so."""
    return list({(line["shape"], line["truth"]): line for line in lines if line["shape"].startswith(shape)}.values())


def _by_n(lines: Lines, shape: str, truth: str, word: Word, seeds: Iterable[int] = SEEDS) -> list[str]:
    return [percent(pick(lines, shape, truth, n), word) for n in seeds]


def _claims(lines: Lines) -> list[str]:
    parts = ["## Words of claims", ""]
    words = _words(lines)
    body = [
        [line["truth"], line["n"], line["sign"], line["claim"], *(percent([line], word) for word in words)]
        for line in pick(lines, BIG)
    ]
    parts += [f"### {BIG}", "", *grid(["truth", "n", "sign", "the claim is", *words], body), ""]
    for shape in dict.fromkeys(line["shape"] for line in lines if "claim" in line["shape"]):
        seeds = sorted({line["n"] for line in pick(lines, shape)})
        body = [
            [line["truth"], word, *_by_n(lines, shape, line["truth"], word, seeds)]
            for line in pick_first(lines, shape)
            if line["shape"] == shape
            for word in (Word.HOLDS, Word.REFUTED, Word.TOO_SMALL)
        ]
        parts += [f"### {shape}", "", *grid(["truth", "word", *(f"n={n}" for n in seeds)], body), ""]
    return parts


def draw_power(figure: Any, found: Mapping[str, Lines]) -> None:
    """Three panels: claims of an order, of likeness, and agreement."""
    order, like, match = plotting.panels(figure, 3, width=11.0, height=3.8, sharey=True)
    colours = dict(zip(SEEDS, plotting.shades(len(SEEDS)), strict=True))
    for n in SEEDS:
        for shape, style in (("1 claim A > B", "-"), ("10 claims A > B", "--")):
            _line(order, found["claims"], shape, n, Word.HOLDS, color=colours[n], ls=style)
        for word, style in ((Word.HOLDS, "-"), (Word.REFUTED, ":")):
            _line(like, found["claims"], "1 claim A ~ B", n, word, "0.5", color=colours[n], ls=style)
        for margin, style in ((2, "-"), (4, "--")):
            _line(match, found["cells"], f"1 value, margin {margin} sd", n, Word.AGREES, color=colours[n], ls=style)
    titles = {
        order: ("A > B holds (dashed: one of 10 claims)", "A is better by (sd)"),
        like: ("A ~ B holds (dotted: refuted), sd = 1/2 tolerance", "true difference (tolerances)"),
        match: ("agrees, margin = 2 sd (dashed: 4 sd)", "true difference (margins)"),
    }
    for ax, (title, label) in titles.items():
        ax.axhline(0.05, color="black", lw=0.6)
        ax.set_title(title, fontsize=9)
        ax.set_xlabel(label)
    order.set_ylabel("share (line: 5 %)")
    plotting.legend_at_right(match)


def _line(ax: Any, lines: Lines, shape: str, n: int, word: Word, spread: str = "", **options: Any) -> None:
    """The share of a word over the size of the true difference, which is the first number of a truth."""
    points = [
        (next((float(part) for part in line["truth"].split() if part[0].isdigit()), 0.0), line.get(word, 0))
        for line in pick(lines, shape, n=n)
        if line["truth"].endswith(spread)
    ]
    label = f"n = {n}" if options["ls"] == "-" else None
    if points:
        ax.plot(*zip(*sorted(points), strict=True), marker=".", label=label, **options)


def draw_tables(figure: Any, lines: Lines) -> None:
    """A bar for each case of the big table, divided by its words."""
    (ax,) = plotting.panels(figure, width=9.0, height=5.0)
    found = pick(lines, BIG)[::-1]
    words = [word for word in Word if any(line.get(word) for line in found)]
    left = [0.0] * len(found)
    for word, colour in zip(words, plotting.shades(len(words)), strict=True):
        widths = [line.get(word, 0) for line in found]
        ax.barh(range(len(found)), widths, left=left, color=colour, label=word)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    ax.set_yticks(range(len(found)), [f"{line['truth']}, n = {line['n']}" for line in found], fontsize=8)
    ax.set_xlabel("share of tables")
    plotting.legend_at_right(ax)
