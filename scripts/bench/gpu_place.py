"""What gpu.py works with on the other machine: packed packages, commands with a limit, and the folder that comes back.

Standard library only: this must run before anything else is known to work.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "gpu-pack"
NEEDED = ("hydra", "omegaconf", "tqdm", "pytest")
FILE_BYTES = 15 * 2**20  # of a file that comes back
TARS = 3  # archives of runs; with results and log five files of the eight that may come back
LOG_BYTES = 4 * 2**20
RECORD = "record.json"
STOPPING = 20.0  # seconds that a command has, after it is asked to stop, to write what it has


def environment() -> dict[str, str]:
    """Environment of the commands: the packed packages and data are used if the machine does not have them."""
    env = dict(os.environ)
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}  # other plugins may not fit our pytest
    paths = [str(ROOT)]
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        if not (PACK / "wheels").is_dir():
            sys.exit(f"no {', '.join(missing)} and no gpu-pack/ here: run `make gpu-pack` where there is a network")
        wheels = [str(path) for path in (PACK / "wheels").glob("*.whl")]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
        subprocess.run([*command, "--target", str(PACK / "site"), *wheels], check=True)
        paths.append(str(PACK / "site"))
    env["PYTHONPATH"] = os.pathsep.join([*paths, *env.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
    if (PACK / "data").is_dir():
        for path in (PACK / "data").rglob("*.gz"):
            if not path.name.endswith((".tar.gz", "ubyte.gz")) and not path.with_suffix("").exists():
                path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        env.setdefault("TIMESCALES_DATA", str(PACK / "data"))
    return env


class Out:
    """The folder that comes back: gpu.json with all results, gpu.log, and runs-1.tar, ... with records and checkpoints.

    Everything is written again at every change, so that what was learned is there whenever the machine is taken away.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: dict[str, Any] = {}
        self._packed: list[tuple[str, int, int]] = []
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("runs-*.tar"):
            old.unlink()
        self._log = open(folder / "gpu.log", "wb", buffering=0)  # noqa: SIM115  # open until the end

    def say(self, text: str) -> None:
        """Print a line, also into the log."""
        self.copy(f"{text}\n".encode())

    def copy(self, data: bytes) -> None:
        """Print what a command prints, also into the log, up to LOG_BYTES."""
        with contextlib.suppress(OSError):  # nobody may read what we print
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        self._log.write(data[: max(0, LOG_BYTES - self._log.tell())])

    def update(self, stage: str, **values: Any) -> None:
        """Note results of a stage, and write all."""
        self.results.setdefault(stage, {}).update(values)
        replace(self.folder / "gpu.json", json.dumps(self.results, indent=1).encode())

    def pack(self, folders: Iterable[Path]) -> None:
        """Write records and checkpoints of some runs into archives, records first; what is too large is named."""
        paths = sorted((p for folder in folders for p in kept(folder)), key=lambda p: (p.name != RECORD, p))
        state = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
        if state == self._packed:
            return
        archives, left = in_archives(paths, FILE_BYTES, TARS)
        for k, content in enumerate(archives, 1):
            replace(self.folder / f"runs-{k}.tar", content)
        self._packed = state
        self.update("tables", left_out=left)


def kept(folder: Path) -> list[Path]:
    """The files of a run that come back: the record; of one that has ended the best weights, else the checkpoint."""
    weights = "last.pt" if status(folder) == "interrupted" else "best.pt"
    return [path for name in (RECORD, "blocks.csv", weights) if (path := folder / name).is_file()]


def status(folder: Path) -> str:
    """What a run's record says of it: "finished", "interrupted", ...; "" without a record."""
    path = folder / RECORD
    return str(json.loads(path.read_text())["status"]) if path.is_file() else ""


def in_archives(paths: Iterable[Path], limit: int, most: int) -> tuple[list[bytes], list[str]]:
    """Files, as folder/file, in at most so many tar archives, each within the limit; and those that do not fit."""
    groups: list[list[tuple[str, bytes]]] = []
    sizes: list[int] = []
    left = []
    for path in paths:
        name, data = f"{path.parent.name}/{path.name}", path.read_bytes()
        needed = 2048 + len(data)  # header, padding
        place = next((k for k, size in enumerate(sizes) if size + needed <= limit - 20480), len(groups))
        if place == len(groups):
            if len(groups) == most or needed > limit - 20480:  # the end of an archive fills up to 20 blocks of 512
                left.append(f"{name} ({len(data) / 2**20:.1f} MiB)")
                continue
            groups.append([])
            sizes.append(0)
        groups[place].append((name, data))
        sizes[place] += needed
    archives = []
    for group in groups:
        buffer = BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, data in group:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, BytesIO(data))
        archives.append(buffer.getvalue())
    return archives, left


def replace(path: Path, data: bytes) -> None:
    """Write a file under another name and rename it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


class Result:
    """How a command ended. status: its exit status, None if it was stopped because the time was over."""

    def __init__(self, status: int | None, seconds: float, output: str) -> None:
        self.status, self.seconds, self.output = status, seconds, output


def call(
    command: list[str],
    env: dict[str, str],
    seconds: float,
    out: Out,
    meanwhile: Callable[[], None] = lambda: None,
    cwd: Path = ROOT,
    every: float = 5.0,
) -> Result:
    """Run a command for at most so many seconds; its output goes to the log.

    meanwhile: called now and then while it runs, and at the end.
    """
    begun = time.monotonic()
    kept = bytearray()
    # A shell that starts us in the background has us ignore the interrupt, and what we start would do so, too.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        signal.signal(signal.SIGINT, handler)
        assert process.stdout is not None
        pipe = process.stdout

        def read() -> None:
            while data := os.read(pipe.fileno(), 65536):
                kept.extend(data)
                del kept[:-200_000]
                out.copy(data)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        status: int | None = None
        try:
            while (left := begun + seconds - time.monotonic()) > 0 and process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(left, every))
                meanwhile()
            status = process.poll()
            if status is None:
                out.say(f"stopped, its time is over: {' '.join(command[1:])[:200]}")
                process.send_signal(signal.SIGINT)  # a training writes its checkpoint, pytest its summary
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOPPING)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        process.wait()
        reader.join(5)
        meanwhile()
    return Result(status, time.monotonic() - begun, kept.decode(errors="replace"))
