"""Run everything that needs a GPU: tests, benchmark, short runs of every model, and unfinished runs of the tables.

    python scripts/bench/gpu.py --minutes 9 [--parts tests bench runs tables] [--device cpu for a rehearsal]

It uses the machine's own torch and the files that `make gpu-pack` gathered, and needs no network. A part starts only if
there is time, and is stopped when the time is over. It writes results/gpu/<device>.json and .md and
results/bench/<device>.csv and .md, which are small enough to commit, and gpu-runs.tar.gz: unpacked in the checkout
where the reports are made, its records count as if the runs had been made there.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "gpu-pack"
NEEDED = ("hydra", "omegaconf", "tqdm", "pytest")
TASKS = ("copy", "frequency", "pmnist")
MODELS = ("lstm", "chrono", "ur", "mts", "plstm")
PARTS = ("tests", "bench", "runs", "tables")
TABLES = ("chien_table1", "chien_copy", "gu_table5", "mahto_dyck2", "chien_table2", "mahto_table1", "chien_table3")
LARGEST = 2**20  # bytes; larger checkpoints are not packed


def environment() -> dict[str, str]:
    """Environment of the commands: the packed packages and data are used if the machine does not have them."""
    env = dict(os.environ)
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the machine's own plugins may not fit the packed pytest
    paths = [str(ROOT)]
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        if not (PACK / "wheels").is_dir():
            sys.exit(f"no {', '.join(missing)} and no gpu-pack/ here: run `make gpu-pack` where there is a network")
        wheels = [str(path) for path in (PACK / "wheels").glob("*.whl")]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
        subprocess.run([*command, "--target", str(PACK / "site"), *wheels], check=True)
        paths.append(str(PACK / "site"))
    env["PYTHONPATH"] = os.pathsep.join([*paths, *env.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
    if (PACK / "data").is_dir():
        for path in (PACK / "data").rglob("*.gz"):
            if not path.name.endswith((".tar.gz", "ubyte.gz")) and not path.with_suffix("").exists():
                path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        env.setdefault("TIMESCALES_DATA", str(PACK / "data"))
    return env


def call(command: list[str], env: dict[str, str], end: float) -> int | None:
    """Run a command. Returns its exit status, or None if it was stopped because the time is over."""
    with subprocess.Popen(command, cwd=ROOT, env=env) as process:
        try:
            return process.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"stopped, the time is over: {' '.join(command[1:])}", flush=True)
            process.terminate()  # a training then writes its checkpoint
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            return None


def tables(names: list[str], end: float, device: str, env: dict[str, str]) -> None:
    """Run the unfinished runs of the tables, one table after the other, until the time is over. Pack all runs."""
    for name in names:
        minutes = (end - time.monotonic()) / 60
        if minutes < 0.5 or not (ROOT / "conf" / "table" / f"{name}.yaml").is_file():
            continue
        command = [
            sys.executable,
            "train.py",
            f"table={name}",
            "seeds=3",
            "skip=committed",
            f"device={device}",
            "logger=none",
            f"hydra.sweeper.minutes={minutes:.2f}",
        ]
        call(command, env, end + 60)  # the sweep stops by itself, after a step
    with tarfile.open(ROOT / "gpu-runs.tar.gz", "w:gz") as archive:
        for path in sorted((ROOT / "runs").glob("*/*")):
            if path.name in ("record.json", "blocks.csv") or (path.suffix == ".pt" and path.stat().st_size <= LARGEST):
                archive.add(path, path.relative_to(ROOT))


def runs(device: str, steps: int, end: float, env: dict[str, str]) -> list[dict[str, Any]]:
    """Short runs of every model on every task, and their results."""
    results: list[dict[str, Any]] = []
    for task, model in itertools.product(TASKS, MODELS):
        if time.monotonic() > end:
            print(f"{task} {model}: not started, the time is over", flush=True)
            continue
        folder = ROOT / "runs" / "gpu" / f"{task}-{model}"
        overrides = [f"task={task}", f"model={model}", f"device={device}", f"loop.max_steps={steps}"]
        overrides += ["loop.max_eval_batches=2", "logger=none", "force=true"]
        command = [sys.executable, "train.py", *overrides, f"run_dir={folder}"]
        status = call(command, env, end)
        path = folder / "record.json"
        record = json.loads(path.read_text()) if status == 0 and path.is_file() else {}
        result = {"task": task, "model": model, "command": " ".join(command[1:-1]), "status": status}
        results.append(result | {key: record.get(key) for key in ("steps", "seconds", "metrics", "commit")})
    return results


def markdown(results: dict[str, Any]) -> str:
    """The results as a page."""
    words = {0: "passed", None: "not run, or stopped because the time was over"}
    lines = [f"# {results['machine']}", "", f"Written by `make gpu` ({results['minutes']:g} minutes).", ""]
    lines += [f"- {part}: {words.get(results[part], 'failed')}" for part in ("tests", "bench")]
    lines += ["", "| task | model | steps | seconds | status |", "| --- | --- | ---: | ---: | --- |"]
    for run in results["runs"]:
        seconds = "" if run["seconds"] is None else f"{run['seconds']:.1f}"
        status = words.get(run["status"], "failed").replace("passed", "finished")
        lines.append(f"| {run['task']} | {run['model']} | {run['steps'] or ''} | {seconds} | {status} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="do not start another part after this many minutes")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="parts to run; default: all")
    parser.add_argument("--steps", type=int, default=100, help="training steps of each run")
    parser.add_argument(
        "--tables", nargs="*", default=TABLES, help="tables whose unfinished runs are made, in this order"
    )
    options = parser.parse_args()
    end, env = time.monotonic() + 60 * options.minutes, environment()
    machine = device_name(env)
    if options.device == "cuda" and machine == "cpu":
        sys.exit("torch sees no GPU here; --device cpu rehearses")
    env["TIMESCALES_GPU_TESTS"] = options.device
    folder = ROOT / ("results/gpu" if options.device != "cpu" else "runs/rehearsal")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{machine.replace(' ', '-').lower()}.json"
    results: dict[str, Any] = {"machine": machine, "minutes": options.minutes}
    results |= {"tests": None, "bench": None, "runs": []}
    for part in run_parts(options, end, env):
        results |= part
        write(path, results)
    failed = [f"{run['task']} {run['model']}" for run in results["runs"] if run["status"]]
    print(f"{path.relative_to(ROOT)}\n{markdown(results)}")
    sys.exit(1 if failed or results["tests"] or results["bench"] else 0)


def device_name(env: dict[str, str]) -> str:
    """Name of the GPU, or "cpu" if torch sees none."""
    code = "import torch as t; print(t.cuda.get_device_name() if t.cuda.is_available() else 'cpu')"
    return subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip()


def run_parts(options: argparse.Namespace, end: float, env: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Run the chosen parts. Yields the results of each."""
    if "tests" in options.parts:
        yield {"tests": call([sys.executable, "-m", "pytest", "-m", "gpu", "tests/nn/test_gpu.py"], env, end)}
    if "bench" in options.parts and time.monotonic() < end:
        minutes = (end - time.monotonic()) / 60
        if {"runs", "tables"} & set(options.parts):
            minutes *= 0.6  # the rest of the time is for these parts
        arguments = ["--device", options.device, "--minutes", f"{minutes:.2f}"]
        yield {"bench": call([sys.executable, "scripts/bench/bench_gpu.py", *arguments], env, end)}
    if "runs" in options.parts:
        yield {"runs": runs(options.device, options.steps, end, env)}
    if "tables" in options.parts:
        tables(options.tables, end, options.device, env)


def write(path: Path, results: dict[str, Any]) -> None:
    """Write the results as JSON and as a page."""
    for file, text in ((path, json.dumps(results, indent=1) + "\n"), (path.with_suffix(".md"), markdown(results))):
        temporary = file.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(file)


if __name__ == "__main__":
    main()
