"""Copy cells with other tensors: to trace a step, to run it again, and for trials."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Tensors(NamedTuple):
    """The tensors of a module, by name: parameters, buffers, attributes, and those of the modules in it."""

    parameters: dict[str, Tensor | None]
    buffers: dict[str, Tensor | None]
    attributes: dict[str, Tensor]
    modules: dict[str, Tensors | None]

    def all(self) -> list[Tensor]:
        """Return all tensors, also those of inner modules."""
        own = [*self.parameters.values(), *self.buffers.values(), *self.attributes.values()]
        inner = [tensor for inside in self.modules.values() if inside is not None for tensor in inside.all()]
        return [*(tensor for tensor in own if tensor is not None), *inner]

    def free(self) -> None:
        """Free the memory of the tensors when only their shape and dtype are still needed."""
        for tensor in self.all():
            tensor.data = tensor.new_zeros(()).expand(tensor.shape)


def tensors_on_cpu(module: nn.Module, dtype: torch.dtype) -> Tensors:
    """Return copies of a module's tensors on the CPU. Parameters and buffers get the given dtype."""

    def copied(value: Tensor | None, is_state: bool = True) -> Tensor | None:
        if value is None:
            return None
        copy = value.detach().to("cpu", dtype if is_state and value.is_floating_point() else None)
        if copy.is_inference():
            copy = copy.clone()
        if isinstance(value, nn.Parameter):
            return nn.Parameter(copy, value.requires_grad)
        return copy.requires_grad_(value.requires_grad)  # torch.func.functional_call puts tensors in their place

    return Tensors(
        {name: copied(value) for name, value in module._parameters.items()},
        {name: copied(value) for name, value in module._buffers.items()},
        {name: copied(v, False) for name, v in vars(module).items() if isinstance(v, Tensor)},  # type: ignore[misc]
        {name: None if inner is None else tensors_on_cpu(inner, dtype) for name, inner in module._modules.items()},
    )


def with_tensors(module: nn.Module, tensors: Tensors) -> Any:
    """Return a copy of a module with these tensors instead of its own. Everything else is shared with the module."""
    copy = object.__new__(type(module))
    copy.__dict__ = {**vars(module), **tensors.attributes}
    copy.__dict__ |= {"_parameters": tensors.parameters, "_buffers": tensors.buffers}
    if tensors.modules:
        copy.__dict__["_modules"] = {
            name: None if inside is None else with_tensors(module._modules[name], inside)  # type: ignore[arg-type]
            for name, inside in tensors.modules.items()
        }
    return copy
