"""logger=trackio, with the real library: pip install -e '.[trackio]'. Read back from its database."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from quick import QUICK, curve

ROOT = Path(__file__).resolve().parents[2]
QUICK = [*QUICK, "model=plstm", "logger=trackio", "loop.max_steps=4", "loop.log_every=2", "engine=eager"]


@pytest.fixture
def environment(tmp_path):
    """A home without anything in it, a key for the Hub, and no network: a process that opens a connection ends."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "sitecustomize.py").write_text(
        "import os, socket, sys\n"
        "def refused(self, address, *rest):\n"
        "    os.write(2, f'CONNECTION {address}\\n'.encode())\n"
        "    os._exit(9)\n"
        "socket.socket.connect = socket.socket.connect_ex = refused\n"
        "socket.getaddrinfo = lambda *where, **how: refused(None, where)\n"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRACKIO_", "HF_", "HYDRA_"))}
    path = os.pathsep.join([str(tmp_path / "home"), str(ROOT), str(ROOT / "tests" / "support")])
    return kept | {"HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_" + 34 * "a", "PYTHONPATH": path}


@pytest.fixture
def start(tmp_path, environment):
    """Start a Python program in an empty folder, without a network."""
    (tmp_path / "work").mkdir()

    def call(*arguments):
        command, place = [sys.executable, *map(str, arguments)], {"cwd": tmp_path / "work", "env": environment}
        return subprocess.Popen(command, **place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return call


@pytest.fixture
def train(start):
    """Train to the end; what was printed."""

    def call(*overrides):
        process = start(ROOT / "train.py", *QUICK, *overrides)
        out, _ = process.communicate()
        assert process.returncode == 0, out
        return out

    return call


READ = """
import json, trackio
found = {}
for run in trackio.Api().runs("timescales"):
    rows = trackio.SQLiteStorage.get_logs("timescales", run.name)
    found.setdefault(run.name, []).append({"config": run.config, "rows": rows, "alerts": run.alerts()})
print(json.dumps(found))
"""


@pytest.fixture
def read(tmp_path, environment):
    """All that trackio knows: {name: {"config", "rows", "alerts"}}; no name is there twice."""

    def call():
        env = environment | {"TRACKIO_DIR": str(tmp_path / "work" / "runs" / "trackio")}
        done = subprocess.run([sys.executable, "-c", READ], env=env, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        assert all(len(runs) == 1 for runs in found.values())
        return {name: runs[0] for name, runs in found.items()}

    return call


def points(rows):
    """{name: {step: value}} of scalars; no step of a name is there twice."""
    found = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("step", "timestamp") and not isinstance(value, dict):
                assert row["step"] not in found.setdefault(name, {}), (name, row["step"])
                found[name][row["step"]] = value
    return found


def test_the_network_is_really_cut(start):
    process = start("-c", "import socket; socket.create_connection(('127.0.0.1', 9))")
    out, _ = process.communicate()
    assert process.returncode == 9
    assert "CONNECTION" in out
    assert socket.socket.connect  # that of this process is as it was


def test_a_run_is_what_its_curve_and_record_say(train, read, tmp_path):
    out = train("++logger.table=chien_copy", "seeds=2", "loop.log_one_over_e=2")
    assert "* " not in out  # trackio's own lines
    found = read()
    runs = sorted((tmp_path / "work" / "runs").glob("copy-*"))
    assert sorted(found) == [run.name for run in runs]
    assert len(runs) == 2
    for run in runs:
        saved, logged, shown = json.loads((run / "record.json").read_text()), curve(run), found[run.name]
        values = points(shown["rows"])
        assert {name: values[name] for name in logged} == logged
        assert set(logged["train/loss_nats"]) == {2, 4}
        assert set(logged["one_over_e/layer1/beyond"]) == {0, 2, 4}
        assert values["test/accuracy"] == {4: saved["metrics"]["test/accuracy"]}
        assert values["last/valid/loss"] == {4: saved["last"]["valid/loss"]}
        assert values[f"best/{saved['best']['metric']}"] == {4: saved["best"]["value"]}
        config = shown["config"]
        assert config["_Group"] == saved["group"]
        assert config["tags"] == ["copy", "plstm", "chien", "chien_copy"]
        assert config["task"] == saved["config"]["task"]
        assert [alert["title"] for alert in shown["alerts"]] == ["finished"]
        drawn = {row["step"] for row in shown["rows"] if "timescale/layer1/log10_steps" in row}
        assert drawn == {0, 2, 4}
        counts = next(row for row in shown["rows"] if row["step"] == 2)["timescale/layer1/log10_steps"]
        assert sum(counts["values"]) == 4  # hidden_size
    groups = {shown["config"]["_Group"] for shown in found.values()}
    assert len(groups) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"home", "work"}
    at_home = {path.stem.partition(".")[0] for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert at_home == {"sitecustomize"}


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_stopped_and_continued_has_every_step_once(start, train, read, tmp_path, stop):
    long = ["task.train_size=8000", "loop.max_steps=400", "loop.eval_every=50", "loop.checkpoint_every=0"]
    directory = tmp_path / "work" / "mine"
    process = start(ROOT / "train.py", *QUICK, *long, f"run_dir={directory}")
    deadline = time.monotonic() + 120
    while not (directory / "last.pt").is_file() or (directory / "curve.csv").read_text().count("\n") < 60:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(stop)
    process.wait()
    train(*long, f"run_dir={directory}")
    (shown,) = read().values()
    values, logged = points(shown["rows"]), curve(directory)
    assert {name: values[name] for name in logged} == logged
    assert list(values["train/loss_nats"]) == list(range(2, 401, 2))
    if stop == signal.SIGKILL:  # which may take the histograms of the last half second with it
        return
    assert {row["step"] for row in shown["rows"] if "timescale/layer1/log10_steps" in row} == {0, *range(50, 401, 50)}
    for _ in range(2):  # other settings: another run, and the same one again
        train(*long, f"run_dir={directory}", "force=true", "loop.max_steps=100")
        assert sorted(max(points(run["rows"])["train/loss_nats"]) for run in read().values()) == [100, 400]


def test_a_run_that_fails_says_so(start, read, tmp_path):
    script = tmp_path / "fail.py"
    script.write_text(
        "import runpy, sys\n"
        "from timescales.training import loop\n"
        "loop.fit = lambda *arguments: 1 / 0\n"
        f"sys.argv = ['train.py', *{QUICK!r}]\n"
        f"runpy.run_path({str(ROOT / 'train.py')!r}, run_name='__main__')\n"
    )
    out, _ = start(script).communicate()
    assert "ZeroDivisionError" in out
    (shown,) = read().values()
    (alert,) = shown["alerts"]
    assert (alert["title"], alert["level"]) == ("failed", "error")
    assert alert["text"] == "ZeroDivisionError: division by zero"
