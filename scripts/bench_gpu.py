"""Check and time the engines on a machine with a GPU, in a few minutes and without git, make or data sets.

    python scripts/bench_gpu.py                            # six minutes; writes gpu.json
    python scripts/bench_gpu.py --device cpu --minutes 3   # a rehearsal: small sizes, and torch writes no kernels

The JSON file has a list of rows for each stage, and is written again after each row. A row that fails has its error.

    machine    versions, device, driver
    cells      each cell in float32 against the eager engine in float64 on the CPU: output, state and gradients, without
               and with dt, mask and reset; which engine ran; seconds, with compilation. Most cells come at the end
    training   a short training whose steps are captured as CUDA graphs, and one without: the loss must fall
    speed      forward and backward of one layer, launched and as a CUDA graph, beside torch.nn.LSTM and GRU
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import itertools
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from timescales import RNN
from timescales.nn import cells, engine, registry

SIZES = {"A": (220, 128, 10, 128), "B": (784, 128, 1, 256), "L": (1000, 16, 64, 512)}  # S, B, I, H
SMALL = {"A": (20, 4, 3, 8)}  # of a rehearsal
TIMED = ("PLSTMCell", "URLSTMCell", "MinGRUCell", "LRUCell", "GatedLSTMCell")
MAIN = ("LSTMCell", "GRUCell", "PLSTMCell", "URLSTMCell", "MinGRUCell")
UNTIL = {"main cells": 0.35, "speed": 0.85, "cells": 1.0}  # shares of the time at which stages end
ENGINE = {"cuda": "auto", "cpu": "compiled"}  # on a CPU auto would take another one than on a GPU
TOLERANCE = 1e-3  # of the largest number of a tensor
FALLS = 0.8  # the last losses of a training must be below this share of the first


class TooLong(BaseException):
    """The minutes are over. It is no Exception: an engine that falls back to eager must not take it for a failure."""


class Report:
    """The rows of each stage, in a JSON file that is always whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, stage: str, make: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        """Make a row and write the file. An error becomes part of the row."""
        begun = time.monotonic()
        row: dict[str, Any] = {"of": [a for a in arguments if not isinstance(a, torch.device)]}
        with warnings.catch_warnings(record=True) as said, contextlib.redirect_stderr(io.StringIO()) as printed:
            warnings.simplefilter("always")
            try:
                row |= make(*arguments)
            except (Exception, TooLong) as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:500]
        lines = [*(str(w.message) for w in said), *printed.getvalue().splitlines()]
        if told := [line[:300] for line in lines if "eager engine" in line or "no CUDA graph" in line]:
            row["warnings"] = told
        row["seconds"] = round(time.monotonic() - begun, 1)
        self.rows.setdefault(stage, []).append(row)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.rows, indent=1))
        part.replace(self.path)
        print(stage, row, flush=True)


def machine(device: torch.device) -> dict[str, Any]:
    """Describe the machine."""
    name = str(torch.cuda.get_device_properties(device)) if device.type == "cuda" else "a rehearsal"
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {"device": name, **versions, "python": sys.version}


def numbers(rnn: RNN, x: Tensor, more: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return output, state and gradients of a call, by name, in float64 on the CPU."""
    x = x.clone().requires_grad_()
    output, state = rnn(x, **more)
    found = {"output": output} | {f"state {k}": v for k, v in enumerate(v for s in rnn.split_state(state) for v in s)}
    weight = [torch.linspace(-1.0, 1.5, v.numel(), device=v.device, dtype=v.dtype).view_as(v) for v in found.values()]
    loss: Any = sum((v * w).sum() for v, w in zip(found.values(), weight, strict=True))
    wanted = {"x": x} | {name: p for name, p in rnn.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(wanted.values()), materialize_grads=True, allow_unused=True)
    found |= {f"gradient of {name}": g for name, g in zip(wanted, gradients, strict=True)}
    return {name: v.detach().cpu().double() for name, v in found.items()}


def compared(name: str, arguments: dict[str, Any], everything: bool, device: torch.device) -> dict[str, Any]:
    """Compare a cell with the eager engine in float64. everything: whether the call has dt, mask and reset."""
    torch.manual_seed(0)
    S, B, I, H = (20, 16, 5, 32) if device.type == "cuda" else (12, 3, 5, 16)  # noqa: E741
    rnn = RNN([getattr(cells, name)(I, H, **arguments)]).eval()
    exact = copy.deepcopy(rnn).double()
    exact.engine, rnn.engine = "eager", ENGINE[device.type]
    x, lead, more = torch.randn(S, B, I), (S, B), {}
    if everything:
        more = {"dt": 0.1 + torch.rand(lead), "mask": torch.rand(lead) < 0.8, "reset": torch.rand(lead) < 0.1}
    expected = numbers(exact, x.double(), {k: v.double() if k == "dt" else v for k, v in more.items()})
    found = numbers(rnn.to(device), x.to(device), {k: v.to(device) for k, v in more.items()})
    scales = {k: v.abs().max() + 1e-3 for k, v in expected.items()}
    errors = {k: float(((found[k] - v) / scales[k]).abs().nan_to_num(torch.inf).max()) for k, v in expected.items()}
    worst = max(errors, key=errors.__getitem__)
    chosen = engine.pick(rnn.engine, rnn.layers[0], x.to(device), everything, everything, everything).__name__
    ran = "eager" if chosen == "compiled" and engine.gpu.failure(rnn.layers[0], device) else chosen
    return {"engine": ran, "error": errors[worst], "at": worst, "right": errors[worst] < TOLERANCE}


def speed(name: str, size: str, sizes: tuple[int, int, int, int], device: torch.device) -> dict[str, Any]:
    """Time forward and backward of one layer, launched and captured."""
    from timescales.training.graphs import capture

    S, B, I, H = sizes  # noqa: E741
    x = torch.randn(S, B, I, device=device)
    of_torch = name.startswith("nn.")
    rnn = getattr(nn, name[3:])(I, H) if of_torch else RNN([getattr(cells, name)(I, H)], engine=ENGINE[device.type])
    rnn.to(device)

    def call() -> None:
        rnn.zero_grad(set_to_none=True)
        rnn(x)[0].sum().backward()

    begun = time.monotonic()
    call()
    first = {"first_s": round(time.monotonic() - begun, 1)}
    timed = {"ms": call} | ({"graph_ms": capture(call, device)} if device.type == "cuda" else {})
    medians = {k: Timer("call()", globals={"call": f}).blocked_autorange(min_run_time=0.5) for k, f in timed.items()}
    return first | {k: 1e3 * found.median for k, found in medians.items()}


def training(captured: bool, device: torch.device) -> dict[str, Any]:
    """Train a power-law LSTM to copy ten symbols. Return its losses."""
    from timescales.config.schema import LoopSettings
    from timescales.models.sequence import SequenceModel
    from timescales.tasks import Copy
    from timescales.training import graphs, loop
    from timescales.training.run import TrainingRun

    losses: list[float] = []
    steps, units = (400, 128) if device.type == "cuda" else (30, 16)
    if not captured:
        graphs.is_wanted = lambda *given: False
    task = Copy(T=20, batch_size=32, train_size=32 * steps, valid_size=32, test_size=32, seed=0, device=device)
    torch.manual_seed(0)
    layers = RNN([cells.PLSTMCell(task.spec.width, units)], engine=ENGINE[device.type])
    model = SequenceModel(layers, task.spec).to(device)
    settings = LoopSettings(max_epochs=1, log_every=steps // 10, clip_norm=1.0)

    def log(values: dict[str, float], step: int) -> None:
        losses.extend(v for key, v in values.items() if key == "train/loss_nats")

    run = TrainingRun(model, task, torch.optim.Adam(model.parameters(), lr=1e-2), log, settings, None)
    begun = time.monotonic()
    loop.fit(run)
    ms = 1e3 * (time.monotonic() - begun) / steps  # with what is compiled and captured
    falls = losses[-1] < FALLS * losses[0]
    return {"captured": captured, "ms_a_step": ms, "losses": losses, "falls": falls}


def calls_of_cells() -> list[Any]:
    """List cells, their arguments and whether a call has dt, mask and reset, in the order in which they are checked."""
    others = dict.fromkeys(cell for model in registry.MODELS for cell in model.cells if cell not in MAIN)
    rest: list[Any] = [("GatedLSTMCell", {"gate": gate}) for gate in ("-", "o", "om", "um", "or", "ur")]
    rest += [(name, {}) for name in others if name != "GatedLSTMCell"]
    main: list[Any] = [(name, {}, everything) for everything in (False, True) for name in MAIN]
    return main + [(*cell, everything) for cell in rest for everything in (True, False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--minutes", type=float, default=6.0, help="when to stop. Default: 6")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the file to write. Default: gpu.json")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu rehearses")
    device, report, begun = torch.device(args.device), Report(args.out), time.monotonic()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if device.type == "cpu":
        engine.gpu.BACKEND = "aot_eager"

    def too_long(*given: Any) -> None:
        raise TooLong("the minutes are over")

    def goes_on(stage: str) -> bool:
        return time.monotonic() < begun + UNTIL[stage] * 60.0 * args.minutes

    if device.type == "cuda":
        torch.cuda.set_device(device)
    signal.signal(signal.SIGALRM, too_long)  # a row that hangs in Python ends with the minutes
    signal.alarm(max(1, int(60 * args.minutes)))
    report.add("machine", machine, device)
    calls = calls_of_cells()
    while calls and goes_on("main cells"):
        report.add("cells", compared, *calls.pop(0), device)
    for captured in (True, False):
        report.add("training", training, captured, device)
    sizes = SIZES if device.type == "cuda" else SMALL
    for name, size in itertools.product(("nn.LSTM", "nn.GRU", *TIMED), sizes):
        if goes_on("speed"):
            report.add("speed", speed, name, size, sizes[size], device)
    while calls and goes_on("cells"):
        report.add("cells", compared, *calls.pop(0), device)
    signal.alarm(0)
    right = [row.get("right", False) for row in report.rows["cells"]]
    falls = [row.get("falls", False) for row in report.rows["training"]]
    print(f"{sum(right)} of {len(right)} calls of cells are right, {len(calls)} left out; {sum(falls)} trainings learn")
    sys.exit(not all(right + falls))


if __name__ == "__main__":
    main()
