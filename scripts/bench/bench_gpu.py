"""How fast is a training step on a GPU, next to cuDNN's LSTM at equal precision, and how far from what the chip allows?

    python scripts/bench/bench.py --device cuda            # the same as
    python scripts/bench/bench_gpu.py --minutes 6          # or with --device cpu: a rehearsal at tiny sizes

A step is forward and backward for all parameters with a gradient at every output; x needs none. The variants of a
configuration run in turn in one process; medians. Ratios are to torch.nn.LSTM (cuDNN) at the same precision.
The floor of a step is the larger of its bytes over the measured speed of a copy (each tensor of the graph engine once
written and once read) and its operations over the measured speed of a large product at that precision.
Peak MiB is all that a variant holds during a step: weights, inputs and what its engine keeps between steps, too.

Writes results/bench/<gpu>.csv and .md after every part, and timescales/nn/engine/measured.csv, by which engine="auto"
chooses.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import itertools
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from bench_variants import Config  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import Optimizer  # noqa: E402

from timescales import LSTM, PLSTM, URLSTM  # noqa: E402
from timescales.config import (  # noqa: E402
    compose,
    identity,
    schema,
)
from timescales.files import csv_text  # noqa: E402
from timescales.nn.engine import choice, graph, pointwise, programs  # noqa: E402
from timescales.tasks import Task  # noqa: E402
from timescales.training import build, loop, stack  # noqa: E402
from timescales.training.model import SequenceModel  # noqa: E402
from timescales.training.run import TrainingRun  # noqa: E402

CONFIGS = {"A": Config(220, 128, 10, 128), "B": Config(784, 100, 1, 256), "B512": Config(784, 100, 1, 512)}
TINY = {"tiny": Config(8, 4, 3, 8)}
SEEDS = 16
UNIT = "nn.LSTM"
KINDS = {"lstm": LSTM, "refine": URLSTM, "coupled": PLSTM, "separate": PLSTM}
PRECISIONS = {"fp32": "highest", "tf32": "high"}
TRAININGS = {
    "copy T=500": ["task=copy", "task.T=500"],
    "pMNIST 256": ["task=pmnist", "model.hidden_size=256"],
    "PTB-char 828": ["task=ptb_char", "model.hidden_size=828"],
    "PTB-word": ["task=ptb_word", "model.hidden_size=[1150,1150,400]", "model.num_layers=3"],
}
COMPARED = "copy T=500"  # with the eager engine, and with several seeds
COLUMNS = ("part", "config", "variant", "precision", "ms", "ratio", "rounds", "peak_MiB", "floor_ms", "note")
Step = Callable[[], object]


def precise(precision: str) -> None:
    """Set what torch's and cuDNN's products may round to."""
    torch.set_float32_matmul_precision(PRECISIONS[precision])
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


# ------------------------------------------------------------------------------------------ variants of a layer


def layer(name: str, config: Config, device: str) -> Step:
    """One forward and backward pass: nn.LSTM, "graph coupled", "eager lstm", "graph coupled x16"."""
    S, B, I, H, _ = config  # noqa: E741
    if name.endswith(f"x{SEEDS}"):
        return stacked(name.split()[1], config, device)
    if name == UNIT:
        model: nn.Module = nn.LSTM(I, H)
    else:
        engine, kind = name.split()
        model = KINDS[kind](I, H, engine=engine, **({"coupled": False} if kind == "separate" else {}))
    model.to(device)
    x, d_output = torch.randn(S, B, I, device=device), torch.randn(S, B, H, device=device) / B

    def step() -> None:
        model.zero_grad()
        model(x)[0].backward(d_output)

    return step


def stacked(kind: str, config: Config, device: str) -> Step:
    """Several seeds in one call of the graph engine; their parameters lie in one tensor each."""
    S, B, I, H, _ = config  # noqa: E741
    cell = KINDS[kind](I, H).to(device).layers[0]
    weights = type(cell.weights())(
        *(None if v is None else v.detach().expand(SEEDS, *v.shape).contiguous().requires_grad_()
          for v in cell.weights())
    )  # fmt: skip
    x, d_output = torch.randn(S, SEEDS, B, I, device=device), torch.randn(S, SEEDS, B, H, device=device) / B
    leaves = [v for v in weights if v is not None]
    return lambda: torch.autograd.grad(graph.run(cell, x, weights, cell.initial_state(SEEDS, B))[0], leaves, d_output)


def products(config: Config, device: str) -> Step:
    """The matrix products of an LSTM alone, with results in place; captured, so that nothing waits for a launch."""
    S, B, I, H, _ = config  # noqa: E741
    new = lambda *shape: torch.randn(*shape, device=device)  # noqa: E731
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

    if device == "cpu":
        return step
    stream, captured = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured, stream=stream):
        step()
    inside = (x, h, dz, ih, hh, z, dh, d_ih, d_hh)

    def replay(_: object = inside) -> None:  # it works in these: they must live as long
        captured.replay()

    return replay


# ------------------------------------------------------------------------------------------ timing


def clocked(step: Step, device: str) -> float:
    """Seconds of one call: between events on a GPU, which see its idle time too."""
    if device == "cpu":
        begun = time.perf_counter()
        step()
        return time.perf_counter() - begun
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def rows_of(
    config: str, made: dict[tuple[str, str], Callable[[], Step]], device: str, seconds: float
) -> list[dict[str, Any]]:
    """Medians of the variants (name, precision), run in turn; one that fails leaves a row with its reason."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    steps: dict[tuple[str, str], Step] = {}
    times: dict[tuple[str, str], list[float]] = {}
    for key, make in made.items():
        rows[key] = {"part": "layer", "config": config, "variant": key[0], "precision": key[1]}
        try:
            precise(key[1])
            before = torch.cuda.memory_allocated() if device != "cpu" else 0
            step = make()
            for _ in range(4):  # the second one is captured
                step()
            if device != "cpu":
                torch.cuda.reset_peak_memory_stats()
                step()
                torch.cuda.synchronize()
                held = torch.cuda.max_memory_allocated() - before
                rows[key]["peak_MiB"] = round(held / 2**20, 1)
            steps[key], times[key] = step, []
        except Exception as error:
            rows[key]["note"] = programs.one_line(error)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values()), default=3) < 3:
        # A slow variant has had its share.
        waiting = [k for k, t in times.items() if len(t) < 3 or (sum(t) <= seconds / len(steps) and len(t) < 300)]
        if not waiting:
            break
        for key in waiting:
            precise(key[1])
            times[key].append(clocked(steps[key], device))
    for key, found in times.items():
        rows[key] |= {"ms": 1000 * statistics.median(found), "rounds": len(found)}
    for row in rows.values():
        unit = rows.get((UNIT, row["precision"]), {}).get("ms")
        if unit and "ms" in row:
            row["ratio"] = row["ms"] / unit
    return list(rows.values())


def layers(configs: dict[str, Config], device: str, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Whole steps of one layer."""
    speed = ceilings(device)
    yield [{"part": "ceiling", "variant": name, "note": f"{value:.3g}"} for name, value in speed.items()]
    for name, config in configs.items():
        made: dict[tuple[str, str], Callable[[], Step]] = {}
        for precision in PRECISIONS:
            variants = [UNIT, *(f"graph {kind}" for kind in KINDS)]
            if precision == "fp32":
                variants += ["cudnn lstm", "eager lstm", "eager coupled"]
            if name in ("A", "tiny"):
                variants += [f"graph coupled x{SEEDS}"]
            for variant in variants:
                made[variant, precision] = lambda v=variant, c=config: layer(v, c, device)  # type: ignore[misc]
            made["bare products", precision] = lambda c=config: products(c, device)  # type: ignore[misc]
        rows = rows_of(name, made, device, seconds)
        for row in rows:
            kind = row["variant"].split()[1] if row["variant"].startswith("graph") else "lstm"
            replicas = SEEDS if row["variant"].endswith(f"x{SEEDS}") else 1
            moved, done = floor(kind, config, replicas)
            row["floor_ms"] = 1000 * max(moved / speed["copy bytes/s"], done / speed[f"{row['precision']} FLOP/s"])
        yield rows


def ceilings(device: str) -> dict[str, float]:
    """Measured speeds of this chip: bytes per second of a copy, operations per second of a product."""
    n, m = (2**28, 8192) if device != "cpu" else (2**20, 256)
    a, b = torch.randn(n, device=device), torch.empty(n, device=device)
    p, q, out = torch.randn(m, m, device=device), torch.randn(m, m, device=device), torch.empty(m, m, device=device)
    best = lambda step: min(clocked(step, device) for _ in range(6))  # noqa: E731
    found = {"copy bytes/s": 8 * n / best(lambda: b.copy_(a))}
    for precision in PRECISIONS:
        precise(precision)
        found[f"{precision} FLOP/s"] = 2 * m**3 / best(lambda: torch.mm(p, q, out=out))
    return found


def floor(kind: str, config: Config, replicas: int = 1) -> tuple[float, float]:
    """(bytes, operations) that a step cannot do without, in the graph engine's form."""
    S, B, I, H, _ = config  # noqa: E741
    G, states = pointwise.GATES[kind], 3 if kind in pointwise.AGED else 2
    # Forward writes activations and states; backward reads them and the outputs' gradient, writes dz; the products for
    # the weights read dz, h and x, as the first one read x.
    numbers = G + states + (G + states + 1) + G + (G + 1)
    moved = 4.0 * replicas * S * B * (H * numbers + 2 * I)
    return moved, 2.0 * replicas * S * B * G * H * (3 * H + 2 * I)


def trainings(device: str, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Steps per second of whole training steps: data, forward, backward, clipping, optimizer."""
    with compose.composing() as composer:
        for name, overrides in TRAININGS.items():
            variants = list(itertools.product(("lstm", "plstm"), PRECISIONS if device != "cpu" else ["fp32"]))
            if name == COMPARED:
                variants += [("plstm eager", "fp32"), (f"plstm x{SEEDS}", "fp32")]
            for variant, precision in variants:
                row = {"part": "training", "config": name, "variant": variant, "precision": precision}
                model, _, how = variant.partition(" ")
                given = [f"model={model}", *overrides, f"device={device}", f"precision={precision}", "logger=none"]
                if how == "eager":
                    given += ["engine=eager"]
                if device == "cpu":
                    given += ["model.hidden_size=[8,8,400]" if "word" in name else "model.hidden_size=8"]
                    given += ["task.batch_size=4", *(["task.T=10"] if "copy" in name else [])]
                try:
                    config = identity.resolved(composer(given))
                    row |= (stacked_training if how == f"x{SEEDS}" else training)(config, device, seconds)
                except Exception as error:  # a data set that is not here, say
                    row["note"] = programs.one_line(error)[:120]
                yield [row]


def training(config: dict[str, Any], device: str, seconds: float) -> dict[str, Any]:
    """Time the loop's own step; a row's `ms`, `rounds` and, as `note`, steps per second."""
    model, task, optimizer = build.build(config)
    run = endless_run(model, task, optimizer, config)
    return timed(lambda: loop.fit_single(run, until=run.progress.step + 1), device, seconds)


def endless_run(model: SequenceModel, task: Task, optimizer: Optimizer, config: dict[str, Any]) -> TrainingRun:
    """A run that trains as configured, but neither validates nor saves."""
    settings = dataclasses.replace(schema.Loop(**config["loop"]), max_steps=None, eval_every=10**9)
    return TrainingRun(model, task, optimizer, lambda values, step: None, settings, directory=None)


def stacked_training(config: dict[str, Any], device: str, seconds: float) -> dict[str, Any]:
    """`training` of several seeds side by side; a step is one of every seed."""
    runs = [endless_run(*build.build({**config, "seed": seed}), config) for seed in range(SEEDS)]
    models = [run.model for run in runs]
    together = stack.Stack(models)
    optimizer = stack.StackedOptimizer(together, models, [run.optimizer for run in runs])

    def step() -> None:
        loop.fit(runs, together, optimizer, until=runs[0].progress.step + 1)

    found = timed(step, device, seconds)
    return found | {"note": f"{found['note']} of each seed"}


def timed(step: Callable[[], None], device: str, seconds: float) -> dict[str, Any]:
    """Call a step until it is warm and captured, then for so many seconds, waiting for the device now and then."""
    for _ in range(8):
        step()
    synchronize(device)
    n, begun = 0, time.perf_counter()
    while n == 0 or time.perf_counter() - begun <= seconds:
        for _ in range(10):
            step()
        n += 10
        synchronize(device)
    taken = time.perf_counter() - begun
    return {"ms": 1000 * taken / n, "rounds": n, "note": f"{n / taken:.1f} steps/s"}


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def profile(configs: dict[str, Config], device: str) -> Iterator[list[dict[str, Any]]]:
    """Where the time of a captured pLSTM step goes, by kernel."""
    from torch.profiler import ProfilerActivity

    for name, config in configs.items():
        try:
            precise("fp32")
            step = layer("graph coupled", config, device)
            for _ in range(4):
                step()
            synchronize(device)
            activities = [ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA]
            with torch.profiler.profile(activities=activities) as seen:
                for _ in range(3):
                    step()
                synchronize(device)
            key = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
            found = sorted(seen.key_averages(), key=lambda e: getattr(e, key), reverse=True)
            if not found:
                raise RuntimeError("the profiler saw nothing")
            total = sum(getattr(e, key) for e in found) or 1.0
            yield [
                {"part": "profile", "config": name, "variant": e.key[:60], "precision": "fp32",
                 "ms": getattr(e, key) / 3000, "rounds": e.count // 3, "note": f"{100 * getattr(e, key) / total:.0f} %"}
                for e in found[:8]
            ]  # fmt: skip
        except Exception as error:
            yield [{"part": "profile", "config": name, "variant": "graph coupled", "note": programs.one_line(error)}]


# ------------------------------------------------------------------------------------------ what is written


TARGETS = (  # what the design asks for: this over that, at most
    ("A", "graph coupled", UNIT, 1.0), ("B", "graph coupled", UNIT, 1.5), ("B512", "graph coupled", UNIT, 1.5),
    ("A", "graph coupled", "eager coupled", 1 / 30), ("A", f"graph coupled x{SEEDS}", "graph coupled", 1.5),
    (COMPARED, "plstm", "plstm eager", 1 / 30), (COMPARED, f"plstm x{SEEDS}", "plstm", 1.5),
)  # fmt: skip


def targets(rows: list[dict[str, Any]]) -> list[str]:
    """Each target with what was measured of it, in float32."""
    ms = {(row.get("config"), row["variant"]): row.get("ms") for row in rows if row.get("precision") == "fp32"}
    lines = []
    for config, this, that, most in TARGETS:
        if (a := ms.get((config, this))) and (b := ms.get((config, that))):
            verdict = "met" if a / b <= most else "missed"
            faster = f", {b / a:.3g} times as fast" if a < b else ""
            lines.append(f"- {config}: {this} takes {a / b:.3g} x {that}{faster}, at most {most:.3g}: {verdict}")
    return lines


def markdown(rows: list[dict[str, Any]], machine: str) -> str:
    """The targets, and a table for each part."""
    parts = [f"# A training step on {machine}",
             f"`python scripts/bench/bench.py --device cuda`; torch {torch.__version__}, "
             f"{choice.MEASURED.name} is what engine=auto goes by. Milliseconds are medians; the ratio is to nn.LSTM "
             "(cuDNN) at the same precision; the distance is the time over the floor."]  # fmt: skip
    if lines := targets(rows):
        parts.append("\n".join(["## targets", "", *lines]))
    for part in dict.fromkeys(row["part"] for row in rows):
        chosen = [row for row in rows if row["part"] == part]
        lines = [f"## {part}", ""]
        if part == "ceiling":
            lines += [f"- {row['variant']}: {row['note']}" for row in chosen]
        else:
            lines += ["| config | variant | precision | ms | ratio | distance | peak MiB | rounds | note |",
                      "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"]  # fmt: skip
        for row in chosen if part != "ceiling" else ():
            ms, least = row.get("ms"), row.get("floor_ms")
            numbers = ["" if v is None else f"{v:.3g}" for v in (ms, row.get("ratio"), ms and least and ms / least)]
            cells = [row.get("config", ""), row["variant"], row.get("precision", ""), *numbers]
            cells += [str(row.get(k, "")) for k in ("peak_MiB", "rounds", "note")]
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def write(rows: list[dict[str, Any]], base: Path, machine: str) -> None:
    base.parent.mkdir(parents=True, exist_ok=True)
    lines = [{k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    base.with_suffix(".csv").write_text(csv_text(lines, COLUMNS))
    base.with_suffix(".md").write_text(markdown(rows, machine))


def for_auto(rows: list[dict[str, Any]], configs: dict[str, Config], machine: str, file: Path) -> None:
    """Put the fp32 times of the engines into measured.csv, for `auto` from here on; what was not measured now stays."""
    found = []
    for row in rows:
        engine, _, kind = row["variant"].partition(" ")
        if row["part"] == "layer" and "ms" in row and row["precision"] == "fp32" and kind in KINDS:
            S, B, _, H, _ = configs[row["config"]]
            found.append(choice.Row(kind, S, B, H, engine, round(row["ms"], 4), machine))
    anew = {row._replace(ms=0.0) for row in found}
    kept = [row for row in choice.measured() if row._replace(ms=0.0) not in anew]
    with open(file, "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(choice.Row._fields)
        writer.writerows(kept + found)
    choice.measured.cache_clear()


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to rehearse at tiny sizes")
    parser.add_argument("--minutes", type=float, default=6.0, help="start no further part after this long")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench", help="folder of the results")
    options = parser.parse_args(given)
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; --device cpu rehearses at tiny sizes")
    rehearsal = options.device == "cpu"
    if rehearsal and options.out == parser.get_default("out"):
        options.out = ROOT / "runs" / "rehearsal"
    machine = "a CPU, rehearsing" if rehearsal else torch.cuda.get_device_name()
    configs = TINY if rehearsal else CONFIGS
    base = options.out / re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
    end, rows = time.monotonic() + 60 * options.minutes, list[dict[str, Any]]()
    seconds = 0.2 if rehearsal else 20.0
    parts = (layers(configs, options.device, seconds), profile(configs, options.device),
             trainings(options.device, seconds / 4))  # fmt: skip
    for part in parts:
        while time.monotonic() < end and (found := next(part, None)) is not None:
            rows += found
            write(rows, base, machine)
            if not rehearsal:
                with contextlib.suppress(OSError):
                    for_auto(rows, configs, machine, choice.MEASURED)
            print(f"{found[0]['part']} {found[0].get('config', '')}: {len(found)} rows", flush=True)
    precise("fp32")
    print(base.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
