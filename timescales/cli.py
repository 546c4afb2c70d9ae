"""One clear line for every bad input, naming the nearest right thing; exit status 1. Imports no torch."""

from __future__ import annotations

import functools
import logging
import os
import re
import select
import sys
from collections.abc import Callable
from types import TracebackType

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from timescales.config import overrides
from timescales.config.folders import check_own
from timescales.config.identity import NOT_IDENTITY
from timescales.config.messages import one_line
from timescales.errors import ConfigError


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
    """Raise ConfigError for `--model plstm`, which argparse would answer with a page of usage.

    Also for `table=NAME --cfg job`, which would print the configuration of a run that no table has.
    """
    from hydra._internal.utils import get_args_parser

    options, unknown = get_args_parser().parse_known_args(arguments)
    for word in unknown:
        if word.startswith("-"):
            key, _, value = word.lstrip("-").partition("=")
            raise ConfigError(f"{word}: no such option; a setting is written {key}={value or '...'}, without dashes")
    names = [argument.removeprefix("table=") for argument in arguments if argument.startswith("table=")]
    if names and options.cfg in ("job", "all"):
        raise ConfigError(f"table={names[0]} has many runs, --cfg shows one: make plan TABLE={names[0]} lists them")


def narrowing(arguments: list[str]) -> list[str]:
    """The arguments; with table=NAME those of a sweep, which is handed what narrows the table: keys of many runs."""
    if not any(argument.startswith("table=") for argument in arguments):
        return arguments
    alike = (*NOT_IDENTITY, "hydra")
    narrow = [a for a in arguments if "=" in a and a[0] != "-" and re.split(r"[./=]", a)[0] not in alike]
    sweep = ["hydra.mode=MULTIRUN", *([f"hydra.sweeper.narrow={overrides.spell(narrow)}"] if narrow else [])]
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
