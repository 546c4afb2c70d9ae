"""Detect that a cell's `step` no longer does what was compiled.

A step may read a Python attribute, a dataclass, an array or a global, any of which may change between two calls. So
tracing notes every torch call that the step makes: function, arguments, result. Before each use of the kernel the step
is replayed with torch switched off: every call is compared with the noted call and answered with its result. Whatever
the step reads is an argument of such a call or changes which calls are made. A replay takes a few µs for each call of
torch. Cells whose signature determines their step (`equations.is_fixed`) are not watched.

The backward pass follows from the noted calls, except that of custom `autograd.Function`s and of tensor hooks: these
are noted and replayed in the same way.
"""

import contextlib
import gc
import operator
import random
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from timescales import torch_private
from timescales.nn.cells.cell import Cell
from timescales.nn.engine.copies import Tensors, with_tensors
from timescales.nn.engine.recorder import Cumax, Mean, NotTraceable, Recorder
from timescales.torch_private import saved_tensors_have_hooks, set_gradients

PLAIN: tuple[type, ...] = (bool, int, float, complex, str, bytes, type(None), type(...), np.generic)
PLAIN += (torch.dtype, torch.device, torch.layout, torch.memory_format)

CHANGED = "computes something else when it runs again"
FIX = "numbers that change by themselves cannot be compiled; for random ones use torch.rand_like"


def random_state() -> Any:
    """Return the state of Python's and NumPy's global random generators, for comparison."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpy[1].tobytes(), numpy[2:]


class SameObject:
    """An object that equals only itself. It is kept alive only if its type does not allow weak references.

    A strong reference would be a leak: a class or function keeps the names around its definition alive, often the cell.
    """

    def __init__(self, value: object) -> None:
        self.id = id(value)
        try:
            self.value: Callable[[], object] = weakref.ref(value)
        except TypeError:
            self.value = lambda: value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SameObject) and self.value() is other.value() is not None

    def __hash__(self) -> int:
        return self.id


class Call(NamedTuple):
    """A call of torch that a step made.

    arguments: first by position, then by name, in the form of `Watch.normal`.
    names: the names of the latter.
    quick: the arguments themselves, for a comparison by identity, which nearly always succeeds. Where identity proves
        nothing, an object that is never an argument.
    """

    function: Any
    quick: tuple[Any, ...]
    names: tuple[str, ...]
    arguments: tuple[Any, ...]
    result: Any


END_OF_CALLS = Call(None, (), (), (), None)  # stands after the last call, and equals no call


class Watch:
    """The calls of torch that a step made when it was traced, and the check that it still makes them."""

    def __init__(self, example: tuple[Any, ...], tensors: Tensors) -> None:
        """Start noting. example: the arguments of the traced step. tensors: those of the cell whose `step` runs."""
        self.example, self.tensors = example, tensors
        self.calls: list[Call] = []
        self.in_step = 0  # how many calls the step made; the later ones were made in backward
        self.known: list[Tensor] = []
        self.numbers: dict[int, int] = {}  # places of the known tensors, by id
        self.by_memory: dict[Any, int] = {}  # the same by memory: autograd returns some tensors as other objects
        self.new: Any = None
        self.in_backward = InBackward()
        self.gradients: list[list[Tensor]] = []  # the arguments of each function that runs in backward
        self.results: Any = None
        gx, gh, state, dt = example
        self._know((gx, gh, *state, dt))
        self._know(tensors.all(), by_memory=False)  # their memory is freed

    def note(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note a call and its result."""
        values = (*args, *kwargs.values())
        self.in_backward.find(function, values)
        arguments = tuple(map(self.normal, values))
        # `self` is never an argument.
        quick = tuple(v if isinstance(v, PLAIN) or id(v) in self.numbers else self for v in args)
        if kwargs:
            quick = (self,)
        self._know(result if isinstance(result, (tuple, list)) else (result,))
        self.calls.append(Call(function, quick, tuple(kwargs), arguments, result))

    def finish(self, new: Any) -> None:
        """Note the new state, and the calls that are made in backward."""
        self.new, self.in_step = self.normal(new), len(self.calls)
        in_backward, self.in_backward = self.in_backward, InBackward()
        in_backward.find(None, new)
        self.gradients = [[torch.full(shape, 0.1, dtype=t) for shape, t in found] for found in in_backward.forms]
        for tensors in self.gradients:
            self._know(tensors)
        with torch.no_grad(), _NoteCalls(self):
            self.results = self.normal(in_backward.run(self.gradients))

    def change(self, cell: Cell) -> Exception | None:
        """Return an error that says what the step now does differently. Return None if it does the same."""
        copy = with_tensors(cell, self.tensors)
        attributes = list(vars(copy).items())
        compare = _CompareCalls(self)
        try:
            with self._plain_saving():
                with compare:
                    new = copy.step(*self.example)
                compare.check(compare.place == self.in_step and self.normal(new) == self.new)
                if compare.in_backward is not None:
                    compare.in_backward.find(None, new)
                    compare.check(len(compare.in_backward.forms) == len(self.gradients))
                    with torch.no_grad(), compare:
                        results = compare.in_backward.run(self.gradients)
                    compare.check(compare.place == len(self.calls) and self.normal(results) == self.results)
            compare.check(len(attributes) == len(vars(copy)) and all(vars(copy)[k] is v for k, v in attributes))
        except Exception as error:  # of the comparison, or of the step itself, which then has changed
            return compare.error or error
        finally:
            torch_private.set_gradients(compare.gradients)  # a step that ended in an error may have changed it
        return compare.error  # not None if the step caught it

    def references(self) -> int:
        """Count the references to the tensors of the step."""
        return sum(map(sys.getrefcount, self.known))

    def is_kept(self, cell: Cell) -> bool:
        """Return whether the step stores some of its tensors, as in a list of a module: each run adds references."""
        gc.collect()
        before = self.references()
        self.change(cell)
        gc.collect()
        return self.references() > before

    def normal(self, value: Any) -> Any:
        """Return a value in a form that does not change, and that is equal for values with the same meaning."""
        if isinstance(value, Tensor):
            number = self.numbers.get(id(value))
            number = self.by_memory.get(Recorder.key(value)) if number is None else number
            return object() if number is None else (Tensor, number)
        if isinstance(value, PLAIN):
            return type(value), repr(value)
        if isinstance(value, (tuple, list)):
            return type(value), *map(self.normal, value)
        if isinstance(value, dict):
            return dict, *((self.normal(k), self.normal(v)) for k, v in value.items())
        if isinstance(value, slice):
            return slice, *map(self.normal, (value.start, value.stop, value.step))
        if isinstance(value, np.ndarray):
            return value.dtype, value.shape, value.tobytes()
        return SameObject(getattr(value, "__code__", value))  # what a function does is seen when it runs

    def _know(self, values: Iterable[Any], by_memory: bool = True) -> None:
        for value in values:
            if isinstance(value, Tensor) and id(value) not in self.numbers:
                self.numbers[id(value)] = len(self.known)
                if by_memory:
                    self.by_memory.setdefault(Recorder.key(value), len(self.known))
                self.known.append(value)

    def _plain_saving(self) -> contextlib.AbstractContextManager[Any]:
        """Hide what an autograd.Function saves from the caller's hooks: torch.utils.checkpoint counts such tensors."""
        if self.gradients and saved_tensors_have_hooks():
            return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        return contextlib.nullcontext()


class InBackward:
    """What runs in Python in the backward pass of a step: backward of each autograd.Function, and hooks."""

    def __init__(self) -> None:
        self.functions: list[Callable[..., Any]] = []
        self.forms: list[list[tuple[Any, torch.dtype]]] = []  # shape and dtype of the gradients that each one gets
        self.nodes: set[Any] = set()

    def find(self, function: Any, values: Iterable[Any]) -> None:
        """Add the functions that the arguments of a call bring."""
        values = list(values)
        if function is Tensor.register_hook:
            self.functions.append(values[1])
            self.forms.append([(values[0].shape, values[0].dtype)])
        for value in values:
            for tensor in value if isinstance(value, (tuple, list)) else (value,):
                node: Any = tensor.grad_fn if isinstance(tensor, Tensor) else None
                kind = torch_private.function_of(node)
                if kind not in (None, Cumax, Mean) and node not in self.nodes:
                    self.nodes.add(node)
                    self.functions.append(node.apply)
                    self.forms.append(torch_private.gradients_of(node))

    def run(self, gradients: list[list[Tensor]]) -> list[Any]:
        """Return the results of all functions."""
        return [function(*given) for function, given in zip(self.functions, gradients, strict=True)]


class _NoteCalls(TorchFunctionMode):
    """Note calls."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.watch.note(func, args, kwargs or {}, result)
        return result


class _CompareCalls(TorchFunctionMode):
    """Compare calls with the noted ones, and return the noted results."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch, self.calls, self.place = watch, watch.calls, 0
        self.error: NotTraceable | None = None
        self.gradients = torch.is_grad_enabled()
        self.in_backward = InBackward() if self.gradients and watch.gradients else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = self.calls[self.place] if self.place < len(self.calls) else END_OF_CALLS
        self.place += 1
        same = (func is call.function or func == call.function) and not kwargs and len(args) == len(call.quick)
        if not (same and all(map(operator.is_, args, call.quick)) and self.error is None and func is not set_gradients):
            self._compare(call, func, args, kwargs or {})
        if self.in_backward is not None:
            self.in_backward.find(func, (*args, *(kwargs or {}).values()))
        return call.result

    def _compare(self, call: Call, func: Any, args: Any, kwargs: Any) -> None:
        """Compare a call whose arguments are not the identical objects."""
        if func is set_gradients:  # the step may read this state
            func(*args)
        self.check(self.error is None and func == call.function)
        if func is set_gradients and not self.gradients:  # it restores the caller's state, which changes nothing
            return
        values = (*args, *kwargs.values())
        self.check(tuple(kwargs) == call.names and len(values) == len(call.arguments))
        name = getattr(func, "__name__", str(func)).strip("_")
        for noted, value in zip(call.arguments, values, strict=True):
            now = self.watch.normal(value)
            plain = all(isinstance(v, tuple) and v[0] in PLAIN for v in (noted, now))
            self.check(noted == now, f"{CHANGED}: {name} gets {noted[1]}, then {now[1]}; {FIX}" if plain else None)

    def check(self, same: bool, reason: str | None = None) -> None:
        """Store and raise an error if something is not the same."""
        if not same:
            usual = f"{CHANGED}; {FIX}"
            if not self.gradients:
                usual = (
                    "computes something else under torch.no_grad(): do not ask for torch.is_grad_enabled(), "
                    "and in an autograd.Function that returns its argument return x.view_as(x)"
                )
            self.error = self.error or NotTraceable(reason or usual)
            raise self.error
