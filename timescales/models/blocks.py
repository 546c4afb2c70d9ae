"""Residual blocks around the layers of an RNN.

Shapes: S steps, B sequences, I numbers per step, H units.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from timescales.nn import engine
from timescales.nn.cells.rmc import LayerNorm
from timescales.nn.engine.eager import fill_masked
from timescales.nn.rnn import RNN


class Block(nn.Module):
    """The parts around one layer: a norm before the layer, and a perceptron of the same width with a norm before it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = LayerNorm(size)
        self.mlp = nn.Sequential(LayerNorm(size), nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))


class ResidualBlocks(nn.Module):
    """Pre-norm residual blocks around the layers of an RNN.

        x = encoder(input)
        for each layer:    x = x + layer(norm(x))    x = x + W2 gelu(W1 norm(x))
        output = norm(x)

    The RNN's dropout acts on x between the blocks.

    Arguments:
        rnn: an RNN whose layers all have input size H and hidden size H. It is not a part of this module: `forward`
            gets it as an argument.
        input_size: the size I of the input.
    """

    blocks: Sequence[Block]

    def __init__(self, rnn: RNN, input_size: int) -> None:
        super().__init__()
        if len({size for cell in rnn.layers for size in (cell.input_size, cell.hidden_size)}) > 1:
            raise ValueError("block=residual adds a layer's output to its input: give one hidden_size for all layers")
        self.encoder = nn.Linear(input_size, rnn.hidden_size)
        self.blocks = nn.ModuleList(Block(rnn.hidden_size) for _ in rnn.layers)  # type: ignore[assignment]
        self.norm = LayerNorm(rnn.hidden_size)

    def forward(
        self,
        rnn: RNN,
        x: Tensor,
        state: Any = None,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Run the blocks as `RNN.forward` does: x (S, B, I) to the output (S, B, H) and the state of the RNN."""
        x = self.encoder(fill_masked(x, None, mask)[0])
        before = [None] * rnn.num_layers if state is None else rnn.split_state(state)
        run = functools.partial(engine.run, rnn.engine, reset=reset)
        after = []
        for k, (cell, block) in enumerate(zip(rnn.layers, self.blocks, strict=True)):
            if k:
                x = rnn.between_layers(x)
            output, end = cell(block.norm(x), before[k], dt, mask, run)
            x = x + output
            x = x + block.mlp(x)
            after.append(end)
        return self.norm(x), rnn.join_state(after)


def last_existing(output: Tensor, mask: Tensor | None) -> Tensor:
    """Return the output (S, B, H) at each sequence's last step that exists, (B, H). mask: (S, B), None if all exist."""
    if mask is None:
        return output[-1]
    steps = torch.arange(len(mask), device=mask.device).unsqueeze(1)
    last = (mask.bool() * steps).amax(0, keepdim=True).unsqueeze(-1)
    return output.gather(0, last.expand(1, *output.shape[1:])).squeeze(0)
