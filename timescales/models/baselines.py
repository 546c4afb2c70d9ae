"""Baselines that are not made of cells: torch's LSTM and GRU, a causal Transformer, dilated layers, and convolutions.

A comparison needs a model that is not this package's. A baseline takes the place of an RNN, between the encoder and the
readout of `SequenceModel`, but has no gates to look at: no `timescales()`, no `layers`.

Shapes: S steps, B sequences, I numbers per step, H units.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Never

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from timescales.errors import NotMadeFor
from timescales.nn.inits import check_whole


class Baseline(nn.Module):
    """Base class: a causal map of sequences, some of whose steps may be missing.

    A subclass implements `run`, for sequences without missing steps, or whose missing steps are their last ones.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        check_whole(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout!r}")
        self.input_size, self.hidden_size, self.num_layers, self.dropout = input_size, hidden_size, num_layers, dropout

    @property
    def layers(self) -> Sequence[Never]:
        """Raise NotMadeFor, which every analysis of cells reports."""
        kind = type(self).__name__
        raise NotMadeFor(f"{kind} is not made of cells: it has no gates or time scales to look at")

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Run the model as `RNN.forward` does: x (S, B, I) to the output (S, B, H), and the state. dt is not read.

        Raises: ValueError for reset: torch's modules cannot reset the state within a sequence.
        """
        if reset is not None:
            raise ValueError(
                f"{type(self).__name__} cannot reset the state within a sequence, and the batch has reset: use layers "
                "of cells, such as model=lstm, or a task whose batches have no reset"
            )
        if mask is None:
            return self.run(x, state, None)
        exists = mask.bool()
        # Move the steps that exist to the front, in their order: they then do not read the missing steps.
        order = (~exists).int().argsort(stable=True, dim=0).unsqueeze(-1)
        lengths = exists.sum(0)
        x = x.masked_fill(~exists.unsqueeze(-1), 0.0)
        output, after = self.run(x.gather(0, order.expand_as(x)), state, lengths)
        last = (exists.cumsum(0) - 1).unsqueeze(-1)  # for each step, the last existing step up to it
        shown = output.gather(0, last.clamp(min=0).expand(-1, -1, self.hidden_size))
        return torch.where(last >= 0, shown, self.output_before(output[0], state)), after

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Return the output and the state. lengths: (B,), how many steps of each sequence exist; None for all."""
        raise NotImplementedError

    def output_before(self, like: Tensor, state: Any) -> Tensor:
        """Return the output (B, H) before the first step that exists."""
        return torch.zeros_like(like)

    def split_state(self, state: Any) -> list[Any]:
        """Return the state as a list with one entry, for a checkpoint. Such a list is returned unchanged."""
        return [] if state is None else state if isinstance(state, list) else [state]

    def join_state(self, parts: Sequence[Any]) -> Any:
        """Return the state from such a list. Inverse of `split_state`."""
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
        """Run torch's kernel, with lengths over packed sequences."""
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
        """Return the last layer's h of the state, (B, H)."""
        return torch.zeros_like(like) if state is None else state[0][-1]


class TorchLSTM(TorchRNN):
    """torch.nn.LSTM unchanged: its weights, its kernels, one number of units for all layers.

    Arguments:
        input_size, hidden_size, num_layers, dropout: as torch.nn.LSTM.

    Forgets: exponentially, at a rate that it learns; its gates cannot be seen.
    Source: Hochreiter & Schmidhuber 1997.
    """

    kind = nn.LSTM


class TorchGRU(TorchRNN):
    """torch.nn.GRU unchanged: its weights, its kernels, one number of units for all layers.

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

    No state is carried from one batch to the next: the segments of a text are read independently. Missing steps have no
    position, and no step attends to them. dt is not read.
    Forgets: nothing within a sequence, since it attends to all steps; everything beyond it.
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
        feedforward = 4 * hidden_size if feedforward is None else feedforward
        check_whole(heads=heads, feedforward=feedforward, longest=longest)
        if hidden_size % heads:
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of heads {heads}")
        if positions not in ("sinusoidal", "learned"):
            raise ValueError(f"positions must be sinusoidal or learned, not {positions!r}")
        if positions == "sinusoidal" and hidden_size % 2:
            raise ValueError(f"sinusoidal positions need an even hidden_size, not {hidden_size}")
        self.encoder = nn.Linear(input_size, hidden_size)
        self.positions = nn.Parameter(0.02 * torch.randn(longest, hidden_size)) if positions == "learned" else None
        layer = nn.TransformerEncoderLayer(hidden_size, heads, feedforward, dropout, "gelu", norm_first=True)
        norm = nn.LayerNorm(hidden_size)
        self.blocks = nn.TransformerEncoder(layer, num_layers, norm, enable_nested_tensor=False)
        for parameter in self.blocks.parameters():  # its layers are copies of one: each draws its own weights
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Return the output, and None: no state is carried."""
        S = len(x)
        if self.positions is not None and len(self.positions) < S:
            raise ValueError(f"a sequence of {S} steps is longer than {len(self.positions)}: give longest={S} or more")
        added = sinusoids(S, self.hidden_size).to(x) if self.positions is None else self.positions[:S]
        mask = nn.Transformer.generate_square_subsequent_mask(S, x.device, x.dtype)
        return self.blocks(self.encoder(x) + added.unsqueeze(1), mask, is_causal=True), None


def sinusoids(steps: int, size: int) -> Tensor:
    """Return positions (S, H): sine and cosine of the step at wavelengths from 2 pi to 10,000 times 2 pi, in turn."""
    rate = torch.exp(-math.log(1e4) * torch.arange(0, size, 2) / size)
    angle = torch.arange(steps).unsqueeze(1) * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class DilatedRNN(Baseline):
    """Recurrent layers, each of which goes back twice as many steps as the layer below, by torch's kernels.

        h_t of layer l = core(h_t of layer l - 1, own h_(t - d))    with d = 2^(l - 1): 1, 2, 4, ...

    Layer l reads its input as d interleaved sequences, which are rows of one batch.

    Arguments:
        input_size, hidden_size: sizes I and H.
        num_layers: number of layers. Default: 1, which is a plain recurrent layer.
        dropout: between layers. Default: 0.
        core: "gru" (default), "lstm", or "rnn", which is tanh(W x + b + U h).

    No state is carried from one batch to the next: the segments of a text are read independently. dt is not read.
    Init: torch's.
    Forgets: as its core, but the shortest path over 2^num_layers steps has about num_layers updates.
    Source: Chang et al. 2017 (arXiv 1710.02224).
    Differs: the distances always begin at 1.
    """

    CORES: ClassVar[dict[str, type[nn.RNNBase]]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, dropout: float = 0.0, core: str = "gru"
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        if core not in self.CORES:
            raise ValueError(f"core must be one of {', '.join(self.CORES)}, not {core!r}")
        kind: Any = self.CORES[core]
        self.cores = nn.ModuleList(kind(hidden_size if k else input_size, hidden_size) for k in range(num_layers))

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Return the output, and None: no state is carried."""
        S, B, _ = x.shape
        for k, core in enumerate(self.cores):
            d = 2**k
            n = -(-S // d)  # steps of each of the d sequences; the last ones may be zeros
            rows = functional.pad(x, (0, 0, 0, 0, 0, n * d - S)).reshape(n, d * B, x.shape[-1])
            x = core(rows)[0].reshape(n * d, B, self.hidden_size)[:S]
            if k + 1 < self.num_layers:
                x = functional.dropout(x, self.dropout, self.training)
        return x, None


class TCN(Baseline):
    """Temporal convolutional network: causal convolutions whose reach doubles with each layer.

        for each layer, d = 1, 2, 4, ...:
            y = drop(relu(conv(x)))    y = drop(relu(conv(y)))    x = relu(y + x)

    conv: reads kernel_size steps at distances of d, up to the present step, with weight normalisation. In the first
    layer x is mapped to H numbers before it is added, if it has another size.

    Arguments:
        input_size, hidden_size: sizes I and H.
        num_layers: number of layers, of two convolutions each. Default: 1.
        dropout: as above. Default: 0.
        kernel_size: steps that a convolution reads. Default: 7.

    No state is carried from one batch to the next. dt is not read.
    Init: torch's.
    Forgets: everything beyond its reach, 2 (kernel_size - 1) (2^num_layers - 1) steps back; it reads each step within.
    Source: Bai, Kolter & Koltun 2018 (arXiv 1803.01271).
    Differs: the authors' code draws the weights that map x to H numbers from N(0, .01^2).
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, dropout: float = 0.0, kernel_size: int = 7
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        if isinstance(kernel_size, bool) or not isinstance(kernel_size, int) or kernel_size < 2:
            raise ValueError(f"kernel_size must be a whole number of at least 2, not {kernel_size!r}")
        self.kernel_size = kernel_size
        sizes = [(input_size if k == 0 else hidden_size, hidden_size) for k in range(2 * num_layers)]
        self.convolutions = nn.ModuleList(
            parametrizations.weight_norm(nn.Conv1d(*size, kernel_size, dilation=2 ** (k // 2)))
            for k, size in enumerate(sizes)
        )
        self.added = nn.Identity() if input_size == hidden_size else nn.Conv1d(input_size, hidden_size, 1)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Return the output, and None: no state is carried."""
        x = x.permute(1, 2, 0)  # (B, I, S), as convolutions want it
        for k in range(0, len(self.convolutions), 2):
            y, back = x, (self.kernel_size - 1) * 2 ** (k // 2)
            for conv in self.convolutions[k : k + 2]:
                y = conv(functional.pad(y, (back, 0)))
                y = functional.dropout(y.relu(), self.dropout, self.training)
            x = (y + (x if k else self.added(x))).relu()
        return x.permute(2, 0, 1), None


class TrellisNet(Baseline):
    """Trellis network: causal convolutions with the gates of an LSTM and the same weights in all layers.

        for each layer, d = 1, 1, 2, 4, ...:
            c_t = f c_(t - d) + i tanh(.)    z_t = o tanh(c_t)    with . = W x_t + V x_(t - d) + A z_t + B z_(t - d) + b

    f, i, o are sigmoid(.). The first layer reads z = c = 0; the output is the last one's z.

    Arguments:
        input_size, hidden_size: sizes I and H.
        num_layers: number of layers. Default: 1.
        dropout: of units of z, the same in all steps and layers. Default: 0.

    No state is carried from one batch to the next. dt is not read.
    Init: weights, normalised by row, and bias N(0, .01^2), as in the authors' code.
    Forgets: everything beyond its reach, 2^(num_layers - 1) steps back.
    Source: Bai, Kolter & Koltun 2019 (arXiv 1810.06682).
    Differs: the readout reads all H units, in the authors' code some of them. Kernels have two steps. There is no
    dropout of inputs and weights, no loss on inner layers, and no state from batch to batch.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        of_x = nn.Conv1d(input_size, 4 * hidden_size, 2, bias=False)
        of_z = nn.Conv1d(hidden_size, 4 * hidden_size, 2)
        for parameter in (*of_x.parameters(), *of_z.parameters()):
            nn.init.normal_(parameter, std=0.01)
        self.of_x, self.of_z = parametrizations.weight_norm(of_x), parametrizations.weight_norm(of_z)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Return the output, and None: no state is carried."""
        x = x.permute(1, 2, 0)  # (B, I, S), as convolutions want it
        z = c = x.new_zeros(x.shape[0], self.hidden_size, x.shape[2])
        dropout_mask = functional.dropout(torch.ones_like(z[..., :1]), self.dropout, self.training)
        weight_x, weight_z = self.of_x.weight, self.of_z.weight
        for k in range(self.num_layers):
            d = 2 ** max(0, k - 1)
            if k != 1:  # the second layer has the distance of the first
                from_x = functional.conv1d(functional.pad(x, (d, 0)), weight_x, dilation=d)
            from_z = functional.conv1d(functional.pad(z * dropout_mask, (d, 0)), weight_z, self.of_z.bias, dilation=d)
            i, o, f, u = (from_x + from_z).chunk(4, 1)
            c = f.sigmoid() * functional.pad(c, (d, 0))[..., :-d] + i.sigmoid() * u.tanh()
            z = o.sigmoid() * c.tanh()
        return z.permute(2, 0, 1), None
