"""What this package uses of Hydra's private interface is there, in the version that it was written for."""

import importlib
import inspect

import hydra
from hydra._internal.utils import _run_hydra
from hydra.core.utils import JobStatus

from timescales.config import hydra_internals

WHAT_TO_COMPARE = "compare timescales/config/hydra_internals.py with this version of Hydra"


def test_hydra_s_version_is_the_one_it_was_written_for():
    assert hydra.__version__.startswith(f"{hydra_internals.WRITTEN_FOR}."), WHAT_TO_COMPARE


def test_private_names_are_as_expected():
    expected = ["args", "args_parser", "task_function", "config_path", "config_name", "caller_stack_depth"]
    assert list(inspect.signature(_run_hydra).parameters) == expected, WHAT_TO_COMPARE
    module, _, name = hydra_internals.BASIC_LAUNCHER.rpartition(".")
    assert hasattr(importlib.import_module(module), name), WHAT_TO_COMPARE
    known, unknown = hydra_internals.args_parser().parse_known_args(["--config-dir", "folder", "--model", "lstm"])
    assert (known.config_dir, unknown) == ("folder", ["--model"]), WHAT_TO_COMPARE


def test_a_failed_job_has_its_error():
    error = ValueError("why")
    failed, ended = hydra_internals.job_return(error), hydra_internals.job_return("finished")
    assert (failed.status, failed._return_value) == (JobStatus.FAILED, error)
    assert ended.return_value == "finished"
