"""What to do with a run, by what lies in its directory: the only place that decides it. Imports no torch."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timescales.errors import ConfigError
from timescales.runs import provenance, record
from timescales.runs.record import State


class Action(enum.Enum):
    """What to do with a run."""

    SKIP = "skip"  # it has ended
    RESUME = "resume"  # go on from the checkpoint, from the beginning if there is none
    RESTART = "restart"  # remove what lies there and begin again


def decide(
    directory: Path, run_id: str, force: bool | str = False, resume: bool = True, allow_partial: bool = True
) -> Action:
    """What to do with a run, by the record in its directory.

    A SLURM job that was put back into the queue goes on with what it began itself, whatever `force` and `resume` say.

    Args:
        run_id: the id of the configuration (`identity.identity`).
        force: as in conf/config.yaml: True restarts any run, "stale" one whose golden curve has changed since.
        resume: as in conf/config.yaml: False restarts a run that has not ended.
        allow_partial: whether a run on a part of the data counts (`task.allow_partial`).

    Raises:
        ConfigError: the record is damaged; the directory holds the run of another configuration, or one on a part of
            the data while the whole is asked for; or the run is interrupted, and its golden curve has changed since.
    """
    saved = record.read(directory)
    if _is_requeued(saved):
        force, resume = False, True
    forced = record.stale(saved) if force == "stale" else bool(force)
    if forced:
        return Action.RESTART
    if saved is not None:
        _refuse(directory, saved, run_id, allow_partial)
    if record.state(saved).ended:
        return Action.SKIP
    return Action.RESUME if resume else Action.RESTART


def _is_requeued(saved: Mapping[str, Any] | None) -> bool:
    """Whether this SLURM job began a run before it was put back into the queue."""
    again = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
    return again and saved is not None and saved.get("job") == os.environ.get("SLURM_JOB_ID", "")


def _refuse(directory: Path, saved: Mapping[str, Any], run_id: str, allow_partial: bool) -> None:
    """Raise ConfigError for a record that can neither be skipped nor continued."""
    state, missing = record.state(saved), record.missing_data(saved)
    if state is State.INTERRUPTED and record.stale(saved):
        own = "".join(f", or the source of {name}," for name in provenance.names(saved["config"])[2:])
        raise ConfigError(f"{directory} was begun before its numbers{own} changed: force=stale restarts it")
    if saved["id"] != run_id:
        raise ConfigError(
            f"{directory} holds the run {saved['id']}, this configuration is {run_id}: "
            "choose another run_dir, or force=true to replace it"
        )
    if state.ended and missing and not allow_partial:
        raise ConfigError(
            f"{directory} was trained on a part of the data ({'; '.join(missing)}): "
            "force=true trains it on the whole, task.allow_partial=true keeps it"
        )
