"""Decide from the files of a run whether to skip, resume or restart it. No other module decides this."""

import enum
import os
import re
from dataclasses import dataclass
from pathlib import Path

from timescales import paths
from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.runs.record import ENDED, Record, State
from timescales.runs.store import Row


class Action(enum.Enum):
    """Say what to do with a run."""

    SKIP = "skip"  # it has a result
    RESUME = "resume"  # continue from the checkpoint, or from the beginning if there is none
    RESTART = "restart"  # remove the files of the earlier run and start over


@dataclass(frozen=True)
class Found:
    """Hold what is known about a run: its record, its row in results/, both, or neither.

    record: the content of record.json in the run's directory: the run was begun on this machine.
    row: the line of the run in a runs.csv of results/: the run is committed.
    """

    record: Record | None
    row: Row | None = None

    @property
    def state(self) -> State:
        """Return the state of the run on this machine, by its record."""
        return State.ABSENT if self.record is None else self.record.state

    @property
    def outcome(self) -> Record | Row | None:
        """Return the result to report for the run, or None if it has none.

        The record wins over the row, with one exception. If the record is of a run on incomplete data and the row of
        one on the complete data, the row wins.
        """
        row = self.row if self.row is not None and self.row.status in ENDED else None
        if self.record is None or not self.state.ended or (row is not None and self.record.partial and not row.partial):
            return row
        return self.record

    @property
    def stale(self) -> bool:
        """Return whether the run would have other numbers today, because its code or its data have changed since."""
        if self.record is not None:
            return self.record.stale
        return self.row is not None and self.row.stale

    @property
    def word(self) -> str:
        """Return the state for people: "missing", "stale", "committed" (only in results/), or that of the record."""
        if self.record is None and self.row is None:
            return "missing"
        return "stale" if self.stale else "committed" if self.record is None else self.state.value


def find(word: str) -> Path | None:
    """Return the directory of a run that has a record, or None.

    word: the path of the run, or its name or id, which are searched for in runs/ and results/archived.
    """
    folders = (paths.RUNS, paths.RESULTS / "archived")
    by_id = [path for folder in folders for path in sorted(folder.glob(f"*-{word}"))] if is_id(word) else []
    return next((p for p in [Path(word), *(f / word for f in folders), *by_id] if (p / "record.json").is_file()), None)


def is_id(word: str) -> bool:
    """Return whether a word can be a run's id."""
    return re.fullmatch("[0-9a-f]{12}", word) is not None


def read_state(directory: Path | None, row: Row | None = None) -> Found:
    """Read the record in a run's directory, and pair it with the run's row. Raises ConfigError for a damaged record."""
    return Found(Record.read(directory) if directory else None, row)


def action(run: Run, found: Found) -> Action:
    """Decide whether to skip, resume or restart a run.

    If SLURM has put a job back into the queue, it continues the run that it began, whatever `force` and `resume` say.

    Raises:
        ConfigError: if the directory has a run of another configuration; if its run ended on incomplete data, which
            `task.allow_partial` does not allow; or if its run is interrupted, and its code or data have changed since.
    """
    force, resume, saved = run.config["force"], run.config["resume"], found.record
    requeued = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
    if requeued and saved is not None and saved.job == os.environ.get("SLURM_JOB_ID", ""):
        force, resume = False, True
    row = found.row if run.skip == "committed" and not found.state.ended else None
    if (
        row is not None
        and row.status in ENDED
        and (run.allow_partial or not row.partial)
        and not (row.stale if force == "stale" else force)
    ):
        return Action.SKIP
    if saved is not None and saved.stale if force == "stale" else force:
        return Action.RESTART
    if saved is not None:
        _refuse(run, saved)
    if found.state.ended:
        return Action.SKIP
    return Action.RESUME if resume else Action.RESTART


def _refuse(run: Run, saved: Record) -> None:
    """Raise ConfigError if the run of this record can be neither skipped nor continued."""
    state, missing, directory = saved.state, saved.missing_data, run.directory
    if state is State.INTERRUPTED and saved.stale:
        raise ConfigError(f"{directory}: {saved.what_changed} since this run began: restart it with force=stale")
    if saved.id != run.id:
        raise ConfigError(
            f"{directory} has another run, {saved.id}; this command asks for {run.id}: "
            "choose another run_dir, or replace the run with force=true"
        )
    if state.ended and missing and not run.allow_partial:
        raise ConfigError(
            f"{directory} was trained on incomplete data ({'; '.join(missing)}): "
            "retrain it on the complete data with force=true, or accept it with task.allow_partial=true"
        )
