"""Find what a step computes only from parameters. torch evaluates it once per sequence instead of in every step.

`trace.py` describes how a step is traced.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from timescales.nn.cells.cell import Cell
from timescales.nn.cells.gates import cumax
from timescales.nn.engine.means import MEANS
from timescales.nn.engine.recorder import READ, Cumax, Mean, NotTraceable, OnParameters, Recorder
from timescales.nn.engine.scalar import Node
from timescales.nn.engine.watch import Watch
from timescales.torch_private import tree_flatten, tree_map


@dataclasses.dataclass(frozen=True)
class Reference:
    """A tensor of `Hoisted`, given by its place in the list of its values."""

    place: int


class Call(NamedTuple):
    """A call of torch that `step` makes only on parameters. Tensors among the arguments are references."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    gradients: bool  # whether gradients were enabled
    places: list[int]  # of its results


class Hoisted:
    """What a step computes only from parameters. `values` evaluates it, once per sequence."""

    def __init__(self) -> None:
        self.roots: dict[int, str] = {}  # names of parameters, buffers and attributes of the cell, by place
        self.calls: list[Call] = []
        self.places: dict[int, int] = {}  # place of a tensor of the example, by id
        self.examples: list[Any] = []
        self.used: list[int] = []  # places of the values that a step uses

    def add(self, value: Any) -> int:
        """Add a value of the example. Return its place."""
        self.examples.append(value)
        if isinstance(value, Tensor):
            self.places[id(value)] = len(self.examples) - 1
        return len(self.examples) - 1

    def values(self, cell: Cell, device: torch.device) -> list[Tensor]:
        """Compute the tensors that a step uses from the cell's parameters as they are now."""
        values: dict[int, Any] = {
            place: operator.attrgetter(name)(cell).to(device) for place, name in self.roots.items()
        }
        enabled = torch.is_grad_enabled()
        for call in self.calls:
            args, kwargs = _replaced(call.args, values), _replaced(call.kwargs, values)
            with torch.set_grad_enabled(enabled and call.gradients):
                result = call.function(*args, **kwargs)
            results = [result] if isinstance(result, Tensor) else result
            values.update(zip(call.places, results, strict=True))
        return [values[place] for place in self.used]

    def description(self) -> tuple[Any, ...]:
        """Return a description of what is evaluated, equal for the same calls on attributes of the same names."""
        calls = tuple((call.function, repr(call.args), repr(call.kwargs), call.gradients) for call in self.calls)
        return tuple(self.roots.items()), calls, tuple(self.used)

    def finish(self) -> None:
        """Free the tensors of the example, and drop the calls and parameters that no step uses."""
        needed, calls = set(self.used), []
        for call in reversed(self.calls):
            if needed.intersection(call.places):
                calls.append(call)
                arguments, _ = tree_flatten((call.args, call.kwargs))
                needed.update(v.place for v in arguments if isinstance(v, Reference))
        roots = {place: name for place, name in self.roots.items() if place in needed}
        places = [*roots, *(place for call in reversed(calls) for place in call.places)]
        new = {place: Reference(number) for number, place in enumerate(places)}
        self.roots = {new[place].place: name for place, name in roots.items()}
        self.calls = [
            call._replace(
                args=_replaced(call.args, new),
                kwargs=_replaced(call.kwargs, new),
                places=[new[place].place for place in call.places],
            )
            for call in reversed(calls)
        ]
        self.used = [new[place].place for place in self.used]
        self.examples, self.places = [], {}


def _replaced(argument: Any, values: dict[int, Any]) -> Any:
    """Return an argument of a call with values instead of references."""
    if isinstance(argument, Reference):
        return values[argument.place]
    if type(argument) in (tuple, list):
        return type(argument)([_replaced(v, values) for v in argument])
    if type(argument) is dict:
        return {key: _replaced(v, values) for key, v in argument.items()}
    return argument


READS = ("item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__", "__index__")


class Hoisting(TorchFunctionMode):
    """Separate the calls on parameters from the other calls of a step, and let `watch` note all of them."""

    def __init__(self, recorder: Recorder, heights: Sequence[int], watch: Watch) -> None:
        super().__init__()
        self.recorder, self.heights, self.hoisted, self.watch = recorder, heights, Hoisted(), watch
        self.leaves: dict[int, Tensor] = {}
        self.detached: set[int] = set()  # places of values that were computed without gradients
        self.noises = 0
        self.pieces: int | None = None  # into which the step last split all of its pre-activations, by chunk

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self.call(func, args, kwargs or {})
        self.watch.note(func, args, kwargs or {}, result)
        return result

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a call, and record it."""
        tensors = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, Tensor)]
        name = getattr(func, "__name__", "")
        if tensors and name.endswith("_") and not name.endswith("__"):
            raise NotTraceable(f"writes in place with {name}; use an operation that returns a new tensor")
        if func is cumax:
            return Cumax.apply(self.leaf(args[0]), self.recorder)
        if func in MEANS and args and self.recorder.is_known(args[0]):
            args, kwargs = tree_map(self.leaf, (args, kwargs))
            return MEANS[func](lambda x: Mean.apply(x, self.recorder), *args, **kwargs)
        if func is torch.rand_like and any(map(self.recorder.is_known, tensors)):
            if len(args) != 1 or kwargs:
                raise NotTraceable("calls torch.rand_like in another form than torch.rand_like(tensor)")
            return self.noise(args[0])
        if func is torch.Tensor.chunk and args[0].shape[-1] == sum(self.heights):
            self.pieces = args[1] if len(args) > 1 else kwargs["chunks"]
        if any(self.recorder.is_known(t) for t in tensors):
            args, kwargs = tree_map(self.leaf, (args, kwargs))
            return func(*args, **kwargs)
        if name in READS:
            raise NotTraceable(f"reads numbers with {name}; a kernel has the numbers of later calls too")
        call = self.recorder.on_parameters = OnParameters()
        try:
            result = func(*args, **kwargs)
        finally:
            self.recorder.on_parameters = None
        if not self.hoist(func, args, kwargs, result) and call.reads:
            raise NotTraceable(READ)
        return result

    def hoist(self, func: Any, args: Any, kwargs: Any, result: Any) -> bool:
        """Record a call on parameters if all its results are tensors. Return whether they are."""
        results = [result] if isinstance(result, Tensor) else result
        if not isinstance(results, (list, tuple)) or not results or not all(isinstance(v, Tensor) for v in results):
            return False
        references = tree_map(lambda v: self.reference(v) if isinstance(v, Tensor) else v, (args, kwargs))
        places = [self.hoisted.add(v) for v in results]
        if not torch.is_grad_enabled():
            self.detached.update(places)
        self.hoisted.calls.append(Call(func, references[0], references[1], torch.is_grad_enabled(), places))
        return True

    def reference(self, tensor: Tensor) -> Reference:
        """Return the place of a tensor that depends only on parameters."""
        if id(tensor) not in self.hoisted.places:
            raise NotTraceable("uses a tensor that is neither an argument, nor a parameter or attribute of the cell")
        place = self.hoisted.places[id(tensor)]
        if place in self.detached and tensor.requires_grad:  # it left the forward of an autograd.Function
            fix = "apply it before the step, or to gx or the state"
            raise NotTraceable(f"applies an autograd.Function only to parameters; {fix}")
        return Reference(place)

    def leaf(self, value: Any) -> Any:
        """Return a tensor computed from parameters as an input of the step. Return any other value unchanged."""
        if not isinstance(value, Tensor) or self.recorder.is_known(value):
            return value
        place = self.reference(value).place
        if place not in self.leaves:
            with self.recorder.pause():
                self.leaves[place] = self._new_leaf(value, len(self.hoisted.used))
            self.hoisted.used.append(place)
        return self.leaves[place]

    def _new_leaf(self, value: Tensor, number: int) -> Tensor:
        recorder, expressions, H = self.recorder, self.recorder.expressions, self.recorder.H
        leaf = value.detach().clone()
        if leaf.is_floating_point():
            leaf.requires_grad_(value.requires_grad)
        length = leaf.shape[-1] if leaf.dim() else 1
        if leaf.numel() != length:
            raise NotTraceable(f"uses a parameter of shape {tuple(value.shape)}; a step takes one number per unit")

        def part(k: int) -> Node:
            node = expressions.input("vector", number, k)
            return node if leaf.dtype != torch.bool else node.apply("ne", 0.0)

        if length == 1:
            traced = recorder.everywhere(leaf.shape, part(0))
        elif length == H or length != sum(self.heights):
            if H % length:
                raise NotTraceable(f"uses a parameter of {length} numbers; a step takes one number per unit")
            traced = recorder.by_units([(part(0), length)], None)
        else:
            traced = recorder.by_units([(part(k), n) for k, n in enumerate(self.heights)], None)
        recorder.remember(leaf, traced.map(lambda v: v.reshape(leaf.shape)))
        return leaf

    def noise(self, like: Tensor) -> Tensor:
        """Return the result of torch.rand_like in a step, whose numbers are drawn before the sequence."""
        recorder = self.recorder
        if like.dim() != 2 or like.shape[-1] != recorder.H:
            raise NotTraceable("calls torch.rand_like on something else than one number per unit")
        with recorder.pause():
            result = torch.full_like(like, 0.5).detach()
            node = recorder.expressions.input("noise", self.noises)
            recorder.remember(result, recorder.by_units([(node, recorder.H)], len(like)))
        self.noises += 1
        return result
