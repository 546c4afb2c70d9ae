"""Weights from torch.nn.LSTM and torch.nn.GRU, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def from_torch(kind: type[Any], expected: type[nn.LSTM | nn.GRU], other: nn.LSTM | nn.GRU) -> Any:
    """An RNN of class `kind` with the weights of a module of torch's class `expected`.

    Raises ValueError for what has no counterpart here.
    """
    theirs = f"torch.nn.{expected.__name__}"
    if not isinstance(other, expected):
        raise ValueError(f"timescales.{kind.__name__} takes a {theirs}, not {type(other).__name__}")
    if other.bidirectional or other.proj_size or not other.bias:
        raise ValueError(f"only a one-directional {theirs} with biases and without proj_size converts")
    rnn = kind(other.input_size, other.hidden_size, other.num_layers, other.batch_first, other.dropout)
    first = next(other.parameters())
    rnn.to(first.device, first.dtype)
    with torch.no_grad():
        for k, cell in enumerate(rnn.layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                value = getattr(other, f"{name}_l{k}")
                getattr(cell, name).copy_(value).requires_grad_(value.requires_grad)
    return rnn.train(other.training)


def to_torch(rnn: Any, kind: type[Any]) -> Any:
    """A module of torch's class `kind` with the weights of an RNN. Raises ValueError if its layers differ in size."""
    if len({cell.hidden_size for cell in rnn.layers}) != 1:
        raise ValueError(f"only cells with equal hidden_size in every layer convert to torch.nn.{kind.__name__}")
    first = rnn.layers[0].weight_ih
    other = kind(
        rnn.input_size, rnn.hidden_size, len(rnn.layers), batch_first=rnn.batch_first, dropout=rnn.dropout
    ).to(first.device, first.dtype)  # fmt: skip
    with torch.no_grad():
        for k, cell in enumerate(rnn.layers):
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), cell.weights(), strict=True):
                getattr(other, f"{name}_l{k}").copy_(value).requires_grad_(getattr(cell, name).requires_grad)
    return other.train(rnn.training)
