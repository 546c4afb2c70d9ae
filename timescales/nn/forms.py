"""The forms in which torch.nn.LSTM takes sequences, and the one that layers compute: (S, B, ...).

a batch (S, B, I)           with batch_first (B, S, I)
one sequence (S, I)         its state is (n, H) instead of (n, B, H)
a PackedSequence            sequences of several lengths; the output is packed, too
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

# A layer in one direction: x (S, B, I), its state or None, dt, mask and reset to the output (S, B, H), the state after
# it, and, if they are wanted, the states after every step.
Layer = Callable[[Tensor, Any, Tensor | None, Tensor | None, Tensor | None], tuple[Any, ...]]


class Form:
    """The form of one call. x: as the caller gives it."""

    def __init__(self, x: Tensor | PackedSequence, batch_first: bool) -> None:
        self.packed = x if isinstance(x, PackedSequence) else None
        self.is_single = self.packed is None and x.dim() == 2  # type: ignore[union-attr]
        self.is_turned = batch_first and self.packed is None and not self.is_single
        self.lengths: Tensor | None = None  # of packed sequences, the longest first

    def steps(self, value: Any) -> Tensor:
        """x, dt, a mask or reset in the form (S, B, ...)."""
        if self.packed is not None:
            padded, self.lengths = pad_packed_sequence(PackedSequence(value.data, self.packed.batch_sizes))
            return padded
        if self.is_single:
            return value.unsqueeze(1)
        return value.transpose(0, 1) if self.is_turned else value

    def mask(self, x: Tensor) -> Tensor | None:
        """The mask of packed sequences, (S, B); None if all have the same length. x: what `steps` made of them."""
        if self.lengths is None or self.lengths[-1] == len(x):
            return None
        return torch.arange(len(x), device=x.device).unsqueeze(1) < self.lengths.to(x.device)

    def state(self, value: Tensor) -> Tensor:
        """A layer's state from the caller's form to (B, H), in the order of the sequences in x."""
        if self.packed is not None and self.packed.sorted_indices is not None:
            return value.index_select(-2, self.packed.sorted_indices)
        return value.unsqueeze(0) if self.is_single else value

    @property
    def changes_state(self) -> bool:
        """Whether `state` and `last` change anything."""
        return self.is_single or (self.packed is not None and self.packed.sorted_indices is not None)

    def batch(self, x: Any) -> tuple[int, ...]:
        """The shape of a layer's state in the caller's form, without its units."""
        if self.packed is not None:
            return (int(self.packed.batch_sizes[0]),)
        if self.is_single:
            return ()
        return tuple((x.transpose(0, 1) if self.is_turned else x).shape[1:-1])

    def output(self, value: Tensor) -> Any:
        """The output (S, B, ...) in the caller's form. Inverse of `steps`."""
        if self.packed is not None:
            assert self.lengths is not None
            return PackedSequence(pack_padded_sequence(value, self.lengths).data, *self.packed[1:])
        if self.is_single:
            return value.squeeze(1)
        return value.transpose(0, 1) if self.is_turned else value

    def last(self, value: Tensor) -> Tensor:
        """A layer's state (B, H) in the caller's form. Inverse of `state`."""
        if self.packed is not None and self.packed.unsorted_indices is not None:
            return value.index_select(-2, self.packed.unsorted_indices)
        return value.squeeze(0) if self.is_single else value


def run_layers(
    layers: Sequence[Layer],
    bidirectional: bool,
    x: Tensor,
    states: Sequence[Any],
    dt: Tensor | None,
    mask: Tensor | None,
    reset: Tensor | None,
    between: Callable[[Tensor], Tensor],
) -> tuple[Tensor, list[Any], list[Any]]:
    """Run layers over x (S, B, I), each over the output of the one before.

    Arguments:
        layers: with bidirectional two of each, the second for the sequence in reverse; their outputs are concatenated.
        states: as many, each the layer's own state or None.
        between: what is done to the input of every layer but the first: dropout.

    Returns: the output, the state of each layer, and the states of each layer after every step, if layers give them.
    """
    after, every = [], []
    reverse = None
    if bidirectional:
        reverse = reversed_dt(dt, mask, reset), None if mask is None else mask.flip(0), reversed_reset(reset)
    for k in range(0, len(layers), 1 + bidirectional):
        x = between(x) if k else x
        output, end, *steps = layers[k](x, states[k], dt, mask, reset)
        after.append(end)
        every += steps
        if reverse is not None:
            back, end, *steps = layers[k + 1](x.flip(0), states[k + 1], *reverse)
            output = torch.cat([output, back.flip(0)], -1)
            after.append(end)
            every += [type(kept)(*(value.flip(0) for value in kept)) for kept in steps]
        x = output
    return x, after, every


def reversed_reset(reset: Tensor | None) -> Tensor | None:
    """Where sequences begin in reverse: a boundary before a step is one after it. Nothing is before the first step."""
    if reset is None or not len(reset):
        return reset
    return torch.cat([torch.zeros_like(reset[:1]), reset[1:].flip(0)])


def reversed_dt(dt: Tensor | None, mask: Tensor | None, reset: Tensor | None) -> Tensor | None:
    """dt (S, B) of the sequences in reverse, where a step follows the one that was after it.

    The step that comes first then has the dt of the one that came first before. Steps that do not exist are left out.
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
