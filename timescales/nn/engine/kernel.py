"""Which cells have a fast kernel, and which one. The fused, graph and cuDNN engines and `auto` use this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells import GatedLSTMCell, LSTMCell, PLSTMCell, URLSTMCell
from timescales.nn.cells.cell import Cell

KINDS = ("lstm", "refine", "coupled", "separate")  # numbered as in `with_cell` of fused.cpp
GATES = {"lstm": 4, "refine": 4, "coupled": 3, "separate": 4}  # number of gates: blocks of rows in the weights
AGED = ("coupled", "separate")  # the power-law LSTMs, whose state has an age

_key = torch._C._TorchDispatchModeKey
TRACERS = (_key.PROXY, _key.FAKE)  # modes of make_fx and torch.export


class Kernel(NamedTuple):
    """A cell as a kernel sees it.

    kind: one of KINDS. power: exponents (H,), or (R, H) for batched seeds; None for a cell without a power law.
    epsilon, floor: constants of the power law (see `PLSTMCell`).
    threads: number of threads of fused.cpp. Backward uses forward's number, since the workspace is laid out for it.
    """

    kind: str
    power: Tensor | None = None
    epsilon: float = 0.0
    floor: float = 0.0
    threads: int = 1


def kernel_of(cell: Cell) -> Kernel | None:
    """The kernel for a cell, or None if there is none for this cell with these arguments.

    The exact class counts: a subclass may have other equations. Only the classes that torch puts before it (those of
    parametrizations and FSDP2) have the same ones.
    """
    kind = next(parent for parent in type(cell).__mro__ if not parent.__module__.startswith("torch."))
    if kind is LSTMCell:
        return Kernel("lstm")
    if kind is URLSTMCell:
        return Kernel("refine")
    if kind is PLSTMCell and isinstance(cell, PLSTMCell):
        p = cell.p
        power = p if isinstance(p, Tensor) else cell.weight_hh.new_full((cell.hidden_size,), p)
        return Kernel("coupled" if cell.coupled else "separate", power, cell.epsilon, cell.floor)
    if kind is GatedLSTMCell and isinstance(cell, GatedLSTMCell):
        if cell.mechanism.main != "sigmoid" or cell.zoneout_h or cell.zoneout_c:
            return None  # there are no kernels for cumax, master gates and zoneout
        # `weights` already includes the gate bias.
        return {"none": Kernel("lstm"), "refine": Kernel("refine")}.get(cell.mechanism.auxiliary)
    return None


def tracing_reason() -> str | None:
    """The reason why no kernel can run while torch traces or transforms its operations; None if it does not."""
    tracing = torch.jit.is_tracing() or any(torch._C._get_dispatch_mode(key) is not None for key in TRACERS)
    if tracing or torch._C._are_functorch_transforms_active():
        return "torch.func, torch.export and other tracers need torch's own operations; use engine='eager'"
    return None


Named = Sequence[tuple[str, Tensor | None]]  # tensors of a call, each with its name in messages


def unusual_reason(tensors: Named) -> str | None:
    """The reason why no kernel can read these tensors, each with its name; None if all of them are plain."""
    for name, tensor in tensors:
        if tensor is not None and not is_plain(tensor):
            found = type(tensor).__name__ if tensor.layout is torch.strided else tensor.layout
            return f"{name} must be plain tensors, not {found}; use engine='eager'"
    return None


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are those in its memory. A subclass (DTensor, FakeTensor, ...) may have none."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided


def check_backward(engine: str, grads: Iterable[Tensor | None]) -> None:
    """Raise RuntimeError for a backward pass that is itself differentiated, or that takes batched gradients."""
    # torch's once_differentiable does not report every case of create_graph=True.
    if torch.is_grad_enabled():
        raise RuntimeError(f"the {engine} engine has no second derivatives: for create_graph=True use engine='eager'")
    if any(g is not None and torch._C._functorch.is_legacy_batchedtensor(g) for g in grads):
        raise RuntimeError(f"the {engine} engine has no batched gradients: where is_grads_batched use engine='eager'")


def no_jvp(ctx: Any, *tangents: Any) -> None:
    """`jvp` of the autograd functions of the kernels: raises RuntimeError."""
    raise RuntimeError("this engine has no forward-mode derivatives: use engine='eager'")
