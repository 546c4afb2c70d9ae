"""Configurations as `train.py` composes them."""

import functools

from timescales import paths
from timescales.config import folders
from timescales.config.compose import composing


def config(*overrides):
    """The configuration that overrides give, on the CPU and without a logger."""
    return composer(paths.conf(), tuple(folders.searchpath()))(["device=cpu", "logger=none", *overrides])


@functools.cache
def composer(conf, searchpath):
    """One for all tests of a process with these folders: each choice of files is composed once."""
    with composing() as made:
        return made
