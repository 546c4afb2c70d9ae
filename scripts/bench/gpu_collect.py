"""Put what came back from a GPU machine where it belongs: measurements to results/, runs to runs/."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import gpu_cluster  # noqa: E402
import gpu_learned  # noqa: E402
from bench_gpu_report import CONFIGS, slug, update_measured, with_ratios, write  # noqa: E402

from timescales.errors import ConfigError  # noqa: E402
from timescales.runs import lock, record  # noqa: E402
from timescales.training.run import resume_step  # noqa: E402


def collect(folder: Path, root: Path = ROOT) -> list[str]:
    """Write what `folder` has into the checkout at `root`; returns lines that say what was written and what to do next.

    Of a rehearsal nothing is written.
    """
    path = folder / "gpu.json"
    if not path.is_file():
        sys.exit(f"{folder} has no gpu.json: name the folder that came back from the GPU machine")
    try:
        results: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        sys.exit(f"{path} is cut short: fetch it again")
    said = [gpu_learned.text(results)]
    if results["session"]["device"] == "cpu":
        return [*said, "a rehearsal: nothing is written"]
    said += measurements(results, root)
    names = []
    for archive in sorted(folder.glob("runs-*.tar")):
        names += unpack(archive, root / "runs")
    said += [f"runs/{line}" for line in names]
    tables = dict.fromkeys(family["table"] for family in results.get("tables", {}).get("families", []))
    said += [f"next: make report TABLE={name}" for name in tables]
    return said


def measurements(results: dict[str, Any], root: Path) -> list[str]:
    """Write the benchmark, the times that engine=auto goes by, and the ten lines."""
    machine = results.get("machine", {}).get("rows", {})
    name, version = machine.get("device_name"), machine.get("torch", "unknown")
    rows = [row for stage in ("layer", "cluster", "step") for row in results.get(stage, {}).get("rows", [])]
    if not name or not rows:
        return ["no measurements came back"]
    base = root / "results" / "bench" / slug(name)
    write(with_ratios(rows), base, name, version)
    measured = root / "timescales" / "nn" / "engine" / "gpu" / "measured.csv"
    update_measured(rows, CONFIGS | gpu_cluster.SIZES, name, measured)
    page = base.with_name(f"{base.name}-learned.md")
    commit = machine.get("commit") or "an unknown commit"
    head = f"# What was learned on {name}\n\nWritten by `scripts/bench/gpu.py` at {commit}.\n\n"
    page.write_text(f"{head}| what | found |\n| --- | --- |\n{gpu_learned.text(results)}\n")
    return [str(p.relative_to(root)) for p in (base.with_suffix(".csv"), base.with_suffix(".md"), page, measured)]


def unpack(archive: Path, runs: Path) -> list[str]:
    """Unpack an archive of runs; returns a line for each. A run that is further here, or in training, stays."""
    with tempfile.TemporaryDirectory() as place, tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
        return [f"{source.name}: {bring(source, runs / source.name)}" for source in sorted(Path(place).iterdir())]


def bring(source: Path, target: Path) -> str:
    """Bring a run's files into its directory, unless what is there is further; returns what was done, in words."""
    try:
        new, old = (record.Record.read(place) for place in (source, target))
        arrived, here = (r is not None and r.ended for r in (new, old))
        if here or (not arrived and old is not None and resume_step(target) >= max(1, resume_step(source))):
            return "left as it is here, which is as far or further"
    except ConfigError as error:
        return f"not taken: {error}"
    if new is None or not (arrived or (source / "last.pt").is_file()):
        return "not taken: neither an outcome nor a checkpoint"
    if lock.owner(target) is not None:
        return "not taken: it is being trained here"
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        shutil.copy(path, target / path.name)
    state = new.state.value
    return state if arrived else f"{state} after {resume_step(target)} steps"
