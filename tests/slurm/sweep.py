"""A table's sweep on a real SLURM of one node, with one job cancelled and one over its time limit: `make test-slow`.

Prints what happens as it happens; fails unless all records and weights are, bit for bit, those of an undisturbed sweep
without SLURM, and the table's report is the same. Takes four minutes, one of them the time limit.
"""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NODE = HERE / "node.sh"
TABLE = ["--config-dir", "user", "table=paced_copy", "logger=csv", "device=cpu"]
# SLURM's shortest time limit is a minute. It looks at the time twice in that, so warns 5 to 35 seconds before the end.
SLURM = [
    "hydra/launcher=slurm", "hydra.launcher.gpus_per_node=0", "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=5", "hydra.launcher.array_parallelism=4",
]  # fmt: skip
PACE = 0.3  # seconds a step, times the seed: the 120 steps of seed 2 take more than the minute
JOBS = [("lstm", 1), ("plstm", 1), ("lstm", 2), ("plstm", 2)]  # in the table's order
CANCELLED, LATE = 1, 2
BEGUN = time.monotonic()


def say(line):
    print(f"{time.monotonic() - BEGUN:5.0f} s  {line}", flush=True)


def start(place, script, *words, pace=0.0):
    if not place.exists():
        shutil.copytree(HERE / "table", place / "user" / "table")
    own = {"PYTHONPATH": f"{ROOT / 'tests' / 'support'}:{ROOT}", "PACE": str(pace), "OMP_NUM_THREADS": "1"}
    say(f"$ python {script} {' '.join(words)}")
    command, env = [sys.executable, str(ROOT / script), *words], os.environ | own
    return subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def lines_of(process):
    for line in process.stdout:
        say(line.rstrip())
        yield line
    process.wait()


def run_of(place, job):
    model, seed = JOBS[job]
    return next(iter((place / "runs").glob(f"copy-{model}-s{seed}-*")), place / "none")


def report(place):
    """The runs of a table as its report has them, without their times; and the line of its claim."""
    process = start(place, "scripts/report.py", "--config-dir", "user", "paced_copy")
    assert list(lines_of(process))
    assert process.returncode == 0
    with (place / "user" / "results" / "paced_copy" / "runs.csv").open(newline="") as file:
        rows = [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]
    text = (place / "user" / "results" / "paced_copy" / "table.md").read_text()
    claim = next(line for line in text.splitlines() if "lstm better than plstm" in line)
    return rows, claim


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
    """Compare every run of a sweep with that of another: measurements and weights, bit for bit; and the reports."""
    for job, (model, seed) in enumerate(JOBS):
        directories = run_of(place, job), run_of(whole, job)
        records = [json.loads((d / "record.json").read_text()) for d in directories]
        for key in ("id", "status", "metrics", "last", "best", "curve", "steps", "stopped"):
            assert records[0][key] == records[1][key], (model, seed, key)
        for name in ("last.pt", "best.pt"):
            kept = [torch.load(d / name, weights_only=True) for d in directories]
            kept[0].get("progress", {}).pop("seconds", None), kept[1].get("progress", {}).pop("seconds", None)
            assert same(*kept), (model, seed, name)
        say(f"{model}, seed {seed}: record, curve, weights and optimizer are bitwise those of the undisturbed run")
    rows, claim = report(place)
    assert len(rows) == len(JOBS)
    assert (rows, claim) == report(whole)
    say(f"the report is that of the undisturbed sweep: {claim}")


def hurry(ended):
    """SLURM holds a requeued job for two minutes; start it after ten seconds, in which the rest of it is killed."""
    known = {}  # requeued jobs: not to be looked at before that time
    while not ended.wait(1.0):
        command = ["squeue", "-h", "-r", "-t", "PD", "-o", "%i %r"]
        waiting = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in waiting.stdout.splitlines():
            job = line.split()[0]
            if line.endswith("BeginTime") and time.monotonic() > known.get(job, 0.0):
                say(f"job {job} was requeued")
                subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now+10"], check=True)
                known[job] = time.monotonic() + 20


def cluster(folder):
    """The sweep, disturbed twice, and once more."""
    version = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    say(f"{version}, one node")
    process, array = start(folder, "train.py", *TABLE, *SLURM, pace=PACE), None
    lines = []
    for line in lines_of(process):
        lines.append(line)
        if found := re.match(rf"SLURM has {len(JOBS)} jobs, (\d+)", line):
            array = found[1]
            while not 0 < step_of(run_of(folder, CANCELLED)) < 100:
                time.sleep(0.5)
            say(f"$ scancel {array}_{CANCELLED}    # at step {step_of(run_of(folder, CANCELLED))} or later")
            subprocess.run(["scancel", f"{array}_{CANCELLED}"], check=True)
    assert process.returncode == 1, "a job was cancelled"
    assert any(f"job {array}_{CANCELLED} was cancelled or killed: the same command continues" in line for line in lines)
    command = ["scontrol", "show", "job", "--oneliner", array]
    jobs = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (late,) = [one for one in jobs.splitlines() if re.search(rf"ArrayTaskId={LATE}\b", one)]
    assert int(re.search(r"Restarts=(\d+)", late)[1]) > 0
    assert json.loads((run_of(folder, CANCELLED) / "record.json").read_text())["status"] == "interrupted"
    rows, claim = report(folder)
    assert len(rows) == len(JOBS) - 1
    say(f"the report has what is finished: {claim}")
    for expected in ("4 runs: 3 already finished, 1 to train", "4 runs: 4 already finished, 0 to train"):
        process = start(folder, "train.py", *TABLE, *SLURM)
        lines = list(lines_of(process))
        assert process.returncode == 0
        assert lines[0].strip() == expected
    assert step_of(run_of(folder, CANCELLED)) == 120


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SLURM is ended, too
    with tempfile.TemporaryDirectory(prefix="timescales-slurm-") as name:
        folder = Path(name)
        ended = threading.Event()
        folder.chmod(0o755)  # munge, which is another user, must get to its key
        up = subprocess.run([str(NODE), "up", str(folder / "node")], capture_output=True, text=True, check=False)
        if up.returncode == 3:
            print(f"the sweep on SLURM is left out: {up.stdout.strip()}")
            return
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            os.environ["SLURM_CONF"] = str(folder / "node" / "slurm.conf")
            threading.Thread(target=hurry, args=(ended,)).start()
            cluster(folder / "sweep")
            whole = start(folder / "whole", "train.py", *TABLE)
            assert list(lines_of(whole))
            assert whole.returncode == 0
            check(folder / "sweep", folder / "whole")
        finally:
            ended.set()
            subprocess.run([str(NODE), "down", str(folder / "node")], check=True)
    say("done")


if __name__ == "__main__":
    main()
