"""Prepare a table's values and claims to be judged under each value of the settings that its paper does not state.

An assumption with `shown: {raw: raw t, longest: t/125}` has runs with each of these values in the table's grids. Every
printed value and every claim whose runs differ with the setting is judged once under each value. It keeps its `number`,
so it counts once, by all its verdicts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from timescales.papers.table import Assumption, Axes, Cell, Claim, Where, agrees, matches


def views(assumed: Mapping[str, Assumption]) -> list[Where]:
    """Return every combination of the values in `shown`, the assumed one first. Without any it is one empty view."""
    shown = {key: entry.shown for key, entry in assumed.items() if entry.shown}
    return [dict(zip(shown, values, strict=True)) for values in itertools.product(*shown.values())]


def cells(cells: Sequence[Cell], assumed: Mapping[str, Assumption], runs: Sequence[Axes]) -> tuple[Cell, ...]:
    """Return each cell under each view in which it has different runs. runs: the settings of all runs of the table."""
    return tuple(each for k, cell in enumerate(cells) for each in _cells(replace(cell, number=k), assumed, runs))


def _cells(cell: Cell, assumed: Mapping[str, Assumption], runs: Sequence[Axes]) -> Iterator[Cell]:
    def filling(view: Where) -> list[Axes]:
        return [axes for axes in runs if matches(axes, cell.where) and agrees(axes, view)]

    for view, words in _different(assumed, filling):
        where = {**cell.where, **{key: view[key] for key in words}}
        yield replace(cell, where=where, under=", ".join(words.values()))


def claims(claims: Sequence[Claim], assumed: Mapping[str, Assumption], runs: Sequence[Axes]) -> tuple[Claim, ...]:
    """Return each claim under each view in which different runs decide it, in all groups of the first view."""
    return tuple(each for k, claim in enumerate(claims) for each in _claims(replace(claim, number=k), assumed, runs))


def _claims(claim: Claim, assumed: Mapping[str, Assumption], runs: Sequence[Axes]) -> Iterator[Claim]:
    first = replace(claim, view=views(assumed)[0]).groups(runs, lambda axes: axes)

    def deciding(view: Where) -> list[Axes]:
        groups = replace(claim, view=view).groups(runs, lambda axes: axes)
        if groups.keys() < first.keys():
            return []
        return [axes for sides in groups.values() for side in sides for axes in side]

    for view, words in _different(assumed, deciding) or [({}, {})]:
        yield replace(claim, view=view, under=", ".join(words.values()))


def _different(
    assumed: Mapping[str, Assumption], runs_under: Callable[[Where], list[Axes]]
) -> list[tuple[Where, dict[str, str]]]:
    """Return the views under which the runs differ, each with the words of the settings that distinguish it."""
    if not any(entry.shown for entry in assumed.values()):
        return [({}, {})]
    found = {json.dumps(runs, sort_keys=True): view for view in reversed(views(assumed)) if (runs := runs_under(view))}
    different = list(reversed(found.values()))
    shown = [key for key, entry in assumed.items() if entry.shown]
    several = [key for key in shown if len({json.dumps(view[key]) for view in different}) > 1]
    return [(view, {key: assumed[key].shown[view[key]] for key in several}) for view in different]
