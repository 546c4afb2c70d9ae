"""Prepare a table's values and claims to be judged under each value of the settings that its paper does not state.

An assumption with `shown: {raw: raw t, longest: t/125}` has runs with each of these values in the table's grids. Every
printed value and every claim whose runs differ with the setting is judged once under each value. It keeps its `number`,
so it counts once, by all its verdicts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from timescales.papers.table import Assumption, Axes, Cell, Claim, Where, agrees, matches


def views(assumed: Mapping[str, Assumption]) -> list[Where]:
    """Return every combination of the values in `shown`, the assumed one first. Without any it is one empty view."""
    shown = {key: entry.shown for key, entry in assumed.items() if entry.shown}
    return [dict(zip(shown, values, strict=True)) for values in itertools.product(*shown.values())]


def cells(cells: Sequence[Cell], assumed: Mapping[str, Assumption], runs: Sequence[Axes]) -> tuple[Cell, ...]:
    """Return each cell under each view in which it has different runs. runs: the settings of all runs of the table."""
    numbered = tuple(replace(cell, number=k) for k, cell in enumerate(cells))
    if len(views(assumed)) == 1:
        return numbered
    found: list[Cell] = []
    for cell in numbered:
        own = [axes for axes in runs if matches(axes, cell.where)]
        filling = [[axes for axes in own if agrees(axes, view)] for view in views(assumed)]
        for view, words in _different(assumed, filling):
            where = {**cell.where, **{key: view[key] for key in words}}
            found.append(replace(cell, where=where, under=", ".join(words.values())))
    return tuple(found)


def claims(claims: Sequence[Claim], assumed: Mapping[str, Assumption], runs: Sequence[Axes]) -> tuple[Claim, ...]:
    """Return each claim under each view in which different runs decide it, in all groups of the first view."""
    numbered = tuple(replace(claim, number=k) for k, claim in enumerate(claims))
    if len(views(assumed)) == 1:
        return numbered
    found: list[Claim] = []
    for claim in numbered:
        groups = [replace(claim, view=view).groups(runs, lambda axes: axes) for view in views(assumed)]
        every = [[axes for sides in each.values() for side in sides for axes in side] for each in groups]
        deciding = [[] if g.keys() < groups[0].keys() else own for g, own in zip(groups, every, strict=True)]
        for view, words in _different(assumed, deciding) or [({}, {})]:
            found.append(replace(claim, view=view, under=", ".join(words.values())))
    return tuple(found)


def _different(assumed: Mapping[str, Assumption], runs: Sequence[list[Axes]]) -> list[tuple[Where, dict[str, str]]]:
    """Return the views with runs that no earlier view has, each with the words of the settings that distinguish it.

    runs: those of each view.
    """
    found: dict[str, Where] = {}
    for view, own in zip(views(assumed), runs, strict=True):
        if own:
            found.setdefault(json.dumps(own, sort_keys=True), view)
    several = [key for key in assumed if len({json.dumps(view.get(key)) for view in found.values()}) > 1]
    return [(view, {key: assumed[key].shown[view[key]] for key in several}) for view in found.values()]
