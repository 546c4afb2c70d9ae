"""Convert between the forms of sequences that torch.nn.LSTM accepts and the one that layers compute, (S, B, ...).

a batch (S, B, I)           with batch_first (B, S, I)
one sequence (S, I)         its state is (n, H) instead of (n, B, H)
a PackedSequence            sequences of several lengths; the output is packed too
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from timescales.nn.cells.cell import Run

# A layer in one direction, called like `Cell.forward`: with x (S, B, I), its state or None, dt, mask and an engine. It
# returns the output (S, B, H), the state after it, and, if the engine gives them, the states after every step.
Layer = Callable[[Tensor, Any, Tensor | None, Tensor | None, Run], tuple[Any, ...]]


class Steps(NamedTuple):
    """What a call says about its steps, each (S, B) or None."""

    dt: Tensor | None
    mask: Tensor | None
    reset: Tensor | None


class Form:
    """The form of one call. x: as the caller gives it."""

    def __init__(self, x: Tensor | PackedSequence, batch_first: bool) -> None:
        self.packed = x if isinstance(x, PackedSequence) else None
        self.is_single = self.packed is None and x.dim() == 2  # type: ignore[union-attr]
        self.is_turned = batch_first and self.packed is None and not self.is_single
        self.lengths: Tensor | None = None  # of packed sequences, the longest first

    def sequences(self, x: Any, dt: Any = None, mask: Tensor | None = None, reset: Any = None) -> tuple[Tensor, Steps]:
        """Return the arguments of a call in the form (S, B, ...). Packed sequences of several lengths get a mask."""
        x, dt, mask, reset = (None if value is None else self.steps(value) for value in (x, dt, mask, reset))
        assert x is not None
        if self.lengths is not None and self.lengths[-1] < len(x):
            mask = torch.arange(len(x), device=x.device).unsqueeze(1) < self.lengths.to(x.device)
        return x, Steps(dt, mask, reset)

    def steps(self, value: Any) -> Tensor:
        """Return x, dt, a mask or reset in the form (S, B, ...)."""
        if self.packed is not None:
            padded, self.lengths = pad_packed_sequence(PackedSequence(value.data, self.packed.batch_sizes))
            return padded
        if self.is_single:
            return value.unsqueeze(1)
        return value.transpose(0, 1) if self.is_turned else value

    def before(self, state: Any) -> Any:
        """Return a layer's state from the caller's form as fields (B, H), in the order of x's sequences."""
        if self.packed is not None and self.packed.sorted_indices is not None:
            return type(state)(*(value.index_select(-2, self.packed.sorted_indices) for value in state))
        return type(state)(*(value.unsqueeze(0) for value in state)) if self.is_single else state

    def after(self, state: Any) -> Any:
        """Return a layer's state in the caller's form. Inverse of `before`."""
        if self.packed is not None and self.packed.unsorted_indices is not None:
            return type(state)(*(value.index_select(-2, self.packed.unsorted_indices) for value in state))
        return type(state)(*(value.squeeze(0) for value in state)) if self.is_single else state

    def batch(self, x: Any) -> tuple[int, ...]:
        """Return the shape of a layer's state in the caller's form, without its units."""
        if self.packed is not None:
            return (int(self.packed.batch_sizes[0]),)
        return () if self.is_single else (x.shape[0 if self.is_turned else 1],)

    def output(self, value: Tensor) -> Any:
        """Return the output (S, B, ...) in the caller's form. Inverse of `steps`."""
        if self.packed is not None:
            assert self.lengths is not None
            return PackedSequence(pack_padded_sequence(value, self.lengths).data, *self.packed[1:])
        if self.is_single:
            return value.squeeze(1)
        return value.transpose(0, 1) if self.is_turned else value


def run_layers(
    layers: Sequence[Layer], directions: int, x: Tensor, states: Sequence[Any], steps: Steps, run: Run, between: Any
) -> tuple[Tensor, list[Any], list[Any]]:
    """Run layers over x (S, B, I), each over the output of the one before.

    Arguments:
        layers: cells, or functions with the arguments of a cell. With two directions there are two for each layer, the
            second for the sequence in reverse; their outputs are concatenated.
        states: one for each of these, its own state or None. run: the engine.
        between: a function of the input of every layer but the first, such as dropout.

    Returns: the output, the state of each layer, and the states of each layer after every step, if `run` returns them.
    """
    results: list[tuple[Any, ...]] = []
    for k in range(0, len(layers), directions):
        x = between(x) if k else x
        results.append(layers[k](x, states[k], steps.dt, steps.mask, functools.partial(run, reset=steps.reset)))
        if directions == 2:
            results.append(run_in_reverse(layers[k + 1], x, states[k + 1], steps, run))
        x = results[k][0] if directions == 1 else torch.cat([results[k][0], results[k + 1][0]], -1)
    return x, [end for _, end, *_ in results], [every for _, _, *kept in results for every in kept]


def run_in_reverse(layer: Layer, x: Tensor, state: Any, steps: Steps, run: Run) -> tuple[Any, ...]:
    """Run a layer over the sequence in reverse. Its results are in the order of x."""
    dt, mask, reset = reversed_dt(*steps), steps.mask, reversed_reset(steps.reset)
    mask = None if mask is None else mask.flip(0)
    output, end, *every = layer(x.flip(0), state, dt, mask, functools.partial(run, reset=reset))
    return output.flip(0), end, *(type(kept)(*(value.flip(0) for value in kept)) for kept in every)


def reversed_reset(reset: Tensor | None) -> Tensor | None:
    """Return `reset` in reverse order: a boundary before a step becomes one after it. None is before step 0."""
    if reset is None or not len(reset):
        return reset
    return torch.cat([torch.zeros_like(reset[:1]), reset[1:].flip(0)])


def reversed_dt(dt: Tensor | None, mask: Tensor | None, reset: Tensor | None) -> Tensor | None:
    """Return dt (S, B) for the sequences in reverse, where a step follows the one that was after it.

    The step that comes first then gets the dt of the former first step. Steps that do not exist are left out.
    """
    if dt is None or not len(dt):
        return dt
    S = len(dt)
    steps = torch.arange(S, device=dt.device).view(S, *(1,) * (dt.dim() - 1)).expand_as(dt)
    here = steps if mask is None else torch.where(mask.bool(), steps, S)
    existing = here.flip(0).cummin(0).values.flip(0)  # the first step that exists, from each step on
    begin = torch.zeros_like(steps) if reset is None else torch.where(reset.bool(), steps, 0).cummax(0).values
    after = torch.cat([existing[1:], torch.full_like(existing[:1], S)])
    follows = (after < S) & (begin.gather(0, after.clamp(max=S - 1)) == begin)  # in the same sequence
    after = torch.where(follows, after, existing.gather(0, begin)).clamp(max=S - 1)
    return dt.gather(0, after).flip(0)
