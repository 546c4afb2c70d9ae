"""The command line: wrong input becomes one line and exit status 1, a bug keeps its traceback.

Imports no torch.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from timescales.config import command_line, messages
from timescales.config.command_line import CommandLine
from timescales.experiment import experiment
from timescales.experiment.queue import SweepFailed


def run(main: Callable[[], object]) -> None:
    """Do what the command line asks for; main: @hydra.main's, for what Hydra does by itself.

    Wrong input becomes one line and exit status 1, unless HYDRA_FULL_ERROR=1.
    """
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing and exiting
    logging.raiseExceptions = False  # no traceback for a log that a full disk does not take
    asked: CommandLine | None = None
    try:
        asked = command_line.read(sys.argv[1:])
        experiment.do(asked, main)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _output_is_closed():
            raise  # another pipe than our output: a bug
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        _exit_interrupted(interrupt, asked.continuing() if asked else "the same command continues")
    except SweepFailed as error:
        _exit(str(error))
    except Exception as error:
        line = None if full_error else messages.one_line(error)
        if line is None:
            raise
        _exit(line)


def _exit_interrupted(interrupt: KeyboardInterrupt, continuing: str) -> NoReturn:
    """End the program with a line that says what was saved, and how to go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a further one would print a traceback while Python ends
    saved = f"interrupted {interrupt}: saved" if str(interrupt) else "interrupted: what was not saved yet is lost"
    print(f"\n{saved}; {continuing}", file=sys.stderr)
    sys.exit(130)


def _output_is_closed() -> bool:
    """Whether the reader of our output has gone, as `head` does."""
    output = select.poll()
    output.register(sys.stdout, 0)
    return bool(output.poll(0))


def _exit(line: str) -> NoReturn:
    print(f"error: {line}", file=sys.stderr)
    sys.exit(1)
