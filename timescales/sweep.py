"""The runs of a sweep: which are asked for, which of them are to be trained, in which order. Imports no torch."""

from __future__ import annotations

import contextlib
import enum
import signal
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from timescales.config import check, identity, messages, schema
from timescales.config.compose import Composer
from timescales.config.overrides import OF_GROUPS, spell
from timescales.errors import ConfigError
from timescales.papers.table import Table, expand, varying
from timescales.runs import lock, record, store
from timescales.runs.decide import Action, decide

Overrides = list[str]


class Status(enum.Enum):
    """What a sweep does with a run."""

    TO_RUN = "to run"
    FINISHED = "finished"  # skipped: it has ended here
    COMMITTED = "committed"  # skipped: it lies in results/


class SweepRun(NamedTuple):
    """One run of a sweep."""

    overrides: Overrides
    directory: Path
    seed: int
    seeds: int  # how many runs that differ in their seed alone may be launched together
    family: str  # the same for all such runs
    cost_key: str  # the same for runs that cost the same
    status: Status
    stale: bool  # whether what is skipped has numbers that have changed since
    seconds: float | None  # what it took, if it is finished
    replaces: int  # `written` of the record that it is to replace

    def ended(self) -> bool:
        """Whether the run needs nothing more, whoever trained it; the record that it is to replace does not count."""
        return record.has_ended(self.directory) and written(self.directory) != self.replaces


def written(directory: Path) -> int:
    """When a run's record was written, in nanoseconds; 0 if there is none."""
    path = directory / "record.json"
    return path.stat().st_mtime_ns if path.exists() else 0


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.partition("=")[0].lstrip("+~")


# --- which runs are asked for -----------------------------------------------------------------------------------------


def overrides_of_each_seed(overrides: Sequence[str], compose: Composer) -> list[Overrides]:
    """The overrides of each of the seeds that `seeds` asks for."""
    seed, seeds = compose.setting(overrides, "seed"), compose.setting(overrides, "seeds")  # a file may set them, too
    if not (isinstance(seed, int) and isinstance(seeds, int) and 1 < seeds <= schema.MOST_SEEDS):
        return [list(overrides)]  # one run, or a wrong value, which `check` names
    return [[*(o for o in overrides if key_of(o) != "seed"), f"seed={seed + k}"] for k in range(seeds)]


def of_table(
    table: Table, profile: str | None, narrow: Sequence[str], shared: Sequence[str], compose: Composer
) -> list[Overrides]:
    """The overrides of a table's runs, narrowed by overrides of its keys, with those that all of them share.

    Raises ConfigError for a table that has no such profile, and for a key or a file of a group that there is not.
    Prints how many of the runs the table does not have.
    """
    parsed = [compose.parse(text) for text in narrow]
    for override in parsed:
        compose.check_choice(override)  # one wrong name of several would be found once the others are trained
    axes = {key for run in expand(table, profile) for key in run.axes}
    # A key that is in no configuration yet is added to all runs: +model.head_size=16.
    wanted = {o.key_or_group if o.key_or_group in axes else o.get_key_element(): o for o in parsed}
    runs = expand(table, profile, {key: compose.values(o) for key, o in wanted.items()})
    if not runs and profile == "tiny":
        raise ConfigError(f"profile={profile}: {table.name} has no small-scale version (its key `tiny`)")
    requests = fitting([run.overrides for run in runs], compose)
    if narrow and requests:
        _check_keys(requests[0], compose)
        in_table = {_id(run.overrides, compose) for run in expand(table, profile)}
        if beyond := sum(_id(overrides, compose) not in in_table for overrides in requests):
            print(f"note: runs that fill no cell of {table.name}: {beyond} of {len(requests)}", flush=True)
    # The table's name is for W&B's tag alone; a logger's keys are no part of a run's identity.
    return [[*overrides, *shared, f"++logger.table={table.name}"] for overrides in requests]


def fitting(requests: Sequence[Overrides], compose: Composer) -> list[Overrides]:
    """The overrides of runs without keys that a run's model, task or optimizer does not have, but another run's has.

    Prints such keys. A key that no run has stays, as an error for `plan`; runs that are the same then are one.
    """
    choices = [compose.groups_of(overrides) for overrides in requests]
    keys = dict.fromkeys(key_of(o) for overrides in requests for o in overrides if o.startswith(OF_GROUPS))
    without = {key: [choice for choice in dict.fromkeys(choices) if not compose.has(choice, key)] for key in keys}
    without = {key: which for key, which in without.items() if len(which) < len(set(choices))}
    for key, which in without.items():
        group = key.partition(".")[0]
        if names := dict.fromkeys(compose.choices(choice).get(group, f"the {group}") for choice in which):
            print(f"note: {key} is left out for {', '.join(names)}: no such key there", flush=True)
    fitted = [
        tuple(o for o in overrides if choice not in without.get(key_of(o), ()))
        for overrides, choice in zip(requests, choices, strict=True)
    ]
    return [list(overrides) for overrides in dict.fromkeys(fitted)]


def _check_keys(overrides: Overrides, compose: Composer) -> None:
    """Compose one run of many: an unknown key is one error, not one for each run."""
    try:
        compose(overrides)
    except Exception as error:
        raise ConfigError(messages.one_line(error, overrides) or str(error)) from error


def _id(overrides: Overrides, compose: Composer) -> str | None:
    """The id of a run; None for one that cannot be composed, which `plan` names."""
    try:
        return identity.identity(compose(overrides))
    except Exception:
        return None


# --- which of them are to be trained ----------------------------------------------------------------------------------


class Wrong(NamedTuple):
    """A run that cannot be planned."""

    overrides: Overrides
    error: Exception
    more: int  # how many more runs have the same error
    mistyped: bool  # whether the settings are wrong, not what lies in the run's directory


def plan(requests: Sequence[Overrides], compose: Composer, skip: str) -> tuple[list[SweepRun], list[Wrong]]:
    """Each run, one that is asked for twice once; and what cannot be planned, each error once."""
    committed = store.committed()
    runs: dict[Path, SweepRun] = {}
    wrong: dict[str, Wrong] = {}
    for overrides in requests:
        mistyped = True
        try:
            cfg = compose(overrides)
            check.check(cfg)
            mistyped = False
            run = _sweep_run(overrides, cfg, committed, skip)
            runs[run.directory] = run
        except Exception as error:
            first = wrong.setdefault(str(error), Wrong(overrides, error, -1, mistyped))
            wrong[str(error)] = first._replace(more=first.more + 1)
    return list(runs.values()), list(wrong.values())


def _sweep_run(overrides: Overrides, cfg: Any, committed: Mapping[str, Any], skip: str) -> SweepRun:
    """One run and its status. committed: the rows of results/ by id; skip: whether they count ("committed")."""
    run_id, directory = identity.identity(cfg), Path(cfg.run_dir)
    if any(key_of(override) == "run_dir" for override in overrides):
        directory = directory / identity.slug(cfg)
        place = spell(str(directory))
        overrides = [*(o for o in overrides if key_of(o) != "run_dir"), f"run_dir={place}"]
    row = committed.get(run_id)
    status, stale = _status(cfg, directory, run_id, row if skip == "committed" else None)
    saved = record.read(directory)
    outcome = saved if record.state(saved).ended else row
    return SweepRun(
        overrides,
        directory,
        seed=cfg.seed,
        seeds=cfg.seeds,
        family=identity.identity(identity.with_seed(cfg, 0)) if cfg.seeds > 1 else run_id,
        cost_key=identity.cost_key(cfg),
        status=status,
        stale=stale,
        seconds=None if outcome is None else outcome["seconds"],
        replaces=written(directory) if status is Status.TO_RUN else 0,
    )


def _status(cfg: Any, directory: Path, run_id: str, row: Mapping[str, Any] | None) -> tuple[Status, bool]:
    """What to do with a run, and whether what is skipped is stale. row: what results/ has of it, if that counts."""
    allow_partial, saved = cfg.task.get("allow_partial", True), record.read(directory)
    if row is not None and store.counts(row, allow_partial) and not record.state(saved).ended:
        stale = store.stale(row)
        if not (stale if cfg.force == "stale" else cfg.force):
            return Status.COMMITTED, stale
    if decide(directory, run_id, cfg.force, cfg.resume, allow_partial) is Action.SKIP:
        return Status.FINISHED, record.stale(saved)
    return Status.TO_RUN, False


def in_order(runs: Sequence[SweepRun], seconds: Mapping[str, float], limited: bool) -> list[SweepRun]:
    """The runs to be trained. Those of which nothing is known count as the longest.

    limited: whether the sweep stops after some minutes. Then the shortest runs come first, with all their seeds, so
    that as many as possible end; else they go seed by seed, the longest first, so that all workers end together.
    """
    todo = [run for run in runs if run.status is Status.TO_RUN]
    price = {run.directory: seconds.get(run.cost_key, float("inf")) for run in todo}
    if limited:
        return sorted(todo, key=lambda run: (price[run.directory], run.seed))
    return sorted(todo, key=lambda run: (run.seed, -price[run.directory]))


def number_of_runs(n: int) -> str:
    """In words: "1 run", "2 runs"."""
    return f"{n} run" if n == 1 else f"{n} runs"


def counts(runs: Sequence[SweepRun], requested: int, failed: int) -> str:
    """What a sweep is about to do, in one line. requested: the runs asked for; failed: those that cannot be planned."""
    count = Counter(run.status for run in runs)
    elsewhere = sum(lock.owner(run.directory) is not None for run in runs if run.status is Status.TO_RUN)
    to_run = count[Status.TO_RUN] - elsewhere
    parts = [f"{number_of_runs(requested)}: {count[Status.FINISHED]} finished, skipped", f"{to_run} to run"]
    if elsewhere:
        parts.append(f"{elsewhere} running elsewhere")
    if same := requested - len(runs) - failed:
        parts.append(f"{same} the same as another of them (engine, device, logger and the like make no other run)")
    if count[Status.COMMITTED]:
        parts.append(f"{count[Status.COMMITTED]} committed, skipped")
    return "; ".join(parts)


# --- whether they are compared on equal terms -------------------------------------------------------------------------


def unequal(runs: Sequence[SweepRun], compose: Composer) -> str:
    """A line that names the settings that were not swept and yet differ between runs of a task; "" if there is none.

    Such a setting comes from the files that the command line chooses: a recipe for one of the models, an optimizer's
    learning rate. Keys that not all models have are left out, as are those of `identity.OF_THE_MODEL`.
    """
    choices = [compose.choices(run.overrides) for run in runs]
    swept = varying(choices)
    firsts: dict[str, dict[str, Overrides]] = {}  # the first run of each choice of files, by task
    for run, chosen in zip(runs, choices, strict=True):
        task = " ".join(chosen[group] for group in swept if group in ("task", "paper"))
        name = " ".join(chosen[group] for group in swept if group not in ("task", "paper"))
        firsts.setdefault(task, {}).setdefault(name, run.overrides)
    given = {key_of(override) for run in runs for override in run.overrides} | {f"{group}.name" for group in swept}
    found: dict[str, list[str]] = {}
    for task, overrides in firsts.items():
        settings = {name: identity.settings(compose(first)) for name, first in overrides.items()}
        for key, values in _differences(settings):
            if key not in given:
                found.setdefault(key, []).append(f"{task}: {values}" if task else values)
    differ = ", ".join(f"{key} ({'; '.join(values)})" for key, values in found.items())
    return f"note: settings that were not swept differ: {differ}" if differ else ""


def _differences(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The keys that all of several configurations have with different values, each with these in words."""
    first = next(iter(settings.values()))
    for key in first:
        values = {name: found[key] for name, found in settings.items() if key in found}
        if len(values) == len(settings) and any(value != first[key] for value in values.values()):
            yield key, ", ".join(f"{name} {spell(value)}" for name, value in values.items())


# --- what is launched together, and how long it takes -----------------------------------------------------------------


def launch_groups(todo: Sequence[SweepRun]) -> list[list[SweepRun]]:
    """Runs by launch: up to `seeds` of one family, with consecutive seeds, go together."""
    groups: list[list[SweepRun]] = []
    newest: dict[str, list[SweepRun]] = {}
    for run in todo:
        group = newest.get(run.family)
        if group is not None and len(group) < run.seeds and run.seed == group[-1].seed + 1:
            group.append(run)
        else:
            newest[run.family] = [run]
            groups.append(newest[run.family])
    return groups


def overrides_of(group: Sequence[SweepRun]) -> Overrides:
    """The overrides of the launch that trains these runs, which differ in their seed alone."""
    first = group[0].overrides
    if len(group) == 1:
        return [o for o in first if key_of(o) != "seeds"]
    rest = [o for o in first if key_of(o) not in ("seed", "seeds", "run_dir")]
    if any(key_of(o) == "run_dir" for o in first):
        rest.append(f"run_dir={spell(str(group[0].directory.parent))}")
    return [*rest, f"seed={group[0].seed}", f"seeds={len(group)}"]


def minutes_left(todo: Sequence[SweepRun], seconds: Mapping[str, float]) -> str:
    """ " (about 12 min left)" from what runs of the same cost_key took; any other run counts as the mean of these."""
    known = [seconds[run.cost_key] for run in todo if run.cost_key in seconds]
    if not known:
        return ""
    mean = sum(known) / len(known)
    return f" (about {(sum(known) + mean * (len(todo) - len(known))) / 60:.0f} min left)"


@contextlib.contextmanager
def deadline(minutes: float | None) -> Iterator[Callable[[], bool]]:
    """Interrupt what runs in it after some minutes as Ctrl-C would; yields whether that has happened."""
    passed = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal passed
        passed = True
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # SIGINT is ignored, as in a job in the background of a shell script
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    if minutes is None:
        yield lambda: False
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60.0 * minutes)
    try:
        yield lambda: passed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


# --- how they ended ---------------------------------------------------------------------------------------------------


def missing_analyses(directory: Path, names: Sequence[str]) -> list[str]:
    """Which of a table's analyses have no result in the record of a finished run."""
    saved = record.read(directory)
    if saved is None or record.state(saved) is not record.State.FINISHED:
        return []
    done = {key.partition("/")[0] for key in saved.get("probes", {})}
    return [name for name in names if name not in done]


def outcomes(runs: Sequence[SweepRun]) -> list[str]:
    """For each setting of a sweep, in the order asked for, a line: its tests, mean and, in brackets, spread over seeds.

    Of how many, where not all seeds have a finished record here: some failed, were committed elsewhere, or go on.
    """
    axes = [{key_of(text): text.partition("=")[2] for text in run.overrides} for run in runs]
    differ = [key for key in varying(axes) if key not in ("run_dir", "seeds")]
    finished: dict[str, list[dict[str, float]]] = {}
    requested: Counter[str] = Counter()
    for run, values in zip(runs, axes, strict=True):
        setting = " ".join(f"{key}={values[key]}" for key in differ if key in values)
        metrics = finished.setdefault(setting, [])
        requested[setting] += 1
        saved = record.read(run.directory) if run.ended() else None
        if saved is not None and record.state(saved) is record.State.FINISHED:
            metrics.append(saved["metrics"])
    return [f"{setting or 'all'}: {_outcome(metrics, requested[setting])}" for setting, metrics in finished.items()]


def _outcome(runs: Sequence[Mapping[str, float | None]], requested: int) -> str:
    """The tests of a setting's finished runs, and of how many."""
    words = []
    for name in sorted({name for metrics in runs for name in metrics if name.startswith("test/")}):
        values = [value for metrics in runs if (value := metrics.get(name)) is not None]
        spread = f" ({statistics.stdev(values):.4f})" if len(values) > 1 else ""
        words.append(f"{name} {statistics.fmean(values):.4f}{spread}" if values else f"{name} none")
    of = f" of {requested}" if len(runs) < requested else ""
    return f"{', '.join(words) or 'no finished record here'}; n = {len(runs)}{of}"
