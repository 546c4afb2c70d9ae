"""Sweeps: what they skip, launch, report, and how several share the work."""

import json
import re

import pytest
from quick import QUICK, UNTRAINED, lock_from_elsewhere, records

from timescales.config.compose import Composer
from timescales.config.run import runs_of
from timescales.experiment import plan
from timescales.experiment.sweep import Sweep
from timescales.runs import lock, record

LONGER = [*QUICK, "task.T=3", "task.train_size=200", "task.valid_size=10", "task.test_size=10", "task.batch_size=10"]
LONGER += ["model=lstm", "engine=eager", "logger=csv"]
QUICK = [*QUICK, "logger=none"]


def test_sweep_skips_resumes_and_goes_on_after_a_failure(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = ["-m", *QUICK, "model=lstm,plstm", "seed=0,1"]
    first = train(*sweep)
    assert first.status == 0, first
    assert "4 runs: 0 already finished, 4 to train" in first.out
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert all(len(d.name) < 64 for d in (tmp_path / "runs").iterdir())
    again = train("-m", *QUICK, "model=plstm,lstm", "seed=0,1")
    assert "4 runs: 4 already finished, 0 to train" in again.out
    assert first.out.index("\nmodel=lstm: ") < first.out.index("\nmodel=plstm: ")  # in the order asked for
    assert again.out.index("\nmodel=plstm: ") < again.out.index("\nmodel=lstm: ")
    for model in ("lstm", "plstm"):  # both end with what the sweep found
        a, b = (s["metrics"]["test/accuracy"] for s in records() if s["config"]["model"]["name"] == model)
        line = f"model={model}: test/accuracy {(a + b) / 2:.4f} ({abs(a - b) / 2**0.5:.4f}), test/loss "
        assert first.out.count(line) == again.out.count(line) == 1
    assert again.out.count(", 2 of 2 runs finished") == 2
    wider = train("-m", *QUICK, "model=lstm,plstm", "seed=0,2", "task.T=2,-3")
    assert wider.status == 1
    assert "8 runs: 2 already finished, 6 to train" in wider.out
    assert wider.out.count("T must be at least 0") == 4
    assert "model=lstm task.T=-3: 0 of 2 runs finished" in wider.out
    assert "4 of 8 runs failed" in wider.err
    assert "Traceback" not in wider.out + wider.err
    assert len(list((tmp_path / "runs").iterdir())) == 6


def test_a_finished_run_does_not_hide_a_wrong_value(train):
    assert "1 run: 0 already finished, 1 to train" in train("-m", *QUICK).out
    for sweep in ([], ["-m"]):
        outcome = train(*sweep, *QUICK, "engine=fusd")
        assert (outcome.status, outcome.out) == (1, "")
        assert "expected one of [auto, eager, fused, compiled, cudnn]" in outcome.err


def test_sweep_survives_a_bug_in_one_job(train, monkeypatch):
    from timescales.training import run

    original, calls = run.TrainingRun, []

    def broken_once(*arguments):
        calls.append(1)
        return 1 / 0 if len(calls) == 1 else original(*arguments)

    monkeypatch.setattr(run, "TrainingRun", broken_once)
    outcome = train("-m", *QUICK, "seed=0,1,2")
    assert outcome.status == 1
    assert "ZeroDivisionError: division by zero (traceback in runs/copy-lstm-s0-" in outcome.out
    assert [saved["status"] for saved in records()] == ["failed", "finished", "finished"]


def test_a_damaged_record_ends_no_other_seed(train, tmp_path):
    assert train(*QUICK, "seed=1").status == 0
    (damaged,) = (tmp_path / "runs").glob("*/record.json")
    damaged.write_text("{")
    outcome = train("-m", *QUICK, "seeds=3")
    assert (outcome.status, outcome.out.count("record.json is damaged")) == (1, 1)
    assert "1 of 3 runs failed" in outcome.err
    others = set((tmp_path / "runs").glob("*/record.json")) - {damaged}
    ended = [json.loads(path.read_text()) for path in others]
    assert sorted((saved["seed"], saved["status"]) for saved in ended) == [(0, "finished"), (2, "finished")]
    assert damaged.read_text() == "{"


def test_sweep_into_a_given_directory(train, tmp_path):
    """Its flag may stand anywhere, the directory may have any name, and what is asked twice is run once."""
    name = """a(b) it's a,b [x] a"b ünï a\\b"""
    place = "run_dir='{}'".format(name.replace("'", "\\'"))
    assert "2 to train" in train(*QUICK, "-m", "seed=0,1,1", place).out
    assert sorted(d.name[:12] for d in (tmp_path / name).iterdir()) == ["copy-lstm-s0", "copy-lstm-s1"]
    assert "2 already finished" in train("-m", *QUICK, "seed=0,1", place).out


def test_seeds_of_one_setting_are_composed_once(train, monkeypatch):
    """To compose each of many finished runs would take ten times as long as to skip them."""
    composer, composed = Composer(), []
    compose = type(composer).__call__
    for run in runs_of(composer([*QUICK, "seeds=60"])):
        run.directory.mkdir(parents=True)
        saved = {"id": run.id, "status": "finished", "metrics": {}, "seconds": 1.0}
        (run.directory / "record.json").write_text(json.dumps(saved))
    monkeypatch.setattr(type(composer), "__call__", lambda *given: composed.append(given) or compose(*given))
    assert "60 runs: 60 already finished, 0 to train" in train("-m", *QUICK, "seed=range(0,60)").out
    assert 0 < len(composed) < 5


@pytest.mark.parametrize(
    ("words", "advised"),
    [([], True), (["device=cuda"], False), (["hydra.sweeper.minutes=9"], False), (["seed=0"], False)],
    ids=str,
)
def test_a_sweep_says_how_small_runs_are_fastest(train, monkeypatch, words, advised):
    """On stderr, since a page shows what else it prints."""
    monkeypatch.setattr(Sweep, "train", lambda *_: None)
    outcome = train("-m", *QUICK, *(words if words == ["seed=0"] else ["seed=0,1", *words]))
    assert ("one on each core, with one thread each: hydra/launcher=joblib\n" in outcome.err) is advised


def test_a_sweep_over_files_and_over_what_makes_no_other_run(train, tmp_path):
    outcome = train("-m", *QUICK, f"run_dir={tmp_path}", "model=glob(j*)", "engine=eager,auto", "model.hidden_size=4")
    assert "2 runs: 0 already finished, 1 to train, 1 asked for more than once" in outcome.out
    assert [saved["config"]["model"]["name"] for saved in records(tmp_path)] == ["janet"]


def test_a_forced_sweep_that_fails_does_not_report_what_was_there(train, tmp_path, monkeypatch):
    from timescales.training import build

    sweep = ["-m", *QUICK, "seed=0,1"]
    assert ", 2 of 2 runs finished" in train(*sweep).out
    with monkeypatch.context() as patched:
        patched.setattr(build, "build", lambda config: 1 / 0)
        outcome = train(*sweep, "force=true")
    assert "2 of 2 runs failed" in outcome.err
    assert "0 of 2 runs finished" in outcome.out
    assert "2 already finished" in train(*sweep).out  # what was there is still there


@pytest.mark.slow
def test_two_sweeps_share_a_table(train_process, tmp_path):
    """Each run is trained by one of them, and both end well."""
    sweep = ["-m", *LONGER, "seed=0,1,2,3", "loop.max_steps=200", "loop.eval_every=50"]
    processes = [train_process(*sweep) for _ in range(2)]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert [saved["status"] for saved in records(tmp_path / "runs")] == 4 * ["finished"]
    trained = [text.count("\n  finished: ") - text.count("finished, skipped:") for text in said]
    assert sum(trained) == 4, said
    for path in (tmp_path / "runs").glob("*/curve.csv"):  # a second training would have restarted or continued it
        steps = [int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]
        assert (steps, steps.count(50)) == (sorted(steps), 1)
    assert "4 runs: 4 already finished, 0 to train" in train_process(*sweep).communicate()[0]


def test_a_sweep_leaves_a_run_to_its_owner_and_comes_back(train, tmp_path, monkeypatch):
    sweep = ["-m", *LONGER, "seed=0,1", "loop.max_steps=20"]
    assert train(*sweep).status == 0
    taken = sorted((tmp_path / "runs").iterdir())[0]
    for path in (taken / "record.json", taken / "last.pt"):
        path.unlink()
    lock_from_elsewhere(taken, silence=10)
    outcome = train(*sweep)
    assert outcome.status == 0, outcome
    assert "2 runs: 1 already finished, 0 to train, 1 running elsewhere" in outcome.out
    assert "1 being trained by other processes. Repeat the command to see their results." in outcome.out
    assert not (taken / "record.json").exists()
    # Its owner dies while we train the other one.
    other = sorted((tmp_path / "runs").iterdir())[1]
    (other / "record.json").unlink()
    start = record.start

    def start_and_let_the_owner_die(directory, *arguments):
        if directory.name == other.name:
            lock_from_elsewhere(taken, 2 * lock.TIMEOUT)
        return start(directory, *arguments)

    monkeypatch.setattr(record, "start", start_and_let_the_owner_die)
    outcome = train(*sweep)
    assert "2 runs: 0 already finished, 1 to train, 1 running elsewhere" in outcome.out
    assert "the same command says" not in outcome.out
    assert json.loads((taken / "record.json").read_text())["status"] == "finished"


def test_a_tables_analysis_is_made_of_those_models_that_it_is_for(train):
    small = ["task.low=3", "task.high=6", "task.batch_size=16", "task.train_size=64", "task.valid_size=16"]
    small += ["task.test_size=16", "model.hidden_size=8", "loop.max_steps=4", "loop.eval_every=2"]
    sweep = ["-m", "table=chien_variable_copy", "rung=small", "model=lstm,plstm", "seed=200", *small]
    assert train(*sweep).status == 0
    probes = {saved["config"]["model"]["name"]: saved.get("probes", {}) for saved in records()}
    assert probes["lstm"] == {}  # its units have no reference times
    late = [probes["plstm"][f"reference_times/late/mean_{name}"] for name in ("both", "one", "neither")]
    assert sum(late) == 8.0


OWN = "{_target_: timescales.LSTM, name: own, hidden_size: 5, num_layers: 1, dropout: 0.0, forget_init: uniform}"
NOTE = "warning: "


def note(outcome):
    """What a sweep says of unequal settings."""
    assert outcome.status == 0, outcome
    return [line.removeprefix(NOTE) for line in outcome.out.splitlines() if line.startswith(NOTE)]


def test_a_sweep_names_settings_that_differ_without_having_been_swept(train, tmp_path, monkeypatch):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "own.yaml").write_text(OWN)
    quick = [setting for setting in QUICK if not setting.startswith("model.")]
    mine = ["--config-dir", "mine", "-m", *quick]
    # And no forget_init, which makes a model what it is.
    key = "model.hidden_size"
    sizes = f"{key} was not swept, and differs: 128 (lstm), 5 (own). Add {key}=128 to make it equal."
    first = train(*mine, "model=lstm,own")
    assert note(first) == note(train(*mine, "model=lstm,own")) == [sizes]  # also if all of them have finished
    assert first.out.index(NOTE) < first.out.index("\n[1/2]")
    monkeypatch.setattr(*UNTRAINED)
    assert note(train(*mine, "model=lstm,own", "model.hidden_size=5,6")) == []  # swept
    assert note(train(*mine, "model=own", "seed=0,1", "task.T=2,3")) == []
    size, rate = note(train(*mine, "model=lstm,own", "optimizer=sgd,adam"))[:2]
    assert "128 (lstm sgd), 128 (lstm adam), 5 (own sgd), 5 (own adam)" in size
    assert rate.startswith("optimizer.lr was not swept")


LEFT_OUT = "note: model.epsilon is left out for lstm, gru: no such key there"


@pytest.mark.parametrize(
    ("sweep", "words", "epsilons"),
    [
        ("model=plstm,pgru model.epsilon=.1", "2 runs: 0 already finished", {"plstm": [0.1], "pgru": [0.1]}),
        ("model=plstm,lstm,gru model.epsilon=.1,.2", LEFT_OUT, {"plstm": [0.1, 0.2], "lstm": [None], "gru": [None]}),
    ],
)
def test_a_setting_holds_for_those_models_that_have_it(train, sweep, words, epsilons):
    """Without ++, also where the default model does not have it."""
    outcome = train("-m", *QUICK, *sweep.split())
    assert outcome.status == 0, outcome
    assert words in outcome.out
    models = [saved["config"]["model"] for saved in records()]
    assert len(models) == sum(map(len, epsilons.values()))
    for name, values in epsilons.items():
        assert {model.get("epsilon") for model in models if model["name"] == name} == set(values)


def test_no_key_is_left_out_of_a_run_that_was_not_given_it(capsys):
    """As in a table whose grids set other keys for each task."""
    requests = [["task=copy", "task.T=5"], ["task=pmnist", "+model.head_size=3"], ["task=copy", "model.hidden_size=4"]]
    assert plan.fitting(requests, Composer()) == requests
    assert capsys.readouterr().out == ""
    both = [["task=copy", "task.T=5"], ["task=pmnist", "task.T=5"], ["task=pmnist"]]
    assert plan.fitting(both, Composer()) == both[::2]
    assert capsys.readouterr().out == "note: task.T is left out for pmnist: no such key there\n"


def test_runs_of_different_tasks_are_not_compared(train, tmp_path, monkeypatch):
    monkeypatch.setattr(*UNTRAINED)
    for name, delay in (("short", 2), ("long", 3)):
        (tmp_path / "mine" / "delay").mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / "delay" / f"{name}.yaml").write_text(f"# @package _global_\ntask:\n  T: {delay}\n")
    own = [setting for setting in QUICK if setting != "task.T=2"]
    assert note(train("--config-dir", "mine", "-m", *own, "+delay=short,long")) == []
    task = ["task=copy,adding", "task.T=12", *(setting for setting in QUICK if not setting.startswith("task"))]
    small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4", "model.hidden_size=4"]
    assert note(train("-m", *task, *small)) == []
    (found,) = note(train("-m", *task, *small, "optimizer=sgd,adam"))
    assert "0.1 (sgd), 0.001 (adam) on copy; 0.1 (sgd), 0.001 (adam) on adding" in found


@pytest.mark.slow
def test_failing_jobs_leave_no_memory_behind(train):
    """Fifteen failures in one sweep, each with 20 MB in the frames that its error remembers."""
    outcome = train("-m", *LONGER, "task._target_=odd_tasks.Failing", "loop.max_steps=20", "seed=range(0,15)")
    alive = [int(count) for count in re.findall(r"^large tensors: (\d+)$", outcome.out, re.M)]
    assert len(alive) == 15, outcome
    assert "15 of 15 runs failed" in outcome.err
    # The process size would tell less: the allocator may keep what was freed.
    assert max(alive) <= 2, alive
