"""Configurations as `train.py` composes them."""

import functools

from timescales.config import folders
from timescales.config.compose import Composer


@functools.cache
def composer(places):
    """A composer of the files in these places: what it has composed of files once it copies."""
    return Composer()


def config(*overrides):
    """The configuration that overrides give, on the CPU and without a logger."""
    return composer(tuple(folders.places()))(["device=cpu", "logger=none", *overrides])
