"""Which cells have a fast kernel, and which one: what the fused, graph and cuDNN engines and `auto` all go by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells import GatedLSTMCell, LSTMCell, PLSTMCell, URLSTMCell
from timescales.nn.cells.cell import Cell

KINDS = ("lstm", "refine", "coupled", "separate")  # as `with_cell` in fused.cpp numbers them; pLSTM has two


_key = torch._C._TorchDispatchModeKey
TRACERS = (_key.PROXY, _key.FAKE)  # make_fx, torch.export; what only watches is none of them


class Kernel(NamedTuple):
    """A cell as its kernel knows it: one of KINDS, and its constants."""

    kind: str
    power: Tensor | None = None  # (H,)
    epsilon: float = 0.0
    floor: float = 0.0
    threads: int = 1  # of fused.cpp; backward's are forward's: the workspace is laid out for them


def kernel_of(cell: Cell) -> Kernel | None:
    """The kernel for a cell; None if there is none, or none for its arguments.

    By exact class: a subclass may have another step, and only its author knows.
    """
    if type(cell) is LSTMCell:
        return Kernel("lstm")
    if type(cell) is URLSTMCell:
        return Kernel("refine")
    if type(cell) is PLSTMCell:
        p = cell.p
        power = p if isinstance(p, Tensor) else cell.weight_hh.new_full((cell.hidden_size,), p)
        return Kernel("coupled" if cell.coupled else "separate", power, cell.epsilon, cell.floor)
    if type(cell) is GatedLSTMCell and cell.mechanism.main == "sigmoid" and not (cell.zoneout_h or cell.zoneout_c):
        # A cumax, master gates and zoneout have no kernel; bias laws are in the weights already.
        return {"none": Kernel("lstm"), "refine": Kernel("refine")}.get(cell.mechanism.auxiliary)
    return None


def traced() -> str:
    """Why no kernel can run now: torch traces or transforms its operations, and a kernel is none; "" if one can."""
    tracing = any(torch._C._get_dispatch_mode(key) is not None for key in TRACERS)
    if tracing or torch._C._are_functorch_transforms_active():
        return "torch.func, torch.export and whatever else traces want torch's own operations; use engine='eager'"
    return ""


def check_backward(engine: str, grads: Iterable[Tensor | None]) -> None:
    """Raise RuntimeError for a backward pass that is differentiated itself, or that takes many gradients at once."""
    if torch.is_grad_enabled():  # create_graph=True; torch's once_differentiable lets some cases pass in silence
        raise RuntimeError(f"the {engine} engine has no second derivatives: for create_graph=True use engine='eager'")
    if any(g is not None and torch._C._functorch.is_legacy_batchedtensor(g) for g in grads):
        raise RuntimeError(f"the {engine} engine has no batched gradients: where is_grads_batched use engine='eager'")


def no_jvp(ctx: Any, *tangents: Any) -> None:
    """Forward mode of a kernel: there is none."""
    raise RuntimeError("this engine has no forward-mode derivatives: use engine='eager'")
