"""The relational memory core, with any of the nine gates of Gu et al. 2020."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.nn.cells.cell import Weights
from timescales.nn.cells.gated import GatedCell
from timescales.nn.inits import check_whole, timescale_of_gate
from timescales.nn.rnn import CellRNN


class RMCCell(GatedCell):
    """Relational memory core (RMC): memories that attend to each other and to the input, each behind a gate.

    The state is a matrix M of N memories with S numbers each, and H = N S. A step appends the input as a row, lets all
    rows attend to each other, and writes the result into the memories through gates, one for each number:

        x~ = W_x x + b_x
        A  = [M; x~]                                        N + 1 rows
        in each block:
            q, k, v = LN(W_qkv A + b_qkv), by head          one layer norm over a row of q, k and v of all heads
            A  = LN(A + softmax(q k^T / sqrt(K)) v)         K numbers in a key, the heads side by side
            A  = LN(A + W_2 relu(W_1 A + b_1) + b_2)        the same W_1 and W_2 in all blocks
        u  = tanh(A), without the input's row
        .  = W_g x~ + b_g + W_m tanh(M) + b_m               the pre-activation of a gate, the same weights for all rows
        M' = f M + i u                                      f and i from `.` by the table of `GatedCell`
        h' = the rows of M', side by side

    With gate "-" these are Santoro et al.'s gates, f = sigmoid(. + 1) and i = sigmoid(.).

    Arguments:
        input_size, hidden_size: sizes I and H.
        memories: the number of memories N. It must divide H. Default: 2.
        heads: number of heads of the attention; must divide S. Default: 1.
        memory_size: size S of a memory. None (default): H / N.
        key_size: size K of a key. None (default): that of a value, S / heads.
        blocks: number of blocks of attention in a step. Default: 1.
        gate: -, c, o, u, r, om, um, or, ur. Default: "-".
        gate_style: "unit" (default): each number of a memory has its own gates. "memory": each memory has one forget
            and one input gate; only for gate "-".
        forget_bias, T_max, downsize, train_bias, subtract_bias: see `GatedCell`. A cumax runs over the S units of a
            memory, downsize must divide S, "hidden_size" as T_max is S, and b has one value for each row of the main
            gate of a memory, the same for all memories.

    Init: M starts as the first N rows of the identity matrix, cut or filled with zeros to S columns; it is not trained.
    Weights are normal with standard deviation 1/sqrt(fan-in), cut at two of them; biases are 0; b as in `GatedCell`.
    The engines see W_g x~, and its biases, as part of gx: see `weights`.
    Source: Santoro et al. 2018 ("Relational recurrent neural networks") and their code; the gates: Gu, Gulcehre, Paine,
    Hoffman & Pascanu 2020, appendices B.1 and E.3.
    Not stated in the papers: how Gu et al. put their gates into the RMC. Here their gates replace the forget and the
    input gate, and the refine gate replaces the input gate.
    Differs: in the authors' first code q k^T is divided by sqrt(2 K + S / heads) (their paper and later code: sqrt(K)).
    Their paper starts from a random M, and prints an output gate that it says was not needed; their code has neither.
    """

    gates_plain = ("row", "input", "forget")
    gates_refine = ("row", "refine", "forget")
    gates_master = ("row", "master_forget", "master_input", "input", "forget")
    compiled = False  # attention mixes units

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        cell: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        memories: int = 2,
        heads: int = 1,
        memory_size: int | None = None,
        key_size: int | None = None,
        blocks: int = 1,
        gate: str = "-",
        gate_style: str = "unit",
        forget_bias: float = 1.0,
        T_max: str | float = "hidden_size",
        downsize: int = 16,
        train_bias: bool = True,
        subtract_bias: bool | None = None,
    ) -> None:
        sizes = {"memories": memories, "heads": heads, "blocks": blocks}
        sizes |= {name: n for name, n in (("memory_size", memory_size), ("key_size", key_size)) if n is not None}
        check_whole(**sizes)
        if gate_style not in ("unit", "memory"):
            raise ValueError(f"gate_style must be unit or memory, not {gate_style!r}")
        if gate_style == "memory" and gate != "-":
            raise ValueError(f"gate_style=memory is for gate='-': give gate_style=unit with gate={gate}")
        self.memories, self.heads, self.gate_style, self._blocks = memories, heads, gate_style, blocks
        self._memory_size, self._key_size = memory_size, key_size
        super().__init__(
            input_size,
            hidden_size,
            gate=gate,
            forget_bias=forget_bias,
            T_max=T_max,
            downsize=downsize,
            train_bias=train_bias,
            subtract_bias=subtract_bias,
        )

    def make_parameters(self) -> None:
        """Create and draw the parameters. Raises ValueError if the sizes do not fit together."""
        self._check_sizes()
        S = self.units
        rows = sum(map(self.gate_rows, self.gates[1:]))
        self.weight_ih = nn.Parameter(torch.empty(S, self.input_size))
        self.register_parameter("weight_hh", None)  # no matrix multiplies h
        self.bias = nn.Parameter(torch.empty(S))
        self.weight_gates = nn.Parameter(torch.empty(rows, S))
        self.bias_gates = nn.Parameter(torch.empty(rows))
        self.weight_memory = nn.Parameter(torch.empty(rows, S))
        self.bias_memory = nn.Parameter(torch.empty(rows))
        key_size = self._key_size or S // self.heads
        self.blocks = nn.ModuleList(AttentionBlock(S, self.heads, key_size) for _ in range(self._blocks))
        self.mlp = nn.Sequential(nn.Linear(S, S), nn.ReLU(), nn.Linear(S, S))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                draw_truncated_normal(parameter, 1.0 / math.sqrt(parameter.shape[1]))
            elif "bias" in name:
                nn.init.zeros_(parameter)

    def _check_sizes(self) -> None:
        """Raise ValueError if the sizes do not fit together."""
        H, N = self.hidden_size, self.memories
        if self._memory_size is not None and N * self._memory_size != H:
            raise ValueError(
                f"hidden_size is {H}, but memories x memory_size is {N} x {self._memory_size} = "
                f"{N * self._memory_size}: give that as hidden_size, or leave memory_size out"
            )
        if H % N:
            raise ValueError(f"hidden_size {H} must be a multiple of memories {N}: give {_near(H, N)}")
        if self.units % self.heads:
            raise ValueError(
                f"hidden_size / memories = {self.units} must be a multiple of heads {self.heads}: "
                f"give {_near(H, N * self.heads)} as hidden_size"
            )
        if self.mechanism.auxiliary == "master" and self.units % self.downsize:
            raise ValueError(
                f"hidden_size / memories = {self.units} must be a multiple of downsize {self.downsize}: "
                f"give downsize=1, or {_near(H, N * self.downsize)} as hidden_size"
            )

    @property
    def units(self) -> int:
        """Return the size S of a memory."""
        return self.hidden_size // self.memories

    def gate_rows(self, gate: str) -> int:
        """Return the number of rows of a gate for one memory."""
        return 1 if self.gate_style == "memory" else super().gate_rows(gate)

    def height(self, gate: str) -> int:
        """Return the number of rows in gx: S for the input's row x~; for a gate the rows of all memories."""
        return self.units if gate == "row" else self.memories * self.gate_rows(gate)

    def initial_state(self, *batch: int) -> State:
        """Return the memories before the first step: rows of the identity matrix, (*batch, H)."""
        identity = torch.eye(self.memories, self.units, dtype=self.weight_ih.dtype, device=self.weight_ih.device)
        return self.State(identity.flatten().expand(*batch, self.hidden_size))

    def weights(self) -> Weights:
        """Return the weights of gx: x~, and for each gate W_g x~ with its biases, once for each memory. hh has no rows.

        So W_g x~ = (W_g W_x) x + W_g b_x is computed for all steps at once, and no step adds constant vectors.
        """
        ih = self.weight_gates @ self.weight_ih
        bias = self.weight_gates @ self.bias + self.bias_gates + self.bias_memory
        rows = [self.gate_rows(gate) for gate in self.gates[1:]]
        biases = dict(zip(self.gates[1:], bias.split(rows), strict=True))
        for gate, added in self.added_biases().items():
            biases[gate] = biases[gate] + added
        return Weights(
            torch.cat([self.weight_ih, *(w for part in ih.split(rows) for w in [part] * self.memories)]),
            self.weight_ih.new_empty(0, self.hidden_size),
            torch.cat([self.bias, *(b for part in biases.values() for b in [part] * self.memories)]),
        )

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the gates and the new value u, as `cell`, (..., H) each. gh is not read."""
        row, *inputs = gx.split([self.height(gate) for gate in self.gates], -1)
        M = self.by_memory(state.h).movedim(-2, 0)  # memories first: (N, ..., S)
        recurrent = F.linear(M.tanh(), self.weight_memory).movedim(0, -2)
        parts = recurrent.split([self.gate_rows(gate) for gate in self.gates[1:]], -1)
        pre = {g: self.by_memory(z) + m for g, z, m in zip(self.gates[1:], inputs, parts, strict=True)}
        f, i = (value.expand(*value.shape[:-1], self.units).flatten(-2) for value in self.effective(pre))
        return self.Act(i, f, self._attend(M, row).movedim(0, -2).flatten(-2))

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u)

    def _attend(self, M: Tensor, row: Tensor) -> Tensor:
        """Return the new value u of the memories (N, ..., S), from them and the input's row (..., S)."""
        A = torch.cat([M, row.unsqueeze(0)])
        for block in self.blocks[:-1]:
            A = block(A, len(A), self.mlp)
        return self.blocks[-1](A, self.memories, self.mlp).tanh()

    def by_memory(self, value: Tensor) -> Tensor:
        """Return numbers (..., N n) as (..., N, n), one row for each memory."""
        return value.unflatten(-1, (self.memories, -1))

    def timescales(self) -> Tensor:
        """Return -1 / ln f of the effective forget gate at zero input and M = 0, (H,). It is infinite where f is 1."""
        biases = self.by_gate(self.weights().bias())
        f, _ = self.effective({gate: self.by_memory(biases[gate]) for gate in self.gates[1:]})
        return timescale_of_gate(f).expand(*f.shape[:-1], self.units).flatten(-2)

    def extra_repr(self) -> str:
        style = f", gate_style={self.gate_style}" if self.gate_style != "unit" else ""
        return f"{super().extra_repr()}{style}, memories={self.memories}, heads={self.heads}"


class RMC(CellRNN):
    """Relational memory core: memories that attend to each other, each behind a gate. See `RMCCell`.

    Call: as `GRU`. Without a state the memories start as rows of the identity matrix, not as zeros. Attention has no
    kernel, so engine="auto" is the eager engine.
    Forgets: with one of the nine gating mechanisms, in memories that attend to each other.
    Source: Santoro et al. 2018; gates of Gu et al. 2020.
    """

    cell_class = RMCCell


class LayerNorm(nn.LayerNorm):
    """A layer norm with separate operations for scale and shift, so that it repeats the committed runs to the last bit.

    torch's own does all in one operation, and differs in the last bit.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, eps=self.eps) * self.weight + self.bias


class AttentionBlock(nn.Module):
    """Attention of rows to rows, then a perceptron for each row, both with a layer norm over their sum with the rows.

    Arguments:
        size: numbers S of a row.
        heads: number of heads; divides S.
        key_size: numbers of a key and a query of one head.
    """

    def __init__(self, size: int, heads: int, key_size: int) -> None:
        super().__init__()
        self.heads, self.parts = heads, (key_size, key_size, size // heads)
        width = heads * sum(self.parts)
        self.qkv, self.qkv_norm = nn.Linear(size, width), LayerNorm(width)
        self.norm, self.mlp_norm = LayerNorm(size), LayerNorm(size)

    def forward(self, A: Tensor, n: int, mlp: nn.Module) -> Tensor:
        """Return the first n of the rows A (N + 1, ..., S) after the block, (n, ..., S). All rows are attended to."""
        by_head = self.qkv_norm(self.qkv(A)).unflatten(-1, (self.heads, -1)).movedim(0, -2)
        q, k, v = by_head.split(self.parts, -1)  # each (..., heads, N + 1, K or S / heads)
        attention = (q[..., :n, :] @ k.mT / math.sqrt(self.parts[0])).softmax(-1)
        A = self.norm(A[:n] + (attention @ v).movedim(-2, 0).flatten(-2))
        return self.mlp_norm(A + mlp(A))


@torch.no_grad()
def draw_truncated_normal(parameter: Tensor, deviation: float) -> None:
    """Fill a tensor from a normal distribution with this standard deviation, cut at two of them on either side.

    torch.nn.init.trunc_normal_ does the same, but reads the numbers of the tensor, which a FakeTensor does not have.
    """
    inside = math.erf(math.sqrt(2.0))  # the share of a normal distribution within two standard deviations
    share = torch.empty(parameter.shape, dtype=torch.float64).uniform_(-inside, inside)
    parameter.copy_(math.sqrt(2.0) * deviation * share.erfinv())  # in double: the last bit differs between processors


def _near(size: int, factor: int) -> str:
    """Return the multiples of `factor` next to a size that is not a multiple: "4 or 8"."""
    below = size // factor * factor
    return f"{below} or {below + factor}" if below else str(factor)
