"""Open runs of tables on a GPU, the cheapest families first, and only those that can end in the time that is left."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_place import PACK, ROOT, STOPPING, Out, call, status

PLAN = PACK / "plan.json"  # from gpu_plan.py
START = 15.0  # seconds until a family trains: imports, data, kernels
# What makes any run so small that a CPU does it in seconds: it rehearses how runs are launched, stopped and packed.
SMALL = (
    *("model.hidden_size=8", "task.batch_size=2", "loop.max_steps=4", "loop.eval_every=2", "loop.max_eval_batches=1"),
    *("engine=eager", "force=true"),  # which stacks seeds, as the engine of a GPU does
)


def plan(out: Out, env: dict[str, str], seconds: float) -> dict[str, Any]:
    """The open families and the model's times; made now if `make gpu-pack` did not, none where that fails."""
    if not PLAN.is_file():
        out.say(f"no {PLAN.relative_to(ROOT)}: looking for open runs")
        PLAN.parent.mkdir(exist_ok=True)
        made = call([sys.executable, "scripts/bench/gpu_plan.py", "--out", str(PLAN)], env, seconds, out)
        if not PLAN.is_file():
            out.say(f"the open runs could not be listed ({made.status}): no run is begun")
            return {"families": [], "modelled_ms": {}}
    found: dict[str, Any] = json.loads(PLAN.read_text())
    return found


def scale(modelled: Mapping[str, float], steps: Mapping[str, float]) -> float:
    """How much longer a training step takes than the model says; 1 if none was measured.

    Args:
        modelled: milliseconds of a step by variant, that of several seeds first ("lstm x5", "lstm").
        steps: the same as measured.
    """
    return next((steps[name] / modelled[name] for name in modelled if name in steps), 1.0)


def measured_steps(results: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds of the training steps that were measured, by variant."""
    rows = results.get("step", {}).get("rows", [])
    return {row["variant"]: row["ms"] for row in rows if row["part"] == "training" and "ms" in row}


def seconds_of(family: Mapping[str, Any], factor: float) -> float:
    """Seconds that a family takes, from the start of its process to its end."""
    return START + 60 * float(family["minutes"]) * factor


def train(out: Out, env: dict[str, str], device: str, seconds: float) -> None:
    """Train families until none of those that are left can end in time; pack their runs every few seconds."""
    begun = time.time()
    end = time.monotonic() + seconds - STOPPING
    found = plan(out, env, seconds / 2)
    factor = scale(found["modelled_ms"], measured_steps(out.results))
    folder = ROOT if device != "cpu" else ROOT / "runs" / "rehearsal"
    folder.mkdir(parents=True, exist_ok=True)

    def here() -> list[Path]:
        records = (folder / "runs").glob("*/record.json")
        return sorted(path.parent for path in records if path.stat().st_mtime >= begun - 1)

    families: list[dict[str, Any]] = []
    left = list(found["families"])
    out.update("tables", factor=factor, families=families, open=len(left))
    if device == "cpu":  # one family of each table: the rehearsal is of launching them
        left = [family for k, family in enumerate(left) if family["table"] not in {f["table"] for f in left[:k]}]
    while left:
        family = left.pop(0)
        remaining = end - time.monotonic()
        price = seconds_of(family, factor) if device != "cpu" else START
        if price > remaining:
            continue
        out.say(f"{family['table']}: {len(family['runs'])} runs, about {price:.0f} s of {remaining:.0f} s")
        command = [sys.executable, str(ROOT / "train.py"), *family["overrides"], f"device={device}", "logger=none"]
        command += SMALL if device == "cpu" else ()
        before = {path for path in here() if status(path) == "finished"}
        result = call(command, env, remaining, out, meanwhile=lambda: out.pack(here()), cwd=folder)
        ended = {path for path in here() if status(path) == "finished"} - before
        row = {"table": family["table"], "runs": family["runs"], "ended": len(ended), "status": result.status}
        families.append(row | {"seconds": round(result.seconds, 1), "expected": round(price, 1)})
        out.update("tables", families=families)
        if device != "cpu" and len(ended) == len(family["runs"]):
            factor = max(0.1, (result.seconds - START) / (60 * family["minutes"]))
            out.update("tables", factor=round(factor, 2))
