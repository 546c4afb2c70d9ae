"""Write the command that repeats a run, from its configuration."""

import shlex
from typing import Any

from timescales import paths
from timescales.config import Config, folders, schema
from timescales.config.compose import Composer
from timescales.config.run import run_of
from timescales.config.values import spell
from timescales.errors import ConfigError
from timescales.experiment import extend
from timescales.runs import found
from timescales.runs.record import Record

GROUPS = ("paper", "task", "model", "optimizer")  # each may decide what those after it are by default


def command(config: Config, run_id: str, composer: Composer) -> str:
    """Return a command that repeats a run: the files that it names, and the settings that differ from theirs.

    It has been composed, and gives the run's id. config: that of the run's record. Raises ConfigError if there is none.
    """
    auto = {**config, "model": _auto(config["model"])}  # a record has the number that T_max: auto came to
    wanted = auto if schema.identity(auto) == run_id else config
    overrides = _of_extended(wanted, run_id) if wanted.get("extend") else _overrides(wanted, composer)
    cfg = composer(overrides)
    made = extend.extended(cfg, overrides) if wanted.get("extend") else run_of(cfg)
    if made.id != run_id:
        raise ConfigError(
            f"{run_id}: no command repeats this run, since conf/ or the form of ids has changed. "
            "All its settings are in its record.json"
        )
    program = ["python", "train.py"] if paths.in_checkout() else ["timescales-train"]
    own = [word for folder in folders.places()[1:] for word in ("--config-dir", shlex.quote(str(folder)))]
    # A word with single quotes is easier to read in double ones.
    quoted = (f'"{o}"' if "'" in o and not set(o) & set('"$`\\!') else shlex.quote(o) for o in overrides)
    return " ".join([*program, *own, *quoted])


def _auto(node: Any) -> Any:
    return {k: "auto" if k == "T_max" else _auto(v) for k, v in node.items()} if isinstance(node, dict) else node


def _overrides(wanted: Config, composer: Composer) -> list[str]:
    """Return the shortest overrides that compose to a configuration: names of files, then settings."""
    names: list[str] = []
    for group in GROUPS:
        if composer(names)[group].get("name") != (name := wanted[group].get("name")):
            names.append(f"{group}={name}")
    defaults, settings = schema.settings(schema.resolved(composer(names))), []
    for key, value in schema.settings(wanted).items():
        if schema.is_of_identity(key) and (key not in defaults or defaults[key] != value):
            settings.append(f"{'' if key in defaults else '+'}{key}={spell(value)}")
    return [*names, *settings]


def _of_extended(wanted: Config, run_id: str) -> list[str]:
    """Return the overrides of a run that continues another."""
    origin = found.find(wanted["extend"])
    saved = Record.read(origin) if origin else None
    if saved is None:
        raise ConfigError(f"{run_id} continues the run {wanted['extend']}, which is not here: put it in {paths.RUNS}/")
    before, after = schema.settings(saved.config), schema.settings(wanted)
    longer = [f"{key}={spell(after[key])}" for key in extend.LONGER if after[key] != before[key]]
    return [f"extend={wanted['extend']}", *longer]
