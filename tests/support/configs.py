"""Configurations as `train.py` composes them."""

from hydra import compose, initialize_config_dir

from timescales import paths
from timescales.config import identity


def config(*overrides):
    """The configuration that overrides give, on the CPU and without a logger."""
    identity.register()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        return compose("config", ["device=cpu", "logger=none", *overrides])
