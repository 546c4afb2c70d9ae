"""Read and write record.json, the file in a run's directory that has its settings, state and result."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from timescales.config import Config
from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.files import digest_of, write_atomic
from timescales.runs import provenance
from timescales.training.best import Best

Content = dict[str, Any]  # of record.json, by its keys


class State(enum.Enum):
    """Name the state of a run on disk. All values except that of ABSENT are the "status" of a record."""

    ABSENT = "absent"  # there is no record
    INTERRUPTED = "interrupted"  # being trained, or stopped before its end
    FAILED = "failed"  # an exception ended it. (If its task ends a run as "failed", it is FINISHED.)
    FINISHED = "finished"
    DIVERGED = "diverged"

    @property
    def ended(self) -> bool:
        """Return whether the run has its result, so that nothing is left to train."""
        return self in (State.FINISHED, State.DIVERGED)


ENDED = tuple(state.value for state in State if state.ended)
FILES = ("record.json", "last.pt", "best.pt", "curve.csv", "blocks.csv")  # the files of a run, except its log
# The entry of "partial" if validation and test are shortened. All other entries say what the data lack.
SHORTENED_EVALUATION = "loop.max_eval_batches"


@dataclass
class Record:
    """Hold the content of record.json. The fields are in the order of the file.

    keys: the keys that the file has, in its order. It lacks those that are not known yet, and those that this class got
    after the file was written. more: keys of the file that this class does not have, with their values.
    """

    id: str
    status: str  # the value of a State
    config: Config = field(default_factory=dict)
    seed: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)  # at the best validation
    last: dict[str, float | None] = field(default_factory=dict)  # at the last step
    best: Best | None = None
    curve: list[dict[str, float]] = field(default_factory=list)  # a point for each validation
    seconds: float = 0.0
    stopped: str | None = None  # why training ended (`training.run.Progress`)
    error: str | None = None
    partial: list[str] = field(default_factory=list)  # SHORTENED_EVALUATION, and what the data lack
    device: str = ""
    golden: str | None = None
    group: str | None = None  # the same for all seeds of a setting
    parameters: int | None = None
    chance: float | None = None  # the loss at chance
    select: Sequence[str] | None = None  # the metric by which weights are selected, and "max" or "min"
    timescales: dict[str, list[list[float]]] | None = None  # quantiles of each layer, at the "start" and the "end"
    job: str | None = None  # of SLURM
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    machine: str | None = None
    # Of a run that has ended:
    steps: int | None = None
    diverged_at: int | None = None
    probes: dict[str, float | None] = field(default_factory=dict)  # of analyses that were measured
    data: dict[str, str] = field(default_factory=dict)  # `Task.data`: digests of the user's files, by path, and others
    keys: list[str] = field(
        default_factory=lambda: [key for key in KEYS if key not in ("steps", "diverged_at", "probes", "data")]
    )
    more: Content = field(default_factory=dict)

    @classmethod
    def of(cls, content: Content) -> Record:
        """Make a record of a file's content. Raises KeyError, ValueError or TypeError if it is not a record."""
        if missing := {"id", "status", "metrics", "seconds"} - set(content):
            raise KeyError(", ".join(sorted(missing)))
        State(content["status"])  # raises ValueError
        keys = [key for key in content if key != "sha256"]
        known = {key: content[key] for key in keys if key in KEYS}
        if known.get("best"):
            known["best"] = Best(**known["best"])
        return cls(**known, keys=keys, more={key: content[key] for key in keys if key not in KEYS})

    @classmethod
    def read(cls, directory: Path) -> Record | None:
        """Read a run's record; None if there is none yet. Raises ConfigError for a file that is not a record.

        The checksum "sha256" is compared and left out. A record without one, of an older version, is accepted.
        """
        path = directory / "record.json"
        try:
            content = json.loads(path.read_text())
            record = cls.of(content)
            if (digest := content.pop("sha256", None)) is not None and digest != _digest(content):
                raise ValueError("its checksum is wrong")
            return record
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            fix = "delete this file; the run then continues from its checkpoint, or starts"
            raise ConfigError(f"{path} is damaged ({error}): {fix}") from error

    def write(self, directory: Path) -> None:
        """Write the record into a run's directory."""
        plain = _without_nan(self.content())
        text = json.dumps(plain | {"sha256": _digest(plain)}, indent=1, allow_nan=False)
        write_atomic(directory / "record.json", f"{text}\n".encode())

    def content(self) -> Content:
        """Return the content of the record's file, without the checksum."""
        values = {**self.more, **{key: getattr(self, key) for key in KEYS}, "best": self.best and asdict(self.best)}
        return {key: values[key] for key in self.keys}

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key in the record's file. For user code: record["metrics"]."""
        return self.content()[key]

    def change(self, **changes: Any) -> None:
        """Set some fields of the record."""
        for key, value in changes.items():
            setattr(self, key, _without_nan(value))
        self.keys += [key for key in changes if key not in self.keys]

    @property
    def state(self) -> State:
        """Return the state of the run."""
        return State(self.status)

    @property
    def ended(self) -> bool:
        """Return whether the run has its result, so that nothing is left to train."""
        return self.status in ENDED

    @property
    def missing_data(self) -> list[str]:
        """Return what was missing from the data set on which the run was trained, a line each."""
        return [part for part in self.partial if part != SHORTENED_EVALUATION]

    @property
    def stale(self) -> bool:
        """Return whether the run would have other numbers today.

        It would if the golden curve of its task and model, the source of a user's class, or a user's data file has
        changed since.
        """
        changed = bool(self.config) and provenance.changed(self.golden, provenance.names(self.config))
        return changed or bool(self.changed_files)

    @property
    def changed_files(self) -> list[str]:
        """Return the user's data files that have changed since. A missing file does not count as changed."""
        found = []
        for path, digest in self.data.items():
            with contextlib.suppress(OSError):
                found += [path] if digest_of(path) != digest else []
        return found

    @property
    def what_changed(self) -> str:
        """Say why a stale run would have other numbers today."""
        if files := self.changed_files:
            return f"{', '.join(files)} has changed"
        own = "".join(f" or the source of {name}" for name in provenance.names(self.config)[2:])
        return f"the code that decides its numbers{own} has changed"

    @property
    def summary(self) -> str:
        """Return the outcome of the run in one line."""
        metrics = ", ".join(f"{k} {v:.4f}" for k, v in sorted(self.metrics.items()) if v is not None)
        return f"{self.status}: {metrics or self.error or 'no metrics'} ({self.seconds:.0f} s)"


KEYS: tuple[str, ...] = tuple(each.name for each in fields(Record) if each.name not in ("keys", "more"))


def _digest(content: Content) -> str:
    """Return the checksum of a record without its "sha256". It shows whether the file was damaged on disk."""
    as_read = json.loads(json.dumps(content))  # tuples are lists then, and keys are words
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def _without_nan(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return [_without_nan(inner) for inner in value] if isinstance(value, list | tuple) else value


def start(directory: Path, run: Run, restart: bool = False) -> Record:
    """Write the record of a run that begins or continues, and return it. Its status is "interrupted" until the end.

    restart: whether to remove the files of an earlier run first.
    """
    if restart:
        clear(directory)
    config = run.config
    record = Record(
        id=run.id,
        status=State.INTERRUPTED.value,
        config=config,
        seed=config["seed"],
        partial=[SHORTENED_EVALUATION] if config["loop"]["max_eval_batches"] is not None else [],
        device=config["device"],
        golden=provenance.golden(*provenance.names(config)),
        group=run.family,
        job=os.environ.get("SLURM_JOB_ID"),
        **vars(provenance.provenance(config["device"])),
    )
    record.write(directory)
    return record


def failed(directory: Path, error: Exception) -> None:
    """Write into a run's record why it failed, unless it has a result. Errors of writing (a full disk) are ignored."""
    with contextlib.suppress(OSError):
        record = Record.read(directory)
        if record is not None and not record.ended:
            record.change(status=State.FAILED.value, error=f"{type(error).__name__}: {error}")
            record.write(directory)


def clear(directory: Path) -> None:
    """Remove the files of a run: record, checkpoints, curve, and those of W&B and TensorBoard. Its log stays."""
    if (record := Record.read(directory)) is not None:
        for folder in (directory / "wandb").glob(f"*run-*-{record.id}"):  # the folder may hold other runs' too
            shutil.rmtree(folder, ignore_errors=True)
        remove_events(directory, record.id)
    for name in FILES:
        (directory / name).unlink(missing_ok=True)


def remove_events(directory: Path, run_id: str) -> None:
    """Remove the event files that a run has written for TensorBoard."""
    for path in directory.glob(f"events.out.tfevents.*.{run_id}"):
        path.unlink(missing_ok=True)
