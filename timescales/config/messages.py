"""The line for an error that the user can fix: of this package, of the system, and of what Hydra finds in a file.

What is wrong with a command line is named where it is read (`command_line.py`, `compose.py`, `check.py`). Here is what
becomes of errors that others raise. Imports no torch.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)
from yaml import MarkedYAMLError

from timescales import paths
from timescales.config import folders, schema
from timescales.errors import ConfigError

# The system's error numbers for a run directory that cannot be made or written, or a file that cannot be read.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_PLACE = FULL | {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
NO_PLACE |= {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}

Handler = Callable[[BaseException, Sequence[str]], str | None]


def one_line(error: BaseException, overrides: Sequence[str]) -> str | None:
    """The line for an error that the user can fix; None for any other, which is a bug."""
    for cause in chain(error):
        for handler in HANDLERS:
            if line := handler(cause, overrides):
                return " ".join(line.splitlines())  # what was typed may have several lines
    return " ".join(str(error).split()) if isinstance(error, HydraException | OmegaConfBaseException) else None


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and, where it is Hydra's or OmegaConf's, its causes, the last of them first."""
    errors: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        errors.insert(0, cause)
        wrapped = isinstance(cause, HydraException | OmegaConfBaseException)
        cause = (cause.__cause__ or cause.__context__) if wrapped else None
    yield from errors


def typed(key: str, overrides: Sequence[str]) -> str | None:
    """The override that sets a key, or what holds it, as it was typed; None if there is none."""
    keys = [override.lstrip("+~").partition("=")[0] for override in overrides]
    found = [o for o, k in zip(overrides, keys, strict=True) if f"{key}.".startswith((f"{k}.", f"{k}["))]
    return found[-1] if found else None


def wrong_value(error: BaseException, overrides: Sequence[str]) -> str | None:
    """loop.max_epochs=0: a ConfigError, also one that a plugin or a resolver raised and Hydra or OmegaConf wrapped."""
    return str(error) if isinstance(error, ConfigError) else None


def no_place(error: BaseException, overrides: Sequence[str]) -> str | None:
    """run_dir=/proc/nowhere: the directory cannot be made, or the disk is full. Or a file of data cannot be read."""
    if not (isinstance(error, OSError) and error.filename and error.errno in NO_PLACE):
        return None
    given = (typed("run_dir", overrides) or "").partition("=")[2].strip("'\"")
    places = [Path(place).absolute() for place in (given, paths.RUNS) if place]
    path = Path(str(error.filename)).absolute()
    if any(path.is_relative_to(place) or place.is_relative_to(path) for place in places):  # or a folder above it
        return f"{error.filename}: {error.strerror}; choose another place with run_dir=DIR"
    fix = "make room there" if error.errno in FULL else "make it readable"
    return f"{error.filename}: {error.strerror}; {fix}"


def unreadable_yaml(error: BaseException, overrides: Sequence[str]) -> str | None:
    """A file of conf/ that is not YAML."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return None


def unreadable_override(error: BaseException, overrides: Sequence[str]) -> str | None:
    """task.T=[1: no override by Hydra's grammar."""
    if not isinstance(error, OverrideParseException):
        return None
    quoted = "'key=\"a,b\"'"
    return f"{error.override}: cannot be read; write key=value, and quote a value with special characters: {quoted}"


def no_such_choice(error: BaseException, overrides: Sequence[str]) -> str | None:
    """A file that names another one in its defaults, which is not there."""
    if not isinstance(error, MissingConfigException):
        return None
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    return folders.no_such(group, name) if group else None


def no_value(error: BaseException, overrides: Sequence[str]) -> str | None:
    """seed=???, task=???: a key without a value."""
    if not isinstance(error, MissingMandatoryValue):
        return None
    return f"{error.full_key} has no value: give {error.full_key}=..."


def wrong_reference(error: BaseException, overrides: Sequence[str]) -> str | None:
    """seed=${nope}: what stands in ${...} is not there, or refers to itself, or is a list where settings belong."""
    if not isinstance(error, InterpolationResolutionError | GrammarParseError):
        return None
    given = typed(getattr(error, "full_key", None) or "", overrides)
    if given is None or "$" not in given:  # of another one, or of a file
        given = next((override for override in overrides if "${" in override), given or " ".join(overrides))
    variable = ", or a variable that is set" if "oc.env" in given else ""
    return f"{given}: ${{...}} must name a key that --cfg job shows{variable}"


def wrong_type(error: BaseException, overrides: Sequence[str]) -> str | None:
    """seed: ${model.name}: what a key's value comes to does not fit its type."""
    if not isinstance(error, ValidationError) or not error.full_key:
        return None
    return schema.wrong_type(error.full_key, typed(error.full_key, overrides) or f"{error.full_key}={error.msg}")


# The first that has a line for an error gives it.
HANDLERS: tuple[Handler, ...] = (
    *(wrong_value, no_place, unreadable_yaml, unreadable_override),
    *(no_such_choice, no_value, wrong_reference, wrong_type),
)
