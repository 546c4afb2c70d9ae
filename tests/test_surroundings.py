"""The tests themselves pass as a user's shell may start them: in the background, offline, without a home."""

import os
import signal
import subprocess
import sys

import pytest

from timescales.paths import ROOT

# Each of them once failed so, the last one in a folder with a blank in its name.
SENSITIVE = (
    "tests/nn/test_shared_library.py::test_a_compiler_that_a_signal_ends_has_refused_no_flag",
    "tests/training/test_interrupt.py::test_a_signal_ends_a_run_after_the_step[SIGHUP]",
    "tests/runs/test_hub.py::test_from_a_hub_only_classes_of_ours_are_made",
    "tests/config/test_cli.py::test_a_closed_output_gets_no_traceback",
)


def deaf():
    """As `nohup make test &` starts it."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.slow
def test_tests_pass_in_the_background_offline_and_without_a_home():
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {"HF_HUB_OFFLINE": "1", "TZ": "Pacific/Chatham", "LC_ALL": "POSIX"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *SENSITIVE]
    done = subprocess.run(command, cwd=ROOT, env=environment, preexec_fn=deaf, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
