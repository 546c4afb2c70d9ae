"""What this machine is: versions, driver, compilers, and how many clusters of thread blocks run at once.

python scripts/bench/gpu_machine.py --rows FILE [--device cpu]
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from timescales.runs import provenance

QUERY = "name,driver_version,clocks.max.sm,clocks.sm,memory.total,temperature.gpu"


def first_line(command: Sequence[str], line: int = 0) -> str:
    """A line that a command prints, or why it does not."""
    if shutil.which(command[0]) is None:
        return f"no {command[0]}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[line] if lines else f"{command[0]} printed nothing, status {done.returncode}"


def clusters() -> Any:
    """Clusters that run at the same time, by "blocks x threads"; or why it is not known."""
    if shutil.which("nvcc") is None:
        return "no nvcc"
    with tempfile.TemporaryDirectory() as folder:
        program, source = Path(folder) / "clusters", Path(__file__).with_name("clusters.cu")
        try:
            subprocess.run(["nvcc", "-arch=sm_90", "-o", program, source], check=True, capture_output=True, timeout=20)
            done = subprocess.run([program], capture_output=True, text=True, timeout=10, check=False)
        except subprocess.SubprocessError as error:
            return f"{type(error).__name__}: {error}"[:200]
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=Path, required=True, help="JSON file of what is found")
    options = parser.parse_args()
    found: dict[str, Any] = {"python": platform.python_version()}

    def note(**values: Any) -> None:
        found.update(values)
        options.rows.write_text(json.dumps(found))
        print("\n".join(f"{key}: {value}" for key, value in values.items()), flush=True)

    note(commit=provenance.provenance("cpu").commit)
    import torch

    note(torch=torch.__version__, cuda=str(torch.version.cuda))
    if options.device == "cpu":
        note(device_name="a CPU, rehearsing")
    else:
        note(gpus=torch.cuda.device_count())
        if not found["gpus"]:
            sys.exit("torch sees no GPU here; --device cpu rehearses")
        note(device_name=torch.cuda.get_device_name(), capability=torch.cuda.get_device_capability())
        note(multiprocessors=torch.cuda.get_device_properties(0).multi_processor_count)
    for module in ("triton", "numpy", "hydra", "omegaconf", "pytest", "xdist"):
        try:
            note(**{module: getattr(importlib.import_module(module), "__version__", "here")})
        except ImportError:
            note(**{module: "missing"})
    note(nvidia_smi=first_line(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]))
    note(gcc=first_line(["gcc", "--version"]), nvcc=first_line(["nvcc", "--version"], line=-1))
    note(clusters=clusters())


if __name__ == "__main__":
    main()
