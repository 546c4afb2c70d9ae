"""Hold the result of an analysis, and write it to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from timescales.config.run import Axes
from timescales.files import csv_text, make_folder, write_atomic

if TYPE_CHECKING:
    from timescales.models.sequence import SequenceModel


class Answer(dict[str, float]):
    """The values of `measure`, with files to store beside the record: texts by name."""

    def __init__(self, values: Mapping[str, float], files: Mapping[str, str]) -> None:
        super().__init__(values)
        self.files = files


TableRow = dict[str, Any]  # a row of a study: its values by column


@dataclass
class Study:
    """The result of an analysis.

    title: the title of the figure, one line; the title of the run is added below it. rows: the rows of NAME.csv.
    values: the most important numbers. draw: a function that draws NAME.png into an empty matplotlib figure
    (`plotting.panels` makes its axes). notes: remarks on the values, a line each. words: the values in words, a line
    each; if empty, they are printed by name.
    """

    title: str
    rows: list[TableRow]
    values: Mapping[str, float]
    draw: Callable[[Any], None]
    notes: Sequence[str] = ()
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Source:
    """The numbers of a published model, of data, or of a model before training."""

    kind: Literal["published model", "data", "untrained model"]
    of: str  # the source in words
    axes: Axes  # its settings, as a table names them; {}: no table is judged by it
    values: dict[str, float]  # by metric, "probe/timescale_law/alpha" or "data/pairs/alpha"


def write(study: Study, folder: Path, name: str, svg: bool = False) -> list[Path]:
    """Write NAME.csv, NAME.png and, on request, NAME.svg into a folder. Returns their paths."""
    from timescales import plotting

    make_folder(folder)
    columns = list(dict.fromkeys(key for row in study.rows for key in row))
    write_atomic(folder / f"{name}.csv", csv_text(study.rows, columns).encode())
    return [folder / f"{name}.csv", *plotting.write(study.draw, folder / name, study.title, svg)]


def joined(
    parts: Sequence[tuple[Sequence[TableRow], Mapping[str, float]]], heads: Sequence[TableRow], named: bool = False
) -> tuple[list[TableRow], dict[str, float]]:
    """Join the rows and values of several runs or groups: the value "1/median" is that of the first one.

    heads: for each of them the columns that name it, first of all `run`. named: whether values have this name in place
    of a number.
    """
    rows = [head | row for head, (own, _) in zip(heads, parts, strict=True) for row in own]
    prefixes = [head["run"] if named else k for k, head in enumerate(heads, 1)]
    values = {f"{prefix}/{key}": v for prefix, (_, own) in zip(prefixes, parts, strict=True) for key, v in own.items()}
    return rows, values


def by_unit(model: SequenceModel, columns: Mapping[str, Iterable[Any]]) -> list[TableRow]:
    """Make one row per unit: its layer (from 1), its index in the layer, and its values.

    columns: by name, the values of the units of all layers, layer after layer.
    """
    units = ((layer, unit) for layer, cell in enumerate(model.rnn.layers, 1) for unit in range(cell.hidden_size))
    return [
        {"layer": layer, "unit": unit} | dict(zip(columns, values, strict=True))
        for (layer, unit), values in zip(units, zip(*columns.values(), strict=True), strict=True)
    ]
