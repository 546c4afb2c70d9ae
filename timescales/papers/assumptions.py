"""Prepare a table's values and claims to be judged under each value of the settings that its paper does not state.

An assumption with `shown: {raw: raw t, longest: t/125}` has runs with each of these values in the table's grids. Every
printed value and every claim whose runs differ with the setting is judged once under each value. It keeps its `number`,
so it counts once, by all its verdicts.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from timescales.papers.table import Assumption, Axes, Table, Where, agrees, matches


def views(assumed: Mapping[str, Assumption]) -> list[Where]:
    """Return every combination of the values in `shown`, the assumed one first. Without any it is one empty view."""
    shown = {key: entry.shown for key, entry in assumed.items() if entry.shown}
    return [dict(zip(shown, values, strict=True)) for values in itertools.product(*shown.values())]


def under_views(table: Table, runs: Sequence[Axes]) -> Table:
    """Return a table with each cell under each view in which it has different runs, and so with each claim.

    A claim is judged under the views that have all its groups of the first view. runs: the settings of all runs.
    """
    cells = [replace(cell, number=k) for k, cell in enumerate(table.cells)]
    claims = [replace(claim, number=k) for k, claim in enumerate(table.claims)]
    every = views(table.assumed)
    if len(every) == 1:
        return replace(table, cells=tuple(cells), claims=tuple(claims))
    of_cells, of_claims = [], []
    for cell in cells:
        own = [axes for axes in runs if matches(axes, cell.where)]
        of_views = [[axes for axes in own if agrees(axes, view)] for view in every]
        for view, words in _different(table.assumed, of_views) or [({}, {})]:
            where = {**cell.where, **{key: view[key] for key in words}}
            of_cells.append(replace(cell, where=where, under=", ".join(words.values())))
    for claim in claims:
        groups = [replace(claim, view=view).groups(runs, lambda axes: axes) for view in every]
        complete = [{} if each.keys() < groups[0].keys() else each for each in groups]
        deciding = [[axes for sides in each.values() for side in sides for axes in side] for each in complete]
        for view, words in _different(table.assumed, deciding) or [({}, {})]:
            of_claims.append(replace(claim, view=view, under=", ".join(words.values())))
    return replace(table, cells=tuple(of_cells), claims=tuple(of_claims))


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
