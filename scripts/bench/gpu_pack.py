"""Gather the files that a GPU machine without network needs in gpu-pack/: wheels and compressed data sets, up to 40 MB.

`scripts/bench/gpu.py` on that machine uses gpu-pack/. It also holds the commit, for the records that are made there,
and the list of open runs with their prices (gpu_plan.py: some minutes). Data sets are taken from $TIMESCALES_DATA or
the user's cache. One that is missing or does not fit is an error, unless --without names it.
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
CORPORA = {
    "ptb": ("ptb/*.txt",),
    "wt2": ("wikitext-2/*",),
    "text8": ("text8/*",),
    "glove": ("glove/*",),
    "imdb": ("imdb/*", "aclImdb*.tar.gz"),
}
WITHOUT = ("imdb",)  # it does not fit, and no open run needs it

sys.path.insert(0, str(ROOT))

import gpu_plan  # noqa: E402

from timescales.runs import provenance  # noqa: E402
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


def digits() -> list[str]:
    """Pack MNIST's four idx files, compressed. Returns ["mnist"] if they are missing."""
    found = mnist.CORPUS.find(data_root(None))
    if found is None:
        print(f"left out, MNIST is not under {data_root(None)}: set TIMESCALES_DATA")
        return ["mnist"]
    target = PACK / "data" / "MNIST" / "raw"
    target.mkdir(parents=True)
    for name, file in zip(mnist.FILES, mnist.CORPUS.files(found), strict=True):
        (target / f"{name}.gz").write_bytes(gzip.compress(file.read(), 9, mtime=0))
    return []


def corpora() -> list[str]:
    """Pack the other data sets under the data root, compressed, smallest files first.

    Returns the names of those that are missing or do not fit, after a line for each.
    """
    root = data_root(None)
    missing = []
    files: dict[Path, str] = {}
    for name, patterns in CORPORA.items():
        found = [path for pattern in patterns for path in root.glob(pattern) if path.is_file()]
        files |= dict.fromkeys(found, name)
        if not found:
            print(f"left out, not under {root}: {name}")
            missing.append(name)
    for path, name in sorted(files.items(), key=lambda item: item[0].stat().st_size):
        packed = path.suffix in (".gz", ".zip", ".xz")
        data = path.read_bytes() if packed else gzip.compress(path.read_bytes(), 9, mtime=0)
        if (size() + len(data)) / 1e6 > LIMIT_MB:
            print(f"left out, it does not fit: {path.relative_to(root)} ({len(data) / 1e6:.1f} MB)")
            missing.append(name)
            continue
        target = PACK / "data" / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        (target if packed else target.with_name(f"{target.name}.gz")).write_bytes(data)
    return missing


def size() -> int:
    """Size of gpu-pack/ in bytes."""
    return sum(path.stat().st_size for path in PACK.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--without", nargs="*", default=WITHOUT, choices=["mnist", *CORPORA], help="data sets that may be missing"
    )
    options = parser.parse_args()
    shutil.rmtree(PACK, ignore_errors=True)
    PACK.mkdir()
    wheels()
    missing = sorted({*digits(), *corpora()} - set(options.without))
    (ROOT / provenance.NOTE).write_text(provenance.commit_note())
    if not missing:
        gpu_plan.main(["--out", str(PACK / "plan.json"), "--without", *options.without])
    for path in sorted(path for path in PACK.rglob("*") if path.is_file()):
        print(f"  {path.stat().st_size / 1e6:6.2f} MB  {path.relative_to(ROOT)}")
    print(f"{size() / 1e6:.1f} MB in gpu-pack/ (at most {LIMIT_MB})")
    if size() / 1e6 > LIMIT_MB:
        sys.exit(f"gpu-pack/ holds more than {LIMIT_MB} MB: drop some of WHEELS, or MNIST, in {Path(__file__).name}")
    if missing:
        sys.exit(f"gpu-pack/ is not complete: scripts/fetch_data.py {' '.join(missing)}, or allow it by --without")


if __name__ == "__main__":
    main()
