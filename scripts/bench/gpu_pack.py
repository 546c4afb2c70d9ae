"""Gather the files that a GPU machine without network needs in gpu-pack/: wheels and compressed data sets, up to 40 MB.

`make gpu` on that machine uses gpu-pack/. Data sets are taken from $TIMESCALES_DATA or the user's cache; a data set
that is not here is left out, and a line says so.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "gpu-pack"
LIMIT_MB = 40
# Pure Python packages. The machine must have torch with Triton, numpy and PyYAML.
WHEELS = ("hydra-core", "omegaconf", "antlr4-python3-runtime", "tqdm", "pytest", "pluggy", "iniconfig", "packaging")
CORPORA = ("ptb/*.txt", "wikitext-2/*", "text8/*", "glove/*", "imdb/*", "aclImdb*.tar.gz")

sys.path.insert(0, str(ROOT))

from timescales.tasks.data import mnist  # noqa: E402
from timescales.tasks.data.corpus import data_root  # noqa: E402


def pins() -> list[str]:
    """The pinned versions of the wheels, from constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.split("==")[0] in WHEELS]


def wheels() -> None:
    """Download the wheels."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(PACK / "wheels"), *pins()]
    subprocess.run(command, check=True)


def digits() -> None:
    """Pack MNIST's four idx files, compressed."""
    found = mnist.CORPUS.find(data_root(None))
    if found is None:
        print(f"MNIST is not under {data_root(None)}: left out (set TIMESCALES_DATA)")
        return
    target = PACK / "data" / "MNIST" / "raw"
    target.mkdir(parents=True)
    for name, file in zip(mnist.FILES, mnist.CORPUS.files(found), strict=True):
        (target / f"{name}.gz").write_bytes(gzip.compress(file.read(), 9, mtime=0))


def corpora() -> None:
    """Pack the other data sets under the data root, compressed, smallest first. A line names each that does not fit."""
    root = data_root(None)
    found = [path for pattern in CORPORA for path in root.glob(pattern) if path.is_file()]
    for path in sorted(found, key=lambda path: path.stat().st_size):
        packed = path.suffix in (".gz", ".zip", ".xz")
        data = path.read_bytes() if packed else gzip.compress(path.read_bytes(), 9, mtime=0)
        if (size() + len(data)) / 1e6 > LIMIT_MB:
            print(f"left out, it does not fit: {path.relative_to(root)} ({len(data) / 1e6:.1f} MB)")
            continue
        target = PACK / "data" / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        (target if packed else target.with_name(f"{target.name}.gz")).write_bytes(data)


def size() -> int:
    """Size of gpu-pack/ in bytes."""
    return sum(path.stat().st_size for path in PACK.rglob("*") if path.is_file())


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    shutil.rmtree(PACK, ignore_errors=True)
    PACK.mkdir()
    wheels()
    digits()
    corpora()
    for path in sorted(path for path in PACK.rglob("*") if path.is_file()):
        print(f"  {path.stat().st_size / 1e6:6.2f} MB  {path.relative_to(ROOT)}")
    print(f"{size() / 1e6:.1f} MB in gpu-pack/ (at most {LIMIT_MB})")
    if size() / 1e6 > LIMIT_MB:
        sys.exit(f"gpu-pack/ holds more than {LIMIT_MB} MB: drop some of WHEELS, or MNIST, in {Path(__file__).name}")


if __name__ == "__main__":
    main()
