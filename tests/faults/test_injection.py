"""Kill, fill up, forbid and damage on purpose: a run continues bit by bit, or says in one line what to do."""

import csv
import ctypes
import errno
import io
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import zipfile

import pytest
import random_overrides
import synthetic
import texts
from fault_trainings import ROOT, RUNS, Bench, comparable
from faulty_files import Fault

from timescales.nn.cells import LSTMCell
from timescales.nn.engine import equations
from timescales.nn.engine.cpu.compiler import is_whole
from timescales.nn.engine.cpu.emit_cpp import cell_code
from timescales.nn.engine.cpu.shared_library import build
from timescales.tasks.data import cache, cifar, glove, imdb, mnist, text
from timescales.training.run import load_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_four_times_ends_as_an_undisturbed_one(bench, tmp_path, name):
    """Twice in an operation on a file, once after some time, once while the end of the run is written."""
    rng, whole = random.Random(name), bench.undisturbed(name)
    third = whole.operations // 3
    kills = [Fault(at=rng.randint(1, third)), Fault(seconds=rng.uniform(0.1, 0.7) * whole.seconds)]
    kills += [Fault(at=rng.randint(1, third)), Fault(at=rng.randint(1, 10), since="best.pt")]
    cases = [bench.train(name, tmp_path, fault=kill) for kill in kills]
    assert all(case.killed or case.status == 0 for case in cases), cases
    assert cases[0].killed
    bench.assert_continues(name, tmp_path)


def test_a_report_that_is_killed_is_written_again(bench, tmp_path):
    def report(k, fault=None):
        cwd = tmp_path / str(k)
        if not cwd.exists():
            shutil.copytree(ROOT / "results" / "chien_copy", cwd / "results" / "chien_copy")
        case = bench.run(["chien_copy", f"--config-dir={cwd}"], cwd, fault or Fault(), script="scripts/report.py")
        paths = [path for path in (cwd / "results").rglob("*") if path.is_file()]
        return case, {path.relative_to(cwd): path.read_bytes() for path in paths}

    done, whole = report("whole")
    assert done.status == 0, done.out
    operations = bench.counter.value
    for at in (operations // 3, operations - 2):
        assert report(at, Fault(at=at))[0].killed
        case, found = report(at)
        assert (case.status, found) == (0, whole), case.out


@pytest.mark.parametrize(
    ("name", "code"), [*zip(RUNS, [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.ENOSPC], strict=True)]
)
def test_a_write_that_fails_is_one_line_and_the_run_continues(bench, tmp_path, name, code):
    at = random.Random(f"{name} {code}").randint(1, bench.undisturbed(name).operations)
    case = bench.train(name, tmp_path, fault=Fault(at=at, error=code))
    assert case.clear, (at, case)
    bench.assert_continues(name, tmp_path)


@pytest.mark.parametrize("size", [300, 3000, 12000])
def test_a_limit_of_the_size_of_files_is_one_line(bench, tmp_path, size):
    name = "ptb_char, chrono"
    case = bench.train(name, tmp_path, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    assert case.clear, case
    bench.assert_continues(name, tmp_path)


def drop_capabilities():
    """Take root's right to ignore permissions from this process (capset, version 3 of its header)."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0


@pytest.mark.parametrize(("place", "mode"), [
    *((".", 0o555), ("out", 0o555), ("out/record.json", 0), ("out/last.pt", 0), ("out/lock", 0)),
    *(("data/ptb/ptb.valid.txt", 0), ("cache", 0o555)),
])  # fmt: skip
def test_what_is_forbidden_is_one_line(bench, tmp_path, place, mode):
    """Half a run is there where its directory is what is forbidden."""
    name, more = "ptb_char, chrono", "data_root=data"
    shutil.copytree(bench.data / "ptb", tmp_path / "data" / "ptb")
    if place.startswith("out"):
        half = Fault(at=bench.undisturbed(name).operations // 2)
        assert bench.train(name, tmp_path, more, fault=half).killed
    (tmp_path / "cache").mkdir(exist_ok=True)
    os.chmod(tmp_path / place, mode)
    case = bench.train(name, tmp_path, more, before=drop_capabilities)
    os.chmod(tmp_path / place, 0o755)
    assert case.clear or (case.status == 0 and place in ("cache", "out/lock", "out/curve.csv")), case
    bench.assert_continues(name, tmp_path, more)


def spoil(path, rng):
    """Cut a file at a random length, or change 1 to 8 random bytes."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5 and data:
        path.write_bytes(data[: rng.randrange(len(data))])
        return
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def left(bench, tmp_path_factory):
    """Return the folder of a run that was killed, or that has finished; left(name, finished)."""
    made = {}

    def make(name, finished):
        if (name, finished) not in made:
            made[name, finished] = folder = tmp_path_factory.mktemp("left")
            fault = Fault() if finished else Fault(at=bench.undisturbed(name).operations * 2 // 3)
            case = bench.train(name, folder, fault=fault)
            assert case.status == 0 if finished else case.killed, case
        return made[name, finished]

    return make


def values(curve):
    """Each value of a curve.csv as (step, column, value), without the checksums of its rows."""
    rows = csv.DictReader(io.StringIO(curve))
    return {(row["step"], key, value) for row in rows for key, value in row.items() if value and key != "crc32"}


@pytest.mark.parametrize("finished", [False, True], ids=["killed", "finished"])
@pytest.mark.parametrize(("name", "file"), [
    *(("copy, PLSTM", file) for file in ("last.pt", "record.json", "curve.csv", "best.pt")),
    ("copy, GRU, three seeds", "last.pt"),
])  # fmt: skip
def test_a_damaged_file_of_a_run_is_named_or_changes_nothing(bench, left, tmp_path, name, file, finished):
    whole = bench.undisturbed(name).files
    for k in range(3):
        rng, cwd = random.Random(f"{name} {file} {finished} {k}"), tmp_path / str(k)
        shutil.copytree(left(name, finished), cwd)
        path = rng.choice(sorted((cwd / "out").rglob(file)) or sorted((cwd / "out").rglob("last.pt")))
        key = str(path.relative_to(cwd))
        spoil(path, rng)
        case = bench.train(name, cwd)
        if case.clear:  # to do what the line says ends with the undisturbed result
            assert path.name in case.out
            if "delete this file" in case.out:
                path.unlink()
            bench.assert_continues(name, cwd, *(["resume=false"] if "resume=false" in case.out else []))
            continue
        assert case.status == 0, case
        skipped = "finished, skipped" in case.out
        if path.suffix == ".pt" and skipped:  # not read; whoever reads it is told
            try:
                assert comparable(load_checkpoint(path)) == whole[key]
            except ValueError:
                continue
        elif file == "curve.csv" and skipped and "are lost" not in case.out:  # not read
            path.write_text(whole[key])
        elif file == "curve.csv" and ("is damaged (" in case.out or "are lost" in case.out):
            assert values(path.read_text()) <= values(whole[key])
            path.write_text(whole[key])
        assert bench.differences(name, case, cwd) == [], case


def test_a_damaged_library_of_the_engine_is_not_loaded(tmp_path):
    built = build(cell_code(equations.of_cell(LSTMCell(1, 1), timed=False)), "LSTMCell")
    assert is_whole(built)
    for k in range(100):
        copy = tmp_path / "copy.so"
        shutil.copy(built, copy)
        spoil(copy, random.Random(k))
        assert not is_whole(copy), k


# --- data sets and what is prepared from them -----------------------------------------------------------------------
def write_zipped_text8(root):
    """text8 as it is published: a zip of one file."""
    plain = texts.write_text8(root / "text8")
    with zipfile.ZipFile(root / "text8.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain, "text8")
    plain.unlink()


def write_ptb(root):
    texts.write_words(root / "ptb", texts.PTB)


def write_glove(root):
    synthetic.write_glove(root / "glove.6B.100d.txt.gz")


# The corpus, how it is written under a data root, and how it is read.
DATA_SETS = {
    "MNIST": (mnist.CORPUS, lambda root: synthetic.write_mnist(root / "MNIST/raw", 60, 20), mnist.load),
    "MNIST, gzipped": (mnist.CORPUS, lambda root: synthetic.write_mnist(root / "MNIST/raw", 60, 20, ".gz"), mnist.load),
    "CIFAR-10": (cifar.CORPUS, lambda root: synthetic.write_cifar(root / "cifar-10-python.tar.gz", 50, 10), cifar.load),
    "IMDB": (imdb.CORPUS, lambda root: synthetic.write_imdb(root / "aclImdb_v1.tar.gz", 40, 20), imdb.load),
    "GloVe, gzipped": (glove.CORPUS, write_glove, lambda root: glove.vectors(synthetic.GLOVE, root)),
    "PTB, words": (text.PTB, write_ptb, lambda root: text.words("ptb", root)),
    "PTB, characters": (text.PTB_CHARACTERS, write_ptb, text.ptb_characters),
    "text8, zip": (text.TEXT8, write_zipped_text8, text.text8),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_damaged_data_set_is_refused_in_one_line(tmp_path, monkeypatch, name):
    """Or read as if nothing were, where the damage is in what is not read; images that are not MNIST's are marked."""
    corpus, write, load = DATA_SETS[name]
    sound = tmp_path / "sound"
    sound.mkdir()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(cache, "cache_dir", lambda: sound / "cache")
    write(sound)
    # The counts and digests of the small data set become those of the corpus, where those of the real one are known.
    counts = corpus.count(corpus.find(sound))
    for key in corpus.counts:
        monkeypatch.setitem(corpus.counts, key, counts[key])
    whole = comparable(list(load(sound)))
    for k in range(20):
        root, rng = tmp_path / str(k), random.Random(f"{name} {k}")
        shutil.copytree(sound, root)
        monkeypatch.setattr(cache, "cache_dir", lambda root=root: root / "cache")
        cached = sorted((root / "cache").rglob("*.pt"))
        kept = sorted(path for path in root.rglob("*") if path.is_file() and path not in cached)
        path = rng.choice(cached if cached and rng.random() < 0.4 else kept)
        spoil(path, rng)
        try:
            found = list(load(root))
        except ValueError as error:
            line = str(error).strip()
            assert "\n" not in line, (k, path)
            assert re.search(r"delete|download|fetch_data|allow_partial|again|replace", line), (k, path, line)
            continue
        assert comparable(found) == whole or (name.startswith("MNIST") and found[-1]), (k, path)


# --- command lines that nobody would type ---------------------------------------------------------------------------
def composed(cwd, *arguments):
    """The outcomes of random command lines, from a process that must not load torch."""
    command = [sys.executable, random_overrides.__file__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return random_overrides.read(done.stdout)


def test_random_command_lines_are_valid_or_one_line(tmp_path):
    cases = composed(tmp_path, 1, 0, 100)
    assert len(cases) == 100
    assert {case.kind for case in cases} == {"valid", "clear"}, [c for c in cases if c.kind == "fault"]


def isolate():
    """Take the network from this process, and limit its memory to that of a small machine."""

    def refuse(*_, **__):
        raise OSError("no network here")

    socket.socket.connect, socket.getaddrinfo = refuse, refuse
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def one_step(overrides, data):
    """The overrides of a case together with those that make it one small step on the CPU."""
    groups = [text for text in overrides if text.partition("=")[0] in random_overrides.GROUPS]
    rest = [text for text in overrides if text not in groups]
    task = next((text.removeprefix("task=") for text in reversed(groups) if text.startswith("task=")), "copy")
    small = ["logger=csv", "device=cpu", "model.hidden_size=5", "task.batch_size=4"]
    small += [*synthetic.sizes(task, 40, 8, 8), *synthetic.SMALL.get(task, [])]
    last = ["loop.max_steps=1", "loop.max_eval_batches=1", "loop.max_epochs=1", "loop.eval_every=null"]
    return [*groups, *small, f"data_root={data}", *rest, *last]


def test_random_valid_overrides_take_a_step(bench, tmp_path):
    cases = composed(tmp_path, 1, 0, 30, "small")
    assert {case.kind for case in cases} == {"valid", "clear"}
    valid = [case.overrides for case in cases if case.kind == "valid"]
    assert len(valid) > 4
    for k, overrides in enumerate(valid):
        case = bench.run(one_step(overrides, bench.data), tmp_path / str(k), before=isolate)
        assert case.clear or case.status == 0, (overrides, case)
