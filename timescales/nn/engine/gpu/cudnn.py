"""The cuDNN engine: the plain LSTM by torch's own kernel.

On a CPU it is torch's CPU kernel, which `auto` never uses.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import torch_private
from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager, equations
from timescales.nn.engine.again import Again
from timescales.nn.engine.cpu.emit_cpp import cell_code
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.kept import with_equations


def unsupported_reason(
    cell: Cell,
    x: Tensor,
    masked: bool = False,
    found: Equations | str | None = None,
    stepwise: bool = False,
) -> str | None:
    """The reason why this engine cannot run `cell` over `x`, with the fix; None if it can.

    found: `equations.known`. stepwise: whether the call has resets, or asks for the states of all steps.
    """
    if not is_plain_lstm(cell, found):
        return f"it runs only the plain LSTM, not {type(cell).__name__}; use engine='auto'"
    if x.dtype != torch.float32 or cell.weight_hh.dtype != torch.float32:
        return f"x and the weights must be float32, not {x.dtype} and {cell.weight_hh.dtype}; use engine='eager'"
    if x.dim() != 3:
        return f"x must be (S, B, I), not {tuple(x.shape)}; use engine='auto' for batched seeds"
    if masked:
        return "it cannot hold the state where a mask is 0; use engine='auto'"
    if stepwise:
        return "it can neither begin again within a sequence nor return states; use engine='auto'"
    if x.is_cuda and not torch.backends.cudnn.is_acceptable(x):
        return "torch has no cuDNN here, or it is turned off; use engine='auto'"
    return None


def is_plain_lstm(cell: Cell, found: Equations | str | None = None) -> bool:
    """Whether a cell has the equations of torch.nn.LSTM, and their gradients. found: `equations.known`, if known."""
    found = equations.known(cell, timed=False) if found is None else found
    return not isinstance(found, str) and _is_lstm(found)


@with_equations
def _is_lstm(found: Equations) -> bool:
    return found.hoisted.used == [] and cell_code(found) == _lstm_code()


class CuDNNCell(Cell):
    """The equations that torch's kernel has: a cell with the same ones is recognised by them."""

    gates = ("input", "forget", "cell", "output")
    biases = 2

    class State(NamedTuple):
        h: Tensor
        c: Tensor

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, g, o = (gx + gh).chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        return self.State(o.sigmoid() * c.tanh(), c)


@functools.cache
def _lstm_code() -> str:
    return cell_code(equations.of_cell(CuDNNCell(1, 1), timed=False))


def run(
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    again: Again | None = None,
    states: bool = False,
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence; see `eager.run`. An LSTM does not use dt; mask, again and states are not supported.

    torch.backends.cudnn.allow_tf32 decides whether products are rounded to TF32.
    """
    assert mask is None, "see unsupported_reason"
    assert again is None, "see unsupported_reason"
    assert not states, "see unsupported_reason"
    if len(x) == 0:
        return eager.run(cell, x, weights, state)
    ih, hh, bias_ih, bias_hh = weights
    assert hh is not None, "an LSTM has recurrent weights"
    assert bias_ih is not None, "see arguments.fitted"
    parameters = [ih, hh, bias_ih, torch.zeros_like(bias_ih) if bias_hh is None else bias_hh]
    before_h, before_c = state  # in this order, whatever a cell calls them
    training = torch.is_grad_enabled()  # cuDNN keeps the activations for backward only in training mode
    # Autocast would use half precision, where a gate near 1 becomes 1 and forgets nothing.
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        # "weights are not part of single contiguous chunk": they are computed for this call.
        warnings.simplefilter("ignore", UserWarning)
        output, h, c = torch_private.lstm(
            x,
            (before_h.contiguous().unsqueeze(0), before_c.contiguous().unsqueeze(0)),
            parameters,
            *(True, 1, 0.0, training, False, False),  # biases, layers, dropout, training, bidirectional, batch first
        )
    return output, type(state)(h[0], c[0])
