"""Measure what a cell costs beside nn.LSTM, and which engine runs it."""

import statistics
import time
from typing import NamedTuple

import torch
from torch import nn

from timescales.nn import engine
from timescales.nn.rnn import RNN

STEPS, BATCH, UNITS = 128, 32, 128  # of the sequences that are timed
TIMES = 5  # how often; the median counts


class Cost(NamedTuple):
    """The cost of a layer, forward and backward: seconds, and bytes stored for backward."""

    seconds: float
    saved: int


def cost(layer: nn.Module, input_size: int) -> Cost:
    """Measure the cost of a layer on sequences of STEPS steps, BATCH of them, on this machine."""
    x = torch.randn(STEPS, BATCH, input_size, generator=torch.Generator().manual_seed(0), requires_grad=True)
    sizes: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x)[0].sum().backward()  # the first one compiles, too
    parameters = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    seconds = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        layer(x)[0].sum().backward()
        seconds.append(time.perf_counter() - begun)
    size = sum(nbytes for place, nbytes in sizes.items() if place not in parameters)
    return Cost(statistics.median(seconds), size)


def engine_of(rnn: RNN) -> str:
    """Return the name of the engine that runs a cell here; for eager with the reason."""
    name, warning = engine.name_of_auto(rnn.layers[0])
    return f"{name} ({warning.splitlines()[0]})" if warning and name == "eager" else name
