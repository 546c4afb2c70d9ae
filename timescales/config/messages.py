"""The line for an error that the user can fix: of this package, of the system, and of what Hydra finds in a file.

What is wrong with a command line is named where it is read (`command_line.py`, `compose.py`, `schema.py`). Here is what
becomes of errors that others raise, and the lines for keys that are not there. Imports no torch.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from difflib import get_close_matches

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from yaml import MarkedYAMLError

from timescales.config import folders, values
from timescales.errors import ConfigError

# The system's error numbers for a run directory that cannot be made or written, or a file that cannot be read.
NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
NO_PLACE |= {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


def one_line(error: BaseException) -> str | None:
    """The line for an error that the user can fix; None for any other, which is a bug."""
    line = next(filter(None, map(_line, chain(error))), None)
    if line is None and isinstance(error, HydraException | OmegaConfBaseException):
        line = " ".join(str(error).split())
    return line and " ".join(line.splitlines())  # what was typed may have several lines


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error after its causes, where it is Hydra's or OmegaConf's: such an error may wrap one of ours."""
    wraps = isinstance(error, HydraException | OmegaConfBaseException)
    if wraps and (cause := error.__cause__ or error.__context__):
        yield from chain(cause)
    yield error


def _line(error: BaseException) -> str | None:
    """The line for one error alone."""
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, OSError) and error.filename and error.errno in NO_PLACE:
        why = f"{error.filename}: {error.strerror}"
        return f"{why}; choose another place with run_dir=DIR or data_root=DIR, or make room and give access there"
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, InterpolationResolutionError) and error.full_key:  # of a setting of Hydra's
        return wrong_reference(error.full_key)
    if isinstance(error, MissingConfigException):  # of a file that names another one in its defaults
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return folders.no_such(group, name) if group else None
    return None


def unknown(key: str, cfg: DictConfig) -> str:
    """The line for a key that a configuration does not have."""
    of_hydra = key.startswith("hydra.")
    every = [k for k, _ in values.dotted(cfg) if k.startswith("hydra.") == of_hydra and not k.endswith("._target_")]
    group, _, name = key.partition(".")
    if similar := nearest(key, every):
        hint = f"did you mean {similar}?"
    elif group in ("model", "task", "optimizer") and (names := folders.having(group, name)):
        hint = f"there is one with {group}={' or '.join(names)}"
    else:
        hint = f"--cfg {'hydra' if of_hydra else 'job'} shows all of them"
    return f"{key}: no such key; {hint}"


def nearest(key: str, known: list[str]) -> str | None:
    """What may have been meant: the same name in another group (lr), one of its words (steps), a typing error."""
    last = {k: k.rpartition(".")[2] for k in [*known, key]}
    name = last.pop(key)
    found = [k for k in known if last[k] == name]
    if not found and len(name) > 2:
        found = [k for k in known if any(word.startswith(name) for word in last[k].split("_"))]
    near = get_close_matches(name, last.values(), 1, cutoff=0.75)
    found = found or [k for k in known if last[k] in near] or get_close_matches(key, known, 1, cutoff=0.85)
    return next(iter(get_close_matches(key, found, 1, cutoff=0.0)), None)


def wrong_reference(override: str) -> str:
    """The line for a value with ${...} in which what it refers to is not there."""
    return f"{override}: ${{...}} must name a key that --cfg job shows, or a variable that is set"
