"""Gather in gpu-pack/ what a GPU machine without network needs: wheels of hydra, data sets compressed. At most 40 MB.

There: `make gpu` finds gpu-pack/ by itself. Data sets are taken from $TIMESCALES_DATA or the user's cache; one that is
not here is left out, with a line that says so.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACK = ROOT / "gpu-pack"
LIMIT_MB = 40
WHEELS = ("hydra-core", "omegaconf", "antlr4-python3-runtime")

sys.path.insert(0, str(ROOT))

from timescales.data import mnist  # noqa: E402
from timescales.data.root import data_root  # noqa: E402


def pins() -> list[str]:
    """The wheels' exact versions, from constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.split("==")[0] in WHEELS]


def wheels() -> None:
    """The pure-Python packages that the machine's own torch does not bring."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(PACK / "wheels"), *pins()]
    subprocess.run(command, check=True)


def digits() -> None:
    """MNIST's four idx files, gzipped."""
    paths = mnist.find(data_root(None))
    if paths is None:
        print(f"MNIST is not under {data_root(None)}: left out (set TIMESCALES_DATA)")
        return
    target = PACK / "data" / "MNIST" / "raw"
    target.mkdir(parents=True)
    for path in paths:
        if path.suffix == ".gz":
            shutil.copy(path, target)
        else:
            (target / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def main() -> None:
    shutil.rmtree(PACK, ignore_errors=True)
    PACK.mkdir()
    wheels()
    digits()
    files = [path for path in PACK.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    for path in files:
        print(f"  {path.stat().st_size / 1e6:6.2f} MB  {path.relative_to(ROOT)}")
    print(f"{size:.1f} MB in gpu-pack/ (at most {LIMIT_MB})")
    if size > LIMIT_MB:
        sys.exit(f"gpu-pack/ holds {size:.0f} MB, more than {LIMIT_MB}")


if __name__ == "__main__":
    main()
