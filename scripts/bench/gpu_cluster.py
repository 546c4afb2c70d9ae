"""The cluster engine on a GPU: whether it is right, then its microseconds a step beside other engines.

    python scripts/bench/gpu_cluster.py --rows FILE [--seconds 55] [--device cpu]
    python scripts/bench/gpu_cluster.py --alone          # one pass of an LSTM at size A, for a profiler

First the trial of every cell, lstm and plstm before the others; then one layer, forward and backward, at the sizes A, B
and L of bench_gpu.py, each in turn with nn.LSTM in float32, TF32 and half precision, the graph engine, and the eager
loop under torch.compile, which comes last since it takes long to compile; FlashRNN and haste too where they are
installed. Then Nsight Compute counts how often a load of backward passes through shared memory: once, as the model
of the kernel hopes, or up to four times. Variants that end in x3 have three batched
seeds. The rows of the layers go to measured.csv. With --device cpu the kernels run in their emulator, at tiny sizes.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import cell_models  # noqa: E402
import torch  # noqa: E402
from bench_gpu import measure  # noqa: E402
from bench_gpu_report import CONFIGS, TINY  # noqa: E402
from bench_gpu_steps import UNIT, make_step, set_precision  # noqa: E402
from bench_variants import Config  # noqa: E402

from timescales.files import write_atomic  # noqa: E402
from timescales.nn.engine import equations  # noqa: E402
from timescales.nn.engine.gpu import capture, cluster  # noqa: E402

FIRST = ("lstm", "plstm", "gru")  # if these are wrong, so is what is measured
SIZES = {name: CONFIGS[name] for name in ("A", "B")} | {"L": Config(1000, 16, 64, 512)}
KINDS = ("lstm", "PLSTMCell", "GRUCell", "GatedLSTMCell")  # the last one with a cumax
ENGINES = [(f"{engine} {kind}", "fp32") for kind in KINDS for engine in ("cluster", "graph")]
OTHERS = [(UNIT, "fp32"), (UNIT, "tf32"), (UNIT, "fp16")]
SEEDS = [(f"cluster {kind} x{seeds}", "fp32") for kind in ("lstm", "PLSTMCell") for seeds in (3, 5, 16)]
COMPILED = [("compiled lstm", "fp32")]
PEERS = [("haste lstm", "fp32"), ("FlashRNN lstm", "bf16")]
PASSES, LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "smsp__inst_executed_op_shared_ld.sum"


def trial(name: str, device: torch.device) -> str:
    """ "right", why a cell has no such kernels, or what is wrong with them."""
    try:
        cell = cell_models.model(name, 3, 44 if device.type != "cpu" else 9).layers[0].to(device)
        x = torch.zeros(2, 1, 3, device=device)
        if reason := cluster.unsupported_reason(cell, x, True):  # on a GPU this is the trial
            return reason
        found = equations.known(cell, True)
        if device.type == "cpu" and not isinstance(found, str):
            return cluster.graph.compare(cell, found, device, cluster.kernels_of(cell, found)) or "right"
        return "right"
    except Exception as error:
        return capture.one_line(error)


def trials(device: str) -> Iterator[dict[str, Any]]:
    """A row for each cell; a rehearsal takes the first few."""
    names = [*FIRST, *(name for name in cell_models.KERNELS if name not in FIRST)]
    for name in names if device != "cpu" else FIRST[1:]:
        begun = time.perf_counter()
        note = trial(name, torch.empty(0, device=device).device)
        yield {"part": "trial", "variant": name, "note": note, "ms": 1000 * (time.perf_counter() - begun)}


def layers(device: str, end: float) -> Iterator[list[dict[str, Any]]]:
    """Rows of one layer after the other: what decides first, at each size; then several seeds, then torch.compile."""
    sizes = SIZES if device != "cpu" else TINY
    for variants in (ENGINES + OTHERS, SEEDS, PEERS, COMPILED):
        for name, config in sizes.items():
            seconds = min(3.0 if device != "cpu" else 0.1, end - time.monotonic())
            if seconds <= 0:
                return
            made = {key: functools.partial(make_step, key[0], config, device, key[1]) for key in variants}
            yield measure(name, {**made}, device, seconds)


def alone(device: str) -> None:
    """One pass of the cluster engine's LSTM."""
    make_step("cluster lstm", SIZES["A"] if device != "cpu" else TINY["tiny"], device)()
    if device != "cpu":
        torch.cuda.synchronize()


def shared_loads(device: str, seconds: float) -> dict[str, Any]:
    """A row with the passes of a load from shared memory in backward, by Nsight Compute, or why there are none."""
    row = {"part": "profile", "config": "A", "variant": "cluster lstm backward", "precision": "fp32"}
    if (ncu := shutil.which("ncu")) is None:
        return row | {"note": "no ncu here: the passes of loads from shared memory were not counted"}
    command = [ncu, "--csv", "--metrics", f"{PASSES},{LOADS}", "--kernel-name", "backward", "--launch-count", "1"]
    command += [sys.executable, __file__, "--alone", "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1.0), check=False)
    except subprocess.TimeoutExpired:
        return row | {"note": "ncu: its time was over"}
    return row | {"note": said_by_ncu(done.stdout + done.stderr)}


def said_by_ncu(text: str) -> str:
    """Passes and loads from the CSV of Nsight Compute, or its first error."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found = {row["Metric Name"]: float(row["Metric Value"].replace(",", "")) for row in csv.DictReader(lines)}
    if not found.get(LOADS):
        return f"ncu: {next((line for line in text.splitlines() if 'ERROR' in line), 'it counted nothing')}"
    return f"{found[PASSES] / found[LOADS]:.2f} passes a load from shared memory, {found[LOADS]:.0f} loads"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=55.0, help="begin nothing after so many seconds")
    parser.add_argument("--rows", type=Path, help="JSON file of the rows")
    parser.add_argument("--alone", action="store_true", help="only one pass of an LSTM")
    options = parser.parse_args()
    if options.alone:
        return alone(options.device)
    if options.rows is None:
        parser.error("give --rows FILE, or --alone")
    end, rows = time.monotonic() + options.seconds, list[dict[str, Any]]()

    def note(new: list[dict[str, Any]]) -> None:
        rows.extend(new)
        write_atomic(options.rows, json.dumps(rows).encode())
        for row in new:
            what = " ".join(str(row[key]) for key in ("part", "config", "variant", "precision") if key in row)
            found = row.get("note") or f"{row['ms']:.4g} ms"
            print(f"{what}: {found}", flush=True)

    set_precision("fp32")
    for row in trials(options.device):
        note([row])
        if time.monotonic() > end - options.seconds / 2:
            break  # the other half of the time is for what they cost
    for new in layers(options.device, end - (15.0 if options.device != "cpu" else 0.0)):
        note(new)
    note([shared_loads(options.device, end - time.monotonic())])
    wrong = [row["variant"] for row in rows if row["part"] == "trial" and not is_right(row["note"])]
    sys.exit(f"wrong: {', '.join(wrong)}" if wrong else 0)


def is_right(note: str) -> bool:
    """Whether a trial ended well, or there was none to make."""
    return note == "right" or (note.endswith("use engine='graph'") and not re.search("differs|Error", note))


if __name__ == "__main__":
    main()
