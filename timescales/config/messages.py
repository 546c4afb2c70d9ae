"""One clear line for every wrong input, naming the nearest right word. Imports no torch.

`HANDLERS` and `HYDRA_HANDLERS` list the kinds of errors. Most are recognised by Hydra's texts:
tests/config/test_messages.py has an example of each, and fails where a new version of Hydra has other texts.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import NamedTuple

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from timescales import paths
from timescales.config.folders import choices, no_such
from timescales.config.keys import unknown_key
from timescales.errors import ConfigError

# The system's error numbers for a run directory that cannot be made or written.
NO_PLACE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
NO_PLACE |= {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


class Problem(NamedTuple):
    """An error, and the command line that led to it."""

    error: BaseException
    overrides: list[str]
    text: str  # of the error, and of its cause


Handler = Callable[[Problem], str | None]


def one_line(error: BaseException, overrides: list[str]) -> str | None:
    """The line for an error that the user can fix; None for any other, which is a bug."""
    problem = Problem(error, overrides, f"{error}\n{error.__cause__ or ''}")
    of_hydra = isinstance(error, HydraException | OmegaConfBaseException)
    for handler in (*HANDLERS, *HYDRA_HANDLERS) if of_hydra else HANDLERS:
        if line := handler(problem):
            return " ".join(line.splitlines())  # what was typed may have several lines
    return None


# --- errors of this package and of the system -------------------------------------------------------------------------


def wrong_value(problem: Problem) -> str | None:
    """loop.max_epochs=0: a ConfigError, also one that a plugin or a resolver raised and Hydra or OmegaConf wrapped."""
    wrapped = isinstance(problem.error, HydraException | OmegaConfBaseException)
    for error in (problem.error, problem.error.__cause__ if wrapped else None):
        if isinstance(error, ConfigError):
            return str(error)
    return None


def no_place(problem: Problem) -> str | None:
    """run_dir=/proc/nowhere: the directory cannot be made, or the disk is full."""
    error = problem.error
    if isinstance(error, OSError) and error.filename and error.errno in NO_PLACE:
        return f"{error.filename}: {error.strerror}; choose another place with run_dir=DIR"
    return None


def no_launcher(problem: Problem) -> str | None:
    """hydra/launcher=slurm, where the package that it needs is not installed."""
    pattern = r"submitit_slurm'|Unknown plugin class : 'hydra_plugins.timescales_(\w+)"
    if match := re.search(pattern, str(problem.error)):
        launcher = match[1] or "slurm"
        return f"hydra/launcher={launcher} takes packages that are not here: pip install -e '.[launchers]'"
    return None


def unreadable_yaml(problem: Problem) -> str | None:
    """A file of conf/ that is not YAML."""
    error = problem.error
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return None


# --- errors that Hydra's code raises without a class of its own -------------------------------------------------------


def wrong_options(problem: Problem) -> str | None:
    """--run --multirun, model=null: Hydra raises a ValueError."""
    if isinstance(problem.error, ValueError) and _raised_in_hydra(problem.error):
        return " ".join(str(problem.error).split())
    return None


def wrong_group(problem: Problem) -> str | None:
    """model=[1]: a group that is given no name; Hydra fails with a TypeError or an AssertionError."""
    if not (isinstance(problem.error, TypeError | AssertionError) and _raised_in_hydra(problem.error)):
        return None
    pairs = [override.partition("=") for override in problem.overrides]
    wrong = ["".join(pair) for pair in pairs if pair[1] and _is_group(pair[0]) and pair[2] not in choices(pair[0])]
    if wrong:
        return f"{' '.join(wrong)}: a group takes the name of one of its files, such as task=copy"
    return f"{' '.join(problem.overrides)}: cannot be composed ({problem.error})"


def _is_group(key: str) -> bool:
    return (paths.conf() / key).is_dir()


def _raised_in_hydra(error: BaseException) -> bool:
    """Whether Hydra's code raised an error; OmegaConf's errors, whose texts say more, have handlers of their own."""
    if isinstance(error, OmegaConfBaseException):
        return False
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith(("hydra.", "omegaconf."))


# --- errors of Hydra's and OmegaConf's classes ------------------------------------------------------------------------


def several_values(problem: Problem) -> str | None:
    """model=lstm,plstm without -m."""
    if match := re.search(r"Ambiguous value for argument '(.+)'", problem.text):
        key, _, value = match[1].partition("=")
        return f"{match[1]}: several values are a sweep, which takes -m; a list is written '{key}=[{value}]'"
    return None


def no_such_choice(problem: Problem) -> str | None:
    """model=lstn: the group has no such file."""
    if not isinstance(problem.error, MissingConfigException):
        return None
    match = re.search(r"Could not find '(.+)/([^/']*)'", problem.text)
    return match and no_such(match[1], match[2])


def unreadable_override(problem: Problem) -> str | None:
    """task.T=[1: no override by Hydra's grammar."""
    error = problem.error
    if not isinstance(error, OverrideParseException):
        return None
    why, override = str(error).splitlines()[0], getattr(error, "override", None) or ""
    advice = "write key=value, quote a value with special characters: 'key=\"a,b\"'"
    return f"{override}: cannot be read ({why}); {advice}"


def no_such_key(problem: Problem) -> str | None:
    """task.TT=5: OmegaConf knows the keys that there are."""
    match = re.search(r"Key '[^']+' is not in struct\s+full_key: (\S+)", problem.text)
    return match and unknown_key(match[1], problem.overrides)


def refused_override(problem: Problem) -> str | None:
    """sede=1, loop={foo:1}: Hydra could not set the key."""
    match = re.search(r"Could not override '([^']+)'", problem.text)
    if not isinstance(problem.error, ConfigCompositionException) or match is None:
        return None
    inner = re.search(rf"full_key: ({re.escape(match[1])}\.\S+)", problem.text)
    return unknown_key((inner or match)[1], problem.overrides)


def not_new(problem: Problem) -> str | None:
    """+seed=1: a key that is there cannot be added."""
    match = re.search(r"Could not append to config. An item is already at '([^']+)'", problem.text)
    return match and f"{match[1]} is there already: write {match[1]}=..., without +"


def no_value(problem: Problem) -> str | None:
    """seed=???: a key without a value."""
    match = re.search(r"Missing mandatory value: (\S+)", problem.text)
    return match and f"{match[1]} has no value: give {match[1]}=..."


def named_key(problem: Problem) -> str | None:
    """seed=abc, loop=3: the value does not fit, and OmegaConf names the key."""
    match = re.search(r"([^\n]*)\n\s+full_key: (\S+)", problem.text)
    return match and f"{match[2]}: {match[1]}"


def as_it_is(problem: Problem) -> str | None:
    """~nothing: Hydra's text as it is."""
    return " ".join(problem.text.split())


# The first handler that has a line for an error gives it.
HANDLERS: tuple[Handler, ...] = (wrong_value, no_place, wrong_options, no_launcher, wrong_group, unreadable_yaml)
HYDRA_HANDLERS: tuple[Handler, ...] = (
    several_values,
    no_such_choice,
    unreadable_override,
    no_such_key,
    refused_override,
    not_new,
    no_value,
    named_key,
    as_it_is,
)
