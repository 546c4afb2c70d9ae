"""What was learned on a GPU, in ten lines: each has what it is about and what was found, or why there is nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Results = Mapping[str, Any]
NOTHING = "not measured"
SIZES = {"A": "220, 128, 128", "B": "784, 128, 256", "B512": "784, 128, 512"}  # steps, batch, hidden of bench_gpu.py
LENGTHS = {name: int(sizes.split(",")[0]) for name, sizes in SIZES.items()} | {"L": 1000, "tiny": 8}


def lines(results: Results) -> list[tuple[str, str]]:
    """Ten lines: what, and what was found. results: of each stage by name, as gpu.json has them."""
    layer = {
        (row["config"], row["variant"], row["precision"]): row
        for row in results.get("layer", {}).get("rows", [])
        if row["part"] == "layer"
    }
    configs = [*dict.fromkeys(config for config, _, _ in layer if config not in SIZES), *SIZES][:3]
    return [
        ("machine", machine(results.get("machine", {}).get("rows", {}))),
        ("ceilings", ceilings(results.get("layer", {}).get("rows", []))),
        ("clusters", clusters(results)),
        ("graph engine", engine(results.get("engine", {}))),
        *((f"us a step, {config}", us_per_step(layer, config)) for config in configs),
        ("tests", tests(results.get("tests", {}))),
        ("training step", training_step(results.get("step", {}).get("rows", []))),
        ("tables", tables(results.get("tables", {}))),
    ]


def text(results: Results) -> str:
    """The ten lines as a table."""
    return "\n".join(f"| {what:18} | {found} |" for what, found in lines(results))


def machine(found: Results) -> str:
    """Name, versions and driver."""
    if not found.get("device_name"):
        return NOTHING
    smi = str(found.get("nvidia_smi", "")).split(", ")
    driver = f"driver {smi[1]}" if len(smi) > 1 else smi[0]
    versions = ", ".join(f"{name} {found.get(name)}" for name in ("python", "torch", "triton", "numpy"))
    return f"{found['device_name']}; {driver}; {versions}"


def ceilings(rows: Iterable[Mapping[str, Any]]) -> str:
    """Speeds of a copy and of large products."""
    found = {row["variant"]: float(row["note"]) for row in rows if row["part"] == "ceiling"}
    if not found:
        return NOTHING
    copied = f"copy {found.pop('copy bytes/s') / 1e12:.3g} TB/s"
    return ", ".join([copied, *(f"{name.split()[0]} {value / 1e12:.3g} TFLOP/s" for name, value in found.items())])


def clusters(results: Results) -> str:
    """How many clusters of thread blocks run at once, and what the cluster engine takes, if it is right."""
    found = results.get("machine", {}).get("rows", {}).get("clusters", NOTHING)
    if isinstance(found, dict):
        found = "at once: " + ", ".join(f"{count} of {size}" for size, count in found.items())
    rows = results.get("cluster", {}).get("rows", [])
    trials = [row for row in rows if row["part"] == "trial"]
    right = sum(row["note"] == "right" for row in trials)
    speeds = [
        f"{row['config']} {row['variant'].removeprefix('cluster ')} {1000 * row['ms'] / LENGTHS[row['config']]:.3g}"
        for row in rows
        if row["part"] == "layer" and row["variant"].startswith("cluster") and "ms" in row
    ]
    engine = f"{right} of {len(trials)} trials right" if trials else NOTHING
    passes = [row["note"] for row in rows if row["part"] == "profile" and "passes a load" in row["note"]]
    return f"{found}; cluster engine: {', '.join([engine, *speeds, *passes])}"


def engine(found: Results) -> str:
    """The largest errors, or how the engine failed."""
    errors = found.get("rows", {})
    parts = [f"{model} {call} {error:.0e}" for model, calls in errors.items() for call, error in calls.items()]
    words = {0: "right", 1: "WRONG or failed, see gpu.log", None: "stopped, its time was over"}
    if "status" not in found:
        return NOTHING
    verdict = words.get(found["status"], f"FAILED with status {found['status']}, see gpu.log")
    return f"{verdict}: {', '.join(parts)}" if parts else verdict


def us_per_step(layer: Mapping[tuple[str, str, str], Mapping[str, Any]], config: str) -> str:
    """Microseconds of a step of the sequence, forward and backward."""
    shown = (
        ("products", "products lstm", "fp32"),
        ("kernels", "kernels lstm", "fp32"),
        ("graph", "graph lstm", "fp32"),
        ("plstm", "graph PLSTMCell", "fp32"),
        ("x5", "graph lstm x5", "fp32"),
        ("nn.LSTM", "nn.LSTM", "fp32"),
        ("tf32", "nn.LSTM", "tf32"),
        ("fp16", "nn.LSTM", "fp16"),
    )
    parts = []
    for name, variant, precision in shown:
        row = layer.get((config, variant, precision), {})
        if "ms" in row:
            parts.append(f"{name} {1000 * row['ms'] / LENGTHS[config]:.3g}")
        elif "note" in row:
            parts.append(f"{name} failed ({row['note'][:40]})")
    return ", ".join(parts) or NOTHING


def tests(found: Results) -> str:
    """How many tests passed, and the first that failed."""
    counts = found.get("counts")
    if not counts:
        return NOTHING
    parts = ", ".join(f"{count} {word}" for word, count in counts.items())
    failed = found.get("failed", [])
    stopped = ", stopped: its time was over" if found.get("status") is None else ""
    return f"{parts}{stopped}" + (f"; first: {failed[0]}" if failed else "")


def training_step(rows: Iterable[Mapping[str, Any]]) -> str:
    """Milliseconds of a training step, and the CPU's share of it."""
    parts = []
    for row in rows:
        if row["part"] == "training":
            share = row.get("note", "").partition("CPU ")[2].partition(" %")[0]
            measured = f"{row['ms']:.3g} ms (CPU {share} %)" if "ms" in row else "failed"
            parts.append(f"{row['variant']} {measured}")
    return ", ".join(parts) or NOTHING


def tables(found: Results) -> str:
    """How many runs ended, of which tables, and how the price compares with the model's."""
    if "families" not in found:
        return NOTHING
    ended: dict[str, int] = {}
    for family in found["families"]:
        ended[family["table"]] = ended.get(family["table"], 0) + family["ended"]
    runs = ", ".join(f"{count} of {name}" for name, count in ended.items()) or "none could end in time"
    left = f"; too large to come back: {len(found['left_out'])} files" if found.get("left_out") else ""
    return f"runs that ended: {runs}; {found['factor']:.2g} x the model's time; {found['open']} families open{left}"
