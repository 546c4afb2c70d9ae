"""What people type: runs, skips, sweeps, and one clear line for what is wrong."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from timescales import cli
from timescales.config import messages
from timescales.errors import ConfigError
from timescales.runs import lock, record
from timescales.runs.decide import Action, decide
from timescales.tasks.copy import Copy

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["task=copy", "task.T=2", "task.train_size=16", "task.valid_size=8", "task.test_size=8", "task.batch_size=8",
         "model.hidden_size=4", "loop.max_steps=2", "logger=none"]  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg", "job"], ["--cfg", "job", "--resolve", "model=plstm"],
                                       ["--info", "defaults"]], ids=" ".join)  # fmt: skip
def test_no_torch_before_a_run(arguments, tmp_path):
    program = f"""
import sys, runpy
sys.argv = ['train.py', *{arguments!r}]
try:
    runpy.run_path({str(ROOT / "train.py")!r}, run_name='__main__')
except SystemExit as leaving:
    assert not leaving.code, leaving.code
heavy = {{'torch', 'wandb', 'pandas', 'torchvision', 'datasets', 'matplotlib'}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "copy" in done.stdout or "defaults" in done.stdout.lower()
    assert not list(tmp_path.iterdir())


def test_a_run_leaves_its_record_and_is_skipped_then(train, tmp_path):
    first = train(*QUICK, "model=plstm")
    assert first.status == 0, first
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.startswith("copy-plstm-s0-")
    record = json.loads((directory / "record.json").read_text())
    assert directory.name.endswith(record["id"])
    assert record["status"] == "finished"
    assert record["config"]["model"]["hidden_size"] == 4
    assert set(record["metrics"]) == {f"{s}/{m}" for s in ("valid", "test")
                                      for m in ("loss", "accuracy", "sequence_accuracy")}  # fmt: skip
    assert 0 <= record["metrics"]["test/accuracy"] <= 1
    assert len(record["timescales"]["start"][0]) == len(record["timescales"]["end"][0]) == 7
    assert record["parameters"] == 3 * 4 * (10 + 4 + 1) + 4 + 5 * 10
    assert record["chance"] == Copy(T=2).chance()
    for key in ("commit", "versions", "threads", "machine", "seconds", "golden", "seed", "device", "curve", "best"):
        assert record[key] is not None, key
    again = train(*QUICK, "model=plstm")
    assert "finished, skipped" in again.out
    forced = train(*QUICK, "model=plstm", "force=true")
    assert "finished, skipped" not in forced.out
    assert json.loads((directory / "record.json").read_text())["metrics"] == record["metrics"]


def test_identity_ignores_what_changes_no_number(train, tmp_path):
    train(*QUICK)
    for harmless in (
        ["device=cpu"],
        ["engine=eager"],
        ["loop.checkpoint_every=1"],
        ["logger=csv"],
        ["resume=false"],
        ["optimizer.momentum=0"],
        ["loop.clip_norm=1"],
    ):
        assert "finished, skipped" in train(*QUICK, *harmless).out, harmless
    for other in (["seed=1"], ["optimizer.lr=0.1"], ["loop.max_steps=3"], ["model=plstm"]):
        assert "finished, skipped" not in train(*QUICK, *other).out, other


def test_a_run_dir_of_ones_own(train, tmp_path):
    assert train(*QUICK, f"run_dir={tmp_path}/mine").status == 0
    assert (tmp_path / "mine" / "record.json").is_file()
    assert not (tmp_path / "runs").exists()
    other = train(*QUICK, f"run_dir={tmp_path}/mine", "seed=4")
    assert other.status == 1
    assert "choose another run_dir, or force=true" in other.err
    assert train(*QUICK, f"run_dir={tmp_path}/mine", "seed=4", "force=true").status == 0
    assert json.loads((tmp_path / "mine" / "record.json").read_text())["seed"] == 4


def test_a_mistake_costs_no_outcome(train, tmp_path):
    """Not even where checkpoints were removed to save room."""
    assert train(*QUICK, f"run_dir={tmp_path}/mine").status == 0
    (tmp_path / "mine" / "last.pt").unlink()
    kept = (tmp_path / "mine" / "record.json").read_bytes()
    assert "device must be" in train(*QUICK, f"run_dir={tmp_path}/mine", "force=true", "device=cdua").err
    assert (tmp_path / "mine" / "record.json").read_bytes() == kept
    assert (tmp_path / "mine" / "best.pt").is_file()


@pytest.mark.parametrize("error", [ConfigError("torch sees no GPU here"), RuntimeError("a bug")])
def test_what_cannot_be_built_costs_nothing_that_is_there(train, tmp_path, monkeypatch, error):
    """Neither a finished run that is to be run again, nor an interrupted one that is to be begun anew."""
    from timescales.training import build

    def broken(config):
        raise error

    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    assert train(*QUICK, f"run_dir={finished}").status == 0
    assert train(*QUICK, f"run_dir={interrupted}").status == 0
    path = interrupted / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "interrupted", "sha256": None}))
    there = (finished / "record.json", finished / "last.pt", interrupted / "last.pt")
    kept = {path: path.read_bytes() for path in there}
    with monkeypatch.context() as patched:
        patched.setattr(build, "build", broken)
        for arguments in ([f"run_dir={finished}", "force=true"], [f"run_dir={interrupted}", "resume=false"]):
            with contextlib.suppress(RuntimeError):
                assert train(*QUICK, *arguments).status == 1
    assert {path: path.read_bytes() for path in kept} == kept
    assert train(*QUICK, f"run_dir={finished}", "force=true").status == 0
    assert (finished / "record.json").read_bytes() != kept[finished / "record.json"]


def test_a_forced_sweep_that_fails_does_not_report_what_was_there(train, tmp_path, monkeypatch):
    from timescales.training import build

    sweep = ["-m", *QUICK, "seed=0,1"]
    assert "; n = 2" in train(*sweep).out
    with monkeypatch.context() as patched:
        patched.setattr(build, "build", lambda config: 1 / 0)
        outcome = train(*sweep, "force=true")
        alike = train(*sweep[:-1], "seed=0", "seeds=2", "force=true")
    assert "2 of 2 runs failed" in outcome.err
    assert "2 of 2 runs failed" in alike.err
    assert "no finished record here; n = 0 of 2" in outcome.out
    assert "2 finished, skipped" in train(*sweep).out  # what was there is still there


def test_what_is_not_the_runs_own_stays(train, tmp_path, monkeypatch):
    """W&B's folders of other runs, and its settings, where run_dir is a folder with a wandb/ in it."""
    from timescales.runs import wandb_run

    for name in ("offline-run-20260101_000000-mine/run-mine.wandb", "settings"):
        path = tmp_path / "here" / "wandb" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    assert train(*QUICK, f"run_dir={tmp_path}/here", "model.hidden_size=-3").status == 1
    assert train(*QUICK, f"run_dir={tmp_path}/here").status == 0
    kept = (tmp_path / "here" / "record.json").read_bytes()

    def no_such_mode():
        raise ConfigError("W&B: no such mode")

    monkeypatch.setattr(wandb_run, "_mode", no_such_mode)
    assert "W&B: no such mode" in train(*QUICK, f"run_dir={tmp_path}/here", "logger=wandb", "force=true").err
    assert (tmp_path / "here" / "record.json").read_bytes() == kept
    assert len([path for path in (tmp_path / "here" / "wandb").rglob("*") if path.is_file()]) == 2


def test_all_that_is_a_runs_own_is_forgotten(tmp_path):
    record.write(tmp_path, {"id": "a", "status": "finished", "metrics": {}, "seconds": 0.0})
    for name in ("last.pt", "best.pt", "curve.csv", "blocks.csv", "train.log"):
        (tmp_path / name).touch()
    record.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


@pytest.mark.parametrize(("before", "after"), [
    ("finished", "finished"), ("diverged", "diverged"), ("interrupted", "failed"),
])  # fmt: skip
def test_an_outcome_outlives_what_goes_wrong_after_it(tmp_path, before, after):
    record.write(tmp_path, {"id": "a", "status": before, "metrics": {}, "seconds": 0.0})
    record.failed(tmp_path, RuntimeError("the network is away"))
    assert record.read(tmp_path)["status"] == after
    assert decide(tmp_path, "a") is (Action.RESUME if before == "interrupted" else Action.SKIP)


def test_a_shortened_evaluation_is_part_of_the_record():
    assert record.partial({"loop": {"max_eval_batches": 2}}) == ["loop.max_eval_batches"]
    assert record.partial({"loop": {"max_eval_batches": None}}) == []
    assert record.missing_data({"partial": ["loop.max_eval_batches", "MNIST subset"]}) == ["MNIST subset"]


def test_what_a_kill_left_goes_with_the_next_owner(tmp_path):
    (tmp_path / ".unfinished.last.pt.abc").touch()
    with lock.hold(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_requeued_job_goes_on_whatever_it_was_told_at_first(train, tmp_path, monkeypatch):
    mine, other = (
        [*QUICK, f"run_dir={tmp_path}/mine", "force=true"],
        [*QUICK, f"run_dir={tmp_path}/other", "force=true"],
    )
    assert train(*other).status == 0
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    assert "skipped" not in train(*mine).out
    assert "skipped" not in train(*mine).out
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert "finished, skipped" in train(*mine).out
    assert "skipped" not in train(*other).out  # which it has not begun
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    assert "skipped" not in train(*mine).out


@pytest.mark.parametrize(("at", "said"), [
    ("at step 7", "interrupted at step 7: saved; the same command continues"),
    ("", "interrupted: what was not saved yet is lost; the same command continues"),
])  # fmt: skip
def test_saved_is_said_where_something_was_saved(at, said, monkeypatch, capsys):
    def main():
        raise KeyboardInterrupt(*[at] * bool(at))

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit):
        cli.run(main)
    assert capsys.readouterr().err == f"\n{said}\n"


def test_a_sweep_over_files_and_over_what_makes_no_other_run(train, tmp_path):
    outcome = train("-m", *QUICK, f"run_dir={tmp_path}", "model=glob(j*)", "engine=eager,auto", "model.hidden_size=4")
    assert "2 runs: 0 finished, skipped; 1 to run; 1 the same as another of them" in outcome.out
    assert [json.loads(path.read_text())["config"]["model"]["name"] for path in tmp_path.glob("*/record.json")] == [
        "janet"
    ]


def test_tasks_give_steps_first(train, tmp_path):
    outcome = train(*QUICK, "+model.batch_first=true", f"run_dir={tmp_path / 'mine'}")
    assert "error: model.batch_first: every task gives steps first, (S, B, ...): leave it out" in outcome.err


def test_what_was_interrupted_is_told_how_it_goes_on():
    assert cli.continuing(["task=copy", "seed=1"]) == "the same command continues"
    wants = "continues; runs that had not begun need it again"
    assert cli.continuing(["task=copy", "force=True"]) == f"the same command without force=True {wants}"
    assert cli.continuing(["resume=false", "force=stale"]) == f"the same command without resume=false {wants}"


def test_a_run_going_on_elsewhere_is_named_and_left_alone(train, tmp_path):
    from timescales.runs import lock

    directory = tmp_path / "mine"
    with lock.hold(directory):  # it has only just begun: nothing else lies there yet
        for wrong in ([], ["task.T=-1"], ["force=true"], ["loop.max_steps=0"]):
            outcome = train(*QUICK, f"run_dir={directory}", *wrong)
            assert outcome.status == 1
            assert "is being run by process" in outcome.err
        assert (directory / "lock").is_file()
    assert train(*QUICK, f"run_dir={directory}").status == 0


@pytest.mark.parametrize(("wrong", "right"), [
    ("model=lstn", "did you mean lstm?"),
    ("task=coppy", "did you mean copy?"),
    ("optimizer=adm", "did you mean adam?"),
    ("paper=chein", "did you mean chien?"),
    ("taks.T=5", "did you mean task.T?"),
    ("task.TT=5", "did you mean task.T?"),
    ("sede=1", "did you mean seed?"),
    ("lr=0.1", "lr: no such key; did you mean optimizer.lr?"),
    ("steps=9", "steps: no such key; did you mean loop.max_steps?"),
    ("training.epoch=9", "training.epoch: no such key; did you mean loop.max_epochs?"),
    ("model.layers=2", "model.layers: no such key; did you mean model.num_layers?"),
    ("task.delay=5", "task.delay: no such key; --cfg job shows all of them"),
    ("hydra.sweeper.minuts=5", "hydra.sweeper.minuts: no such key; did you mean hydra.sweeper.minutes?"),
    ("hydra.sweeper.seed=5", "hydra.sweeper.seed: no such key; --cfg hydra shows all of them"),
    ("loop.max_step=1", "did you mean loop.max_steps?"),
    ("model=lstm,plstm", "model=lstm,plstm: several values are a sweep, which takes -m; a list is written 'model=["),
    ("seed=abc", "seed: Value 'abc' of type 'str' could not be converted to Integer"),
    ("loop.max_epochs=x", "loop.max_epochs: Value 'x'"),
    ("loop.max_epochs=0", "loop.max_epochs must be at least 1"),
    ("loop.clip_norm=-1", "loop.clip_norm must be above 0"),
    ("loop.checkpoint_every=-1", "at least 0"),
    ("loop=3", "loop: Invalid type"),
    ("device=cdua", "did you mean cuda?"),
    ("device=gpu", "did you mean cuda?"),
    ("--model plstm", "a setting is written model=..., without dashes"),
    ("table=chien_table3 hydra.sweeper.minutes=0", "error: hydra.sweeper.minutes must be a number above 0, or null"),
    ("engine=egaer", "did you mean eager?"),
    ("precision=half", "precision must be one of fp32, tf32"),
    ("logger.name=wand", "did you mean wandb?"),
    ("task.T=-4", "T must be at least 0"),
    ("task.T=abc", "task.T must be int, not 'abc'"),
    ("task.T=1.5", "task.T must be int, not 1.5"),
    ("task.T=null", "task.T must be int, not None"),
    ("task.T=true", "task.T must be int, not True"),
    ("task.layout=papre", "layout must be one of paper, authors, tallec, gu"),
    ("task.batch_size=0", "batch_size must be at least 1"),
    ("model.hidden_size=0", "hidden_size must be a whole number of at least 1"),
    ("model.dropout=1.5", "dropout must be at least 0 and below 1"),
    ("model.num_layers=0", "num_layers must be a whole number of at least 1"),
    ("model.forget_init={law:chrono}", "check T_max"),
    ("model.frozen=[forgte]", "frozen names the gates"),
    ("+model.hiden_size=5", "did you mean hidden_size?"),
    ("optimizer.lr=-1", "learning rate"),
    ("model._target_=os.system", "model._target_: os.system is no RNN"),
    ("model._target_=LSTM", "model._target_ must be module.class, such as timescales.LSTM; not 'LSTM'"),
    ("model._target_=my_gate.Mine", "there is no my_gate.Mine (No module named 'my_gate'; PYTHONPATH must name its"),
    ("model=gated model.gate=urr", "model=gated: gate must be one of -, c, o, u, r, om, um, or, ur; not 'urr'"),
    ("model=gated model.gate=om model.hidden_size=9", "hidden_size 9 must be a multiple of downsize 16"),
    ("+model.head_size=many", "model.head_size must be int or null, not 'many'"),
    ("+model.head_size=0", "model=lstm: head_size must be at least 1, or null for no head"),
    ("model._target_=timescales.LSTMM", "there is no timescales.LSTMM"),
    ("model._target_=torch.hub.load", "torch.hub.load is no RNN"),
    ("model._target_=5", "model._target_ must be module.class, as in conf/model/*.yaml; not 5"),
    ("~task._target_", "task._target_ must be module.class"),
    ("~model.name", "model.name must not be deleted"),
    ("model=null", "Config group override must be a string or a list"),
    ("optimizer.lr=abc", "optimizer.lr must be float, not 'abc'"),
    ("optimizer.lr=null", "optimizer.lr must be float, not None"),
    ("optimizer=adam optimizer.betas=[0.9]", "optimizer.betas must be a list of 2"),
    ("seed=99999999999999999999999", "seed must be at least 0 and below 2^63"),
    ("seed=-1", "seed must be at least 0"),
    ("+foo=1", "foo: no such key"),
    ("+loop.foo=1", "loop.foo: no such key"),
    ("loop.log_every=0", "loop.log_every must be at least 1; not 0"),
    ("hydra/launcher=nowhere", "hydra/launcher=nowhere: no such hydra/launcher (there are joblib, slurm)"),
    ("--resolve", "resolve"),
    ("task.T=[1", "cannot be read"),
    ("model", "write key=value"),
    ("--run", "Only one of --run, --multirun"),
    ("run_dir=/proc/nowhere", "choose another place with run_dir=DIR"),
])  # fmt: skip
def test_one_clear_line(train, tmp_path, wrong, right):
    outcome = train(*QUICK, *wrong.split(), *(["-m"] if wrong == "--run" else []))
    assert outcome.status == 1, outcome
    assert len(outcome.err.strip().splitlines()) == 1, outcome
    assert outcome.err.startswith("error: ")
    assert right in outcome.err
    assert not list((tmp_path / "runs").glob("*")), "a run that cannot be leaves no directory"


def test_no_class_is_offered_for_a_key(train):
    """model._target_ was the nearest to model.forget_init that an MTS network has."""
    outcome = train(*QUICK, "model=mts", "model.forget_init=3")
    assert outcome.status == 1
    assert outcome.err.startswith("error: model.forget_init: no such key")
    assert "_target_" not in outcome.err


def test_missing_data_is_one_clear_line(train, tmp_path):
    outcome = train("task=pmnist", "logger=none", f"data_root={tmp_path}/nothing")
    assert outcome.status == 1
    (line,) = outcome.err.strip().splitlines()
    assert "MNIST is not under" in line
    assert "data_root=DIR or TIMESCALES_DATA" in line


def test_a_bug_keeps_its_traceback_and_goes_to_the_runs_log(train, tmp_path, monkeypatch):
    from timescales.training import loop

    with monkeypatch.context() as broken:
        broken.setattr(loop, "training", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError) as raised:
            train(*QUICK)
    names = [entry.frame.f_globals["__name__"].partition(".")[0] for entry in raised.traceback]
    assert "hydra" not in names  # which has twenty frames between the command line and the run
    (directory,) = (tmp_path / "runs").iterdir()
    assert "ZeroDivisionError" in (directory / "train.log").read_text()
    record = json.loads((directory / "record.json").read_text())
    assert (record["status"], record["error"]) == ("failed", "ZeroDivisionError: division by zero")
    assert train(*QUICK, "seed=1").status == 0
    assert list((tmp_path / "runs").glob("*/train.log")) == [directory / "train.log"]  # the other has nothing to tell


def test_sweep_skips_resumes_and_goes_on_after_a_failure(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = ["-m", *QUICK, "model=lstm,plstm", "seed=0,1"]
    first = train(*sweep)
    assert first.status == 0, first
    assert "4 runs: 0 finished, skipped; 4 to run" in first.out
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert all(len(d.name) < 64 for d in (tmp_path / "runs").iterdir())
    again = train("-m", *QUICK, "model=plstm,lstm", "seed=0,1")
    assert "4 runs: 4 finished, skipped; 0 to run" in again.out
    assert first.out.index("\nmodel=lstm: ") < first.out.index("\nmodel=plstm: ")  # in the order asked for
    assert again.out.index("\nmodel=plstm: ") < again.out.index("\nmodel=lstm: ")
    for model in ("lstm", "plstm"):  # both end with what the sweep found
        records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob(f"copy-{model}-s*/record.json")]
        a, b = (record["metrics"]["test/accuracy"] for record in records)
        line = f"model={model}: test/accuracy {(a + b) / 2:.4f} ({abs(a - b) / 2**0.5:.4f}), test/loss "
        assert first.out.count(line) == again.out.count(line) == 1
    assert again.out.count("; n = 2") == 2
    wider = train("-m", *QUICK, "model=lstm,plstm,lstn", "seed=0,2", "task.T=2,-3")
    assert wider.status == 1
    assert "12 runs: 2 finished, skipped; 6 to run" in wider.out
    assert "did you mean lstm?" in wider.out
    assert wider.out.count("T must be at least 0") == 4
    assert "task.T=-3 model=lstm: no finished record here; n = 0 of 2" in wider.out
    assert "8 of 12 runs failed" in wider.err
    assert "Traceback" not in wider.out + wider.err
    assert len(list((tmp_path / "runs").iterdir())) == 6


def test_sweep_survives_a_bug_in_one_job(train, tmp_path, monkeypatch):
    from timescales.training import loop

    original, calls = loop.training, []

    def training(*arguments):
        calls.append(1)
        return 1 / 0 if len(calls) == 1 else original(*arguments)

    monkeypatch.setattr(loop, "training", training)
    outcome = train("-m", *QUICK, "seed=0,1,2")
    assert outcome.status == 1
    assert "ZeroDivisionError: division by zero (traceback in runs/copy-lstm-s0-" in outcome.out
    statuses = sorted(json.loads(p.read_text())["status"] for p in (tmp_path / "runs").glob("*/record.json"))
    assert statuses == ["failed", "finished", "finished"]


def test_sweep_into_a_directory_of_ones_own(train, tmp_path):
    assert train("-m", *QUICK, "seed=0,1", f"run_dir={tmp_path}/mine").status == 0
    assert sorted(d.name[:12] for d in (tmp_path / "mine").iterdir()) == ["copy-lstm-s0", "copy-lstm-s1"]
    assert "2 finished, skipped" in train("-m", *QUICK, "seed=0,1", f"run_dir={tmp_path}/mine").out


def test_two_hundred_finished_runs_are_skipped_quickly(train, tmp_path):
    from hydra import compose, initialize_config_dir

    from timescales import paths
    from timescales.config import identity

    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose("config", QUICK)
    for seed in range(200):
        cfg.seed = seed
        directory = tmp_path / "runs" / identity.slug(cfg)
        directory.mkdir(parents=True)
        (directory / "record.json").write_text(
            json.dumps({"id": identity.identity(cfg), "status": "finished", "metrics": {}, "seconds": 1.0})
        )
    begun = time.process_time()
    outcome = train("-m", *QUICK, "seed=range(0,200)")
    spent = time.process_time() - begun
    assert "200 runs: 200 finished, skipped; 0 to run" in outcome.out
    assert spent < 30  # not a benchmark: composing each of them anew would take minutes


@pytest.mark.parametrize("name", ["a(b)", "it's", "a,b", "[x]", 'a"b', "two words", "ünï", "a\\b"])
def test_sweep_into_a_directory_of_any_name(train, tmp_path, name):
    escaped = name.replace("'", "\\'")
    outcome = train("-m", *QUICK, "seed=0,1", f"run_dir='{escaped}'")
    assert outcome.status == 0, outcome
    assert len(list((tmp_path / name).iterdir())) == 2


def test_sweep_flag_may_stand_anywhere(train):
    assert "2 to run" in train(*QUICK, "-m", "seed=0,1").out


def test_sweep_runs_what_is_asked_twice_once(train):
    assert "1 to run" in train("-m", *QUICK, "seed=0,0").out


def test_a_run_that_cannot_be_built_leaves_nothing_but_a_bug_there_is_recorded(train, tmp_path, monkeypatch):
    from timescales.training import build

    def broken(config):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(build, "build", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(*QUICK)
    (path,) = (tmp_path / "runs").glob("*/record.json")
    record = json.loads(path.read_text())
    assert (record["status"], record["error"]) == ("failed", "RuntimeError: CUDA out of memory")


def test_T_max_auto_inside_forget_init(train, tmp_path):
    assert train(*QUICK, "model=ur", "model.forget_init={law:chrono,T_max:auto}").status == 0
    (path,) = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(path.read_text())["config"]["model"]["forget_init"] == {"law": "chrono", "T_max": 3}


def test_damaged_record_is_named(train, tmp_path):
    train(*QUICK)
    (path,) = (tmp_path / "runs").glob("*/record.json")
    path.write_text('{"id": "x"')
    outcome = train(*QUICK)
    assert outcome.status == 1
    assert "record.json is damaged" in outcome.err
    path.unlink()
    assert train(*QUICK).status == 0


def test_resume_false_starts_over(train, tmp_path):
    from timescales.training import checkpoint

    train(*QUICK)
    (directory,) = (tmp_path / "runs").iterdir()
    record = json.loads((directory / "record.json").read_text())
    (directory / "record.json").write_text(json.dumps(record | {"status": "interrupted", "sha256": None}))
    found = checkpoint.load(directory / "last.pt")
    found["model"]["readout.bias"] += 100.0
    checkpoint.save(directory / "last.pt", found)
    assert train(*QUICK, "resume=false").status == 0
    assert json.loads((directory / "record.json").read_text())["metrics"] == record["metrics"]


def test_ctrl_c_saves_and_says_how_to_go_on(train_process, train, tmp_path):
    import signal

    overrides = [*QUICK, "loop.max_steps=1500", "task.train_size=80000", f"run_dir={tmp_path}/mine", "logger=csv",
                 "loop.log_every=1"]  # fmt: skip
    process = train_process(*overrides)
    while not (tmp_path / "mine" / "curve.csv").is_file():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "the same command continues" in out
    assert json.loads((tmp_path / "mine" / "record.json").read_text())["status"] == "interrupted"
    assert train(*overrides).status == 0
    assert json.loads((tmp_path / "mine" / "record.json").read_text())["steps"] == 1500


def test_a_bug_keeps_its_traceback_whatever_caused_it():
    """A ConfigError that our own code handled, and a pipe that is not the one we print to, are no one's mistake."""
    bug = RuntimeError("a bug")
    bug.__cause__ = ConfigError("something handled")
    assert messages.one_line(bug, []) is None
    program = "from timescales import cli\ndef main(): raise BrokenPipeError('of a worker')\ncli.run(main)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "BrokenPipeError: of a worker" in done.stderr


def test_a_reader_that_goes_early_gets_no_traceback(tmp_path):
    done = subprocess.run(["bash", "-c", f"{sys.executable} {ROOT}/train.py --help | head -n 1"], capture_output=True,
                          text=True, cwd=tmp_path, check=True)  # fmt: skip
    assert done.stdout == "train is powered by Hydra.\n"
    assert done.stderr == ""


def test_shell_completion_knows_the_models(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), "-sc", "query=bash"], capture_output=True, text=True, cwd=tmp_path,
        env={"COMP_LINE": "python train.py model=p", "COMP_POINT": "23", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "model=plstm" in done.stdout, done.stderr
