"""Find the files of config groups, in conf/ and in the user's folder."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from timescales import paths
from timescales.errors import ConfigError

_own: list[Path] = []  # the folder of the user's own configurations, if there is one


def use(folder: str | Path | None) -> None:
    """Take the user's own folder of configurations, --config-dir, beside conf/, from now on; None: none.

    Raises ConfigError if it does not exist, or has a file with a name that conf/ has, too, which nobody would read.
    """
    _own.clear()
    if folder is None:
        return
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise ConfigError(f"--config-dir={folder}: no such folder")
    for path in folder.rglob("*.yaml"):
        name = path.relative_to(folder)
        if (ours := paths.conf() / name).is_file() and not ours.samefile(path):
            raise ConfigError(f"{path} would not be read: conf/ has a {name}, too; give it another name")
    _own.append(folder)


def use_sources(sources: Any) -> None:
    """Take the user's own folder from where Hydra looks for files (`hydra.runtime.config_sources`)."""
    use(next((source.path for source in sources if source.provider == "command-line"), None))


def places() -> list[Path]:
    """Return the folders of configurations: conf/, and the user's own."""
    return [paths.conf(), *_own]


def choices(group: str) -> list[str]:
    """Return the names that a config group offers."""
    return sorted(path.stem for folder in places() for path in (folder / group).glob("*.yaml"))


def file(group: str, name: str) -> Path | None:
    """Return the file of a group's choice, whose name may have folders, as in "ours/small"; None if there is none."""
    return next(filter(Path.is_file, (folder / group / f"{name}.yaml" for folder in places())), None)


@functools.cache
def matched() -> dict[str, dict[str, int]]:
    """Return the units of each model, by task (conf/matched.yaml): with them all models have as many parameters."""
    return OmegaConf.to_container(OmegaConf.load(paths.conf() / "matched.yaml"))  # type: ignore[return-value]


def replaced_by_recipes(files: Mapping[str, str | None], given: Iterable[str], cfg: DictConfig) -> Iterator[str]:
    """Yield a line for each value of the user's own model that a recipe has replaced.

    files: the file of each group; given: the keys that the command line sets; cfg: the configuration.
    """
    for own in filter(Path.is_file, (folder / "model" / f"{files.get('model')}.yaml" for folder in _own)):
        user_file = OmegaConf.load(own)
        for recipe in (files.get("recipe"), files.get("recipe@_global_")):
            path = paths.conf() / "recipe" / f"{recipe}.yaml"
            settings = OmegaConf.load(path) if path.is_file() else OmegaConf.create()
            for key in OmegaConf.select(settings, "model", default={}):
                value = OmegaConf.merge(cfg, settings).model[key]
                if user_file.get(key) not in (None, value) and f"model.{key}" not in given and cfg.model[key] == value:
                    replaced = f"comes from the recipe {recipe}; your {own.name} has {user_file[key]}"
                    keeps = f"model.{key}={user_file[key]} on the command line keeps it"
                    yield f"note: model.{key}={value} {replaced}: {keeps}"
