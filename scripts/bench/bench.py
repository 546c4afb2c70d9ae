"""How fast is a training step, next to its peers?

    python scripts/bench/bench.py                 # everything: about half an hour
    python scripts/bench/bench.py --quick         # two configurations: about two minutes
    python scripts/bench/bench.py --only A,memory # some sections; the others' results stay
    python scripts/bench/bench.py --device cuda   # on a GPU: see scripts/bench/bench_gpu.py, whose options it takes

A step is forward and backward for all parameters; x needs no gradient. All variants of a configuration run in turn in
one process, and the median of each is divided by the median of torch.nn.LSTM: machines are noisy, ratios much less.
Variants:

    nn.LSTM         torch's own (oneDNN on the CPU), the unit
    nn.LSTM packed  the same on packed sequences
    fused …         this package's fused engine; "coupled" and "separate" are the power-law LSTM's input gates
    eager …         this package's readable engine, under autograd
    loop LSTM       the usual public code: a Python loop, one Linear of [x, h] per step, autograd
    loop pLSTM      the same for the paper's equations with k and t
    script LSTM     torch.jit.script of a loop over one projection
    training step   of a task with the LSTM at its own sizes, the unit of "its data", the part that makes the batch
    bare GEMM       only the matrix products of an LSTM, with preallocated results: nothing can be faster with these

Loss "all": a gradient at every output. Loss "last": at the last output alone; there gradients vanish into denormal
numbers, which stock torch computes slowly, so that loss is measured with and without flush-to-zero for everyone.

Writes results/bench/<machine>.csv, .md and .png.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from bench_report import write
from bench_variants import RELATIVES, UNIT, Config, step_of
from tqdm import tqdm

from timescales import paths
from timescales.config import folders
from timescales.files import csv_rows
from timescales.nn.cells.gates import MECHANISMS
from timescales.reports import readme
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
}


class Job(NamedTuple):
    """One process: variants of one configuration in turn, or one variant's peak memory."""

    section: str
    config: str
    shape: Config
    variants: tuple[str, ...]
    loss: str = "all"
    flush: bool = False
    seconds: float = 20.0


def work(job: Job, threads: int) -> list[dict[str, Any]]:
    """Rows of results. Called in a process of its own."""
    torch.set_flush_denormal(job.flush)  # before the threads exist: they inherit it
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if job.section == "data":
        return list(data_share(job))
    if job.section == "memory":
        (variant,) = job.variants
        step_of(variant, Config(2, 2, 1, 8), job.loss)()  # what is loaded at first use is not the step's memory
        step = step_of(variant, job.shape, job.loss)
        before = resident()
        step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return [{"variant": variant, "MiB": round(peak - before, 1), "rounds": 1}]
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


def data_share(job: Job) -> Iterator[dict[str, Any]]:
    """A task's training step with the LSTM, and the part of it that prepares the batch; nothing where data lack."""
    from timescales.config import compose, identity, schema
    from timescales.tasks.data.corpus import MissingData
    from timescales.training import build, loop
    from timescales.training.run import TrainingRun

    with compose.composing() as composer:
        task_and_model = [f"task={job.config}", "model=lstm", "device=cpu", "run_dir=unused"]
        partial = ["task.allow_partial=true"] if "allow_partial" in composer(task_and_model).task else []
        config = identity.resolved(composer([*task_and_model, *partial]))
    try:
        model, task, optimizer = build.build(config)
    except MissingData as error:
        tqdm.write(f"{job.config}: left out, {error}", file=sys.stderr)
        return
    settings = dataclasses.replace(schema.Loop(**config["loop"]), max_steps=None, eval_every=10**9)
    run = TrainingRun(model, task, optimizer, lambda values, step: None, settings, directory=None)
    times: dict[str, list[float]] = {name: [] for name in job.variants}
    end = time.perf_counter() + job.seconds
    while time.perf_counter() < end or len(times["training step"]) < 4:
        start = time.perf_counter()
        batch = run.draw_batch()
        ready = time.perf_counter()
        loop.fit_single(run, until=run.progress.step + 1)
        times["its data"].append(ready - start)
        times["training step"].append(time.perf_counter() - start)
    shape = {
        "S": batch.x.shape[0],
        "B": batch.x.shape[1],
        "I": task.spec.input_size,
        "H": config["model"]["hidden_size"],
    }
    for name, t in times.items():
        # The first warms up. Means: an epoch's shuffling belongs to its batches.
        yield {"variant": name, "seconds": statistics.fmean(t[1:]), "rounds": len(t) - 1, **shape}


def resident() -> float:
    """MiB of memory in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def layer_jobs(quick: bool) -> Iterator[Job]:
    """Whole steps of one layer, with every variant."""
    ours = ("fused LSTM", "fused UR", "fused coupled", "fused separate")
    loops = ("eager LSTM", "eager coupled", "loop LSTM", "loop pLSTM", "script LSTM")
    for name in ("A", "F") if quick else ("A", "B", "B512", "C", "D", "F", "batch 1", "batch 8", "batch 20"):
        few = name in ("B512", "C")  # minutes per round otherwise
        variants = (UNIT, "bare GEMM", *(ours[::2] if few else ours), *(loops if name in ("A", "D", "F") else ()))
        yield Job("layer", name, CONFIGS[name], variants, seconds=15 if quick else 30)
    yield Job("layer", "P", CONFIGS["P"], (UNIT, f"{UNIT} packed", *ours), seconds=5 if quick else 20)
    for name in ("F",) if quick else ("A", "B128"):
        for flush in (False, True):
            yield Job("layer", name, CONFIGS[name], (UNIT, *ours), "last", flush, 10 if quick else 20)


def gate_jobs(quick: bool) -> Iterator[Job]:
    """Every gate of Gu et al. in an LSTM and a GRU, and the relatives, each on the engine that `auto` picks."""
    gates = [f"{core} {gate}" for core in ("lstm", "gru") for gate in MECHANISMS]
    yield Job("gates", "A", CONFIGS["A"], (UNIT, "fused LSTM", *gates, *RELATIVES), seconds=10 if quick else 60)


def memory_jobs(quick: bool) -> Iterator[Job]:
    name = "A" if quick else "B"
    for variant in (UNIT, "fused LSTM", "fused UR", "fused coupled", "fused separate", "eager LSTM", "loop LSTM"):
        yield Job("memory", name, CONFIGS[name], (variant,))


def growth_jobs(quick: bool) -> Iterator[Job]:
    """One size varied around (S 200, B 64, I 10, H 128)."""
    axes = {"S": (50, 100, 200, 400, 800), "B": (1, 4, 16, 64, 256), "H": (32, 64, 128, 256, 512)}
    for axis, values in axes.items():
        for value in values[1::2] if quick else values:
            shape = Config(200, 64, 10, 128)._replace(**{axis: value})  # type: ignore[arg-type]
            yield Job("growth", f"{axis}={value}", shape, (UNIT, "fused LSTM", "fused coupled"), seconds=3)


def training_jobs(quick: bool) -> Iterator[Job]:
    """The training loop's whole step on the copy task (T = 200) beside its layer's own forward and backward."""
    variants = (UNIT, "fused LSTM", "training LSTM", "fused coupled", "training coupled")
    yield Job("training", "A", CONFIGS["A"], variants, seconds=10 if quick else 30)


def data_jobs(quick: bool) -> Iterator[Job]:
    """Preparing batches beside the steps that take them, for every task at its own size."""
    for name in folders.choices("task"):
        variants = ("training step", "its data")
        yield Job("data", name, Config(0, 0, 0, 0), variants, seconds=2 if quick else 10)


# A section is a function from `quick` to jobs. One more kind of measurement is one more line here and a case in `work`.
SECTIONS: dict[str, Callable[[bool], Iterator[Job]]] = {
    "layer": layer_jobs,
    "gates": gate_jobs,
    "training": training_jobs,
    "data": data_jobs,
    "memory": memory_jobs,
    "growth": growth_jobs,
}


def earlier(file: Path, jobs: list[Job]) -> list[dict[str, Any]]:
    """Rows that an earlier call left and this one does not measure again."""
    again = {(job.section, job.config, job.loss, str(int(job.flush))) for job in jobs}
    rows = [row for row in csv_rows(file) if tuple(row[k] for k in JOB_COLUMNS) not in again]
    numbers: dict[str, Callable[[str], float]] = {"seconds": float, "MiB": float, "ratio": float}
    numbers |= dict.fromkeys(("S", "B", "I", "H", "flush", "threads", "rounds"), int)
    return [{k: numbers.get(k, str)(v) for k, v in row.items() if v} for row in rows]


def measure(jobs: list[Job], threads: int, rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows so far, after each job."""
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
    key = JOB_COLUMNS
    unit: dict[tuple, dict[str, Any]] = {}  # the first of each: torch.nn.LSTM but for the data
    for row in rows:
        unit.setdefault(tuple(row[k] for k in key), row)
        value = "MiB" if row["section"] == "memory" else "seconds"
        row["ratio"] = round(row[value] / unit[tuple(row[k] for k in key)][value], 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few configurations, few rounds")
    parser.add_argument("--only", default="", help="sections or configurations, separated by commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--name", default="", help="of the files in results/bench; default: the processor and threads")
    parser.add_argument("--device", default="cpu", help="cuda: what scripts/bench/bench_gpu.py measures")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args()
    if args.device != "cpu":
        import bench_gpu

        bench_gpu.main(["--device", args.device, *rest])
        return
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if args.job:
        section, config, shape, *rest = json.loads(args.job)
        print(json.dumps(work(Job(section, config, Config(*shape), *rest), args.threads)))
        return
    jobs = [job for section in SECTIONS.values() for job in section(args.quick)]
    if only := set(filter(None, args.only.split(","))):
        known = {job.section for job in jobs} | {job.config for job in jobs}
        if unknown := only - known:
            parser.error(f"--only takes {', '.join(sorted(known))}; not {', '.join(sorted(unknown))}")
        jobs = [job for job in jobs if {job.section, job.config} & only]
    machine = f"{provenance.processor()}, {args.threads} threads"
    name = args.name or re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") + ("-quick" if args.quick else "")
    base = Path(__file__).parents[2] / "results" / "bench" / name
    before = earlier(base.with_suffix(".csv"), jobs)
    for rows in measure(jobs, args.threads, before):  # written after every job: an interruption loses one
        write(rows, base, machine)
    if not args.quick:
        readme.write({"speed": readme.speed(paths.RESULTS)})
    print(base.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
