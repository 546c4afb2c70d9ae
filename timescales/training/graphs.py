"""Capture training steps as CUDA graphs: forward, loss, backward and clipping of a step in one launch.

The engines launch kernels for every time step, and the CPU needs longer to launch them than the GPU to run them. So the
third time that batches have the same shapes, the step is captured, with its own tensors, into which each later batch is
copied. The graph does not contain the optimizer, data, logs and validation.

Before a graph is used, its loss and gradients are compared with those of a step without a graph. If they differ, or if
anything in a step needs the CPU, one line says so, and training continues without graphs. On a CPU the tests replay the
operations of a step in place of a graph.
"""

import contextlib
import functools
import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from timescales.models.sequence import Output, SequenceModel, State, detached
from timescales.nn.engine import caches
from timescales.nn.engine.gpu import tensors_of
from timescales.tasks import Batch
from timescales.torch_private import tree_map_only
from timescales.training.run import rng_state, set_rng_state

MAX_GRAPHS = 4  # graphs of one training: whole and last batches
TOLERANCE = 1e-3  # relative to the largest number of a gradient; TF32 included
Compute = Callable[[Batch, State], tuple[Tensor, Output]]  # a step's loss and output; gradients are left in .grad


def is_wanted(model: nn.Module, device: torch.device) -> bool:
    """Return whether to capture a model's steps: only on CUDA, of a SequenceModel. Others may need the CPU."""
    return device.type == "cuda" and type(model) is SequenceModel


def numbers_of(state: State) -> list[Tensor]:
    """Return the floating-point tensors of a state."""
    return [v.detach() for v in tensors_of(state) if v.is_floating_point()]


def capture(launch: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture what `launch` launches on a device. Return a function that launches the same kernels again.

    The first run is on another stream, as captures are, where cuBLAS takes its memory for it. Streams are those of the
    current device, which need not be the model's: on another one nothing would be captured, without an error.
    """
    with torch.cuda.device(device):
        now, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(now)
        with torch.cuda.stream(side):
            launch()
        now.wait_stream(side)
        graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        gc.disable()  # a CUDA graph that is deleted during a capture ends the capture (pytorch#161037)
        try:
            # The outer context restores the stream after a failed capture, which torch's own context does not.
            with torch.cuda.stream(now), torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                launch()
        except Exception:
            # torch's random generator expects the end of the failed capture, and draws nothing until one succeeds.
            with contextlib.suppress(Exception), torch.cuda.stream(now), torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(1, device=side.device).zero_()
            raise
        finally:
            if collects:
                gc.enable()

    def replay_on_device() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay_on_device


class StepGraph:
    """A captured step: what replays it, and the tensors that it reads and writes."""

    def __init__(
        self, compute: Compute, batch: Batch, state: State, parameters: Sequence[nn.Parameter], device: torch.device
    ) -> None:
        self.parameters = parameters
        self.inputs = [v.clone() for v in tensors_of(batch, state)]
        fixed = iter(self.inputs)
        copies = tree_map_only(Tensor, lambda _: next(fixed), (batch, state))
        results: list[tuple[Tensor, Output]] = []

        def launch() -> None:
            for p in parameters:
                p.grad = None
            results[:] = [compute(*copies)]

        self.replay = capture(launch, device)
        ((loss, output),) = results
        self.loss, self.output = loss.detach(), Output(output.logits.detach(), detached(output.state))
        self.gradients = [p.grad for p in parameters]

    def results(self) -> list[Tensor | None]:
        """Return what a replay writes: the loss, gradients, and the numbers of the state after the step."""
        return [self.loss, *self.gradients, *numbers_of(self.output.state)]

    def forget(self) -> None:
        """Overwrite the results of the capture, so that a replay that writes nothing is seen."""
        for v in self.results():
            if v is not None:
                v.detach().fill_(float("nan"))

    def __call__(self, batch: Batch, state: State) -> tuple[Tensor, Output]:
        """Run the step on other tensors of the same shapes."""
        for fixed, value in zip(self.inputs, tensors_of(batch, state), strict=True):
            fixed.copy_(value)
        self.replay()
        for p, gradient in zip(self.parameters, self.gradients, strict=True):
            p.grad = gradient
        return self.loss.clone(), Output(self.output.logits, tree_map_only(Tensor, Tensor.clone, self.output.state))


class StepGraphs(contextlib.AbstractContextManager[Any]):
    """The captured steps of one training, by the shapes of their batches. They are deleted at the end of the block."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.device, self.wanted = device, is_wanted(model, device)
        self.parameters, self.buffers = list(model.parameters()), list(model.buffers())
        self.seen: Counter[Any] = Counter()
        self.graphs: dict[Any, StepGraph] = {}

    def __exit__(self, *error: object) -> None:
        if self.graphs and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a graph must not be deleted while it runs
        self.graphs.clear()

    def of(self, compute: Compute) -> Compute:
        """Return `compute`, or its graph where there is one. Gradients of the parameters must be None before it."""
        return functools.partial(self.run, compute) if self.wanted else compute

    def run(self, compute: Compute, batch: Batch, state: State) -> tuple[Tensor, Output]:
        """Run a step. The first two of a shape are launched, which also compiles them; the third is captured."""
        batch = batch._replace(lr_scale=None)  # it is the optimizer's
        form = tree_map_only(Tensor, lambda v: (tuple(v.shape), v.dtype), (batch, state))
        key = repr(form), *(p.data_ptr() for p in self.parameters)
        self.seen[key] += 1
        if key in self.graphs:
            return self.graphs[key](batch, state)
        if self.wanted and len(self.graphs) < MAX_GRAPHS and self.seen[key] == 3:
            return self.captured(key, compute, batch, state)
        versions = [v._version for v in self.buffers]
        results = compute(batch, state)
        if versions != [v._version for v in self.buffers]:
            self.refuse("it changes a buffer of the model")
        return results

    def captured(self, key: Any, compute: Compute, batch: Batch, state: State) -> tuple[Tensor, Output]:
        """Capture a step, and compare the graph with the step as it is launched. Return the results of the latter.

        The step is launched first: a capture may take as much memory as a step once more, and if it does not get it,
        the training goes on without a graph.
        """
        before = rng_state(self.device)
        loss, output = compute(batch, state)
        after, gradients = rng_state(self.device), [p.grad for p in self.parameters]
        expected = [loss, *gradients, *numbers_of(output.state)]
        reason = None
        if self.device.type == "cuda" and not torch.equal(before["cpu"], after["cpu"]):
            reason = "it draws random numbers on the CPU"
        try:
            set_rng_state(before, self.device)
            graph = StepGraph(compute, batch, state, self.parameters, self.device)
            graph.forget()
            set_rng_state(before, self.device)
            graph(batch, state)
            if reason is None and not alike(graph.results(), expected):
                reason = "its graph gives other numbers"
            if reason is None:
                self.graphs[key] = graph
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        if reason is not None:
            self.refuse(reason)
        set_rng_state(after, self.device)
        for p, gradient in zip(self.parameters, gradients, strict=True):
            p.grad = gradient
        return loss, output

    def refuse(self, reason: str) -> None:
        """Use no graphs from now on, and print the reason once."""
        self.wanted = False
        if caches.is_first_warning(f"training step: {reason}"):
            print(f"timescales: training continues without a CUDA graph: {reason}", file=sys.stderr)


def alike(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> bool:
    """Return whether results are equal up to rounding."""
    if [v is None for v in found] != [v is None for v in expected]:
        return False
    pairs = [(a.detach(), b.detach()) for a, b in zip(found, expected, strict=True) if a is not None and b is not None]
    pairs = [(a, b) for a, b in pairs if b.numel()]
    largest = max(float(b.abs().max()) for _, b in pairs)
    bounds = [TOLERANCE * float(b.abs().max()) + 1e-6 * largest for _, b in pairs]
    return all(torch.allclose(a, b, rtol=0.0, atol=c, equal_nan=True) for (a, b), c in zip(pairs, bounds, strict=True))
