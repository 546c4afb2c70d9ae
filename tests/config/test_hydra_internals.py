"""What this package uses of Hydra's private interface is there, in the version that it was written for."""

import inspect

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode

from timescales.config import compose, hydra_internals

WHAT_TO_COMPARE = (
    "compare timescales/config/hydra_internals.py, and the texts in config/messages.py, with this version of Hydra"
)


def test_hydra_s_version_is_the_one_it_was_written_for():
    assert hydra.__version__.startswith(f"{hydra_internals.WRITTEN_FOR}."), WHAT_TO_COMPARE


def test_private_names_are_as_expected():
    assert list(inspect.signature(ConfigLoaderImpl._apply_overrides_to_config).parameters) == ["overrides", "cfg"], (
        WHAT_TO_COMPARE
    )
    sweeper, launcher = hydra_internals.BasicSweeper, hydra_internals.BasicLauncher
    assert list(inspect.signature(sweeper.split_arguments).parameters) == ["overrides", "max_batch_size"], (
        WHAT_TO_COMPARE
    )
    assert list(inspect.signature(launcher.launch).parameters) == ["self", "job_overrides", "initial_job_idx"], (
        WHAT_TO_COMPARE
    )
    known, unknown = hydra_internals.args_parser().parse_known_args(["--config-dir", "folder", "--model", "lstm"])
    assert (known.config_dir, unknown) == ("folder", ["--model"]), WHAT_TO_COMPARE


def test_a_failed_job_has_its_error():
    error = ValueError("why")
    assert hydra_internals.error_of(hydra_internals.failed_job(error)) is error
    assert hydra_internals.error_of(JobReturn(status=JobStatus.COMPLETED, _return_value="finished")) is None


def test_no_file_sets_the_mode():
    """The fixture `train` relies on it: Hydra composes everything once more to read this key."""
    with compose.composing() as composer:
        assert composer.loader.load_configuration("config", [], RunMode.RUN).hydra.mode is None
