"""What bench_gpu.py measures for a layer: forward and backward of each variant, their time and its lower bound."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_variants import Config
from torch import Tensor, nn

from timescales import GRU, LSTM, PLSTM, RMC, RNN, URLSTM, GatedRNN
from timescales.nn import engine as engines
from timescales.nn.engine import equations
from timescales.nn.engine.gpu import buffers, capture, emit_triton, loops, pointwise

SEEDS = 5  # as many as most tables have; they are trained together
UNIT = "nn.LSTM"
LOOP_PARTS = ("products", "kernels")  # of the graph engine's loops
KINDS: dict[str, tuple[Callable[..., RNN], dict[str, Any]]] = {  # by `choice.kind_of`
    "lstm": (LSTM, {}),
    "URLSTMCell": (URLSTM, {}),
    "PLSTMCell": (PLSTM, {}),
    "GRUCell": (GRU, {}),
    "GatedLSTMCell": (GatedRNN, {"gate": "om", "downsize": 4}),
}
OTHERS: dict[str, tuple[Callable[..., RNN], dict[str, Any]]] = {"RMCCell": (RMC, {"heads": 2})}  # without a kernel
PRECISIONS = {"fp32": "highest", "tf32": "high"}  # of float32 tensors; nn.LSTM is measured in "fp16", too
Step = Callable[[], object]


def set_precision(precision: str) -> None:
    """Set the precision of torch's and cuDNN's float32 products; "fp16" is a matter of the tensors."""
    torch.set_float32_matmul_precision(PRECISIONS.get(precision, "highest"))
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


# ------------------------------------------------------------------------------------------ variants of a layer


def make_step(name: str, config: Config, device: str, precision: str = "fp32") -> Step:
    """One forward and backward pass of a variant: nn.LSTM, "eager lstm", "graph PLSTMCell", "graph PLSTMCell x5".

    Parts of a pass: "products lstm" has the products within the loop over the steps, "kernels lstm" the pointwise
    kernels; "bare products" has all products of an LSTM, those before and after the loop too.

    "FlashRNN lstm" and "haste lstm" are kernels of others, where they are installed.
    "compiled RMCCell" is the eager engine with torch.compile; on a CPU, for a rehearsal, without its code generator.
    """
    S, B, I, H, _ = config  # noqa: E741
    first, _, rest = name.partition(" ")
    if name == "bare products":
        return products_step(config, device)
    if first in LOOP_PARTS:
        return part_step(first, rest, config, device)
    if several := re.fullmatch(r"(\w+) (\w+) x(\d+)", name):
        return batched_seeds_step(several[1], several[2], int(several[3]), config, device)
    if first == "FlashRNN":
        return flashrnn_step(config, device)
    if name == UNIT:
        model: nn.Module = nn.LSTM(I, H)
    elif first == "haste":
        import haste_pytorch  # built by hand from its repository: rarely here

        model = haste_pytorch.LSTM(I, H)
    else:
        engine, kind = name.split()
        make, arguments = (KINDS | OTHERS)[kind]
        is_compiled = engine == "compiled"
        model = make(I, H, engine="eager" if is_compiled else engine, **arguments)
        if is_compiled:
            model.compile(backend="inductor" if device != "cpu" else "aot_eager", fullgraph=True)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    model.to(device, dtype)
    x, d_output = torch.randn(S, B, I, device=device), torch.randn(S, B, H, device=device) / B
    x, d_output = x.to(dtype), d_output.to(dtype)

    def step() -> None:
        model.zero_grad()
        model(x)[0].backward(d_output)

    return step


def batched_seeds_step(engine: str, kind: str, seeds: int, config: Config, device: str) -> Step:
    """One forward and backward pass of several seeds in one call of an engine."""
    S, B, I, H, _ = config  # noqa: E741
    make, arguments = KINDS[kind]
    cell = make(I, H, **arguments).to(device).layers[0]
    for name, parameter in list(cell.named_parameters()):
        setattr(cell, name, nn.Parameter(parameter.detach().expand(seeds, *parameter.shape).contiguous()))
    x, d_output = torch.randn(S, seeds, B, I, device=device), torch.randn(S, seeds, B, H, device=device) / B
    state, wanted = cell.initial_state(seeds, B), list(cell.parameters())
    run = engines.pick(engine, cell, x)
    return lambda: torch.autograd.grad(run(cell, x, cell.weights(), state)[0], wanted, d_output)


def flashrnn_step(config: Config, device: str) -> Step:
    """One forward and backward pass of FlashRNN's LSTM with one head, in bfloat16, and the product before it."""
    from flashrnn import flashrnn  # it compiles its kernels, for which it needs nvcc: rarely here

    S, B, I, H, _ = config  # noqa: E741

    def new(*shape: int) -> Tensor:
        return (torch.randn(*shape, device=device) / H**0.5).bfloat16().requires_grad_()

    x, d_output = new(B, S, I).detach(), new(B, S, 1, H).detach()
    weights = ih, hh, bias = new(4 * H, I), new(4, 1, H, H), new(4, 1, H)

    def step() -> object:
        gates = nn.functional.linear(x, ih).view(B, S, 4, 1, H)
        states, _ = flashrnn(gates, hh, bias, function="lstm", backend="cuda_fused")
        return torch.autograd.grad(states[0], weights, d_output)

    return step


def products_step(config: Config, device: str) -> Step:
    """Only the matrix products of an LSTM, with preallocated results; captured in a graph on a GPU."""
    S, B, I, H, _ = config  # noqa: E741

    def new(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device)

    x, h, dz, ih, hh = new(S * B, I), new(S * B, H), new(S * B, 4 * H), new(4 * H, I), new(4 * H, H)
    z, dh, d_ih, d_hh = new(S * B, 4 * H), new(B, H), new(4 * H, I), new(4 * H, H)
    rows = [slice(t * B, (t + 1) * B) for t in range(S)]

    def step() -> None:
        torch.mm(x, ih.t(), out=z)
        for r in rows:
            z[r].addmm_(h[r], hh.t())
        for r in rows:
            torch.mm(dz[r], hh, out=dh)
        torch.mm(dz.t(), h, out=d_hh)
        torch.mm(dz.t(), x, out=d_ih)

    return step if device == "cpu" else captured(step)


def part_step(part: str, kind: str, config: Config, device: str) -> Step:
    """One part of the graph engine's loops over the steps, forward and backward, on numbers without a meaning."""
    S, B, I, H, _ = config  # noqa: E741
    make, arguments = KINDS[kind]
    cell = make(I, H, **arguments).layers[0]
    b = buffers.Buffers(equations.of_cell(cell, timed=False), (1, S, B), H, torch.device(device), False, False)
    b.d_output = torch.empty(1, S, B, H, device=device)
    for tensor in b.tensors():
        tensor.zero_()
    forward, backward = emit_triton.launch_forward, emit_triton.launch_backward
    if not loops.uses_triton(b):
        forward, backward = pointwise.step_forward, pointwise.step_backward

    def products() -> None:
        h, d_h = b.states[0], b.d_states[0]
        for t in range(S):
            b.recurrent(t)[0].addmm_(h[0, t], b.hh[0].t())
        for t in reversed(range(S)):
            d_h[0].addmm_(b.recurrent(t)[0], b.hh[0])

    def kernels() -> None:
        for t in range(S):
            forward(b, t)
        for t in reversed(range(S)):
            backward(b, t)

    step = products if part == "products" else kernels
    return step if device == "cpu" else captured(step)


def captured(step: Callable[[], None]) -> Step:
    """The replay of a CUDA graph of `step`."""
    stream, recorded = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # kernels are compiled, and an optimizer makes its state
            step()
    torch.cuda.synchronize()
    with capture.no_garbage_collection(), torch.cuda.graph(recorded, stream=stream):
        step()

    def replay(_: object = step) -> None:  # keeps `step` alive, and with it the tensors that the graph works in
        recorded.replay()

    return replay


# ------------------------------------------------------------------------------------------ timing


def seconds_of(step: Step, device: str) -> float:
    """Seconds of one call. On a GPU it is the time between two events, which includes idle time."""
    if device == "cpu":
        start_time = time.perf_counter()
        step()
        return time.perf_counter() - start_time
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def synchronize(device: str) -> None:
    """Wait until a GPU has finished."""
    if device != "cpu":
        torch.cuda.synchronize()


def measure_speeds(device: str) -> dict[str, float]:
    """Speeds of this device: bytes per second of a copy, operations per second of a large matrix product."""
    n, m = (2**28, 8192) if device != "cpu" else (2**20, 256)
    a, b = torch.randn(n, device=device), torch.empty(n, device=device)
    p, q, out = torch.randn(m, m, device=device), torch.randn(m, m, device=device), torch.empty(m, m, device=device)

    def best(step: Step) -> float:
        return min(seconds_of(step, device) for _ in range(6))

    speeds = {"copy bytes/s": 8 * n / best(lambda: b.copy_(a))}
    for precision in PRECISIONS:
        set_precision(precision)
        speeds[f"{precision} FLOP/s"] = 2 * m**3 / best(lambda: torch.mm(p, q, out=out))
    p, q, out = p.half(), q.half(), out.half()
    speeds["fp16 FLOP/s"] = 2 * m**3 / best(lambda: torch.mm(p, q, out=out))
    return speeds


def minimal_cost(kind: str, config: Config, seeds: int = 1) -> tuple[float, float]:
    """Bytes and operations that a step of the graph engine needs at least."""
    S, B, I, H, _ = config  # noqa: E741
    make, arguments = KINDS[kind]
    found = equations.of_cell(make(I, H, **arguments).layers[0], timed=False)
    G, states = buffers.width(H, found.blocks) / H, len(found.fields)
    # Forward writes pre-activations and states. Backward reads them and the gradient of the outputs, and writes dz. The
    # products for the weights read dz, h and x; the first product reads x.
    numbers = G + states + (G + states + 1) + G + (G + 1)
    moved = 4.0 * seeds * S * B * (H * numbers + 2 * I)
    return moved, 2.0 * seeds * S * B * G * H * (3 * H + 2 * I)


def lower_bound_ms(row: dict[str, Any], config: Config, speeds: dict[str, float]) -> float | None:
    """Milliseconds that the variant of a row needs at least on a device with these speeds; None for a part of it."""
    if row["variant"].split()[0] in LOOP_PARTS:
        return None
    kind = row["variant"].split()[1] if row["variant"].startswith("graph") else "lstm"
    seeds = SEEDS if row["variant"].endswith(f"x{SEEDS}") else 1
    moved, operations = minimal_cost(kind, config, seeds)
    return 1000 * max(moved / speeds["copy bytes/s"], operations / speeds[f"{row['precision']} FLOP/s"])
