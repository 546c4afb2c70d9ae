"""The state of stacked layers: convert between the form that a caller sees and one cell state per layer.

A caller sees torch's form where torch has one. n is the number of layers:

    fields of a cell's state     layers of one size                         layers of several sizes or kinds
    h                            h_n (n, B, H), as torch.nn.GRU             RNNState, each field a tuple of n tensors
    h, c                         (h_n, c_n), each (n, B, H), as nn.LSTM     "
    others, such as h, c, age    RNNState, each field (n, B, H)             "

`Cell.width` is the last size of a field: H, except for `memory` of an NRU, `averages` of an SRU, and `last` and `since`
of a GRUD. `join` makes the caller's form, and `split` takes it apart.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Never

import torch
from torch import Tensor

from timescales import torch_private
from timescales.errors import WrongShape
from timescales.nn.cells.cell import Cell
from timescales.nn.engine.kernel import is_subclass


class RNNState:
    """A state with named fields, such as `state.h`, `state.c` and `state.age`.

    Each field is stacked over the layers, (n, B, H), so `state.h[-1]` is that of the last layer. The memory of an NRU,
    the averages of an SRU, and last and since of a GRUD have other widths than H. If the layers differ in size or in
    kind, a field is a tuple with one tensor per layer, or None for a layer without this field.

    It can be neither unpacked nor indexed, since its fields are not torch's `(h_n, c_n)`.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the fields are those of the cells

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)

    def map(self, function: Callable[[Tensor], Tensor]) -> RNNState:
        """Return the state with `function` applied to each tensor."""
        return torch_private.tree_map_only(Tensor, function, self)

    def detach(self) -> RNNState:
        """Return the state detached from the graph, for truncated backpropagation."""
        return self.map(torch.Tensor.detach)

    def to(self, *arguments: Any, **named: Any) -> RNNState:
        """Return the state on another device or in another dtype; arguments as in `torch.Tensor.to`."""
        return self.map(lambda value: value.to(*arguments, **named))

    def __iter__(self) -> Never:
        raise TypeError(f"this state is not unpacked: read {self._names()} by name")

    def __getitem__(self, index: Any) -> Never:
        raise TypeError(f"this state is not indexed: read {self._names()} by name; state.h[-1] is the last layer's h")

    def _names(self) -> str:
        return ", ".join(f"state.{name}" for name in vars(self))

    def __repr__(self) -> str:
        return f"RNNState({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


torch_private.register_pytree_node(
    RNNState,
    lambda state: (list(vars(state).values()), list(vars(state))),
    lambda values, names: RNNState(**dict(zip(names, values, strict=True))),
    flatten_with_keys_fn=lambda state: (
        [(torch_private.GetAttrKey(name), value) for name, value in vars(state).items()],
        list(vars(state)),
    ),
    serialized_type_name="timescales.RNNState",  # torch.export.save writes it
)
torch.serialization.add_safe_globals([RNNState])  # torch.load with weights_only=True, its default


def join(cells: Sequence[Cell], states: Sequence[Any]) -> Any:
    """Return the caller's form of the state, from one state per layer. Inverse of `split`.

    Under torch.jit.trace, a named tuple takes the place of an RNNState.
    """
    names = _names(cells)
    uniform = _uniform(cells)
    collect: Callable[[list[Any]], Any] = torch.stack if uniform else tuple
    fields = {name: collect([getattr(state, name, None) for state in states]) for name in names}
    if uniform and names == ("h",):
        return fields["h"]
    if uniform and names == ("h", "c"):
        return fields["h"], fields["c"]
    if torch.jit.is_tracing():  # a traced module returns tensors and tuples only
        return collections.namedtuple("RNNState", names)(**fields)  # the fields are the cells'
    return RNNState(**fields)


def join_steps(cells: Sequence[Cell], states: Sequence[Any], output: Callable[[Tensor], Any]) -> RNNState:
    """Return the states of all steps, each field a tuple with one tensor per layer.

    Arguments:
        states: one per layer, fields (S, B, H).
        output: brings a tensor (S, B, H) into the caller's form.
    """

    def of_layer(state: Any, name: str) -> Any:
        value = getattr(state, name, None)
        return None if value is None else output(value)

    return RNNState(**{name: tuple(of_layer(state, name) for state in states) for name in _names(cells)})


def split(cells: Sequence[Cell], state: Any) -> list[Any]:
    """Return one state per layer, a `State` of its cell, from the caller's form.

    A list with one state per layer is accepted too; the state of a layer may then be a plain tuple or list. Shapes are
    not checked; see `check`.

    Raises: ValueError for any other form.
    """
    if isinstance(state, list | tuple) and state and all(isinstance(entry, list | tuple) for entry in state):
        if len(state) != len(cells):
            raise ValueError(f"state must be {form(cells)}; as a list it has one entry per layer: {len(cells)}")
        for k, (cell, entry) in enumerate(zip(cells, state, strict=True)):
            own = cell.State._fields
            if len(entry) != len(own) or getattr(entry, "_fields", own) != own:
                raise ValueError(f"state must be {form(cells)}; in a list, that of layer {k} has {', '.join(own)}")
        return [cell.State(*entry) for cell, entry in zip(cells, state, strict=True)]
    names = _names(cells)
    if isinstance(state, RNNState):
        fields = vars(state)
    elif hasattr(state, "_asdict") and all(isinstance(entry, Tensor) for entry in state):  # made by torch.jit.trace
        fields = state._asdict()
    elif isinstance(state, Tensor):
        fields = {"h": state}
    elif isinstance(state, list | tuple) and len(state) == 2 and all(isinstance(entry, Tensor) for entry in state):
        fields = dict(zip(("h", "c"), state, strict=True))
    else:
        raise ValueError(f"state must be {form(cells)}, not {type(state).__name__}")
    if set(fields) != set(names):
        raise ValueError(f"state must be {form(cells)}: this one has {', '.join(fields)}")
    layers = {}
    for name, value in fields.items():
        if not isinstance(value, Tensor | list | tuple) or len(value) != len(cells):
            size = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise WrongShape(f"state must be {form(cells)}: {name} is {size}, and there are {len(cells)} layers")
        layers[name] = value.unbind(0) if isinstance(value, Tensor) else value
    return [cell.State(*(layers[name][k] for name in cell.State._fields)) for k, cell in enumerate(cells)]


def check(cells: Sequence[Cell], states: Sequence[Any], batch: Sequence[int]) -> None:
    """Raise WrongShape for a state, one per layer, with a wrong shape, dtype or device."""
    for k, (cell, state) in enumerate(zip(cells, states, strict=True)):
        weight = cell.weight_ih
        for name, value in zip(state._fields, state, strict=True):
            shape = (*batch, cell.width(name))
            if not isinstance(value, Tensor) or value.shape != shape:
                found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise WrongShape(f"state must be {form(cells, batch)}: {name} of layer {k} is {found}, not {shape}")
            if not brought_by_hooks(weight) and (value.dtype, value.device) != (weight.dtype, weight.device):
                fix = f"give each of its tensors .to({str(weight.device)!r}, {weight.dtype})"
                found = f"{value.dtype} on {value.device}"
                raise WrongShape(f"state of layer {k}: {name} is {found}, unlike the weights: {fix}")


def brought_by_hooks(weight: Tensor) -> bool:
    """Return whether the cell's hooks replace this weight during its call, perhaps by one of another dtype and device.

    For example, FSDP2 holds a DTensor, and accelerate's cpu_offload a meta tensor.
    """
    return weight.is_meta or is_subclass(weight)


def form(cells: Sequence[Cell], batch: Sequence[int] | None = None) -> str:
    """Describe the form of the state in words, for messages."""
    names = _names(cells)
    if not _uniform(cells):
        return f"an RNNState of {', '.join(names)}, each a tuple with one tensor per layer"
    middle = "B" if batch is None else ", ".join(map(str, batch))
    shape = f"({len(cells)}, {middle}, {cells[0].hidden_size})"
    if names == ("h",):
        return f"h_n {shape}"
    if names == ("h", "c"):
        return f"(h_n, c_n), each {shape}"
    if own := [f"{name} {cells[0].width(name)}" for name in names if cells[0].width(name) != cells[0].hidden_size]:
        return f"an RNNState of {', '.join(names)}, each {shape}, but with {', '.join(own)} numbers a layer"
    return f"an RNNState of {', '.join(names)}, each {shape}"


def _names(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the fields of the cells' states, each once."""
    return tuple(dict.fromkeys(name for cell in cells for name in cell.State._fields))


def _uniform(cells: Sequence[Cell]) -> bool:
    """Return whether the cells' states have the same fields and sizes, so that they can be stacked."""
    return (
        len(cells) == 1 or len({tuple((name, cell.width(name)) for name in cell.State._fields) for cell in cells}) == 1
    )
