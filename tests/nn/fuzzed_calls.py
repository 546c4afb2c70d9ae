"""Random calls of a cell whose tensors have random shapes, strides and types: numbers as the eager loop's, or one line.

`python tests/nn/fuzzed_calls.py CASES FIRST [KINDS]` runs so many calls in a process of its own, which a sanitizer
can watch (tests/nn/test_call_shapes.py). The numbers of the cases begin at FIRST, so each can be run alone.
"""

import collections
import contextlib
import functools
import random
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn import cells
from timescales.nn import engine as engines
from timescales.nn.cells.cell import Weights
from timescales.nn.engine import eager
from timescales.nn.engine.cpu import compiler, workspace

# What the fuzzed cells return. It is no attribute of theirs, so that they are traced once.
GIVEN: dict[str, Any] = {}
FLAGS = ("mask", "reset")
MUTATIONS = ["one"] * 4 + ["drop"] * 3 + ["scalar", "lead", "more", "less", "half", "double", "turn", "vector", "none"]

# Gates whose shares are computed together and apart; vectors and dt; a cumax; scans.
KINDS = {
    "lstm": (cells.LSTMCell, {}), "gru": (cells.GRUCell, {}), "plstm": (cells.PLSTMCell, {}),
    "om": (cells.GatedLSTMCell, {"gate": "om", "downsize": 1, "T_max": 30}), "mingru": (cells.MinGRUCell, {}),
    "plscan": (cells.PLScanCell, {}),
}  # fmt: skip


@functools.cache
def cell_of(name: str, inputs: int, H: int) -> Any:
    """A cell of a kind, which returns the weights and the state of the case."""
    kind, arguments = KINDS[name]
    torch.manual_seed(0)
    given = {"initial_state": lambda self, *batch: GIVEN["state"], "weights": lambda self: GIVEN["weights"]}
    return type(kind.__name__, (kind,), given)(inputs, H, **arguments)


class Case(NamedTuple):
    """A call: the cell, its tensors by name, and what is done with them."""

    cell: Any
    tensors: dict[str, Tensor | None]
    mutated: dict[str, Any]
    state_is_given: bool


class Draw:
    """The random choices of a case."""

    def __init__(self, number: int) -> None:
        self.random, self.torch = random.Random(number), torch.Generator().manual_seed(number)

    def numbers(self, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=self.torch) * 1.5 - 0.5

    def mutated(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Another shape: some that broadcast, most that do not."""
        choose, n = self.random, len(shape)
        if not n:  # a second mutation
            return (choose.choice([1, 2]),)
        kind, k = choose.choice(MUTATIONS), choose.randrange(n)
        sizes = {"more": shape[k] + 1, "less": max(0, shape[k] - 1), "half": shape[k] // 2, "double": 2 * shape[k]}
        if kind in sizes or kind == "one":
            return (*shape[:k], sizes.get(kind, 1), *shape[k + 1 :])
        shapes = {"drop": shape[1:], "lead": (1, *shape), "turn": shape[::-1], "scalar": (), "none": (0,) * n}
        return shapes.get(kind, shape[k : k + 1])  # a vector

    def laid_out(self, value: Tensor) -> Tensor:
        """The same numbers with other strides, another place in their memory, or marked as negated."""
        kind = self.random.choice(["plain"] * 3 + ["turned", "cut", "late", "negated", "steps"])
        if not value.dim():
            return value
        if kind == "turned":
            order = list(range(value.dim()))
            self.random.shuffle(order)
            back = [order.index(k) for k in range(value.dim())]
            return value.permute(order).contiguous().permute(back)
        if kind == "cut":
            wide = torch.full((*value.shape[:-1], value.shape[-1] + 3), float("nan")).to(value.dtype)
            wide[..., 1 : 1 + value.shape[-1]] = value
            return wide[..., 1 : 1 + value.shape[-1]]
        if kind == "late":
            return torch.cat([value.new_ones(5), value.reshape(-1)])[5:].view(value.shape)
        if kind == "negated" and value.is_floating_point():
            return torch._neg_view(-value)
        if kind == "steps":
            return value.repeat_interleave(2, 0)[::2]
        return value


def draw(number: int, kinds: Sequence[str]) -> Case:
    """The case with this number, of a cell of one of these kinds."""
    d = Draw(number)
    name = d.random.choice(list(kinds))
    S, B, I, H = (d.random.choice(sizes) for sizes in ((0, 1, 2, 3, 5), (1, 2, 3, 4, 6), (1, 2, 3), (1, 2, 4, 6)))  # noqa: E741
    H = max(H, 2) if name == "om" else H  # a cumax of one row is refused
    cell = cell_of(name, I, H)
    rows = sum(map(cell.height, cell.gates))
    shapes: dict[str, tuple[int, ...]] = {"x": (S, B, I), "ih": (rows, I), "hh": (rows, H), "bias_ih": (rows,)}
    shapes |= {"bias_hh": (rows,)} if d.random.random() < 0.5 else {}
    shapes |= dict.fromkeys(cell.State._fields, (B, H))
    shapes |= {name: (S, B) for name in ("dt", "mask", "reset") if d.random.random() < 0.4}
    mutated: dict[str, Any] = {}
    if not cell.recurrent and d.random.random() < 0.9:
        shapes.pop("hh")
    elif not cell.recurrent:
        mutated["hh"] = "given"
    keys = [*shapes, *cell.State._fields, *cell.State._fields]  # the state is most often wrong
    for key in d.random.sample(keys, d.random.choice([0, 0, 1, 1, 1, 2, 3])):
        mutated[key] = shapes[key] = d.mutated(shapes[key])
    tensors: dict[str, Tensor | None] = {key: d.numbers(shape) for key, shape in shapes.items()}
    if d.random.random() < 0.1:
        key = d.random.choice(list(tensors))
        mutated[key] = d.random.choice([torch.float64, torch.float16, torch.int64, torch.bool, None])
        mutated[key] = torch.float64 if mutated[key] is None and key in ("x", "ih") else mutated[key]
        tensors[key] = None if mutated[key] is None else tensors[key].to(mutated[key])  # type: ignore[union-attr]
    for key, value in tensors.items():
        if value is not None:
            value = value.abs() if key in ("dt", "age") and value.dtype != torch.bool else value
            tensors[key] = d.laid_out(value > 0.1 if key in FLAGS and d.random.random() < 0.7 else value)
    return Case(cell, tensors, mutated, d.random.random() < 0.3)


def results(case: Case, run: Any) -> list[Tensor]:
    """Output, last state and gradients of a call by an engine."""
    d = Draw(0)
    given = {key: value for key, value in case.tensors.items() if value is not None}
    leaves = {key: v.detach().resolve_neg().clone().requires_grad_(v.is_floating_point()) for key, v in given.items()}
    get = {key: laid_out_as(given[key], v) for key, v in leaves.items()}.get
    state = case.cell.State(*(get(field) for field in case.cell.State._fields))
    GIVEN["state"], GIVEN["weights"] = state, Weights(get("ih"), get("hh"), get("bias_ih"), get("bias_hh"))  # type: ignore[arg-type]
    if "reset" in leaves:
        run = functools.partial(run, reset=get("reset"))
    output, last = case.cell(get("x"), state if case.state_is_given else None, get("dt"), get("mask"), run)
    with contextlib.suppress(RuntimeError):  # the eager loop alone leaves a field as it was given, if no step writes it
        last = [v.expand(output.shape[1:]) for v in last]
    found = [v for v in (output, *last) if v.requires_grad]
    wanted = [v for v in leaves.values() if v.requires_grad]
    gradients = [d.laid_out(d.numbers(tuple(v.shape))).to(v.dtype) for v in found]
    back = torch.autograd.grad(found, wanted, gradients, allow_unused=True) if found and wanted else ()
    return [output, *last, *(torch.zeros_like(v) if g is None else g for v, g in zip(wanted, back, strict=False))]


def laid_out_as(like: Tensor, value: Tensor) -> Tensor:
    """The numbers of `value`, with gradients to it, with the strides, the place and the mark of `like`."""
    numbers = 1 + sum((n - 1) * stride for n, stride in zip(like.shape, like.stride(), strict=True))
    memory = torch.full((like.storage_offset() + max(0, numbers),), 9.0).to(like.dtype)
    place = memory.as_strided(like.shape, like.stride(), like.storage_offset())
    return torch._neg_view(Strided.apply(-value, place)) if like.is_neg() else Strided.apply(value, place)


class Strided(torch.autograd.Function):
    """The identity, into a tensor of other strides."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, place: Tensor) -> Tensor:
        return place.copy_(value)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        return d, None


def outcome(case: Case, run: Any) -> list[Tensor] | Exception:
    try:
        return results(case, run)
    except Exception as error:
        return error


def check(number: int, kinds: Sequence[str] = tuple(KINDS)) -> str:
    """Run a case on each engine and compare: "refused" or "numbers". Raises AssertionError."""
    case = draw(number, kinds)
    what = f"case {number}: {case.cell}, {case.mutated}"
    # The eager loop with the tensors as they are. It has no `reset`, and computes in the type of h.
    h = case.tensors["h"]
    is_plain = case.tensors.get("reset") is None and (h is None or h.is_floating_point())
    plain = outcome(case, eager.run) if is_plain else None
    expected = outcome(case, functools.partial(engines.run, "eager"))
    x = case.tensors["x"]
    shape = () if x is None else (*x.shape[:-1], case.cell.hidden_size)
    fields = [case.tensors[field] for field in case.cell.State._fields]
    if set(case.cell.State._fields).issuperset(case.mutated) and all(broadcasts(v, shape[1:]) for v in fields):
        assert isinstance(expected, list), f"{what}: it broadcasts, and this is {expected!r}"
    if isinstance(expected, list):
        assert expected[0].shape == shape, what
        if isinstance(plain, list) and plain[0].shape == shape:
            compare(plain, expected, what)
    for name in ("fused", "compiled"):
        found = outcome(case, functools.partial(engines.run, name))
        if isinstance(found, list):
            assert isinstance(expected, list), f"{what}: {name} has numbers, eager {expected!r}"
            compare(found, expected, f"{what}, {name}")
        else:
            one_line(found, f"{what}, {name}")
    if isinstance(expected, list):
        return "numbers"
    if not set(case.mutated.values()).intersection([torch.float16, torch.float64, torch.int64, torch.bool, None]):
        one_line(expected, what)
    return "refused"


def broadcasts(value: Tensor | None, shape: tuple[int, ...]) -> bool:
    """Whether torch's operations broadcast a field of the state to this shape without another type."""
    if value is None or value.dtype not in (torch.float32, torch.int64, torch.bool) or value.dim() > len(shape):
        return False
    return all(n in (1, wanted) for n, wanted in zip(value.shape[::-1], shape[::-1], strict=False))


def one_line(error: Exception, what: str) -> None:
    assert isinstance(error, ValueError), f"{what}: {error!r}"
    assert "\n" not in str(error), what


def compare(found: list[Tensor], expected: list[Tensor], what: str) -> None:
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        a, b = a.detach().double(), b.detach().double()
        a, b = torch.broadcast_tensors(a, b)  # without a step, the eager loop returns the state as it was given
        error = float((a - b).abs().amax()) if a.numel() else 0.0
        scale = float(b.abs().amax()) if b.numel() else 0.0
        assert error <= 1e-3 * (scale + 0.1), f"{what}: result {k} differs by {error:.1e} at {scale:.1e}"


@contextlib.contextmanager
def watched_workspaces():
    """The engine's workspaces as memory of torch, beside which a sanitizer sees every access."""
    before, kept = workspace._new_memory, []

    def new_memory(size: int) -> tuple[Any, int]:
        kept.append(torch.empty(size, dtype=torch.uint8))
        return bytearray(size), kept[-1].data_ptr()

    workspace._new_memory = new_memory
    workspace.Workspace.MAX_UNUSED = 0
    try:
        yield
    finally:
        workspace._new_memory = before


def main() -> None:
    (cases, first), kinds = map(int, sys.argv[1:3]), sys.argv[3:] or list(KINDS)
    torch.set_num_threads(1)
    compiler.FLAGS = tuple(flag if flag != "-O3" else "-O1" for flag in compiler.FLAGS)  # a third of the time
    with watched_workspaces():
        counts = collections.Counter(check(number, kinds) for number in range(first, first + cases))
    print(dict(counts))


if __name__ == "__main__":
    main()
