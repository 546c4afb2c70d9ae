"""Where a run's values go: the progress bar, curve.csv, W&B. The only place that knows wandb."""

from __future__ import annotations

import contextlib
import csv
import io
import netrc
import os
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from timescales.files import write_atomic
from timescales.schema import ConfigError, Loop


class Bar:
    """Epoch, step, newest loss and metric, steps per second and time left, on a terminal; now and then elsewhere."""

    def __init__(self, start: int, last_step: int, per_epoch: float, label: str, shown: str) -> None:
        self.per_epoch, self.shown, self.words = per_epoch, shown, {}  # type: ignore[var-annotated]
        quiet = not sys.stderr.isatty()
        self.bar = tqdm(
            total=last_step, initial=start, desc=label, unit="step", dynamic_ncols=True, file=sys.stderr,
            mininterval=30.0 if quiet else 0.2, smoothing=0.1,
        )  # fmt: skip

    def log(self, values: dict[str, float], step: int) -> None:
        for key, word in (("train/loss_nats", "loss"), (self.shown, self.shown)):
            if key in values:
                self.words[word] = f"{values[key]:.4f}"
        if values:
            words = {"epoch": f"{step / self.per_epoch:.1f}", **self.words}
            self.bar.set_postfix(words, refresh=False)
        self.bar.update(step - self.bar.n)

    def finish(self, record: dict[str, Any] | None) -> None:
        self.bar.close()


class Curve:
    """curve.csv: one row per logged step, one column per value. Rows after `step` of an earlier try are dropped."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.columns: list[str] = ["step"]
        self.rows: list[dict[str, Any]] = []
        if step and path.is_file():
            self._read(step)
        self._rewrite()

    def _read(self, step: int) -> None:
        """Take over what an earlier try wrote up to `step`; a damaged file is begun anew."""
        try:
            with open(self.path, newline="") as file:
                reader = csv.DictReader(file)
                rows = [row for row in reader if (row.get("step") or "").isdigit() and int(row["step"]) <= step]
                if "step" not in (reader.fieldnames or ()) or any(None in row for row in rows):
                    raise csv.Error("columns do not fit")
                self.columns, self.rows = list(reader.fieldnames or ()), rows
        except (csv.Error, UnicodeDecodeError) as error:
            print(f"{self.path} is damaged ({error}): begun anew from step {step}", file=sys.stderr)

    def _rewrite(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomic(self.path, text.getvalue().encode())

    def log(self, values: dict[str, float], step: int) -> None:
        if not values:
            return
        self.rows.append({"step": step, **values})
        if new := [key for key in values if key not in self.columns]:
            self.columns += new
            self._rewrite()
        else:
            with open(self.path, "a", newline="") as file:
                csv.DictWriter(file, self.columns, lineterminator="\n").writerow(self.rows[-1])

    def finish(self, record: dict[str, Any] | None) -> None:
        pass


class Wandb:
    """A run at Weights & Biases: grouped by configuration without its seed, `global_step` as the axis."""

    def __init__(self, config: dict[str, Any], slug: str, run_id: str, directory: Path) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        logger = config["logger"]
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
        if mode == "offline" and "WANDB_MODE" not in os.environ:
            print(
                f"W&B: no key, logging offline; later: wandb login && wandb sync {directory}/wandb/offline-run-*",
                file=sys.stderr,
            )
        group = slug.rsplit("-", 2)[0]  # without seed and identity
        arguments: dict[str, Any] = {
            "project": logger["project"], "entity": logger["entity"], "config": config, "name": slug, "id": run_id,
            "resume": "allow", "job_type": "train", "group": group,
            "tags": [config["task"]["name"], config["model"]["name"], config["paper"]["name"]],
            "dir": str(directory), "settings": wandb.Settings(init_timeout=20),
        }  # fmt: skip
        if wandb.run is not None:  # of another seed beside this one
            arguments["reinit"] = "create_new"
        try:
            self.run = wandb.init(**arguments, mode=mode)
        except wandb.errors.Error as error:
            # A wrong key or no network must not cost the training.
            print(f"W&B: {str(error).splitlines()[0]}: logging offline under {directory}/wandb", file=sys.stderr)
            try:
                self.run = wandb.init(**arguments, mode="offline")
            except wandb.errors.Error as again:
                raise ConfigError(f"W&B: {str(again).splitlines()[0]}; logger=csv trains without it") from again
        # Steps of our own: W&B's start at 0 again when an offline run is resumed.
        self.run.define_metric("*", step_metric="global_step")

    def log(self, values: dict[str, float], step: int) -> None:
        if values:
            self.run.log({"global_step": step, **values})

    def finish(self, record: dict[str, Any] | None) -> None:
        if record is not None:
            self.run.summary.update({**record["metrics"], "best": record["best"], "status": record["status"]})
        self.run.finish(exit_code=0 if record is not None and record["status"] == "finished" else 1)


class Loggers:
    """All of a run's loggers as one: what the training loop calls as log(values, step)."""

    def __init__(self, loggers: list[Any]) -> None:
        self.all = loggers

    def __call__(self, values: dict[str, float], step: int) -> None:
        for logger in self.all:
            logger.log(values, step)

    def finish(self, record: dict[str, Any] | None) -> None:
        for logger in self.all:
            logger.finish(record)


def open_all(
    config: dict[str, Any], slug: str, run_id: str, directory: Path, step: int, settings: Loop, task: Any
) -> Loggers:
    """The bar, and what the configuration's `logger` asks for; values after `step` of an earlier try are dropped."""
    by_epochs = task.start_of(settings.max_epochs)
    last_step = settings.last_step(by_epochs)
    label = f"{config['task']['name']} {config['model']['name']} seed {config['seed']}"
    found: list[Any] = []
    choice = config["logger"]["name"]
    if choice != "none":
        found.append(Curve(directory / "curve.csv", step))
    if choice == "wandb":
        try:
            found.append(Wandb(config, slug, run_id, directory))
        except ImportError:
            print("W&B: wandb is not installed, writing curve.csv alone (pip install wandb)", file=sys.stderr)
    found.append(Bar(step, last_step, by_epochs / settings.max_epochs, label, f"valid/{task.spec.select[0]}"))
    return Loggers(found)


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        return any("wandb" in host for host in netrc.netrc().hosts)
    return False
