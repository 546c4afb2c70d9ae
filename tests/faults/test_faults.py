"""Faults that injection has found (test_injection.py): full disks, damaged files, nonsense on the command line."""

import errno
import fcntl
import json
import os
import shutil

import pytest
import quick
import torch

from timescales import files
from timescales.errors import ConfigError
from timescales.runs import loggers
from timescales.runs.record import Record
from timescales.training.run import load_checkpoint, save_checkpoint

QUICK = [*quick.QUICK, "loop.max_steps=4", "loop.log_every=1", "logger=csv"]


# --- full and damaged disks -----------------------------------------------------------------------------------------
def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_its_file(tmp_path, monkeypatch):
    path = tmp_path / "curve.csv"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*curve\.csv'"):
        files.append(path, "x" * 100_000)
    path.unlink()
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"No space left on device: '.*curve\.csv'"):
        files.write_atomic(path, b"x")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_gives_one_line_and_the_same_command_continues(train, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        calls = []
        real = os.fsync
        patched.setattr(os, "fsync", lambda file: calls.append(1) or (no_space() if len(calls) >= 4 else real(file)))
        full = train(*QUICK, f"run_dir={tmp_path}/continued")
    assert full.status == 1
    assert "No space left on device; choose another place with run_dir=DIR" in full.err
    assert "Traceback" not in full.err
    assert train(*QUICK, f"run_dir={tmp_path}/continued").status == 0
    assert train(*QUICK, f"run_dir={tmp_path}/whole").status == 0
    continued, whole = (Record.read(tmp_path / name) for name in ("continued", "whole"))
    assert continued.curve == whole.curve
    assert (tmp_path / "continued" / "curve.csv").read_text() == (tmp_path / "whole" / "curve.csv").read_text()


def test_files_that_a_kill_left_are_removed_and_files_in_use_are_not(tmp_path):
    left, held, other = (tmp_path / f"{files.TEMPORARY}{name}" for name in ("a.json.1", "a.json.2", "b.json.1"))
    for path in (left, held, other):
        path.touch()
    with open(held, "rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        files.write_atomic(tmp_path / "a.json", b"{}")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([held.name, other.name, "a.json"])


def flip_bit(path, at):
    """Change one bit of the byte at an offset."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_changed_weight_is_detected(tmp_path):
    path = tmp_path / "last.pt"
    save_checkpoint(path, {"weight": torch.arange(1000.0)})
    at = path.read_bytes().index(torch.arange(500.0, 510.0).numpy().tobytes())
    flip_bit(path, at)
    assert torch.load(path, weights_only=True)["weight"][500] != 500  # torch itself does not compare checksums
    with pytest.raises(ConfigError, match=r"last\.pt is damaged: restart the run with resume=false"):
        load_checkpoint(path)


def test_a_changed_number_of_a_record_is_detected(train, tmp_path):
    assert train(*QUICK, f"run_dir={tmp_path}/run").status == 0
    path = tmp_path / "run" / "record.json"
    text = path.read_text()
    accuracy = json.loads(text)["metrics"]["test/accuracy"]
    path.write_text(text.replace(f'"test/accuracy": {accuracy}', '"test/accuracy": 0.99'))
    outcome = train(*QUICK, f"run_dir={tmp_path}/run")
    assert "record.json is damaged (its checksum is wrong): delete this file" in outcome.err
    path.write_text(json.dumps(json.loads(text) | {"sha256": None}))  # records written by hand have none
    assert "finished, skipped" in train(*QUICK, f"run_dir={tmp_path}/run").out
    path.unlink()
    assert train(*QUICK, f"run_dir={tmp_path}/run").status == 0  # it continues from its checkpoint, which is the end
    assert json.loads(path.read_text())["metrics"] == json.loads(text)["metrics"]


def test_a_changed_number_of_a_curve_is_detected(tmp_path, capsys):
    path = tmp_path / "curve.csv"
    curve = loggers.Curve(path, 0)
    for step in range(1, 6):
        curve.log({"train/loss_nats": 1.5 / step}, step)
    whole = path.read_text()
    loggers.Curve(path, 5, 1)
    assert path.read_text() == whole
    assert capsys.readouterr().err == ""
    for damaged in (whole.replace("0.5", "0.6"), whole.replace("train/", "trein/"), whole.replace("\n3,", "\n2,")):
        path.write_text(damaged)
        loggers.Curve(path, 5, 1)
        assert "curve.csv is damaged" in capsys.readouterr().err
    for cut in ("", whole[: whole.index("\n4,") + 5]):
        path.write_text(cut)
        loggers.Curve(path, 5, 1)
        assert "to step 5 are lost" in capsys.readouterr().err


def test_leftovers_of_a_killed_compilation_are_removed(tmp_path, monkeypatch):
    from timescales.nn.engine.cpu import compiler

    library = tmp_path / "cell-1.so"
    for name in ("cell-1.x.build", "cell-2.x.build"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(shutil, "which", lambda name: name)
    with pytest.raises(compiler.BuildError, match="failed"):
        compiler.write_compiled(library, ["false"], [])
    assert [p.name for p in tmp_path.iterdir()] == ["cell-2.x.build"]
