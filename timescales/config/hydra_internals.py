"""All that is used of Hydra's private interface, which may change with any version; written for Hydra 1.3.

`tests/config/test_hydra_internals.py` fails for another version and says what to compare. Imports no torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.utils import JobReturn, JobStatus

from timescales import paths

WRITTEN_FOR = "1.3"
BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


def args_parser() -> argparse.ArgumentParser:
    """The parser of Hydra's own options (--multirun, --cfg, --config-dir, ...)."""
    return get_args_parser()


def call_main(main: Callable[..., object], options: argparse.Namespace) -> None:
    """Call a function decorated with @hydra.main as Hydra does, with options that are parsed already."""
    function: Any = getattr(main, "__wrapped__", main)
    _run_hydra(options, get_args_parser(), function, config_path=str(paths.conf()), config_name="config")


def job_return(end: Any) -> JobReturn:
    """The answer of a sweep's job: what it returned, or the error that it raised."""
    failed = isinstance(end, BaseException)
    return JobReturn(status=JobStatus.FAILED if failed else JobStatus.COMPLETED, _return_value=end)
