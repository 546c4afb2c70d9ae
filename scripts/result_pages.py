"""Complete the pages of results/ for the site: curves and runs below each table.md, and pictures that no page shows.

All of it comes from the files beside the page; nothing is composed or judged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales import paths, plotting
from timescales.files import csv_rows
from timescales.papers.table import varying
from timescales.reports import wording
from timescales.reports.gather import curve, thinned
from timescales.reports.markdown import grid
from timescales.runs import store
from timescales.runs.record import Record
from timescales.runs.store import Row

POINTS = 120  # of a drawn curve
ROWS = 60  # of a CSV that is shown
DOTS_BELOW = 10  # fewer points of a curve are drawn as dots, too
NAMES = 24  # in a key
PLAIN = ("archived", "engineering")  # folders whose pages stay as they are
MAX_RUNS = 180  # runs in a picture or a table of the site: of more only the file
Points = Sequence[Mapping[str, float]]
Line = tuple[str, str, str, Points]  # name, colour, style, points


def complete(results: Path) -> None:
    """Add to each page below a copy of results/ what is beside it; a folder without a page gets one."""
    for folder in sorted(path for path in results.iterdir() if path.is_dir() and path.name not in PLAIN):
        table, page = folder / "table.md", folder / "README.md"
        if table.is_file():
            rows = store.read_rows(paths.RESULTS / folder.name / "runs.csv")
            text = "\n".join([table.read_text(), *curves_of(rows, folder), *all_runs(rows)])
            table.write_text("\n".join([text, *files(folder, text)]))
        else:
            text = page.read_text() if page.is_file() else f"# {folder.name}\n"
            page.write_text("\n".join([text, *files(folder)]))


def curves_of(rows: Sequence[Row], folder: Path) -> list[str]:
    """Draw the curve of every run at the paper's size, else on the last rung, for a table without a figure.

    Models and gates differ in colour, other settings in line style. More than MAX_RUNS runs are not drawn.
    """
    size = next((row.rung for row in rows if row.rung == "paper"), rows[-1].rung if rows else "")
    own = [row for row in rows if row.rung == size]
    if not 0 < len(own) <= MAX_RUNS or (folder / "figure.png").is_file():
        return []
    keys = [key for key in varying([row.axes for row in own]) if key != "model"]
    others = [", ".join(wording.setting_value(row.axes.get(k)) for k in keys if k != "model.gate") for row in own]
    order = list(dict.fromkeys(others))
    drawn: list[Line] = []
    for row, other in zip(own, others, strict=True):
        axes = {**row.axes, "model": row.axes.get("model", row.run.split("/")[1])}
        named = (f"{key.split('.')[-1]}={wording.setting_value(axes.get(key))}" for key in keys)
        style = plotting.STYLES[order.index(other) % len(plotting.STYLES)]
        points = curve(row.id, folder.name, paths.RESULTS, paths.RESULTS)
        drawn.append((", ".join([axes["model"], *named]), plotting.colour(axes), style, points))
    words = "the paper's size" if size == "paper" else f"rung {size}"
    if not draw(folder / f"curves_{size}.png", f"{folder.name}, {words}", drawn):
        return []
    return ["## Curves", "", f"![Curves of the runs of {folder.name}, {words}](curves_{size}.png)", ""]


def draw(path: Path, title: str, lines: Sequence[Line]) -> bool:
    """Draw each value of validation, then the training loss. Return whether there was anything to draw."""
    count = Counter(key for *_, points in lines for point in points for key in point)
    shown = [key for key in count if key.startswith("valid/")]
    # Training loss is in a curve only where its steps coincide with a validation's: not drawn where that is rare.
    shown += [key for key in count if key.startswith("train/") and 3 * count[key] > count["step"]]
    if not shown:
        return False

    def onto(figure: Any) -> None:
        columns = min(len(shown), 3)
        rows, width = -(-len(shown) // columns), 3.6 * columns
        names = list(dict.fromkeys(name for name, *_ in lines))[:NAMES]
        key_columns = max(1, int(width / (0.5 + 0.055 * max(map(len, names)))))
        key_height = 0.15 * -(-len(names) // key_columns)
        panels = plotting.panels(figure, columns, rows, width, 2.8 * rows + 0.5 + key_height)
        for ax, key in zip(panels, shown, strict=False):
            labelled: set[str] = set()
            for name, colour, style, points in lines:
                spots = thinned([(p["step"], p[key]) for p in points if key in p], POINTS)
                label = None if name in labelled or len(labelled) == NAMES else name
                if spots:
                    marker = "o" if len(spots) < DOTS_BELOW else ""  # a line through one point shows nothing
                    ax.plot(*zip(*spots, strict=True), style, color=colour, lw=1, label=label, marker=marker, ms=4)
                    labelled.add(name)
            ax.set_title(key, fontsize=9)
            ax.set_xlabel("training steps", fontsize=8)
            low, high = ax.dataLim.intervaly
            if low > 0 and high > 50 * low:
                ax.set_yscale("log")
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower left", ncols=key_columns, fontsize=7, frameon=False)

    plotting.write(onto, path, title)
    return True


def all_runs(rows: Sequence[Row]) -> list[str]:
    """Write a table of all runs, which opens on demand. Of more than MAX_RUNS runs, only link the file."""
    if not rows:
        return []
    if len(rows) > MAX_RUNS:
        return ["## All runs", "", f"{len(rows)} runs: [runs.csv](runs.csv)", ""]
    axes = list(dict.fromkeys(key for row in rows for key in row.axes if key != "seed"))
    metrics = [key for key in dict.fromkeys(k for row in rows for k in row.values) if "probe/" not in key]
    head = ["id", "size", *axes, "seed", "status", *metrics, "minutes", "machine", "commit"]
    body = []
    for row in rows:
        values = ("" if (value := row.value(key)) is None else wording.number(value) for key in metrics)
        set_to = (wording.setting_value(row.axes.get(key, "")) for key in axes)
        origin = [f"{row.seconds / 60:.1f}", row.machine, row.commit]
        body.append([row.id, row.rung, *set_to, row.seed, row.status, *values, *origin])
    return ["## All runs", "", *dropdown(f"{len(rows)} runs ([runs.csv](runs.csv))", grid(head, body))]


def dropdown(title: str, lines: Iterable[str]) -> list[str]:
    """Text that opens on demand."""
    return [f"::::{{dropdown}} {title}", *lines, "::::", ""]


def files(folder: Path, written: str = "") -> list[str]:
    """Show the pictures below a folder that no page shows, and the other tables, which open on demand."""
    texts = [written, *(path.read_text() for path in folder.rglob("*.md"))]
    shown = {name for text in texts for name in text.replace("](", " ").replace(")", " ").split()}
    lines = []
    for path in sorted(folder.rglob("*.png")):
        name = path.relative_to(folder).as_posix()
        if name not in shown and path.name not in shown:
            lines += [f"### {name.removesuffix('.png')}", "", f"![{name}]({name.replace(' ', '%20')})", ""]
    for path in sorted(folder.rglob("*.csv")):
        name = path.relative_to(folder).as_posix()
        if name != "runs.csv" and name not in shown and path.name != "curve.csv":
            lines += table_of(path, name)
    return ["## Pictures and tables", "", *lines] if lines else []


def table_of(path: Path, name: str) -> list[str]:
    """Write the first rows of a CSV as a table."""
    rows = csv_rows(path)
    if not rows:
        return []
    more = f", the first {ROWS} of {len(rows)} rows" if len(rows) > ROWS else ""
    return dropdown(f"{name}{more}", grid(list(rows[0]), [list(row.values()) for row in rows[:ROWS]]))


def write_run(directory: Path, folder: Path) -> str:
    """Write the page of a trained run: its outcome, its curve, and what its analyses have drawn and written.

    Return the outcome. Raises ConfigError if the run's record is damaged.
    """
    found = Record.read(directory)
    outcome = found.summary if found else "no record"
    folder.mkdir(parents=True)
    lines = [f"# {directory.name}", "", outcome, ""]
    if found:
        model = found.config["model"]
        colour = plotting.colour({"model": model.get("name"), "model.gate": model.get("gate")})
        if draw(folder / "curve.png", directory.name, [("this run", colour, "-", found.curve)]):
            lines += ["![The run's curve](curve.png)", ""]
    for path in sorted((directory / "analysis").rglob("*")):
        if path.suffix in (".png", ".csv"):
            target = folder / path.relative_to(directory / "analysis")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (folder / "README.md").write_text("\n".join([*lines, *files(folder, "\n".join(lines))]))
    return outcome
