import pytest

import timescales.nn.explain  # noqa: F401  # it reads MINIMUM_SIZES
from timescales.nn import accelerate, engine
from timescales.nn.drop_in import MinimumSizes


@pytest.fixture(autouse=True)
def short_sequences(monkeypatch):
    """After `accelerate` our engine takes these tests' short sequences, where torch's kernel is the faster one."""
    shortest = dict.fromkeys(accelerate.MINIMUM_SIZES, (MinimumSizes(), MinimumSizes()))
    monkeypatch.setattr(accelerate, "MINIMUM_SIZES", shortest)


@pytest.fixture
def runs(monkeypatch):
    """How often an engine has run a layer in one direction."""
    seen = []
    run = engine.run
    monkeypatch.setattr(engine, "run", lambda *arguments, **named: (seen.append(1), run(*arguments, **named))[1])
    return seen
