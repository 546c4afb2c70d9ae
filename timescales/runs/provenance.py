"""Record where the numbers of a run come from: commit, versions, machine, and a hash that shows changes of the code."""

import ast
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
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.config import Config


@dataclass(frozen=True)
class Provenance:
    """Hold where numbers come from. commit: with "+" if there were uncommitted changes. machine: the device's name."""

    commit: str | None
    versions: dict[str, str]
    threads: int
    machine: str


def provenance(device: str) -> Provenance:
    """Describe where the numbers come from that this process computes on a device."""
    import torch  # already imported, because the caller trains

    # Not from the metadata: an editable installation keeps the version of its first day there.
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
    """Return the arguments of `golden` for a configuration: names of its task and model, then the users' classes.

    These are the classes of its task, model and optimizer that are neither ours nor torch's.
    """
    targets = [str(config.get(group, {}).get("_target_", "")) for group in ("task", "model", "optimizer")]
    own = [name for name in targets if "." in name and name.partition(".")[0] not in ("timescales", "torch")]
    return [config["task"]["name"], config["model"]["name"], *own]


def changed(hashed: str | None, names: Sequence[str]) -> bool:
    """Return whether the code that decides the numbers of a task and a model differs from the hashed one.

    hashed: what `golden` returned when a run was trained. names: the arguments of `golden`.
    """
    now = golden(*names)
    if len(names) > 2 and None in (hashed, now):
        return False  # unknown: the record is older than the hashes of sources, or the source is not on this machine
    return hashed != now


def golden(task: str, model: str, *own: str) -> str | None:
    """Return a hash of the code that decides the numbers of a task and a model; None if there is none.

    The package's own code is represented by the golden curve of the task and the model: the losses of the first 20
    training steps, which are committed and tested. If they change, all numbers of a run may change. A pair without a
    curve has two others instead: that of its task with the LSTM, and that of its model on the copy task.

    own: users' classes, "module.class". Their source is hashed too. If the pair has no curve, that of the task with the
    LSTM is hashed with it. If the source of a class is not found, there is no hash.
    """
    hashed: Any = _curve(task, model)
    if own:
        codes = [code(target) for target in own]
        hashed = None if None in codes else [hashed or _curve(task, "lstm"), *codes]
    return None if hashed is None else hashlib.sha256(json.dumps(hashed).encode()).hexdigest()[:12]


def _curve(task: str, model: str) -> Any:
    """Return the golden curve of a task and a model, or the two that it has instead; None without those."""
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
    """Read the golden curves. Cached until the file changes, because a sweep asks for each of its thousands of runs."""
    return json.loads(path.read_text())


# --- the source of users' classes -------------------------------------------------------------------------------------


@functools.cache  # a class that is loaded does not change with its file
def code(target: str) -> str | None:
    """Return the code of the file of a class, and of the files in its folder that it imports; None if there is none."""
    path = _file(target.rpartition(".")[0])
    return None if path is None else "\n".join(_codes(path, []))


def _file(module: str) -> Path | None:
    """Return the file of a module, found as `import` does, but without running anything."""
    places: Sequence[str] | None = None  # None: sys.path
    origin = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places, origin = spec.submodule_search_locations or [], spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _codes(path: Path, seen: list[Path]) -> list[str]:
    """Return the code of a file and of the files in its folder that it imports, without comments and layout."""
    seen.append(path)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # the file is being edited
        return [path.read_text(errors="replace")]
    codes = [ast.unparse(tree)]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names]
    names += [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
    for word in sorted({word for name in names for word in name.split(".") if word}):
        beside = path.with_name(f"{word}.py")
        if beside not in seen and beside.is_file():
            codes += _codes(beside, seen)
    return codes
