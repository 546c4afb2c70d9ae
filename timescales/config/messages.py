"""One clear line for every wrong input, naming the nearest right word. Imports no torch.

`HANDLERS` and `HYDRA_HANDLERS` list the kinds of errors. Most are recognised by Hydra's texts, because Hydra offers no
other way: it raises a few classes for many kinds of errors. What is wrong, and at which key, is mostly in the text
alone.
tests/config/test_messages.py has an example of each, and fails where a new version of Hydra has other texts.
"""

from __future__ import annotations

import errno
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigTypeError,
    GrammarParseError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    ValidationError,
)
from yaml import MarkedYAMLError

from timescales import paths
from timescales.config import check
from timescales.config.folders import choices, is_group, no_such
from timescales.config.keys import unknown_key
from timescales.config.schema import BaseConfig, LoopSettings
from timescales.errors import ConfigError

# The system's error numbers for a run directory that cannot be made or written, or a file that cannot be read.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_PLACE = FULL | {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
NO_PLACE |= {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "null"}
# The types of the base configuration's keys.
TYPES = typing.get_type_hints(BaseConfig) | {
    f"loop.{key}": hint for key, hint in typing.get_type_hints(LoopSettings).items()
}


class Problem(NamedTuple):
    """An error, and the command line that led to it."""

    error: BaseException
    overrides: list[str]
    text: str  # of the error, and of its cause

    def chain(self) -> Iterator[BaseException]:
        """The error and, if it is Hydra's or OmegaConf's, its causes."""
        error: BaseException | None = self.error
        while error is not None:
            yield error
            wrapped = isinstance(error, HydraException | OmegaConfBaseException)
            error = (error.__cause__ or error.__context__) if wrapped else None

    def typed(self, key: str) -> str | None:
        """The override that sets a key, or what holds it, as it was typed; None if there is none."""
        if match := re.match(r"Error merging override (.+?)\n", self.text, re.DOTALL):
            return match[1]
        found = [o for o in self.overrides if f"{key}.".startswith((f"{_key(o)}.", f"{_key(o)}["))]
        return found[-1] if found else None


Handler = Callable[[Problem], str | None]


def one_line(error: BaseException, overrides: list[str]) -> str | None:
    """The line for an error that the user can fix; None for any other, which is a bug."""
    problem = Problem(error, overrides, f"{error}\n{error.__cause__ or ''}")
    of_hydra = isinstance(error, HydraException | OmegaConfBaseException)
    for handler in (*HANDLERS, *HYDRA_HANDLERS) if of_hydra else HANDLERS:
        if line := handler(problem):
            return " ".join(line.splitlines())  # what was typed may have several lines
    return None


def _key(override: str) -> str:
    """The key or group of an override, without signs and package."""
    return re.split("[=@]", override.lstrip("+~"))[0]


# --- errors of this package and of the system -------------------------------------------------------------------------


def named_by_reference(problem: Problem) -> str | None:
    """model=${seed}: first, since what it comes to may raise any error."""
    failed = any(isinstance(error, InterpolationResolutionError | GrammarParseError) for error in problem.chain())
    if failed or "possible interpolation keys" in problem.text:
        return next((_takes_a_name(o) for o in problem.overrides if _is_group(_key(o)) and "${" in o), None)
    return None


def wrong_value(problem: Problem) -> str | None:
    """loop.max_epochs=0: a ConfigError, also one that a plugin or a resolver raised and Hydra or OmegaConf wrapped."""
    return next((str(error) for error in problem.chain() if isinstance(error, ConfigError)), None)


def no_place(problem: Problem) -> str | None:
    """run_dir=/proc/nowhere: the directory cannot be made, or the disk is full. Or a file of data cannot be read."""
    error = problem.error
    if not (isinstance(error, OSError) and error.filename and error.errno in NO_PLACE):
        return None
    given = (problem.typed("run_dir") or "").partition("=")[2].strip("'\"")
    places = [Path(place).absolute() for place in (given, paths.RUNS) if place]
    path = Path(str(error.filename)).absolute()
    if any(path.is_relative_to(place) or place.is_relative_to(path) for place in places):  # or a folder above it
        return f"{error.filename}: {error.strerror}; choose another place with run_dir=DIR"
    if error.errno in FULL:
        return f"{error.filename}: {error.strerror}; make room there"
    return f"{error.filename}: {error.strerror}; make it readable"


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
    """--run --multirun, --resolve."""
    if str(problem.error).startswith("Only one of --run"):
        return "give only one of --run, --multirun (-m), --cfg, --info and --shell-completion"
    if str(problem.error).startswith("The --resolve flag"):
        return "--resolve takes --cfg job, too: it shows the configuration"
    return None


def wrong_group(problem: Problem) -> str | None:
    """model=[1], model=null: a group that is given no name; Hydra fails with a TypeError or the like."""
    kinds = TypeError | AssertionError | ValueError | AttributeError
    if not (isinstance(problem.error, kinds) and _raised_in_hydra(problem.error)):
        return None
    pairs = [(o, _key(o), o.partition("=")[2]) for o in problem.overrides if "=" in o]
    return next((_takes_a_name(o) for o, key, value in pairs if _is_group(key) and value not in choices(key)), None)


def _takes_a_name(override: str) -> str:
    group = _key(override)
    if options := choices(group):
        return f"{override}: {group} takes one of these names: {', '.join(options)}"
    return f"{override}: there is no group {group}: leave it out"


def no_part_of_hydra(problem: Problem) -> str | None:
    """hydra.sweeper=x: these are groups, which hydra/sweeper=NAME chooses."""
    wrong = next((o for o in problem.overrides if _key(o) in ("hydra.sweeper", "hydra.launcher")), None)
    if wrong is None or "does not have a `_target_` field" not in problem.text:
        return None
    return f"{wrong}: leave it out; {_key(wrong).replace('.', '/')}=NAME chooses one"


def not_for_hydra(problem: Problem) -> str | None:
    """hydra.job.env_copy=[x]: whatever else makes Hydra's own code fail."""
    of_class = isinstance(problem.error, HydraException | OmegaConfBaseException)  # these have handlers
    if of_class or not _raised_in_hydra(problem.error):
        return None
    likely = [o for o in problem.overrides if not _key(o) or _key(o).startswith(("hydra.", "hydra/"))]
    given = " ".join(likely or problem.overrides)
    return f"{given}: cannot be used; leave it out, or see why with HYDRA_FULL_ERROR=1"


def _is_group(key: str) -> bool:
    return "/" in key or is_group(key)


def _raised_in_hydra(error: BaseException) -> bool:
    """Whether it was Hydra's code, not ours, that raised an error or called what did."""
    frame, last = error.__traceback__, ""
    while frame is not None:
        module = frame.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        last = module if module in ("hydra", "omegaconf", "timescales", "hydra_plugins", "train") else last
        frame = frame.tb_next
    return last in ("hydra", "omegaconf")


# --- errors of Hydra's and OmegaConf's classes ------------------------------------------------------------------------


def several_values(problem: Problem) -> str | None:
    """model=lstm,plstm without -m."""
    if match := re.search(r"(?:argument|parameters) '(.+)'(?:\n1\. To use| requires)", problem.text, re.DOTALL):
        key, _, value = match[1].partition("=")
        one_value = _is_group(key.lstrip("+")) or key in TYPES or "(" in value
        or_list = "" if one_value else f"; if {key} takes a list, it is written '{key}=[{value}]'"
        return f"{match[1]}: several values are a sweep, which takes -m{or_list}"
    if "does not support sweep type" in problem.text:
        override = next((o for o in problem.overrides if "interval(" in o), "key=interval(1,2)")
        key = override.partition("=")[0]
        return f"{override}: a range is for hydra/sweeper=optuna; give values here: {key}=1,2"
    match = re.search(r"Sweeping over Hydra's configuration is not supported : '(.+)'", problem.text, re.DOTALL)
    return match and f"{match[1]}: give one value: a sweep is over settings of runs"


def no_such_choice(problem: Problem) -> str | None:
    """model=lstn: the group has no such file."""
    if not isinstance(problem.error, MissingConfigException):
        return None
    match = re.search(r"Could not (?:find|load) '(.+)/([^/']*)'", problem.text)
    return match and no_such(match[1], match[2])


def unreadable_override(problem: Problem) -> str | None:
    """task.T=[1: no override by Hydra's grammar."""
    if not isinstance(problem.error, OverrideParseException):
        return None
    override = problem.error.override or ""
    if not re.match(r"(\+{1,2}|~)?[\w$][\w$-]*([./][\w$-]+)*(=|$)", override, re.ASCII):
        return f"{override}: cannot be read; write key=value, and a key with letters, digits, _ and dots alone"
    return f"{override}: cannot be read; write key=value, and quote a value with special characters: 'key=\"a,b\"'"


def no_such_key(problem: Problem) -> str | None:
    """task.TT=5: OmegaConf knows the keys that there are."""
    match = re.search(r"Key '[^']+' is not in struct\s+full_key: (\S+)", problem.text)
    return match and unknown_key(match[1], problem.overrides)


def refused_override(problem: Problem) -> str | None:
    """sede=1, loop={foo:1}: Hydra could not set the key."""
    match = re.search(r"Could not override '([^']*)'", problem.text)
    if not isinstance(problem.error, ConfigCompositionException) or match is None:
        return None
    if not match[1]:
        return f"{problem.typed('')}: write key=value"
    inner = re.search(rf"full_key: ({re.escape(match[1])}\.\S+)", problem.text)
    return unknown_key((inner or match)[1], problem.overrides)


def deleted(problem: Problem) -> str | None:
    """~loop: a key that there must be."""
    match = re.search(r"Key '[^']+' not in '\w+'\s+full_key: (\S+)", problem.text)
    return match and unknown_key(match[1], problem.overrides)


def not_new(problem: Problem) -> str | None:
    """+seed=1, +model=lstm, ++model=lstm: what is there cannot be added."""
    if match := re.search(r"Could not append to config. An item is already at '([^']+)'", problem.text):
        return f"{match[1]} is there already: write {match[1]}=..., without +"
    match = re.search(r"force-add of config groups is not supported: '(.+?)[@=].*'", problem.text, re.DOTALL)
    match = match or re.search(r"Multiple values for ([^ ]+)\. To override", problem.text)
    match = match or re.search(r"([^ ]+) appears more than once in the final defaults list", problem.text)
    if match:
        key = match[1].lstrip("+").partition("@")[0]
        return f"{problem.typed(key) or match[1]}: {key} is chosen already: write {key}=NAME alone"
    return None


def not_there(problem: Problem) -> str | None:
    """~nothing, ~seed=3: what is not there cannot be deleted."""
    if match := re.search(r"The value of '([^']+)' is (.*) and not", problem.text, re.DOTALL):
        return f"~{match[1]}: it is {match[2]}: write ~{match[1]} alone to delete it"
    if "Could not delete ''" in problem.text:
        return "~ deletes the key that follows it, as in ~model.head_size: leave it out"
    match = re.search(r"Could not delete (?:from config\. )?'([^'=]+)", problem.text)
    return match and f"~{match[1]}: there is no value to delete: leave it out"


def no_group(problem: Problem) -> str | None:
    """~model, model=[]: without a group the names of recipes cannot be made."""
    match = re.search(r"possible interpolation keys: (.*)", problem.text)
    missing = [group for group in ("paper", "task", "model") if match and group not in match[1].split(", ")]
    wrong = problem.typed(missing[0]) if missing else None
    return wrong and _takes_a_name(wrong)


def no_value(problem: Problem) -> str | None:
    """seed=???, task=???: a key without a value."""
    match = re.search(r"(?:Missing mandatory value: |You must specify ')([\w.]+)", problem.text)
    return match and f"{match[1]} has no value: give {match[1]}=..."


def wrong_type(problem: Problem) -> str | None:
    """seed=abc, loop=3, ~loop.patience: the value does not fit the key's type."""
    error = _of_omegaconf(problem)
    if not isinstance(error, ValidationError | ConfigTypeError):
        return None
    key = error.full_key or ""
    typed = problem.typed(key)
    if typed is None:
        return None
    if typed.startswith("~"):
        return f"{key} must not be deleted"
    if key in TYPES:
        return f"{key} {_must(key)}; not {typed.partition('=')[2]}"
    part = "hydra" if key.startswith("hydra.") else "job"
    return f"{typed}: {key} must be of another kind; --cfg {part} shows it"


def wrong_reference(problem: Problem) -> str | None:
    """seed=${nope}: what stands in ${...} is not there, or refers to itself, or is a list where settings belong."""
    error = _of_omegaconf(problem)
    is_list = "ListConfig does not support attribute access" in problem.text
    if not isinstance(error, InterpolationResolutionError | GrammarParseError) and not is_list:
        return None
    typed = problem.typed(getattr(error, "full_key", None) or "")
    if typed is None or "$" not in typed:  # of another one, or of a file
        typed = next((o for o in problem.overrides if "${" in o), typed or " ".join(problem.overrides))
    variable = ", or a variable that is set" if "oc.env" in typed else ""
    return f"{typed}: ${{...}} must name a key that --cfg job shows{variable}"


def _of_omegaconf(problem: Problem) -> OmegaConfBaseException | None:
    """The first of OmegaConf's errors among an error and its causes."""
    return next((error for error in problem.chain() if isinstance(error, OmegaConfBaseException)), None)


def _must(key: str) -> str:
    """What a key of the base configuration must be."""
    if key in check.CHOICES:
        return check.one_of(key)
    if TYPES[key] is LoopSettings:
        return f"holds keys such as {key}.max_epochs"
    return f"must be {' or '.join(KINDS[kind] for kind in typing.get_args(TYPES[key]) or (TYPES[key],))}"


def as_it_is(problem: Problem) -> str | None:
    """hydra.searchpath=3: Hydra's text as it is."""
    return " ".join(problem.text.split())


# The first handler that has a line for an error gives it.
HANDLERS: tuple[Handler, ...] = (
    *(named_by_reference, wrong_value, no_place, no_launcher, unreadable_yaml),
    *(wrong_options, wrong_group, no_part_of_hydra, not_for_hydra),
)
HYDRA_HANDLERS: tuple[Handler, ...] = (
    several_values,
    no_such_choice,
    unreadable_override,
    no_such_key,
    refused_override,
    deleted,
    not_new,
    not_there,
    no_group,
    no_value,
    wrong_type,
    wrong_reference,
    as_it_is,
)
