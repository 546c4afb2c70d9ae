"""Send a run's values to the progress bar, to curve.csv and to a dashboard (`wandb_run.py` and its neighbours)."""

from __future__ import annotations

import csv
import io
import math
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from timescales.config import Config
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.files import append, write_atomic
from timescales.nn.rnn import RNN
from timescales.runs import tensorboard_run, trackio_run, wandb_run
from timescales.runs.dashboards import Timescales
from timescales.runs.record import Record
from timescales.tasks.skill import no_skill
from timescales.training.gates import needs_forget_gates

Row = dict[str, str | float]  # of curve.csv: numbers, as texts where they were read


class Bar:
    """Epoch, step, newest loss (and what it is at chance) and metric, steps per second, time left.

    chance: the loss at chance. floor: the metric without skill, which is what a simple rule reaches
    (`Task.trivial_baselines`), or else what the same answer to all does. nan where it is not known.
    Without a terminal a line every half minute.
    """

    def __init__(
        self,
        start: int,
        last_step: int,
        per_epoch: float,
        label: str,
        shown: str,
        chance: float,
        floor: float = math.nan,
    ) -> None:
        self.per_epoch, self.shown, self.words = per_epoch, shown, {}  # type: ignore[var-annotated]
        self.chance = "" if math.isnan(chance) else f" (chance {chance:.4f})"
        self.floor = "" if math.isnan(floor) else f" (chance {floor:.4f})"
        quiet = not sys.stderr.isatty()
        self.bar = tqdm(
            total=last_step,
            initial=start,
            desc=label,
            unit="step",
            dynamic_ncols=True,
            file=sys.stderr,
            mininterval=30.0 if quiet else 0.2,
            smoothing=0.1,
        )

    def log(self, values: dict[str, float], step: int) -> None:
        for key, word, note in (("train/loss_nats", "loss", self.chance), (self.shown, self.shown, self.floor)):
            if key in values:
                self.words[word] = f"{values[key]:.4f}{note}"
        if values:
            words = {"epoch": f"{step / self.per_epoch:.1f}", **self.words}
            self.bar.set_postfix(words, refresh=False)
        self.bar.update(step - self.bar.n)

    def finish(self, record: Record | None) -> None:
        self.bar.close()


class Curve:
    """curve.csv: one row per logged step, one column per value, and the row's checksum.

    Rows of an earlier process after `step` are dropped. every: there should be a row at least every so many steps.
    """

    CHECK = "crc32"

    def __init__(self, path: Path, step: int, every: int | None = None) -> None:
        self.path = path
        self.columns: list[str] = ["step"]
        self.rows: list[Row] = []
        if step:
            self._read(step)
            last = int(self.rows[-1]["step"]) if self.rows else 0
            if every and last < step - step % every:
                print(f"{self.path} ends at step {last}: rows up to step {step} are lost", file=sys.stderr)
        self._rewrite()

    def _read(self, step: int) -> None:
        """Keep what an earlier process wrote up to `step`; a damaged file is restarted."""
        try:
            text = self.path.read_bytes().decode()
            whole = text[: text.rfind("\n") + 1]  # a kill or a full disk may leave half a row
            reader = csv.DictReader(io.StringIO(whole, newline=""))
            rows = list(reader)
            if "step" not in (reader.fieldnames or ()) or any(None in row for row in rows):
                raise csv.Error("columns do not fit")
            for row in rows:
                given = row.pop(self.CHECK, None)
                _ = [float(value) for value in row.values() if value]  # raises ValueError for what is no number
                if given != self._check(row) and self.CHECK in (reader.fieldnames or ()):
                    raise csv.Error(f"the row of step {row['step']} is not as it was written")
            self.columns = [c for c in reader.fieldnames or () if c != self.CHECK]
            self.rows = [row for row in rows if int(row["step"]) <= step]
        except FileNotFoundError:
            return
        except (csv.Error, ValueError) as error:
            print(f"{self.path} is damaged ({error}): restarted from step {step}", file=sys.stderr)

    def _check(self, row: Row) -> str:
        """Return the checksum of a row and its columns' names; the x keeps it from being read as a number."""
        fields = [f"{k}={v}" for k, v in sorted(row.items()) if v not in ("", None) and k != self.CHECK]
        return f"x{zlib.crc32(chr(0).join(fields).encode()):08x}"

    def _text(self, rows: list[Row], header: bool) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, [*self.columns, self.CHECK], lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(row | {self.CHECK: self._check(row)} for row in rows)
        return text.getvalue()

    def _rewrite(self) -> None:
        write_atomic(self.path, self._text(self.rows, header=True).encode())

    def repeats(self, values: dict[str, float], step: int) -> bool:
        """Return whether a row repeats the last one: the run was killed after the row, before its record."""
        return bool(self.rows) and self._check({"step": step, **values}) == self._check(self.rows[-1])

    def log(self, values: dict[str, float], step: int) -> None:
        if not values or self.repeats(values, step):
            return
        self.rows.append({"step": step, **values})
        if new := [key for key in values if key not in self.columns]:
            self.columns += new
            self._rewrite()
        else:
            append(self.path, self._text(self.rows[-1:], header=False))

    def finish(self, record: Record | None) -> None:
        pass


class Loggers:
    """All of a run's loggers as one: the training loop's log(values, step). It calls `check` before them.

    curve: the one among them that knows what an earlier process has logged, if there is one.
    """

    def __init__(self, loggers: list[Any], check: Callable[[], None], curve: Curve | None) -> None:
        self.all, self.check, self.curve = loggers, check, curve

    def __call__(self, values: dict[str, float], step: int) -> None:
        self.check()
        if values and self.curve is not None and self.curve.repeats(values, step):
            values = {}
        for logger in self.all:
            logger.log(values, step)

    def finish(self, record: Record | None) -> None:
        """Finish each logger, once: nothing is logged any more."""
        loggers, self.all = self.all, []
        for logger in loggers:
            logger.finish(record)


def check(config: Config, rnn: RNN) -> None:
    """Raise ConfigError if the configuration's logger cannot log here, or is to log T_1/e of layers without it."""
    checks = {"wandb": wandb_run.check, "tensorboard": tensorboard_run.check, "trackio": trackio_run.check}
    if config["logger"]["name"] in checks:
        checks[config["logger"]["name"]]()
    if config["loop"]["log_one_over_e"] is not None:
        try:
            needs_forget_gates(rnn)
        except ConfigError as error:
            raise ConfigError(f"loop.log_one_over_e must be null here: {error}") from error


def open_all(
    saved: Record,
    directory: Path,
    step: int,
    settings: LoopSettings,
    task: Any,
    unit_timescales: Timescales,
    check: Callable[[], None],
) -> Loggers:
    """Open the bar and the loggers that `logger` names. Drop what an earlier process logged after `step`.

    saved: the run's record. check: is called before anything is logged or saved; it raises if another process has taken
    over the run.
    """
    config, per_epoch = saved.config, task.start_of(settings.max_epochs) / settings.max_epochs
    label = f"{config['task']['name']} {config['model']['name']} seed {config['seed']}"
    choice = config["logger"]["name"]
    curve = Curve(directory / "curve.csv", step, settings.log_every) if choice != "none" else None
    opened: list[Any] = [curve] if curve else []
    if choice == "wandb":
        try:
            opened.append(wandb_run.Wandb(directory, saved, unit_timescales, step))
        except ImportError:
            print("W&B: wandb is not installed, writing only curve.csv (pip install wandb)", file=sys.stderr)
    elif choice == "tensorboard":
        opened.append(tensorboard_run.TensorBoard(directory, saved, unit_timescales, step))
    elif choice == "trackio":
        opened.append(trackio_run.Trackio(saved, unit_timescales, curve.rows if curve else []))
    shown = f"valid/{task.spec.select[0]}"
    chance = math.nan if saved.chance is None else saved.chance
    opened.append(Bar(step, settings.last_step(task.start_of), per_epoch, label, shown, chance, floor_of(task, chance)))
    return Loggers(opened, check, curve)


def floor_of(task: Any, chance: float) -> float:
    """Return what the metric that selects is without skill, by the task's simple rules if it has some; nan if unknown.

    chance: the loss at chance.
    """
    name, best = task.spec.select
    if rules := task.trivial_baselines():
        return float((max if best == "max" else min)(rules.values()))
    try:
        found = no_skill(task, name, chance, batches=1)
    except Exception:  # a user's task, whose metrics take other answers: no run ends by its progress bar
        found = None
    return math.nan if found is None else found
