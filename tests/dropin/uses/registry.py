"""The list of uses, the layers that they are run with, and the outcomes that are expected.

A use is a function of a `Layer`. It builds modules with `layer.make`, does something with them, and asserts that the
result is right. What it should come to is one of

    WORKS            the function returns.
    Refused(fix)     it raises an error of one line that contains `fix`.
    Differs(how)     one of its assertions fails; `how` says what is different.
    NOT_RUN          the use makes no sense there.

for each of three columns: torch's own layers, our layers with the C++ engine, and our layers with the eager engine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from rnn_cases import KINDS, NO_KERNEL, build, random_input, with_fields
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import timescales

S, B, I, H = 6, 3, 4, 6  # noqa: E741
TOLERANCE = 1e-5  # of float32; the engines sum in different orders

Outcome = Any  # WORKS, NOT_RUN, a Refused or a Differs
WORKS, NOT_RUN = "works", ""


@dataclass(frozen=True)
class Refused:
    """An error of one line that contains `fix`. `torchs`: it is torch's message, which may have several lines."""

    fix: str
    torchs: bool = False

    def __str__(self) -> str:
        return f"refused (`{self.fix}`)"


@dataclass(frozen=True)
class Differs:
    """An assertion of the use fails; `how` says what is different."""

    how: str

    def __str__(self) -> str:
        return f"differs ({self.how})"


@dataclass(frozen=True)
class Layer:
    """A layer that uses are run with: one of torch's, or one of ours with an engine."""

    name: str  # a name of KINDS or of TORCH
    column: str  # "torch", "fused" or "eager"

    def make(self, layers: int = 1, seed: int = 0, **arguments: Any) -> nn.Module:
        """A module of I inputs and H units, in float32, with the weights that the seed gives."""
        torch.manual_seed(seed)
        return self.construct(I, H, layers, **arguments)

    def construct(self, *positional: Any, **arguments: Any) -> nn.Module:
        """A module with these arguments and those that the layer always has."""
        if self.column == "torch":
            return TORCH[self.name](*positional, **arguments)
        name, own = KINDS[self.name]
        return getattr(timescales, name)(*positional, **own, **{"engine": self.engine} | arguments)

    @property
    def tolerance(self) -> float:
        """Of float32 where results are compared with float64, or gradients with larger ones.

        ExpRNN has the errors of torch.linalg.matrix_exp: 1e-4, and as much in gradients above 1000. RMC has layer norms
        over five numbers: 8e-4 in gradients of three layers.
        """
        return {"ExpRNN": 5e-3, "RMC": 2e-3}.get(self.name, 1e-4)

    @property
    def roundings(self) -> int:
        """Of a tensor's largest number, in float32, that its small sums may be off. URNN divides by sizes near zero."""
        return {"URNN": 500}.get(self.name, 50)

    @property
    def unread(self) -> int:
        """Number of the first fields of the state that no step reads: the output h of these layers."""
        return 1 if self.name in ("HGRN", "PLScan", "SRU") else 0

    @property
    def engine(self) -> str:
        """The engine's name: "auto" chooses the C++ engine where a layer has a kernel."""
        return "auto" if self.column == "fused" else "eager"

    def __str__(self) -> str:
        return f"{self.name}-{self.column}"


@dataclass(frozen=True)
class Use:
    """A use, its place in the page, and its outcome in each column.

    why: the reason for what is refused or different here alone; uses with one reason are one line of the page.
    as_torch: whether it has the outcome of torch's layer with those layers of its class that its kernel runs where the
    C++ engine does not.
    """

    group: str
    text: str
    run: Callable[[Layer], None]
    torch: Outcome
    fused: Outcome
    eager: Outcome
    only: frozenset[str]  # the names of the layers that it is run with; empty: all
    as_torch: bool
    why: str

    def outcome(self, layer: Layer) -> Outcome:
        """What is expected of a layer."""
        by_torch = self.as_torch and layer.column == "fused" and layer.name in PLAIN
        return self.torch if by_torch else getattr(self, layer.column)

    def title(self) -> str:
        """The text, with the layers if it is run with some of them only."""
        if not self.only:
            return self.text
        own, others = (
            dict.fromkeys(LABELS.get(name, KINDS[name][0]) for name in KINDS if (name in self.only) == inside)
            for inside in (True, False)
        )
        if len(others) < len(own) and not own.keys() & others.keys():
            return f"{self.text} (all but {', '.join(others)})"
        return f"{self.text} ({', '.join(own)})"

    def ours(self) -> str:
        """The outcome of our layers, in words."""
        more = f"; LSTM and GRU as torch's: {self.torch}" if self.as_torch else ""
        if self.fused is NOT_RUN or self.eager is NOT_RUN or self.fused == self.eager:
            return str(self.eager if self.fused is NOT_RUN else self.fused) + more
        return f"C++ engine: {self.fused}; eager engine: {self.eager}{more}"

    def works(self) -> bool:
        """Whether the use works with our layers."""
        return {self.fused, self.eager} <= {WORKS, NOT_RUN}

    def layers(self) -> list[Layer]:
        """The layers that the use is run with."""
        fitting = [layer for layer in LAYERS if not self.only or layer.name in self.only]
        torchs = [layer for layer in fitting if layer.column == "torch"][:1]  # the LSTM where it fits, else the GRU
        return [
            layer
            for layer in [*torchs, *(layer for layer in fitting if layer.column != "torch")]
            if self.outcome(layer) is not NOT_RUN
        ]


COLUMNS = ("torch", "fused", "eager")
TORCH: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}


LAYERS = [
    *(Layer(name, "torch") for name in TORCH),
    *(Layer(name, "fused") for name in KINDS if name not in NO_KERNEL),
    *(Layer(name, "eager") for name in KINDS),
]
# The layers whose state is torch's, those with an age, and all whose state has other fields.
LSTMS = frozenset(with_fields("h", "c"))
NAMED = frozenset(KINDS) - LSTMS - {*with_fields("h")}
POWER_LAW = frozenset({*with_fields("h", "c", "age"), *with_fields("h", "age")})
# The layers whose output is bounded, whatever the input: by 1, and by e in JANET.
BOUNDED = frozenset(kind for kind in KINDS if build(kind)(1e3 * random_input()[0])[0].abs().max() < 3)
# The layers whose step is elementwise but for its two products: no matrix that is computed or of its own, no attention.
ELEMENTWISE = frozenset(KINDS) - {"ExpRNN", "GORU"} - NO_KERNEL
# The layers that are of torch's class; those of them that have its equations and parameters; and those whose step has
# neither parameters nor random numbers of its own, or no kernel.
OF_TORCH = frozenset({"LSTM", "ChronoLSTM", "MTSLSTM", "GRU"})
PLAIN = OF_TORCH - {"MTSLSTM"}
WITH_PARAMETERS = {"ExpRNN", "GORU", "IndRNN", "LRU", "LeakyRNN", "PGRU", "PLSTM", "PLSTM_separate", "PLScan"}
WITH_PARAMETERS |= {"ParaGRU", "ParaLSTM", "PhasedLSTM", "RGLRU", "SuRNN"}
WITHOUT_PARAMETERS = KINDS.keys() - WITH_PARAMETERS
# The layers that bias=False leaves nothing to begin the memory from.
FROM_BIAS = frozenset({"ChronoLSTM", "MTSLSTM", "JANET", "ELSTM_separate", "MinGRU"})
LABELS = {"GatedRNN_um_gru": 'GatedRNN(core="gru")'}  # names of layers in the page, where not that of the class

# Reasons of several uses.
TORCHS = "other layers are not of torch's class, and have parameters, names and sizes of their own"
BIASES = "a bias of these equations is where the memory starts, or a constant that they need"
SECOND = "the C++ code has first derivatives; further ones are torch's, of what follows from the arguments of a step"
READERS = "these read Python code or compare classes: a loop over time in C++ is neither"
SHARDS = "a process has a part of the weights, and this needs all of them"

USES: list[Use] = []
GROUPS: list[str] = []  # the titles of the groups, in their order


def use(
    text: str,
    *,
    torch: Outcome = WORKS,
    fused: Outcome = WORKS,
    eager: Outcome = WORKS,
    ours: Outcome | None = None,
    only: Iterable[str] = (),
    as_torch: bool = False,
    why: str = "",
) -> Callable[[Callable[[Layer], None]], Callable[[Layer], None]]:
    """Put a function into the list. `ours` is the outcome of both engines; `only` names layers of KINDS."""

    def register(run: Callable[[Layer], None]) -> Callable[[Layer], None]:
        outcomes = (torch, fused, eager) if ours is None else (torch, ours, ours)
        USES.append(Use(GROUPS[-1], text, run, *outcomes, frozenset(only), as_torch, why))
        return run

    return register


def group(name: str) -> None:
    """Begin a group of uses."""
    GROUPS.append(name)


def data(*shape: int, seed: int = 1, **options: Any) -> Tensor:
    """Random numbers, by default an input (S, B, I)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*(shape or (S, B, I)), generator=generator, **options)


def fields(state: Any) -> list[Tensor]:
    """The tensors (layers, B, H) of a state, in the order h, c, age."""
    return pytree.tree_leaves(state)


def with_fields(state: Any, values: list[Tensor]) -> Any:
    """A state of the same kind with other tensors."""
    return pytree.tree_unflatten(values, pytree.tree_structure(state))


def plain(module: nn.Module) -> nn.Module:
    """A copy of a module on the eager engine."""
    duplicate = copy.deepcopy(module)
    if hasattr(duplicate, "engine"):
        duplicate.engine = "eager"
    return duplicate


def loss_of(output: Tensor) -> Tensor:
    """A loss whose gradient is different for every element."""
    output = output.to(torch.promote_types(output.dtype, torch.float32))
    return (output.sin() * torch.arange(1.0, output.numel() + 1).view(output.shape)).sum()


def trained(module: nn.Module, x: Tensor, state: Any = None) -> list[Tensor]:
    """Output and gradients of one forward and backward pass: of x where it requires one, and of every parameter.

    Where a state is given, the gradient of a first state that is learned is zero.
    """
    output, _ = module(x) if state is None else module(x, state)
    wanted = [t for t in (x, *module.parameters()) if t.requires_grad]
    return [output, *torch.autograd.grad(loss_of(output), wanted, materialize_grads=state is not None)]


def close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Assert that tensors, or lists of tensors, are equal up to rounding."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def close_in_size(
    layer: Layer, found: Iterable[Tensor], expected: Iterable[Tensor], tolerance: float = TOLERANCE
) -> None:
    """As `close`, and up to the layer's `roundings`: small sums have the errors of their terms."""
    rounding = layer.roundings * torch.finfo(torch.float32).eps
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance + rounding * e.abs().max().item())


def same(found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    """Assert that tensors are bitwise equal."""
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
