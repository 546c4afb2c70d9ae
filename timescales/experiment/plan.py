"""From a command line or a table to its runs, each once, and what there is of them. Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from timescales.config import folders, identity, messages
from timescales.config.compose import OF_GROUPS, Composer, check_choice, chooses, text_of
from timescales.config.run import Run, each_seed, run_of
from timescales.config.values import spell
from timescales.errors import ConfigError
from timescales.papers import load
from timescales.papers.table import Table, expand, varying
from timescales.runs import found, store
from timescales.runs.found import Action, Found

Request = Sequence[Override]  # what a run is asked for with: overrides of one value each
NO_SETTING = ("run_dir", "seeds")  # keys that set no runs apart


class Wrong(NamedTuple):
    """A request of which no run can be made."""

    request: Request
    error: Exception
    more: int  # how many more requests have the same error
    mistyped: bool  # whether the settings are wrong, not what lies in the run's directory


@dataclass
class Plan:
    """Runs that were asked for, each once, what there is of each, and what follows."""

    runs: list[Run] = field(default_factory=list)
    found: dict[Path, Found] = field(default_factory=dict)  # by the run's directory
    todo: list[Run] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)
    requested: int = 0

    def add(self, run: Run, there: Found, skip: str = "local") -> None:
        """Add a run, if it is not there yet. Raises ConfigError for one that can neither be skipped nor continued."""
        if run.directory not in self.found:
            if found.action(run, there, skip) is not Action.SKIP:
                self.todo.append(run)
            self.found[run.directory] = there
            self.runs.append(run)


def plan(requests: Sequence[Request], composer: Composer, seeds_named: bool = False) -> Plan:
    """The runs of a sweep's requests, what there is of them, and which are to be trained.

    seeds_named: the requests name their seeds, as a table's do: `seeds` only says how many are trained together.
    """
    made, committed = Plan(), store.committed()
    wrong: dict[str, Wrong] = {}

    def note(request: Request, error: Exception, mistyped: bool) -> None:
        first = wrong.setdefault(str(error), Wrong(request, error, -1, mistyped))
        wrong[str(error)] = first._replace(more=first.more + 1)

    for request in requests:
        runs: list[Run] = []
        try:
            cfg = composer(request)
            runs = _runs(request, composer, cfg, sweep=True, seeds_named=seeds_named)
        except Exception as error:
            note(request, error, mistyped=True)
        for run in runs:
            try:
                made.add(run, found.look(run.directory, committed.get(run.id)), cfg.skip)
            except Exception as error:  # of what lies in its directory
                note(request, error, mistyped=False)
        made.requested += len(runs) or 1
    made.wrong = list(wrong.values())
    return made


def single(request: Request, composer: Composer) -> list[Run]:
    """The run that a request asks for without a sweep, or one for each of its seeds."""
    return _runs(request, composer, composer(request), sweep=False, seeds_named=False)


def _runs(request: Request, composer: Composer, cfg: Any, sweep: bool, seeds_named: bool) -> list[Run]:
    """The runs of a request; in a sweep with run_dir=DIR each is in DIR/<its name>."""
    axes = {o.key_or_group: o.value() for o in request}
    command = tuple(text_of(o) for o in request)
    note = folders.replaced_by_recipes(composer.of_files(request)[1], axes, cfg)
    runs = []
    for run in [run_of(cfg)] if seeds_named else each_seed(cfg):
        own = axes | ({"seed": run.seed} if cfg.seeds > 1 else {})
        run = replace(run, axes=own, command=command, note=note)
        runs.append(run.within(Path(cfg.run_dir)) if sweep and cfg.run_dir is not None else run)
    return runs


# --- a command line ---------------------------------------------------------------------------------------------------


def combinations(overrides: Request, composer: Composer) -> list[Request]:
    """All combinations of the values that overrides sweep over. Of a key that is given twice the last counts."""
    last = {o.get_key_element(): k for k, o in enumerate(overrides)}
    values = []
    for k, override in enumerate(overrides):
        if last[override.get_key_element()] == k:
            text, key = text_of(override), override.key_or_group
            if override.is_sweep_override() and not override.is_discrete_sweep():
                raise ConfigError(f"{text}: a range is for hydra/sweeper=optuna; give values here: {key}=1,2")
            values.append(composer.each_value(override))
            if not values[-1]:
                raise ConfigError(f"{text}: there is no such name, so there is nothing to run")
    return fitting(list(itertools.product(*values)), composer)


def fitting(requests: Sequence[Request], composer: Composer) -> list[Request]:
    """The requests without keys that a run's model, task or optimizer does not have, but another run's has.

    Prints such keys. A key that no run has stays, as an error for `plan`; requests that are the same then are one.
    """
    choices = [tuple(text_of(o) for o in request if chooses(o)) for request in requests]
    firsts = dict(zip(choices, requests, strict=True))
    depend = dict.fromkeys(o.key_or_group for r in requests for o in r if o.key_or_group.startswith(OF_GROUPS))
    absent: dict[str, list[tuple[str, ...]]] = {}  # by key, the choices of files without it
    for key in depend:
        without, group = [c for c, r in firsts.items() if not _has(r, key, composer)], key.partition(".")[0]
        if without and len(without) < len(firsts):
            absent[key] = without
            names = dict.fromkeys(str(o.value()) for c in without for o in firsts[c] if o.key_or_group == group)
            print(f"note: {key} is left out for {', '.join(names) or f'the {group}'}: no such key there", flush=True)
    fitted: dict[tuple[str, ...], Request] = {}
    for request, choice in zip(requests, choices, strict=True):
        kept = [o for o in request if choice not in absent.get(o.key_or_group, ())]
        fitted.setdefault(tuple(map(text_of, kept)), kept)
    return list(fitted.values())


def _has(request: Request, key: str, composer: Composer) -> bool:
    """Whether a request's files have a key; also True where they cannot be composed, which `plan` says."""
    try:
        return composer.has(request, key)
    except Exception:
        return True


# --- a table ----------------------------------------------------------------------------------------------------------


def requests_of(
    table: Table, profile: str | None, composer: Composer, narrow: Sequence[Override] = ()
) -> list[Request]:
    """The requests of a table's runs, narrowed by overrides of its keys.

    Raises ConfigError for a table that has no such profile, and for a key or a file of a group that there is not.
    Prints how many of the runs the table does not have.
    """
    for override in itertools.chain.from_iterable(map(composer.each_value, narrow)):
        if chooses(override):
            check_choice(override)  # one wrong name of several would be found once the others are trained
    every = expand(table, profile)
    if not every and profile is not None:
        raise ConfigError(f"profile={profile}: {table.name} has no small-scale version (its key `small`)")
    known = {key for axes in every for key in axes}
    # A key that is in no configuration yet is added to all runs: +model.head_size=16.
    wanted = {o.key_or_group if o.key_or_group in known else o.get_key_element(): o for o in narrow}
    values = {key: [o.value() for o in composer.each_value(override)] for key, override in wanted.items()}
    narrowed = expand(table, profile, values)
    requests = fitting([load.request(table, axes) for axes in narrowed], composer)
    if narrow and requests:
        composer(requests[0])  # an unknown key is one error, not one for each run
    if any(axes not in every for axes in narrowed):
        of_table = {_id(load.request(table, axes), composer) for axes in every}
        if beyond := sum(_id(request, composer) not in of_table for request in requests):
            print(f"note: runs that fill no cell of {table.name}: {beyond} of {len(requests)}", flush=True)
    return requests


def _id(request: Request, composer: Composer) -> str | None:
    """The id of a run; None for one that cannot be composed, which `plan` names."""
    try:
        return identity.identity(identity.resolved(composer(request)))
    except Exception:
        return None


def table_runs(table: Table, profile: str | None, composer: Composer) -> tuple[list[Run], list[str]]:
    """A table's runs, and a line for each run that cannot be composed here: it has, say, a task that is not there.

    Raises errors for which `messages.one_line` has no line.
    """
    runs, wrong = [], []
    for axes in expand(table, profile):
        try:
            runs.append(replace(run_of(composer(load.request(table, axes))), axes=axes))
        except Exception as error:
            if (line := messages.one_line(error)) is None:
                raise
            wrong.append(line)
    return runs, wrong


# --- whether runs are compared on equal terms -------------------------------------------------------------------------


def unequal(runs: Sequence[Run]) -> str:
    """A line that names the settings that were not swept and yet differ between runs of a task; "" if there is none.

    Such a setting comes from the files that the command line chooses: a recipe for one of the models, an optimizer's
    learning rate. Keys that not all models have are left out, as are those of `identity.OF_THE_MODEL`.
    """
    chosen = [{key: str(value) for key, value in run.axes.items() if folders.is_group(key)} for run in runs]
    swept = varying(chosen)
    firsts: dict[str, dict[str, Run]] = {}  # the first run of each choice of files, by task
    for run, names in zip(runs, chosen, strict=True):
        task, name = (
            " ".join(names[group] for group in swept if (group in ("task", "paper")) is of_task)
            for of_task in (True, False)
        )
        firsts.setdefault(task, {}).setdefault(name, run)
    given = {key for run in runs for key in run.axes} | {f"{group}.name" for group in swept}
    differ: dict[str, list[str]] = {}
    for task, of_task in firsts.items():
        settings = {name: identity.comparable(run.config) for name, run in of_task.items()}
        first = next(iter(settings.values()))
        for key in (key for key in first if key not in given):
            values = {name: found[key] for name, found in settings.items() if key in found}
            if len(values) == len(settings) and any(value != first[key] for value in values.values()):
                told = ", ".join(f"{name} {spell(value)}" for name, value in values.items())
                differ.setdefault(key, []).append(f"{task}: {told}" if task else told)
    told = ", ".join(f"{key} ({'; '.join(values)})" for key, values in differ.items())
    return f"note: settings that were not swept differ: {told}" if told else ""
