"""The choices of config groups: files in conf/ and in the user's own folder. Imports no torch."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from timescales import paths
from timescales.config import values
from timescales.errors import ConfigError, nearest

_own: list[Path] = []  # the folder of the user's own configurations, if there is one


def use(folder: str | Path | None) -> None:
    """Take the user's own folder of configurations, --config-dir, beside conf/, from now on; None: none.

    Raises ConfigError if it does not exist, or has a file with a name that conf/ has, too.
    """
    _own.clear()
    is_group.cache_clear()
    if folder is None:
        return
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise ConfigError(f"--config-dir={folder}: no such folder; give one that there is")
    for path in paths.conf().rglob("*.yaml"):
        name = path.relative_to(paths.conf())
        if (duplicate := folder / name).is_file() and not duplicate.samefile(path):
            raise ConfigError(f"{duplicate} would not be read: conf/ has a {name}, too; give it another name")
    _own.append(folder)


def searchpath() -> list[str]:
    """The overrides by which a configuration that is composed here finds the files in the user's folder."""
    return [f"hydra.searchpath=[{values.spell(f'file://{folder}')}]" for folder in _own]


def no_such(group: str, wrong: str) -> str:
    """The line for a choice that a group does not have."""
    options = choices(group)
    listed = f" (there are {', '.join(options)})" if options else " here: leave it out"
    return f"{group}={wrong}: no such {group}{nearest(wrong, options)}{listed}"


def choices(group: str) -> list[str]:
    """The names that a config group offers."""
    return sorted(_files(group))


@functools.cache
def is_group(name: str) -> bool:
    """Whether conf/, Hydra or the user's folder has a config group of this name."""
    return "/" in name or (name not in ("", "hydra") and any((folder / name).is_dir() for folder in places()))


def has(group: str, name: str) -> bool:
    """Whether a config group has a file; name: perhaps with folders, as in "ours/small"."""
    return any((folder / group / f"{name}.yaml").is_file() for folder in places())


def having(group: str, key: str) -> list[str]:
    """The names of a config group whose files have a key."""
    return [name for name in choices(group) if key in OmegaConf.load(_files(group)[name])]


def holds_only(key: str, group: str, name: str) -> bool:
    """Whether the file of a config group has no other key. Reads its lines; to parse a table takes seconds."""
    path = next(filter(Path.is_file, (folder / group / f"{name}.yaml" for folder in places())))
    return re.findall(r"^[^\s#].*", path.read_text(), re.MULTILINE) == [f"{key}:"]


def learning_rates() -> dict[str, float | None]:
    """The learning rate in the file of each optimizer."""
    return {name: OmegaConf.select(OmegaConf.load(file), "lr") for name, file in _files("optimizer").items()}


@functools.cache
def matched() -> dict[str, dict[str, int]]:
    """Of each task whose models have equal numbers of parameters, the units of each model (conf/matched.yaml)."""
    return OmegaConf.to_container(OmegaConf.load(paths.conf() / "matched.yaml"))  # type: ignore[return-value]


def replaced_by_recipes(files: Mapping[str, str | None], given: Iterable[str], cfg: DictConfig) -> str:
    """A line for each value of the user's own model that a recipe has replaced.

    files: the file of each group; given: the keys that the command line sets; cfg: the configuration.
    """
    lines = []
    for own in filter(Path.is_file, (folder / "model" / f"{files.get('model')}.yaml" for folder in _own)):
        mine = OmegaConf.load(own)
        for recipe in (files.get("recipe"), files.get("recipe@_global_")):
            file = paths.conf() / "recipe" / f"{recipe}.yaml"
            said = OmegaConf.load(file) if file.is_file() else OmegaConf.create()
            for key in OmegaConf.select(said, "model", default={}):
                value = OmegaConf.merge(cfg, said).model[key]
                if mine.get(key) not in (None, value) and f"model.{key}" not in given and cfg.model[key] == value:
                    replaced = f"comes from the recipe {recipe}; your {own.name} has {mine[key]}"
                    keeps = f"model.{key}={mine[key]} on the command line keeps it"
                    lines.append(f"note: model.{key}={value} {replaced}: {keeps}")
    return "\n".join(lines)


def _files(group: str) -> dict[str, Path]:
    """The files of a config group by their names."""
    return {path.stem: path for folder in places() for path in (folder / group).glob("*.yaml")}


def places() -> list[Path]:
    """The folders of configurations: conf/, and the user's own."""
    return [paths.conf(), *_own]
