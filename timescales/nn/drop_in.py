"""The common part of `LSTM` and `GRU`: subclasses of torch's classes that run this package's engines if possible.

Their parameters are stored in the module under torch's names (weight_ih_l0, weight_hh_l0_reverse), where torch's tools
expect them. Their cells read them there: `layers[0].weight_ih` is `weight_ih_l0`.
"""

import copy
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from timescales import torch_private
from timescales.nn.cells.cell import Cell
from timescales.nn.engine import checked, compiled_or_warn
from timescales.nn.engine.kernel import is_plain, is_subclass, tracing_reason
from timescales.nn.factory import made_on
from timescales.nn.forms import Form
from timescales.nn.rnn import TORCH_WEIGHTS, CellRNN, one_of


class ModuleTensors(MutableMapping[str, Tensor | None]):
    """The parameters or the buffers of a cell, which are stored in its module.

    kind: "_parameters" or "_buffers".
    names: the name in the module, by the name in the cell. A name that is currently no parameter, as under weight_norm
        or pruning, is read as an attribute of the module.
    """

    def __init__(self, module: nn.Module, kind: str, names: dict[str, str]) -> None:
        self.module, self.kind, self.names = module, kind, names

    @property
    def tensors(self) -> dict[str, Any]:
        """Return the module's dictionary of parameters or buffers."""
        return self.module.__dict__[self.kind]

    def __getitem__(self, name: str) -> Tensor | None:
        module_name, tensors = self.names[name], self.tensors
        return tensors[module_name] if module_name in tensors else getattr(self.module, module_name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __setitem__(self, name: str, value: Tensor | None) -> None:
        if name not in self.names:
            raise ValueError(f"the weights of this cell are its module's: {name} cannot be added to the cell")
        self.tensors[self.names[name]] = value

    def __delitem__(self, name: str) -> None:
        raise ValueError(f"the weights of this cell are its module's: do this to the module's {self.names[name]}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, module_name in self.names.items() if module_name in self.tensors)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class DropIn(CellRNN):
    """Base class of `LSTM` and `GRU`, placed before torch's class.

    `forward` runs this package's engine where it can, and otherwise torch's own kernel: for one step, dtypes other than
    float32, torch.autocast, tracers and compilers, and projections. `torch.compile` does not compile the layer, just as
    it does not compile torch's.
    """

    torch_class: ClassVar[Any]  # torch.nn.LSTM or GRU
    plain_cell: ClassVar[type[Cell]]  # the cell with its equations
    _cells: list[Cell]
    _one_size: bool  # whether all layers have the same number of units
    _flat_weights_names: list[str]

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
        # torch's constructor checks the arguments and sets the attributes. On the meta device it draws no numbers: the
        # cells draw them, in torch's order. Layers with projections run only in torch.
        units: Any = hidden_size[-1] if isinstance(hidden_size, list | tuple) and hidden_size else hidden_size
        sizes = (input_size, units, num_layers, bias, batch_first, dropout, bidirectional)
        if proj_size:
            if given := [key for key, value in arguments.items() if value]:
                reason = (
                    f"{type(self).__name__} has no proj_size={proj_size!r} with {given[0]}, which torch's kernel lacks"
                )
                raise ValueError(f"{reason}: put an nn.Linear after it")
            self.torch_class.__init__(self, *sizes, proj_size=proj_size, device=device, dtype=dtype)
        else:
            self.__dict__["reset_parameters"] = lambda: None  # that of a subclass would run too early
            self.torch_class.__init__(self, *sizes, device="meta", dtype=dtype)
            del self.__dict__["reset_parameters"]
        self.between, self.engine, self._cells = None, checked(engine), []
        if not proj_size:
            each = self._cell_arguments(input_size, hidden_size, num_layers, bias, bidirectional, **arguments)
            with made_on(device, dtype):
                self._adopt([self.cell_class(**entry) for entry in each])
            if type(self).reset_parameters is not DropIn.reset_parameters:
                self.reset_parameters()

    def _adopt(self, cells: list[Cell]) -> None:
        """Store the parameters and buffers of the cells in this module, under torch's names."""
        self._parameters.clear()
        for k, cell in enumerate(cells):
            end = f"_l{k // 2}{'_reverse' * (k % 2)}" if self.bidirectional else f"_l{k}"
            for kind in ("_parameters", "_buffers"):
                own, tensors = getattr(cell, kind), getattr(self, kind)
                tensors |= {name + end: value for name, value in own.items()}
                cell.__dict__[kind] = ModuleTensors(self, kind, {name: name + end for name in own})
        self._cells, self._one_size = cells, len({cell.hidden_size for cell in cells}) == 1
        self._init_flat_weights()

    @property
    def layers(self) -> Sequence[Cell]:  # type: ignore[override]
        """Return the cells: one per layer; if bidirectional two, forward and backward."""
        if self.proj_size:
            raise ValueError("a layer with proj_size has no cells: it runs only in torch; leave out proj_size")
        return self._cells

    def _replicate_for_data_parallel(self) -> Self:
        """Copy the module as torch does, with cells that read the weights of the copy."""
        replica: Self = super()._replicate_for_data_parallel()
        replica._cells = [copy.copy(cell) for cell in self._cells]
        for cell in replica._cells:
            for kind in ("_parameters", "_buffers"):
                cell.__dict__[kind] = ModuleTensors(replica, kind, cell.__dict__[kind].names)
        return replica

    def __getattr__(self, name: str) -> Any:
        return nn.Module.__getattr__(self, name)

    def forward(  # type: ignore[override]  # the second argument is hx, as torch's
        self,
        input: Any = None,
        hx: Any = None,
        dt: Any = None,
        mask: Tensor | None = None,
        *,
        reset: Any = None,
        states: bool = False,
        x: Any = None,
        state: Any = None,
    ) -> tuple[Any, ...]:
        """Run the layers as `RNN.forward` does. Every call of torch's layer works too, and returns the same."""
        x, state = one_of("input", input, "x", x), one_of("hx", hx, "state", state)
        extras = states or dt is not None or mask is not None or reset is not None
        if self.proj_size and extras:
            raise ValueError("a layer with proj_size runs only in torch: give it the input and the state, nothing else")
        if not extras and self._runs_in_torch(x, state):
            return self.torch_class.forward(self, x, state)
        return super().forward(x, state, dt, mask, reset=reset, states=states)

    def _runs_in_torch(self, x: Any, hx: Any) -> bool:
        """Return whether torch's kernel runs a call: torch's layer supports it, and this package's engine does not."""
        if self.proj_size:
            return True
        if self.engine != "auto" or not self._one_size or (self.between is not None and self.num_layers > 1):
            return False
        for cell in self._cells:
            if type(cell) is not self.plain_cell or cell.changes_biases or "step" in vars(cell):
                return False
            if cell._forward_hooks or cell._forward_pre_hooks or (cell.weight_drop and cell.training):
                return False
        data = x.data if isinstance(x, PackedSequence) else x
        parts = hx if isinstance(hx, list | tuple) and len(hx) == 2 else (hx,)
        is_torch_state = hx is None or all(isinstance(part, Tensor) for part in parts)  # nothing, (h, c), or h
        if not isinstance(data, Tensor) or not is_torch_state or 0 in data.shape[:1]:
            return False
        weight = getattr(self, self._flat_weights_names[0])
        if is_subclass(data) or torch_private.is_transformed() or is_subclass(weight):
            return torch_private.is_recorded() and not torch_private.is_transformed()
        return not can_run(self, self._cells[0], x, hx)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, also of the cells."""
        for cell in self.__dict__.get("_cells", ()):
            cell.train(mode)
        return super().train(mode)

    def reset_parameters(self) -> None:
        """Draw all parameters again. After the same seed, the layers have the same parameters as new ones."""
        if self.proj_size:
            self.torch_class.reset_parameters(self)
        else:
            with made_on(None, getattr(self, self._flat_weights_names[0]).dtype):  # torch draws in this precision
                super().reset_parameters()

    def flatten_parameters(self) -> None:
        """Put the weights side by side in the memory of a GPU for cuDNN, as torch's layer does."""
        self.torch_class.flatten_parameters(self)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """Load a state_dict, also one of earlier versions, whose keys are like `layers.0.weight_ih`."""
        for k, cell in enumerate(self._cells):
            held: Any
            for held in (cell._parameters, cell._buffers):
                for name, module_name in held.names.items():
                    if f"{prefix}layers.{k}.{name}" in state_dict:
                        state_dict[prefix + module_name] = state_dict.pop(f"{prefix}layers.{k}.{name}")
        super()._load_from_state_dict(state_dict, prefix, *more)

    def extra_repr(self) -> str:
        engine = "" if self.engine == "auto" else f", engine={self.engine!r}"
        return f"{self.torch_class.extra_repr(self)}{engine}"

    @classmethod
    def from_torch(cls, module: nn.Module) -> Self:
        """Make a layer of this class with the weights of torch's layer. Both give the same outputs.

        `accelerate` instead makes torch's layer itself run on this package's engine.

        Raises: ValueError for a layer of another class, and for a weight that is computed, as under weight_norm.
        """
        name = f"torch.nn.{cls.torch_class.__name__}"
        if not isinstance(module, cls.torch_class):
            raise ValueError(f"timescales.{cls.__name__} takes a {name}, not {type(module).__name__}")
        weights = {key: value for key, value in module._parameters.items() if value is not None}
        if missing := [key for key in module._flat_weights_names if key not in weights]:
            raise ValueError(f"{missing[0]} of this {name} is computed, not a parameter: use timescales.accelerate")
        keys = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
        first = next(iter(weights.values()))
        sizes = {key: getattr(module, key) for key in (*keys, "proj_size")}
        rnn = cls(**sizes, device=first.device, dtype=first.dtype)
        rnn.load_state_dict(weights)
        for key, value in weights.items():
            rnn.get_parameter(key).requires_grad_(value.requires_grad)
        return rnn.train(module.training)

    def to_torch(self) -> Any:
        """Return torch's layer with the same outputs.

        Raises: ValueError if torch's layer cannot compute the same outputs.
        """
        name = f"torch.nn.{self.torch_class.__name__}"
        if len({cell.hidden_size for cell in self.layers}) != 1:
            raise ValueError(f"only layers of equal hidden_size convert to {name}")
        if not all(type(cell).step is self.plain_cell.step for cell in self.layers):
            raise ValueError(f"only cells with the equations of {name} convert to it")
        first = getattr(self, self._flat_weights_names[0])
        sizes = (self.input_size, self.hidden_size, self.num_layers)
        weights = [cell.weights() for cell in self.layers]
        module = self.torch_class(
            *sizes,
            bias=weights[0].bias_ih is not None,
            batch_first=self.batch_first,
            dropout=self.dropout,
            bidirectional=self.bidirectional,
        ).to(first.device, first.dtype)
        with torch.no_grad():
            for cell, values, names in zip(self.layers, weights, module._all_weights, strict=True):
                for name, own, value in zip(names, TORCH_WEIGHTS, values, strict=False):
                    trained = getattr(cell, own).requires_grad if own in cell._parameters else True
                    value = first.new_zeros(()) if value is None else value
                    module.get_parameter(name).copy_(value).requires_grad_(trained)
        return module.train(self.training)


torch_private.leave_to_python(DropIn.forward)


class MinimumSizes(NamedTuple):
    """The smallest sizes of a call that this package's engine runs."""

    steps: int = 2
    sequences: int = 1
    units: int = 1


ANY_SIZE = MinimumSizes()


def can_run(rnn: Any, cell: Cell, x: Any, hx: Any, minimum: MinimumSizes = ANY_SIZE) -> bool:
    """Return whether this package's engine can run a call of a layer of torch's class, instead of torch's kernel.

    A call that torch refuses is left to torch, which gives the reason.

    Arguments:
        cell: a cell with the layer's equations.
    """
    packed = isinstance(x, PackedSequence)
    data = x.data if packed else x
    if not isinstance(data, Tensor) or not 2 <= data.dim() <= 3 - packed or data.shape[-1] != rnn.input_size:
        return False
    steps = len(x.batch_sizes) if packed else data.shape[1 if rnn.batch_first and data.dim() == 3 else 0]
    if steps < minimum.steps or rnn.hidden_size < minimum.units or 0 in data.shape or rnn.proj_size:
        return False
    if torch.compiler.is_compiling() or tracing_reason() or not data.is_cpu:
        return False
    if torch.is_autocast_enabled(data.device.type):
        return False
    batch = Form(x, rnn.batch_first).batch(x)
    if (*batch, 1)[0] < minimum.sequences:
        return False
    state = () if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
    shape = (rnn.num_layers * (1 + rnn.bidirectional), *batch, rnn.hidden_size)
    if hx is not None and (len(state) != len(cell.State._fields) or any(v.shape != shape for v in state)):
        return False
    weights = [getattr(rnn, name) for name in rnn._flat_weights_names]
    for tensor in (data, *weights, *state):
        if tensor.dtype is not torch.float32 or not tensor.is_cpu or not is_plain(tensor):
            return False
    return compiled_or_warn(cell) is not None
