"""What is done of each table, what the rest costs, and which runs there are. Imports no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timescales.config import identity
from timescales.config.compose import Composer
from timescales.errors import ConfigError, nearest
from timescales.papers import load
from timescales.papers.table import SIZES, Row, Run, Table, Where, matches, varying
from timescales.reports.markdown import say
from timescales.runs import cost, record, store

HEAD = ("table", "profile", "done", "committed", "missing", "begun", "stale", "failed", "left", "why not")
STATES = ("finished", "committed", "missing", "interrupted", "stale")
PLAN_HEAD = ("seed", "state", "directory")


@dataclass(frozen=True)
class State:
    """A run of a table, and what there is of it.

    word: "finished", "diverged", "failed", "interrupted" as in its record; "committed" if it lies in results/ alone;
    "stale" if its numbers are of older code; "missing".
    """

    run: Run
    config: Any
    slug: str
    kind: str  # the same for runs that cost the same
    word: str
    outcome: Row | None  # its record, or its row, if it has ended


@dataclass
class Status:
    """How far a table is at one size."""

    table: Table
    size: str  # "paper" or "tiny"
    states: list[State]
    why: list[str]  # what stands in the way of the other runs
    seconds: dict[str, float] = field(default_factory=dict)  # what a run takes, by kind

    @property
    def todo(self) -> list[State]:
        """The runs that have not ended."""
        return [state for state in self.states if state.outcome is None]

    @property
    def unknown(self) -> dict[str, Any]:
        """A configuration of each kind of run whose cost is not known."""
        return {state.kind: state.config for state in self.todo if state.kind not in self.seconds}

    def line(self) -> list[Any]:
        """Its row under HEAD."""
        count = Counter(state.word for state in self.states)
        counts = [count[word] for word in STATES]
        bad = count["diverged"] + count["failed"]
        why = "; ".join(dict.fromkeys(self.why))
        return [self.table.name, self.size, *counts, bad, self._left(), why]

    def _left(self) -> str:
        unknown = sum(state.kind not in self.seconds for state in self.todo)
        hours = sum(self.seconds.get(state.kind, 0.0) for state in self.todo) / 3600
        known = [f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"] if unknown < len(self.todo) else []
        return " + ".join([*known, *([f"{unknown} runs not measured"] if unknown else [])])

    def plan(self, where: Where) -> list[list[str]]:
        """The runs with these settings, a row each below a head: what they differ in, seed, state, directory.

        Raises ConfigError for a setting or value that no run of the table has.
        """
        self._check(where)
        keys = varying([state.run.axes for state in self.states])
        head = [*(key.split(".")[-1] for key in keys), *PLAN_HEAD]
        states = [state for state in self.states if matches(state.run.axes, where)]
        return [head, *([*_settings(state, keys), state.word, state.slug] for state in states)]

    def _check(self, where: Where) -> None:
        for key, wanted in where.items():
            axes = {name for state in self.states for name in state.run.axes}
            if key not in axes:
                raise ConfigError(f"{key}: no setting of {self.table.name}{nearest(key, axes)}; {_listed(axes)}")
            values = {str(state.run.axes[key]) for state in self.states if key in state.run.axes}
            for value in wanted if isinstance(wanted, list) else [wanted]:
                if str(value) not in values:
                    raise ConfigError(f"{key}={value}: no such run in {self.table.name}; {_listed(values)}")


def _listed(words: Iterable[str]) -> str:
    return f"there are {', '.join(sorted(words))}"


def _settings(state: State, keys: Sequence[str]) -> list[str]:
    axes = state.run.axes
    return [*(say(axes[key]) if key in axes else "" for key in keys), str(axes.get("seed", ""))]


def status(
    name: str, composer: Composer, results_dir: Path, runs_dir: Path, absent: Sequence[str] = ()
) -> Iterator[Status]:
    """How far a table is, at each size that it has. Raises ConfigError if there is no such table.

    Args:
        results_dir: where committed runs lie.
        runs_dir: where trained runs lie.
        absent: data sets that are not on this machine.
    """
    table, committed = load.table(name), store.committed(results_dir)
    for size, profile in SIZES.items():
        composed, why = load.runs(table, profile, composer)
        if not composed and not why:
            continue  # no small-scale version
        found = Status(table, size, [_state(run, cfg, committed, runs_dir) for run, cfg in composed], why)
        ended = [(state.kind, state.outcome) for state in found.states if state.outcome is not None]
        found.seconds = cost.prices(ended, results_dir)
        if found.todo and (missing := [name for name in table.needs if name in absent]):
            found.why.append(f"python scripts/fetch_data.py {' '.join(missing)}")
        yield found


def _state(run: Run, cfg: Any, committed: Mapping[str, Row], runs_dir: Path) -> State:
    """What there is of a run: its record counts more than what was committed."""
    slug = identity.slug(cfg)
    saved, row = record.read(runs_dir / slug), committed.get(identity.id_of(slug))
    state, word = record.state(saved), "missing"
    outcome: Row | None = None
    if saved is not None:
        word = "stale" if record.stale(saved) else state.value
        outcome = saved if state.ended else None
    elif row is not None:
        word = "stale" if store.stale(row) else "committed"
        outcome = row if row["status"] in record.ENDED else None
    return State(run, cfg, slug, identity.cost_key(cfg), word, outcome)


def table_text(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as lines of columns."""
    widths = [max(len(str(row[k])) for row in rows) for k in range(len(rows[0]))]
    lines = ("  ".join(str(entry).ljust(width) for entry, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
