"""A report's words: results/<table>/table.md and the index of all tables. report.py has the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from timescales import tables, verdict
from timescales.runs import metrics
from timescales.verdict import number

if TYPE_CHECKING:
    from timescales.report import Report


def table(report: Report) -> str:
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
    if any(name.startswith("steps to ") for name in verdict.metrics(table)):
        lines += ["`>N`: a run that never got there; it counts as all of the N steps it might have taken.", ""]
    lines += ["## Paper size", "", f"{len(report.rows['paper'])} of {len(report.asked['paper'])} runs are there.", ""]
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


def _claims(title: str, claims: Sequence[verdict.Judgement]) -> list[str]:
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
    everyone = name.startswith("steps to ")  # as in claims
    frame = pandas.DataFrame([{k: say(v) for k, v in row["axes"].items()} | {
        "ours": row.get(name), "counts": everyone or bool(verdict.outcome(row, table)), "minutes": row["seconds"] / 60,
    } for row in report.rows["tiny"]])  # fmt: skip
    axes = [
        key for key in frame.columns if key not in ("ours", "counts", "minutes", "seed") and frame[key].nunique() > 1
    ]
    first, *others = tables.tiny_sets(table)
    shared = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
    settings = ", ".join(f"{key}={say(value)}" for key, value in shared.items() if key not in axes)
    body = []
    for group, rows in frame.groupby(axes or (lambda k: 0), sort=False, dropna=False):
        values = rows["ours"][rows["counts"]].dropna() * unit
        failed = f"{(~rows['counts']).sum()} failed, not in the mean" if not rows["counts"].all() else ""
        spread = _with_sd(values.mean(), values.std() if len(values) > 1 else None) if len(values) else ""
        own = {k: report.rows["tiny"][k][name] for k in rows["ours"].dropna().index}
        over = any(isinstance(own[k], metrics.Over) for k in values.index)
        each = " ".join(number(v if isinstance(v, metrics.Over) else v * unit) for v in own.values())
        body.append([*(group if axes else []), ">" * over + spread, len(rows), each, failed,
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
        claims += " so far" * (bool(held.keys() - {"open"}) and not r.complete("paper"))
        link = f"[{name}]({name}/table.md)" if any(r.rows.values()) else name
        body.append([link, r.table["source"], r.verdict, cells, claims, r.shown_here(), r.price({})])
    head = ["table", "source", "paper size", "cells", "claims", "shown here (tiny)", "open"]
    return "\n".join([
        "# Results", "", *outcome(reports), "",
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


def outcome(reports: Sequence[Report]) -> list[str]:
    """What became of all tables, in a line for each size; a verdict's remarks in brackets are left out."""
    sizes = {"At paper size": [r.verdict for r in reports], "Shown here": [r.shown_here() for r in reports]}
    lines = []
    for size, words in sizes.items():
        count = Counter(word.partition(" (")[0] for word in words)
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
