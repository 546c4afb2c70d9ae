"""Record where numbers come from: commit, versions, machine, golden curves."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.config import Config
from timescales.runs import source


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from. commit: with "+" if the tree was changed. machine: the device's name."""

    commit: str | None
    versions: dict[str, str]
    threads: int
    machine: str


def provenance(device: str) -> Provenance:
    """Say where numbers come from that are computed here."""
    import torch  # called by a run that trains, which has it already

    # Not that of the installation: an editable one keeps the number of its first day.
    versions = {"timescales": sys.modules["timescales"].__version__}
    for package in ("torch", "numpy", "hydra-core", "spacy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    on_gpu = device.startswith(("auto", "cuda")) and torch.cuda.is_available()
    index = device if device.startswith("cuda") else None
    machine = torch.cuda.get_device_name(index) if on_gpu else processor()
    return Provenance(_commit(), versions, torch.get_num_threads(), machine)


def processor() -> str:
    """Return the name of the processor."""
    with contextlib.suppress(OSError):
        if match := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M):
            return match[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(paths.ROOT), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != paths.ROOT:
            return None  # installed inside somebody else's repository
        return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def names(config: Config) -> list[str]:
    """Return what `golden` goes by: the names of a configuration's task and model, then its users' classes."""
    return [config["task"]["name"], config["model"]["name"], *source.own_classes(config)]


def changed(hashed: str | None, names: Sequence[str]) -> bool:
    """Return whether a golden curve, or the source of a user's class, has changed since it was hashed."""
    now = golden(*names)
    if len(names) > 2 and None in (hashed, now):
        return False  # a record from before sources were hashed, or a source that is not here: nothing is known
    return hashed != now


def golden(task: str, model: str, *own: str) -> str | None:
    """Hash of the committed 20-step golden curve of a task and model: when it changes, numbers have changed.

    A pair without a curve has two: of its task with the LSTM and of its model on the copy task; None without those.
    With users' classes, "module.class", their source is hashed, too (the curve then may be that of the task with
    the LSTM); None if one is not found.
    """
    hashed: Any = _curve(task, model)
    if own:
        codes = [source.code(target) for target in own]
        hashed = None if None in codes else [hashed or _curve(task, "lstm"), *codes]
    return None if hashed is None else hashlib.sha256(json.dumps(hashed).encode()).hexdigest()[:12]


def _curve(task: str, model: str) -> Any:
    """Return the golden curve of a task and model, or the two that it has instead; None without those."""
    places = (paths.ROOT / "tests" / "golden_curves.json", paths.PACKAGE / "golden_curves.json")
    path = next((p for p in places if p.is_file()), None)  # of the checkout, or of the installed package
    if path is None:
        return None
    curves = _curves(path, path.stat().st_mtime_ns)
    curve: Any = curves.get(f"{task}/{model}")
    if curve is None and f"{task}/lstm" in curves and f"copy/{model}" in curves:
        curve = [curves[f"{task}/lstm"], curves[f"copy/{model}"]]
    return curve


@functools.lru_cache(1)
def _curves(path: Path, written: int) -> dict[str, object]:
    """Read the golden curves once per version of the file: a sweep asks for each of its thousands of runs."""
    return json.loads(path.read_text())
