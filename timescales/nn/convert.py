"""Conversion of weights from torch.nn.LSTM and torch.nn.GRU, and to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from timescales.nn.rnn import RNN, TORCH_WEIGHTS

OurRNN = TypeVar("OurRNN", bound=RNN)
TorchRNN = TypeVar("TorchRNN", nn.LSTM, nn.GRU)


def from_torch(kind: type[OurRNN], expected: type[TorchRNN], module: nn.Module) -> OurRNN:
    """An RNN of class `kind` with the weights of `module`, which must be a module of torch's class `expected`.

    Raises ValueError for a module that has no equivalent here, and for a weight that is no parameter (weight_norm).
    """
    name = f"torch.nn.{expected.__name__}"
    if not isinstance(module, expected):
        raise ValueError(f"timescales.{kind.__name__} takes a {name}, not {type(module).__name__}")
    if module.bidirectional or module.proj_size or not module.bias:
        raise ValueError(f"only a one-directional {name} with biases and without proj_size converts")
    make: Callable[..., OurRNN] = kind  # its first arguments are those of LSTM
    sizes = (module.input_size, module.hidden_size, module.num_layers)
    rnn = make(*sizes, batch_first=module.batch_first, dropout=module.dropout)
    first = next(module.parameters())
    rnn.to(first.device, first.dtype)
    with torch.no_grad():
        for k, cell in enumerate(rnn.layers):
            for parameter in TORCH_WEIGHTS:
                value = own_parameter(module, f"{parameter}_l{k}")
                cell.get_parameter(parameter).copy_(value).requires_grad_(value.requires_grad)
    return rnn.train(module.training)


def own_parameter(module: nn.Module, name: str) -> nn.Parameter:
    """A parameter of a module. Raises ValueError, with the fix, if it is computed from others, as weight_norm does."""
    own = module._parameters
    if isinstance(found := own.get(name), nn.Parameter):
        return found
    utils, first = "torch.nn.utils", f"(module, {name!r})"
    if parametrize.is_parametrized(module, name):
        kind, fix = "parametrized", f"{utils}.parametrize.remove_parametrizations{first}"
    elif f"{name}_mask" in module._buffers:
        kind, fix = "pruned", f"{utils}.prune.remove{first}"
    elif f"{name}_g" in own:
        kind, fix = "under weight_norm", f"{utils}.remove_weight_norm{first}"
    elif f"{name}_orig" in own:
        kind, fix = "under spectral_norm", f"{utils}.remove_spectral_norm{first}"
    else:  # AWD-LSTM's: the wrapper has the raw weight, and the layer what is left of it
        kind, fix = "no parameter, as under weight drop", f"module.{name} = torch.nn.Parameter(raw), its raw weight"
    raise ValueError(f"{name} of this {type(module).__name__} is {kind}: convert it after {fix}")


def rename_torchs_weights(rnn: RNN, state_dict: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Before a state_dict is loaded: rename torch's `weight_ih_l0` to `layers.0.weight_ih`, and so on."""
    for k in range(rnn.num_layers):
        for name in TORCH_WEIGHTS:
            if f"{prefix}{name}_l{k}" in state_dict:
                state_dict[f"{prefix}layers.{k}.{name}"] = state_dict.pop(f"{prefix}{name}_l{k}")


def to_torch(rnn: RNN, kind: type[TorchRNN]) -> TorchRNN:
    """A module of torch's class `kind` with the weights of `rnn`. Raises ValueError if the layers differ in size."""
    if len({cell.hidden_size for cell in rnn.layers}) != 1:
        raise ValueError(f"only cells with equal hidden_size in every layer convert to torch.nn.{kind.__name__}")
    first = rnn.layers[0].weight_ih
    options = {"batch_first": rnn.batch_first, "dropout": rnn.dropout}
    module = kind(rnn.input_size, rnn.hidden_size, len(rnn.layers), **options).to(first.device, first.dtype)
    with torch.no_grad():
        for k, cell in enumerate(rnn.layers):
            for parameter, value in zip(TORCH_WEIGHTS, cell.weights(), strict=True):
                assert value is not None, "an LSTM and a GRU have two bias vectors"
                trained = own_parameter(cell, parameter).requires_grad
                module.get_parameter(f"{parameter}_l{k}").copy_(value).requires_grad_(trained)
    return module.train(rnn.training)
