"""Stacked layers of a cell, called like torch.nn.LSTM: `RNN` accepts cells, `CellRNN` makes them.

rnn = PLSTM(10, 128)
output, state = rnn(x)              # x (S, B, 10) -> output (S, B, 128); state.h, state.c, state.age (1, B, 128)
output, state = rnn(more, state)    # continue from this state
"""

import functools
import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from timescales import torch_private
from timescales.errors import WrongShape, nearest
from timescales.nn import cells, forms, signatures
from timescales.nn import engine as engines
from timescales.nn import state as states
from timescales.nn.cells.cell import Cell
from timescales.nn.engine.kernel import is_plain, tracing_reason
from timescales.nn.factory import made_on
from timescales.nn.inits import check_whole
from timescales.nn.state import join, join_steps

TORCH_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # and the layer, as in weight_ih_l0


class RNN(nn.Module):
    """A stack of layers. The first reads the input, each later one the output of the layer before.

    Arguments:
        cells: one cell per layer. The hidden size of a cell is the input size of the next. With bidirectional=True two
            per layer, the second for the sequence in reverse.
        batch_first: if True, x, output, dt and mask are (B, S, ...) instead of (S, B, ...). Default: False.
        dropout: probability of dropout on the outputs of every layer except the last, in training. Default: 0. It may
            be set later: `rnn.dropout = 0.5`.
        bidirectional: if True, each layer reads the sequence in both directions, and the output is the h of both, side
            by side. Default: False.
        engine: what runs the time loop: "auto" (the fastest available, default), "eager", "fused", "compiled" or
            "cudnn". A named engine that cannot run raises ValueError.

    Call: `output, state = rnn(x, state=None, dt=None, mask=None)`; see `forward`.

    Note: after `.bfloat16()` or `.half()` the state is in half precision too, and cannot hold a long memory: values
    near 1 become 1, and an age or a time stops at 256 (float16: 2,048). Under torch.autocast, gates and state stay
    float32.
    """

    layers: Sequence[Cell]  # one per layer; if bidirectional two, forward and backward, as in torch's states
    between: nn.Module | None  # replaces dropout between the layers, if a model sets it
    input_size: int
    hidden_size: int  # of the last layer
    num_layers: int
    proj_size: int  # 0: no layer but `LSTM` projects its output

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        if isinstance(cells, Cell):
            raise ValueError(f"give a list of cells, one per layer: RNN([{type(cells).__name__}(...)])")
        if not cells:
            raise ValueError("num_layers must be at least 1")
        for name, value in (("batch_first", batch_first), ("bidirectional", bidirectional)):
            if not isinstance(value, bool):
                raise ValueError(f"{name} should be of type bool, not {value!r}")
        directions = 1 + bidirectional
        if len(cells) % directions:
            raise ValueError(f"bidirectional=True needs two cells per layer, one of them backward; not {len(cells)}")
        for k in range(directions, len(cells)):
            below = sum(cell.hidden_size for cell in cells[k // directions * directions - directions :][:directions])
            if cells[k].input_size != below:
                raise ValueError(f"a layer of {below} units cannot feed one of {cells[k].input_size} inputs")
        self.layers = nn.ModuleList(cells)  # type: ignore[assignment]  # a ModuleList of cells is a Sequence[Cell]
        self.input_size, self.hidden_size, self.proj_size = cells[0].input_size, cells[-1].hidden_size, 0
        self.num_layers, self.bidirectional, self.batch_first = len(cells) // directions, bidirectional, batch_first
        self.dropout, self.between, self.engine = dropout, None, engines.checked(engine)
        if dropout and self.num_layers == 1:
            warnings.warn(f"dropout={dropout} acts between layers: with one layer it does nothing", stacklevel=3)

    @property
    def dropout(self) -> float:
        """Return the probability of dropout between the layers in training. It may be set, for the next calls."""
        return self.__dict__["dropout"]

    @dropout.setter
    def dropout(self, probability: float) -> None:
        """Set the probability. Raises ValueError for a value that is not a probability."""
        is_number = isinstance(probability, int | float) and not isinstance(probability, bool)
        if not is_number or not 0.0 <= probability <= 1.0:
            raise ValueError(f"dropout should be a number in range [0, 1], not {probability!r}")
        self.__dict__["dropout"] = probability

    def reset_parameters(self) -> None:
        """Draw all parameters again. After the same seed, the layers have the same parameters as new ones."""
        for cell in self.layers:
            cell.reset_parameters()

    def __getattr__(self, name: str) -> Any:
        """Look up an attribute as torch does. For a name of torch.nn.LSTM's weights, say where the weight is here."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            weight, _, layer = name.partition("_l")
            number, _, reverse = layer.partition("_reverse")
            if weight not in TORCH_WEIGHTS or not number.isdigit() or (bool(reverse) and not self.bidirectional):
                raise
            place = int(number) * (1 + self.bidirectional) + layer.endswith("_reverse")
            if place >= len(self.layers):
                raise
            if weight.startswith("bias") and self.layers[place].biases == 1:
                weight = "bias"
        raise AttributeError(f"{type(self).__name__} has no {name}: it is layers[{place}].{weight}")

    def flatten_parameters(self) -> None:
        """Do nothing. torch.nn.LSTM has this method, and code that was written for it may call it."""

    def split_state(self, state: Any) -> list[Any]:
        """Return one state per layer, the NamedTuple of its cell, from a state that `forward` returned or accepts."""
        return states.split(self.layers, state)

    def join_state(self, layers: Sequence[Any]) -> Any:
        """Return the state in the form of `forward`, from one state per layer. Inverse of `split_state`."""
        return states.join(self.layers, layers)

    def forward(
        self,
        input: Any = None,  # torch's name
        state: Any = None,
        dt: Any = None,
        mask: Tensor | None = None,
        *,
        reset: Any = None,
        states: bool = False,
        x: Any = None,
        hx: Any = None,
    ) -> tuple[Any, ...]:
        """Run the layers over a batch of sequences.

        Arguments:
            input: the sequences, (S, B, input_size); one sequence, (S, input_size), where dt, mask, reset and the state
                have no B either; or a PackedSequence, whose state is in the order of its sequences before they were
                sorted.
            state: the state that an earlier call returned, or None for zeros (`RMC`: rows of the identity matrix;
                `SLSTM`: log_n is -8192; `URNN`: a learned state). A list with one state per layer, as `split_state`
                returns it, is accepted too; each may be a plain tuple or list.
            dt: time since the previous step, (S, B), also for the first step; packed if the input is. The layers that
                docs/library.md names use it, and so do custom cells whose step reads it; the others ignore it.
                Default: 1. It must be finite and at least 0. This is checked on a CPU. It is not checked on a GPU,
                since the check would wait for the GPU, nor while torch traces or transforms the call.
            mask: (S, B), 0 where a step does not exist. There x and dt are not read, the state does not change, and the
                output is the last h. Every other number counts as 1.
            reset: (S, B), nonzero where the state is reset before a step to the cells' initial state (not to the
                argument `state`); packed if the input is. So one row may contain several sequences: episodes, articles,
                packed texts. A reset also counts at a masked step: the output there is the initial h. In reverse a
                sequence begins at its last step.
            states: whether to return the state after every step, as a third result. Default: False.
            x, hx: other names of `input` and `state`; hx is torch.nn.LSTM's.

        Returns: output, state, and with states=True the states.
            output: the h of the last layer at every step, (S, B, hidden_size); packed if the input is. If
                bidirectional, (S, B, 2 * hidden_size).
            state: for cells with h and c (h_n, c_n), each (num_layers, B, H), like torch.nn.LSTM's; for cells with only
                h h_n, like torch.nn.GRU's; for others an `RNNState`, such as state.h, state.c, state.age, each
                (num_layers, B, H). Some fields have another width than H: state.memory of an NRU has memory_size
                numbers, state.averages of an SRU has statistics numbers for each of its alphas, and state.last and
                state.since of a GRUD have one for each flag. If the layers differ in size, the state is an `RNNState`
                whose fields are tuples with one tensor (B, H) per layer.
            states: an `RNNState` whose fields are tuples with one tensor (S, B, H) per layer: `states.h[-1]` is the
                output.
            With batch_first, S and B are exchanged in input, dt, mask, reset, output and states, but not in the state.
            If bidirectional, the state and the states have two entries per layer, forward and backward.

        Raises: ValueError for a wrong shape, dtype or device, for a dt that is negative or not finite, and if the named
        engine cannot run. WrongShape, which is a ValueError and a RuntimeError, where torch's layers raise a
        RuntimeError, as for a state of a wrong size.
        """
        if (
            torch.compiler.is_dynamo_compiling()
            and self.engine != "eager"
            and (self.engine == "compiled" or any(cell.compiled for cell in self.layers))
        ):
            torch_private.graph_break(
                "torch.compile leaves kernels as they are, as torch's LSTM; or use engine='eager'"
            )
            outside = torch.compiler.disable(RNN.forward)
            return outside(self, input, state, dt, mask, reset=reset, states=states, x=x, hx=hx)
        x, state = one_of("input", input, "x", x), one_of("state", state, "hx", hx)
        layers, directions = self.layers, 1 + self.bidirectional
        self._check(layers[0], x, dt, mask, reset)
        form = forms.Form(x, self.batch_first)
        before = checked_state(layers, state, form, x)
        x, steps = form.sequences(x, dt, mask, reset)
        run = functools.partial(engines.run, self.engine, states=states)
        output, after, every = forms.run_layers(layers, directions, x, before, steps, run, self.between_layers)
        results = form.output(output), join(layers, [form.after(end) for end in after])
        return (*results, join_steps(layers, every, form.output)) if states else results

    def between_layers(self, x: Tensor) -> Tensor:
        """Return the input of a layer, from the output of the layer before it."""
        if self.between is not None:
            return self.between(x)
        return nn.functional.dropout(x, self.dropout, self.training)

    def _check(self, first: Cell, x: Any, dt: Any, mask: Tensor | None, reset: Any) -> None:
        """Raise ValueError for an argument of `forward` with a wrong type, shape, dtype or device."""
        if isinstance(x, PackedSequence):
            if mask is not None:
                raise ValueError("every step of packed sequences exists: pad them to give a mask, or leave it out")
            x, dt, reset = x.data, data_of("dt", dt, x), data_of("reset", reset, x)
        sizes = "(B, S" if self.batch_first else "(S, B"
        if not isinstance(x, Tensor):
            raise ValueError(f"x must be a tensor, not {type(x).__name__}")
        if x.dim() < 2:
            raise ValueError(f"x must be {sizes}, input), or (S, input) of one sequence; not {tuple(x.shape)}")
        if x.shape[-1] != self.input_size:
            raise WrongShape(f"x has {x.shape[-1]} features in its last dimension; this RNN reads {self.input_size}")
        if x.dim() > 3:
            raise ValueError(f"x must have 3 dimensions, {sizes}, input), not {tuple(x.shape)}")
        weight = first.weight_ih
        fits = states.brought_by_hooks(weight) or x.dtype == weight.dtype or torch.is_autocast_enabled(x.device.type)
        if not fits:
            raise ValueError(f"x is {x.dtype}, the weights are {weight.dtype}: give x.to({weight.dtype})")
        for name, value in (("dt", dt), ("mask", mask), ("reset", reset)):
            if value is None:
                continue
            if not isinstance(value, Tensor):
                raise ValueError(f"{name} must be a tensor, not {type(value).__name__}")
            if value.shape != x.shape[:-1]:
                expected = f"{name} must be {tuple(x.shape[:-1])}, like x without its features"
                raise WrongShape(f"{expected}: it is {tuple(value.shape)}")
        if dt is not None:
            check_dt(dt, mask)

    def timescales(self) -> list[Tensor]:
        """Return the characteristic time of each unit in steps, one tensor (H,) per layer: see the cell's method."""
        return [cell.timescales().detach() for cell in self.layers]

    def __prepare_scriptable__(self) -> None:
        """Refuse torch.jit.script, which calls this first. Raises TypeError."""
        raise TypeError("torch.jit.script, which torch deprecates, cannot read this layer: use torch.jit.trace")

    def extra_repr(self) -> str:
        directions = ", bidirectional=True" if self.bidirectional else ""
        return f"batch_first={self.batch_first}, dropout={self.dropout}{directions}, engine={self.engine!r}"


class CellRNN(RNN):
    """An RNN whose layers are cells of one class. It takes the arguments of torch.nn.LSTM and those of the cell.

        class PLSTM(CellRNN):
            cell_class = PLSTMCell

    is called `PLSTM(10, 128, num_layers=2, epsilon=0.01)`.

    Arguments:
        input_size: number of input features.
        hidden_size: number of units of each layer: one number, or a list with one per layer.
        num_layers: number of layers. Default: 1.
        bias: whether the cells have biases. Default: True.
        batch_first, dropout, bidirectional, engine: see `RNN`.
        proj_size: must be 0. It is here since torch.nn.LSTM has it in this place.
        device, dtype: device and dtype of the parameters. Default: torch's.
        arguments: the arguments of the cell, by name.

    Raises: ValueError for a value out of range.
    """

    cell_class: type[cells.Cell]
    Cell: Any  # the same, for loops over steps: `PLSTM.Cell(10, 128)` is called like torch.nn.LSTMCell
    cell_classes: tuple[type[cells.Cell], ...] = ()  # if an argument chooses among several
    chooses: tuple[str, ...] = ()  # arguments of the cell that the class chooses itself
    _drawn_in: torch.dtype | None = None  # the argument dtype: in another precision other numbers are drawn

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        kinds = cls.cell_classes or ((cls.cell_class,) if hasattr(cls, "cell_class") else ())
        if kinds:
            cls.Cell = kinds[0]
        constructor: Any = cls.__init__
        if "cell_class" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = constructor = signatures.copy(constructor)  # type: ignore[method-assign]  # for its signature
        if "__init__" in vars(cls):
            signatures.complete(constructor, CellRNN.__init__, *kinds, without=cls.chooses)

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        engine: str = "auto",
        **arguments: Any,
    ) -> None:
        if proj_size:
            raise ValueError(f"{type(self).__name__} has no proj_size={proj_size!r}: put an nn.Linear after it")
        each = self._cell_arguments(input_size, hidden_size, num_layers, bias, bidirectional, **arguments)
        with made_on(device, dtype):
            made = [self.cell_class(**entry) for entry in each]
        super().__init__(made, batch_first=batch_first, dropout=dropout, bidirectional=bidirectional, engine=engine)
        self._drawn_in = dtype

    def reset_parameters(self) -> None:
        """Draw all parameters again. After the same seed, the layers have the same parameters as new ones."""
        with made_on(None, self._drawn_in):
            super().reset_parameters()

    def _cell_arguments(
        self, input_size: int, hidden_size: Any, num_layers: int, bias: bool, bidirectional: bool, **arguments: Any
    ) -> list[dict[str, Any]]:
        """Return the arguments of each cell, in the order of `layers`. Raises ValueError for an unknown argument."""
        accepted = signatures.parameters(self.cell_class)
        check_arguments(self, {key: value for key, value in arguments.items() if key not in accepted})
        if "bias" in accepted:
            arguments["bias"] = bias
        elif bias is not True:
            raise ValueError(f"{type(self).__name__} has no bias={bias!r}: the biases are part of its cell's equations")
        sizes = layer_sizes(input_size, hidden_size, num_layers, bidirectional)
        return [
            {"input_size": inputs, "hidden_size": hidden, **self.of_layer(k, num_layers, **arguments)}
            for k, (inputs, hidden) in enumerate(sizes)
            for _ in range(1 + bool(bidirectional))
        ]

    def of_layer(self, layer: int, num_layers: int, **arguments: Any) -> dict[str, Any]:
        """Return the arguments of a layer's cells. A subclass may give each layer other arguments.

        layer: number of the layer, from 0 on.
        """
        return arguments

    def refuse_chosen(self, arguments: Mapping[str, object]) -> None:
        """Raise ValueError for arguments that the class chooses itself."""
        check_arguments(self, {key: value for key, value in arguments.items() if key in self.chooses})


def checked_state(layers: Sequence[Cell], state: Any, form: forms.Form, x: Any) -> list[Any]:
    """Return one state per layer, or None for each. Raises ValueError if the state does not fit the layers and x."""
    if state is None:
        return [None] * len(layers)
    if isinstance(state, Tensor) and isinstance(x, Tensor) and state.shape == x.shape[:-1] and state.dim() > 1:
        fix = "did you mean rnn(x, dt=dt), or mask=mask?"
        raise WrongShape(f"the second argument is the state, {states.form(layers)}, not {tuple(state.shape)}: {fix}")
    each = states.split(layers, state)
    states.check(layers, each, form.batch(x))
    return [form.before(entry) for entry in each]


def data_of(name: str, value: Any, x: PackedSequence) -> Any:
    """Return the numbers of an argument of packed sequences, or None if it is None.

    The order of the sequences is not compared on a GPU, since the comparison would wait for the GPU.

    Raises: ValueError unless the argument is packed like x.
    """
    if value is None:
        return None
    if not isinstance(value, PackedSequence):
        raise ValueError(f"the {name} of packed sequences is packed, too: pack_padded_sequence({name}, ...)")
    order, own = x.sorted_indices, value.sorted_indices
    differs = order is not own and (order is None or own is None or (order.is_cpu and not torch.equal(order, own)))
    if differs or not torch.equal(x.batch_sizes, value.batch_sizes):
        raise ValueError(f"{name} is packed from other lengths than x: pack_padded_sequence({name}, lengths) as x")
    return value.data


def check_dt(dt: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError if dt is negative, infinite or NaN at a step that exists.

    dt is not checked on a GPU, since the check would wait for the GPU, nor where a tensor has no numbers to read: under
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


def one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    """Return the value of an argument with two names. Raises ValueError if both are given, and under symbolic_trace."""
    if isinstance(value, torch.fx.Proxy):
        fix = "give its Tracer an is_leaf_module that is True for timescales.RNN, or use torch.export.export"
        raise ValueError(f"torch.fx.symbolic_trace does not trace a loop over time: {fix}")
    if value is not None and other is not None:
        raise ValueError(f"{name} and {other_name} are two names of one argument: give one of them")
    return other if value is None else value


def check_arguments(rnn: nn.Module, unknown: Mapping[str, object]) -> None:
    """Raise ValueError for keyword arguments that a module does not have. The message says what to do instead."""
    name = type(rnn).__name__
    for key, value in unknown.items():
        parent = type(rnn).__mro__[1]
        if key in inspect.signature(parent).parameters:
            raise ValueError(f"{name} chooses {key} itself: give {key}={value!r} to {parent.__name__}")
        known = [p.name for p in inspect.signature(type(rnn)).parameters.values() if p.kind not in signatures.VARIABLE]
        raise ValueError(f"{name} has no argument {key}{nearest(key, known)}")


def layer_sizes(
    input_size: int, hidden_size: int | Sequence[int], num_layers: int, bidirectional: bool = False
) -> list[tuple[int, int]]:
    """Return (input size, hidden size) of each layer's cells. `hidden_size`: one number, or one per layer."""
    check_whole(num_layers=num_layers)
    is_list = isinstance(hidden_size, Sequence) and not isinstance(hidden_size, str)
    hidden = per_layer("hidden_size", hidden_size, num_layers, is_list)
    outputs = [2 * size if bidirectional else size for size in hidden]
    return list(zip([input_size, *outputs[:-1]], hidden, strict=True))


def one_cell_per_layer(
    cell: type[Cell], input_size: int, hidden_size: int | Sequence[int], num_layers: int, **arguments: Any
) -> list[Cell]:
    """Make cells for an `RNN`, one per layer.

    Arguments:
        cell: class of the cells.
        input_size: input size of the first layer.
        hidden_size: one number for all layers, or a list with one per layer.
        num_layers: number of layers.
        arguments: further keyword arguments of each cell.
    """
    return [cell(inputs, hidden, **arguments) for inputs, hidden in layer_sizes(input_size, hidden_size, num_layers)]


def per_layer(name: str, value: Any, num_layers: int, is_list: bool) -> list[Any]:
    """Return an argument's value for each layer: `value` for all layers, or, if is_list, its entries."""
    if not is_list:
        return [value] * num_layers
    if len(value) != num_layers:
        raise ValueError(f"{name} lists {len(value)} layers, num_layers is {num_layers}")
    return list(value)
