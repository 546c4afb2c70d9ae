"""A finished run, continued with more steps as a run of its own: `extend=RUN_DIR loop.max_epochs=200`.

Imports no torch before the run begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from timescales.config import identity, schema
from timescales.config.compose import Composer, chooses, set_values, text_of
from timescales.config.run import Run, run_of
from timescales.errors import ConfigError
from timescales.runs import found
from timescales.runs.record import Record, State

if TYPE_CHECKING:  # torch is imported when the run begins
    from timescales.training.checkpoint import Checkpoint

LONGER = ("loop.max_epochs", "loop.max_steps", "loop.patience")
OF_THIS_COMMAND = ("data_root", "run_dir", "resume", "force", "device", "engine")  # not taken from the origin
FOR_SEVERAL = ("seeds", "table", "rung", "skip")


def run(overrides: Sequence[Override], composer: Composer) -> Run:
    """The run that continues another. Raises ConfigError if that one cannot be continued so."""
    cfg, origin, saved = continued(overrides, composer)
    made, loop, stopped, before = run_of(cfg), cfg.loop, saved.stopped, saved.config["loop"]
    last = saved.curve[-1] if saved.curve else {}

    def refused(why: str) -> ConfigError:
        return ConfigError(f"extend={origin}: {why}")

    if saved.state is State.DIVERGED:
        raise refused("it has diverged, and cannot be continued: give another run")
    if saved.state is not State.FINISHED:
        raise refused("it has not finished: its own command continues it")
    if saved.stale:
        raise refused(f"{saved.what_changed} since: its own command with force=stale first")
    if stopped not in ("max_epochs", "max_steps", "patience"):
        raise refused(f"its task ended it ({stopped}), however long it may train: give another run")
    if stopped == "patience" and loop.patience is not None and loop.patience <= before["patience"]:
        raise refused(f"loop.patience={before['patience']} ended it: give more, or null")
    if loop.max_epochs <= last.get("epoch", before["max_epochs"]):
        raise refused(f"give loop.max_epochs above {loop.max_epochs}, which it has trained already")
    if loop.max_steps is not None and loop.max_steps <= last.get("step", 0):
        raise refused(f"give loop.max_steps above {last['step']}, which it has trained already, or null")
    if made.directory.resolve() == origin.resolve():
        raise refused(f"run_dir={cfg.run_dir} holds the run that is continued: leave it out, or give another one")
    return replace(made, command=tuple(map(text_of, overrides)), origin=origin)


def continued(overrides: Sequence[Override], composer: Composer) -> tuple[DictConfig, Path, Record]:
    """The configuration of the run that continues another, the directory of that one, and its record.

    Settings are those of the record, but for what the overrides change: how long it trains, and what changes no number.
    """
    word = [text_of(o).partition("=")[2].strip("'\"") for o in overrides if o.key_or_group == "extend"][-1]
    origin = found.find(word)
    saved = Record.read(origin) if origin else None
    if origin is None or saved is None or not saved.config:
        raise ConfigError(f"extend={word}: no such run: give the directory of one that has finished, runs/<its name>")
    given = [override for override in overrides if override.key_or_group != "extend"]
    for override in given:
        key = override.key_or_group
        if (identity.is_of_identity(key) and key not in LONGER) or key in FOR_SEVERAL or override.is_delete():
            raise ConfigError(
                f"{text_of(override)}: a run that is continued keeps its settings: leave it out; {', '.join(LONGER)} "
                "say how long it trains"
            )
    cfg, own = composer([]), {key: value for key, value in saved.config.items() if key not in OF_THIS_COMMAND}
    with open_dict(cfg):
        cfg.update({**own, "loop": OmegaConf.structured(schema.LoopSettings(**own["loop"]))})
        for override in filter(chooses, given):
            cfg[override.key_or_group] = composer([override])[override.key_or_group]
        set_values(cfg, given).extend = saved.id
    return cfg, origin, saved


def checkpoint_of(run: Run, restart: bool, partial: Sequence[str], data: Mapping[str, str]) -> Checkpoint | None:
    """The checkpoint of its origin, from which a run begins; None for one without an origin, or that goes on.

    partial: what its data lack (`Task.partial`). data: their digests (`Task.data`). Raises ConfigError for a checkpoint
    that is damaged or gone, and if the data of the origin were others.
    """
    from timescales.tasks.task import same_data
    from timescales.training import checkpoint
    from timescales.training.run import KEYS

    if run.origin is None or (not restart and (run.directory / "last.pt").is_file()):
        return None
    try:
        content = checkpoint.load(run.origin / "last.pt", KEYS)
    except ConfigError:  # it is damaged
        content = None
    if content is None:
        again = "its own command with force=true trains it again"
        raise ConfigError(f"extend={run.origin}: its last.pt is damaged or not there: {again}")
    if content.get("lacks", []) != list(partial) or not same_data(content.get("data"), data):
        raise ConfigError(f"extend={run.origin}: it was trained on other data: give a run that was trained on these")
    content["progress"]["stopped"] = None
    return content


def begin(run: Run, content: Checkpoint | None) -> None:
    """Put the checkpoint of its origin, if there is one (`checkpoint_of`), and its curve into a run's directory."""
    from timescales.training import checkpoint

    if run.origin is None or content is None:
        return
    if (run.origin / "curve.csv").is_file():
        shutil.copyfile(run.origin / "curve.csv", run.directory / "curve.csv")
    checkpoint.save(run.directory / "last.pt", content)
