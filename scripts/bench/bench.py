"""Measure the speed of a training step on a CPU, compared with torch.nn.LSTM.

    python scripts/bench/bench.py                 # everything: about half an hour
    python scripts/bench/bench.py --only A,memory # some sections or configurations; the other results are kept

A step is forward and backward for all parameters; x needs no gradient. All variants of a configuration run in turn in
one process, and the median of each is divided by the median of torch.nn.LSTM, since ratios depend less on the load of a
machine than times. Variants:

    nn.LSTM, nn.GRU torch's layers (oneDNN on a CPU); the LSTM is the unit of the ratios
    own gate        the cell of docs/tutorial/decay.py, on the engine that "auto" picks
    fused ...       the C++ engine; "coupled" and "separate" are the power-law LSTM's input gates
    eager ...       the eager engine, under autograd
    loop LSTM       the usual public code: a Python loop, one Linear of [x, h] per step, autograd
    loop pLSTM      the same for the paper's equations with k and t
    training step   the step of a task with the LSTM at the task's sizes; the unit of "its data", which makes the batch.
                    In the section "small", whose times are of the CPU: of the power-law LSTM on the copy task with 64
                    units and 32 sequences, whose unit is this layer alone

Writes results/bench/<machine>.csv and .md.
"""

import argparse
import dataclasses
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

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tutorial")]

import torch  # noqa: E402
from bench_report import write  # noqa: E402
from decay import Decay  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from tqdm import tqdm  # noqa: E402

import timescales  # noqa: E402
from timescales import paths  # noqa: E402
from timescales.config import compose, folders, schema  # noqa: E402
from timescales.files import csv_rows  # noqa: E402
from timescales.nn import registry  # noqa: E402
from timescales.nn.cells.gates import MECHANISMS  # noqa: E402
from timescales.runs import provenance  # noqa: E402
from timescales.tasks.data.corpus import MissingData  # noqa: E402
from timescales.training import build, loop  # noqa: E402
from timescales.training.run import TrainingRun  # noqa: E402

Row = dict[str, Any]


class Config(NamedTuple):
    """Sizes of a measurement. irregular: our layers get dt, and a mask that leaves out a tenth of the steps."""

    S: int
    B: int
    I: int  # noqa: E741
    H: int
    irregular: bool = False


CONFIGS = {
    "A": Config(220, 128, 10, 128),  # copy
    "B": Config(784, 100, 1, 256),  # sequential MNIST
    "B512": Config(784, 100, 1, 512),
    "C": Config(150, 128, 20, 828),  # characters
    "D": Config(400, 64, 100, 154),  # sentiment
    "F": Config(125, 32, 1, 110, True),  # frequency discrimination, sampled at irregular times
    "125 x 32 x 1 x 110": Config(125, 32, 1, 110),
    "60 x 32 x 10 x 64": Config(60, 32, 10, 64),
    "batch 1": Config(100, 1, 100, 828),
    "batch 8": Config(70, 8, 400, 716),
    "batch 20": Config(70, 20, 400, 1150),
    "S=2,000": Config(2000, 1, 128, 256),
    "S=10,000": Config(10000, 8, 10, 128),
    "S=1,000": Config(1000, 8, 10, 128),
}
UNIT = "nn.LSTM"
OURS = ("fused LSTM", "fused UR", "fused coupled", "fused separate")
# Layers by variant: class and arguments. A variant is named after its class, or as its rows have been from the start.
NAMES = {"pgru": "pGRU", "leaky": "leaky", "mingru": "minGRU", "minlstm": "minLSTM", "exprnn": "expRNN"}
OTHER_CELLS = {
    NAMES.get(model.name, model.layer): model
    for model in registry.MODELS
    if model.family != registry.FIVE and model.name != "gated"
}
SCANS = tuple(name for name, model in OTHER_CELLS.items() if model.family == registry.SCAN)
LAYERS: dict[str, tuple[type, dict[str, Any]]] = {
    "nn.LSTM": (nn.LSTM, {}),
    "nn.GRU": (nn.GRU, {}),
    "own gate": (Decay, {}),
    "fused LSTM": (timescales.LSTM, {"engine": "fused"}),
    "eager LSTM": (timescales.LSTM, {"engine": "eager"}),
    "fused UR": (timescales.URLSTM, {"engine": "fused"}),
    "fused coupled": (timescales.PLSTM, {"engine": "fused"}),
    "eager coupled": (timescales.PLSTM, {"engine": "eager"}),
    "fused separate": (timescales.PLSTM, {"engine": "fused", "coupled": False}),
}
LAYERS |= {
    f"{core} {gate}": (timescales.GatedRNN, {"core": core, "gate": gate})
    for core in ("lstm", "gru")
    for gate in MECHANISMS
}
LAYERS |= {
    name: (getattr(timescales, model.layer), {"T_max": 200} if model.name == "janet" else {})
    for name, model in OTHER_CELLS.items()
}


class LoopLSTM(nn.Module):
    """Run an LSTM as a Python loop over steps."""

    def __init__(self, I: int, H: int, gates: int = 4) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H = nn.Linear(I + H, gates * H), H

    def forward(self, x: Tensor) -> Any:
        h = c = x.new_zeros(x.shape[1], self.H)
        outputs = []
        for x_t in x.unbind(0):
            i, f, g, o = self.linear(torch.cat([x_t, h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs), h


class LoopPLSTM(LoopLSTM):
    """Run the power-law LSTM in the paper's equations as a Python loop over steps."""

    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__(I, H, 3)
        self.power = nn.Parameter(torch.zeros(H))

    def forward(self, x: Tensor) -> Any:
        h = c = k = x.new_zeros(x.shape[1], self.H)
        p, outputs = self.power.sigmoid(), []
        for t, x_t in enumerate(x.unbind(0), 1):
            r, g, o = self.linear(torch.cat([x_t, h], -1)).chunk(3, -1)
            r = r.sigmoid()
            k = r * t + (1 - r) * k
            f = ((t - k + 1) / (t - k + 1e-3)) ** -p
            c = f * c + (1 - f) * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs), h


LAYERS |= {"loop LSTM": (LoopLSTM, {}), "loop pLSTM": (LoopPLSTM, {})}


def step_of(variant: str, config: Config) -> Callable[[], None]:
    """Make a variant's step: forward, and backward from every output."""
    S, B, I, H, irregular = config  # noqa: E741
    x, d_output = torch.randn(S, B, I), torch.randn(S, B, H) / B
    make, arguments = LAYERS[variant]
    layer = make(I, H, **arguments)
    more = {"dt": torch.rand(S, B) * 2, "mask": torch.rand(S, B) < 0.9} if irregular else {}
    if not isinstance(layer, timescales.RNN):
        more = {}

    def step() -> None:
        layer.zero_grad()
        layer(x, **more)[0].backward(d_output)

    return step


class Job(NamedTuple):
    """A process that measures: variants of a configuration in turn, or the peak memory of one variant."""

    section: str
    config: str
    shape: Config
    variants: tuple[str, ...]
    seconds: float = 20.0


def run_job(job: Job, threads: int) -> list[Row]:
    """Return the rows of a job. Called in a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    rows = {"data": data_rows, "memory": memory_rows}.get(job.section, time_rows)
    return list(trained_rows(job) if job.config == TRAINED else rows(job))


def time_rows(job: Job) -> Iterator[Row]:
    """Yield the median time of each variant."""
    yield from median_rows({name: step_of(name, job.shape) for name in job.variants}, job)


def median_rows(steps: dict[str, Callable[[], None]], job: Job) -> Iterator[Row]:
    """Yield the median time of each step. They run in turn."""
    clock = time.process_time if job.section == "small" else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    end = time.perf_counter() + job.seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 3:
        for name, step in steps.items():
            start = clock()
            step()
            times[name].append(clock() - start)
    yield from ({"variant": name, "seconds": statistics.median(t), "rounds": len(t)} for name, t in times.items())


def memory_rows(job: Job) -> Iterator[Row]:
    """Yield the peak memory of a step of one variant."""
    (variant,) = job.variants
    step_of(variant, Config(2, 2, 1, 8))()  # libraries that are loaded at first use do not count
    step = step_of(variant, job.shape)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield {"variant": variant, "MiB": round(peak - before, 1), "rounds": 1}


def trained_rows(job: Job) -> Iterator[Row]:
    """Yield the time of a layer's forward and backward, and of the training step of a task with this layer."""
    composer = compose.Composer()
    sizes = ("task.batch_size=32", "model.hidden_size=64")
    config = schema.resolved(composer(["task=copy", "model=plstm", *sizes, "device=cpu", "run_dir=unused"]))
    run = endless_run(*build.build(config), config)
    batch = run.draw_batch()
    assert batch is not None, "an endless run always has a batch"
    S, B = batch.x.shape[:2]
    shape = Config(S, B, run.task.spec.input_size, config["model"]["hidden_size"])
    steps, layer = 20, step_of("fused coupled", shape)  # at a time: `fit` begins and ends once in a training

    def layers() -> None:
        for _ in range(steps):
            layer()

    def training() -> None:
        loop.fit(run, until=run.progress.step + steps)

    for row in median_rows({"fused coupled": layers, "training step": training}, job):
        yield row | {"seconds": row["seconds"] / steps} | dict(zip("SBIH", shape, strict=False))


def data_rows(job: Job) -> Iterator[Row]:
    """Yield the time of a task's training step with the LSTM, and of making its batch. Without its data: nothing."""
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


def endless_run(model: Any, task: Any, optimizer: Any, config: dict[str, Any]) -> TrainingRun:
    """Make a run that neither ends, validates nor saves."""
    settings = dataclasses.replace(schema.LoopSettings(**config["loop"]), max_steps=None, eval_every=10**9)
    return TrainingRun(model, task, optimizer, lambda values, step: None, settings, directory=None)


def data_config(name: str) -> dict[str, Any]:
    """Return the configuration of a key of `DATA`, or of a task, with the LSTM; a partial data set is enough."""
    overrides = [*DATA.get(name, (f"task={name}",)), "model=lstm", "device=cpu", "run_dir=unused"]
    composer = compose.Composer()
    partial = ["task.allow_partial=true"] if "allow_partial" in composer(overrides).task else []
    return schema.resolved(composer([*overrides, *partial]))


def layer_jobs() -> Iterator[Job]:
    """Yield a step of one layer of the models that have a fixed place in the papers."""
    loops = ("eager LSTM", "eager coupled", "loop LSTM", "loop pLSTM")
    for name in ("A", "B", "B512", "C", "D", "F", "batch 1", "batch 8", "batch 20"):
        measured = OURS[::2] if name in ("B512", "C") else OURS  # all variants would take minutes per round
        variants = (UNIT, *measured, *(loops if name in ("A", "D", "F") else ()))
        yield Job("layer", name, CONFIGS[name], variants, 30)


TRAINED = "copy, H=64"


def small_jobs() -> Iterator[Job]:
    """Yield small layers, and a training step beside its layer."""
    for name in ("125 x 32 x 1 x 110", "60 x 32 x 10 x 64"):
        yield Job("small", name, CONFIGS[name], (UNIT, "fused LSTM", "fused coupled", "own gate"), 30)
    yield Job("small", TRAINED, Config(0, 0, 0, 0), ("fused coupled", "training step"), 30)


def large_jobs() -> Iterator[Job]:
    """Small batches in layers whose recurrent weights are 1 and 4 MB, for an LSTM."""
    variants = (UNIT, "fused LSTM", "fused coupled", "own gate")
    for H, B in itertools.product((256, 512), (1, 4, 16)):
        yield Job("large", f"H={H} B={B}", Config(1000, B, 64, H), variants, 90)


def gate_jobs() -> Iterator[Job]:
    """Yield every gate of Gu et al. in an LSTM and a GRU, and the other cells, each on the engine that `auto` picks."""
    gates = [f"{core} {gate}" for core in ("lstm", "gru") for gate in MECHANISMS]
    variants = (UNIT, "nn.GRU", "fused LSTM", *gates, *OTHER_CELLS, "own gate")
    yield Job("gates", "A", CONFIGS["A"], variants, 60)
    yield Job("gates", "B", CONFIGS["B"], (UNIT, "nn.GRU", "fused LSTM", "GRU", "pGRU", "JANET"), 30)


def scan_jobs() -> Iterator[Job]:
    """Yield the cells without recurrent weights, also on long sequences."""
    for name in ("A", "B", "F", "D", "S=1,000", "S=2,000", "S=10,000"):
        yield Job("scan", name, CONFIGS[name], (UNIT, "fused LSTM", "fused coupled", *SCANS))


def memory_jobs() -> Iterator[Job]:
    """Yield the peak memory of a step of one layer."""
    for variant in (UNIT, *OURS, "eager LSTM", "loop LSTM", *SCANS):
        yield Job("memory", "B", CONFIGS["B"], (variant,))


FILE_TASKS = ("text", "series")  # tasks that need a file of the user's
# Measured besides every task at its own size: programs of length 9 and nesting 4 with a small network.
DATA = {"program 256": ("task=program", "task.strategy=baseline", "model.hidden_size=256", "model.head_size=null")}


def data_jobs() -> Iterator[Job]:
    """Yield a training step of each task at its own size, if in `DATA`, and the part of it that makes the batch."""
    for name in (*(task for task in folders.choices("task") if task not in FILE_TASKS), *DATA):
        yield Job("data", name, Config(0, 0, 0, 0), ("training step", "its data"), 10)


SECTIONS: dict[str, Callable[[], Iterator[Job]]] = {
    "layer": layer_jobs,
    "small": small_jobs,
    "large": large_jobs,
    "gates": gate_jobs,
    "scan": scan_jobs,
    "data": data_jobs,
    "memory": memory_jobs,
}
JOB_COLUMNS = ("section", "config", "loss", "flush")


def kept_rows(file: Path, jobs: list[Job]) -> list[Row]:
    """Read the rows of an earlier call that these jobs do not measure again."""
    measured = {(job.section, job.config, "all", "0") for job in jobs}
    rows = [row for row in csv_rows(file) if tuple(row[k] for k in JOB_COLUMNS) not in measured]
    numbers: dict[str, Callable[[str], float]] = {"seconds": float, "MiB": float, "ratio": float}
    numbers |= dict.fromkeys(("S", "B", "I", "H", "flush", "threads", "rounds"), int)
    return [{k: numbers.get(k, str)(v) for k, v in row.items() if v} for row in rows]


def measure(jobs: list[Job], threads: int, rows: list[Row]) -> Iterator[list[Row]]:
    """Run the jobs. Yield all rows after each job."""
    with tqdm(jobs, unit="job") as bar:
        for job in bar:
            bar.set_postfix_str(f"{job.section} {job.config}")
            command = [sys.executable, __file__, "--threads", str(threads), "--job", json.dumps(job)]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            # Loss "all": a gradient at every output. Earlier rows have also "last", with denormals flushed or not.
            common = {"section": job.section, "config": job.config, "loss": "all", "flush": 0, "threads": threads}
            common |= dict(zip("SBIH", job.shape, strict=False))
            rows += [common | row for row in json.loads(result.stdout)]
            yield with_ratios(rows)


def with_ratios(rows: list[Row]) -> list[Row]:
    """Set the ratio of each row to the first variant of its job: torch.nn.LSTM, or the training step."""
    units: dict[tuple, Row] = {}
    for row in rows:
        unit = units.setdefault(tuple(row[column] for column in JOB_COLUMNS), row)
        value = "MiB" if row["section"] == "memory" else "seconds"
        row["ratio"] = round(row[value] / unit[value], 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--only", default="", help="sections or configurations, separated by commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="number of threads")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        section, config, shape, *rest = json.loads(args.job)
        print(json.dumps(run_job(Job(section, config, Config(*shape), *rest), args.threads)))
        return
    jobs = [job for section in SECTIONS.values() for job in section()]
    wanted, known = set(filter(None, args.only.split(","))), {*SECTIONS, *(job.config for job in jobs)}
    if unknown := wanted - known:
        parser.error(f"--only takes {', '.join(sorted(known))}; not {', '.join(sorted(unknown))}")
    jobs = [job for job in jobs if not wanted or {job.section, job.config} & wanted]
    machine = f"{provenance.processor()}, {args.threads} threads"
    base = paths.RESULTS / "bench" / re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
    # Written after every job, so that an interruption loses only one.
    for rows in measure(jobs, args.threads, kept_rows(base.with_suffix(".csv"), jobs)):
        write(rows, base, machine)
    print(base.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
