"""List what is done of each table, what the rest costs, the runs, and how one run was made."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.config import folders, schema
from timescales.config.compose import WRONG_INPUT, Composer
from timescales.config.run import Run
from timescales.errors import ConfigError, nearest, one_line
from timescales.experiment import command, plan
from timescales.papers import load
from timescales.papers.table import Rung, Table, Where, matches, varying
from timescales.reports.wording import setting_value
from timescales.runs import cost, found, store
from timescales.runs.found import Found
from timescales.runs.record import Record

HEAD = ("table", "size", "done", "committed", "missing", "interrupted", "stale", "failed", "time left", "problem")


@dataclass
class Status:
    """The progress of a table at one size."""

    table: Table
    size: str  # "paper" or the name of a rung
    runs: list[tuple[Run, Found]]  # each with what is known about it
    why: list[str]  # why other runs of the table cannot be trained
    seconds: dict[str, float] = field(default_factory=dict)  # seconds of a run, by cost_key

    @property
    def todo(self) -> list[Run]:
        """Return the runs that have not ended."""
        return [run for run, state in self.runs if state.outcome is None]

    @property
    def unknown(self) -> dict[str, Run]:
        """Return one run for each cost that is not known, by cost_key."""
        return {run.cost_key: run for run in self.todo if run.cost_key not in self.seconds}

    def line(self) -> list[Any]:
        """Return the row of this size under HEAD."""
        count = Counter(state.word for _, state in self.runs)
        counts = [count[word] for word in ("finished", "committed", "missing", "interrupted", "stale")]
        bad = count["diverged"] + count["failed"]
        unknown = sum(run.cost_key not in self.seconds for run in self.todo)
        hours = sum(self.seconds.get(run.cost_key, 0.0) for run in self.todo) / 3600
        known = [f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"] if unknown < len(self.todo) else []
        left = " + ".join([*known, *([f"{unknown} run{'s' * (unknown > 1)} not measured"] if unknown else [])])
        return [self.table.name, self.size, *counts, bad, left, "; ".join(dict.fromkeys(self.why))]

    def plan(self, where: Where) -> list[list[str]]:
        """List the runs with these settings, below a head: the settings in which runs differ, seed, state, directory.

        Raises ConfigError for a setting or value that no run of the table has.
        """
        axes = [run.axes for run, _ in self.runs]
        for key, wanted in where.items():
            values = {str(each[key]) for each in axes if key in each}
            if not values:
                names = sorted({name for each in axes for name in each})
                there = f"{self.table.name}{nearest(key, names)}; there are {', '.join(names)}"
                raise ConfigError(f"{key}: no setting of {there}")
            for value in wanted if isinstance(wanted, list) else [wanted]:
                if str(value) not in values:
                    names = sorted(values)
                    raise ConfigError(f"{key}={value}: no such run in {self.table.name}; there are {', '.join(names)}")
        keys = varying(axes)
        lines = [[*(key.split(".")[-1] for key in keys), "seed", "state", "directory"]]
        for run, state in ((run, state) for run, state in self.runs if matches(run.axes, where)):
            own = [setting_value(run.axes[key]) if key in run.axes else "" for key in keys]
            lines.append([*own, str(run.axes.get("seed", "")), state.word, run.name])
        return lines


def status(
    name: str, composer: Composer, results_dir: Path, runs_dir: Path, absent: Sequence[str] = ()
) -> Iterator[Status]:
    """Yield the progress of a table at each of its sizes. Raises ConfigError if there is no such table.

    Args:
        results_dir: where committed runs are stored.
        runs_dir: where trained runs are stored.
        absent: data sets that are not on this machine.
    """
    table, committed = load.table(name), store.committed(results_dir)
    for size, part in table.sizes.items():
        runs, why = plan.table_runs(table, size, composer)
        states = [(run, found.read_state(runs_dir / run.name, committed.get(run.id))) for run in runs]
        far = Status(table, size, states, why)
        ended = [(run.cost_key, state.outcome) for run, state in far.runs if state.outcome is not None]
        far.seconds = cost.prices(ended, results_dir, part.steps if isinstance(part, Rung) else None)
        if far.todo and (missing := [name for name in table.needs if name in absent]):
            far.why.append(f"python scripts/fetch_data.py {' '.join(missing)}")
        yield far


# --- one run ----------------------------------------------------------------------------------------------------------


def is_run(word: str) -> bool:
    """Return whether a word names a run, not a table: an id, a name that ends with an id, or a run's directory."""
    return "/" in word or id_in(word) is not None or found.find(word) is not None


def id_in(word: str) -> str | None:
    """Return the id that a word is or ends with; None if there is none."""
    last = word.rstrip("/").rpartition("-")[2]
    return last if found.is_id(last) else None


def how_it_was_made(word: str, composer: Composer, results_dir: Path) -> str:
    """Describe one run: its state and places, how it was made, and the command that trains it a second time.

    word: the run's id, its name or its directory. Raises ConfigError for a run that is not here.
    """
    directory, run_id = found.find(word), id_in(word)
    if directory is None and run_id is not None:
        directory = found.find(run_id)
    saved = None if directory is None else Record.read(directory)
    run_id = run_id if saved is None else saved.id
    paths_of = [path for path in sorted(results_dir.glob("*/runs.csv")) if run_id and run_id in path.read_text()]
    rows = [(path.parent.name, row) for path in paths_of for row in store.read_rows(path) if row.id == run_id]
    if saved is None and not rows:
        place = f"{paths.RUNS}/ or {results_dir.name}/"
        advice = paths.lost_results(results_dir) or "timescales-status TABLE --list names a table's runs"
        raise ConfigError(f"{word}: no such run in {place}: {advice}")
    row = store.committed(results_dir)[str(run_id)] if rows else None
    outcome: Any = row if saved is None else saved
    config = saved.config if saved else schema.resolved(composer(load.request(rows[0][1].axes)))
    here = Path.cwd()
    places = [str(directory.relative_to(here) if directory.is_relative_to(here) else directory)] if directory else []
    places += [f"{results_dir.name}/{name} ({row.rung})" for name, row in rows]
    lines = [
        ("run", schema.slug(config, str(run_id))),
        ("state", found.Found(saved, row).word),
        ("stored in", ", ".join(places)),
        ("continues", config.get("extend")),
        ("commit", outcome.commit),
        ("machine", f"{outcome.machine}, {outcome.device}, threads: {outcome.threads}"),
        ("seconds", f"{outcome.seconds:.0f}" if saved is None or saved.state.ended else None),
        ("steps", outcome.steps),
        ("lacks", outcome.partial if saved is None else "; ".join(saved.partial)),
    ]
    for name, value in (outcome.values if saved is None else saved.metrics).items():
        if value is not None and not name.startswith("probe/"):
            lines.append((name, f"{value:.4f}" if isinstance(value, float) else value))
    try:
        again = command.command(config, str(run_id), composer)
    except WRONG_INPUT as error:  # why there is none
        again = one_line(error)
        if "Could not find" in again and not folders.places()[1:]:
            again += "; if the file is your own: --config-dir FOLDER"
    lines.append(("again", again))
    return table_text([(name, value) for name, value in lines if value not in (None, "")])


def table_text(rows: Sequence[Sequence[Any]]) -> str:
    """Format rows as lines of columns."""
    widths = [max(len(str(row[k])) for row in rows) for k in range(len(rows[0]))]
    lines = ("  ".join(str(entry).ljust(width) for entry, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
