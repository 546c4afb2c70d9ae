"""How often each verdict comes out where the truth is known: `python scripts/error_rates.py`.

Runs are drawn from known distributions, and judged by `judge_cells`, `judge_claims` and `judge_table`, as reports do.
Writes results/statistics: cells.csv, claims.csv and tables.csv with the share of each word, and README.md with two
figures. Some minutes on one core; --tables N draws N tables a case instead of 1,000. Each case has its own fixed seed.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.papers import load, under  # noqa: E402
from timescales.papers.cells import judge_cells  # noqa: E402
from timescales.papers.claims import judge_claims  # noqa: E402
from timescales.papers.parse import parse  # noqa: E402
from timescales.papers.table import Cell, Claim, Table, expand, matches  # noqa: E402
from timescales.papers.verdict import CellResult, ClaimResult, Verdict, Word, judge_table  # noqa: E402
from timescales.reports import error_rates  # noqa: E402
from timescales.runs.metrics import Censored  # noqa: E402
from timescales.runs.store import Row  # noqa: E402

Kind = Literal["normal", "two kinds", "fallen", "times", "failures"]
Axes = Mapping[str, Any]
APART = (Word.CLOSE_HIGHER, Word.CLOSE_LOWER, Word.HIGHER, Word.LOWER)
NEAR = (Word.AGREES, Word.CLOSE_HIGHER, Word.CLOSE_LOWER)
FALL = 30.0  # how far below the others a run is that has fallen, in standard deviations
# Of a claim: what the truth may be.
RIGHT = ("true", "equal", "within the tolerance")
WRONG = ("opposite", "outside the tolerance", "untrue")  # only here "refuted" is no error


@dataclass(frozen=True)
class Case:
    """A table, the truth about its settings, and how many runs each of them has."""

    shape: str  # the table
    truth: str
    n: int  # runs of a setting
    table: Table
    settings: Sequence[Axes]  # without the seed
    means: Sequence[float]  # of each setting, in the printed unit; of times the median, of failures their probability
    sds: Sequence[float]  # of times that of the logarithm
    kind: Kind = "normal"
    limit: float = math.inf  # a time above it is censored
    fallen: float = 0.0  # the share of runs that have fallen, with kind "fallen"
    redrawn: bool = False  # the paper's runs are drawn, too: what it prints has their error
    share: float = 1.0  # of --tables

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from other cases."""
        return self.shape, self.truth, self.n


@dataclass
class Tally:
    """How often each word came out."""

    tables: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)  # by truth and word
    claims: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by sign, truth and word
    errors: Counter[str] = field(default_factory=Counter)  # tables with at least one


def drawn(case: Case, tables: int, rng: np.random.Generator, n: int | None = None) -> np.ndarray:
    """Values of runs: (tables, settings, runs)."""
    shape = (tables, len(case.settings), n or case.n)
    mean, sd = (np.array(values, float)[None, :, None] for values in (case.means, case.sds))
    z = rng.standard_normal(shape)
    if case.kind == "times":
        return np.asarray(np.round(mean * np.exp(sd * z)))
    if case.kind == "failures":
        return np.asarray(rng.random(shape) >= mean, float)
    if case.kind == "fallen" and n is None:  # so many of our runs, none of the paper's
        z[..., : round(case.fallen * case.n)] -= FALL
    if case.kind == "two kinds":  # one of five lies 2 sd below the mean, the others .5 sd above; 1 % of noise
        z = np.where(rng.random(shape) < 0.2, -2.0, 0.5) + 0.1 * z
    return mean + sd * z


def rows_of(case: Case, values: np.ndarray) -> list[Row]:
    """The rows of one table's runs; values: (settings, runs)."""
    found = []
    for axes, of_setting in zip(case.settings, values.tolist(), strict=True):
        for seed, value in enumerate(of_setting):
            told = Censored(case.limit) if value > case.limit else value / case.table.scale
            read = {case.table.column: told}
            found.append(Row(id="", status="finished", seed=seed, axes={**axes, "seed": seed}, values=read))
    return found


def printed_again(case: Case, runs: np.ndarray) -> tuple[Cell, ...]:
    """The cells as another paper of the same truth prints them; runs: (settings, runs), about the means of the case."""
    found = []
    for cell in case.table.cells:
        (k,) = (k for k, axes in enumerate(case.settings) if matches(axes, cell.where))
        value = (cell.value or 0.0) + float(runs[k].mean()) - case.means[k]
        found.append(replace(cell, value=value, sd=float(runs[k].std(ddof=1))))
    return tuple(found)


def truth_of_cell(cell: Cell, case: Case) -> str:
    """How far the true mean is from the printed one."""
    (mean,) = (mean for axes, mean in zip(case.settings, case.means, strict=True) if matches(axes, cell.where))
    away = abs(mean - (cell.value or 0.0))
    if case.kind == "fallen":
        return case.truth
    return "as printed" if away < 1e-9 else "within the margin" if away < cell.margin - 1e-9 else "outside the margin"


def truth_of_claim(claim: Claim, case: Case) -> str:
    """Whether a claim is true of the settings, in all of its groups."""
    groups = claim.groups(range(len(case.settings)), case.settings.__getitem__)
    sides = [[case.means[side[0]] for side in group] for group in groups.values()]
    if claim.sign == "sometimes fails":  # of normal values: some are below the threshold
        own = [(case.means[side[0]], case.sds[side[0]]) for (side,) in groups.values()]
        assert claim.success is not None
        failing = [not claim.success.reached((mean - 1.5 * sd) / case.table.scale) for mean, sd in own]
        return "true" if all(failing) else "untrue"
    if claim.sign in ("fails", "never fails"):
        return "true" if all((p > 0.5) if claim.sign == "fails" else (p == 0.0) for (p,) in sides) else "untrue"
    leads = [(a - b) if claim.higher else (b - a) for a, b in sides]
    if not any(leads):
        return "equal"
    if claim.sign == "~":
        largest = max(map(abs, leads))
        return "within the tolerance" if largest < claim.tolerance - 1e-9 else "outside the tolerance"
    return "opposite" if min(leads) < 0 else "true" if min(leads) > 0 else "equal"


def judge(case: Case, tables: int) -> Tally:
    """Draw so many tables and judge them."""
    rng = np.random.default_rng(zlib.crc32(repr(case.key).encode()))
    values, tally = drawn(case, tables, rng), Tally()
    papers = drawn(case, tables, rng, n=5) if case.redrawn else None
    truths = [truth_of_cell(cell, case) for cell in case.table.cells]
    said = [truth_of_claim(claim, case) for claim in case.table.claims]
    for k in range(tables):
        rows = rows_of(case, values[k])
        cells = judge_cells(case.table.cells if papers is None else printed_again(case, papers[k]), rows)
        claims = judge_claims(case.table.claims, rows)
        count(tally, judge_table(cells, claims, rows), zip(cells, truths, strict=True), zip(claims, said, strict=True))
    return tally


def count(
    tally: Tally, table: Verdict, cells: Iterable[tuple[CellResult, str]], claims: Iterable[tuple[ClaimResult, str]]
) -> None:
    """Add the words of one table."""
    by_cell = [(truth, result.verdict.word) for result, truth in cells]
    by_claim = [(result.claim.sign, truth, result.verdict.word) for result, truth in claims]
    tally.tables[table.word] += 1
    tally.cells.update(by_cell)
    tally.claims.update(by_claim)
    errors = {
        "false difference": any(truth == "as printed" and word in APART for truth, word in by_cell),
        "false agreement": any(truth == "outside the margin" and word in NEAR for truth, word in by_cell),
        "false holds": any(word == Word.HOLDS and not right(sign, truth) for sign, truth, word in by_claim),
        "false refuted": any(word == Word.REFUTED and truth not in WRONG for _, truth, word in by_claim),
    }
    tally.errors.update(name for name, found in errors.items() if found)


def right(sign: str, truth: str) -> bool:
    """Whether a claim with this sign is right: of `>` not where both sides are equal."""
    return truth == "true" or (sign == "~" and truth in RIGHT)


# The cases


def cases() -> Iterator[Case]:
    """All of them."""
    yield from chien_table3()
    yield from gu_table2()
    yield from eighteen_values()
    yield from values()
    yield from orders()
    yield from likeness()
    yield from times()
    yield from failures()


def of_models(table: Table, *models: str) -> Table:
    """A table with the runs and the values of some models alone: not those that a paper cites from another one."""
    runs = tuple(grid for grid in table.runs if {*grid.values()["model"]} <= {*models})
    return replace(
        table, runs=runs, cells=tuple(cell for cell in table.cells if cell.where.get("model", models[0]) in models)
    )


def settings_of(table: Table) -> list[Axes]:
    """The settings of a table's runs, each once, without the seed."""
    found = {repr(axes): axes for given in expand(table) if (axes := {k: v for k, v in given.items() if k != "seed"})}
    return list(found.values())


def as_printed(table: Table, settings: Sequence[Axes], spread: float = 0.0) -> tuple[list[float], list[float]]:
    """The printed mean and spread of each setting; spread: where none is printed, in tolerances."""
    cells = [next(cell for cell in table.cells if matches(axes, cell.where)) for axes in settings]
    return [cell.value or 0.0 for cell in cells], [cell.spread or spread * cell.tolerance for cell in cells]


def chien_table3() -> Iterator[Case]:
    """18 values with spreads of 5 runs, 16 conclusions: of committed tables the one with most of both."""
    table = of_models(under.as_assumed(load.table("chien_table3")), "lstm", "chrono", "plstm")
    settings = settings_of(table)
    means, sds = as_printed(table, settings)
    for n, share in ((2, 0.2), (3, 0.3), (5, 1), (10, 0.3), (20, 0.1)):
        yield Case(table.name, "as printed", n, table, settings, means, sds, share=share)
    printed = Case(table.name, "as printed, the paper's runs drawn, too", 0, table, settings, means, sds, redrawn=True)
    outliers = replace(
        printed, truth="as printed, one run of five far below the others", kind="two kinds", redrawn=False
    )
    for about in (printed, outliers):
        yield from (replace(about, n=n, share=share) for n, share in ((5, 0.5), (10, 0.2)))
    for d in (0.5, 1, 2, 4):
        shifted = [
            mean - d * sd * (axes["model"] == "plstm") for axes, mean, sd in zip(settings, means, sds, strict=True)
        ]
        yield Case(table.name, f"pLSTM worse by {d:g} sd", 5, table, settings, shifted, sds, share=0.25)
    yield Case(table.name, "all models the same", 5, table, settings, *same(settings, means, sds), share=0.4)
    for n in (3, 5, 10):
        truth = "pLSTM and LSTM exchanged"
        yield Case(table.name, truth, n, table, settings, *exchanged(settings, means, sds), share=0.1)


def same(settings: Sequence[Axes], means: Sequence[float], sds: Sequence[float]) -> tuple[list[float], list[float]]:
    """Mean and spread of each setting if all models have those of their average."""
    shared = [[k for k, other in enumerate(settings) if others(other) == others(axes)] for axes in settings]
    return (
        [float(np.mean([means[k] for k in alike])) for alike in shared],
        [float(np.sqrt(np.mean([sds[k] ** 2 for k in alike]))) for alike in shared],
    )


def others(axes: Axes) -> dict[str, Any]:
    """Settings but for the model."""
    return {key: value for key, value in axes.items() if key != "model"}


def exchanged(
    settings: Sequence[Axes], means: Sequence[float], sds: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Mean and spread of each setting if LSTM and pLSTM have each other's."""
    swap = {"lstm": "plstm", "plstm": "lstm"}
    wanted = [{**axes, "model": swap.get(axes["model"], axes["model"])} for axes in settings]
    place = [settings.index(axes) for axes in wanted]
    return [means[k] for k in place], [sds[k] for k in place]


def gu_table2() -> Iterator[Case]:
    """9 values without spreads, 3 runs; no conclusion of the paper."""
    table = of_models(load.table("gu_table2"), "gated")
    settings = settings_of(table)
    for spread in (0.25, 0.5, 1):
        means, sds = as_printed(table, settings, spread)
        about = f"the spread is {spread:g} tolerances"
        for n in (2, 3, 5, 10):
            yield Case(table.name, f"as printed, {about}", n, table, settings, means, sds, share=0.5)
        for d in (0.5, 1, 2, 4):
            worse = [m - d * s * (axes["model.gate"] == "ur") for axes, m, s in zip(settings, means, sds, strict=True)]
            yield Case(table.name, f"UR worse by {d:g} sd, {about}", 3, table, settings, worse, sds, share=0.5)


def eighteen_values() -> Iterator[Case]:
    """18 values with spreads of 5 runs, all as far from the truth as the case says; the paper's runs are drawn, too."""
    cells = [{"where": {"model": "plstm", "task.T": k}, "value": 0, "sd": 1, "n": 5} for k in range(18)]
    table = replace(made_up(18, ">", 0.1, cells=cells)[0], claims=())
    settings = [axes for axes in settings_of(table) if axes["model"] == "plstm"]
    for n in (3, 5, 10):
        for away in (0, 1, 2):
            truth = f"{away} sd away" if away else "as printed"
            means, sds = [-float(away)] * 18, [1.0] * 18
            yield Case("18 values", truth, n, table, settings, means, sds, redrawn=True, share=0.3)
        for share, words in ((0.2, "one of five runs has fallen"), (0.6, "three of five runs have fallen")):
            about = Case("18 values", words, n, table, settings, [0.0] * 18, sds, "fallen", fallen=share, redrawn=True)
            yield replace(about, share=0.3)


def values() -> Iterator[Case]:
    """One printed value, the mean of 5 runs with a spread of 1, which are drawn, too; margins of 2 and 4 spreads."""
    for margin in (2, 4):
        table, settings = made_up(0, ">", margin, cells=[{"where": {"model": "plstm"}, "value": 0, "sd": 1, "n": 5}])
        for away in (0, 0.5, 1, 2):
            truth = f"{away:g} margins away" if away else "as printed"
            for n in (2, 3, 5, 10, 20):
                about = Case(f"1 value, margin {margin} sd", truth, n, table, settings[:1], [away * margin], [1.0])
                yield replace(about, redrawn=True, share=0.5)


def made_up(claims: int, sign: str, tolerance: float = 1.0, **more: Any) -> tuple[Table, list[Axes]]:
    """A table of two models in as many settings as there are claims, one claim each."""
    places = list(range(claims))
    node: dict[str, Any] = {"name": "made_up", "title": "-", "source": "-"}
    node |= {"metric": "valid/score", "select": "last", "unit": "1"}
    lines = [f"plstm {sign} lstm @ task.T={k}" if sign in ">~" else f"plstm {sign} @ task.T={k}" for k in places]
    node |= {"better": "higher", "n_min": 1, "tolerance": tolerance, "cells": []}
    node |= {"runs": [{"task": "copy", "task.T": places or 0, "model": ["plstm", "lstm"], "seed": [0, 1, 2, 3, 4]}]}
    node |= {"claims": [{"claim": line, "quote": "-", "at": "-"} for line in lines]}
    table = parse(node | more)
    return table, settings_of(table)


def by_model(settings: Sequence[Axes], plstm: float, lstm: float) -> list[float]:
    """A number for each setting by its model."""
    return [plstm if axes["model"] == "plstm" else lstm for axes in settings]


def orders() -> Iterator[Case]:
    """Claims `A > B`, normal values with equal spread: 1 alone, and 10 in a table."""
    for claims, ns in ((1, (2, 3, 5, 10, 20)), (10, (3, 5, 10))):
        table, settings = made_up(claims, ">")
        for d in (0, 0.5, 1, 2, 4):
            for n in ns:
                means, truth = by_model(settings, d, 0), f"better by {d:g} sd" if d else "equal"
                share = 1 if claims == 1 else 0.1
                shape = f"{claims} claim{'s' * (claims > 1)} A > B"
                yield Case(shape, truth, n, table, settings, means, [1.0] * len(settings), share=share)


def likeness() -> Iterator[Case]:
    """Claims `A ~ B`, alone: true differences in tolerances, and spreads of half a tolerance and of a whole one."""
    table, settings = made_up(1, "~")
    for spread in (0.25, 0.5, 1.0):
        for apart in (0, 0.5, 1, 2):
            truth = f"{apart:g} tolerances apart, the spread is {spread:g}"
            for n in (2, 3, 5, 10, 20):
                means = by_model(settings, apart, 0)
                yield Case("1 claim A ~ B", truth, n, table, settings, means, [spread] * len(settings))


def times() -> Iterator[Case]:
    """Claims "A is faster than B": log-normal times with a spread of 30 %, censored at three times B's median."""
    steps = "steps to valid/score >= 0.99"
    truths = {
        "equal": 1000,
        "B takes 1.5 times as long": 1500,
        "B takes twice as long": 2000,
        "B never gets there": 1e6,
    }
    for claims, ns in ((1, (3, 4, 5, 10)), (10, (4, 5))):
        table, settings = made_up(claims, ">", metric=steps, better="lower", unit="steps")
        shape = f"{claims} claim{'s' * (claims > 1)} A > B on times"
        share = 0.5 if claims == 1 else 0.1
        for truth, slow in truths.items():
            for n in ns:
                means, sds = by_model(settings, 1000, slow), [0.3] * len(settings)
                about = Case(shape, truth, n, table, settings, means, sds, "times", limit=3000)
                yield replace(about, share=share if n < 10 else 0.1)
        for n in ns:
            about = Case(shape, "equal, half are censored", n, table, settings, [1000] * len(settings), sds, "times")
            yield replace(about, limit=1000, share=share if n < 10 else 0.1)


def failures() -> Iterator[Case]:
    """Claims "A fails" and "A never fails", by the probability that a run fails."""
    for sign, chances in (("fails", (0, 0.2, 0.4, 0.6, 0.8, 1)), ("never fails", (0, 0.02, 0.05, 0.2))):
        table, settings = made_up(1, sign, success="valid/score > 0.5")
        for chance in chances:
            for n in (3, 5, 10):
                truth = f"a run fails with probability {chance:g}"
                means = [chance] * len(settings)
                yield Case(f"1 claim A {sign}", truth, n, table, settings, means, means, "failures")


# What is written


def table_lines(case: Case, tally: Tally, tables: int) -> dict[str, Any]:
    """A line of tables.csv."""
    line = dict(zip(("shape", "truth", "n"), case.key, strict=True)) | {"tables": tables}
    return line | shares(tally.tables, tables) | shares(tally.errors, tables)


def shares(counter: Mapping[str, int], of: int) -> dict[str, float]:
    """Counts as shares."""
    return {str(name): round(number / of, 4) for name, number in counter.items()}


def lines_of(case: Case, counter: Counter[Any], names: Sequence[str], what: str) -> list[dict[str, Any]]:
    """Lines of cells.csv or claims.csv: one for each truth; names: the columns that tell it."""
    about = dict(zip(("shape", "truth", "n"), case.key, strict=True))
    found = []
    for of in dict.fromkeys(key[:-1] for key in counter):
        words = Counter({key[-1]: number for key, number in counter.items() if key[:-1] == of})
        judged = words.total()
        found.append({**about, **dict(zip(names, of, strict=True)), what: judged, **shares(words, judged)})
    return found


def simulate(tables: int, wanted: str = "") -> dict[str, list[dict[str, Any]]]:
    """The lines of the three files; wanted: part of the names of the tables to draw."""
    found: dict[str, list[dict[str, Any]]] = {"cells": [], "claims": [], "tables": []}
    bar = tqdm([case for case in cases() if wanted in case.shape])
    for case in bar:
        bar.set_description(case.shape)
        number = max(1, round(case.share * tables))
        tally = judge(case, number)
        found["tables"].append(table_lines(case, tally, number))
        found["cells"] += lines_of(case, tally.cells, ["value"], "values")
        found["claims"] += lines_of(case, tally.claims, ["sign", "claim"], "claims")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--tables", type=int, default=1000, help="drawn a case; some take a part of it")
    parser.add_argument("--to", type=Path, default=paths.RESULTS / "statistics", metavar="DIR")
    options = parser.parse_args()
    for path in error_rates.write(simulate(options.tables), options.to):
        print(path)


if __name__ == "__main__":
    main()
