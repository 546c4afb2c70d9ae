"""Stacked layers over a cell, called like torch.nn.LSTM.

rnn = PLSTM(10, 128)
output, state = rnn(x)                    # x (S, B, 10) -> output (S, B, 128); state: one NamedTuple per layer
output, state = rnn(more, state)          # carry the state on
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from timescales.nn import engine as engines
from timescales.nn.cells import Cell
from timescales.nn.engine.kernel import kernel_of

# What torch.nn.LSTM takes and we do not: the value that asks for nothing, and how to get the others' effect here.
MENDS = {
    "bias": (True, "every cell here has its biases: zero and freeze them if you must"),
    "bidirectional": (False, "run a second RNN over x.flip(0) and concatenate the outputs"),
    "proj_size": (0, "put an nn.Linear after the RNN"),
    "device": (None, "build the module, then call .to(device)"),
    "dtype": (None, "build the module, then call .to(dtype)"),
}


class RNN(nn.Module):
    """Layers of cells, the first reading the input and each later one the output of the one before.

    cells: one cell per layer; dropout: on the outputs of every layer but the last, in training;
    batch_first: x, output, dt and mask are (B, S, ...) instead of (S, B, ...); engine: the time loop
    ("auto", or a name of `timescales.nn.engine.NAMES`).
    Weights of half precision (`.bfloat16()`, `.half()`) have a state of their type, which cannot hold a long memory:
    what is near 1 becomes 1, an age stops at 256 (half: 2,048). Under torch.autocast gates and state stay float32.
    """

    def __init__(
        self, cells: Sequence[Cell], *, batch_first: bool = False, dropout: float = 0.0, engine: str = "auto"
    ) -> None:
        super().__init__()
        if not cells:
            raise ValueError("num_layers must be at least 1")
        for below, above in itertools.pairwise(cells):
            if above.input_size != below.hidden_size:
                raise ValueError(f"a layer of {below.hidden_size} units cannot feed one of {above.input_size} inputs")
        if isinstance(dropout, bool):
            raise ValueError(f"dropout must be a number, not {dropout}; torch's fourth argument, bias, is none here")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        if dropout and len(cells) == 1:
            warnings.warn(f"dropout={dropout} is between layers: one layer has none", stacklevel=3)
        if engine not in engines.NAMES:
            raise ValueError(f"engine must be one of {', '.join(engines.NAMES)}; not {engine!r}")
        self.layers: Sequence[Cell] = nn.ModuleList(cells)  # type: ignore[assignment]
        self.batch_first, self.dropout, self.engine = batch_first, dropout, engine
        self.between: nn.Module = nn.Dropout(dropout)  # a model may put another kind of dropout there

    @property
    def input_size(self) -> int:
        """Features of the input."""
        return self.layers[0].input_size

    @property
    def hidden_size(self) -> int:
        """Units of the last layer: the size of the output."""
        return self.layers[-1].hidden_size

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def forward(
        self, x: Tensor, state: Sequence[Any] | None = None, dt: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """Run the layers over x.

        x: (S, B, I). state: what an earlier call returned, or None for zeros; each layer's may be a plain tuple, as
        torch.load gives back what was saved as [tuple(layer) for layer in state].
        dt: (S, B), the time since the previous step (for the first step, too), which power-law cells alone read; it
        must not be negative, which is not checked, since that would wait for a GPU.
        mask: (S, B), 0 where a step does not exist, so that x and dt are not read and the state stays as it is, and any
        other number where it does.
        Returns the last layer's output (S, B, H) and the state, one NamedTuple per layer.
        """
        if torch.compiler.is_dynamo_compiling() and self.engine != "eager" and any(map(kernel_of, self.layers)):
            torch._dynamo.graph_break(msg="torch.compile leaves kernels alone, as torch's LSTM; or use engine='eager'")
            return torch.compiler.disable(RNN.forward)(self, x, state, dt, mask)
        self._check(x, state, dt, mask)
        if self.batch_first:
            x, dt, mask = (None if v is None else v.transpose(0, 1) for v in (x, dt, mask))  # type: ignore[assignment]
        dt = None if dt is None else dt.to(self.layers[0].weight_ih.dtype)
        states = []
        for k, cell in enumerate(self.layers):
            if k:
                x = self.between(x)
            run = engines.pick(self.engine, cell, x, masked=mask is not None)
            before = cell.initial_state(*x.shape[1:-1]) if state is None else cell.State(*state[k])
            x, after = cell(x, before, dt, mask, run)
            states.append(after)
        return (x.transpose(0, 1) if self.batch_first else x), tuple(states)

    def _check(self, x: Tensor, state: Sequence[Any] | None, dt: Tensor | None, mask: Tensor | None) -> None:
        if isinstance(x, nn.utils.rnn.PackedSequence):
            raise ValueError("packed sequences are not taken: pad them and give mask (S, B), 0 at the padding")
        for name, value in (("x", x), ("dt", dt), ("mask", mask)):
            if not isinstance(value, Tensor) and not (value is None and name != "x"):
                raise ValueError(f"{name} must be a tensor, not {type(value).__name__}")
        if x.dim() < 3:
            raise ValueError(f"x must be (S, B, input), not {tuple(x.shape)}; for one sequence use x.unsqueeze(1)")
        if x.shape[-1] != self.input_size:
            raise ValueError(f"x has {x.shape[-1]} features in its last dimension; this RNN reads {self.input_size}")
        for name, value in (("dt", dt), ("mask", mask)):
            if value is not None and value.shape != x.shape[:-1]:
                raise ValueError(f"{name} must be {tuple(x.shape[:-1])}, like x without its features: "
                                 f"it is {tuple(value.shape)}")  # fmt: skip
        weight = self.layers[0].weight_ih
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x is {x.dtype}, the weights are {weight.dtype}: give x.to({weight.dtype})")
        if isinstance(state, Tensor):
            raise ValueError("state must have an entry for each layer, as an earlier call returned it; torch's h0 of "
                             "layer k is rnn.layers[k].State(h0[k]), of an LSTM .State(h0[k], c0[k])")  # fmt: skip
        if state is not None and len(state) != len(self.layers):
            raise ValueError(f"state must have one entry per layer: {len(self.layers)}, not {len(state)}")
        for k, (cell, entry) in enumerate(zip(self.layers, state or (), strict=False)):
            shape = (*(x.transpose(0, 1) if self.batch_first else x).shape[1:-1], cell.hidden_size)
            names = cell.State._fields
            known = isinstance(entry, tuple) and getattr(entry, "_fields", names) == names
            if not known or [getattr(v, "shape", None) for v in entry] != [shape] * len(names):
                fields = ", ".join(names)
                raise ValueError(f"state of layer {k} must be what an earlier call returned: {fields}, each {shape}")
            dtype, device = cell.weight_ih.dtype, cell.weight_ih.device
            if other := [v for v in entry if (v.dtype, v.device) != (dtype, device)]:
                raise ValueError(f"state of layer {k} is {other[0].dtype} on {other[0].device}, not as the weights: "
                                 f"give each of its fields .to({str(device)!r}, {dtype})")  # fmt: skip

    def timescales(self) -> list[Tensor]:
        """Characteristic times in steps, (H,) for each layer."""
        return [cell.timescales().detach() for cell in self.layers]

    def extra_repr(self) -> str:
        return f"batch_first={self.batch_first}, dropout={self.dropout}, engine={self.engine!r}"


def refuse(rnn: RNN, unknown: Mapping[str, object]) -> None:
    """Raise ValueError for an argument that these modules do not have, with what to do instead."""
    for key, value in unknown.items():
        if key in MENDS:
            harmless, mend = MENDS[key]
            if value != harmless:
                raise ValueError(f"{type(rnn).__name__} does not take {key}={value!r}: {mend}")
            continue
        parent = type(rnn).__mro__[1]
        if key in inspect.signature(parent).parameters:
            raise ValueError(f"{type(rnn).__name__} chooses {key} itself: give {key}={value!r} to {parent.__name__}")
        known = [p for p in inspect.signature(type(rnn)).parameters if p != "unknown"]
        near = difflib.get_close_matches(key, known, 1)
        raise ValueError(f"{type(rnn).__name__} has no argument {key}" + (f"; did you mean {near[0]}?" if near else ""))


def layer_sizes(input_size: int, hidden_size: int | Sequence[int], num_layers: int) -> list[tuple[int, int]]:
    """(input, hidden) of each layer; hidden_size is one number or one per layer."""
    if isinstance(num_layers, bool) or not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"num_layers must be a whole number of at least 1, not {num_layers!r}")
    hidden = list(hidden_size) if isinstance(hidden_size, Sequence) else [hidden_size] * num_layers
    if len(hidden) != num_layers:
        raise ValueError(f"hidden_size lists {len(hidden)} layers, num_layers is {num_layers}")
    return list(zip([input_size, *hidden], hidden, strict=False))


def one_cell_per_layer(
    cell: type[Cell], input_size: int, hidden_size: int | Sequence[int], num_layers: int, **arguments: Any
) -> list[Cell]:
    """One cell per layer, all with the same arguments; hidden_size is one number or one per layer."""
    return [cell(i, h, **arguments) for i, h in layer_sizes(input_size, hidden_size, num_layers)]


def per_layer(name: str, value: Any, num_layers: int, is_list: bool) -> list[Any]:
    """An argument's value for each layer: the same for all, or a list with one for each."""
    if not is_list:
        return [value] * num_layers
    if len(value) != num_layers:
        raise ValueError(f"{name} lists {len(value)} layers, num_layers is {num_layers}")
    return list(value)
