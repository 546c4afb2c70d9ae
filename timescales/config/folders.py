"""What conf/ and a folder of your own offer. Imports no torch."""

from __future__ import annotations

from timescales import paths
from timescales.config import overrides
from timescales.errors import ConfigError, nearest


def check_own() -> None:
    """Raise ConfigError for a folder of one's own that is not there, or one with a name that conf/ has, too."""
    for folder in paths.own():
        if not folder.is_dir():
            raise ConfigError(f"--config-dir={folder}: no such folder")
        for path in paths.conf().rglob("*.yaml"):
            name = path.relative_to(paths.conf())
            if (mine := folder / name).is_file() and not mine.samefile(path):
                raise ConfigError(f"{mine} would not be read: conf/ has a {name}, too; give it another name")


def searchpath() -> list[str]:
    """The overrides by which a configuration that is composed here finds what lies in one's own folder."""
    return [f"hydra.searchpath=[{overrides.spell(f'file://{folder}')}]" for folder in paths.own()]


def no_such(group: str, wrong: str) -> str:
    """The line for a choice that a group does not have."""
    options = choices(group)
    there = f" (there are {', '.join(options)})" if options else " here"
    return f"{group}={wrong}: no such {group}{nearest(wrong, options)}{there}"


def choices(group: str) -> list[str]:
    """The names a config group offers."""
    return sorted(path.stem for folder in (paths.conf(), *paths.own()) for path in (folder / group).glob("*.yaml"))
