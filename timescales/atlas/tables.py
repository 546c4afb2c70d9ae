"""Write the two tables of an atlas as files: NAME_rates, to choose learning rates, and NAME, with all rungs.

Learning rates have their own table, because a grid cannot depend on a result.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from timescales.atlas.definition import Atlas, Rung, chosen
from timescales.atlas.sizes import Sizes
from timescales.config import Settings
from timescales.config.values import spell
from timescales.papers import load
from timescales.papers.table import matches
from timescales.runs.record import State
from timescales.runs.store import Row

Line = dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """The content of both files. rates: the learning rate of each model, as far as it is chosen."""

    atlas: Atlas
    sizes: Sizes
    rates: Mapping[str, float]

    def model(self, name: str, rung: Rung) -> Settings:
        """Return the settings of a model on a rung."""
        return self.sizes.matched(rung, {"model": name, **self.atlas.models[name]})

    def grid(self, name: str, rung: Rung, rates: list[float], seeds: list[int]) -> Line:
        """Return the runs of a model on a rung."""
        own = {**self.atlas.settings, **rung.settings, **self.model(name, rung)}
        return {**listed(own), "optimizer.lr": rates, "seed": seeds}

    def text_of_rates(self) -> str:
        """Write the table of the choice: each model at each rate, on the rungs and the seed of the choice."""
        rungs = [self.atlas.rungs[name] for name in self.atlas.choice["rungs"]]
        seeds = [self.atlas.choice["seed"]]
        grids = [self.grid(name, rung, [*self.atlas.rates], seeds) for name in self.atlas.cells for rung in rungs]
        title = f"{self.title}: the learning rate of each cell, of three, on a seed of its own"
        return self._text(self.atlas.rates_table, title, grids, [], [])

    def text_of_scores(self) -> str:
        """Write the table of the rungs: each model whose rate is chosen, on all rungs and seeds."""
        grids, cells = [], []
        for name in (name for name in self.atlas.cells if name in self.rates):
            for rungs in self.atlas.tests.values():
                grids.append(self.grid(name, rungs[0], [self.rates[name]], [*self.atlas.seeds]))
                cells += [self._cell(name, rung) for rung in rungs]
        title = f"{self.title}: every cell on the same tests"
        return self._text(self.atlas.name, title, grids, cells, self._claims())

    @property
    def title(self) -> str:
        """Return the title of figures and tables."""
        one_layer = self.atlas.settings["model.block"] == "plain"
        return "The atlas of memory, one plain layer" if one_layer else "The atlas of memory"

    def _cell(self, name: str, rung: Rung) -> Line:
        where = {"model": name, **listed(rung.settings)}
        better = "higher" if rung.best > rung.chance else "lower"
        return {"label": f"{name}, {rung.name}", "where": where, "value": None, "metric": rung.metric, "better": better}

    def _claims(self) -> list[Line]:
        """Write the hypotheses about models whose rates are chosen.

        A side names everything in which its runs differ.
        """
        found = []
        for hypothesis in self.atlas.hypotheses:
            rung, pair = self.atlas.rungs[hypothesis["rung"]], (hypothesis["first"], hypothesis["second"])
            if not all(name in self.rates and name in self.atlas.cells for name in pair):
                continue
            axes = [self.grid(name, rung, [], []) | {"optimizer.lr": self.rates[name]} for name in pair]
            sides = []
            for name, own, other in zip(pair, axes, reversed(axes), strict=True):
                differ = (f"{key}={spell(v)}" for key, v in own.items() if key != "model" and other.get(key) != v)
                sides.append(" ".join([name, *differ]))
            line = f"{sides[0]} > {sides[1]} @ {' '.join(load.request(rung.settings))}"
            better = "higher" if rung.best > rung.chance else "lower"
            read = {"metric": rung.metric, "better": better}
            found.append({"claim": line, "hypothesis": hypothesis["why"], "dated": hypothesis["dated"], **read})
        return found

    def _text(self, name: str, title: str, grids: list[Line], cells: list[Line], claims: list[Line]) -> str:
        head = {"name": name, "title": title, "source": "this project's study, 2026: docs/atlas.md"}
        read: Line = {"metric": "test/accuracy", "select": "best", "better": "higher", "unit": "share"}
        lines = ["# @package _global_", "# Written by scripts/pages.py from conf/atlas.yaml: change that file."]
        lines += ["table:", *(f"  {key}: {json.dumps(value)}" for key, value in head.items())]
        if any(grid["task"] in ("smnist", "pmnist") for grid in grids):
            read["needs"] = ["mnist"]
        for key, value in ({"runs": grids} | read | {"tolerance": 0.05, "cells": cells, "claims": claims}).items():
            items = value if isinstance(value, list) else []
            lines += [f"  {key}:" if items else f"  {key}: {json.dumps(value)}"]
            lines += [f"    - {json.dumps(item)}" for item in items]
        return "\n".join(lines) + "\n"


def listed(settings: Settings) -> Line:
    """Wrap settings for a grid: a value that is a list is put into another list, else it would be several values."""
    return {key: [value] if isinstance(value, list) else value for key, value in settings.items()}


def measured(row: Row, rung: Rung) -> float | None:
    """Return a run's value of a rung's metric; None if the run diverged, whatever it had before."""
    return None if row.status == State.DIVERGED.value else row.value(f"best {rung.metric}")


def rates_of(atlas: Atlas, rows: Iterable[Row]) -> dict[str, float]:
    """Return the learning rate of each model whose runs of the choice have ended. rows: of the table of the choice."""
    rungs = [atlas.rungs[name] for name in atlas.choice["rungs"]]
    scores: dict[str, dict[float, dict[str, float]]] = {}
    for row in rows:
        for rung in rungs:
            if matches(row.axes, listed(rung.settings)):
                of_model = scores.setdefault(row.axes["model"], {})
                of_model.setdefault(row.axes["optimizer.lr"], {})[rung.name] = rung.score(measured(row, rung))
    found = {name: chosen(atlas, scores[name]) for name in atlas.cells if name in scores}
    return {name: rate for name, rate in found.items() if rate is not None}
