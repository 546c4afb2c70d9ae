"""Linear maps and layer norm that also take the parameters of several seeds, stacked.

Shapes: R batched seeds, B sequences, I and O numbers in and out; `...` stands for steps or rows, or for nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b. For batched seeds, W is (R, O, I), b (R, O), and x (R, B, I) or (S, R, B, I)."""
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    if x.dim() == 4:  # one product for each seed instead of one for each step
        S, R, B, _ = x.shape
        folded = x.transpose(0, 1).reshape(R, S * B, x.shape[-1])
        return project(folded, weight, bias).view(R, S, B, weight.shape[-2]).transpose(0, 1)
    return x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)


class Linear(nn.Linear):
    """nn.Linear that also takes several seeds stacked: x (..., R, B, I) with a weight (R, O, I)."""

    def forward(self, x: Tensor) -> Tensor:
        return project(x, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm over the last dimension that also takes several seeds stacked: x (..., R, B, I), a weight (R, I)."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, self.normalized_shape, eps=self.eps)
        if self.weight is not None:
            y = y * self.weight.unsqueeze(-2)
        return y if self.bias is None else y + self.bias.unsqueeze(-2)
