"""Fixtures of the tests of analyses."""

import functools

import pytest
import texts


@pytest.fixture
def analyse(script):
    return functools.partial(script, "analyse")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    texts.write_words(folder / "ptb", texts.PTB, types=30, lengths=(300, 60, 115))
    for path in (folder / "ptb").iterdir():
        path.write_text(path.read_text().replace("baa", "<unk>"))
    return folder
