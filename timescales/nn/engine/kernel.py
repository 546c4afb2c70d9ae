"""Checks of what kernels cannot do or read, with error messages of one line."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from timescales import torch_private
from timescales.torch_private import is_zero


def tracing_reason() -> str | None:
    """Return why no kernel can run while torch traces or transforms operations. Return None if it does neither."""
    if torch_private.is_recorded() or torch_private.is_transformed():
        return "torch.func, torch.export and other tracers need torch's own operations; use engine='eager'"
    return None


Named = Sequence[tuple[str, Tensor | None]]  # tensors of a call, each with its name for messages


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor has all its numbers in memory, one after another."""
    return not is_subclass(tensor) and tensor.layout is torch.strided and not is_zero(tensor)


def is_subclass(tensor: Tensor) -> bool:
    """Return whether a tensor is of a subclass (DTensor, FakeTensor, ...), whose numbers may be elsewhere."""
    return type(tensor) not in (Tensor, nn.Parameter)


def in_memory(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor whose memory on the CPU holds its numbers in this dtype. Copy it only if necessary.

    torch leaves out work that its own operations do later: a view may be marked as negated (x.conj().imag), a gradient
    as all zero, and both may be sparse. What hooks on saved tensors return may be of any type.
    """
    if is_subclass(tensor):
        raise RuntimeError(f"the fused engine cannot read a {type(tensor).__name__} in backward: use engine='eager'")
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    elif is_zero(tensor):
        tensor = tensor.clone()
    if tensor.dtype is not dtype or not tensor.is_cpu:  # `to` takes time even when it changes nothing
        tensor = tensor.to("cpu", dtype)
    return tensor.resolve_neg()


def is_dense(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Return whether a tensor's memory on the CPU holds its numbers in this dtype, one after another."""
    # Every call asks this of every tensor, so what is cheap and decides most comes first.
    return (
        tensor.dtype is dtype
        and type(tensor) in (Tensor, nn.Parameter)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not is_zero(tensor)
    )


def readable(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, int]:
    """Return a contiguous tensor with the numbers of `tensor`, copied only if necessary, and its address."""
    if not is_dense(tensor, dtype):
        tensor = in_memory(tensor, dtype).contiguous()
    return tensor, _address(name, tensor, shape, tensor.numel())


def address(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> int | None:
    """Return the address of a float32 tensor on the CPU for C++ code, which reads or writes as much as `shape` says.

    Return None for None. Only this function, `readable` and `address_of_rows` take addresses, by way of `_address`, so
    C++ code never leaves a tensor's memory.

    Raises: RuntimeError, in one line, unless the tensor has this shape, is contiguous and has all its memory.
    """
    if tensor is None:
        return None
    if not is_dense(tensor, torch.float32):
        raise RuntimeError(_unreadable(name, tensor))
    return _address(name, tensor, shape, tensor.numel())


def address_of_rows(name: str, tensor: Tensor, shape: tuple[int, ...]) -> int:
    """Return the address as `address` does, for a float32 tensor (., ., n) whose last dimension is contiguous."""
    last = tensor.stride()[-1:] == (1,) or tensor.shape[-1:] == (1,)
    if not last or tensor.dtype is not torch.float32 or not tensor.is_cpu or is_subclass(tensor) or tensor.is_neg():
        raise RuntimeError(_unreadable(name, tensor))
    numbers = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return _address(name, tensor, shape, numbers if tensor.numel() else 0)


def _address(name: str, tensor: Tensor, shape: tuple[int, ...], numbers: int) -> int:
    """Return the address if the memory holds `numbers` numbers from the first one on."""
    if tensor.shape != shape:
        found = tuple(tensor.shape)
        raise RuntimeError(f"the fused engine needs {name} {tuple(shape)}; it is {found}: use engine='eager'")
    if tensor.untyped_storage().nbytes() < (tensor.storage_offset() + numbers) * tensor.itemsize:
        raise RuntimeError(f"the memory of {name} {tuple(shape)} was freed or made smaller: use engine='eager'")
    return tensor.data_ptr()


def _unreadable(name: str, tensor: Tensor) -> str:
    found = f"{tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
    return f"the fused engine reads {name} as contiguous torch.float32 on the CPU, not {found}"


def is_differentiated(grads: Iterable[Tensor | None]) -> bool:
    """Return whether a backward pass is itself differentiated (create_graph=True), or gets batched gradients."""
    # torch's once_differentiable does not report every case of create_graph=True.
    return torch.is_grad_enabled() or any(g is not None and torch_private.is_batched(g) for g in grads)


def check_backward(engine: str, grads: Iterable[Tensor | None]) -> None:
    """Raise RuntimeError for a backward pass that is itself differentiated, or that gets batched gradients."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"the {engine} engine has no second derivatives: for create_graph=True use engine='eager'")
    if any(g is not None and torch_private.is_batched(g) for g in grads):
        raise RuntimeError(f"the {engine} engine has no batched gradients: where is_grads_batched use engine='eager'")
