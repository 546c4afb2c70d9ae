"""Store the weights of a table's runs at the paper's size in results/TABLE/weights, each with a model card.

The best weights of a run in runs/ are stored as ID.safetensors, with the card ID.md. Runs are added in the order of
their seeds while there is room: `TABLE_BYTES` for a table, `ALL_BYTES` for all tables. Weights without room are listed
in index.csv and README.md, and stay only where they were trained.
"""

from collections.abc import Sequence
from pathlib import Path

from timescales.config import Settings
from timescales.files import write_atomic
from timescales.papers.table import PAPER, Table
from timescales.reports.report import Report
from timescales.runs import weights
from timescales.runs.record import Record, State
from timescales.runs.store import Row
from timescales.runs.weights import FOLDER, INDEX, SUFFIX, About, Entry

TABLE_BYTES, ALL_BYTES = 2_000_000, 28_000_000


def write(report: Report) -> list[Path]:
    """Write the weights of a table's runs that are in runs/ and have no weights stored yet. Return the paths."""
    folder = report.folder / FOLDER
    before = {entry.id: entry for entry in weights.read_index(folder / INDEX)}
    known = dict(before)
    stored = {entry.id: entry.bytes for entry in known.values() if entry.kept}
    in_all = sum(path.stat().st_size for path in report.results.glob(f"*/{FOLDER}/*{SUFFIX}"))
    room = min(TABLE_BYTES - sum(stored.values()), ALL_BYTES - in_all)
    files: dict[Path, bytes] = {}
    for row in sorted(report.rows[PAPER], key=lambda row: row.seed):
        left_out = row.id in known and not known[row.id].kept and known[row.id].bytes > room
        if left_out or not _has_more(row, folder, report.results):
            continue
        assert row.directory is not None
        tensors, about = weights.of_run(row.directory)
        about |= {"table": report.table.name, "size": row.rung, "settings": dict(row.axes)}
        content = weights.packed(tensors, about)
        replaced = stored.pop(row.id, 0)
        fits = len(content) <= room + replaced
        known[row.id] = Entry(row.id, row.seed, row.rung, len(content), fits, row.axes)
        for old in (folder / f"{row.id}{SUFFIX}", folder / f"{row.id}.md"):
            old.unlink(missing_ok=True)  # of an earlier training
        if fits:
            room += replaced - len(content)
            files[folder / f"{row.id}{SUFFIX}"] = content
            files[folder / f"{row.id}.md"] = card(about, report.table).encode()
    if files or known != before:
        entries = sorted(known.values(), key=lambda each: (each.size, each.seed, str(each.settings)))
        files[folder / INDEX] = weights.index_text(entries).encode()
        files[folder / "README.md"] = list_of(entries, report.table).encode()
        folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        write_atomic(path, content)
    return list(files)


def _has_more(row: Row, folder: Path, results: Path) -> bool:
    """Return whether a run has finished in runs/, and its weights are not stored, or from another training."""
    if row.directory is None or row.status != State.FINISHED.value or not (row.directory / "best.pt").is_file():
        return False
    files = sorted(results.glob(f"*/{FOLDER}/{row.id}{SUFFIX}"))
    if not files:
        return True
    about, record = weights.about_file(files[0]), Record.read(row.directory)
    assert record is not None
    same = about is not None and all(about["trained"][key] == getattr(record, key) for key in ("commit", "seconds"))
    return files[0].parent == folder and not same


# --- in words ---------------------------------------------------------------------------------------------------------

FRONT = """\
---
library_name: timescales
license: mit
tags: [recurrent-neural-network, time-scales, {tags}]
---
"""
CARD = """\
# {model} on {task}: {id}

The weights of the best validation of one run of `{table.name}`, {table.title} ({table.source}).

| | |
| --- | --- |
{lines}

```python
import timescales

model = timescales.load("{id}")  # in a checkout
model = timescales.load("FOLDER/{id}.safetensors")  # in a copy of this folder
model = timescales.load("hf:OWNER/REPOSITORY/{id}")  # at a hub: pip install 'timescales-rnn[train,hub]'
```

Licence: MIT, as the code. The data that it was trained on have licences of their own.
"""
LIST = """\
# Weights of {table.name}

{table.title} ({table.source}). The best weights of {stored} of its runs, a card beside each.
`timescales.load("{name}/MODEL", seed=0)` loads one in a checkout, `timescales.load("FOLDER/MODEL", seed=0)` from a
copy of this folder, `timescales.load("hf:OWNER/REPOSITORY/MODEL", seed=0)` from a hub. Instead of MODEL, the id of
a run takes that run. Licence: MIT.

| model | seed | settings | bytes | weights |
| --- | --- | --- | --- | --- |
{lines}
"""


def card(about: About, table: Table) -> str:
    """Write the model card of a run."""
    config, best, trained = about["config"], about["best"], about["trained"]
    model, task = config["model"]["name"], config["task"]["name"]
    metrics = ", ".join(f"{key} {value:.4g}" for key, value in sorted(about["metrics"].items()) if value is not None)
    at = best and f"{best['metric']} {best['value']:.4g} after {best['step']:,} of {about['steps']:,} steps"
    versions = ", ".join(f"{name} {version}" for name, version in trained["versions"].items())
    lines = {
        "id, seed": f"`{about['id']}`, {about['seed']}",
        "size": "the paper's size" if about["size"] == PAPER else f"rung {about['size']}",
        "settings": _settings(about["settings"]),
        "parameters": f"{about['parameters']:,}",
        "best validation": at,
        "these weights": metrics,
        "data": "the whole" if not about["partial"] else "; ".join(about["partial"]),
        "trained by": f"commit {trained['commit']}, {versions}, {trained['machine']}, {trained['seconds']:.0f} s",
    }
    shown = "\n".join(f"| {key} | {value} |" for key, value in lines.items())
    front = FRONT.format(tags=f"{model}, {task}")
    return front + CARD.format(model=model, task=task, id=about["id"], lines=shown, table=table)


def list_of(entries: Sequence[Entry], table: Table) -> str:
    """Write the page of a folder of weights."""
    lines = "\n".join(
        f"| {each.settings.get('model', '')} | {each.seed} | {_settings(each.settings)} | {each.bytes:,} | "
        + (f"[{each.id}]({each.id}.md) |" if each.kept else f"{each.id}: left out, no room |")
        for each in entries
    )
    stored = sum(each.kept for each in entries)
    tags = ", ".join(sorted({str(each.settings["model"]) for each in entries if "model" in each.settings}))
    return FRONT.format(tags=tags) + LIST.format(stored=stored, lines=lines, name=table.name, table=table)


def _settings(settings: Settings) -> str:
    """Write settings as on the command line."""
    shown = (f"`{key}={str(value).lower() if isinstance(value, bool) else value}`" for key, value in settings.items())
    return " ".join(text for text in shown if not text.startswith(("`model=", "`seed=")))
