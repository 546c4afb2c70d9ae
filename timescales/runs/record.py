"""A run on disk: its lock and its record. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales.config.identity import group
from timescales.errors import ConfigError
from timescales.files import TEMPORARY, write_atomic
from timescales.runs import provenance
from timescales.runs.lock import Claim, Elsewhere

ENDED = ("finished", "diverged")  # the statuses of a run that needs nothing more
CUT = "loop.max_eval_batches"  # what "partial" has for a shortened evaluation; its other entries are the data's


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
        if (digest := record.pop("sha256", None)) is not None and digest != _digest(record):
            raise ValueError("it is not as it was written")
        return record
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): delete it, and the run starts or continues") from error


def start(directory: Path, run_id: str, config: dict[str, Any], anew: bool = False) -> None:
    """Write the record of a run that begins or goes on; its status is "interrupted" until it ends.

    anew: what lies there is thrown away first.
    """
    if anew:
        clear(directory)
    record = {
        "id": run_id, "status": "interrupted", "config": config, "seed": config["seed"], "metrics": {}, "last": {},
        "best": None, "curve": [], "seconds": 0.0, "stopped": None, "error": None, "partial": partial(config),
        "device": config["device"], "golden": provenance.golden(config["task"]["name"], config["model"]["name"]),
        "group": group(config), "parameters": None, "chance": None, "timescales": None,
        "job": os.environ.get("SLURM_JOB_ID"), **provenance.provenance(config["device"]),
    }  # fmt: skip
    write(directory, record)


def update(directory: Path, **changes: Any) -> dict[str, Any]:
    """Change a run's record; returns it. A run that has none yet, having failed before, gets none."""
    record = read(directory)
    if record is None:
        return changes
    write(directory, record | changes)
    return record | changes


def failed(directory: Path, error: Exception) -> None:
    """Write into a run's record why it failed, if that can be written (not on a full disk). An outcome stays."""
    with contextlib.suppress(OSError):
        if not has_outcome(directory):
            update(directory, status="failed", error=f"{type(error).__name__}: {error}")


def requeued(directory: Path) -> bool:
    """Whether this SLURM job began the run in the directory before it was put back into the queue."""
    again = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
    return again and (read(directory) or {}).get("job") == os.environ.get("SLURM_JOB_ID", "")


def has_outcome(directory: Path) -> bool:
    """Whether the run in a directory has ended: finished, or diverged."""
    return (read(directory) or {}).get("status") in ENDED


def partial(config: dict[str, Any]) -> list[str]:
    """What makes a run's numbers those of a smaller experiment than its configuration names."""
    return [CUT] if config["loop"]["max_eval_batches"] is not None else []


def lacking(found: Mapping[str, Any]) -> list[str]:
    """What the data of a recorded run lacked of what its task's name promises."""
    return [part for part in found.get("partial", []) if part != CUT]


def done(directory: Path, run_id: str, allow_partial: bool = True) -> bool:
    """Whether the run in a directory needs nothing more: finished, or diverged for good.

    Raises ConfigError if the directory holds the run of another configuration, or one on a part of the data while the
    whole is asked for.
    """
    record = read(directory)
    if record is None:
        return False
    if record["id"] != run_id:
        raise ConfigError(
            f"{directory} holds the run {record['id']}, this configuration is {run_id}: "
            "choose another run_dir, or force=true to replace it"
        )
    if record["status"] not in ENDED:
        return False
    if lacking(record) and not allow_partial:
        raise ConfigError(
            f"{directory} was trained on a part of the data ({'; '.join(lacking(record))}): "
            "force=true trains it on the whole, task.allow_partial=true keeps it"
        )
    return True


def stale(record: dict[str, Any] | None) -> bool:
    """Whether the golden curve of a record's task and model has changed since: its numbers are not today's."""
    if record is None or "config" not in record:
        return False
    return record.get("golden") != provenance.golden(
        record["config"]["task"]["name"], record["config"]["model"]["name"]
    )


def anew(directory: Path, force: bool | str) -> bool:
    """Whether to throw away what lies in a run's directory. Raises ConfigError for an interrupted run that is stale."""
    found = read(directory)
    if force == "stale":
        return stale(found)
    if not force and found is not None and found["status"] == "interrupted" and stale(found):
        raise ConfigError(f"{directory} was begun before its numbers changed: force=stale starts it over")
    return bool(force)


def clear(directory: Path) -> None:
    """Forget a run: its record, checkpoints, curve, and what it has for W&B (its log stays)."""
    if (found := read(directory)) is not None:  # by its id: the folder may hold other runs' too
        for folder in (directory / "wandb").glob(f"*run-*-{found['id']}"):
            shutil.rmtree(folder, ignore_errors=True)
    for name in ("record.json", "last.pt", "best.pt", "curve.csv", "blocks.csv"):
        (directory / name).unlink(missing_ok=True)


def begun(directory: Path) -> bool:
    """Whether there is anything of a run that should not be lost: a checkpoint, or an outcome."""
    return (directory / "last.pt").exists() or has_outcome(directory)


def discard_unless_begun(directory: Path, slug: str) -> None:
    """Remove what a run that cannot begin has left; call it while holding the lock.

    A directory with a checkpoint, or with an outcome, is left as it is.
    """
    if begun(directory):
        return
    clear(directory)
    for path in directory.glob("lock*"):
        path.unlink(missing_ok=True)
    if directory.name == slug and not any(directory.iterdir()):
        directory.rmdir()


def summary(record: dict[str, Any] | None) -> str:
    """A run's outcome in one line."""
    if record is None:
        return "no record"
    metrics = ", ".join(f"{k} {v:.4f}" for k, v in sorted(record["metrics"].items()) if v is not None)
    return f"{record['status']}: {metrics or record.get('error') or 'no metrics'} ({record['seconds']:.0f} s)"


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[Claim]:
    """Hold a run directory. Raises Elsewhere if another process does: the run is going on there."""
    held = Claim(directory)
    try:
        for left_by_a_kill in directory.glob(f"{TEMPORARY}*"):
            left_by_a_kill.unlink(missing_ok=True)
        yield held
    finally:
        held.release()


@contextlib.contextmanager
def locks(directories: Sequence[Path]) -> Iterator[dict[Path, Claim]]:
    """Hold those of some run directories that no other process holds.

    Raises Elsewhere for the others: at once if nothing is left to hold, else at the end.
    """
    held: dict[Path, Claim] = {}
    elsewhere: list[Elsewhere] = []
    with contextlib.ExitStack() as stack:
        for directory in directories:
            try:
                held[directory] = stack.enter_context(lock(directory))
            except Elsewhere as error:
                elsewhere.append(error)
        if elsewhere and not held:
            raise elsewhere[0]
        yield held
    if elsewhere:
        raise elsewhere[0]
