"""Training steps as CUDA graphs: forward, losses, backward and clipping of a step in one launch.

With fast kernels the CPU needs longer to launch a step's operations, 90 of one seed, than the GPU to run them. The
operations of batches with the same shapes are captured when they come for the third time, and replayed from then on, in
tensors of their own into which each batch is copied. The optimizer stays outside: its learning rate and its counts are
numbers of the CPU, and it makes two or three launches. So do data, logs, validation and checkpoints.

Before a graph is used, its losses and gradients are compared with those of the step as it is launched otherwise. If
they differ, or if anything in a step needs the CPU (a number that is read, a random draw, a buffer that changes), one
line says so, and steps are launched as before. This has never run on a GPU; a test replays its operations on a CPU.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from timescales.models.sequence import Output, SequenceModel, State, detached
from timescales.nn.engine import kept
from timescales.tasks import Batch
from timescales.torch_private import tree_leaves, tree_map_only
from timescales.training.checkpoint import rng_state, set_rng_state
from timescales.training.stack import Single, Stack

KEPT = 4  # graphs of one training: whole and last batches
TOLERANCE = 1e-3  # of the largest number of a gradient, TF32 included
Losses = tuple[list[Tensor], list[Output]]
Compute = Callable[[Sequence[Batch], Sequence[State]], Losses]


def is_wanted(model: Single | Stack, device: torch.device) -> bool:
    """Whether to capture the steps of a model. Of models with more than a SequenceModel does, nothing is known."""
    return device.type == "cuda" and type(model.model) is SequenceModel


def tensors_of(*values: Any) -> list[Tensor]:
    """All tensors of nested values, in their order."""
    return [v for v in tree_leaves(values) if isinstance(v, Tensor)]


class StepGraph:
    """A captured step: its graph, and the tensors that it reads and writes."""

    def __init__(
        self,
        compute: Compute,
        batches: Sequence[Batch],
        states: Sequence[State],
        parameters: Sequence[nn.Parameter],
        pool: Any,
    ) -> None:
        from timescales.nn.engine.gpu import capture  # it imports Triton, which only a GPU needs

        self.parameters = parameters
        self.inputs = [v.clone() for v in tensors_of(batches, states)]
        mine = iter(self.inputs)
        results: list[Losses] = []
        copies = tree_map_only(Tensor, lambda _: next(mine), (batches, states))
        self.graph = capture.guarded(lambda: results.append(compute(*copies)), parameters[0].device, pool)
        losses, outputs = results[-1]
        self.losses = [loss.detach() for loss in losses]
        self.outputs = [Output(output.logits.detach(), detached(output.state)) for output in outputs]
        self.gradients = [p.grad for p in parameters]

    def __call__(self, batches: Sequence[Batch], states: Sequence[State]) -> Losses:
        """The step on other tensors of the same shapes."""
        for mine, value in zip(self.inputs, tensors_of(batches, states), strict=True):
            mine.copy_(value)
        self.graph.replay()
        for p, gradient in zip(self.parameters, self.gradients, strict=True):
            p.grad = gradient
        states = [tree_map_only(Tensor, Tensor.clone, output.state) for output in self.outputs]
        outputs = [Output(output.logits, state) for output, state in zip(self.outputs, states, strict=True)]
        return [loss.clone() for loss in self.losses], outputs


class StepGraphs(contextlib.AbstractContextManager[Any]):
    """The captured steps of one training, by the shapes of their batches. They are deleted at the end of the block."""

    def __init__(self, model: Single | Stack, device: torch.device) -> None:
        self.device, self.wanted = device, is_wanted(model, device)
        self.parameters = {name: v for name, v in model.tensors.items() if isinstance(v, nn.Parameter)}
        self.buffers = [v for name, v in model.tensors.items() if name not in self.parameters]
        self.seen: Counter[Any] = Counter()
        self.graphs: dict[Any, StepGraph] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.wanted and device.type == "cuda" else None

    def __exit__(self, *error: object) -> None:
        if self.graphs and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a graph must not be deleted while it runs
        self.graphs.clear()

    def of(self, compute: Compute) -> Compute:
        """`compute`, or its graph where there is one; gradients of the parameters must be None before it."""
        return functools.partial(self.run, compute) if self.wanted else compute

    def run(self, compute: Compute, batches: Sequence[Batch], states: Sequence[State]) -> Losses:
        """A step: launched the first time; the second time where the graph will be captured; then captured."""
        batches = [batch._replace(lr_scale=None) for batch in batches]  # it is the optimizer's
        form = tree_map_only(Tensor, lambda v: (tuple(v.shape), v.dtype), (batches, list(states)))
        key = repr(form), *(p.data_ptr() for p in self.parameters.values())
        self.seen[key] += 1
        if key in self.graphs:
            return self.graphs[key](batches, states)
        if len(self.graphs) >= KEPT or self.seen[key] not in (2, 3):
            return compute(batches, states)
        with alone():
            if self.seen[key] == 3:
                return self.captured(key, compute, batches, states)
            versions = [v._version for v in self.buffers]
            release_memory(self.device)
            with side_stream(self.device):
                results = compute(batches, states)
            if versions != [v._version for v in self.buffers]:
                self.refuse("it changes a buffer of the model")
            return results

    def captured(self, key: Any, compute: Compute, batches: Sequence[Batch], states: Sequence[State]) -> Losses:
        """Capture a step, and compare the graph with the step as it is launched, whose results are returned."""
        graph, reason, before = None, None, rng_state(self.device)
        try:
            graph = StepGraph(compute, batches, states, list(self.parameters.values()), self.pool)
            set_rng_state(before, self.device)
            graph(batches, states)
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        for p in self.parameters.values():
            p.grad = None
        set_rng_state(before, self.device)
        losses, outputs = compute(batches, states)
        if self.device.type == "cuda" and not torch.equal(before["cpu"], torch.get_rng_state()):
            reason = reason or "it draws random numbers on the CPU"
        if graph is not None:
            reason = reason or self.difference(graph, losses)
        if reason is not None or graph is None:
            self.refuse(reason or "")
        else:
            self.graphs[key] = graph
            release_memory(self.device)
        return losses, outputs

    def difference(self, graph: StepGraph, losses: Sequence[Tensor]) -> str | None:
        """What of a graph's numbers is not that of a step which was launched; None if nothing."""
        found: dict[str, tuple[Tensor | None, Tensor | None]]
        found = {f"the loss of seed {r}": (graph.losses[r], loss.detach()) for r, loss in enumerate(losses)}
        found |= {
            f"the gradient of {name}": (gradient, p.grad)
            for (name, p), gradient in zip(self.parameters.items(), graph.gradients, strict=True)
        }
        largest = max(float(b.abs().max()) for _, b in found.values() if b is not None)
        for name, (a, b) in found.items():
            if a is None and b is None:
                continue
            if a is None or b is None:
                return f"its graph is wrong: {name} is missing"
            bound = TOLERANCE * float(b.abs().max()) + 1e-6 * largest
            if not torch.allclose(a, b, rtol=0.0, atol=bound, equal_nan=True):
                return f"its graph is wrong: {name} differs"
        return None

    def refuse(self, reason: str) -> None:
        """Capture nothing from now on, and say why, once."""
        self.wanted = False
        if kept.is_new(f"training step: {reason}"):
            print(f"timescales: no CUDA graph of the training step, {reason}", file=sys.stderr)


def release_memory(device: torch.device) -> None:
    """Give back the memory that torch's allocator keeps for later calls: it keeps it for each stream and graph apart.

    Otherwise a step's memory may be held three times: for launched steps, for the one on the stream of captures, and
    for the graph. torch does the same at the beginning of a capture.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The block's calls of the engines are captured with the whole step, if at all, not by themselves."""
    from timescales.nn.engine.gpu import capture

    with capture.no_graphs():
        yield


@contextlib.contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """The stream on which graphs are captured: cuBLAS gets its memory for it, in autograd's thread too."""
    if device.type != "cuda":
        yield
        return
    from timescales.nn.engine.gpu import capture

    now, side = torch.cuda.current_stream(device), capture.side_stream(device)
    side.wait_stream(now)
    with torch.cuda.stream(side):
        yield
    now.wait_stream(side)
