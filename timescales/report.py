"""From records to results/<table>/: runs.csv, curves, table.md, picture; and the index of all tables. Never trains."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timescales import compose, cost, record, schema, store, tables, verdict
from timescales.files import csv_rows, csv_text, write_atomic
from timescales.verdict import number

POINTS = 200  # of a committed curve
PROFILES = (None, "tiny")


@dataclass
class Report:
    """A table, its runs as far as there are any, and what they say."""

    table: Mapping[str, Any]
    rows: dict[str, list[dict[str, Any]]]  # by profile: "paper", "tiny"
    asked: dict[str, int]  # runs by profile
    missing: list[str] = field(default_factory=list)  # why some runs cannot be composed here
    left: list[tuple[dict[str, Any], float | None]] = field(default_factory=list)  # open runs: axes, seconds if known
    dropped: int = 0  # committed runs that the table does not ask for any more
    kinds: set[str] = field(default_factory=set)  # of all its runs, see `schema.kind`
    own: bool = False  # a table in a folder of one's own, which make does not know
    unread: list[str] = field(default_factory=list)  # what the table reads and no run here has, a line each

    def __post_init__(self) -> None:
        tiny = tables.twin(self.table)
        self.cells = [verdict.cell(c, self.table, self.rows["paper"]) for c in self.table["cells"]]
        self.claims = [verdict.claim(c, self.table, self.rows["paper"]) for c in self.table["claims"]]
        self.shown = [verdict.claim(c, tiny, self.rows["tiny"]) for c in tiny["claims"]]
        self.verdict = verdict.whole(self.cells, self.claims, len(self.rows["paper"]) >= self.asked["paper"])
        self.verdict += verdict.partial(self.rows["paper"]) if self.verdict != "open" else ""

    def shown_here(self) -> str:
        """The tiny twin in a word: does the order that the paper concludes appear at 1/n of its size?

        If it does not, nothing is contradicted: the size may be the reason.
        """
        said = {verdict.word_of(c) for c in self.shown}
        if not self.table.get("tiny"):
            return "no twin"
        if not self.rows["tiny"]:
            return "not run"
        if not self.shown:
            return "no order expected"
        if {"open", "stale"} & said:
            return "open"
        word = "not in order" if {"refuted", "reversed"} & said else "order shown"
        return word + verdict.partial(self.rows["tiny"])

    def price(self, where: Mapping[str, Any]) -> str:
        """What the open runs with these settings will take on a machine like those that were timed."""
        mine = [seconds for axes, seconds in self.left if tables.matches(axes, where)]
        known = [seconds for seconds in mine if seconds is not None]
        minutes = sum(known) / 60
        spent = f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.{1 if minutes < 600 else 0}f} h"
        words = [f"{_runs(len(known))}: {spent}"] * bool(known)
        words += [f"{_runs(len(mine) - len(known))} not timed"] * (len(known) < len(mine))
        return ", ".join(words)


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def make(name: str, composer: compose.Composer, local: bool = True, own: bool = False) -> Report:
    """The report of the table of this name, with what its open runs will take; `local`: count what is in runs/.

    Runs that cannot be composed (a task that is not there) are named in it. Raises ConfigError if there is no table.
    """
    table = compose.table(name)
    asked: dict[str, list[tuple[tables.Run, str]]] = {}
    counts: dict[str, int] = {}
    kinds: dict[str, str] = {}
    missing: list[str] = []
    for profile in PROFILES:
        runs, wrong = compose.runs(table, profile, composer)
        mine = asked[profile or "paper"] = [(run, schema.slug(cfg)) for run, cfg in runs]
        kinds |= {schema.id_of(slug): schema.kind(cfg) for (_, slug), (_, cfg) in zip(mine, runs, strict=True)}
        counts[profile or "paper"] = len(runs) + len(wrong)
        missing += wrong
    rows, dropped = gather(table, asked, local)
    left = open_runs(asked["paper"], kinds, rows["paper"])
    why = list(dict.fromkeys(missing))
    lacking: dict[str, None] = {}
    for size, part in (("paper", table), ("tiny", tables.twin(table))):
        records = [found for _, slug in asked[size] if local and (found := record.read(store.RUNS / slug))]
        lacking |= dict.fromkeys(unread(part, records) if len(records) == counts[size] else [])
    return Report(table, rows, counts, why, left, dropped, set(kinds.values()), own, list(lacking))


def unread(table: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each metric that the table reads and none of its runs has, all here, a typing error perhaps."""
    have = {key for found in records for values in (found["metrics"], found["last"], *found["curve"]) for key in values}
    names = [name.removeprefix("steps to ").removeprefix("best ").removeprefix("last ").split()[0]
             for name in verdict.metrics(table) if not name.startswith("probe/")]  # fmt: skip
    lacking = [name for name in dict.fromkeys(names) if records and name not in have]
    return [f"none of its {len(records)} runs here has {name}{schema.nearest(name, have)}" for name in lacking]


def gather(
    table: Mapping[str, Any], runs: Mapping[str, Sequence[tuple[tables.Run, str]]], local: bool
) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """The rows of those runs that have ended, by profile, and how many committed ones the table does not ask for.

    runs: by profile, each with its slug. A run counts by its id: as it lies in runs/ (if `local`), else as it was
    committed under results/. One that goes on or broke off with an error has no result yet: it is open.
    """
    own = {row["id"]: row for row in store.read_rows(store.RESULTS / table["name"] / "runs.csv")}
    committed = store.committed() | own
    found: dict[str, list[dict[str, Any]]] = {}
    for profile, asked in runs.items():
        found[profile] = []
        for run, slug in asked:
            mine = record.read(store.RUNS / slug) if local else None
            known = committed.get(schema.id_of(slug))
            if mine is not None and mine["status"] not in store.ENDED:
                mine = None
            if mine is not None and known is not None and mine["partial"] and not known["partial"]:
                mine = None  # the same run is committed on the whole data
            row = _row(table, run, profile, mine, known)
            if row is not None and row["status"] in store.ENDED:
                folder = store.RESULTS / table["name"] / "blocks"
                blocks = store.RUNS / slug / "blocks.csv" if mine is not None else folder / f"{row['id']}.csv"
                row["blocks"] = blocks.read_text() if blocks.is_file() else None
                found[profile].append(row)
    return found, len(set(own) - {schema.id_of(slug) for asked in runs.values() for _, slug in asked})


def open_runs(
    asked: Sequence[tuple[tables.Run, str]], kinds: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[dict[str, Any], float | None]]:
    """Those of the runs asked for that are open: axes, and the seconds they will take if known (`cost.prices`).

    asked: each with its slug; kinds: by a run's id (`schema.kind`); rows: of those that have ended.
    """
    ended = {row["id"] for row in rows if row["status"] in store.ENDED and not row["stale"]}
    seconds = cost.prices((kinds[row["id"]], row) for row in rows)
    ids = [(run.axes, schema.id_of(slug)) for run, slug in asked]
    return [(axes, seconds.get(kinds[run_id])) for axes, run_id in ids if run_id not in ended]


def _row(
    table: Mapping[str, Any], run: tables.Run, profile: str, mine: dict[str, Any] | None, known: dict[str, Any] | None
) -> dict[str, Any] | None:
    """A run's row from its record, else from what was committed: the values that this table reads, and no others."""
    names = verdict.metrics(table)
    probes = tuple(f"probe/{name}/" for name in table.get("probe", []))
    if mine is not None:
        names += [f"probe/{key}" for key in mine.get("probes", {}) if f"probe/{key}".startswith(probes)]
        row = store.row(mine, run.axes, profile, dict.fromkeys(names)) | {"curve": mine["curve"]}
    elif known is not None:
        names += [key for key in known if key.startswith(probes)]
        row = {key: known.get(key) for key in (*store.COLUMNS, *dict.fromkeys(names))}
    else:
        return None
    return row | {"axes": run.axes, "profile": profile, "stale": store.stale(row)}


def write(report: Report) -> list[Path]:
    """Write runs.csv, curves/ and table.md of a table with any runs; returns the files (pictures: plots.py)."""
    folder = store.RESULTS / report.table["name"]
    rows = [row for profile in report.rows.values() for row in profile]
    if not rows:
        return []
    (folder / "curves").mkdir(parents=True, exist_ok=True)
    files = {
        folder / "runs.csv": store.rows_text([_storable(row) for row in rows]),
        folder / "table.md": markdown(report),
    }
    files |= {folder / "curves" / f"{row['id']}.csv": _curve(row["curve"]) for row in rows if row.get("curve")}
    files |= {folder / "blocks" / f"{row['id']}.csv": row["blocks"] for row in rows if row.get("blocks")}
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, text.encode())
    return list(files)


def _storable(row: Mapping[str, Any]) -> dict[str, Any]:
    axes = json.dumps({k: v for k, v in row["axes"].items() if k != "seed"})
    return {k: v for k, v in row.items() if k not in ("curve", "stale", "blocks")} | {"axes": axes}


def _curve(points: Sequence[Mapping[str, float]]) -> str:
    """A curve as CSV, at most POINTS lines of it, the first and the last among them."""
    points = thinned(points, POINTS)
    names = list(dict.fromkeys(key for point in points for key in point))
    return csv_text(points, names)


def thinned(points: Sequence[Any], most: int) -> Sequence[Any]:
    """At most so many of a curve's points, evenly, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(k * (len(points) - 1) / (most - 1))] for k in range(most)]


def curve(table: Mapping[str, Any], row: Mapping[str, Any]) -> list[dict[str, float]]:
    """A run's curve: from its record, or as committed with any table."""
    if row.get("curve"):
        return list(row["curve"])
    own = store.RESULTS / table["name"] / "curves" / f"{row['id']}.csv"
    paths = [own, *sorted(store.RESULTS.glob(f"*/curves/{row['id']}.csv"))]
    path = next((p for p in paths if p.is_file()), own)
    return [{k: float(v) for k, v in line.items() if v} for line in csv_rows(path)]


def markdown(report: Report) -> str:
    """table.md: each cell a row, with its verdict; claims; the tiny twin; what the paper does not say; cost."""
    table, name = report.table, report.table["name"]
    lines = [
        f"# {name}: {table['title']}", "",
        f"{table['source']}; {table['unit']}.",
        f"At paper size: **{report.verdict}**. Shown here: **{report.shown_here()}**.",
        "", "```bash", *_commands(report), "```", "",
    ]  # fmt: skip
    if table.get("figure"):
        lines += [f"![{table['title']}](figure.png)", ""]
    if any(part["metric"].startswith("steps to ") for part in (table, tables.twin(table))):
        lines += ["`>N`: a run that never got there; it counts as all of the N steps it might have taken.", ""]
    lines += ["## Paper size", "", f"{len(report.rows['paper'])} of {report.asked['paper']} runs are there.", ""]
    lines += _cells(report) + _claims("What the paper concludes", report.claims) + _bootstrap(report)
    if report.rows["tiny"]:
        lines += _tiny(report)
    if table.get("cited"):
        body = [[c["label"], _printed(c), c["source"]] for c in table["cited"]]
        lines += ["## Other people's models, cited", "", *grid(["model", "value", "source"], body), ""]
    if table.get("assumed"):
        lines += ["## What the paper leaves open, and what is assumed", ""]
        lines += [f"- `{key}`: {entry['said']}" for key, entry in table["assumed"].items()] + [""]
    if table.get("notes"):
        lines += ["## Notes", "", *(f"- {note}" for note in table["notes"]), ""]
    return "\n".join([*lines, *_cost(report)]).rstrip() + "\n"


def _commands(report: Report) -> list[str]:
    """What makes the runs: of the paper's size, and of the tiny twin if there is one."""
    name = report.table["name"]
    if report.own:
        command = f"python train.py --config-dir FOLDER table={name}"
        whole, tiny = (
            f"{command}                 # paper size; FOLDER has table/{name}.yaml",
            f"{command} profile=tiny ",
        )
    else:
        whole, tiny = f"make reproduce TABLE={name}    # paper size", f"make tiny TABLE={name}      "
    return [whole, f"{tiny}   # shown here"] if report.table.get("tiny") else [whole]


def _cells(report: Report) -> list[str]:
    cells = report.table["cells"]
    if not cells:
        return []
    keys = list(dict.fromkeys(key for cell in cells for key in cell.get("where", {})))
    labelled = any("label" in cell for cell in cells)
    others = verdict.other_selections(report.table)
    body = []
    for cell in report.cells:
        where, values = cell.printed.get("where", {}), [value for _, value in cell.values]
        seeds = (
            " ".join(map(number, values)) if len(values) <= 10 else f"{number(min(values))} to {number(max(values))}"
        )
        body.append([
            *([cell.printed.get("label", "")] if labelled else []), *(say(where.get(key, "")) for key in keys),
            _printed(cell.printed), _with_sd(cell.mean, cell.sd), cell.n or "",
            "" if cell.median is None else number(cell.median), seeds,
            cell.verdict + ("" if cell.p is None else f", p = {cell.p:.2g}"),
            *(_selected(report, cell, other) for other in others), report.price(where),
        ])  # fmt: skip
    head = [*(["what"] if labelled else []), *(key.split(".")[-1] for key in keys)]
    head += ["paper", "ours", "n", "median", "every seed", "verdict", *(f"ours if select={o}" for o in others), "open"]
    return [*grid(head, body), ""]


def _selected(report: Report, cell: verdict.Cell, select: str) -> str:
    """A cell's verdict if its runs' values had been selected otherwise; the same runs succeeded."""
    metric = verdict.full_name(cell.printed.get("metric", report.table["metric"]), {"select": select})
    found = verdict.cell({**cell.printed, "metric": metric}, report.table, report.rows["paper"])
    few = f" (n={found.n})" if found.n < cell.n and "(n=" not in found.verdict else ""
    return "" if found.mean is None else f"{_with_sd(found.mean, found.sd)}: {found.verdict}{few}"


def verdicts(report: Report) -> tuple[list[str], list[list[Any]]]:
    """Every printed value and every conclusion as a row, for whoever takes a table elsewhere: head and body."""
    body: list[list[Any]] = []
    for cell in report.cells:
        where = ", ".join(f"{key}={say(value)}" for key, value in cell.printed.get("where", {}).items())
        what = ": ".join(filter(None, [cell.printed.get("label", ""), where]))
        body.append([what, _printed(cell.printed), _with_sd(cell.mean, cell.sd), cell.n, cell.verdict, cell.p])
    for size, claims in (("", report.claims), (" (tiny)", report.shown)):
        body += [[c.text + size, "", c.detail, "", c.verdict, c.p] for c in claims]
    return ["what", "paper", "ours", "n", "verdict", "p"], body


def _bootstrap(report: Report) -> list[str]:
    """Differences of perplexity between LSTM and MTS runs on the same words, by paired bootstrap over their blocks."""
    if "bins" not in report.table.get("probe", []):
        return []
    from timescales.analysis import bins

    body = []
    pairs: dict[str, dict[str, str]] = {}
    for row in report.rows["paper"]:
        if row.get("blocks"):
            axes = {key: value for key, value in row["axes"].items() if key.partition(".")[0] != "model"}
            where = ", ".join(f"{key}={say(value)}" for key, value in axes.items())
            pairs.setdefault(where, {})[row["axes"]["model"]] = row["blocks"]
    for where, texts in pairs.items():
        if {"lstm", "mts"} <= set(texts):
            found = bins.summary(bins.resampled(texts["lstm"], texts["mts"]))
            for k, name in enumerate((*bins.NAMES, "all")):
                value = {key: number(float(values[k])) for key, values in found.items()}
                body.append([where, name, value["mean"], f"[{value['low']}, {value['high']}]",
                             f"[{value['authors_low']}, {value['authors_high']}]"])  # fmt: skip
    if not body:
        return []
    head = ["runs", "words", "LSTM minus MTS", "95 %", "authors' interval (99.9 %)"]
    return ["### Paired bootstrap of the difference", "", *grid(head, body), ""]


def _claims(title: str, claims: Sequence[verdict.Claim]) -> list[str]:
    if not claims:
        return []
    body = [[c.text, c.verdict, "" if c.p is None else f"{c.p:.2g}", c.detail] for c in claims]
    return [f"### {title}", "", *grid(["claim", "verdict", "p", "ours"], body), ""]


def _tiny(report: Report) -> list[str]:
    """The tiny twin: a row for each configuration, its mean, and its own claims."""
    import pandas

    table = tables.twin(report.table)
    name = verdict.full_name(table["metric"], table)
    unit = verdict.scale({}, table)
    frame = pandas.DataFrame([
        {k: say(v) for k, v in row["axes"].items()}
        | {"ours": row.get(name), "status": row["status"], "minutes": row["seconds"] / 60}
        for row in report.rows["tiny"]
    ])  # fmt: skip
    axes = [
        key for key in frame.columns if key not in ("ours", "status", "minutes", "seed") and frame[key].nunique() > 1
    ]
    settings = ", ".join(f"{key}={say(value)}" for key, value in table["tiny"]["set"].items() if key not in axes)
    body = []
    for group, rows in frame.groupby(axes or ["status"], sort=False, dropna=False):
        values = rows["ours"].dropna() * unit
        ended = f"{(rows['status'] != 'finished').sum()} diverged" if (rows["status"] != "finished").any() else ""
        spread = _with_sd(values.mean(), values.std() if len(values) > 1 else None) if len(values) else ""
        own = [report.rows["tiny"][k][name] for k in values.index]
        over = any(isinstance(value, store.Over) for value in own)
        each = " ".join(number(v if isinstance(v, store.Over) else v * unit) for v in own)
        body.append([*(group if axes else []), ">" * over + spread, len(rows), each, ended,
                     f"{rows['minutes'].mean():.1f}"])  # fmt: skip
    head = [
        *(key.split(".")[-1] for key in axes),
        f"{table['metric']} ({table['unit']})",
        "n",
        "every seed",
        "",
        "minutes a run",
    ]
    return [
        "## Shown here", "", "The same at a size for a CPU: an indication of the order, no reproduction of values.",
        f"({settings})", "", *grid(head, body), "", *_claims("The order expected at this size", report.shown),
    ]  # fmt: skip


def _cost(report: Report) -> list[str]:
    lines = ["## Cost and origin", ""]
    for profile, rows in report.rows.items():
        hours: Counter[str] = Counter()
        for row in rows:
            hours[f"{row['machine']}, {row['threads']} thread{'s' if row['threads'] != 1 else ''}"] += (
                row["seconds"] / 3600
            )
        commits = ", ".join(sorted({str(row["commit"]) for row in rows}))
        lines += [f"- {profile}: {h:.2f} h on {machine}" for machine, h in sorted(hours.items())]
        lines += [f"- {profile}: code of {commits}"] if rows else []
        parts = sorted({row["partial"] for row in rows if row["partial"]})
        lines += [f"- {profile}: not the whole data: {part}" for part in parts]
    return lines


def index(reports: Sequence[Report]) -> str:
    """results/README.md: every table with its verdicts."""
    body = []
    for r in reports:
        name = r.table["name"]
        words = Counter(map(verdict.word_of, r.cells))
        cells = ", ".join(f"{count} {word}" for word, count in sorted(words.items())) or "no printed values"
        held = Counter(map(verdict.word_of, r.claims))
        claims = ", ".join(f"{n} {'hold' if word == 'holds' and n > 1 else word}" for word, n in sorted(held.items()))
        link = f"[{name}]({name}/table.md)" if any(r.rows.values()) else name
        body.append([link, r.table["source"], r.verdict, cells, claims, r.shown_here(), r.price({})])
    head = ["table", "source", "paper size", "cells", "claims", "shown here (tiny)", "open"]
    return "\n".join([
        "# Results", "", *_outcome(reports), "",
        "Written by `make report` from the records.",
        "*Paper size* is the paper's protocol; *shown here* is a twin for a CPU, judged by the order of the models, in",
        "claims of its own, often fewer than the paper's.",
        "*Open* is the price of the runs that are missing at paper size (in each table: of its cells): by finished",
        "runs of their kind, else by a few steps on the fastest machine that was timed ([speed.csv](speed.csv)); at",
        "most, since tasks may stop early. A run that several tables share is counted in each.",
        "Each cell is judged by itself at 5 %: where all 18 of a table's are as printed, one or more still come out as",
        "better or worse in six tables of ten (1 - .95^18).",
        "Dated notes, also on what went wrong: [LOG.md](LOG.md). Speed: [bench](bench).", "", *grid(head, body), "",
    ])  # fmt: skip


def _outcome(reports: Sequence[Report]) -> list[str]:
    """What became of all tables, in a line for each size; a verdict's remarks in brackets are left out."""
    sizes = {"At paper size": [r.verdict for r in reports], "Shown here": [r.shown_here() for r in reports]}
    lines = []
    for size, words in sizes.items():
        count = Counter(word.partition(" (")[0].removesuffix(" so far") for word in words)
        lines.append(f"- {size}: {'; '.join(f'{n} {word}' for word, n in count.most_common())}.")
    return [f"Of {len(reports)} tables and figures:", "", *lines]


def grid(head: Sequence[Any], body: Sequence[Sequence[Any]]) -> list[str]:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(str(entry).replace("|", "\\|") for entry in row) + " |" for row in rows]


def say(value: Any) -> str:
    """A setting for people."""
    return {True: "yes", False: "no", None: "none"}[value] if isinstance(value, bool | None) else str(value)


def _with_sd(mean: float | None, sd: float | None) -> str:
    if mean is None:
        return ""
    return number(mean) + ("" if sd is None else f" ({sd:.0f})" if sd >= 100 else f" ({sd:.2g})")


def _printed(cell: Mapping[str, Any]) -> str:
    if cell["value"] is None:
        return ""
    spread = (
        f" ({cell['sd']})" if cell.get("sd") is not None else f" +- {cell['se']}" if cell.get("se") is not None else ""
    )
    return f"{cell['value']}{spread}"
