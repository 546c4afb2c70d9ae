"""The code in docs/dropin.md does what the page says of it."""

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs/dropin.md").read_text()


@pytest.mark.parametrize("kind", ["timescales.LSTM", "torch.nn.LSTM"])
def test_three_models(kind):
    """With either class in the place of the other."""
    tagger, decoder, classifier = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names = {}
    exec(tagger.replace("timescales.LSTM", kind), names)
    assert names["padded"].shape == (3, 9, 32)
    assert names["summary"].shape == (3, 32)
    assert not names["padded"][0, 4:].any()
    torch.testing.assert_close(names["summary"][:, 16:], names["padded"][:, 0, 16:])  # backward ends at the first step
    exec(decoder.replace("timescales.LSTM", kind), names)
    assert names["output"].shape == (4, 3, 16)
    assert names["state"].age.shape == (4, 3, 16)
    exec(classifier.replace("timescales.LSTM", kind), names)
