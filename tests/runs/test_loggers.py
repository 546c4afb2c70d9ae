"""Progress bar, curve.csv, W&B offline."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml
from quick import QUICK, SIZES

from timescales.config import compose, schema
from timescales.config.run import run_of
from timescales.paths import ROOT
from timescales.runs import loggers, wandb_run
from timescales.runs.record import Record
from timescales.training import build

QUICK = [*QUICK, "loop.max_steps=4", "loop.log_every=2"]


def rows(path):
    """The rows of a curve.csv, without their checksums."""
    with open(path, newline="") as file:
        read = list(csv.DictReader(file))
    return [{key: value for key, value in row.items() if key != loggers.Curve.CHECK} for row in read]


def test_curve_is_one_row_per_logged_step(tmp_path):
    curve = loggers.Curve(tmp_path / "curve.csv", 0)
    curve.log({"train/loss_nats": 2.0}, 1)
    curve.log({}, 2)
    curve.log({"train/loss_nats": 1.0, "valid/accuracy": 0.5}, 3)
    assert rows(tmp_path / "curve.csv") == [
        {"step": "1", "train/loss_nats": "2.0", "valid/accuracy": ""},
        {"step": "3", "train/loss_nats": "1.0", "valid/accuracy": "0.5"},
    ]


@pytest.mark.parametrize(
    ("there", "begun", "kept", "damaged"),
    [
        (b"step,a\n1,1.0\n2,2.0\n3,3.0\n4,", 2, 2, False),  # killed while it wrote: a resume writes 3 again
        (b"step,a\n0,1.0\n1,2.0\n", 0, 0, False),  # killed before the first checkpoint: nothing of it counts
        (b"\xff\xfe\x00", 5, 0, True),
        (b"a,b\n1,2\n", 5, 0, True),
        (b"step,a\n1,2,3\n", 5, 0, True),
    ],
)
def test_a_curve_goes_on_where_the_run_does_or_restarts_if_it_is_damaged(tmp_path, capsys, there, begun, kept, damaged):
    path = tmp_path / "curve.csv"
    path.write_bytes(there)
    loggers.Curve(path, begun).log({"a": 9.0}, 6)
    assert rows(path)[:-1] == [{"step": "1", "a": "1.0"}, {"step": "2", "a": "2.0"}][:kept]
    assert rows(path)[-1] == {"step": "6", "a": "9.0"}
    assert ("curve.csv is damaged" in capsys.readouterr().err) is damaged


def test_the_bar_shows_progress_loss_and_metric(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    def shown(begun, name, chances, values, step):
        bar = loggers.Bar(begun, 40, 10, name, "valid/accuracy", *chances)
        bar.log(values, step)
        bar.bar.refresh()
        bar.finish(None)
        return capsys.readouterr().err

    said = shown(10, "copy plstm seed 0", [0.0945], {"train/loss_nats": 1.25, "valid/accuracy": 0.5}, 30)
    numbers = ("30/40", "epoch=3.0", "loss=1.2500 (chance 0.0945)", "valid/accuracy=0.5000", "step/s")
    assert all(word in said for word in ("copy plstm seed 0", *numbers)), said
    said = shown(0, "program lstm seed 0", [2.29, 0.313], {"train/loss_nats": 2.0, "valid/accuracy": 0.25}, 10)
    assert "valid/accuracy=0.2500 (chance 0.3130)" in said
    assert "chance" not in shown(0, "own task", [math.nan], {"train/loss_nats": 1.25}, 10)


@pytest.mark.slow
def test_wandb_offline(train_process, tmp_path, monkeypatch):
    """A real offline run: one line says so, and W&B's own tool finds values, configuration and summary in it."""
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / "my runs"
    settings = ["model=plstm", "engine=eager", "logger=wandb", f"run_dir='{directory}'"]
    out, _ = train_process(*QUICK, *settings).communicate()
    later = f"To upload it later: wandb login && wandb sync '{directory}'/wandb/offline-run-*"
    assert f"W&B: no key, logging offline. {later}" in out
    (run,) = (directory / "wandb").glob("offline-run-*/run-*.wandb")
    shown = json.dumps(inspected(run))
    for word in ("global_step", "train/loss_nats", "timescale/layer1/q50", "test/accuracy", "hidden_size", "chien"):
        assert word in shown, word
    assert rows(directory / "curve.csv")[-1]["step"] == "4"


def inspected(run):
    """What W&B's own tool, `wandb leet inspect`, finds in an offline run: its records.

    On a busy machine W&B's process still writes when the run has ended: its last record is "exit".
    """
    from wandb.util import get_core_path

    inspect = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file", str(run)]
    for _ in range(30):
        size = run.stat().st_size
        lines = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.splitlines()
        records = [json.loads(line) for line in lines]
        if of_type(records, "exit"):
            break
        time.sleep(1)
        if of_type(records, "run") and run.stat().st_size == size:  # a run that was killed has no end
            break
    return records


def of_type(records, kind):
    return [record[kind] for record in records if record["type"] == kind]


def test_wandb_knows_runs_of_one_configuration_by_their_group(train, tmp_path):
    """Seeds share a group, other settings have another; a table's run carries its tag; the best is in the summary."""
    found = []
    for k, settings in enumerate((["seed=0"], ["seed=1", "++logger.table=chien_copy"], ["model.hidden_size=5"])):
        more = ["model=chrono", "logger=wandb", "loop.log_one_over_e=2", f"run_dir={tmp_path / str(k)}"]
        assert train(*QUICK, *settings, *more).status == 0
        (run,) = (tmp_path / str(k) / "wandb").glob("offline-run-*/run-*.wandb")
        found.append(inspected(run))
    runs = [of_type(records, "run")[0] for records in found]
    assert runs[0]["run_group"] == runs[1]["run_group"] != runs[2]["run_group"]
    assert runs[0]["run_group"].startswith("copy-chrono-")
    assert (runs[0]["tags"], runs[1]["tags"][3:]) == (["copy", "chrono", "chien"], ["chien_copy"])
    record = json.loads((tmp_path / "0" / "record.json").read_text())
    summary = [s["update"] for s in of_type(found[0], "summary") if "best" in s["update"]]
    assert (summary[-1]["best"], summary[-1]["chance"]) == (record["best"], record["chance"])
    assert any(m.get("name") == "valid/accuracy" and m["summary"]["max"] for m in of_type(found[0], "metric"))
    history = [h["item"] for h in of_type(found[0], "history")]
    assert [h["global_step"] for h in history] == [0, 2, 4, 4]  # the start, two validations, the end
    assert all(sum(h["timescale/layer1/log10_steps.values"]) == 4 for h in history)
    logged = [(row["step"], row["one_over_e/layer1/q0"]) for row in rows(tmp_path / "0" / "curve.csv")]
    sent = [(str(h["global_step"]), str(h.get("one_over_e/layer1/q0", ""))) for h in history]
    assert sent == logged
    assert [bool(time) for _, time in sent] == [True, True, True, False]  # at the end it is that of the validation
    again = [*QUICK, "seed=0", "model=chrono", "logger=csv", f"run_dir={tmp_path / '0'}", "force=true"]
    assert train(*again).status == 0
    assert json.loads((tmp_path / "0" / "record.json").read_text())["group"] == runs[0]["run_group"]


@pytest.mark.slow
def test_a_resumed_run_is_the_same_run_at_wandb(train, tmp_path, monkeypatch):
    """Interrupted and continued, offline: two files of one W&B id, and the second curve begins where the first ends."""
    directory, log = tmp_path / "mine", loggers.Curve.log
    long = ["loop.max_steps=100", "loop.eval_every=20"]
    arguments = [*QUICK, *long, "model=lstm", "logger=wandb", f"run_dir={directory}"]

    def log_and_interrupt(curve, values, step):
        log(curve, values, step)
        if step == 50:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(loggers.Curve, "log", log_and_interrupt)
        assert train(*arguments).status == 130
    assert train(*arguments).status == 0
    found = [inspected(run) for run in sorted((directory / "wandb").glob("offline-run-*/run-*.wandb"))]
    assert len(found) == 2
    runs = [of_type(records, "run")[0] for records in found]
    names = [{key: run[key] for key in ("run_id", "run_group")} for run in runs]
    assert names[0] == names[1]
    assert [run.get("resume", False) for run in runs] == [False, True]
    assert names[0]["run_id"] == json.loads((directory / "record.json").read_text())["id"]
    first, second = ([h["item"]["global_step"] for h in of_type(records, "history")] for records in found)
    assert first[0] == 0 < 20 < first[-1] < second[0] <= first[-1] + 20
    assert second[-1] == 100


class Sink:
    """Stands in for a W&B run whose log takes a while."""

    def __init__(self, seconds):
        self.seconds, self.sent, self.summary = seconds, [], {}

    def define_metric(self, *args, **kwargs):
        pass

    def log(self, values):
        self.sent.append(values)
        CLOCK[0] += self.seconds

    def finish(self, exit_code):
        pass


CLOCK = [100.0]


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Call opened(seconds): a logger of W&B whose run takes so long for each log, and that run."""

    def call(seconds):
        sink = Sink(seconds)
        monkeypatch.setattr(wandb_run, "_open", lambda directory, saved, resume: sink)
        monkeypatch.setattr(wandb_run.time, "monotonic", lambda: CLOCK[0])
        saved = Record(id="a", status="interrupted", select=("accuracy", "max"))
        return wandb_run.Wandb(tmp_path, saved, lambda: [torch.tensor([1.0, 10.0])], 0), sink

    return call


def test_wandb_takes_at_most_a_hundredth_of_the_time(opened):
    """Steps of 1 ms, 0.5 ms to send: losses are sent about every 50 steps, validations always, the last loss too."""
    log, sink = opened(0.0005)
    log.log({"timescale/layer1/q50": 1.0}, 0)
    for step in range(1, 2001):
        CLOCK[0] += 0.001
        log.log({"train/loss_nats": float(step)} | ({"valid/accuracy": 0.5} if step % 1000 == 0 else {}), step)
    log.log({"train/loss_nats": 2001.0}, 2001)
    log.finish(None)
    assert 20 < len(sink.sent) < 45
    assert log.spent < 0.01 * (CLOCK[0] - log.begun) + 2 * sink.seconds  # but for the newest, and a validation
    assert [values["global_step"] for values in sink.sent if "valid/accuracy" in values] == [1000, 2000]
    assert sink.sent[-1] == {"global_step": 2001, "train/loss_nats": 2001.0}
    assert all(values.get("train/loss_nats", values["global_step"]) == values["global_step"] for values in sink.sent)


def test_a_loss_that_waited_keeps_its_step(opened):
    """Losses every 50 steps, a validation every 120, and a W&B too slow to take all."""
    log, sink = opened(0.01)
    for step in range(0, 601):
        CLOCK[0] += 0.001
        values = {"train/loss_nats": float(step)} if step % 50 == 0 else {}
        log.log(values | ({"valid/accuracy": 0.5} if step % 120 == 0 else {}), step)
    log.finish(None)
    losses = [(v["train/loss_nats"], v["global_step"]) for v in sink.sent if "train/loss_nats" in v]
    assert losses == [(float(step), step) for step in (0, 50, 100, 200, 350, 450, 600)]
    assert [v["global_step"] for v in sink.sent if "valid/accuracy" in v] == [0, 120, 240, 360, 480, 600]


@pytest.mark.slow
def test_a_run_that_fails_says_so_at_wandb(train, tmp_path, monkeypatch):
    from timescales.training import loop

    with monkeypatch.context() as broken:
        broken.setattr(loop, "fit", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(*QUICK, "logger=wandb", f"run_dir={tmp_path / 'mine'}")
    (run,) = (tmp_path / "mine" / "wandb").glob("offline-run-*/run-*.wandb")
    last = {key: value for update in of_type(inspected(run), "summary") for key, value in update["update"].items()}
    assert (last["status"], last["error"]) == ("failed", "ZeroDivisionError: division by zero")
    assert "seconds" not in last


@pytest.mark.slow
def test_a_restarted_run_is_not_joined_to_the_old_one(train, tmp_path):
    arguments = [*QUICK, "logger=wandb", f"run_dir={tmp_path / 'mine'}"]
    assert train(*arguments).status == 0
    assert train(*arguments, "force=true").status == 0
    (run,) = (tmp_path / "mine" / "wandb").glob("offline-run-*/run-*.wandb")
    records = inspected(run)
    assert not of_type(records, "run")[0].get("resume")
    summary = {key: value for update in of_type(records, "summary") for key, value in update["update"].items()}
    record = json.loads((tmp_path / "mine" / "record.json").read_text())
    assert summary["last/test/loss"] == record["last"]["test/loss"]


# One process, which imports W&B once; each case in a child of its own.
MODES = """
import json, os, sys
import wandb
from timescales.runs import wandb_run
wandb.init = lambda **arguments: print("mode", arguments["mode"]) or type("R", (), {"define_metric": lambda *a, **k: 0})
for folder in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(folder)
        os.environ |= {"NETRC": f"{folder}/keys", "HOME": folder}
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), number)
        wandb_run._init({"project": "p", "entity": None}, wandb_run.Path("d"))
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0, folder
"""


@pytest.mark.slow
def test_the_settings_and_keys_of_wandb_count(tmp_path, monkeypatch):
    """In a folder where `wandb offline` was said nothing is sent; a key may lie where W&B looks for it."""
    cases = [(None, None, "offline"), (None, "disabled", "disabled"), ("short", None, "offline")]
    cases += [("a" * 40, None, "online"), ("a" * 40, "offline", "offline")]
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    folders = [tmp_path / str(k) for k in range(len(cases))]
    for folder, (key, setting, _) in zip(folders, cases, strict=True):
        (folder / "wandb").mkdir(parents=True)
        if setting:
            (folder / "wandb" / "settings").write_text(f"[default]\nmode = {setting}\n")
        (folder / "keys").write_text(f"machine ml.uni.edu\n login user\n password {key}\n" if key else "")
        (folder / "keys").chmod(0o600)
    env = {**os.environ, "WANDB_BASE_URL": "https://ml.uni.edu", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", MODES, *map(str, folders)], env=env, check=True)
    for folder, (key, setting, mode) in zip(folders, cases, strict=True):
        out, err = ((folder / name).read_text() for name in ("out", "err"))
        assert f"mode {mode}\n" in out
        assert ("no key, logging offline" in err) == (key is None and setting is None)
        assert ("has 5, logging offline" in err) == (key == "short")


@pytest.mark.slow
def test_a_mode_that_there_is_not_is_one_line(train_process, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "Offline")
    out, _ = train_process(*QUICK, "logger=wandb").communicate()
    assert "error: W&B: 1 validation error for Settings mode Input should be 'online', 'offline'" in out
    assert "Traceback" not in out


@pytest.mark.slow
def test_a_key_without_a_network_costs_no_training(train_process, tmp_path, monkeypatch):
    """W&B gives up after 20 seconds, once for all seeds of a process."""
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("WANDB_API_KEY", 40 * "0")
    monkeypatch.delenv("WANDB_SILENT", raising=False)
    settings = ["logger=wandb", "seeds=2", "engine=eager", f"run_dir={tmp_path / 'mine'}"]
    out, _ = train_process(*QUICK, *settings).communicate()
    assert out.count("W&B: ") == 1
    assert "logging offline under" in out
    assert "Traceback" not in out
    assert "wandb: " not in out
    assert out.count("finished: test/accuracy") == 2
    assert len(list(tmp_path.glob("mine/*/wandb/offline-run-*/run-*.wandb"))) == 2


@pytest.mark.slow
def test_pictures_go_to_their_run(train, tmp_path):
    from matplotlib import image

    runs = {}
    for choice in ("wandb", "csv"):
        assert train(*QUICK, f"logger={choice}", f"run_dir={tmp_path / choice}").status == 0
        assert wandb_run.pictures(tmp_path / choice) == 0  # there are none yet
        (tmp_path / choice / "analysis").mkdir()
        image.imsave(tmp_path / choice / "analysis" / "gates.png", [[0.0, 1.0]])
        (tmp_path / choice / "analysis" / "gates.csv").write_text("unit,T\n0,1.5\n")
        runs[choice] = wandb_run.pictures(tmp_path / choice)
    assert runs == {"wandb": 1, "csv": 0}
    found = [inspected(run) for run in sorted((tmp_path / "wandb" / "wandb").glob("offline-run-*/run-*.wandb"))]
    assert len({of_type(records, "run")[0]["run_id"] for records in found}) == 1
    (item,) = [h["item"] for h in of_type(found[-1], "history")]
    assert (item["global_step"], item["analysis/gates._type"]) == (4, "image-file")
    newest = max((tmp_path / "wandb" / "wandb").glob("offline-run-*/files/analysis/gates.csv"))
    assert newest.read_text() == "unit,T\n0,1.5\n"


def test_a_table_is_an_artefact_with_its_verdicts(tmp_path):
    (tmp_path / "table.md").write_text("# made_up\n")
    logger = {"project": "timescales", "entity": None}
    columns, body = ["what", "verdict"], [["model=lstm", "match"], ["plstm > lstm", None]]
    at, files = tmp_path / "at", [tmp_path / "table.md"]
    wandb_run.publish(logger, "made_up", at, columns, body, files, {"paper size": "open"})
    (run,) = (tmp_path / "at" / "wandb").glob("offline-run-*/run-*.wandb")
    records = inspected(run)
    (one,) = of_type(records, "run")
    assert (one["run_id"], one["run_group"], one["job_type"]) == ("report-made_up", "made_up", "report")
    artefact = of_type(records, "artifact")[0]
    assert (artefact["name"], artefact["type"]) == ("made_up", "table")
    assert {entry["path"] for entry in artefact["manifest"]["contents"]} == {"table.md", "verdicts.table.json"}
    assert {"paper size": "open"} in [s["update"] for s in of_type(records, "summary")]


def test_without_wandb_it_says_so_and_writes_csv(train, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    outcome = train(*QUICK, "logger=wandb")
    assert outcome.status == 0, outcome
    assert "wandb is not installed, writing only curve.csv" in outcome.err
    (directory,) = (tmp_path / "runs").iterdir()
    assert (directory / "curve.csv").is_file()


@pytest.mark.parametrize("choice", ["tensorboard", "trackio"])
def test_a_dashboard_that_is_not_installed_is_one_line_before_anything_is_trained(train, tmp_path, monkeypatch, choice):
    monkeypatch.setitem(sys.modules, choice, None)
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    outcome = train(*QUICK, f"logger={choice}")
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith(f"error: logger={choice}: ")
    assert line.endswith(f"; pip install 'timescales-rnn[{choice}]', or logger=csv")
    assert (outcome.status, list((tmp_path / "runs").glob("*"))) == (1, [])


def test_trackio_that_would_send_elsewhere_is_refused(train, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_SPACE_ID", "someone/space")
    outcome = train(*QUICK, "logger=trackio")
    line = "error: TRACKIO_SPACE_ID is set, but logger=trackio writes only on this machine: unset TRACKIO_SPACE_ID"
    assert outcome.err.strip() == line


def test_no_logger_writes_no_curve(train, tmp_path):
    assert train(*QUICK, "logger=none").status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert not (directory / "curve.csv").exists()
    assert json.loads((directory / "record.json").read_text())["status"] == "finished"


# --- docs/loggers.md: its sweep.yaml names real keys, and the command that `wandb agent` starts trains and logs -------
PAGE = (ROOT / "docs" / "loggers.md").read_text()
SWEEP = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
CHOSEN = {"model": "plstm", "optimizer.lr": 0.0021, "loop.schedule": "cosine", "loop.clip_norm": "null", "seed": 1}


def command_of(sweep, chosen):
    """The command that an agent starts: W&B's own functions fill the macros, as its agent does."""
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    known = utils.create_sweep_command_args({"args": {key: {"value": value} for key, value in chosen.items()}})
    known |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [sweep["program"]]}
    words = []
    for word in utils.create_sweep_command(list(sweep["command"])):
        words += known[word[2:-1]] if word.startswith("${") else [word]
    return words


def test_each_value_of_the_sweep_is_a_setting():
    composer = compose.Composer()
    for key, parameter in SWEEP["parameters"].items():
        values = parameter.get("values") or [parameter["min"], parameter["max"]]
        commands = [command_of(SWEEP, CHOSEN | {key: value}) for value in values]
        assert len({run_of(composer(command[3:])).id for command in commands}) == len(values), key


def test_the_metric_is_the_one_that_chooses_the_checkpoint():
    composer = compose.Composer()
    config = schema.resolved(composer([*command_of(SWEEP, CHOSEN)[3:], "device=cpu"]))
    _, task, _ = build.build(config)
    name, direction = task.spec.select
    assert SWEEP["metric"] == {"name": f"valid/{name}", "goal": f"{direction}imize"}


@pytest.mark.slow
def test_an_agents_command_trains_and_logs_as_the_agents_run(tmp_path):
    """Offline, with the environment and the file of settings that an agent gives."""
    given = {"program": str(ROOT / "train.py"), "command": [*SWEEP["command"]]}
    small = [*SIZES, "task.T=2", "loop.max_steps=4", "loop.eval_every=2", "device=cpu"]
    given["command"][-1:] = [*small, "${args_no_hyphens}"]
    words = command_of(given, CHOSEN)
    words[:2] = [sys.executable]
    settings = tmp_path / "config.yaml"
    settings.write_text(yaml.dump({key: {"value": value} for key, value in CHOSEN.items()} | {"wandb_version": 1}))
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_SWEEP_ID": "sweep123", "WANDB_RUN_ID": "agents"}
    environment |= {"WANDB_SWEEP_PARAM_PATH": str(settings)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "runs").glob("copy-plstm-s1-*")
    record = json.loads((directory / "record.json").read_text())
    assert (record["status"], record["steps"], record["config"]["loop"]["clip_norm"]) == ("finished", 4, None)
    (logged,) = (directory / "wandb").glob("offline-run-*-agents/run-agents.wandb")
    records = inspected(logged)
    assert of_type(records, "run")[0]["sweep_id"] == "sweep123"
    summary = {key: value for found in of_type(records, "summary") for key, value in found["update"].items()}
    assert summary["valid/accuracy"] == record["metrics"]["valid/accuracy"] == record["best"]["value"]
    again = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "finished, skipped" in again.stdout
