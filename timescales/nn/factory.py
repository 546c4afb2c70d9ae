"""Choose the device and the dtype of new parameters. torch.set_default_dtype would change the dtype in all threads."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def made_on(device: torch.device | str | None, dtype: torch.dtype | None) -> Iterator[None]:
    """Put the parameters that this thread makes in this context on a device, and draw them in a dtype."""
    with contextlib.ExitStack() as stack:
        if device is not None:
            stack.enter_context(torch.device(device))
        if dtype not in (None, torch.get_default_dtype()):
            stack.enter_context(DefaultDtype(dtype))
        yield


class DefaultDtype(TorchFunctionMode):
    """Give tensors that would have torch's default dtype this dtype instead."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") is None:
            is_float = func in (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye)
            if func in (torch.tensor, torch.full, torch.arange):  # unless they get integers or truth values
                is_float = func(*args, **kwargs).dtype is torch.get_default_dtype()
            if is_float:
                kwargs = kwargs | {"dtype": self.dtype}
        return func(*args, **kwargs)
