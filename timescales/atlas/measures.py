"""Measure what a cell costs beside nn.LSTM, which engine runs it, and how long its units remember."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from typing import NamedTuple

import torch
from torch import nn

from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn import engine
from timescales.nn.rnn import RNN
from timescales.tasks import Task
from timescales.training import memory

STEPS, BATCH, UNITS = 128, 32, 128  # of the sequences that are timed
TIMES = 5  # how often; the median counts


class Cost(NamedTuple):
    """The cost of a layer, forward and backward: seconds, and bytes stored for backward."""

    seconds: float
    saved: int


class Memory(NamedTuple):
    """T_1/e of the units in steps, over all layers: quantiles 10, 50 and 90 %, and the share beyond the longest lag."""

    low: float
    median: float
    high: float
    beyond: float


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
    """Return the engine that runs a cell here: fused, graph, or eager with the reason."""
    cell = rnn.layers[0]
    x = next(cell.parameters()).new_zeros(2, 1, cell.input_size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = engine.pick("auto", cell, x)
    name = chosen.__module__.rpartition(".")[2]
    reasons = [str(each.message).splitlines()[0] for each in caught]
    return f"{name} ({reasons[0]})" if reasons and name == "eager" else name


def one_over_e(model: SequenceModel, task: Task) -> Memory | str:
    """Measure T_1/e of a trained model's units on its validation data, or say why there is none."""
    try:
        times = torch.cat(memory.one_over_e(model, task, "valid", 50))
    except ConfigError as error:
        return str(error)
    if times.isnan().any():
        return "the gates are no numbers"
    low, median, high = memory.quantiles(times, (0.1, 0.5, 0.9))
    return Memory(low, median, high, memory.share_beyond(times))


def in_steps(value: float) -> str:
    """Write a time in steps."""
    return "longer than the sequences" if math.isinf(value) else f"{value:.3g}"
