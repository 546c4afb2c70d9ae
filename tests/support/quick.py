"""Overrides of a training that takes a moment, and what it leaves."""

import csv
import json
import os
import time
from pathlib import Path

from timescales.experiment.sweep import Sweep
from timescales.runs.record import Record

SIZES = ["task.train_size=16", "task.valid_size=8", "task.test_size=8", "task.batch_size=8", "model.hidden_size=4"]
QUICK = ["task=copy", "task.T=2", *SIZES, "loop.max_steps=2"]
# monkeypatch.setattr(*UNTRAINED): sweeps say what they are to do, and train nothing.
UNTRAINED = (Sweep, "train", lambda self, todo: None)


def records(folder="runs"):
    """The records of the runs in a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*/record.json"))]


def change_record(directory, **changes):
    """Change fields of the record of a run."""
    record = Record.read(directory)
    record.change(**changes)
    record.write(directory)


def curve(directory):
    """The numbers of a run's curve.csv: {name: {step: value}}."""
    found = {}
    with open(directory / "curve.csv", newline="") as file:
        for row in csv.DictReader(file):
            for name in [name for name in row if name not in ("step", "crc32") and row[name]]:
                found.setdefault(name, {})[int(row["step"])] = float(row[name])
    return found


# --- The lock of a process on another machine -------------------------------------------------------------------------
def lock_from_elsewhere(directory, silence, **more):
    """Write a lock whose owner is not seen from here, last touched so many seconds ago."""
    directory.mkdir(exist_ok=True)
    path = directory / "lock"
    owner = {"process": 7, "host": "far", "machine": "another kernel", "job": None, "try": 0, **more}
    path.write_text(json.dumps(owner))
    then = time.time() - silence
    os.utime(path, (then, then))


def ends_well_in_a_fork(work):
    """Whether a call returns in a forked process."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
