import pytest

import timescales.nn.explain  # noqa: F401  # it reads FEWEST_STEPS
from timescales.nn import accelerate


@pytest.fixture(autouse=True)
def short_sequences(monkeypatch):
    """After `accelerate` our engine takes these tests' short sequences, where torch's kernel is the faster one."""
    monkeypatch.setattr(accelerate, "FEWEST_STEPS", dict.fromkeys(accelerate.FEWEST_STEPS, (2, 2)))
