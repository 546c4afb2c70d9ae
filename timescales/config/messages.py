"""One clear line for every bad input, naming the nearest right thing. Imports no torch."""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from timescales import paths
from timescales.config.folders import choices, no_such, searchpath
from timescales.errors import ConfigError

# What the system says of a run directory that cannot be made or written.
PLACES = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO,
    errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
)  # fmt: skip


def one_line(error: BaseException, overrides: list[str]) -> str | None:
    """The line for an error that the user can mend; None for any other, which is a bug."""
    line = _line(error, overrides)
    return None if line is None else " ".join(line.splitlines())  # what was typed may have several lines


def _line(error: BaseException, overrides: list[str]) -> str | None:
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, HydraException) and isinstance(error.__cause__, ConfigError):  # a plugin's
        return str(error.__cause__)
    if isinstance(error, OSError) and error.filename and error.errno in PLACES:
        return f"{error.filename}: {error.strerror}; choose another place with run_dir=DIR"
    theirs = _raised_in_hydra(error) and not isinstance(error, OmegaConfBaseException)  # those say more, see below
    if isinstance(error, ValueError) and theirs:
        return " ".join(str(error).split())
    if found := re.search(r"submitit_slurm'|Unknown plugin class : 'hydra_plugins.hydra_(\w+)_launcher", str(error)):
        return f"hydra/launcher={found[1] or 'slurm'} takes packages that are not here: pip install -e '.[launchers]'"
    if isinstance(error, TypeError | AssertionError) and theirs:  # Hydra met what it does not expect
        pairs = [o.partition("=") for o in overrides]
        chosen = ["".join(p) for p in pairs if p[1] and (paths.conf() / p[0]).is_dir() and p[2] not in choices(p[0])]
        if chosen:
            return f"{' '.join(chosen)}: a group takes the name of one of its files, such as task=copy"
        return f"{' '.join(overrides)}: cannot be composed ({error})"
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    text = f"{error}\n{error.__cause__ or ''}"
    if found := re.search(r"Ambiguous value for argument '(.+)'", text):
        key, _, value = found[1].partition("=")
        return f"{found[1]}: several values are a sweep, which takes -m; a list is written '{key}=[{value}]'"
    if isinstance(error, MissingConfigException) and (found := re.search(r"Could not find '(.+)/([^/']*)'", text)):
        return no_such(*found.groups())
    if isinstance(error, OverrideParseException):
        first, position = str(error).splitlines()[0], "quote a value with special characters: 'key=\"a,b\"'"
        return f"{getattr(error, 'override', None) or ''}: cannot be read ({first}); write key=value, {position}"
    if found := re.search(r"Key '([^']+)' is not in struct\s+full_key: (\S+)", text):
        return _unknown_key(found.group(2), overrides)
    if isinstance(error, ConfigCompositionException) and (
        found := re.search(r"Could not override '([^']+)'|Could not append to config", text)
    ):
        key = found.group(1)
        detail = re.search(r"((?:Value|Cannot|Invalid|Incompatible|field)[^\n]*)\n\s+full_key: (\S+)", text)
        if detail:
            return f"{detail.group(2)}: {detail.group(1)}"
        return _unknown_key(key, overrides) if key else text.splitlines()[0]
    if found := re.search(r"Missing mandatory value: (\S+)", text):
        return f"{found.group(1)} has no value: give {found.group(1)}=..."
    if found := re.search(r"([^\n]*)\n\s+full_key: (\S+)", text):
        return f"{found.group(2)}: {found.group(1)}"
    return " ".join(text.split())


def _raised_in_hydra(error: BaseException) -> bool:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith(("hydra.", "omegaconf."))


def _unknown_key(key: str, overrides: list[str]) -> str:
    known = known_keys(overrides)
    if key in known:
        return f"{key} must not be deleted"
    whose = "hydra" if key.startswith("hydra.") else "job"
    near = _near_key(
        key, [k for k in known if k.startswith("hydra.") == (whose == "hydra") and not k.endswith("._target_")]
    )
    return f"{key}: no such key; " + (f"did you mean {near}?" if near else f"--cfg {whose} shows all of them")


def _near_key(key: str, known: list[str]) -> str | None:
    """What may have been meant: the key's own name in another group (lr), one of its words (steps), a slip."""
    group, _, name = key.rpartition(".")

    def alike(other: str) -> tuple[bool, bool, bool, float]:
        where, _, last = other.rpartition(".")
        word = len(name) > 2 and any(part.startswith(name) for part in last.split("_"))
        ratio = SequenceMatcher(None, name, last).ratio()
        return name == last, word, ratio >= (0.65 if where == group else 0.8), SequenceMatcher(None, key, other).ratio()

    best = max(known, key=alike)
    return best if any(alike(best)[:3]) else None


def known_keys(overrides: list[str]) -> list[str]:
    """All keys of a configuration with the overrides' choices of groups, Hydra's and the groups' names included."""
    groups = [d.name for d in paths.conf().iterdir() if d.is_dir() and d.name != "table"]
    return _keys(
        tuple(o for o in overrides if o.split("=")[0] in groups and o.partition("=")[2] in choices(o.split("=")[0]))
    )


@functools.cache
def _keys(picked: tuple[str, ...]) -> list[str]:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose("config", [*picked, *searchpath()], return_hydra_config=True)
    return list(dotted(OmegaConf.to_container(cfg, resolve=False)))


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    """All keys of a configuration, written with dots; also those that hold other keys."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
