"""The base class of all cells: the parameters of one layer and the equations of one time step.

Cells contain no loop over time: the engines (`timescales.nn.engine`) run a cell over a sequence.

To write a cell, subclass `Cell`, list the gates in `gates` and the fields of the state in `State`, and implement
`step`; for analyses also `act`, and for training from the command line `timescales`.

Letters for shapes in this package: S steps, B batch, I input size, H hidden size, G gates. `...` stands
for any leading dimensions.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales import torch_private
from timescales.nn import signatures
from timescales.nn.inits import INFINITE, ForgetInit, check_bool, check_whole, forget_initializer, timescale_of_bias


class Weights(NamedTuple):
    """The weights that an engine uses: ih (G*H, I), hh (G*H, H), bias_ih (G*H,), bias_hh (G*H,) or None.

    hh is None for a cell without recurrent weights. bias_ih is None for a cell without biases.
    """

    ih: Tensor
    hh: Tensor | None
    bias_ih: Tensor | None
    bias_hh: Tensor | None = None

    def bias(self) -> Tensor:
        """Return both biases together, (G*H,): the pre-activations at zero input and zero state."""
        if self.bias_ih is None:
            return self.ih.new_zeros(len(self.ih))
        return self.bias_ih if self.bias_hh is None else self.bias_ih + self.bias_hh


Run = Callable[..., tuple[Any, ...]]  # an engine, as `eager.run`


class Cell(nn.Module):
    """Base class of the cells: parameters of one layer and the equations of one step, elementwise over (..., H).

    Class attributes:
        gates: names of the gates, in the order of their blocks of rows in the weights.
        State: NamedTuple of the tensors that are carried from step to step. The first field, `h`, is the output.
        biases: 2 for the bias vectors `bias_ih` and `bias_hh` as in torch, 1 for a single vector `bias`. A cell that is
            built with bias=False has 0.
        recurrent: whether the gates read the output of the step before. Default: True. If False, the cell is a scan
            cell: its gates read only the input, `weight_hh` is None, and `step` gets None as gh.
        weight_drop: fraction of the recurrent weights that `forward` drops in training. A new mask is drawn for each
            sequence (DropConnect, Merity et al. 2018). Default: 0. It may be set on an instance.
        compiled: whether the fused engine may make a kernel from `step`. Default: True. Set it to False for a step that
            the fused engine cannot compile, so that the engine "auto" runs it on the eager engine without a warning.
            Then the weights may have other rows, and the fields of the state, except h, other sizes (`width`). On a GPU
            torch.compile compiles such a step too.

    Arguments: input_size, hidden_size; bias: whether there are bias vectors. Default: True.
    Parameters: weight_ih (G*H, I), weight_hh (G*H, H) or None, and the bias vectors (G*H,). If a cell overrides
    `height`, G*H is the sum of the heights of its gates. All parameters are drawn from U(-1/sqrt(H), 1/sqrt(H)) in
    torch's order, so an LSTM built after the same seed has the weights of torch.nn.LSTM.
    """

    gates: ClassVar[tuple[str, ...]]
    State: ClassVar[Any]
    biases: ClassVar[int] = 1
    recurrent: ClassVar[bool] = True
    weight_drop: float = 0.0
    compiled: ClassVar[bool] = True
    shown: tuple[str, ...] = ()  # names of attributes that `repr` shows after the sizes
    _torch_layer: ClassVar[str]  # "LSTM" or "GRU" in a class that has the equations of torch's layer
    changes_biases: bool = False  # whether `weights` gives other biases than the parameters
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        cell = super().__new__(cls)
        cell.__dict__["_arguments"] = (arguments, named)  # for reset_parameters, whatever arguments a subclass has
        return cell

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" not in vars(cls):  # else Python shows the signature of __new__
            cls.__init__ = signatures.copy(cls.__init__)  # type: ignore[method-assign]
        signatures.complete(cls.__init__, cls.__mro__[1])
        state = vars(cls).get("State")
        if state is not None and getattr(state, "_fields", ("",))[0] != "h":
            raise TypeError(f"{cls.__name__}.State must be a NamedTuple whose first field is h, the output of a step")
        if "step" in vars(cls):
            signature = inspect.signature(cls.step)
            try:
                signature.bind(None, None, None, None, 1.0)
            except TypeError:
                fix = "it needs (self, gx, gh, state, dt=1.0)"
                raise TypeError(f"{cls.__name__}.step takes {signature}; {fix}") from None
        if state is not None:  # torch.export.save writes this name
            torch_private.register_named_tuple(state, f"{state.__module__}.{state.__qualname__}")

    def __init__(self, input_size: int, hidden_size: int, *, bias: bool = True) -> None:
        super().__init__()
        check_bool(bias=bias)
        check_whole(input_size=input_size, hidden_size=hidden_size)
        for name in ("gates", "State"):
            if not hasattr(self, name):
                raise TypeError(f"{type(self).__name__} needs the class attribute {name}; see docs/gates.md")
        if self.biases == 2 and not self.recurrent:
            raise TypeError(f"{type(self).__name__} has recurrent = False: it has one bias vector, write biases = 1")
        self.input_size, self.hidden_size = input_size, hidden_size
        if not bias:
            self.biases = 0  # type: ignore[misc]  # of this cell
        self.make_parameters()

    def make_parameters(self) -> None:
        """Create and draw the parameters. The constructor of `Cell` calls this last."""
        rows = sum(map(self.height, self.gates))
        self.weight_ih = nn.Parameter(torch.empty(rows, self.input_size))
        weight_hh = nn.Parameter(torch.empty(rows, self.hidden_size)) if self.recurrent else None
        self.register_parameter("weight_hh", weight_hh)
        for name in self.bias_names():
            self.register_parameter(name, nn.Parameter(torch.empty(rows)))
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters again. After the same seed, the cell has the same parameters as a new one.

        Frozen values are set again too, so a cell that was built on the meta device can be given memory and then reset.
        Weights that FSDP2 distributes over several processes get the numbers of the first process.

        Raises: ValueError if a parameter is parametrized, pruned or flattened by FSDP1.
        """
        arguments, named = self._arguments
        new = type(self)(*arguments, **named)
        own = dict([*self.named_parameters(), *self.named_buffers()])
        for name, value in [*new.named_parameters(), *new.named_buffers()]:
            if name not in own:
                reason = f"{name} is parametrized, pruned or flattened by FSDP1"
                raise ValueError(f"{reason}: call reset_parameters() before that, or make it permanent")
            held: Any = own[name]
            if hasattr(held, "device_mesh"):  # a DTensor: all processes come here
                from torch.distributed.tensor import distribute_tensor  # slow to import, but loaded already

                value = distribute_tensor(value, held.device_mesh, held.placements)
            held.copy_(value)

    def bias_names(self) -> tuple[str, ...]:
        """Return the names of the bias parameters."""
        return ((), ("bias",), ("bias_ih", "bias_hh"))[self.biases]

    def height(self, gate: str) -> int:
        """Return the number of rows that a gate has in the weights. Default: H."""
        return self.hidden_size

    def width(self, field: str) -> int:
        """Return how many numbers a field of the state has. Default: H."""
        return self.hidden_size

    def rows(self, gate: str) -> slice:
        """Return the rows of a gate in the weights."""
        k = self.gates.index(gate)
        first = sum(map(self.height, self.gates[:k]))
        return slice(first, first + self.height(gate))

    def by_gate(self, pre: Tensor) -> dict[str, Tensor]:
        """Split pre-activations (..., G*H) into one tensor (..., H) for each gate, by name."""
        return dict(zip(self.gates, pre.split([self.height(gate) for gate in self.gates], -1), strict=True))

    @torch.no_grad()
    def set_bias(self, gate: str, value: Tensor) -> None:
        """Set the bias of a gate to `value` (H,). With two bias vectors, bias_hh gets `value` and bias_ih zeros.

        An infinite value is stored as `INFINITE`, since a moving average of infinities is NaN.

        Raises: ValueError for a cell without biases.
        """
        if not self.biases:
            raise ValueError(f"bias=False leaves no bias of the {gate} gate to initialize: leave out its initializer")
        holder = self.bias_hh if self.biases == 2 else self.bias
        holder[self.rows(gate)] = value.clamp(-INFINITE, INFINITE).to(holder.dtype)
        if self.biases == 2:
            self.bias_ih[self.rows(gate)] = 0.0

    def _set_forget_bias(self, init: ForgetInit, T_max: float | None = None, opposite: str | None = None) -> None:
        """Set the forget gate's bias to an initializer's b, and that of `opposite` to -b if the initializer is tied.

        init, T_max: as for `forget_initializer`. For torch's default the biases are not changed.
        """
        initializer = forget_initializer(init, T_max)
        if initializer is not None:
            b = initializer.bias(self.hidden_size)
            self.set_bias("forget", b)
            if initializer.tied and opposite is not None:
                self.set_bias(opposite, -b)

    def add_to_gates(self, bias: Tensor | None, values: Mapping[str, Tensor]) -> Tensor:
        """Add `values`, one tensor (H,) by gate, to the rows of these gates in a bias (G*H,); bias=None means zeros."""
        like = next(iter(values.values()))
        blocks = [values[gate] if gate in values else like.new_zeros(self.height(gate)) for gate in self.gates]
        added = torch.cat(blocks)
        return added if bias is None else bias + added

    def initial_state(self, *batch: int) -> Any:
        """Return the state before the first step: zeros (*batch, `width`) in every field.

        The dtype and the device are those of the weights. A subclass may return another state, of any shape that
        broadcasts to (*batch, H): a learned vector (H,), a number.
        """
        like, fields = self.weight_ih, self.State._fields
        return self.State(*(like.new_zeros(*batch, self.width(field)) for field in fields))

    def weights(self) -> Weights:
        """Return the weights of the equations, without weight drop. Gradients flow from them to the parameters."""
        if self.biases == 2:
            return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return Weights(self.weight_ih, self.weight_hh, self.bias if self.biases else None)

    def forward(
        self, x: Tensor, state: Any = None, dt: Any = None, mask: Tensor | None = None, run: Run | None = None
    ) -> Any:
        """Run one step, as torch.nn.LSTMCell does. An RNN passes a sequence and `run`. Hooks see this call.

        Arguments:
            x: input, (B, I), or (I,) for one sequence; with `run` (S, B, I).
            state: the state that an earlier step returned. Default: the initial state.
            dt: time since the previous step, a number or (B,); with `run` (S, B). Default: 1.
            mask: only with `run`, see `eager.run`.
            run: an engine, which runs the cell over a sequence.

        Returns: the new state, a `State` of h and further fields, each (B, H). It may be unpacked:
        `h, c = cell(x, (h, c))`. For a cell with only h, the tensor h. With `run`, the results of `run`.
        """
        # No parameter may be read before: hooks may bring or change them (FSDP, accelerate's cpu_offload, pruning).
        if run is None:
            return self._one_step(x, state, 1.0 if dt is None else dt)
        if state is None:
            state = self.initial_state(*x.shape[1:-1])
        weights = self._weights_of_call()
        return run(self, x, weights, state, None if dt is None else dt.to(weights.ih.dtype), mask)

    def _weights_of_call(self) -> Weights:
        """Return `weights` after weight drop. `weights` itself must neither draw random numbers nor drop anything."""
        weights = self.weights()
        if not self.weight_drop:
            return weights
        if weights.hh is None or not weights.hh.numel():
            raise ValueError(f"{type(self).__name__} has no recurrent weights to drop: set its weight_drop to 0")
        return weights._replace(hh=F.dropout(weights.hh, self.weight_drop, self.training))

    def _one_step(self, x: Tensor, state: Any, dt: Tensor | float) -> Any:
        """Run `forward` for one step."""
        if state is None:
            state = self.initial_state(*x.shape[:-1])
        state = self.State(*((state,) if isinstance(state, Tensor) else state))
        weights = self._weights_of_call()
        gx = F.linear(x, weights.ih, weights.bias_ih)
        gh = None if weights.hh is None else F.linear(state.h, weights.hh, weights.bias_hh)
        new = self.step(gx, gh, state, dt.to(gx.dtype).unsqueeze(-1) if isinstance(dt, Tensor) else dt)
        return new if len(new) > 1 else new.h

    def bias_total(self, gate: str) -> Tensor:
        """Return the pre-activation of a gate at zero input and zero state, (H,)."""
        return self.weights().bias()[self.rows(gate)]

    def act(self, gx: Tensor, gh: Any, state: Any, dt: Tensor | float = 1.0) -> Any:
        """Return the gate activations of one step.

        Arguments:
            gx: W_ih x + bias_ih, the input's share of the pre-activations, (..., G*H).
            gh: W_hh h + bias_hh, the recurrent share, (..., G*H); None if `recurrent` is False.
            state: the state before the step; fields (..., H).
            dt: time since the previous step, a number or (..., 1).

        Returns: a NamedTuple of tensors (..., H), named after the gates.
        """
        raise NotImplementedError(f"{type(self).__name__} has no act(gx, gh, state, dt), which this needs")

    def step(self, gx: Tensor, gh: Any, state: Any, dt: Tensor | float = 1.0) -> Any:
        """Return the state after one step. Arguments as in `act`."""
        raise NotImplementedError(f"{type(self).__name__} needs step(gx, gh, state, dt): its equations")

    def timescales(self) -> Tensor:
        """Return the characteristic time of each unit in steps, (H,): -1 / ln f at zero input and zero state."""
        fix = "return torch.full((self.hidden_size,), torch.nan) where it has none"
        raise NotImplementedError(f"{type(self).__name__} needs timescales(), (H,) in steps; {fix}")

    def extra_repr(self) -> str:
        shown = [f"{name}={getattr(self, name)}" for name in self.shown]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *shown])


def sigmoid_timescales(cell: Cell) -> Tensor:
    """Return the characteristic time of each unit in steps, (H,): -1 / ln f at zero input and state, and dt = 1.

    It is the method `timescales` of cells whose forget gate is f = sigmoid(pre-activation).
    """
    return timescale_of_bias(cell.bias_total("forget"))
