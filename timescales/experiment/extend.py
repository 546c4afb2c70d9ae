"""Continue a finished run with more steps, as a new run: `extend=RUN_DIR loop.max_epochs=200`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf, open_dict

from timescales.config import schema
from timescales.config.compose import parse
from timescales.config.run import Run, run_of
from timescales.config.schema import SEVERAL_RUNS_KEYS
from timescales.errors import ConfigError
from timescales.runs import found
from timescales.runs.found import Action
from timescales.runs.record import Record, State

if TYPE_CHECKING:  # torch is imported when the run begins
    from timescales.tasks import Task
    from timescales.training.run import Checkpoint

LONGER = ("loop.max_epochs", "loop.max_steps", "loop.patience")


def extended(cfg: DictConfig, overrides: Sequence[str]) -> Run:
    """Make the run that continues another: its settings, but for what the overrides say of its length.

    cfg: as Hydra composes it, of which what changes no number is taken. Raises ConfigError if it cannot be continued.
    """
    origin = found.find(cfg.extend)
    saved = Record.read(origin) if origin else None
    if origin is None or saved is None or not saved.config:
        raise ConfigError(f"extend={cfg.extend}: no such run: give the directory of one that has finished")
    given = {override.key_or_group: override for override in map(parse, overrides)}
    for key, override in given.items():
        if (schema.is_of_identity(key) and key not in (*LONGER, "extend")) or key in SEVERAL_RUNS_KEYS:
            raise ConfigError(
                f"{override.input_line}: a run that is continued keeps its settings: leave it out; {', '.join(LONGER)} "
                "say how long it trains"
            )
    with open_dict(cfg):
        for group in ("paper", "model", "task", "optimizer"):
            cfg[group] = saved.config[group]
        for key, value in schema.settings(saved.config).items():
            if schema.is_of_identity(key) and key not in given:
                OmegaConf.update(cfg, key, value, force_add=True)
        if "logger" not in given:
            cfg.logger = saved.config["logger"]
        cfg.extend = saved.id
    made, loop, stopped, before = run_of(cfg), cfg.loop, saved.stopped, saved.config["loop"]
    last = saved.curve[-1] if saved.curve else {}
    refused = ""
    if saved.state is State.DIVERGED:
        refused = "it has diverged, and cannot be continued: give another run"
    elif saved.state is not State.FINISHED:
        refused = "it has not finished: its own command continues it"
    elif saved.stale:
        refused = f"{saved.what_changed} since: its own command with force=stale first"
    elif stopped not in ("max_epochs", "max_steps", "patience"):
        refused = f"its task ended it ({stopped}), however long it may train: give another run"
    elif stopped == "patience" and loop.patience is not None and loop.patience <= before["patience"]:
        refused = f"loop.patience={before['patience']} ended it: give more, or null"
    elif loop.max_epochs <= last.get("epoch", before["max_epochs"]):
        refused = f"give loop.max_epochs above {loop.max_epochs}, which it has trained already"
    elif loop.max_steps is not None and loop.max_steps <= last.get("step", 0):
        refused = f"give loop.max_steps above {last['step']}, which it has trained already, or null"
    elif made.directory.resolve() == origin.resolve():
        refused = f"run_dir={cfg.run_dir} holds the run that is continued: leave it out, or give another one"
    if refused:
        raise ConfigError(f"extend={origin}: {refused}")
    return replace(made, origin=origin)


def checkpoint_of(run: Run, origin: Path, task: Task) -> Checkpoint | None:
    """Return the checkpoint of its origin, from which a run begins; None for a run that has begun, and goes on.

    Raises ConfigError for a checkpoint that is damaged or gone, and if the data of the origin were others.
    """
    from timescales.tasks.task import same_data
    from timescales.training.run import KEYS, load_checkpoint

    restart = found.action(run, found.read_state(run.directory)) is Action.RESTART
    if not restart and (run.directory / "last.pt").is_file():
        return None
    try:
        content = load_checkpoint(origin / "last.pt", KEYS)
    except ConfigError:  # it is damaged
        content = None
    if content is None:
        remedy = "its own command with force=true trains it again"
        raise ConfigError(f"extend={origin}: its last.pt is damaged or not there: {remedy}")
    if content.get("lacks", []) != list(task.partial) or not same_data(content.get("data"), task.data):
        raise ConfigError(f"extend={origin}: it was trained on other data: give a run that was trained on these")
    content["progress"]["stopped"] = None
    return content


def begin(run: Run, origin: Path, content: Checkpoint) -> None:
    """Put the checkpoint of its origin (`checkpoint_of`) and the origin's curve into a run's directory."""
    from timescales.training.run import save_checkpoint

    if (origin / "curve.csv").is_file():
        shutil.copyfile(origin / "curve.csv", run.directory / "curve.csv")
    save_checkpoint(run.directory / "last.pt", content)
