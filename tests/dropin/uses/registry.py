"""The list of uses, and the outcomes that are expected.

A use is a function of a `Layer`. It builds modules with `layer.make`, does something with them, and asserts that the
result is right. What it should come to is one of

    WORKS            the function returns.
    Refused(fix)     it raises an error of one line that contains `fix`.
    Differs(how)     one of its assertions fails; `how` says what is different.
    NOT_RUN          the use makes no sense there.

for each of three columns: torch's own layers, our layers with the C++ engine, and our layers with the eager engine.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rnn_cases import KINDS

from uses.layers import LABELS, LAYERS, PLAIN, Layer

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


# Outcomes and reasons of several uses.
EAGER, MODIFIED = Refused("use engine='eager'"), Refused("has been modified", torchs=True)
TORCHS = "other layers are not of torch's class, and have parameters, names and sizes of their own"
BIASES = "a bias of these equations is where the memory starts, or a constant that they need"
SECOND = "the C++ code has first derivatives; further ones are torch's, of what follows from the arguments of a step"
READERS = "these read Python code or compare classes: a loop over time in C++ is neither"
SHARDS = "a process has a part of the weights, and this needs all of them"

USES: list[Use] = []
GROUPS: list[str] = []  # the titles of the groups, in their order
Run = Callable[[Layer], None]


def use(
    text: str, everywhere: Any = WORKS, *, only: Iterable[str] = (), as_torch: bool = False, why: str = "", **own: Any
) -> Callable[[Run], Run]:
    """Put a function into the list: once for each use that it shows.

    own: outcomes that are not those `everywhere`, by the name of the column; `ours`: of both engines. only: of layers.
    """
    ours = own.pop("ours", everywhere)
    outcomes = {"torch": everywhere, "fused": ours, "eager": ours} | own

    def register(run: Run) -> Run:
        USES.append(Use(GROUPS[-1], text, run, **outcomes, only=frozenset(only), as_torch=as_torch, why=why))
        return run

    return register


def refused_here(text: str, fix: str, only: Iterable[str] = (), why: str = "") -> Callable[[Run], Run]:
    """Put a function into the list as a use that our layers refuse, and that torch's do not have."""
    return use(text, torch=NOT_RUN, ours=Refused(fix), only=only, why=why)


def group(name: str) -> None:
    """Begin a group of uses."""
    GROUPS.append(name)
