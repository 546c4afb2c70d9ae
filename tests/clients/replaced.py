"""A plugin of pytest that replaces torch.nn.LSTM and GRU before a package is imported, and says which tests reach one.

The variable CLIENT_RNN says how: "torch" (not at all), "class" (by timescales.LSTM and GRU), or "accelerated" (each new
layer of torch's by `timescales.accelerate`). A test that makes or calls such a layer has the property `rnn` in pytest's
XML file.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from torch.nn.modules import rnn as torchs

import timescales

KIND = os.environ.get("CLIENT_RNN", "torch")
seen = [0]  # layers that were made or called in the test that runs


def counted(function):
    def with_count(self, *arguments, **named):
        seen[0] += isinstance(self, LAYERS)
        return function(self, *arguments, **named)

    return with_count


def accelerated(function):
    def then_accelerated(self, *arguments, **named):
        function(self, *arguments, **named)
        timescales.accelerate(self)

    return then_accelerated


LAYERS = torch.nn.LSTM, torch.nn.GRU
torchs.RNNBase.__init__ = counted(torchs.RNNBase.__init__)
for layer, ours in zip(LAYERS, (timescales.LSTM, timescales.GRU), strict=True):
    layer.__call__ = counted(layer.__call__)
    if KIND == "accelerated":
        layer.__init__ = accelerated(layer.__init__)
    if KIND == "class":
        for place in (torch.nn, torch.nn.modules, torchs):
            setattr(place, layer.__name__, ours)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    seen[0] = 0
    yield
    if seen[0]:
        item.user_properties.append(("rnn", 1))
