"""How fast is a training step, next to its peers?

    python scripts/bench.py                 # everything: about half an hour
    python scripts/bench.py --quick         # two configurations: about two minutes
    python scripts/bench.py --only A,memory # some sections; the others' results stay

A step is forward and backward for all parameters; x needs no gradient. All variants of a configuration run in turn in
one process, and the median of each is divided by the median of torch.nn.LSTM: machines are noisy, ratios much less.
Variants:

    nn.LSTM         torch's own (oneDNN on the CPU), the unit
    fused …         this package's fused engine; "coupled" and "separate" are the power-law LSTM's input gates
    eager …         this package's readable engine, under autograd
    loop LSTM       the usual public code: a Python loop, one Linear of [x, h] per step, autograd
    loop pLSTM      the same for the paper's equations with k and t
    script LSTM     torch.jit.script of a loop over one projection
    bare GEMM       only the matrix products of an LSTM, with preallocated results: nothing can be faster with these

Loss "all": a gradient at every output. Loss "last": at the last output alone; there gradients vanish into denormal
numbers, which stock torch computes slowly, so that loss is measured with and without flush-to-zero for everyone.

Writes results/bench/<machine>.csv, .md and .png.
"""

from __future__ import annotations

import argparse
import csv
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
from torch import Tensor, nn
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))
from timescales import LSTM, PLSTM, URLSTM, record
from timescales.model import SequenceModel
from timescales.tasks import Copy


class Config(NamedTuple):
    S: int
    B: int
    I: int  # noqa: E741
    H: int
    irregular: bool = False  # with dt and mask, where the variant has them


CONFIGS = {
    "A": Config(220, 128, 10, 128),  # copy
    "B": Config(784, 100, 1, 256),  # sequential MNIST
    "B512": Config(784, 100, 1, 512),
    "C": Config(150, 128, 20, 828),  # characters
    "D": Config(400, 64, 100, 154),  # sentiment
    "F": Config(125, 32, 1, 110, True),  # frequency discrimination, sampled at irregular times
    "B128": Config(784, 100, 1, 128),
    "batch 1": Config(100, 1, 100, 828),
    "batch 8": Config(70, 8, 400, 716),
    "batch 20": Config(70, 20, 400, 1150),
}
UNIT = "nn.LSTM"


# ------------------------------------------------------------------------------------------ the variants


class LoopLSTM(nn.Module):
    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H = nn.Linear(I + H, 4 * H), H

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[1], self.H)
        outputs = []
        for now in x.unbind(0):
            i, f, g, o = self.linear(torch.cat([now, h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


class LoopPLSTM(nn.Module):
    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H, self.power = nn.Linear(I + H, 3 * H), H, nn.Parameter(torch.zeros(H))

    def forward(self, x: Tensor) -> Tensor:
        h = c = k = x.new_zeros(x.shape[1], self.H)
        p, outputs = self.power.sigmoid(), []
        for t, now in enumerate(x.unbind(0), 1):
            r, g, o = self.linear(torch.cat([now, h], -1)).chunk(3, -1)
            r = r.sigmoid()
            k = r * t + (1 - r) * k
            f = ((t - k + 1) / (t - k + 1e-3)) ** -p
            c = f * c + (1 - f) * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


class ScriptLSTM(nn.Module):
    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.input, self.recurrent = nn.Linear(I, 4 * H), nn.Linear(H, 4 * H)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.size(1), self.recurrent.in_features)
        c = torch.zeros_like(h)
        outputs: list[Tensor] = []
        for now in self.input(x).unbind(0):
            i, f, g, o = (now + self.recurrent(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


def outputs_of(model: nn.Module, irregular: dict[str, Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """(every output, the last one) of a layer that returns (outputs, state)."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        output, state = model(x, **irregular)
        return output, state[0].h if irregular or not isinstance(model, nn.LSTM) else state[0][0]

    return run


def step_of(name: str, config: Config, loss: str) -> Callable[[], None]:
    """One training step of a variant, ready to be called again and again."""
    S, B, I, H, irregular = config  # noqa: E741
    x, d_output = torch.randn(S, B, I), torch.randn(S, B, H) / B
    times = {"dt": torch.rand(S, B) * 2, "mask": torch.rand(S, B) < 0.9} if irregular else {}
    if name == "bare GEMM":
        return bare_gemm(config)
    kind, _, cell = name.partition(" ")
    if kind == UNIT:
        model: nn.Module = nn.LSTM(I, H)
        run = outputs_of(model, {})
    elif kind == "training":
        return training_step(config, {"LSTM": LSTM, "coupled": PLSTM}[cell])
    elif kind in ("fused", "eager"):
        make = {"LSTM": LSTM, "UR": URLSTM, "pLSTM": PLSTM, "coupled": PLSTM, "separate": PLSTM}[cell]
        model = make(I, H, engine=kind, **({"coupled": False} if cell == "separate" else {}))
        run = outputs_of(model, times)
    else:
        model = {"loop LSTM": LoopLSTM, "loop pLSTM": LoopPLSTM, "script LSTM": ScriptLSTM}[name](I, H)
        loop = torch.jit.script(model) if kind == "script" else model

        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            output = loop(x)
            return output, output[-1]

    def step() -> None:
        model.zero_grad()
        output, last = run(x)
        if loss == "all":
            output.backward(d_output)
        else:
            last.backward(d_output[-1])

    return step


def training_step(config: Config, make: Any) -> Callable[[], None]:
    """The body of the training loop on the copy task: data, model with readout, loss, backward, clipping, RMSprop."""
    task = Copy(T=config.S - 20, batch_size=config.B, train_size=64 * config.B)
    model = SequenceModel(make(config.I, config.H), task.spec)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9)
    batches = itertools.chain.from_iterable(task.batches("train", epoch) for epoch in itertools.count())

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad(set_to_none=True)
        task.loss(model(batch).logits, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def bare_gemm(config: Config) -> Callable[[], None]:
    S, B, I, H, _ = config  # noqa: E741
    x, h, dz = torch.randn(S * B, I), torch.randn(S * B, H), torch.randn(S * B, 4 * H)
    ih, hh = torch.randn(4 * H, I), torch.randn(4 * H, H)
    z, dh, d_ih, d_hh = torch.empty(S * B, 4 * H), torch.empty(B, H), torch.empty(4 * H, I), torch.empty(4 * H, H)
    rows = [slice(t * B, (t + 1) * B) for t in range(S)]

    def step() -> None:
        torch.mm(x, ih.t(), out=z)
        for r in rows:
            torch.addmm(z[r], h[r], hh.t(), out=z[r])
        for r in rows:
            torch.mm(dz[r], hh, out=dh)
        torch.mm(dz.t(), h, out=d_hh)
        torch.mm(dz.t(), x, out=d_ih)
        dz.sum(0)

    return step


# ------------------------------------------------------------------------------------------ measuring


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
    for name in ("F",) if quick else ("A", "B128"):
        for flush in (False, True):
            yield Job("layer", name, CONFIGS[name], (UNIT, *ours), "last", flush, 10 if quick else 20)


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


# A section is a function from `quick` to jobs. One more kind of measurement is one more line here and a case in `work`.
SECTIONS: dict[str, Callable[[bool], Iterator[Job]]] = {
    "layer": layer_jobs,
    "training": training_jobs,
    "memory": memory_jobs,
    "growth": growth_jobs,
}


def earlier(file: Path, jobs: list[Job]) -> list[dict[str, Any]]:
    """Rows that an earlier call left and this one does not measure again."""
    if not file.is_file():
        return []
    again = {(job.section, job.config, job.loss, str(int(job.flush))) for job in jobs}
    with open(file, newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if tuple(row[k] for k in JOB_COLUMNS) not in again]
    numbers: dict[str, Callable[[str], float]] = {"seconds": float, "MiB": float, "ratio": float}
    numbers |= dict.fromkeys(("S", "B", "I", "H", "flush", "threads", "rounds"), int)
    return [{k: numbers.get(k, str)(v) for k, v in row.items() if v} for row in rows]  # type: ignore[operator]


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
    unit = {tuple(row[k] for k in key): row for row in rows if row["variant"] == UNIT}
    for row in rows:
        value = "MiB" if row["section"] == "memory" else "seconds"
        row["ratio"] = round(row[value] / unit[tuple(row[k] for k in key)][value], 3)
    return rows


# ------------------------------------------------------------------------------------------ writing

COLUMNS = (
    "section", "config", "S", "B", "I", "H", "loss", "flush", "threads", "variant", "seconds", "MiB", "ratio", "rounds",
)  # fmt: skip


def write(rows: list[dict[str, Any]], base: Path, machine: str) -> None:
    base.parent.mkdir(parents=True, exist_ok=True)
    with open(base.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "seconds": f"{row['seconds']:.5f}"} if "seconds" in row else row for row in rows)
    base.with_suffix(".md").write_text(markdown(rows, machine))
    picture([row for row in rows if row["section"] == "growth"], base.with_suffix(".png"))


README = Path(__file__).parents[1] / "README.md"
MARKS = "<!-- bench: written by scripts/bench.py -->", "<!-- /bench -->"


def readme_block(rows: list[dict[str, Any]], base: Path, machine: str) -> str:
    """The README's few lines on speed: ratios of a layer's step, and of its memory, to torch.nn.LSTM."""
    shown = ("A", "B", "B512", "C", "D", "F")
    chosen = [r for r in rows if (r["section"], r["loss"]) == ("layer", "all") and r["config"] in shown]
    chosen = [r for r in chosen if r["variant"] == UNIT or r["variant"].split()[0] in ("fused", "loop")]
    memory = [{**r, "config": f"{r['config']}, memory"} for r in rows if r["section"] == "memory"]
    chosen += [r for r in memory if r["variant"] in {c["variant"] for c in chosen}]
    chosen.sort(key=lambda row: row["config"])
    heads = list(dict.fromkeys(r["config"] for r in chosen))
    shapes = {r["config"]: f"{r['config']} {r['S']}x{r['B']}x{r['I']}x{r['H']}" for r in chosen if "MiB" not in r}
    numbers = table(chosen, heads, lambda row: f"{row['ratio']:.2f}")
    return (
        f"A training step of one layer on {machine}, as a ratio to `torch.nn.LSTM` in the same run: below 1 is\n"
        f"faster. Steps x batch x input x units: {', '.join(shapes.values())}.\n"
        f"*loop* is the usual public code. All numbers: [{base.name}.md](results/bench/{base.name}.md).\n\n{numbers}"
    )


def write_readme(block: str) -> None:
    """Put the block between its marks in the README, if they are there."""
    text = README.read_text()
    if all(mark in text for mark in MARKS):
        before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
        README.write_text(f"{before}{MARKS[0]}\n\n{block}\n\n{MARKS[1]}{after}")


def table(rows: list[dict[str, Any]], heads: list[str], cell: Callable[[dict[str, Any]], str]) -> str:
    """Variants down, `heads` across; heads are config, loss and flush joined."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    lines = ["| |" + "|".join(heads) + "|", "|---|" + "---:|" * len(heads)]
    found = {(row["variant"], head_of(row)): cell(row) for row in rows}
    lines += [f"|{name}|" + "|".join(found.get((name, head), "") for head in heads) + "|" for name in names]
    return "\n".join(lines)


def head_of(row: dict[str, Any]) -> str:
    return row["config"] + (f", last{', flushed' if row['flush'] else ''}" if row["loss"] == "last" else "")


def markdown(rows: list[dict[str, Any]], machine: str) -> str:
    parts = [
        f"# A training step on {machine}",
        f"`make bench` (or in parts: `python scripts/bench.py --only A,memory`); torch {torch.__version__}, "
        f"{rows[0]['threads']} threads. Ratios to torch.nn.LSTM in the same process, medians; below 1 is faster. "
        "In brackets: milliseconds.",
    ]
    titles = {"layer": "Forward and backward of one layer", "memory": "Peak memory of a step", "growth": "Growth",
              "training": "The training loop's step on the copy task, T = 200"}  # fmt: skip
    for section in dict.fromkeys(row["section"] for row in rows):
        chosen = [row for row in rows if row["section"] == section]
        parts.append(f"## {titles.get(section, section)}")
        if section == "layer":
            shapes = {row["config"]: ", ".join(f"{axis}={row[axis]}" for axis in "SBIH") for row in chosen}
            text = "; ".join(f"{name}: {shape}" for name, shape in shapes.items())
            parts.append(f"{text}. In F, the variants of this package also have dt and a mask.")
        heads = list(dict.fromkeys(map(head_of, chosen)))
        value = "MiB" if section == "memory" else "seconds"
        scale, unit = (1, " MiB") if section == "memory" else (1000, "")
        for k in range(0, len(heads), 6):
            few = heads[k : k + 6]
            some = [row for row in chosen if head_of(row) in few]
            parts.append(table(some, few, lambda r: f"{r['ratio']:.2f} ({r[value] * scale:.0f}{unit})"))  # noqa: B023
    return "\n\n".join(parts) + "\n"


def picture(rows: list[dict[str, Any]], file: Path) -> None:
    """Seconds per step against S, B and H."""
    if not rows:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    for ax, axis in zip(axes, "SBH", strict=True):
        chosen = [row for row in rows if row["config"].startswith(axis)]
        for name in dict.fromkeys(row["variant"] for row in chosen):
            points = [(row[axis], row["seconds"]) for row in chosen if row["variant"] == name]
            ax.loglog(*zip(*points, strict=True), marker="o", label=name)
        sizes = sorted({row[axis] for row in chosen})
        ax.set_xticks(sizes, map(str, sizes))
        ax.set_xticks([], minor=True)
        ax.set_xlabel({"S": "steps S", "B": "batch B", "H": "units H"}[axis])
        ax.grid(True, which="both", alpha=0.3)
    axes[0].set_ylabel("seconds per training step")
    axes[0].legend()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few configurations, few rounds")
    parser.add_argument("--only", default="", help="sections or configurations, separated by commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--name", default="", help="of the files in results/bench; default: the processor and threads")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
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
    machine = f"{record.processor()}, {args.threads} threads"
    name = args.name or re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") + ("-quick" if args.quick else "")
    base = Path(__file__).parents[1] / "results" / "bench" / name
    before = earlier(base.with_suffix(".csv"), jobs)
    for rows in measure(jobs, args.threads, before):  # written after every job: an interruption loses one
        write(rows, base, machine)
    if not args.quick:
        write_readme(readme_block(rows, base, machine))
    print(base.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
