"""What a GPU is needed for, in stages, for a machine that is there for fifteen minutes.

    python3 scripts/bench/gpu.py --minutes 8                  # there; --device cpu rehearses
    python3 scripts/bench/gpu.py --collect FOLDER             # here, with what came back

It needs neither make nor git nor a network: packages that the machine does not have, data sets and the list of open
runs are in gpu-pack/ (`make gpu-pack`). Each stage has its own limit, and its results are written before the next one
begins, to $OUT or else to runs/gpu: gpu.json, gpu.log, and up to three archives of runs of at most 15 MiB. At the end
ten lines say what was learned. --collect writes results/bench, measured.csv and runs/ from that folder.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpu_learned
import gpu_tables
from gpu_place import ROOT, STOPPING, Out, Result, call, environment

BENCH = ROOT / "scripts" / "bench"
REHEARSAL = 4.0  # times as much time has a stage that rehearses on a CPU
PACKING = 5.0  # seconds for the last archives and the ten lines
WORKERS = {"cuda": 8, "cpu": 2}  # of the tests: most of their time is the compilation of some 430 kernels


class Job(NamedTuple):
    """What a stage works with."""

    out: Out
    env: dict[str, str]
    device: str
    seconds: float  # that it may take

    def run(self, stage: str, command: list[str], rows: bool = True, **more: str) -> Result:
        """Run a command; what it writes to its --rows file becomes the stage's "rows" while it runs."""
        path = Path(tempfile.gettempdir()) / f"gpu-{os.getpid()}-{stage}.json"

        def note() -> None:
            with contextlib.suppress(OSError, ValueError):  # not there yet, or half written
                self.out.update(stage, rows=json.loads(path.read_text()))

        arguments = ["--rows", str(path), "--device", self.device] if rows else []
        result = call([sys.executable, *command, *arguments], self.env | more, self.seconds, self.out, note, every=1.0)
        path.unlink(missing_ok=True)
        self.out.update(stage, status=result.status)
        return result


def machine(job: Job) -> None:
    """Versions, driver, compilers, clusters."""
    job.run("machine", [str(BENCH / "gpu_machine.py")])


def engine(job: Job) -> None:
    """Whether the graph engine is right. If not: the failing call, and what compute-sanitizer says of it.

    The check has half of the time. What follows where it fails is done if there is time for it.
    """
    end = time.monotonic() + job.seconds - STOPPING  # which a command that hangs takes in addition

    def left() -> float:
        return end - time.monotonic()

    command = [str(BENCH / "gpu_check.py"), "--steps", "220" if job.device != "cpu" else "12"]
    result = job._replace(seconds=left() / 2).run("engine", command)
    if result.status == 0:
        return
    job.out.update("engine", output=result.output[-8000:])
    if left() > 0:
        job._replace(seconds=left() / 2).run("engine_again", command, CUDA_LAUNCH_BLOCKING="1")
    if left() > 0 and shutil.which("compute-sanitizer"):
        short = ["compute-sanitizer", sys.executable, str(BENCH / "gpu_check.py"), "--steps", "4"]
        rows = ["--rows", os.devnull, "--device", job.device]
        job.out.update("engine", sanitizer=call([*short, *rows], job.env, left(), job.out).output[-8000:])


def layer(job: Job) -> None:
    """Microseconds per step of the parts of a layer and of the whole, beside nn.LSTM. This decides what to build."""
    command = [str(BENCH / "bench_gpu.py"), "--parts", "deciding", "layers", "--seconds", "8"]
    job.run("layer", [*command, "--minutes", f"{job.seconds / 60 - 0.1:.2f}"])


def cluster(job: Job) -> None:
    """The cluster engine: the trial of all cells, and its microseconds per step beside the other engines."""
    job.run("cluster", [str(BENCH / "gpu_cluster.py"), "--seconds", f"{job.seconds - 5:.0f}"])


def tests(job: Job) -> None:
    """The tests that need a GPU, in several processes."""
    command = ["-m", "pytest", "-m", "gpu", "tests/nn/test_gpu.py", "-v", "--tb=short", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("xdist"):
        command += ["-p", "xdist", "-n", str(WORKERS.get(job.device, 8))]
    result = job.run("tests", command, rows=False, TIMESCALES_GPU_TESTS=job.device)
    job.out.update("tests", **outcomes(result.output))


def outcomes(output: str) -> dict[str, Any]:
    """What pytest's output says: how many tests passed, failed, ..., and which failed."""
    words = ("passed", "failed", "skipped", "error")
    last = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|skipped|error)", line)][-1:]
    found = {word: int(match[1]) for word in words for match in [re.search(rf"(\d+) {word}", "".join(last))] if match}
    if not found:  # it was stopped before its summary
        found = {word: len(re.findall(rf"\b{word.upper()}\b", output)) for word in words}
    failed = dict.fromkeys(re.findall(r"(?:FAILED|ERROR) (tests/\S+)", output))
    return {"counts": {word: count for word, count in found.items() if count}, "failed": list(failed)[:20]}


def step(job: Job) -> None:
    """Milliseconds of a whole training step, of one seed and of five, launched and captured (training/graphs.py)."""
    command = [str(BENCH / "bench_gpu.py"), "--parts", "steps", "--seconds", "12"]
    job.run("step", [*command, "--minutes", f"{job.seconds / 60 - 0.05:.2f}"])


def tables(job: Job) -> None:
    """Open runs of tables, the cheapest first."""
    gpu_tables.train(job.out, job.env, job.device, job.seconds)


class Stage(NamedTuple):
    """A stage, and its limit in seconds; None: all the time that is left."""

    work: Callable[[Job], None]
    limit: float | None


STAGES = {
    "machine": Stage(machine, 30),
    "engine": Stage(engine, 100),
    "layer": Stage(layer, 70),
    "cluster": Stage(cluster, 60),
    "tests": Stage(tests, 90),
    "step": Stage(step, 40),
    "tables": Stage(tables, None),
}


def work(options: argparse.Namespace, out: Out) -> None:
    """Do the chosen stages, one after the other; an error in one does not keep the others from their turn."""
    end = time.monotonic() + 60 * options.minutes - PACKING
    out.update("session", device=options.device, minutes=options.minutes, begun=time.time())
    env = environment()
    for name in options.stages:
        left, stage = end - time.monotonic(), STAGES[name]
        limit = stage.limit * (REHEARSAL if options.device == "cpu" else 1.0) if stage.limit else left
        seconds = min(limit, left)
        if seconds < STOPPING:
            out.update(name, not_begun="the time was over")
            continue
        out.say(f"== {name}: at most {seconds:.0f} s, {left:.0f} s are left")
        begun = time.monotonic()
        try:
            stage.work(Job(out, env, options.device, seconds))
        except Exception:
            out.say(traceback.format_exc())
            out.update(name, error=traceback.format_exc())
        out.update(name, seconds=round(time.monotonic() - begun, 1))
        if out.results.get("machine", {}).get("rows", {}).get("gpus") == 0:
            sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="the slowest acceptable total; default: 8")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal at tiny sizes")
    parser.add_argument("--stages", nargs="*", default=[*STAGES], choices=[*STAGES], help="default: all, in this order")
    parser.add_argument("--collect", type=Path, metavar="FOLDER", help="put what came back where it belongs")
    options = parser.parse_args()
    if options.collect is not None:
        from gpu_collect import collect  # it needs torch

        print("\n".join(collect(options.collect)))
        return
    default = ROOT / "runs" / ("gpu" if options.device != "cpu" else "gpu-rehearsal")
    out = Out(Path(os.environ.get("OUT") or default))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        work(options, out)
    finally:
        out.update("session", seconds=round(time.time() - out.results["session"]["begun"], 1))
        lines = gpu_learned.lines(out.results)
        out.update("learned", lines=lines)
        out.say(gpu_learned.text(out.results))
    if options.device != "cpu" and "OUT" not in os.environ:
        out.say(f"python3 scripts/bench/gpu.py --collect {default.relative_to(ROOT)} puts this where it belongs")


if __name__ == "__main__":
    main()
