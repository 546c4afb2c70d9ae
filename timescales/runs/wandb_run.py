"""Send runs, their pictures and the verdicts on tables to Weights & Biases. Only this module imports wandb."""

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales.errors import ConfigError
from timescales.runs import dashboards
from timescales.runs.dashboards import Timescales
from timescales.runs.record import Record, State


class Wandb:
    """Log a run to Weights & Biases. Its group there are the seeds of its configuration, its axis is `global_step`.

    Each validation comes with a histogram of every layer's time scales. If sending has taken more than SHARE of the
    time, a training loss waits, and is replaced by a newer one. curve.csv has all losses.

    saved: the run's record. timescales: returns the time scales of each layer, a tensor (H,) of steps.
    """

    SHARE = 0.01

    def __init__(self, directory: Path, saved: Record, timescales: Timescales, step: int) -> None:
        self.run = _open(directory, saved, "allow" if step else None)  # None replaces what an earlier process sent
        assert saved.select is not None
        metric, direction = saved.select
        self.run.define_metric(f"valid/{metric}", step_metric="global_step", summary=f"{direction},last")
        self.timescales, self.step = timescales, step
        self.waiting: dict[str, float] = {}
        self.spent, self.begun = 0.0, 0.0

    def log(self, values: dict[str, float], step: int) -> None:
        if not values:
            return
        now = time.monotonic()
        if self.waiting.keys() - values.keys():
            self._send({})  # with its own step: nothing newer replaces it
        self.waiting, self.step = dict(values), step
        looked = dashboards.with_histograms(values)
        if looked or self.spent <= self.SHARE * (now - self.begun):
            self._send(dashboards.histograms(self.timescales()) if looked else {})
            self.spent += time.monotonic() - now
        if not self.begun:  # not counted: the first call loads what W&B needs, once, in half a second
            self.spent, self.begun = 0.0, time.monotonic()

    def _send(self, counts: dict[str, tuple[list[int], list[float]]]) -> None:
        import wandb

        drawn = {name: wandb.Histogram(np_histogram=pair) for name, pair in counts.items()}  # type: ignore[arg-type]
        self.run.log({"global_step": self.step, **self.waiting, **drawn})
        self.waiting = {}

    def finish(self, record: Record | None) -> None:
        if self.waiting:
            self._send({})
        if record is not None:
            names = ("best", "status", "stopped", "error", "seconds", "parameters", "chance")
            content = record.content()
            summary = {key: content[key] for key in names if key in content and (key != "seconds" or content[key])}
            last = {f"last/{name}": value for name, value in record.last.items()}
            self.run.summary.update({**record.metrics, **last, **summary})
        self.run.finish(exit_code=0 if record is not None and record.state is State.FINISHED else 1)


def _open(directory: Path, saved: Record, resume: str | None = "allow") -> Any:
    """Begin a run at W&B, or continue it. It has the id of the record there, so a resumed run is found again."""
    config, label = saved.config, dashboards.label(saved)
    return _init(
        config["logger"],
        directory,
        resume=resume,
        id=saved.id,
        config=config,
        job_type="train",
        name=label.name,
        group=label.group,
        tags=label.tags,
    )


def check() -> None:
    """Raise ConfigError if W&B has settings with which it cannot even log offline."""
    with contextlib.suppress(ImportError):
        _mode()


def _mode() -> str:
    """Return the mode in W&B's own settings, which WANDB_MODE or `wandb offline` in this folder sets."""
    os.environ.setdefault("WANDB_SILENT", "true")  # before its settings are read for the first time
    import wandb

    try:
        return str(wandb.setup().settings.mode)
    except ValueError as error:
        raise ConfigError(f"W&B: {' '.join(str(error).split())}; logger=csv trains without it") from error


_unreached: list[Path] = []  # directories whose run could not be begun online


def _init(logger: Mapping[str, str | None], directory: Path, **arguments: Any) -> Any:
    """Call wandb.init. Without a valid key or a network, log offline and print a line that says so."""
    mode: Any = _mode_with_key(directory)
    import wandb

    arguments |= {
        "project": logger["project"],
        "entity": logger["entity"],
        "dir": str(directory),
        "settings": wandb.Settings(init_timeout=20),
    }
    if wandb.run is not None:  # another seed of this process is being logged
        arguments["reinit"] = "create_new"
    try:
        run = wandb.init(**arguments, mode=mode)
    except wandb.errors.Error as error:
        print(f"W&B: {str(error).splitlines()[0]}: logging offline under {directory}/wandb", file=sys.stderr)
        _unreached.append(directory)
        run = _init_offline(arguments)
    # An axis of its own: W&B's steps start at 0 again when an offline run is resumed.
    run.define_metric("global_step", hidden=True)
    run.define_metric("*", step_metric="global_step")
    return run


def _mode_with_key(directory: Path) -> str:
    """Return the mode of W&B. Without a valid key it is offline; print a line that says so."""
    mode = _mode()
    import wandb

    if mode != "online":
        return mode
    if _unreached:  # another seed of this process has waited for the network already
        return "offline"
    try:
        if wandb.login(prompt=False, verify=False):
            return "online"
        why = "no key"
    except wandb.errors.Error as error:
        why = str(error).splitlines()[0].rstrip(".")
    later = f"wandb login && wandb sync {shlex.quote(str(directory))}/wandb/offline-run-*"
    print(f"W&B: {why}, logging offline. To upload it later: {later}", file=sys.stderr)
    return "offline"


def _init_offline(arguments: dict[str, Any]) -> Any:
    """Call wandb.init offline after it failed online, which must not end the training.

    Raises ConfigError if W&B refuses its settings. After any other error the run is not logged to W&B.
    """
    import wandb

    if wandb.run is None:
        wandb.teardown()  # otherwise its service says that the id is in use
    try:
        return wandb.init(**arguments, mode="offline")
    except wandb.errors.Error as error:
        raise ConfigError(f"W&B: {str(error).splitlines()[0]}; logger=csv trains without it") from error
    except Exception as error:  # from its service, which another process may have started, and which still has the id
        print(f"W&B: {error}: this run is not logged to W&B. curve.csv has all its values", file=sys.stderr)
        return wandb.init(mode="disabled")


def pictures(directory: Path) -> int:
    """Upload RUN_DIR/analysis/*.png to the run's page at W&B, and their CSV files. Return the number of pictures.

    It is 0 for a run that is not logged to W&B.
    """
    saved, drawn = Record.read(directory), sorted((directory / "analysis").glob("*.png"))
    if not drawn or saved is None or saved.config["logger"]["name"] != "wandb":
        return 0
    try:
        import wandb
    except ImportError:
        print("W&B: wandb is not installed, the pictures are only in the run's directory", file=sys.stderr)
        return 0
    run = _open(directory, saved)
    images = {f"analysis/{path.stem}": wandb.Image(str(path), caption=path.stem) for path in drawn}
    run.log({"global_step": saved.steps or 0, **images})
    for path in drawn:
        if path.with_suffix(".csv").is_file():
            run.save(str(path.with_suffix(".csv")), base_path=str(directory), policy="now")
    run.finish()
    return len(drawn)


def publish(
    logger: Mapping[str, str | None],
    name: str,
    directory: Path,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    files: Sequence[Path],
    summary: dict[str, str],
) -> None:
    """Send a table and its verdicts to W&B: as the run "report-<name>", and as a new version of the artefact <name>.

    The artefact has the files and, as "verdicts", the rows. `summary` becomes the summary of the run.
    """
    directory.mkdir(parents=True, exist_ok=True)
    run = _init(
        logger,
        directory,
        resume="allow",
        id=f"report-{name}",
        name=f"report {name}",
        job_type="report",
        group=name,
        tags=[name],
    )
    import wandb

    table = wandb.Table(columns=list(columns), data=[list(map(str, row)) for row in rows])
    artefact = wandb.Artifact(name, type="table", metadata=summary)
    for path in files:
        artefact.add_file(str(path))
    artefact.add(table, "verdicts")
    run.log_artifact(artefact)
    shown = {path.stem: wandb.Image(str(path), caption=name) for path in files if path.suffix == ".png"}
    run.log({"verdicts": table, **shown})
    run.summary.update(summary)
    run.finish()
