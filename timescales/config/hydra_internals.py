"""All that is used of Hydra's private interface, which may change with any version; written for Hydra 1.3.

`tests/config/test_hydra_internals.py` fails for another version and says what to compare. Imports no torch.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig

if TYPE_CHECKING:  # at run time see __getattr__
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher as BasicLauncher
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper as BasicSweeper

WRITTEN_FOR = "1.3"
PLUGINS = {"BasicLauncher": "basic_launcher", "BasicSweeper": "basic_sweeper"}


def __getattr__(name: str) -> Any:
    # Hydra executes its plugins' modules again when it looks for plugins: a class from before would not fit any more.
    if name in PLUGINS:
        return getattr(importlib.import_module(f"hydra._internal.core_plugins.{PLUGINS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def apply_overrides(overrides: Sequence[Override], cfg: DictConfig) -> None:
    """Set values in a composed configuration as Hydra does when it composes. Raises Hydra's and OmegaConf's errors."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), cfg)


def args_parser() -> argparse.ArgumentParser:
    """The parser of Hydra's own options (--multirun, --cfg, --config-dir, ...)."""
    return get_args_parser()


def failed_job(error: Exception) -> JobReturn:
    """The answer of a sweep's job that failed."""
    return JobReturn(status=JobStatus.FAILED, _return_value=error)


def error_of(job: JobReturn) -> Exception | None:
    """Why a job failed; None if it did not. `JobReturn.return_value` would raise the error, and print a line."""
    return None if job.status == JobStatus.COMPLETED else job._return_value
