"""Measure the speed of a training step on a GPU, compared with cuDNN's LSTM at the same precision.

    python scripts/bench/bench.py --device cuda            # the same as
    python scripts/bench/bench_gpu.py --minutes 6          # or with --device cpu: a rehearsal at tiny sizes

A step is forward and backward for all parameters with a gradient at every output; x needs no gradient. The variants of
a configuration run in turn in one process, and the times are medians. Ratios are to torch.nn.LSTM (cuDNN) at the same
precision. The floor of a step is a lower bound of its time: its bytes over the measured speed of a copy (each tensor of
the graph engine is written once and read once), or its operations over the measured speed of a large product, whichever
is larger. Peak MiB is all the memory that a variant holds during a step, including weights and inputs.

Writes results/bench/<gpu>.csv and .md after every part, or $OUT/<gpu>.csv and .md where that is set, and
timescales/nn/engine/gpu/measured.csv for engine="auto".
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from bench_gpu_report import CONFIGS, TINY, slug, update_measured, with_ratios, write  # noqa: E402
from bench_gpu_steps import (  # noqa: E402
    KINDS,
    PRECISIONS,
    SEEDS,
    UNIT,
    Step,
    lower_bound_ms,
    make_step,
    measure_speeds,
    seconds_of,
    set_precision,
    synchronize,
)
from bench_gpu_trainings import steps, trainings  # noqa: E402
from bench_variants import Config  # noqa: E402
from torch.profiler import ProfilerActivity  # noqa: E402

from timescales.files import write_atomic  # noqa: E402
from timescales.nn.engine.gpu import capture, choice  # noqa: E402

RMC_CONFIG = Config(33, 128, 28, 128)  # Control of length 2 and nesting 2, two memories of 64
Variant = tuple[str, str]  # name and precision
DECIDING: tuple[Variant, ...] = (
    (UNIT, "fp32"),
    ("products lstm", "fp32"),
    ("kernels lstm", "fp32"),
    ("kernels PLSTMCell", "fp32"),
    ("graph lstm", "fp32"),
    ("graph PLSTMCell", "fp32"),
    (f"graph lstm x{SEEDS}", "fp32"),
    (f"graph PLSTMCell x{SEEDS}", "fp32"),
    ("cudnn lstm", "fp32"),
    (UNIT, "tf32"),
    ("graph lstm", "tf32"),
    (UNIT, "fp16"),
)
PARTS = ("deciding", "steps", "layers", "profile", "trainings", "attention")  # the last has torch.compile: minutes


def layers(
    configs: dict[str, Config], device: str, seconds: float, speeds: dict[str, float], deciding: bool
) -> Iterator[list[dict[str, Any]]]:
    """Rows with the times of one layer: of the variants that decide which engine to work on, or of the others."""
    for name, config in configs.items():
        chosen = {key: make for key, make in makers(name, config, device).items() if (key in DECIDING) is deciding}
        rows = measure(name, chosen, device, seconds)
        for row in rows:
            if (least := lower_bound_ms(row, config, speeds)) is not None:
                row["floor_ms"] = least
        yield rows


def makers(name: str, config: Config, device: str) -> dict[Variant, Callable[[], Step]]:
    """Functions that make the step of each variant of a configuration."""
    chosen = [*DECIDING]
    for precision in PRECISIONS:
        chosen += [(f"graph {kind}", precision) for kind in KINDS] + [("bare products", precision)]
    chosen += [("eager lstm", "fp32"), ("eager PLSTMCell", "fp32")]
    return {key: lambda key=key: make_step(key[0], config, device, key[1]) for key in chosen}  # type: ignore[misc]


def attention(device: str, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Rows with the times of the relational memory core, for which there is no kernel, also with torch.compile."""
    config = RMC_CONFIG if device != "cpu" else Config(2, 4, 3, 8)
    variants = (UNIT, "eager RMCCell", "compiled RMCCell")
    made: dict[Variant, Callable[[], Step]] = {
        (variant, precision): lambda variant=variant: make_step(variant, config, device)  # type: ignore[misc]
        for precision in PRECISIONS
        for variant in variants
    }
    yield [row | {"part": "attention"} for row in measure("RMC", made, device, seconds)]


def measure(config: str, made: dict[Variant, Callable[[], Step]], device: str, seconds: float) -> list[dict[str, Any]]:
    """A row with the median time of each variant, run in turn. If a variant fails, its row has the reason."""
    rows: dict[Variant, dict[str, Any]] = {}
    made_steps: dict[Variant, Step] = {}
    for key, make in made.items():
        rows[key] = {"part": "layer", "config": config, "variant": key[0], "precision": key[1]}
        try:
            set_precision(key[1])
            made_steps[key], peak = warm_up(make, device)
        except Exception as error:
            rows[key]["note"] = capture.one_line(error)
            continue
        if peak is not None:
            rows[key]["peak_MiB"] = peak
    for key, times in run_in_turn(made_steps, device, seconds).items():
        milliseconds = [1000 * t for t in times]
        rows[key] |= {"ms": statistics.median(milliseconds), "rounds": len(times)}
        rows[key] |= {"least_ms": min(milliseconds), "most_ms": max(milliseconds)}
    return list(rows.values())


def warm_up(make: Callable[[], Step], device: str) -> tuple[Step, float | None]:
    """A step that has run a few times, and its peak memory in MiB on a GPU."""
    before = torch.cuda.memory_allocated() if device != "cpu" else 0
    step = make()
    for _ in range(4):  # the graph engine captures the second call
        step()
    if device == "cpu":
        return step, None
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return step, round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def run_in_turn(steps: dict[Variant, Step], device: str, seconds: float) -> dict[Variant, list[float]]:
    """Seconds of each call of the steps: 5 to 300 calls, and an equal share of the time for each."""
    times: dict[Variant, list[float]] = {key: [] for key in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values()), default=5) < 5:
        waiting = [k for k, t in times.items() if len(t) < 5 or (sum(t) <= seconds / len(steps) and len(t) < 300)]
        if not waiting:
            break
        for key in waiting:
            set_precision(key[1])
            times[key].append(seconds_of(steps[key], device))
    return times


def profile(configs: dict[str, Config], device: str) -> Iterator[list[dict[str, Any]]]:
    """Rows with the time of each kernel in a captured pLSTM step."""
    for name, config in configs.items():
        try:
            yield profile_rows(name, config, device)
        except Exception as error:
            yield [{"part": "profile", "config": name, "variant": "graph PLSTMCell", "note": capture.one_line(error)}]


def profile_rows(name: str, config: Config, device: str) -> list[dict[str, Any]]:
    """The eight kernels that take most time. Raises RuntimeError if there are none."""
    set_precision("fp32")
    step = make_step("graph PLSTMCell", config, device)
    for _ in range(4):
        step()
    synchronize(device)
    activities = [ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(3):
            step()
        synchronize(device)
    time_of = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    events = sorted(profiler.key_averages(), key=lambda event: getattr(event, time_of), reverse=True)
    if not events:
        raise RuntimeError("the profiler recorded no kernels")
    total = sum(getattr(event, time_of) for event in events) or 1.0
    return [
        {
            "part": "profile",
            "config": name,
            "variant": event.key[:60],
            "precision": "fp32",
            "ms": getattr(event, time_of) / 3000,
            "rounds": event.count // 3,
            "note": f"{100 * getattr(event, time_of) / total:.0f} %",
        }
        for event in events[:8]
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal at tiny sizes")
    parser.add_argument("--minutes", type=float, default=6.0, help="do not start another part after this many minutes")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="parts to measure; default: all")
    parser.add_argument("--seconds", type=float, default=20.0, help="for all variants of one size together")
    parser.add_argument("--out", type=Path, help="folder of the results; default: $OUT, else results/bench")
    parser.add_argument("--rows", type=Path, help="write the rows to this JSON file and nothing else")
    options = parser.parse_args(arguments)
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; --device cpu rehearses at tiny sizes")
    rehearsal = options.device == "cpu"
    default = Path("runs") / "rehearsal" if rehearsal else Path("results") / "bench"
    folder = options.out or Path(os.environ.get("OUT") or ROOT / default)
    machine = "a CPU, rehearsing" if rehearsal else torch.cuda.get_device_name()
    configs = TINY if rehearsal else CONFIGS
    end, rows = time.monotonic() + 60 * options.minutes, list[dict[str, Any]]()
    for new in run_parts(options.parts, configs, options.device, 0.2 if rehearsal else options.seconds, end):
        rows += new
        if options.rows:
            write_atomic(options.rows, json.dumps(with_ratios(rows)).encode())
        else:
            write(with_ratios(rows), folder / slug(machine), machine)
        if not rehearsal:
            with contextlib.suppress(OSError):
                update_measured(rows, configs, machine, choice.MEASURED)
        print(f"{new[0]['part']} {new[0].get('config', '')}: {len(new)} rows", flush=True)
    set_precision("fp32")
    if not options.rows:
        print((folder / f"{slug(machine)}.md").read_text())


def run_parts(
    parts: Sequence[str], configs: dict[str, Config], device: str, seconds: float, end: float
) -> Iterator[list[dict[str, Any]]]:
    """The rows of the chosen parts, as they come, until the time is over."""
    speeds: dict[str, float] = {}
    if {"deciding", "layers"} & set(parts):
        speeds = measure_speeds(device)
        yield [{"part": "ceiling", "variant": name, "note": f"{value:.3g}"} for name, value in speeds.items()]
    makers_of = {
        "deciding": lambda: layers(configs, device, seconds, speeds, deciding=True),
        "steps": lambda: steps(device, seconds / 8),
        "layers": lambda: layers(configs, device, seconds, speeds, deciding=False),
        "profile": lambda: profile(configs, device),
        "trainings": lambda: trainings(device, seconds / 4),
        "attention": lambda: attention(device, seconds),
    }
    for part in PARTS:
        found = makers_of[part]() if part in parts else iter(())
        while time.monotonic() < end and (new := next(found, None)) is not None:
            yield new


if __name__ == "__main__":
    main()
