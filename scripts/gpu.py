"""On a machine with a GPU: its tests, short runs of every model, then unfinished runs of the tables, in some minutes.

`python scripts/gpu.py --minutes 9 [--device cpu to rehearse]`. Works with the machine's own torch and what `make
gpu-pack` gathered, without network. Leaves results/gpu/<device>.json, small enough to commit, and gpu-runs.tar.gz:
unpacked in the project where the reports are made, its records count as if they had been run there.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACK = ROOT / "gpu-pack"
NEEDED = ("hydra", "omegaconf", "tqdm", "pytest")
TASKS = ("copy", "frequency", "pmnist")
MODELS = ("lstm", "chrono", "ur", "mts", "plstm")
TABLES = ("chien_table1", "chien_copy", "gu_table5", "mahto_dyck2", "chien_table2", "mahto_table1", "chien_table3")
LARGEST = 2**20  # bytes of a checkpoint that comes along


def environment() -> dict[str, str]:
    """The environment for the commands below: the packed packages and data where the machine lacks them."""
    env = dict(os.environ)
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


def tables(names: list[str], end: float, device: str, env: dict[str, str]) -> None:
    """Run what is unfinished of the tables, one after the other, until the time is over; pack what has run."""
    for name in names:
        minutes = (end - time.monotonic()) / 60
        if minutes < 0.5 or not (ROOT / "conf" / "table" / f"{name}.yaml").is_file():
            continue
        command = [sys.executable, "train.py", f"table={name}", "skip=committed", f"device={device}", "logger=none",
                   f"hydra.sweeper.minutes={minutes:.2f}"]  # fmt: skip
        subprocess.run(command, cwd=ROOT, env=env, check=False)
    with tarfile.open(ROOT / "gpu-runs.tar.gz", "w:gz") as archive:
        for path in sorted((ROOT / "runs").glob("*/*")):
            if path.name in ("record.json", "blocks.csv") or (path.suffix == ".pt" and path.stat().st_size <= LARGEST):
                archive.add(path, path.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="stop starting new work after this long")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to rehearse")
    parser.add_argument("--steps", type=int, default=100, help="training steps of each run")
    parser.add_argument("--tables", nargs="*", default=TABLES, help="whose unfinished runs come last, in this order")
    options = parser.parse_args()
    end, env, results = time.monotonic() + 60 * options.minutes, environment(), []
    question = "import torch as t; print(t.cuda.get_device_name() if t.cuda.is_available() else 'cpu')"
    machine = subprocess.check_output([sys.executable, "-c", question], env=env, text=True).strip()
    if options.device == "cuda" and machine == "cpu":
        sys.exit("torch sees no GPU here; --device cpu rehearses")
    env["TIMESCALES_GPU_TESTS"] = options.device
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/test_gpu.py"]
    tests = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    for task in TASKS:
        for model in MODELS:
            if time.monotonic() > end:
                print(f"{task} {model}: not started, the {options.minutes:g} minutes are over", flush=True)
                continue
            folder = ROOT / "runs" / "gpu" / f"{task}-{model}"
            command = [sys.executable, "train.py", f"task={task}", f"model={model}", f"device={options.device}",
                       f"loop.max_steps={options.steps}", "loop.max_eval_batches=2", "logger=none", "force=true",
                       f"run_dir={folder}"]  # fmt: skip
            done = subprocess.run(command, cwd=ROOT, env=env, check=False)
            path = folder / "record.json"
            record = json.loads(path.read_text()) if done.returncode == 0 and path.is_file() else None
            results.append({
                "task": task, "model": model, "command": " ".join(command[1:-1]), "status": done.returncode,
                "steps": record and record["steps"], "seconds": record and record["seconds"],
                "metrics": record and record["metrics"], "commit": record and record["commit"],
            })  # fmt: skip
    tables(options.tables, end, options.device, env)
    folder = ROOT / "results" / "gpu"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{machine.replace(' ', '-').lower()}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"machine": machine, "tests": tests, "runs": results}, indent=1) + "\n")
    temporary.replace(path)
    failed = [f"{r['task']} {r['model']}" for r in results if r["status"]]
    print(f"{path.relative_to(ROOT)}: {len(results) - len(failed)} of {len(results)} runs finished; GPU tests: {tests}")
    sys.exit(1 if failed or tests else 0)


if __name__ == "__main__":
    main()
