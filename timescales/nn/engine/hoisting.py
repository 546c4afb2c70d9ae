"""What a step computes from parameters alone: it is evaluated by torch, once per sequence, and is not part of the step.

`trace.py` describes how a step is traced.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from timescales.nn.cells.cell import Cell
from timescales.nn.cells.gates import cumax
from timescales.nn.engine.recorder import Cumax, NotTraceable, Recorder
from timescales.nn.engine.scalar import Node


@dataclasses.dataclass(frozen=True)
class Reference:
    """A tensor of a `Hoisted` program, by its place in the list of its values."""

    place: int


class Call(NamedTuple):
    """A call that `step` makes on parameters alone. Tensors among the arguments are references."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    gradients: bool  # whether gradients were enabled
    first: int  # place of the first of its results


class Root(NamedTuple):
    """A parameter, buffer or attribute of the cell, by name; or a tensor that the step knows from elsewhere."""

    name: str
    tensor: Tensor | None
    is_state: bool  # whether it is a parameter or buffer, which batched seeds have with one more dimension


class Hoisted:
    """What a step computes from parameters alone: `vectors` evaluates it, once per sequence."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.calls: list[Call] = []
        self.places: dict[int, int] = {}  # place of a tensor of the example, by id
        self.examples: list[Any] = []
        self.used: list[int] = []  # places of the values that a step uses

    def add(self, value: Any) -> int:
        """A new place for a value of the example."""
        self.examples.append(value)
        if isinstance(value, Tensor):
            self.places[id(value)] = len(self.examples) - 1
        return len(self.examples) - 1

    def values(self, cell: Cell) -> list[Tensor]:
        """The tensors that a step uses, computed from the cell's parameters as they are now."""
        roots = [_attribute(cell, root) for root in self.roots]
        if cell.weight_ih.dim() == 2 or not self.used:
            return self._evaluate(*roots)
        dims = tuple(0 if root.is_state else None for root in self.roots)
        results = torch.vmap(self._evaluate, in_dims=dims)(*roots)
        return list(results)

    def _evaluate(self, *roots: Tensor) -> list[Tensor]:
        values: list[Any] = [None] * len(self.examples)
        values[: len(roots)] = roots
        for call in self.calls:
            get = functools.partial(_replace, values)
            with torch.set_grad_enabled(call.gradients and torch.is_grad_enabled()):
                result = call.function(*tree_map(get, call.args), **tree_map(get, call.kwargs))
            results = [result] if isinstance(result, Tensor) else list(result)
            values[call.first : call.first + len(results)] = results
        return [values[place] for place in self.used]

    def forget_examples(self) -> None:
        """Free the tensors of the example."""
        self.examples, self.places = [None] * len(self.examples), {}


def _replace(values: list[Any], argument: Any) -> Any:
    return values[argument.place] if isinstance(argument, Reference) else argument


def _attribute(cell: nn.Module, root: Root) -> Tensor:
    if root.tensor is not None:
        return root.tensor.to(next(cell.parameters()).device)
    value: Any = cell
    for name in root.name.split("."):
        value = getattr(value, name)
    assert isinstance(value, Tensor)
    return value


class Hoisting(TorchFunctionMode):
    """Separates the calls on parameters alone from the calls of a step."""

    def __init__(self, recorder: Recorder, rows: Sequence[int]) -> None:
        super().__init__()
        self.recorder, self.heights, self.hoisted = recorder, rows, Hoisted()
        self.leaves: dict[int, Tensor] = {}
        self.noises = 0

    def add_root(self, name: str, value: Tensor, tensor: Tensor | None = None, is_state: bool = True) -> None:
        """Add a parameter, buffer or attribute of the cell."""
        assert not self.hoisted.calls
        self.hoisted.roots.append(Root(name, tensor, is_state))
        self.hoisted.add(value)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, Tensor)]
        name = getattr(func, "__name__", "")
        if tensors and name.endswith("_") and not name.endswith("__"):
            raise NotTraceable(f"writes in place with {name}; use an operation that returns a new tensor")
        if func is cumax:
            return Cumax.apply(self.leaf(args[0]), self.recorder)
        if func is torch.rand_like and self.recorder.is_known(args[0]):
            return self.noise(args[0])
        if any(self.recorder.is_known(t) for t in tensors):
            args, kwargs = tree_map(self.leaf, (args, kwargs))
            return func(*args, **kwargs)
        with self.recorder.pause():
            before = torch.get_rng_state()
            result = func(*args, **kwargs)
            if not torch.equal(before, torch.get_rng_state()):
                torch.set_rng_state(before)
                raise NotTraceable(f"draws random numbers with {name}; torch.rand_like can be compiled")
        self.hoist(func, args, kwargs, result)
        return result

    def hoist(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Record a call on parameters alone, if it has tensors as results."""
        results = [result] if isinstance(result, Tensor) else result
        if not isinstance(results, (list, tuple)) or not results or not all(isinstance(v, Tensor) for v in results):
            return
        references = tree_map(lambda v: self.reference(v) if isinstance(v, Tensor) else v, (args, kwargs))
        places = [self.hoisted.add(v) for v in results]
        self.hoisted.calls.append(Call(func, references[0], references[1], torch.is_grad_enabled(), places[0]))

    def reference(self, tensor: Tensor) -> Reference:
        """The place of a tensor that depends on parameters alone."""
        if id(tensor) not in self.hoisted.places:
            raise NotTraceable("uses a tensor that is neither an argument, nor a parameter or attribute of the cell")
        return Reference(self.hoisted.places[id(tensor)])

    def leaf(self, value: Any) -> Any:
        """A result of parameters alone as an input of the step; any other value unchanged."""
        if not isinstance(value, Tensor) or self.recorder.is_known(value):
            return value
        place = self.reference(value).place
        if place not in self.leaves:
            with self.recorder.pause():
                self.leaves[place] = self._new_leaf(value, len(self.hoisted.used))
            self.hoisted.used.append(place)
        return self.leaves[place]

    def _new_leaf(self, value: Tensor, number: int) -> Tensor:
        recorder, graph, H = self.recorder, self.recorder.graph, self.recorder.H
        leaf = value.detach().clone()
        if leaf.is_floating_point():
            leaf.requires_grad_(value.requires_grad)
        length = leaf.shape[-1] if leaf.dim() else 1
        if leaf.numel() != length:
            raise NotTraceable(f"uses a parameter of shape {tuple(value.shape)}; a step takes one number per unit")

        def part(k: int) -> Node:
            node = graph.input("vector", number, k)
            return node if leaf.dtype != torch.bool else node.apply("ne", 0.0)

        if length == 1:
            traced = recorder.everywhere(leaf.shape, part(0))
        elif length == H or length not in (sum(self.heights),):
            if H % length:
                raise NotTraceable(f"uses a parameter of {length} numbers; a step takes one number per unit")
            traced = recorder.by_units([(part(0), length)], None)
        else:
            traced = recorder.by_units([(part(k), n) for k, n in enumerate(self.heights)], None)
        recorder.remember(leaf, traced.map(lambda v: v.reshape(leaf.shape)))
        return leaf

    def noise(self, like: Tensor) -> Tensor:
        """torch.rand_like in a step: its numbers are drawn before the sequence."""
        recorder = self.recorder
        if like.dim() != 2 or like.shape[-1] != recorder.H:
            raise NotTraceable("calls torch.rand_like on something else than one number per unit")
        with recorder.pause():
            result = torch.full_like(like, 0.5).detach()
            node = recorder.graph.input("noise", self.noises)
            recorder.remember(result, recorder.by_units([(node, recorder.H)], len(like)))
        self.noises += 1
        return result
