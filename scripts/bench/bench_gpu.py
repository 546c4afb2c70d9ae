"""Measure the speed of a training step on a GPU, compared with cuDNN's LSTM at the same precision.

    python scripts/bench/bench.py --device cuda            # the same as
    python scripts/bench/bench_gpu.py --minutes 6          # or with --device cpu: a rehearsal at tiny sizes

A step is forward and backward for all parameters with a gradient at every output; x needs no gradient. The variants of
a configuration run in turn in one process, and the times are medians. Ratios are to torch.nn.LSTM (cuDNN) at the same
precision. The floor of a step is a lower bound of its time: its bytes over the measured speed of a copy (each tensor of
the graph engine is written once and read once), or its operations over the measured speed of a large product, whichever
is larger. Peak MiB is all the memory that a variant holds during a step, including weights and inputs.

Writes results/bench/<gpu>.csv and .md after every part, and timescales/nn/engine/measured.csv for engine="auto".
"""

from __future__ import annotations

import argparse
import contextlib
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
from bench_gpu_report import update_measured, write  # noqa: E402
from bench_gpu_steps import (  # noqa: E402
    KINDS,
    PRECISIONS,
    SEEDS,
    UNIT,
    Step,
    lower_bound_ms,
    make_step,
    measure_speeds,
    products_step,
    seconds_of,
    set_precision,
    synchronize,
)
from bench_gpu_trainings import trainings  # noqa: E402
from bench_variants import Config  # noqa: E402
from torch.profiler import ProfilerActivity  # noqa: E402

from timescales.nn.engine import choice, programs  # noqa: E402

CONFIGS = {"A": Config(220, 128, 10, 128), "B": Config(784, 100, 1, 256), "B512": Config(784, 100, 1, 512)}
TINY = {"tiny": Config(8, 4, 3, 8)}
RMC_CONFIG = Config(33, 128, 28, 128)  # Control of length 2 and nesting 2, two memories of 64
Variant = tuple[str, str]  # name and precision


def layers(configs: dict[str, Config], device: str, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Rows with the times of one layer; first those with the speeds of the device."""
    speeds = measure_speeds(device)
    yield [{"part": "ceiling", "variant": name, "note": f"{value:.3g}"} for name, value in speeds.items()]
    for name, config in configs.items():
        rows = measure(name, makers(name, config, device), device, seconds)
        for row in rows:
            row["floor_ms"] = lower_bound_ms(row, config, speeds)
        yield rows


def makers(name: str, config: Config, device: str) -> dict[Variant, Callable[[], Step]]:
    """Functions that make the step of each variant of a configuration."""
    made: dict[Variant, Callable[[], Step]] = {}
    for precision in PRECISIONS:
        variants = [UNIT, *(f"graph {kind}" for kind in KINDS)]
        if precision == "fp32":
            variants += ["cudnn lstm", "eager lstm", "eager PLSTMCell"]
        if name in ("A", "tiny"):
            variants += [f"graph PLSTMCell x{SEEDS}"]
        for variant in variants:
            made[variant, precision] = lambda variant=variant: make_step(variant, config, device)  # type: ignore[misc]
        made["bare products", precision] = lambda: products_step(config, device)
    return made


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
    steps: dict[Variant, Step] = {}
    for key, make in made.items():
        rows[key] = {"part": "layer", "config": config, "variant": key[0], "precision": key[1]}
        try:
            set_precision(key[1])
            steps[key], peak = warm_up(make, device)
        except Exception as error:
            rows[key]["note"] = programs.one_line(error)
            continue
        if peak is not None:
            rows[key]["peak_MiB"] = peak
    for key, times in run_in_turn(steps, device, seconds).items():
        rows[key] |= {"ms": 1000 * statistics.median(times), "rounds": len(times)}
    for row in rows.values():
        unit = rows.get((UNIT, row["precision"]), {}).get("ms")
        if unit and "ms" in row:
            row["ratio"] = row["ms"] / unit
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
    """Seconds of each call of the steps: at least 3 and at most 300 calls, and an equal share of the time for each."""
    times: dict[Variant, list[float]] = {key: [] for key in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values()), default=3) < 3:
        waiting = [k for k, t in times.items() if len(t) < 3 or (sum(t) <= seconds / len(steps) and len(t) < 300)]
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
            yield [{"part": "profile", "config": name, "variant": "graph PLSTMCell", "note": programs.one_line(error)}]


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal at tiny sizes")
    parser.add_argument("--minutes", type=float, default=6.0, help="do not start another part after this many minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench", help="folder of the results")
    options = parser.parse_args(arguments)
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
    parts = (
        layers(configs, options.device, seconds),
        profile(configs, options.device),
        trainings(options.device, seconds / 4),
        attention(options.device, seconds),  # the last one: torch.compile takes minutes
    )
    for part in parts:
        while time.monotonic() < end and (new := next(part, None)) is not None:
            rows += new
            write(rows, base, machine)
            if not rehearsal:
                with contextlib.suppress(OSError):
                    update_measured(rows, configs, machine, choice.MEASURED)
            print(f"{new[0]['part']} {new[0].get('config', '')}: {len(new)} rows", flush=True)
    set_precision("fp32")
    print(base.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
