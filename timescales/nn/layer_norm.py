"""A layer norm that repeats the committed runs to the last bit."""

from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm with separate operations for scale and shift.

    torch's own layer norm does all in one operation, and differs in the last bit: committed runs could not be repeated
    exactly.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, eps=self.eps) * self.weight + self.bias
