"""`make test-clients`: other packages with torch.nn.LSTM and GRU replaced. Writes results/clients.md.

Where the source archive of a package has tests of its LSTMs, they run three times: with torch's layers, with
timescales.LSTM and GRU in their place, and with each new layer accelerated (replaced.py). What counts are the tests
that reach a layer and pass with torch's. Then the trainings of trainings.py.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE, PAGE = ROOT / "tests" / "clients", ROOT / "results" / "clients.md"
MODES = ("torch", "class", "accelerated")
# Files of tests that reach a layer, in a package's source archive.
SUITES = {"pytorch-forecasting": ["tests/test_models/test_nn/test_rnn.py", "tests/test_models/test_tft_v2.py"]}
WITHOUT = (
    "The archives of darts, torchrl and sb3-contrib have no tests, that of speechbrain has none of layers. Those of",
    "flair and neuralhydrology have tests of their LSTMs, but not the texts, embeddings and modules that these tests",
    "read, and that of pytorch-forecasting lacks the table that tests of its other models read.",
)
TRAININGS = ("torchrl", "darts", "neuralhydrology", "pytorch_forecasting", "flair", "sb3_contrib")
TRAININGS += ("sb3_contrib_episodes", "speechbrain")
SECONDS = 600  # a suite, or a training


def source(package: str, folder: Path) -> Path:
    """The unpacked source archive of the installed version."""
    wanted = [f"{package}=={importlib.metadata.version(package)}", "--no-deps", "--no-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    subprocess.run([*command, *wanted], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as opened:
        opened.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def passed(folder: Path, files: list[str], mode: str) -> dict[str, bool]:
    """The tests that make or call a layer, and whether each passes."""
    report = folder / f"{mode}.xml"
    paths = [str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"CLIENT_RNN": mode, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "replaced", f"--junitxml={report}", "-o", "addopts=", *files]
    subprocess.run(command, cwd=folder, env=environment, timeout=SECONDS, capture_output=True, check=False)
    tests = xml.etree.ElementTree.parse(report).iter("testcase")
    found = {}
    for test in tests:
        name = f"{test.get('classname')}::{test.get('name')}"
        if test.find("properties/property[@name='rnn']") is not None:
            found[name] = all(test.find(kind) is None for kind in ("failure", "error", "skipped"))
    return found


def suite(package: str) -> str:
    """A line of the first table."""
    with tempfile.TemporaryDirectory() as folder:
        root = source(package, Path(folder))
        files = [name for name in SUITES[package] if (root / name).exists()]
        found = [passed(root, files, mode) for mode in MODES]
    counted = [name for name, is_good in found[0].items() if is_good]
    good = [sum(of_mode.get(name, False) for name in counted) for of_mode in found[1:]]
    version = importlib.metadata.version(package)
    return f"| {package} {version} | {', '.join(files)} | {len(counted)} | {good[0]} | {good[1]} |"


def training(name: str) -> str:
    """A line of the second table."""
    command = [sys.executable, "-W", "ignore", str(HERE / "trainings.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1].replace(f"{sys.prefix}{os.sep}", "")
        return f"| {name} | not run: {reason[:110]} | | | | | |"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    ms = [1e3 * found[key] for key in ("torch", "accelerated")]
    times = f"{ms[0]:.0f} | {ms[1]:.0f} | {ms[0] / ms[1]:.2f}"
    return f"| {name} | {found['what']} | {times} | {found['calls']} | {found['difference']:.0e} |"


def main() -> None:
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    lines = [
        "# Other packages on our engine",
        "",
        "Written by `make test-clients` (tests/clients/run.py), with the versions of tests/clients/requirements.txt.",
        "",
        "The packages' own tests that make or call an LSTM or GRU and pass with torch's layers; how many of them pass",
        "with `timescales.LSTM` and `GRU` in the place of torch's classes, and with `timescales.accelerate`.",
        "",
        "| package | tests | with torch's | with ours | accelerated |",
        "| --- | --- | --- | --- | --- |",
        *map(suite, SUITES),
        "",
        *WITHOUT,
        "",
        "Milliseconds of a training step (median of ten) with torch's layers and after `timescales.accelerate`, in",
        f"turns on one thread. When it began, the machine had {load:.1f} jobs for each of its {os.cpu_count()} cores.",
        "Calls: how many calls of an LSTM or GRU in a step our engine took; torch's kernel takes the others. The last",
        "column is the norm of the difference of the first step's gradients, relative to that of torch's. In exact",
        "arithmetic it is 0. A training over hundreds of steps of a sequence makes more of the rounding.",
        "",
        "Torch's LSTM runs oneDNN on a CPU unless its sequences are packed. "
        "Against it our engine gains most with hundreds",
        "of steps and many sequences; packed sequences and GRUs gain from some ten steps on.",
        "",
        "| package | training | torch's | accelerated | times faster | calls | difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *map(training, TRAININGS),
        "",
    ]
    PAGE.write_text("\n".join(lines))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
