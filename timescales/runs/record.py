"""The record of a run, `record.json` in its directory, and the state that it tells. Imports no torch."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.files import write_atomic
from timescales.runs import lock, provenance


class State(enum.Enum):
    """The state of a run on disk; but for ABSENT the values are the record's "status"."""

    ABSENT = "absent"  # there is no record
    INTERRUPTED = "interrupted"  # being trained, or stopped before its end
    FAILED = "failed"  # an exception ended it; not a run whose task stopped it as "failed", which is FINISHED
    FINISHED = "finished"
    DIVERGED = "diverged"

    @property
    def ended(self) -> bool:
        """Whether the run has its outcome and needs nothing more."""
        return self in (State.FINISHED, State.DIVERGED)


ENDED = tuple(state.value for state in State if state.ended)
FILES = ("record.json", "last.pt", "best.pt", "curve.csv", "blocks.csv")  # what a run leaves, but for its log
CUT = "loop.max_eval_batches"  # what "partial" has for a shortened evaluation; its other entries are the data's


def state(record: Mapping[str, Any] | None) -> State:
    """The state of the run that a record, as `read` returns it, describes."""
    return State.ABSENT if record is None else State(record["status"])


def has_ended(directory: Path) -> bool:
    """Whether the run in a directory has its outcome."""
    return state(read(directory)).ended


def write(directory: Path, record: dict[str, Any]) -> None:
    """Write a run's record.json."""
    plain = _without_nan(record)
    text = json.dumps(plain | {"sha256": _digest(plain)}, indent=1, allow_nan=False)
    write_atomic(directory / "record.json", f"{text}\n".encode())


def _digest(record: dict[str, Any]) -> str:
    """The checksum of a record without its "sha256", by which damage on disk is noticed."""
    as_read = json.loads(json.dumps(record))  # tuples are lists then, and keys are words
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def _without_nan(value: Any) -> Any:
    """The same with None for numbers that are not finite: NaN is no JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return [_without_nan(inner) for inner in value] if isinstance(value, list | tuple) else value


def read(directory: Path) -> dict[str, Any] | None:
    """A run's record, or None if it has none yet. Raises ConfigError for a file that is not a record.

    Its "sha256" is compared and left out; a record from before there was one, or with null, is taken as it is.
    """
    path = directory / "record.json"
    try:
        record = json.loads(path.read_text())
        if missing := {"id", "status", "metrics", "seconds"} - set(record):
            raise KeyError(", ".join(sorted(missing)))
        State(record["status"])  # raises ValueError
        if (digest := record.pop("sha256", None)) is not None and digest != _digest(record):
            raise ValueError("it is not as it was written")
        return record
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): delete it, and the run starts or continues") from error


def start(directory: Path, run: Run, restart: bool = False) -> dict[str, Any]:
    """Write the record of a run that begins or goes on; its status is "interrupted" until it ends. Returns it.

    restart: what lies there is removed first.
    """
    if restart:
        clear(directory)
    config = run.config
    record = {
        "id": run.id,
        "status": State.INTERRUPTED.value,
        "config": config,
        "seed": config["seed"],
        "metrics": {},
        "last": {},
        "best": None,
        "curve": [],
        "seconds": 0.0,
        "stopped": None,
        "error": None,
        "partial": shortened(config),
        "device": config["device"],
        "golden": provenance.golden(*provenance.names(config)),
        "group": run.family,
        "parameters": None,
        "chance": None,
        "select": None,
        "timescales": None,
        "job": os.environ.get("SLURM_JOB_ID"),
        **provenance.provenance(config["device"]),
    }
    write(directory, record)
    return record


def update(directory: Path, **changes: Any) -> dict[str, Any]:
    """Change a run's record; returns it. Writes nothing if there is none: the run failed before `start`."""
    record = read(directory)
    if record is None:
        return changes
    write(directory, record | changes)
    return record | changes


def failed(directory: Path, error: Exception) -> None:
    """Write into a run's record why it failed, if that can be written (not on a full disk). An outcome stays."""
    with contextlib.suppress(OSError):
        if not has_ended(directory):
            update(directory, status=State.FAILED.value, error=f"{type(error).__name__}: {error}")


def shortened(config: dict[str, Any]) -> list[str]:
    """[CUT] if the configuration shortens evaluations, for the record's "partial"; else []."""
    return [CUT] if config["loop"]["max_eval_batches"] is not None else []


def missing_data(record: Mapping[str, Any]) -> list[str]:
    """What the data of a recorded run did not have of what its task's name promises."""
    return [part for part in record.get("partial", []) if part != CUT]


def stale(record: Mapping[str, Any] | None) -> bool:
    """Whether a record's numbers are not today's.

    That is, the golden curve of its task and model, or the source of a class of one's own, has changed since.
    """
    if record is None or "config" not in record:
        return False
    return provenance.changed(record.get("golden"), provenance.names(record["config"]))


def what_changed(record: Mapping[str, Any] | None) -> str:
    """In words, why the numbers of a stale record are not today's."""
    own = provenance.names(record["config"])[2:] if record else []
    return f"the source of {' or '.join(own)}, or its task's data, has changed" if own else "its numbers have changed"


def files(directory: Path) -> dict[str, tuple[int, int]]:
    """Those of a run's files that a directory has, each with what another writing of it changes."""
    found = {}
    for name in FILES:
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(directory / name)
            found[name] = (status.st_ino, status.st_mtime_ns)
    return found


def clear(directory: Path, before: Mapping[str, tuple[int, int]] | None = None) -> None:
    """Remove a run: its record, checkpoints, curve, and what it has for W&B and TensorBoard (its log stays).

    before: what `files` gave earlier; only what was written since then is removed.
    """
    written = [name for name, status in files(directory).items() if status != (before or {}).get(name)]
    if "record.json" in written and (record := read(directory)) is not None:
        for folder in (directory / "wandb").glob(f"*run-*-{record['id']}"):  # the folder may hold other runs' too
            shutil.rmtree(folder, ignore_errors=True)
        remove_events(directory, record["id"])
    for name in written:
        (directory / name).unlink(missing_ok=True)


def remove_events(directory: Path, run_id: str) -> None:
    """Remove the event files that a run has written for TensorBoard."""
    for path in directory.glob(f"events.out.tfevents.*.{run_id}"):
        path.unlink(missing_ok=True)


def begun(directory: Path) -> bool:
    """Whether a run has something that must not be lost: a checkpoint, or an outcome."""
    return (directory / "last.pt").exists() or has_ended(directory)


def discard_unless_begun(directory: Path, slug: str, before: Mapping[str, tuple[int, int]]) -> None:
    """Remove what a run that cannot begin has left; call it while holding the lock.

    A directory with a checkpoint, or with an outcome, is left as it is, and so are files that were there `before`.
    """
    if begun(directory):
        return
    clear(directory, before)
    for path in lock.paths(directory).values():
        path.unlink(missing_ok=True)
    if directory.name == slug and not any(directory.iterdir()):
        directory.rmdir()


def summary(record: dict[str, Any] | None) -> str:
    """The outcome of a run in one line."""
    if record is None:
        return "no record"
    metrics = ", ".join(f"{k} {v:.4f}" for k, v in sorted(record["metrics"].items()) if v is not None)
    return f"{record['status']}: {metrics or record.get('error') or 'no metrics'} ({record['seconds']:.0f} s)"
