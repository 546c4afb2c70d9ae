"""The command line: wrong input becomes one line and exit status 1, a bug keeps its traceback. Imports no torch."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import re
import select
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from timescales.config import hydra_internals, keys, overrides
from timescales.config.folders import check_user_folder
from timescales.config.identity import NOT_IDENTITY
from timescales.config.messages import one_line
from timescales.errors import ConfigError

# Hydra's settings that would have no effect, or a bad one: what to write instead.
NO_EFFECT = {
    "hydra.run.dir": "has no effect: give run_dir=DIR, where a run is kept",
    "hydra.sweep.dir": "has no effect: give run_dir=DIR, and each run of a sweep is kept in DIR/<its name>",
    "hydra.sweep.subdir": "has no effect: give run_dir=DIR, and each run of a sweep is kept in DIR/<its name>",
    "hydra.searchpath": "is not for this program: leave it out; --config-dir=FOLDER adds your own files",
    "hydra.job.chdir": "would look for runs/ inside each run: leave it out; run_dir=DIR is where a run is kept",
}

OWN_SWEEPER = "hydra/sweeper=timescales"
SKIPPED = "skipped"  # what train.main returns if no run was left to train


class SweepFailed(Exception):
    """Some jobs of a sweep did not finish; each has been named already."""


def run(main: Callable[[], object]) -> None:
    """Call a Hydra main. Wrong input becomes one line and exit status 1, unless HYDRA_FULL_ERROR=1."""
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing and exiting
    logging.raiseExceptions = False  # no traceback for a train.log that a full disk does not take
    try:
        arguments = _options_first(sys.argv[1:])
        _refuse_options(arguments)
        sys.argv[1:] = sweep_arguments(table_arguments(arguments))
        check_user_folder()
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        if not _output_is_closed():
            raise  # another pipe than our output: a bug
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        _exit_interrupted(interrupt)
    except SweepFailed as error:
        _exit(str(error))
    except Exception as error:
        if full_error:
            raise
        line = one_line(error, sys.argv[1:])
        if line is None:
            error.__traceback__ = _below_hydra(error.__traceback__)
            raise
        _exit(line)


def job(function: Callable[[DictConfig], str | float]) -> Callable[[DictConfig], str | float]:
    """Decorate the function under @hydra.main: wrong input ends a single run with one line; a sweep goes on."""

    @functools.wraps(function)
    def guarded(cfg: DictConfig) -> str | float:
        try:
            return function(cfg)
        except Exception as error:
            line = one_line(error, sys.argv[1:])
            if line is None or HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            _exit(line)  # by SystemExit, to which Hydra adds no lines of its own

    return guarded


def _exit_interrupted(interrupt: KeyboardInterrupt) -> NoReturn:
    """End the program with a line that says what was saved, and how to go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a further one would print a traceback while Python ends
    saved = f"interrupted {interrupt}: saved" if str(interrupt) else "interrupted: what was not saved yet is lost"
    print(f"\n{saved}; {continuing(sys.argv[1:])}", file=sys.stderr)
    sys.exit(130)


def continuing(arguments: list[str]) -> str:
    """In words, how a command that was interrupted is continued."""
    restarting = [a for a in arguments if a.lstrip("+").lower() in ("force=true", "resume=false")]
    if not restarting:
        return "the same command continues"
    return f"the same command without {' '.join(restarting)} continues; runs that had not begun need it again"


def table_arguments(arguments: list[str]) -> list[str]:
    """The arguments; with table=NAME those of a sweep: overrides of its runs are moved into hydra.sweeper.narrow."""
    if not any(argument.startswith("table=") for argument in arguments):
        return arguments
    if sweepers := _other_sweeper(arguments):
        raise ConfigError(f"{sweepers[0]}: a table has a sweeper of its own: leave it out, or leave out table=")
    shared = (*NOT_IDENTITY, "hydra")
    narrow = [a for a in arguments if "=" in a and a[0] != "-" and re.split(r"[./=]", a)[0] not in shared]
    sweep = ["hydra.mode=MULTIRUN", *([f"hydra.sweeper.narrow={overrides.spell(narrow)}"] if narrow else [])]
    return [*(a for a in arguments if a not in narrow), *sweep]


def sweep_arguments(arguments: list[str]) -> list[str]:
    """The arguments; in a sweep of ours each setting of a model, task or optimizer as a sweep over its one value.

    Hydra composes one configuration before a sweep, without what is swept over, of a model that need not have the key.
    """
    if not {"-m", "--multirun", "hydra.mode=MULTIRUN"} & set(arguments) or _other_sweeper(arguments):
        return arguments
    return [overrides.as_sweep(a) if a.startswith(overrides.OF_GROUPS) else a for a in arguments]


def _other_sweeper(arguments: list[str]) -> list[str]:
    """The arguments that choose another sweeper than ours."""
    return [a for a in arguments if a.startswith("hydra/sweeper=") and a != OWN_SWEEPER]


def _options_first(arguments: list[str]) -> list[str]:
    """The arguments with Hydra's options in front: Hydra takes overrides on one side of an option only."""
    given = _parser().parse_known_intermixed_args(arguments)[0].overrides
    options = list(arguments)
    for override in given:
        options.remove(override)
    return [*options, *given]


def _refuse_options(arguments: list[str]) -> None:
    """Raise ConfigError for `--model plstm`, which argparse would answer with a page of usage.

    Also for `table=NAME --cfg job`, which would print the configuration of a run that no table has.
    """
    options, unknown = _parser().parse_known_args(arguments)
    for word in unknown:
        if word.startswith("-"):
            key, _, value = word.lstrip("-").partition("=")
            raise ConfigError(f"{word}: no such option; a setting is written {key}={value or '...'}, without dashes")
    if options.package and options.package not in ("_global_", *keys.known_keys(options.overrides)):
        raise ConfigError(f"--package={options.package}: no such key; --cfg job without it shows all of them")
    for name in ("config_name", "config_path"):
        if (given := getattr(options, name)) is not None:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option}={given}: leave it out; --config-dir=FOLDER adds your own files")
    for argument in arguments:
        key, _, value = argument.lstrip("+").partition("=")
        if "@" in key and not key.startswith("-"):
            raise ConfigError(f"{argument}: write it without @: a group has its own place")
        keeps = value.lower() in ("false", "null") if key == "hydra.job.chdir" else False
        if key in NO_EFFECT and not keeps and not (key == "hydra.sweep.dir" and _other_sweeper(arguments)):
            raise ConfigError(f"{key}={value} {NO_EFFECT[key]}")
        if any(inner.startswith(f"{key}.") for inner in NO_EFFECT):  # hydra.run={dir:x}
            raise ConfigError(f"{argument}: give single settings of {key}; --cfg hydra shows them")
    names = [argument.removeprefix("table=") for argument in arguments if argument.startswith("table=")]
    if names and options.cfg in ("job", "all"):
        raise ConfigError(f"table={names[0]} has many runs, --cfg shows one: make plan TABLE={names[0]} lists them")


def _parser() -> argparse.ArgumentParser:
    """The parser of Hydra's options, with errors of one line."""
    parser = hydra_internals.args_parser()
    parser.error = _wrong_option  # type: ignore[method-assign]
    return parser


def _wrong_option(message: str) -> NoReturn:
    """Raise ConfigError for what argparse says of --cfg=nope, and of --config-dir without a folder."""
    option, _, why = message.removeprefix("argument ").partition(": ")
    chosen = re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", why)
    option = option.partition("/")[0]
    if chosen:
        raise ConfigError(f"{option}={chosen[1]}: choose {chosen[2]}")
    raise ConfigError(f"{option} takes a value: {option}=...")


def _output_is_closed() -> bool:
    """Whether the reader of our output has gone, as `head` does."""
    output = select.poll()
    output.register(sys.stdout, 0)
    return bool(output.poll(0))


def _below_hydra(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from `guarded` (in `job`) on, if it came so far: Hydra's own frames before it explain nothing."""
    below = trace
    while below is not None and below.tb_frame.f_code.co_name != "guarded":
        below = below.tb_next
    return below or trace


def _exit(line: str) -> NoReturn:
    print(f"error: {line}", file=sys.stderr)
    sys.exit(1)
