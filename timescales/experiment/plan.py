"""From a sweep's overrides, or a table's grids, to runs."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from timescales.config import Settings, schema
from timescales.config.compose import WRONG_INPUT, Composer, parse
from timescales.config.run import Run
from timescales.config.values import spell
from timescales.errors import dotted, one_line
from timescales.papers import load
from timescales.papers.table import Table, expand, varying


def combinations(overrides: Sequence[str], composer: Composer) -> list[list[str]]:
    """List all combinations of the values that overrides sweep over. Of a key that is given twice the last counts."""
    given: dict[str, str] = {}
    for text in overrides:
        given.pop(key := parse(text).get_key_element(), None)  # the last counts at its place
        given[key] = text
    values = [composer.each_value(text) for text in given.values()]
    return fitting([list(each) for each in itertools.product(*values)], composer)


def fitting(requests: Sequence[list[str]], composer: Composer) -> list[list[str]]:
    """List the requests without keys that a run's model, task or optimizer does not have, but another run's has.

    Prints such keys. A key that no run has stays, as an error for whoever composes it; requests that are the same then
    are one.
    """
    choices = [tuple(text for text in request if composer.chooses(parse(text))) for request in requests]
    known = {choice: {key for key, _ in dotted(composer.of_files(choice))} for choice in dict.fromkeys(choices)}
    of_any = set().union(*known.values())
    without: dict[str, dict[str, None]] = {}  # by key, the names of the models, tasks or optimizers without it
    fitted: dict[tuple[str, ...], list[str]] = {}
    for request, choice in zip(requests, choices, strict=True):
        kept = []
        for text in request:
            override = parse(text)
            key, group = override.key_or_group, override.key_or_group.partition(".")[0]
            if key not in of_any or key in known[choice] or override.is_add():  # as +model.head_size=16
                kept.append(text)
            else:
                names = (str(o.value()) for o in map(parse, choice) if o.key_or_group == group)
                without.setdefault(key, {})[next(names, f"the {group}")] = None
        fitted.setdefault(tuple(kept), kept)
    for key, files in without.items():
        print(f"note: {key} is left out for {', '.join(files)}: no such key there", flush=True)
    return list(fitted.values())


# --- a table ----------------------------------------------------------------------------------------------------------


def of_table(table: Table, size: str, composer: Composer, narrow: Sequence[str] = ()) -> list[list[str]]:
    """List the overrides of each of a table's runs at one size, narrowed by overrides of its keys.

    size: "paper" or the name of a rung. Prints how many of the runs the table does not have.
    """
    every = expand(table, size)
    known = {key for axes in every for key in axes}
    values = {}
    for override in map(parse, narrow):
        # A key that is in no configuration yet is added to all runs: +model.head_size=16.
        key = override.key_or_group if override.key_or_group in known else override.get_key_element()
        values[key] = [parse(text).value() for text in composer.each_value(str(override.input_line))]
    narrowed = expand(table, size, values)
    requests = fitting([load.request(axes) for axes in narrowed], composer)
    if values and any(axes not in every for axes in narrowed):
        planned_ids = {run.id for run in table_runs(table, size, composer)[0]}
        if beyond := sum(composer.runs(request)[0].id not in planned_ids for request in requests):
            print(f"note: {beyond} of {len(requests)} runs are not part of table {table.name}", flush=True)
    return requests


def table_runs(table: Table, size: str, composer: Composer) -> tuple[list[Run], list[str]]:
    """List a table's runs, and a line for each run that cannot be composed here, as one of a task that is missing."""
    runs: list[Run] = []
    wrong: list[str] = []
    for axes in expand(table, size):
        try:
            runs += [replace(run, axes=axes) for run in composer.runs(load.request(axes))]
        except WRONG_INPUT as error:
            wrong.append(one_line(error))
    return runs, wrong


# --- whether runs are compared on equal terms -------------------------------------------------------------------------


def unequal(runs: Sequence[Run]) -> list[str]:
    """List a warning for each setting that was not swept and yet differs between models or optimizers.

    Such a setting comes from their files, or from a recipe for one of the models. Keys that not all of them have are
    left out, as are those of `schema.MODEL_KEYS`.
    """
    swept = varying([{key: value for key, value in run.axes.items() if "." not in key} for run in runs])
    given = {key for run in runs for key in run.axes} | {f"{group}.name" for group in swept}
    compared = [key for key in swept if key in ("model", "optimizer")]
    # By the choice of a task, a paper or a user's group, and by that of a model and an optimizer.
    settings: dict[str, dict[str, Settings]] = {}
    for run in runs:
        place = " ".join(str(run.axes[key]) for key in swept if key not in compared)
        of_place, choice = settings.setdefault(place, {}), " ".join(str(run.axes[key]) for key in compared)
        of_place[choice] = of_place.get(choice) or schema.comparable(run.config)
    differ: dict[str, list[str]] = {}
    fix: dict[str, str] = {}
    for place, of_place in settings.items():
        first, *others = of_place.values()
        for key in (key for key in first if key not in given and all(key in other for other in others)):
            if any(other[key] != first[key] for other in others):
                values = ", ".join(f"{spell(config[key])} ({choice})" for choice, config in of_place.items())
                differ.setdefault(key, []).append(f"{values} on {place}" if place else values)
                fix.setdefault(key, f"{key}={spell(first[key])}")
    return [
        f"warning: {key} was not swept, and differs: {'; '.join(values)}. Add {fix[key]} to make it equal."
        for key, values in differ.items()
    ]
