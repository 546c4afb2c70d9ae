"""Configurations as `train.py` composes them."""

from timescales.config.compose import composing


def config(*overrides):
    """The configuration that overrides give, on the CPU and without a logger."""
    with composing() as composer:
        return composer(["device=cpu", "logger=none", *overrides])
