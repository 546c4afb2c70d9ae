import pytest

import timescales.nn.explain  # noqa: F401  # it reads LEAST
from timescales.nn import accelerate
from timescales.nn.drop_in import Least


@pytest.fixture(autouse=True)
def short_sequences(monkeypatch):
    """After `accelerate` our engine takes these tests' short sequences, where torch's kernel is the faster one."""
    monkeypatch.setattr(accelerate, "LEAST", dict.fromkeys(accelerate.LEAST, (Least(), Least())))
