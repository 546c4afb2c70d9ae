"""Find a run's files and decide: skip, resume or restart. No other module decides it."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass
from pathlib import Path

from timescales import paths
from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.runs import provenance
from timescales.runs.record import ENDED, Record, State
from timescales.runs.store import Row


class Action(enum.Enum):
    """What to do with a run."""

    SKIP = "skip"  # it has ended
    RESUME = "resume"  # go on from the checkpoint, from the beginning if there is none
    RESTART = "restart"  # remove the files there and start over


@dataclass(frozen=True)
class Found:
    """What there is of a run: the record in its directory, and its row in results/; None for what there is not."""

    record: Record | None
    row: Row | None = None

    @property
    def state(self) -> State:
        """The state of the run in its directory."""
        return State.ABSENT if self.record is None else self.record.state

    @property
    def outcome(self) -> Record | Row | None:
        """What counts of a run that has ended: its record, unless results/ has it on more data; else its row."""
        row = self.row if self.row is not None and self.row.status in ENDED else None
        if self.record is None or not self.state.ended or (row is not None and self.record.partial and not row.partial):
            return row
        return self.record

    @property
    def local(self) -> bool:
        """Whether what counts is the record in the run's directory."""
        return self.outcome is not None and self.outcome is self.record

    @property
    def stale(self) -> bool:
        """Whether its numbers, if it has any, are of older code."""
        if self.record is not None:
            return self.record.stale
        return self.row is not None and self.row.stale

    @property
    def word(self) -> str:
        """The state for people: that of its record; "committed" if only results/ has it; "stale"; "missing"."""
        if self.record is None and self.row is None:
            return "missing"
        return "stale" if self.stale else "committed" if self.record is None else self.state.value


def find(word: str) -> Path | None:
    """Return the directory of a run that has a record: by its path, or its name or id in runs/ or results/archived."""
    folders = (paths.RUNS, paths.RESULTS / "archived")
    by_id = [path for folder in folders for path in sorted(folder.glob(f"*-{word}"))] if is_id(word) else []
    return next((p for p in [Path(word), *(f / word for f in folders), *by_id] if (p / "record.json").is_file()), None)


def is_id(word: str) -> bool:
    """Return whether a word can be a run's id."""
    return re.fullmatch("[0-9a-f]{12}", word) is not None


def look(directory: Path | None, row: Row | None = None) -> Found:
    """Read a run's record and put it beside its row in results/. Raises ConfigError for a damaged record."""
    return Found(Record.read(directory) if directory else None, row)


def action(run: Run, found: Found) -> Action:
    """Decide whether to skip, resume or restart a run.

    A SLURM job that was put back into the queue goes on with what it began itself, whatever `force` and `resume` say.

    Raises:
        ConfigError: the directory holds the run of another configuration, or one on a part of the data while the whole
            is asked for; or the run is interrupted, and its golden curve has changed since.
    """
    force, resume, saved = run.config["force"], run.config["resume"], found.record
    if _is_requeued(saved):
        force, resume = False, True
    row = found.row if run.skip == "committed" and not found.state.ended else None
    if row is not None and row.counts(run.allow_partial) and not (row.stale if force == "stale" else force):
        return Action.SKIP
    if saved is not None and saved.stale if force == "stale" else force:
        return Action.RESTART
    if saved is not None:
        _refuse(run, saved)
    if found.state.ended:
        return Action.SKIP
    return Action.RESUME if resume else Action.RESTART


def _is_requeued(saved: Record | None) -> bool:
    """Return whether this SLURM job began a run before it was put back into the queue."""
    restarted = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
    return restarted and saved is not None and saved.job == os.environ.get("SLURM_JOB_ID", "")


def _refuse(run: Run, saved: Record) -> None:
    """Raise ConfigError for a record that can neither be skipped nor continued."""
    state, missing, directory = saved.state, saved.missing_data, run.directory
    if state is State.INTERRUPTED and saved.stale:
        if files := saved.changed_files:
            raise ConfigError(f"{directory} was begun before {', '.join(files)} changed: force=stale restarts it")
        own = "".join(f", or the source of {name}," for name in provenance.names(saved.config)[2:])
        raise ConfigError(f"{directory} was begun before its numbers{own} changed: force=stale restarts it")
    if saved.id != run.id:
        raise ConfigError(
            f"{directory} holds the run {saved.id}, this configuration is {run.id}: "
            "choose another run_dir, or force=true to replace it"
        )
    if state.ended and missing and not run.allow_partial:
        raise ConfigError(
            f"{directory} was trained on incomplete data ({'; '.join(missing)}): "
            "force=true trains it on the complete data, task.allow_partial=true keeps it"
        )
