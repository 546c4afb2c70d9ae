"""Write torch's layer norms, variances and means as means over the units of a sequence, which `recorder.Mean` records.

Each function takes `mean`, a function from (B, n) to (B, 1), and then the arguments of torch's function. The gradient
of a variance with respect to its mean is zero, so that mean is detached. The gradient of a layer norm then needs one
stage of two means.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.nn.engine.recorder import NotTraceable

MeanOf = Callable[[Tensor], Tensor]


def _over_units(name: str, dim: Any, others: Any) -> None:
    dim = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    if dim not in ([-1], [1]) or isinstance(dim[0], bool) or any(v is not None for v in others.values()):
        raise NotTraceable(f"mixes units or sequences with {name}")


def _mean(mean: MeanOf, x: Tensor, dim: Any = None, keepdim: bool = False, **others: Any) -> Tensor:
    _over_units("mean", dim, others)
    return mean(x) if keepdim else mean(x).squeeze(-1)


def _var(
    mean: MeanOf,
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    **others: Any,
) -> Tensor:
    _over_units("var", dim, others)
    n, less = x.shape[-1], float(unbiased) if correction is None else correction
    if n <= less:
        raise NotTraceable("takes a variance of too few units")
    centred = x - mean(x).detach()
    var = mean(centred * centred) * (n / (n - less))
    return var if keepdim else var.squeeze(-1)


def _std(mean: MeanOf, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    var = _var(mean, x, *args, **kwargs)
    constant = var == 0.0  # of equal numbers the gradient is 0, as torch's
    return torch.where(constant, 0.0, torch.where(constant, 1.0, var).sqrt())


def _layer_norm(
    mean: MeanOf,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    _whole_rows(x, normalized_shape)
    out = (x - mean(x)) * (_var(mean, x, -1, False, True) + eps).rsqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _rms_norm(
    mean: MeanOf, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    _whole_rows(x, normalized_shape)
    out = x * (mean(x * x) + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    return out if weight is None else out * weight


def _whole_rows(x: Tensor, normalized_shape: Sequence[int]) -> None:
    if tuple(normalized_shape) != (x.shape[-1],):
        raise NotTraceable("normalizes several dimensions")


MEANS: dict[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    **dict.fromkeys((torch.mean, Tensor.mean), _mean),
    **dict.fromkeys((torch.var, Tensor.var), _var),
    **dict.fromkeys((torch.std, Tensor.std), _std),
}
