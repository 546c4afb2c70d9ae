"""Configurations as `train.py` composes them."""

import functools

from timescales.config import folders
from timescales.config.compose import composing


@functools.cache
def composer(places):
    """A composer of the files in these places: what it has composed of files once it copies."""
    with composing() as made:
        return made


def config(*overrides):
    """The configuration that overrides give, on the CPU and without a logger."""
    return composer(tuple(folders.places()))(["device=cpu", "logger=none", *overrides])
