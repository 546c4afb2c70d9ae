import pytest

import timescales.nn.explain  # noqa: F401  # it reads MINIMUM_SIZES
from timescales.nn import accelerate
from timescales.nn.drop_in import MinimumSizes


@pytest.fixture(autouse=True)
def short_sequences(monkeypatch):
    """After `accelerate` our engine takes these tests' short sequences, where torch's kernel is the faster one."""
    monkeypatch.setattr(
        accelerate, "MINIMUM_SIZES", dict.fromkeys(accelerate.MINIMUM_SIZES, (MinimumSizes(), MinimumSizes()))
    )
