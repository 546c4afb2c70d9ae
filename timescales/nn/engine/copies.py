"""Copies of cells with other tensors: for the trace of a step, for running it again, and for trials."""

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
        """All of them."""
        own = [*self.parameters.values(), *self.buffers.values(), *self.attributes.values()]
        inner = [tensor for inside in self.modules.values() if inside is not None for tensor in inside.all()]
        return [*(tensor for tensor in own if tensor is not None), *inner]

    def free(self) -> None:
        """Free their memory, where only shape and dtype are still needed."""
        for tensor in self.all():
            tensor.data = tensor.new_zeros(()).expand(tensor.shape)


def tensors_on_cpu(module: nn.Module, dtype: torch.dtype) -> Tensors:
    """The tensors of a module on the CPU, of which parameters and buffers get a dtype."""

    def copied(value: Tensor | None, is_state: bool = True) -> Tensor | None:
        if value is None:
            return None
        copy = value.detach().to("cpu", dtype if is_state and value.is_floating_point() else None)
        if copy.is_inference():
            copy = copy.clone()
        if isinstance(value, nn.Parameter):
            return nn.Parameter(copy, value.requires_grad)
        return copy.requires_grad_(value.requires_grad)  # of torch.func.functional_call

    return Tensors(
        {name: copied(value) for name, value in module._parameters.items()},
        {name: copied(value) for name, value in module._buffers.items()},
        {name: copied(v, False) for name, v in vars(module).items() if isinstance(v, Tensor)},  # type: ignore[misc]
        {name: None if inner is None else tensors_on_cpu(inner, dtype) for name, inner in module._modules.items()},
    )


def with_tensors(module: nn.Module, tensors: Tensors) -> Any:
    """A copy of a module that has these tensors in the place of its own, and shares all else with it."""
    copy = object.__new__(type(module))
    copy.__dict__ = {**vars(module), **tensors.attributes}
    copy.__dict__ |= {"_parameters": tensors.parameters, "_buffers": tensors.buffers}
    if tensors.modules:
        copy.__dict__["_modules"] = {
            name: None if inside is None else with_tensors(module._modules[name], inside)  # type: ignore[arg-type]
            for name, inside in tensors.modules.items()
        }
    return copy


def copy_on_cpu(module: nn.Module, dtype: torch.dtype) -> Any:
    """A copy of a module with its tensors on the CPU; see `tensors_on_cpu`."""
    return with_tensors(module, tensors_on_cpu(module, dtype))
