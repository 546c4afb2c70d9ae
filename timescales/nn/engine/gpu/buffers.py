"""The memory that the graph engine and the cluster engine work in."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from timescales.nn.engine.affine import affine
from timescales.nn.engine.equations import Block, Equations
from timescales.nn.engine.gpu.emit_cuda import Kernels
from timescales.nn.engine.scalar import Node

CHUNK = 64  # steps of a chunk of a scan over time


def engine_of(cluster: Kernels | None) -> str:
    """The name of the engine that has these kernels: the cluster engine, or without them the graph engine."""
    return "graph" if cluster is None else "cluster"


class Buffers:
    """Memory of one call of an engine on a GPU, for R seeds, S steps, B sequences and H units.

    The weights and z have the order of `equations.blocks`: x-only, sums, h-only. C is the number of rows of all blocks;
    a block has H / divisor of them, in the cluster engine H.

    z: (R, S, B, C). First the pre-activations, then their gradients. A cumax has its softmax there in between.
    hh: recurrent weights of the blocks with a recurrent share, (R, rows, H).
    states: by field, (R, S + 1, B, H), the state before each step and after the last. The first is h.
    vectors: (R, H) each. noises: (R, S, B, H) each.
    dt, mask: (R, S, B) or None. The mask is 1.0 where a step exists.
    wide: by expanded block, (E, R, B, H): at one step the numbers of all units, then their gradients; None without.
        In the cluster engine (E, R, S, B, H): each cumax, of all steps.
    again: (R, S, B), whether the state after a step is the initial one again, or None. initial: that state, by field
        (R, B, H), or None without `again`. outputs: by field, (R, S, B, H), what a step gave before the sequence began
        again, or None where the states after the steps are `states`, or are not asked for.
    d_output: gradient of the outputs, (R, S, B, H), or None. d_others: of the other fields after every step, or None.
    d_states, d_vectors: (R, B, H) each, gradients that are passed from step to step in backward. The gradient of a
        vector without gradient is None.
    d_initial: by field, (R, B, H), in a scan (R, K, B, H): sums; or None.
    d_dt: (R, S, B), or None if dt needs no gradient. d_dt_units: (R, B, H), its summands at one step; in a scan and
        in the cluster engine (R, S, B, H), of all steps.
    cluster: the kernels of the cluster engine, or None.

    affine: the affine maps of a step, if the cell is run as a scan over time in chunks (scan.py), or None. Then, with F
    fields and K chunks of `chunk` steps, maps (F, F, R, K, B, H), drives and starts (F, R, K, B, H) are the chunks'
    maps and what goes into them, and d_parts (R, K, B, H) each the gradients of the vectors.
    """

    d_output: Tensor | None = None

    def __init__(
        self,
        equations: Equations,
        sizes: tuple[int, int, int],
        H: int,
        device: torch.device,
        timed: bool,
        masked: bool,
        time_gradient: bool = False,
        resets: bool = False,
        every: bool = False,
        cluster: Kernels | None = None,
    ) -> None:
        R, S, B = sizes
        self.equations, self.sizes, self.H = equations, sizes, H
        self.given = (timed, masked, time_gradient, resets, every, cluster)
        self.timed, self.cluster = timed, cluster
        self.engine = engine_of(cluster)
        blocks = [block if cluster is None else block._replace(divisor=1) for block in equations.blocks]
        of_steps = () if cluster is None else (S,)
        self.columns = columns(blocks, H)
        self.x_columns = width(H, (block for block in blocks if block.has_x))
        self.first_h = width(H, (block for block in blocks if not block.has_h))
        C = width(H, blocks)
        empty = functools.partial(torch.empty, device=device, dtype=torch.float32)
        self.z, self.hh = empty(R, S, B, C), empty(R, C - self.first_h, H)
        self.states = [empty(R, S + 1, B, H) for _ in equations.fields]
        self.vectors = [empty(R, H) for _ in equations.vectors]
        self.noises = [empty(R, S, B, H) for _ in range(equations.noises)]
        self.dt = torch.ones(R, S, B, device=device, dtype=torch.float32) if timed else None
        self.mask = torch.ones(R, S, B, device=device, dtype=torch.float32) if masked else None
        F = len(equations.fields)
        self.again = torch.zeros(R, S, B, device=device, dtype=torch.uint8) if resets else None
        self.initial = [empty(R, B, H) if resets else None for _ in range(F)]
        self.outputs = [empty(R, S, B, H) if resets and (every or not k) else None for k in range(F)]
        self.d_others = [empty(R, S, B, H) if every else None for _ in range(F - 1)]
        self.expanded = [k for k, block in enumerate(blocks) if block.is_expanded]
        self.wide = empty(len(self.expanded), R, *of_steps, B, H) if self.expanded else None
        self.d_states = [empty(R, B, H) for _ in equations.fields]
        self.d_vectors = [None if is_zero(node) else empty(R, B, H) for node in equations.d_vectors]
        self.d_initial = [empty(R, B, H) if resets else None for _ in range(F)]
        self.d_dt = empty(R, S, B) if time_gradient else None
        self.d_dt_units = empty(R, *of_steps, B, H) if time_gradient else None
        self.affine = affine(equations)
        if self.affine is not None:
            # Two chunks at least, so that the trial of a cell and the steps before a capture run every pass.
            self.chunk = CHUNK if S > 2 * CHUNK else -(-S // 2)
            self.chunks = K = -(-S // self.chunk)
            self.maps, self.drives, self.starts = empty(F, F, R, K, B, H), empty(F, R, K, B, H), empty(F, R, K, B, H)
            self.d_parts = [empty(R, K, B, H) for _ in equations.vectors]
            self.d_initial = [empty(R, K, B, H) if resets else None for _ in range(F)]
            self.d_dt_units = empty(R, S, B, H) if time_gradient else None

    def like(self, steps: int) -> Buffers:
        """Buffers for another number of steps, filled with zeros."""
        R, _, B = self.sizes
        b = Buffers(self.equations, (R, steps, B), self.H, self.z.device, *self.given)
        if self.d_output is not None:
            b.d_output = torch.empty_like(b.states[0][:, 1:]).contiguous()
        for tensor in b.tensors():
            tensor.zero_()
        return b

    def after(self, k: int) -> Tensor:
        """Field k after every step, (R, S, B, H), before a sequence begins again."""
        outputs = self.outputs[k]
        return self.states[k][:, 1:] if outputs is None else outputs

    def d_after(self) -> list[Tensor | None]:
        """The gradients of the fields after every step, (R, S, B, H) each or None."""
        return [self.d_output, *self.d_others]

    def block(self, k: int, t: int | slice) -> Tensor:
        """The numbers of a block in z at step t, (R, B, H / divisor); at several steps (R, steps, B, H / divisor)."""
        return self.z[:, t, :, self.columns[k]]

    def recurrent(self, t: int) -> Tensor:
        """The blocks with a recurrent share in z at step t, (R, B, rows)."""
        return self.z[:, t, :, self.first_h :]

    def tensors(self) -> Iterator[Tensor]:
        """All buffers that exist."""
        for value in vars(self).values():
            for tensor in value if isinstance(value, list) else [value]:
                if isinstance(tensor, Tensor):
                    yield tensor

    def bytes(self) -> int:
        """Size of all buffers together."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())


def is_zero(node: Node) -> bool:
    """Whether an expression is the number 0."""
    return node.op == "constant" and node.value == 0.0


def width(H: int, blocks: Iterator[Block] | Sequence[Block]) -> int:
    """Number of rows of some blocks together."""
    return sum(H // block.divisor for block in blocks)


def columns(blocks: Sequence[Block], H: int) -> list[slice]:
    """The columns of each block in z."""
    ends = list(itertools.accumulate(H // block.divisor for block in blocks))
    return [slice(end - H // block.divisor, end) for block, end in zip(blocks, ends, strict=True)]
