"""A sweep on a real SLURM of one node, with one job cancelled and one over its time limit: `make test-slurm`.

Prints what happens as it happens; fails unless all records and weights are, bit for bit, those of an undisturbed sweep
without SLURM. Takes four minutes, one of them the time limit.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
NODE = ROOT / "tests" / "slurm_node.sh"
SWEEP = [
    sys.executable, str(ROOT / "train.py"), "-m", "model=lstm", "model.hidden_size=16", "seed=0,1,2",
    "task=copy", "task._target_=paced.Paced", "task.T=10", "task.batch_size=10", "task.train_size=200",
    "task.valid_size=50", "task.test_size=50", "loop.max_steps=120", "loop.checkpoint_every=1", "logger=csv",
]  # fmt: skip
# SLURM's shortest time limit is a minute. It looks at the time twice in that, so warns 5 to 35 seconds before the end.
SLURM = ["hydra/launcher=slurm", "hydra.launcher.gpus_per_node=0", "hydra.launcher.cpus_per_task=1",
         "hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=5",
         "hydra.launcher.array_parallelism=4"]  # fmt: skip
PACE = 0.3  # seconds a step, times the seed: the 120 steps of seed 2 take more than the minute
BEGUN = time.monotonic()


def say(line):
    print(f"{time.monotonic() - BEGUN:5.0f} s  {line}", flush=True)


def start(place, *more, pace=0.0):
    place.mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "PACE": str(pace), "OMP_NUM_THREADS": "1"}
    say(f"$ python train.py {' '.join(['-m', *more, *SWEEP[3:]])}")
    return subprocess.Popen(
        [*SWEEP, *more], cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def lines_of(process):
    for line in process.stdout:
        say(line.rstrip())
        yield line
    process.wait()


def run_of(place, seed):
    return next(iter((place / "runs").glob(f"copy-lstm-s{seed}-*")), place / "none")


def step_of(directory):
    try:
        return torch.load(directory / "last.pt", weights_only=True)["progress"]["step"]
    except FileNotFoundError:
        return 0


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def check(place, whole):
    """Every run of a sweep against that of another: what is measured, and the weights, bit for bit."""
    for seed in range(3):
        ours, theirs = run_of(place, seed), run_of(whole, seed)
        records = [json.loads((d / "record.json").read_text()) for d in (ours, theirs)]
        for key in ("id", "status", "metrics", "last", "best", "curve", "steps", "stopped"):
            assert records[0][key] == records[1][key], (seed, key)
        for name in ("last.pt", "best.pt"):
            kept = [torch.load(d / name, weights_only=True) for d in (ours, theirs)]
            kept[0].get("progress", {}).pop("seconds", None), kept[1].get("progress", {}).pop("seconds", None)
            assert same(*kept), (seed, name)
        say(f"seed {seed}: record, curve, weights and optimizer are bitwise those of the undisturbed run")


def hurry(ended):
    """SLURM holds a requeued job for two minutes; nothing is to be learnt from these."""
    while not ended.wait(1.0):
        waiting = subprocess.run(
            ["squeue", "-h", "-r", "-t", "PD", "-o", "%i %r"], capture_output=True, text=True, check=False
        )
        for line in waiting.stdout.splitlines():
            if line.endswith("BeginTime"):
                say(f"job {line.split()[0]} was requeued")
                subprocess.run(["scontrol", "update", f"jobid={line.split()[0]}", "StartTime=now"], check=True)


def cluster(folder):
    """The sweep, disturbed twice, and once more."""
    version = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    say(f"{version}, one node")
    process, array = start(folder, *SLURM, pace=PACE), None
    said = []
    for line in lines_of(process):
        said.append(line)
        if found := re.match(r"SLURM has 3 jobs, (\d+)", line):
            array = found[1]
            while not 0 < step_of(run_of(folder, 1)) < 100:
                time.sleep(0.5)
            say(f"$ scancel {array}_1    # at step {step_of(run_of(folder, 1))} or later")
            subprocess.run(["scancel", f"{array}_1"], check=True)
    assert process.returncode == 1, "a job was cancelled"
    assert any(f"job {array}_1 was cancelled or killed: the same command continues" in line for line in said)
    restarts = [
        int(re.search(r"Restarts=(\d+)", one)[1])
        for one in subprocess.run(
            ["scontrol", "show", "job", "--oneliner", array], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if re.search(r"ArrayTaskId=2\b", one)
    ]
    assert restarts[0] > 0
    assert json.loads((run_of(folder, 1) / "record.json").read_text())["status"] == "interrupted"
    for expected in ("3 runs: 2 finished, skipped; 1 to run", "3 runs: 3 finished, skipped; 0 to run"):
        process = start(folder, *SLURM)
        said = list(lines_of(process))
        assert process.returncode == 0
        assert said[0].strip() == expected
    assert step_of(run_of(folder, 1)) == 120


def main():
    with tempfile.TemporaryDirectory(prefix="timescales-slurm-") as name:
        folder = Path(name)
        ended = threading.Event()
        folder.chmod(0o755)  # munge, which is another user, must get to its key
        up = subprocess.run([str(NODE), "up", str(folder / "node")], capture_output=True, text=True, check=False)
        if up.returncode == 3:
            print(f"make test-slurm is left out: {up.stdout.strip()}")
            return
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            os.environ["SLURM_CONF"] = str(folder / "node" / "slurm.conf")
            threading.Thread(target=hurry, args=(ended,)).start()
            cluster(folder / "sweep")
            whole = start(folder / "whole")
            assert list(lines_of(whole))
            assert whole.returncode == 0
            check(folder / "sweep", folder / "whole")
        finally:
            ended.set()
            subprocess.run([str(NODE), "down", str(folder / "node")], check=True)
    say("done")


if __name__ == "__main__":
    main()
