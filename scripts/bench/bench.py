"""Measure the speed of a training step on a CPU, compared with torch.nn.LSTM and other implementations.

    python scripts/bench/bench.py                 # everything: about half an hour
    python scripts/bench/bench.py --quick         # two configurations: about two minutes
    python scripts/bench/bench.py --only A,memory # some sections; the other results are kept

A step is forward and backward for all parameters; x needs no gradient. All variants of a configuration run in turn in
one process, and the median of each is divided by the median of torch.nn.LSTM, since ratios depend less on the load of a
machine than times. Variants:

    nn.LSTM         torch's LSTM (oneDNN on a CPU), the unit of the ratios
    nn.LSTM packed  the same on packed sequences
    nn.GRU          torch's GRU
    own gate        the cell of docs/tutorial/decay.py, on the engine that "auto" picks
    fused ...       the fused engine; "coupled" and "separate" are the power-law LSTM's input gates
    eager ...       the eager engine, under autograd
    loop LSTM       the usual public code: a Python loop, one Linear of [x, h] per step, autograd
    loop pLSTM      the same for the paper's equations with k and t
    script LSTM     torch.jit.script of a loop over one projection
    training step   the step of a task with the LSTM at the task's sizes; the unit of "its data", which makes the batch
    bare GEMM       only the matrix products of an LSTM, with preallocated results: a lower bound with these products
    torchrecurrent, jax     the same cells of other libraries, where they are installed: see bench_peers.py

Loss "all" has a gradient at every output, loss "last" only at the last output. In the latter, gradients vanish into
denormal numbers, which torch computes slowly; so it is measured with and without flush-to-zero for all variants.

Writes results/bench/<machine>.csv, .md and .png.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench_peers import variants as peers
from bench_report import write
from bench_variants import OTHER_CELLS, SCANS, UNIT, Config, endless_run, step_of
from tqdm import tqdm

from timescales.config import folders
from timescales.files import csv_rows
from timescales.nn.cells.gates import MECHANISMS
from timescales.runs import provenance

CONFIGS = {
    "A": Config(220, 128, 10, 128),  # copy
    "B": Config(784, 100, 1, 256),  # sequential MNIST
    "B512": Config(784, 100, 1, 512),
    "C": Config(150, 128, 20, 828),  # characters
    "D": Config(400, 64, 100, 154),  # sentiment
    "F": Config(125, 32, 1, 110, "missing"),  # frequency discrimination, sampled at irregular times
    "P": Config(125, 32, 1, 110, "padded"),  # the same, of sequences of 15 to 125 points
    "B128": Config(784, 100, 1, 128),
    "batch 1": Config(100, 1, 100, 828),
    "batch 8": Config(70, 8, 400, 716),
    "batch 20": Config(70, 20, 400, 1150),
    "S=2,000": Config(2000, 1, 128, 256),
    "S=10,000": Config(10000, 8, 10, 128),
    "S=1,000": Config(1000, 8, 10, 128),
}


class Job(NamedTuple):
    """A process that measures: variants of a configuration in turn, or the peak memory of one variant."""

    section: str
    config: str
    shape: Config
    variants: tuple[str, ...]
    loss: str = "all"
    flush: bool = False
    seconds: float = 20.0


def run_job(job: Job, threads: int) -> list[dict[str, Any]]:
    """The rows of a job. Called in a process of its own."""
    torch.set_flush_denormal(job.flush)  # before threads are started, which inherit it
    torch.set_num_threads(threads)
    if job.section == "peers":  # JAX has as many threads as processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.manual_seed(0)
    if job.section == "data":
        return list(data_rows(job))
    return memory_rows(job) if job.section == "memory" else time_rows(job)


def time_rows(job: Job) -> list[dict[str, Any]]:
    """The median time of each variant. The variants run in turn."""
    steps = {name: step_of(name, job.shape, job.loss) for name in job.variants}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    end = time.perf_counter() + job.seconds
    while time.perf_counter() < end or len(times[job.variants[0]]) < 3:
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return [{"variant": name, "seconds": statistics.median(t), "rounds": len(t)} for name, t in times.items()]


def memory_rows(job: Job) -> list[dict[str, Any]]:
    """The peak memory of a step of one variant."""
    (variant,) = job.variants
    step_of(variant, Config(2, 2, 1, 8), job.loss)()  # libraries that are loaded at first use do not count
    step = step_of(variant, job.shape, job.loss)
    before = resident()
    step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [{"variant": variant, "MiB": round(peak - before, 1), "rounds": 1}]


def data_rows(job: Job) -> Iterator[dict[str, Any]]:
    """The time of a task's training step with the LSTM, and of making its batch. No rows if the data set is missing."""
    from timescales.tasks.data.corpus import MissingData
    from timescales.training import build, loop

    config = data_config(job.config)
    try:
        model, task, optimizer = build.build(config)
    except MissingData as error:
        tqdm.write(f"{job.config}: left out, {error}", file=sys.stderr)
        return
    run = endless_run(model, task, optimizer, config)
    times: dict[str, list[float]] = {name: [] for name in job.variants}
    end = time.perf_counter() + job.seconds
    while time.perf_counter() < end or len(times["training step"]) < 4:
        start = time.perf_counter()
        batch = run.draw_batch()
        ready = time.perf_counter()
        loop.fit(run, until=run.progress.step + 1)
        times["its data"].append(ready - start)
        times["training step"].append(time.perf_counter() - start)
    assert batch is not None, "an endless run always has a batch"
    shape = {"S": batch.x.shape[0], "B": batch.x.shape[1]}
    shape |= {"I": task.spec.input_size, "H": config["model"]["hidden_size"]}
    for name, t in times.items():
        # Without the first step, which warms up. A mean, since the shuffling of an epoch is part of its batches.
        yield {"variant": name, "seconds": statistics.fmean(t[1:]), "rounds": len(t) - 1, **shape}


def data_config(name: str) -> dict[str, Any]:
    """The configuration of a key of `DATA`, or of a task, with the LSTM; a partial data set is enough."""
    from timescales.config import compose, identity

    overrides = [*DATA.get(name, (f"task={name}",)), "model=lstm", "device=cpu", "run_dir=unused"]
    with compose.composing() as composer:
        partial = ["task.allow_partial=true"] if "allow_partial" in composer(overrides).task else []
        return identity.resolved(composer([*overrides, *partial]))


def resident() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def layer_jobs(quick: bool) -> Iterator[Job]:
    """A step of one layer, for every variant."""
    ours = ("fused LSTM", "fused UR", "fused coupled", "fused separate")
    loops = ("eager LSTM", "eager coupled", "loop LSTM", "loop pLSTM", "script LSTM")
    for name in ("A", "F") if quick else ("A", "B", "B512", "C", "D", "F", "batch 1", "batch 8", "batch 20"):
        measured = ours[::2] if name in ("B512", "C") else ours  # all variants would take minutes per round
        variants = (UNIT, "bare GEMM", *measured, *(loops if name in ("A", "D", "F") else ()))
        yield Job("layer", name, CONFIGS[name], variants, seconds=15 if quick else 30)
    yield Job("layer", "P", CONFIGS["P"], (UNIT, f"{UNIT} packed", *ours), seconds=5 if quick else 20)
    for name in ("F",) if quick else ("A", "B128"):
        for flush in (False, True):
            yield Job("layer", name, CONFIGS[name], (UNIT, *ours), "last", flush, 10 if quick else 20)


def large_jobs(quick: bool) -> Iterator[Job]:
    """Small batches in layers whose recurrent weights are 1 and 4 MB, for an LSTM."""
    variants = (UNIT, "bare GEMM", "fused LSTM", "fused coupled", "own gate")
    for H, B in ((512, 16),) if quick else itertools.product((256, 512), (1, 4, 16)):
        yield Job("large", f"H={H} B={B}", Config(1000, B, 64, H), variants, seconds=10 if quick else 90)


def gate_jobs(quick: bool) -> Iterator[Job]:
    """Every gate of Gu et al. in an LSTM and a GRU, and the other cells, each on the engine that `auto` picks.

    The cells with a fixed place in the papers also at the size of sequential MNIST.
    """
    gates = [f"{core} {gate}" for core in ("lstm", "gru") for gate in MECHANISMS]
    variants = (UNIT, "nn.GRU", "fused LSTM", *gates, *OTHER_CELLS)
    yield Job("gates", "A", CONFIGS["A"], variants, seconds=10 if quick else 60)
    if not quick:
        yield Job("gates", "B", CONFIGS["B"], (UNIT, "nn.GRU", "fused LSTM", "GRU", "pGRU", "JANET"), seconds=30)


def peer_jobs(quick: bool) -> Iterator[Job]:
    """Cells beside those of other libraries, where one is installed."""
    if found := peers():
        yield Job("peers", "A", CONFIGS["A"], (UNIT, *found), seconds=20 if quick else 60)


def scan_jobs(quick: bool) -> Iterator[Job]:
    """The cells without recurrent weights, also on long sequences."""
    for name in ("A", "B") if quick else ("A", "B", "F", "D", "S=1,000", "S=2,000", "S=10,000"):
        yield Job(
            "scan", name, CONFIGS[name], (UNIT, "fused LSTM", "fused coupled", *SCANS), seconds=10 if quick else 20
        )


def memory_jobs(quick: bool) -> Iterator[Job]:
    """The peak memory of a step of one layer."""
    name = "A" if quick else "B"
    ours = ("fused LSTM", "fused UR", "fused coupled", "fused separate", "eager LSTM", "loop LSTM", *SCANS)
    for variant in (UNIT, *ours):
        yield Job("memory", name, CONFIGS[name], (variant,))


def growth_jobs(quick: bool) -> Iterator[Job]:
    """Steps with one size varied around S = 200, B = 64, I = 10, H = 128."""
    axes = {"S": (50, 100, 200, 400, 800), "B": (1, 4, 16, 64, 256), "H": (32, 64, 128, 256, 512)}
    for axis, values in axes.items():
        for value in values[1::2] if quick else values:
            shape = Config(200, 64, 10, 128)._replace(**{axis: value})  # type: ignore[arg-type]
            yield Job("growth", f"{axis}={value}", shape, (UNIT, "fused LSTM", "fused coupled"), seconds=3)


def training_jobs(quick: bool) -> Iterator[Job]:
    """The training step of the copy task (T = 200), and the forward and backward pass of its layer."""
    variants = (UNIT, "fused LSTM", "training LSTM", "fused coupled", "training coupled")
    yield Job("training", "A", CONFIGS["A"], variants, seconds=10 if quick else 30)


OWN = ("text", "series")  # tasks that need a file of one's own
# Measured besides every task at its own size: programs of length 9 and nesting 4 with a small network.
DATA = {"program 256": ("task=program", "task.strategy=baseline", "model.hidden_size=256", "model.head_size=null")}


def data_jobs(quick: bool) -> Iterator[Job]:
    """The training step of every task at its own size, of those in `DATA`, and the part of it that makes the batch."""
    for name in (*(task for task in folders.choices("task") if task not in OWN), *DATA):
        variants = ("training step", "its data")
        yield Job("data", name, Config(0, 0, 0, 0), variants, seconds=2 if quick else 10)


# The jobs of each section, as a function of --quick. A new kind of measurement needs an entry here and in `run_job`.
SECTIONS: dict[str, Callable[[bool], Iterator[Job]]] = {
    "layer": layer_jobs,
    "large": large_jobs,
    "gates": gate_jobs,
    "peers": peer_jobs,
    "scan": scan_jobs,
    "training": training_jobs,
    "data": data_jobs,
    "memory": memory_jobs,
    "growth": growth_jobs,
}


def kept_rows(file: Path, jobs: list[Job]) -> list[dict[str, Any]]:
    """Rows of an earlier call that these jobs do not measure again."""
    measured = {(job.section, job.config, job.loss, str(int(job.flush))) for job in jobs}
    rows = [row for row in csv_rows(file) if tuple(row[k] for k in JOB_COLUMNS) not in measured]
    numbers: dict[str, Callable[[str], float]] = {"seconds": float, "MiB": float, "ratio": float}
    numbers |= dict.fromkeys(("S", "B", "I", "H", "flush", "threads", "rounds"), int)
    return [{k: numbers.get(k, str)(v) for k, v in row.items() if v} for row in rows]


def measure(jobs: list[Job], threads: int, rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Run the jobs. Yields all rows after each job."""
    rows = list(rows)
    with tqdm(jobs, unit="job") as bar:
        for job in bar:
            bar.set_postfix_str(f"{job.section} {job.config} {job.loss}{' flushed' if job.flush else ''}")
            command = [sys.executable, __file__, "--threads", str(threads), "--job", json.dumps(job)]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            common = {"section": job.section, "config": job.config, "loss": job.loss, "flush": int(job.flush)}
            common |= {"threads": threads, "S": job.shape.S, "B": job.shape.B, "I": job.shape.I, "H": job.shape.H}
            rows += [common | row for row in json.loads(result.stdout)]
            yield with_ratios(rows)


JOB_COLUMNS = ("section", "config", "loss", "flush")


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Set the ratio of each row to the first variant of its job: torch.nn.LSTM, or the training step."""
    units: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        unit = units.setdefault(tuple(row[column] for column in JOB_COLUMNS), row)
        value = "MiB" if row["section"] == "memory" else "seconds"
        row["ratio"] = round(row[value] / unit[value], 3)
    return rows


def chosen_jobs(parser: argparse.ArgumentParser, only: str, quick: bool) -> list[Job]:
    """The jobs of the sections or configurations in `only`, or all."""
    jobs = [job for section in SECTIONS.values() for job in section(quick)]
    wanted = set(filter(None, only.split(",")))
    if not wanted:
        return jobs
    known = set(SECTIONS) | {job.config for job in jobs}
    if unknown := wanted - known:
        parser.error(f"--only takes {', '.join(sorted(known))}; not {', '.join(sorted(unknown))}")
    chosen = [job for job in jobs if {job.section, job.config} & wanted]
    if not chosen:
        parser.error("no other library is installed: pip install -r scripts/bench/peers.txt")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="fewer configurations and rounds")
    parser.add_argument("--only", default="", help="sections or configurations, separated by commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="number of threads")
    parser.add_argument("--name", default="", help="name of the files in results/bench; default: processor and threads")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        section, config, shape, *rest = json.loads(args.job)
        print(json.dumps(run_job(Job(section, config, Config(*shape), *rest), args.threads)))
        return
    jobs = chosen_jobs(parser, args.only, args.quick)
    machine = f"{provenance.processor()}, {args.threads} threads"
    name = args.name or re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") + ("-quick" if args.quick else "")
    base = Path(__file__).parents[2] / "results" / "bench" / name
    # Written after every job, so that an interruption loses only one.
    for rows in measure(jobs, args.threads, kept_rows(base.with_suffix(".csv"), jobs)):
        write(rows, base, machine)
    print(base.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
