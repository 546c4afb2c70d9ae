"""Every use of tests/dropin/uses with both engines: it works, is refused or differs, as docs/dropin.md says."""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from rnn_cases import NO_KERNEL, build
from uses import parallel
from uses.layers import COLUMNS, KINDS, LAYERS, WITHOUT_PARAMETERS
from uses.registry import USES, WORKS, Differs

import timescales
from timescales.nn.engine.equations import of_cell

pytestmark = [  # what torch says of the uses, and our engine of tensor subclasses
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled", "ignore:.*runs on the eager engine"),
]
PAGE = (Path(__file__).parents[2] / "docs/dropin.md").read_text()


def chosen_cases():
    """Each use with torch's layer and, on each engine, with the one of our layers that was used least before it."""
    used, cases = Counter(), []
    for use in USES:
        for column in COLUMNS:
            if layers := [layer for layer in use.layers() if layer.column == column]:
                layer = min(layers, key=lambda layer: used[str(layer)])
                used[str(layer)] += 1
                cases.append((use, layer))
    return cases


CASES = chosen_cases()
# One start of two processes runs all that needs them.
parallel.CASES[:] = [(use.run.__name__, layer) for use, layer in CASES if use.run.__name__ in parallel.CHECKS]


def parameter(use, layer):
    """A case, slow if it starts processes."""
    name = use.run.__name__
    is_slow = name in (*parallel.CHECKS, "collected")
    return pytest.param(use, layer, id=f"{name}-{layer}", marks=[pytest.mark.slow] * is_slow)


@pytest.mark.parametrize(("use", "layer"), [parameter(*case) for case in CASES])
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


def test_the_layers_without_parameters_in_their_step_are_listed():
    steps = {kind: of_cell(build(kind).layers[0], timed=False) for kind in KINDS.keys() - NO_KERNEL}
    without = {kind for kind, step in steps.items() if not step.vectors and not step.noises}
    assert without | NO_KERNEL == WITHOUT_PARAMETERS


def test_every_layer_is_used_on_each_of_its_engines():
    ours = {str(layer) for layer in LAYERS if layer.column != "torch"}
    assert ours <= {str(layer) for _, layer in CASES}


def test_every_use_has_a_line_of_its_own():
    assert len({use.text for use in USES}) == len(USES)
    assert set(parallel.CHECKS) <= {use.run.__name__ for use in USES}


@pytest.mark.parametrize("kind", ["timescales.LSTM", "torch.nn.LSTM"])
def test_the_pages_models(kind):
    """The code of docs/dropin.md, with either class in the place of the other."""
    first, tagger, decoder, classifier = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names = {}
    exec(first.replace("timescales.LSTM", kind), names)
    assert isinstance(names["model"][0], torch.nn.LSTM)
    exec(tagger.replace("timescales.LSTM", kind), names)
    assert names["padded"].shape == (3, 9, 32)
    assert names["summary"].shape == (3, 32)
    assert not names["padded"][0, 4:].any()
    torch.testing.assert_close(names["summary"][:, 16:], names["padded"][:, 0, 16:])  # backward ends at the first step
    exec(decoder.replace("timescales.LSTM", kind), names)
    assert names["output"].shape == (4, 3, 16)
    assert names["state"].age.shape == (4, 3, 16)
    exec(classifier.replace("timescales.LSTM", kind), names)
