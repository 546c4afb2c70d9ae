"""Watch or replace a model's gates at every step."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from timescales.errors import ConfigError, NotMadeFor
from timescales.models.sequence import SequenceModel, State
from timescales.nn.engine import eager
from timescales.nn.rnn import RNN
from timescales.tasks import Batch


def needs_forget_gates(rnn: RNN) -> None:
    """Raise NotMadeFor unless every layer has a forget gate: an activation that `act` returns to `step`.

    Raises NotMadeFor for a cell without one, and ConfigError for a cell whose `step` or `act` hides it (docs/gates.md).
    """
    for cell in rnn.layers:
        name = type(cell).__name__
        if not hasattr(cell, "Act"):
            needed = "one with a field forget, and a method act that returns it"
            raise NotMadeFor(f"{name} has no class Act: this analysis needs {needed}; see docs/gates.md")
        if "forget" not in getattr(cell.Act, "_fields", ()):
            raise NotMadeFor(f"{name} has no forget gate: this analysis is for models with forget gates")
        act = _act_of_a_step(cell)
        if act is None:
            raise ConfigError(f"{name}.step must call self.act, where analyses see its gates; see docs/gates.md")
        if act.forget.shape != (2, cell.hidden_size):
            shape = f"(batch, hidden), here (2, {cell.hidden_size}), not {tuple(act.forget.shape)}"
            raise ConfigError(f"{name}.act must return forget of shape {shape}: use expand_as; see docs/gates.md")


@torch.no_grad()
def _act_of_a_step(cell: Any) -> Any:
    """Return what `act` returns in a step of two sequences at zero input; None if the step does not call it.

    In evaluation mode, in which no cell draws random numbers.
    """
    seen = []
    act, mode = cell.act, cell.training

    def noted(*arguments: Any, **named: Any) -> Any:
        seen.append(act(*arguments, **named))
        return seen[-1]

    cell.act = noted  # an attribute of the instance, which hides the method
    cell.eval()
    try:
        cell(cell.weight_ih.new_zeros(1, 2, cell.input_size), None, None, None, eager.run)
    finally:
        del cell.act
        cell.train(mode)
    return seen[0] if seen else None


@contextlib.contextmanager
def replaced(model: SequenceModel, replacement: Callable[[int, Any, Callable], Callable]) -> Iterator[None]:
    """Run the model on the eager engine with another `act` in every cell, while the context is open.

    replacement: called with layer, cell and the cell's `act`; returns the function to use instead.
    """
    engine, model.rnn.engine = model.rnn.engine, "eager"
    for layer, cell in enumerate(model.rnn.layers):
        # An attribute of the instance, which hides the method: `step` of every cell calls it.
        cell.act = replacement(layer, cell, cell.act)  # type: ignore[method-assign]
    try:
        yield
    finally:
        model.rnn.engine = engine
        for cell in model.rnn.layers:
            del cell.act


def watched(model: SequenceModel, read: Callable[[int, Any], None]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which `read(layer, act)` is called with the `Cell.act` of every step.

    The steps of a layer come in the order of time, one layer after the other.
    """

    def reporting(layer: int, cell: Any, act: Callable) -> Callable:
        def reported(*arguments: Any, **named: Any) -> Any:
            result = act(*arguments, **named)
            read(layer, result)
            return result

        return reported

    return replaced(model, reporting)


def recorded(
    model: SequenceModel, batch: Batch, state: State = None, read: Callable[[Any], Tensor] = lambda act: act.forget
) -> tuple[list[Tensor], State]:
    """Run a batch. Return the forget gates of every step, (S, B, H) for each layer, and the state after it.

    read: another value to take from the `Cell.act` of a step, (B, H).
    """
    found: list[list[Tensor]] = [[] for _ in model.rnn.layers]
    with watched(model, lambda layer, act: found[layer].append(read(act))):
        after = model(batch, state).state
    return [torch.stack(steps) for steps in found], after


def part(batch: Batch, sequences: slice) -> Batch:
    """Return some sequences of a batch, as a model's input. The targets are left out."""
    parts = (batch.mask, batch.dt, batch.reset)
    mask, dt, reset = (None if values is None else values[:, sequences] for values in parts)
    return Batch(batch.x[:, sequences], batch.x[:, sequences], mask, dt, reset=reset)
