"""Check and time the engines on a machine with a GPU, in six minutes and without git, make or data sets.

`python scripts/bench_gpu.py` writes gpu.json: a list of rows for each stage, written again after each row. A row that
fails has its error. `--device cpu --minutes 3` is a rehearsal: small sizes, and torch writes no kernels. With
`--inductor --minutes 90` it writes them, for the CPU, which tells nothing about speed on a GPU.

    cells      each cell in float32 against the eager engine in float64 on the CPU: output, state and gradients, without
               and with dt, mask and reset; which engine ran; seconds, with compilation. Most cells come at the end
    training   a short training whose steps are captured as CUDA graphs, and one without: the loss must fall
    speed      forward and backward of one layer, launched and as a CUDA graph, beside torch.nn.LSTM and GRU
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import signal
import sys
import time
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch.utils.benchmark

from timescales import RNN
from timescales.files import write_atomic
from timescales.nn import cells, engine, registry

SIZES = {"A": (220, 128, 10, 128), "B": (784, 128, 1, 256), "L": (1000, 16, 64, 512)}  # S, B, I, H
TIMED = ("nn.LSTM", "nn.GRU", "PLSTMCell", "URLSTMCell", "MinGRUCell", "LRUCell", "GatedLSTMCell")
MAIN = ("LSTMCell", "GRUCell", "PLSTMCell", "URLSTMCell", "MinGRUCell")
ENGINE = {"cuda": "auto", "cpu": "compiled"}  # on a CPU auto would take another one than on a GPU
TOLERANCE, FALLS = 1e-3, 0.8  # of the largest number of a tensor; the last loss of a training, of its first


class TooLong(BaseException):
    """End a row that hangs in Python. It is no Exception: no engine must take it for a failure of its own."""

    @classmethod
    def stop(cls, *given: Any) -> None:
        raise cls("the minutes are over")


class Report:
    """The rows of each stage, in a JSON file that is always whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, dict[str, list[dict[str, Any]]]()

    def add(self, stage: str, make: Any, *arguments: Any) -> None:
        """Make a row and write the file. An error becomes part of the row."""
        begun = time.monotonic()
        row: dict[str, Any] = {"of": [a for a in arguments if not isinstance(a, torch.device)]}
        with warnings.catch_warnings(record=True, action="always") as caught, redirect_stderr(io.StringIO()) as printed:
            try:
                row |= make(*arguments)
            except (Exception, TooLong) as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:500]
        lines = [line[:300] for line in (*(str(w.message) for w in caught), *printed.getvalue().splitlines())]
        notes = [line for line in lines if "eager engine" in line or "without a CUDA graph" in line]
        row |= ({"warnings": notes} if notes else {}) | {"seconds": round(time.monotonic() - begun, 1)}
        self.rows.setdefault(stage, []).append(row)
        write_atomic(self.path, json.dumps(self.rows, indent=1).encode())
        print(stage, row, flush=True)


def machine(device: torch.device) -> dict[str, Any]:
    """Describe the machine."""
    name = str(torch.cuda.get_device_properties(device)) if device.type == "cuda" else "a rehearsal"
    cuda = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {"device": name, "torch": torch.__version__, **cuda, "python": sys.version}


def numbers(rnn: RNN, x: torch.Tensor, more: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
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
    x, (dt, mask, reset) = torch.randn(S, B, I), torch.rand(3, S, B)
    more = {"dt": 0.1 + dt, "mask": mask < 0.8, "reset": reset < 0.1} if everything else {}
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

    x, IH = torch.randn(sizes[:3], device=device), sizes[2:]
    rnn = getattr(torch.nn, name[3:])(*IH) if name.startswith("nn.") else RNN([getattr(cells, name)(*IH)])
    rnn.to(device).engine = ENGINE[device.type]  # which torch's layers do not read

    def call() -> None:
        rnn.zero_grad(set_to_none=True)
        rnn(x)[0].sum().backward()

    begun = time.monotonic()
    call()
    found = {"first_s": round(time.monotonic() - begun, 1)}
    for key in ("ms", "graph_ms") if device.type == "cuda" else ("ms",):
        timer = torch.utils.benchmark.Timer("call()", globals={"call": call if key == "ms" else capture(call, device)})
        found[key] = 1e3 * timer.blocked_autorange(min_run_time=0.5).median
    return found


def training(captured: bool, device: torch.device) -> dict[str, Any]:
    """Train a power-law LSTM to copy ten symbols. Return its losses."""
    from timescales.config.schema import LoopSettings  # here: it needs packages that a GPU's torch may come without
    from timescales.models.sequence import SequenceModel
    from timescales.tasks import Copy
    from timescales.training import graphs, loop
    from timescales.training.run import TrainingRun

    steps, units = (400, 128) if device.type == "cuda" else (30, 16)
    graphs.is_wanted = graphs.is_wanted if captured else lambda *given: False
    task = Copy(T=20, batch_size=32, train_size=32 * steps, valid_size=32, test_size=32, seed=0, device=device)
    torch.manual_seed(0)
    model = SequenceModel(RNN([cells.PLSTMCell(task.spec.width, units)], engine=ENGINE[device.type]), task.spec)
    model.to(device)
    settings = LoopSettings(max_epochs=1, log_every=steps // 10, clip_norm=1.0)
    optimizer, begun, rows = torch.optim.Adam(model.parameters(), lr=1e-2), time.monotonic(), list[dict[str, float]]()
    loop.fit(TrainingRun(model, task, optimizer, lambda row, step: rows.append(row), settings, None))
    losses = [row["train/loss_nats"] for row in rows if "train/loss_nats" in row]
    ms = 1e3 * (time.monotonic() - begun) / steps  # with what is compiled and captured
    return {"captured": captured, "ms_a_step": ms, "losses": losses, "falls": losses[-1] < FALLS * losses[0]}


def calls_of_cells() -> list[Any]:
    """List cells, their arguments and whether a call has dt, mask and reset, in the order in which they are checked."""
    others = dict.fromkeys(cell for model in registry.MODELS for cell in model.cells)
    rest: list[Any] = [("GatedLSTMCell", {"gate": gate, "downsize": 4}) for gate in ("-", "o", "om", "um", "or", "ur")]
    rest += [(name, {}) for name in others if name not in (*MAIN, "GatedLSTMCell")]
    main: list[Any] = [(name, {}, everything) for everything in (False, True) for name in MAIN]
    return main + [(*cell, everything) for cell in rest for everything in (True, False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--inductor", action="store_true", help="with --device cpu: let torch write kernels, too")
    parser.add_argument("--minutes", type=float, default=6.0, help="when to stop. Default: 6")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the file to write. Default: gpu.json")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu rehearses")
    device, report, begun = torch.device(args.device), Report(args.out), time.monotonic()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif not args.inductor:
        engine.gpu.BACKEND = "aot_eager"
    sizes, calls = SIZES if device.type == "cuda" else {"A": (20, 4, 3, 8)}, calls_of_cells()
    report.add("machine", machine, device)
    # Name, rows, and the share of the time after which none is begun. Calls of cells that are left come at the end.
    stages: list[Any] = [
        ("cells", compared, calls, 0.35),
        ("training", training, [(True,), (False,)], 1.0),
        ("speed", speed, [(name, k, sizes[k]) for name in TIMED for k in sizes], 0.85),
        ("cells", compared, calls, 1.0),
    ]
    signal.signal(signal.SIGALRM, TooLong.stop)
    signal.alarm(max(1, int(60 * args.minutes)))
    for stage, make, rows, share in stages:
        while rows and time.monotonic() < begun + 60 * share * args.minutes:
            report.add(stage, make, *rows.pop(0), device)
    signal.alarm(0)
    right = [row.get("right", False) for row in report.rows.get("cells", [])]
    falls = [row.get("falls", False) for row in report.rows.get("training", [])]
    print(f"{sum(right)} of {len(right)} calls of cells give the right numbers, {len(calls)} were not made")
    print(f"{sum(falls)} of {len(falls)} trainings learn")
    sys.exit(not all(right + falls))


if __name__ == "__main__":
    main()
