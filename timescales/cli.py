"""One clear line for every bad input, naming the nearest right thing; exit status 1. Imports no torch."""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from types import TracebackType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from timescales import tables
from timescales.schema import NOT_IDENTITY, ConfigError, nearest

# What the system says of a run directory that cannot be made or written.
PLACES = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO,
    errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
)  # fmt: skip


class SweepFailed(Exception):
    """Some jobs of a sweep did not finish; each has been named already."""


def run(main: Callable[[], object]) -> None:
    """Call a Hydra main; what people got wrong becomes one line and exit status 1; a bug keeps its traceback."""
    whole = "HYDRA_FULL_ERROR" in os.environ
    logging.raiseExceptions = False  # no traceback for a train.log that a full disk does not take
    for flag in ("-m", "--multirun"):  # argparse takes overrides on one side of a flag only
        if flag in sys.argv:
            sys.argv.remove(flag)
            sys.argv.insert(1, flag)
    sys.argv[1:] = narrowing(sys.argv[1:])
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing and exiting
    try:
        _refuse_options(sys.argv[1:])
        check_own()
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        output = select.poll()
        output.register(sys.stdout, 0)
        if not output.poll(0):
            raise  # another pipe than our output: a bug
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone, as `head` does
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        saved = f"interrupted {interrupt}: saved" if str(interrupt) else "interrupted: what was not saved yet is lost"
        print(f"\n{saved}; {continuing(sys.argv[1:])}", file=sys.stderr)
        sys.exit(130)
    except SweepFailed as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if whole:
            raise
        line = one_line(error, sys.argv[1:])
        if line is None:
            error.__traceback__ = _below_hydra(error.__traceback__)
            raise
        print(f"error: {line}", file=sys.stderr)
        sys.exit(1)


def continuing(arguments: list[str]) -> str:
    """In words, how a command that was interrupted is continued."""
    over = [a for a in arguments if a.lstrip("+").lower() in ("force=true", "resume=false")]
    if not over:
        return "the same command continues"
    return f"the same command without {' '.join(over)} continues; what had not begun wants it again"


def _below_hydra(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from where Hydra called our function, if it came so far: what is above tells nobody anything."""
    below = trace
    while below is not None and below.tb_frame.f_code.co_name != "guarded":
        below = below.tb_next
    return below or trace


def _refuse_options(arguments: list[str]) -> None:
    """Raise ConfigError for `--model plstm`, which argparse would answer with a page of usage."""
    from hydra._internal.utils import get_args_parser

    for word in get_args_parser().parse_known_args(arguments)[1]:
        if word.startswith("-"):
            key, _, value = word.lstrip("-").partition("=")
            raise ConfigError(f"{word}: no such option; a setting is written {key}={value or '...'}, without dashes")


def narrowing(arguments: list[str]) -> list[str]:
    """The arguments; with table=NAME those of a sweep, which is handed what narrows the table: keys of many runs."""
    if not any(argument.startswith("table=") for argument in arguments):
        return arguments
    alike = (*NOT_IDENTITY, "hydra")
    narrow = [a for a in arguments if "=" in a and a[0] != "-" and re.split(r"[./=]", a)[0] not in alike]
    sweep = ["hydra.mode=MULTIRUN", *([f"hydra.sweeper.narrow={tables.spell(narrow)}"] if narrow else [])]
    rest = [a for a in arguments if a not in narrow]
    at = next(k for k, a in enumerate(rest) if a.startswith("table="))  # argparse takes overrides in one place only
    return [*rest[:at], *sweep, *rest[at:]]


def job(function: Callable[[DictConfig], str]) -> Callable[[DictConfig], str]:
    """For the function under @hydra.main: a single run that cannot be made ends with one line; a sweep goes on."""

    @functools.wraps(function)
    def guarded(cfg: DictConfig) -> str:
        try:
            return function(cfg)
        except Exception as error:
            line = one_line(error, sys.argv[1:])
            if line is None or HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            # Leaving by SystemExit keeps Hydra from adding lines of its own.
            print(f"error: {line}", file=sys.stderr)
            sys.exit(1)

    return guarded


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
        chosen = ["".join(p) for p in pairs if p[1] and (conf() / p[0]).is_dir() and p[2] not in choices(p[0])]
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


def conf() -> Path:
    """The folder of configurations: beside train.py in a checkout, inside the package in an installation."""
    package = Path(__file__).resolve().parent
    return next(d for d in (package.parent / "conf", package / "conf") if (d / "config.yaml").is_file())


def own() -> list[Path]:
    """The folder of one's own configurations that the command line gives by --config-dir, if it does."""
    found = re.findall(r"(?:^|\n)(?:--config-dir|-cd)[=\n]([^\n]+)", "\n".join(sys.argv[1:]))
    return [Path(folder).resolve() for folder in found[-1:]]


def check_own() -> None:
    """Raise ConfigError for a folder of one's own that is not there, or one with a name that conf/ has, too."""
    for folder in own():
        if not folder.is_dir():
            raise ConfigError(f"--config-dir={folder}: no such folder")
        for path in conf().rglob("*.yaml"):
            name = path.relative_to(conf())
            if (mine := folder / name).is_file() and not mine.samefile(path):
                raise ConfigError(f"{mine} would not be read: conf/ has a {name}, too; give it another name")


def searchpath() -> list[str]:
    """The overrides by which a configuration that is composed here finds what lies in one's own folder."""
    return [f"hydra.searchpath=[{tables.spell(f'file://{folder}')}]" for folder in own()]


def no_such(group: str, wrong: str) -> str:
    """The line for a choice that a group does not have."""
    options = choices(group)
    there = f" (there are {', '.join(options)})" if options else " here"
    return f"{group}={wrong}: no such {group}{nearest(wrong, options)}{there}"


def choices(group: str) -> list[str]:
    """The names a config group offers."""
    return sorted(path.stem for folder in (conf(), *own()) for path in (folder / group).glob("*.yaml"))


def known_keys(overrides: list[str]) -> list[str]:
    """All keys of a configuration with the overrides' choices of groups, Hydra's and the groups' names included."""
    groups = [d.name for d in conf().iterdir() if d.is_dir() and d.name != "table"]
    return _keys(
        tuple(o for o in overrides if o.split("=")[0] in groups and o.partition("=")[2] in choices(o.split("=")[0]))
    )


@functools.cache
def _keys(picked: tuple[str, ...]) -> list[str]:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf()), version_base="1.3"):
        cfg = compose("config", [*picked, *searchpath()], return_hydra_config=True)
    return list(dotted(OmegaConf.to_container(cfg, resolve=False)))


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    """All keys of a configuration, written with dots; also those that hold other keys."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
