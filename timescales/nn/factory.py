"""Where parameters are made, and of which dtype. torch.set_default_dtype would count in all threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What makes tensors of the default dtype, and what does so unless it is given whole numbers, or truth values.
FLOAT_FACTORIES = frozenset((torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye))
INFERRING_FACTORIES = frozenset((torch.tensor, torch.full, torch.arange))


@contextlib.contextmanager
def made_on(device: torch.device | str | None, dtype: torch.dtype | None) -> Iterator[None]:
    """Parameters that this thread makes within are on this device and of this dtype, and drawn in its precision."""
    with contextlib.ExitStack() as stack:
        if device is not None:
            stack.enter_context(torch.device(device))
        if dtype not in (None, torch.get_default_dtype()):
            stack.enter_context(DefaultDtype(dtype))
        yield


class DefaultDtype(TorchFunctionMode):
    """Tensors that would be of the default dtype are of this one."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") is None and (
            func in FLOAT_FACTORIES
            or (func in INFERRING_FACTORIES and func(*args, **kwargs).dtype is torch.get_default_dtype())
        ):
            kwargs = kwargs | {"dtype": self.dtype}
        return func(*args, **kwargs)
