"""Stacked layers of a cell, called like torch.nn.LSTM: `RNN` takes cells, `CellRNN` makes them.

rnn = PLSTM(10, 128)
output, state = rnn(x)              # x (S, B, 10) -> output (S, B, 128); state.h, state.c, state.age (1, B, 128)
output, state = rnn(more, state)    # continue from this state
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from timescales import torch_private
from timescales.errors import nearest
from timescales.nn import engine as engines
from timescales.nn import signatures
from timescales.nn import state as states
from timescales.nn.cells.cell import Cell
from timescales.nn.engine.kernel import is_plain, tracing_reason
from timescales.nn.state import join_steps

# Arguments of torch.nn.LSTM that do not exist here: torch's default, which is accepted, and what to do instead.
TORCH_ARGUMENTS: dict[str, tuple[object, str]] = {
    "bias": (True, "every cell here has its biases: zero and freeze them if you must"),
    "bidirectional": (
        False,
        "run a second RNN over x.flip(0) and flip its output back; see Bidirectional in docs/library.md",
    ),
    "proj_size": (0, "put an nn.Linear after the RNN"),
    "device": (None, "build the module, then call .to(device)"),
    "dtype": (None, "build the module, then call .to(dtype)"),
}

TORCH_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # and the layer, as in weight_ih_l0
TORCH_ORDER = ("bias", "batch_first", "dropout", "bidirectional", "proj_size")  # after num_layers, in torch.nn.LSTM


class RNN(nn.Module):
    """A stack of layers. The first reads the input, each later one the output of the layer before.

    Arguments:
        cells: one cell per layer. The hidden size of a cell is the input size of the next.
        batch_first: if True, x, output, dt and mask are (B, S, ...) instead of (S, B, ...). Default: False.
        dropout: probability of dropout on the outputs of every layer except the last, in training. Default: 0. It may
            be set later: `rnn.dropout = 0.5`.
        engine: the time loop, "auto" (the fastest available, default), "eager", "fused", "graph", "cluster"
            or "cudnn". A named engine that cannot run raises ValueError.

    Call: `output, state = rnn(x, state=None, dt=None, mask=None)`; see `forward`.

    Note: in half precision (`.bfloat16()`, `.half()`) the state is in half precision too, and cannot hold a long
    memory: values near 1 become 1, and an age stops at 256 (float16: 2,048). Under torch.autocast, gates and state stay
    float32.
    """

    layers: Sequence[Cell]
    between: nn.Module  # dropout between the layers; a model may replace it

    def __init__(
        self, cells: Sequence[Cell], *, batch_first: bool = False, dropout: float = 0.0, engine: str = "auto"
    ) -> None:
        super().__init__()
        if isinstance(cells, Cell):
            raise ValueError(f"give a list of cells, one per layer: RNN([{type(cells).__name__}(...)])")
        if not cells:
            raise ValueError("num_layers must be at least 1")
        for below, above in itertools.pairwise(cells):
            if above.input_size != below.hidden_size:
                raise ValueError(f"a layer of {below.hidden_size} units cannot feed one of {above.input_size} inputs")
        if not isinstance(batch_first, bool):
            raise ValueError(f"batch_first must be True or False, not {batch_first!r}")
        if engine not in engines.NAMES:
            raise ValueError(f"engine must be one of {', '.join(engines.NAMES)}; not {engine!r}")
        self.layers = nn.ModuleList(cells)  # type: ignore[assignment]  # a ModuleList of cells is a Sequence[Cell]
        self.batch_first, self.engine = batch_first, engine
        self.between = nn.Dropout()
        self.dropout = dropout
        if dropout and len(cells) == 1:
            warnings.warn(f"dropout={dropout} is between layers: one layer has none", stacklevel=3)

    @property
    def input_size(self) -> int:
        """Number of input features."""
        return self.layers[0].input_size

    @property
    def hidden_size(self) -> int:
        """Number of units of the last layer, the size of the output."""
        return self.layers[-1].hidden_size

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def bidirectional(self) -> bool:
        """False: all modules read a sequence in one direction. torch.nn.LSTM has this attribute."""
        return False

    @property
    def proj_size(self) -> int:
        """0: no module projects its output. torch.nn.LSTM has this attribute."""
        return 0

    @property
    def dropout(self) -> float:
        """Probability of dropout between the layers, in training."""
        return self.between.p  # type: ignore[return-value]  # a number in every kind of dropout

    @dropout.setter
    def dropout(self, probability: float) -> None:
        """Set the probability, from the next forward pass on."""
        if isinstance(probability, bool) or not isinstance(probability, int | float):
            raise ValueError(f"dropout must be a number, at least 0 and below 1, not {probability!r}")
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {probability!r}")
        self.between.p = probability  # type: ignore[assignment]

    def reset_parameters(self) -> None:
        """Draw all parameters again: after the same seed, the layers have the numbers of new ones."""
        for cell in self.layers:
            cell.reset_parameters()

    def __getattr__(self, name: str) -> Any:
        """As torch has it, with a message for the names of torch.nn.LSTM's weights that says where they are here."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            weight, _, layer = name.partition("_l")
            if weight not in TORCH_WEIGHTS or not layer.isdigit() or int(layer) >= self.num_layers:
                raise
            if weight.startswith("bias") and self.layers[int(layer)].biases == 1:
                weight = "bias"
        raise AttributeError(f"{type(self).__name__} has no {name}: it is layers[{layer}].{weight}")

    def flatten_parameters(self) -> None:
        """Do nothing. torch.nn.LSTM has this method, and code that was written for it may call it."""

    def split_state(self, state: Any) -> list[Any]:
        """One state per layer, the NamedTuple of its cell, from a state as `forward` returns or takes it."""
        return states.split(self.layers, state)

    def join_state(self, layers: Sequence[Any]) -> Any:
        """The state as `forward` returns it, from one state per layer. Inverse of `split_state`."""
        return states.join(self.layers, layers)

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        states: bool = False,
        hx: Any = None,
    ) -> tuple[Any, ...]:
        """Run the layers over a batch of sequences.

        Arguments:
            x: input, (S, B, input_size).
            state: the state that an earlier call returned, or None for zeros (`RMC`: rows of the identity matrix;
                `SLSTM`: the logarithm of no weight yet; `URNN`: one that it learns). A list with one state per layer,
                as `split_state` returns it, is taken too; each may be a plain tuple or list.
            dt: time since the previous step, (S, B), also for the first step. The layers that docs/library.md names use
                it, and cells of your own whose step does; the others take and ignore it. Default: 1. It must be finite
                and at least 0. On a CPU this is checked; on a GPU it is not, since a check would wait for the GPU, and
                neither is it while torch traces or transforms the call.
            mask: (S, B), 0 where a step does not exist. There x and dt are not read, the state does not change, and the
                output is the last h. Every other number counts as 1.
            reset: (S, B), nonzero where the state is that of the beginning again before a step: the cells' initial
                state, not the argument `state`. So several sequences may follow each other in one row: episodes,
                articles, packed texts. A reset counts at a masked step, too: the output there is the initial h.
            states: whether to return the state after every step, as a third result. Default: False.
            hx: torch.nn.LSTM's name of `state`; give one of the two.

        Returns: output (S, B, hidden_size), the h of the last layer at every step, and the state. For cells with h and
        c it is (h_n, c_n), each (num_layers, B, H), as torch.nn.LSTM's; for cells with h alone h_n, as torch.nn.GRU's;
        for others an `RNNState`, such as state.h, state.c, state.age, each (num_layers, B, H). Two fields have another
        width than H: state.memory of an NRU has memory_size numbers, and state.averages of an SRU has statistics
        numbers for each of its alphas. If the layers differ in size, the state is an `RNNState` whose fields are tuples
        with one tensor (B, H) per layer. With states=True, the third result is an `RNNState` whose fields are tuples
        with one tensor (S, B, H) per layer: `states.h[-1]` is the output. With batch_first, S and B are exchanged in
        x, dt, mask, reset, output and states, but not in the state.

        Raises: ValueError for a wrong shape, dtype or device, a dt that is negative or not finite, or if the named
        engine cannot run.
        """
        if (
            torch.compiler.is_dynamo_compiling()
            and self.engine != "eager"
            and any(cell.compiled for cell in self.layers)
        ):
            torch_private.graph_break("torch.compile leaves kernels alone, as torch's LSTM; or use engine='eager'")
            return torch.compiler.disable(RNN.forward)(self, x, state, dt, mask, reset=reset, states=states, hx=hx)
        self._check(x, dt, mask, reset)
        before = self._checked_state(state, hx, x)
        if self.batch_first:
            x = x.transpose(0, 1)
            dt, mask, reset = (None if value is None else value.transpose(0, 1) for value in (dt, mask, reset))
        run = functools.partial(engines.run, self.engine, reset=reset, states=states)
        after, every = [], []
        for k, cell in enumerate(self.layers):
            if k:
                x = self.between(x)
            x, end, *steps = cell(x, None if before is None else before[k], dt, mask, run)
            after.append(end)
            every += steps
        output, end = (x.transpose(0, 1) if self.batch_first else x), self.join_state(after)
        return (output, end, join_steps(self.layers, every, self.batch_first)) if states else (output, end)

    def _check(self, x: Tensor, dt: Tensor | None, mask: Tensor | None, reset: Tensor | None) -> None:
        """Raise ValueError for an argument of `forward` with a wrong type, shape, dtype or device."""
        self._check_input(x)
        for name, value in (("dt", dt), ("mask", mask), ("reset", reset)):
            if value is None:
                continue
            if not isinstance(value, Tensor):
                raise ValueError(f"{name} must be a tensor, not {type(value).__name__}")
            if value.shape != x.shape[:-1]:
                expected = f"{name} must be {tuple(x.shape[:-1])}, like x without its features"
                raise ValueError(f"{expected}: it is {tuple(value.shape)}")
        if dt is not None:
            check_dt(dt, mask)

    def _check_input(self, x: Tensor) -> None:
        sizes = "(B, S" if self.batch_first else "(S, B"
        if isinstance(x, nn.utils.rnn.PackedSequence):
            raise ValueError(f"packed sequences are not taken: pad them and give mask {sizes}), 0 at the padding")
        if isinstance(x, torch.fx.Proxy):
            fix = "give its Tracer an is_leaf_module that is True for timescales.RNN, or use torch.export.export"
            raise ValueError(f"torch.fx.symbolic_trace does not trace a loop over time: {fix}")
        if not isinstance(x, Tensor):
            raise ValueError(f"x must be a tensor, not {type(x).__name__}")
        if x.dim() < 3:
            fix = f"; for one sequence use x.unsqueeze({0 if self.batch_first else 1})" if x.dim() == 2 else ""
            raise ValueError(f"x must be {sizes}, input), not {tuple(x.shape)}{fix}")
        if x.shape[-1] != self.input_size:
            raise ValueError(f"x has {x.shape[-1]} features in its last dimension; this RNN reads {self.input_size}")
        weight = self.layers[0].weight_ih
        if x.dim() > 3 and weight.dim() == 2:  # batched seeds have one more dimension, in the weights too
            raise ValueError(f"x must have 3 dimensions, {sizes}, input), not {tuple(x.shape)}")
        if states.brought_by_hooks(weight):
            return
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x is {x.dtype}, the weights are {weight.dtype}: give x.to({weight.dtype})")

    def _checked_state(self, state: Any, hx: Any, x: Tensor) -> list[Any] | None:
        """One state per layer, or None. Raises ValueError if the state does not fit this RNN and the batch x."""
        if state is not None and hx is not None:
            raise ValueError("state and hx are two names of one argument: give one of them")
        state = hx if state is None else state
        if state is None:
            return None
        if isinstance(state, Tensor) and state.shape == x.shape[:-1]:
            fix = "did you mean rnn(x, dt=dt), or mask=mask?"
            raise ValueError(
                f"the second argument is the state, {states.form(self.layers)}, not {tuple(state.shape)}: {fix}"
            )
        layers = self.split_state(state)
        states.check(self.layers, layers, (x.transpose(0, 1) if self.batch_first else x).shape[1:-1])
        return layers

    def timescales(self) -> list[Tensor]:
        """Characteristic time of each unit in steps, one tensor (H,) per layer. See `timescales` of the cell."""
        return [cell.timescales().detach() for cell in self.layers]

    def extra_repr(self) -> str:
        return f"batch_first={self.batch_first}, dropout={self.dropout}, engine={self.engine!r}"


class CellRNN(RNN):
    """An RNN whose layers are cells of one class. It takes the arguments of torch.nn.LSTM and those of the cell.

        class PLSTM(CellRNN):
            cell_class = PLSTMCell

    is called `PLSTM(10, 128, num_layers=2, epsilon=0.01)`.

    Arguments:
        input_size: number of input features.
        hidden_size: number of units of each layer: one number, or a list with one per layer.
        num_layers: number of layers. Default: 1.
        batch_first, dropout, engine: see `RNN`.
        arguments: those of the cell, by name.

    Raises: ValueError for a value out of range and for an argument that only torch.nn.LSTM has; the message says what
    to do instead.
    """

    cell_class: type[Cell]
    cell_classes: tuple[type[Cell], ...] = ()  # where an argument chooses among several
    chooses: tuple[str, ...] = ()  # arguments of the cell that the class chooses itself

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        constructor: Any = cls.__init__
        if "cell_class" in vars(cls) and constructor.__code__ is CellRNN.__init__.__code__:
            cls.__init__ = constructor = signatures.copy(constructor)  # type: ignore[method-assign]  # for its signature
        if "__init__" in vars(cls):
            cells = cls.cell_classes or ((cls.cell_class,) if hasattr(cls, "cell_class") else ())
            signatures.complete(constructor, CellRNN.__init__, *cells, without=cls.chooses)

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        engine: str = "auto",
        **arguments: Any,
    ) -> None:
        taken = signatures.parameters(self.cell_class)
        check_arguments(self, positional, {key: value for key, value in arguments.items() if key not in taken})
        arguments = {key: value for key, value in arguments.items() if key in taken}
        cells = self.make_cells(layer_sizes(input_size, hidden_size, num_layers), **arguments)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)

    def make_cells(self, sizes: Sequence[tuple[int, int]], **arguments: Any) -> list[Cell]:
        """The cells, one per layer. sizes: input size and hidden size of each."""
        return [self.cell_class(*size, **arguments) for size in sizes]

    def refuse_chosen(self, arguments: Mapping[str, object]) -> None:
        """Raise ValueError for arguments that the class chooses itself."""
        check_arguments(self, (), {key: value for key, value in arguments.items() if key in self.chooses})


def check_dt(dt: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError if dt is negative, infinite or NaN at a step that exists.

    It is not checked on a GPU, which it would have to wait for, nor where a tensor has no numbers to look at: under
    torch.compile, tracers, torch.func and subclasses.
    """
    if torch.compiler.is_compiling() or not dt.is_cpu or not dt.numel() or tracing_reason():
        return
    if not is_plain(dt) or (mask is not None and not (mask.is_cpu and is_plain(mask))):
        return
    low, high = torch.aminmax(dt.detach() if dt.requires_grad else dt)
    if low.item() >= 0 and high.item() < math.inf:  # False for NaN
        return
    wrong = ~((dt >= 0) & (dt < math.inf))
    if mask is not None:
        wrong &= mask.bool()
    if wrong.any():
        place = wrong.nonzero()[0].tolist()
        reason = f"dt{place} is {dt[tuple(place)].item():g}; it must be finite and at least 0"
        raise ValueError(f"{reason}: sort the times; dt is the time since the previous step")


def check_arguments(rnn: RNN, positional: Sequence[object], unknown: Mapping[str, object]) -> None:
    """Raise ValueError for arguments that a module does not take. The message says what to do instead.

    positional: what was given after num_layers without a name. unknown: keyword arguments that the module lacks.
    """
    name = type(rnn).__name__
    if positional:
        by_name = ", ".join(f"{key}={value!r}" for key, value in zip(TORCH_ORDER, positional, strict=False))
        raise ValueError(f"{name} takes what follows num_layers by name; in torch's order these are {by_name}")
    for key, value in unknown.items():
        if key in TORCH_ARGUMENTS:
            default, fix = TORCH_ARGUMENTS[key]
            if value != default:
                raise ValueError(f"{name} does not take {key}={value!r}: {fix}")
            continue
        parent = type(rnn).__mro__[1]
        if key in inspect.signature(parent).parameters:
            raise ValueError(f"{name} chooses {key} itself: give {key}={value!r} to {parent.__name__}")
        known = [p.name for p in inspect.signature(type(rnn)).parameters.values() if p.kind not in signatures.VARIABLE]
        raise ValueError(f"{name} has no argument {key}{nearest(key, known)}")


def layer_sizes(input_size: int, hidden_size: int | Sequence[int], num_layers: int) -> list[tuple[int, int]]:
    """(input size, hidden size) of each layer. `hidden_size` is one number, or a list with one per layer."""
    if isinstance(num_layers, bool) or not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"num_layers must be a whole number of at least 1, not {num_layers!r}")
    if isinstance(hidden_size, Sequence) and not isinstance(hidden_size, str):
        hidden = list(hidden_size)
    else:
        hidden = [hidden_size] * num_layers
    if len(hidden) != num_layers:
        raise ValueError(f"hidden_size lists {len(hidden)} layers, num_layers is {num_layers}")
    return list(itertools.pairwise([input_size, *hidden]))


def one_cell_per_layer(
    cell: type[Cell], input_size: int, hidden_size: int | Sequence[int], num_layers: int, **arguments: Any
) -> list[Cell]:
    """Cells for an `RNN`, one per layer.

    Arguments:
        cell: class of the cells.
        input_size: input size of the first layer.
        hidden_size: one number for all layers, or a list with one per layer.
        num_layers: number of layers.
        arguments: further keyword arguments of each cell.
    """
    return [cell(inputs, hidden, **arguments) for inputs, hidden in layer_sizes(input_size, hidden_size, num_layers)]


def per_layer(name: str, value: Any, num_layers: int, is_list: bool) -> list[Any]:
    """An argument's value for each layer: `value` for all layers, or, if is_list, its entries."""
    if not is_list:
        return [value] * num_layers
    if len(value) != num_layers:
        raise ValueError(f"{name} lists {len(value)} layers, num_layers is {num_layers}")
    return list(value)
