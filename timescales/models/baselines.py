"""Models that are not made of cells: torch's own LSTM and GRU, and a causal Transformer of torch's own modules.

A comparison needs a model that is not this package's. They stand where an RNN stands, between the encoder and the
readout of `SequenceModel`, but have no gates that can be seen: no `timescales()`, no `layers`.

Shapes: S steps, B sequences, I numbers per step, H units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Never

import torch
from torch import Tensor, nn

from timescales.errors import NotMadeFor


class Baseline(nn.Module):
    """Base class: a causal map of sequences, with steps that may be missing.

    A subclass has `run`, for sequences all of whose steps exist or whose missing steps are their last ones.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
        for name, value in sizes.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be one whole number of at least 1 in torch's own modules, not {value!r}")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout!r}")
        self.input_size, self.hidden_size, self.num_layers, self.dropout = input_size, hidden_size, num_layers, dropout

    @property
    def layers(self) -> Sequence[Never]:
        """None: raises NotMadeFor, the answer to every analysis that looks into cells."""
        kind = type(self).__name__
        raise NotMadeFor(f"{kind} is made of torch's own modules: it has no cells, gates or time scales to look at")

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """As `RNN.forward`: x (S, B, I) to the output (S, B, H), and the state. dt is not read.

        Raises ValueError for reset: torch's modules cannot begin again within a sequence.
        """
        if reset is not None:
            raise ValueError(
                f"{type(self).__name__} cannot begin again within a sequence, and the batch has reset: take layers of "
                "cells, such as model=lstm, or a task whose batches have none"
            )
        if mask is None:
            return self.run(x, state, None)
        exists = mask.bool()
        # The steps that exist go to the front, in their order: what follows them is read by none of them.
        order = (~exists).int().argsort(stable=True, dim=0).unsqueeze(-1)
        lengths = exists.sum(0)
        x = x.masked_fill(~exists.unsqueeze(-1), 0.0)
        output, after = self.run(x.gather(0, order.expand_as(x)), state, lengths)
        last = (exists.cumsum(0) - 1).unsqueeze(-1)  # of the steps that exist, up to each step
        shown = output.gather(0, last.clamp(min=0).expand(-1, -1, self.hidden_size))
        return torch.where(last >= 0, shown, self.output_before(output[0], state)), after

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """The output and the state; lengths: (B,), how many steps of each sequence exist; None for all."""
        raise NotImplementedError

    def output_before(self, like: Tensor, state: Any) -> Tensor:
        """The output (B, H) before the first step that exists."""
        return torch.zeros_like(like)

    def split_state(self, state: Any) -> list[Any]:
        """The state as a list with one entry, for a checkpoint; such a list is left as it is."""
        return [] if state is None else state if isinstance(state, list) else [state]

    def join_state(self, parts: Sequence[Any]) -> Any:
        """Inverse of `split_state`."""
        return tuple(parts[0]) if parts else None

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, dropout={self.dropout}"


class TorchRNN(Baseline):
    """Base class of torch's recurrent layers: `kind` is their class. The state is (h_n, c_n), or (h_n,) of a GRU."""

    kind: type[nn.LSTM] | type[nn.GRU]

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        self.module = self.kind(input_size, hidden_size, num_layers, dropout=dropout)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """By torch's kernel; with lengths by its packed sequences."""
        begin = None if state is None else state[0] if self.kind is nn.GRU else tuple(state)
        if lengths is None:
            output, after = self.module(x, begin)
            return output, after if isinstance(after, tuple) else (after,)
        # A packed sequence has at least one step. Where none exists the state stays.
        counted = lengths.clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, counted, enforce_sorted=False)
        output, after = self.module(packed, begin)
        output, _ = nn.utils.rnn.pad_packed_sequence(output, total_length=len(x))
        after = after if isinstance(after, tuple) else (after,)
        before = [torch.zeros_like(part) for part in after] if state is None else state
        none = (lengths == 0).view(1, -1, 1)
        return output, tuple(torch.where(none, old, new) for old, new in zip(before, after, strict=True))

    def output_before(self, like: Tensor, state: Any) -> Tensor:
        """The last layer's h of the state, (B, H)."""
        return torch.zeros_like(like) if state is None else state[0][-1]


class TorchLSTM(TorchRNN):
    """torch.nn.LSTM, as torch has it: its weights, its kernels, one number of units for all layers.

    Arguments:
        input_size, hidden_size, num_layers, dropout: as torch.nn.LSTM.

    Forgets: exponentially, at a rate that it learns; its gates cannot be seen.
    Source: Hochreiter & Schmidhuber 1997.
    """

    kind = nn.LSTM


class TorchGRU(TorchRNN):
    """torch.nn.GRU, as torch has it: its weights, its kernels, one number of units for all layers.

    Arguments:
        input_size, hidden_size, num_layers, dropout: as torch.nn.GRU.

    Forgets: exponentially, at a rate that it learns; its gates cannot be seen.
    Source: Cho et al. 2014.
    """

    kind = nn.GRU


class Transformer(Baseline):
    """A causal Transformer of torch's own modules: each step attends to itself and to the steps before it.

        x = W input + position
        for each layer:    x = x + attention(norm(x))    x = x + W2 gelu(W1 norm(x))
        output = norm(x)

    Arguments:
        input_size: the numbers I of a step.
        hidden_size: the numbers H of a step between the layers; a multiple of heads.
        num_layers: number of layers. Default: 1.
        dropout: torch's, on attention, on the sums and in the perceptron. Default: 0.
        heads: heads of the attention. Default: 2.
        feedforward: hidden units of the perceptron. None (default): 4 H.
        positions: "sinusoidal" (default; H must be even) or "learned".
        longest: the number of learned positions: a longer sequence raises ValueError. Default: 2048.

    The context is the batch: no state is carried, so a task that carries one (a text in segments) is read in segments
    that know nothing of each other. Missing steps have no position and are attended to by none. dt is not read.
    Forgets: not at all within a sequence: it attends to all steps; nothing is carried beyond it.
    Source: Vaswani et al. 2017; pre-norm: Xiong et al. 2020.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        dropout: float = 0.0,
        heads: int = 2,
        feedforward: int | None = None,
        positions: str = "sinusoidal",
        longest: int = 2048,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        if isinstance(heads, bool) or heads < 1 or hidden_size % heads:
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of heads {heads}")
        if positions not in ("sinusoidal", "learned"):
            raise ValueError(f"positions must be sinusoidal or learned, not {positions!r}")
        if positions == "sinusoidal" and hidden_size % 2:
            raise ValueError(f"sinusoidal positions need an even hidden_size, not {hidden_size}")
        self.encoder = nn.Linear(input_size, hidden_size)
        self.positions = nn.Parameter(0.02 * torch.randn(longest, hidden_size)) if positions == "learned" else None
        layer = nn.TransformerEncoderLayer(
            hidden_size, heads, feedforward or 4 * hidden_size, dropout, "gelu", norm_first=True
        )
        norm = nn.LayerNorm(hidden_size)
        self.blocks = nn.TransformerEncoder(layer, num_layers, norm, enable_nested_tensor=False)
        for parameter in self.blocks.parameters():  # its layers are copies of one: each draws its own weights
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """The state is None: nothing is carried."""
        S = len(x)
        if self.positions is not None and len(self.positions) < S:
            raise ValueError(f"a sequence of {S} steps is longer than {len(self.positions)}: give longest={S} or more")
        added = sinusoids(S, self.hidden_size).to(x) if self.positions is None else self.positions[:S]
        mask = nn.Transformer.generate_square_subsequent_mask(S, x.device, x.dtype)
        return self.blocks(self.encoder(x) + added.unsqueeze(1), mask, is_causal=True), None


def sinusoids(steps: int, size: int) -> Tensor:
    """Positions (S, H): sine and cosine of the step at wavelengths from 2 pi to 10,000 times 2 pi, in turn."""
    rate = torch.exp(-math.log(1e4) * torch.arange(0, size, 2) / size)
    angle = torch.arange(steps).unsqueeze(1) * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
