"""Send a run's values to the progress bar, to curve.csv and to a dashboard (`wandb_run.py` and its neighbours)."""

import csv
import io
import math
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
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
from timescales.training.progress import pause

Row = dict[str, str | float]  # a row of curve.csv; values that were read from the file are strings


class Bar:
    """Show a progress bar: epoch, step, newest loss and metric beside their values at chance, speed, time left.

    Without a terminal it is a line every half minute.

    chance: the loss at chance, nan if unknown. metric_at_chance: see the function of this name.
    """

    def __init__(
        self,
        start: int,
        last_step: int,
        per_epoch: float,
        label: str,
        shown: str,
        chance: float,
        metric_at_chance: float = math.nan,
    ) -> None:
        self.per_epoch, self.shown, self.words = per_epoch, shown, {}  # type: ignore[var-annotated]
        self.chance = "" if math.isnan(chance) else f" (chance {chance:.4f})"
        self.metric_at_chance = "" if math.isnan(metric_at_chance) else f" (chance {metric_at_chance:.4f})"
        self.bar = tqdm(
            total=last_step,
            initial=start,
            desc=label,
            unit="step",
            dynamic_ncols=True,
            file=sys.stderr,
            mininterval=pause(),
            smoothing=0.1,
        )

    def log(self, values: dict[str, float], step: int) -> None:
        noted = (("train/loss_nats", "loss", self.chance), (self.shown, self.shown, self.metric_at_chance))
        for key, word, note in noted:
            if key in values:
                self.words[word] = f"{values[key]:.4f}{note}"
        if values:
            words = {"epoch": f"{step / self.per_epoch:.1f}", **self.words}
            self.bar.set_postfix(words, refresh=False)
        self.bar.update(step - self.bar.n)

    def finish(self, record: Record | None) -> None:
        self.bar.close()


class Curve:
    """Write curve.csv: a row for each logged step, a column for each value, and a checksum of the row.

    A resumed run continues the file. Rows after `step`, from which it continues, are dropped.

    every: the run logs at least every so many steps. If later rows are missing, a line says so.
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
                print(f"{self.path} ends at step {last}: its rows from there to step {step} are lost", file=sys.stderr)
        write_atomic(self.path, self._text(self.rows, header=True).encode())

    def _read(self, step: int) -> None:
        """Read the rows that an earlier process wrote up to `step`. If the file is damaged, keep none of them."""
        try:
            text = self.path.read_bytes().decode()
            whole = text[: text.rfind("\n") + 1]  # a kill or a full disk may leave half a row
            reader = csv.DictReader(io.StringIO(whole, newline=""))
            rows = list(reader)
            if "step" not in (reader.fieldnames or ()) or any(None in row for row in rows):
                raise csv.Error("the header does not fit the rows")
            for row in rows:
                given = row.pop(self.CHECK, None)
                _ = [float(value) for value in row.values() if value]  # raises ValueError if one is not a number
                if given != self._check(row) and self.CHECK in (reader.fieldnames or ()):
                    raise csv.Error(f"the checksum of step {row['step']} is wrong")
            self.columns = [c for c in reader.fieldnames or () if c != self.CHECK]
            self.rows = [row for row in rows if int(row["step"]) <= step]
        except FileNotFoundError:
            return
        except (csv.Error, ValueError) as error:
            print(
                f"{self.path} is damaged ({error}): its rows up to step {step} are lost; the run itself continues",
                file=sys.stderr,
            )

    def _check(self, row: Row) -> str:
        """Return the checksum of a row and the names of its columns. Because of the x it is never read as a number."""
        fields = [f"{k}={v}" for k, v in sorted(row.items()) if v not in ("", None) and k != self.CHECK]
        return f"x{zlib.crc32(chr(0).join(fields).encode()):08x}"

    def _text(self, rows: list[Row], header: bool) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, [*self.columns, self.CHECK], lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(row | {self.CHECK: self._check(row)} for row in rows)
        return text.getvalue()

    def repeats(self, values: dict[str, float], step: int) -> bool:
        """Return whether a row repeats the last one. It may, if the run was killed before the checkpoint of a row."""
        return bool(self.rows) and self._check({"step": step, **values}) == self._check(self.rows[-1])

    def log(self, values: dict[str, float], step: int) -> None:
        if not values or self.repeats(values, step):
            return
        self.rows.append({"step": step, **values})
        if new := [key for key in values if key not in self.columns]:
            self.columns += new
            write_atomic(self.path, self._text(self.rows, header=True).encode())
        else:
            append(self.path, self._text(self.rows[-1:], header=False))

    def finish(self, record: Record | None) -> None:
        pass


@dataclass
class Loggers:
    """Pass the values of a step to all loggers of a run. The training loop calls it as `log(values, step)`.

    check: called first, before anything is logged. curve: the logger that knows what an earlier process has logged, or
    None.
    """

    all: list[Any]
    check: Callable[[], None]
    curve: Curve | None

    def __call__(self, values: dict[str, float], step: int) -> None:
        self.check()
        if values and self.curve is not None and self.curve.repeats(values, step):
            values = {}
        for logger in self.all:
            logger.log(values, step)

    def finish(self, record: Record | None) -> None:
        """Finish every logger. Later calls log nothing."""
        loggers, self.all = self.all, []
        for logger in loggers:
            logger.finish(record)


def check(config: Config, rnn: RNN) -> None:
    """Raise ConfigError if the chosen logger cannot log here, or if T_1/e is to be logged and the layers have none."""
    checks = {"wandb": wandb_run.check, "tensorboard": tensorboard_run.check, "trackio": trackio_run.check}
    if config["logger"]["name"] in checks:
        checks[config["logger"]["name"]]()
    if config["loop"]["log_one_over_e"] is not None:
        try:
            needs_forget_gates(rnn)
        except ConfigError as error:
            raise ConfigError(f"loop.log_one_over_e must be null for this model: {error}") from error


def open_all(
    saved: Record,
    directory: Path,
    step: int,
    settings: LoopSettings,
    task: Any,
    unit_timescales: Timescales,
    check: Callable[[], None],
) -> Loggers:
    """Open the progress bar and the loggers that the configuration names. Drop what was logged after `step`.

    saved: the run's record. check: called before anything is logged or saved; it raises an error if another process has
    taken over the run.
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
    opened.append(
        Bar(step, settings.last_step(task.start_of), per_epoch, label, shown, chance, metric_at_chance(task, chance))
    )
    return Loggers(opened, check, curve)


def metric_at_chance(task: Any, chance: float) -> float:
    """Return the value of the task's selecting metric without any skill; nan if unknown.

    It is that of the best simple rule (`Task.trivial_baselines`) or, for a task without such rules, `no_skill`.

    chance: the loss at chance.
    """
    name, best = task.spec.select
    if rules := task.trivial_baselines():
        return float((max if best == "max" else min)(rules.values()))
    try:
        found = no_skill(task, name, chance, batches=4)
    except Exception:  # a user's task may not accept constant answers: a progress bar must not end its run
        found = None
    return math.nan if found is None else found
