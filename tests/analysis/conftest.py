"""Fixtures of the tests of analyses."""

import functools
import shutil

import pytest
import texts
from analysed import SMALL


@pytest.fixture
def analyse(script):
    return functools.partial(script, "analyse")


@pytest.fixture(scope="session")
def runs_made(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(train, tmp_path, runs_made):
    """Call trained(MODEL): the directory of a finished run of the copy task, a copy of one that is trained once."""

    def call(model):
        made = runs_made / model
        if not made.exists():
            assert train(*SMALL, f"model={model}", "loop.eval_every=1", "logger=csv", f"run_dir={made}").status == 0
        return shutil.copytree(made, tmp_path / model)

    return call


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    texts.write_words(folder / "ptb", texts.PTB, types=30, lengths=(300, 60, 115))
    for path in (folder / "ptb").iterdir():
        path.write_text(path.read_text().replace("baa", "<unk>"))
    return folder
