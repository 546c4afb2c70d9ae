"""Every use of tests/dropin/uses with every layer: it works, is refused or differs, as docs/dropin.md says."""

import pytest
from uses import parallel
from uses.registry import KINDS, USES, WORKS, Differs

import timescales

pytestmark = [  # what torch says of the uses, and our engine of tensor subclasses
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled", "ignore:.*runs on the eager engine"),
]
CASES = [pytest.param(use, layer, id=f"{use.run.__name__}-{layer}") for use in USES for layer in use.layers()]


@pytest.fixture(scope="module", autouse=True)
def one_start_of_two_processes(request):
    """For those cases that are run, which are few in `make test`."""
    tests = [item.callspec.params for item in request.session.items if getattr(item, "function", None) is test_use]
    cases = [(test["use"].run.__name__, test["layer"]) for test in tests]
    parallel.CASES[:] = [(use, layer) for use, layer in cases if use in parallel.CHECKS]


@pytest.mark.covering("use,layer.column", "layer")
@pytest.mark.parametrize(("use", "layer"), CASES)
def test_use(use, layer):
    outcome = use.outcome(layer)
    if outcome is WORKS:
        use.run(layer)
    elif isinstance(outcome, Differs):
        with pytest.raises(AssertionError):
            use.run(layer)
    else:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # the message is what counts
            use.run(layer)
        message = str(raised.value)
        assert outcome.fix in message
        assert outcome.torchs or "\n" not in message


def test_every_public_layer_is_used():
    public = {name for name in timescales.__all__ if isinstance(getattr(timescales, name), type)}
    public = {name for name in public if issubclass(getattr(timescales, name), timescales.RNN)}
    assert public - {"RNN", "CellRNN"} == {name for name, _ in KINDS.values()}


def test_every_use_has_a_line_of_its_own():
    assert len({use.text for use in USES}) == len(USES)
    assert len({use.run.__name__ for use in USES}) == len(USES)
