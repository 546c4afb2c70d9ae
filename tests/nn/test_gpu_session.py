"""scripts/bench/gpu.py: what is done in fifteen minutes on a GPU machine, what comes back, and where it is put."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
import time
from argparse import Namespace
from pathlib import Path

import pytest
from everyday import only

from timescales.config import compose
from timescales.config.run import run_of
from timescales.experiment.plan import single
from timescales.nn.engine.gpu import choice
from timescales.runs import record

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))


@pytest.fixture
def out(tmp_path):
    import gpu_place

    return gpu_place.Out(tmp_path / "out")


# ------------------------------------------------------------------------------------------ commands and files


def test_a_command_that_takes_too_long_is_asked_to_stop_then_killed_with_what_it_started(out, tmp_path, monkeypatch):
    import gpu_place

    (tmp_path / "polite.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('child', child.pid, flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('checkpoint written', flush=True)\n"
    )
    (tmp_path / "deaf.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(60)\n"
    )
    calls = []
    command = [sys.executable, str(tmp_path / "polite.py")]
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background
    try:
        found = gpu_place.call(command, {}, 2.0, out, lambda: calls.append(1), every=0.2)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, handler)
    assert found.status is None
    assert found.seconds < 15
    assert "checkpoint written" in found.output
    assert len(calls) >= 5
    child = Path("/proc") / found.output.split()[1] / "stat"
    for _ in range(200):  # a killed process needs a moment
        if not child.exists() or child.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the command has started still runs")
    monkeypatch.setattr(gpu_place, "STOPPING", 0.5)
    assert gpu_place.call([sys.executable, str(tmp_path / "deaf.py")], {}, 1.0, out).status is None
    assert gpu_place.call([sys.executable, "-c", "raise SystemExit(3)"], {}, 20.0, out).status == 3
    log = (out.folder / "gpu.log").read_text()
    assert "checkpoint written" in log
    assert "stopped, its time is over" in log


def some_run(folder, name, status="interrupted", last=0, best=0):
    """A run's directory with a record of this status and checkpoints of so many bytes."""
    place = folder / name
    place.mkdir(parents=True)
    record.Record(id="0", status=status, seconds=1.0).write(place)
    for file, size in (("last.pt", last), ("best.pt", best)):
        if size:
            (place / file).write_bytes(bytes(size))
    return place


def members(path):
    """The names in an archive."""
    with tarfile.open(path) as archive:
        return archive.getnames()


def test_runs_come_back_in_archives_below_the_limit_records_first(out, tmp_path):
    """Of one that has ended the best weights, of one that has not the checkpoint; what is too large is named."""
    runs = [
        some_run(tmp_path, "ended", "finished", last=9 * MIB, best=6 * MIB),
        *(some_run(tmp_path, f"going{k}", last=6 * MIB, best=2 * MIB) for k in range(4)),
        some_run(tmp_path, "large", last=16 * MIB),
        some_run(tmp_path, "more", last=14 * MIB),
    ]
    out.pack(runs)
    paths = sorted(out.folder.glob("runs-*.tar"))
    assert len(paths) == 3
    assert all(path.stat().st_size <= 15 * MIB for path in paths)
    names = [members(path) for path in paths]
    assert names[0][:7] == [f"{run.name}/record.json" for run in runs]
    assert names[0][7:] == ["ended/best.pt", "going0/last.pt"]
    assert names[1:] == [["going1/last.pt", "going2/last.pt"], ["going3/last.pt"]]
    assert out.results["tables"]["left_out"] == ["large/last.pt (16.0 MiB)", "more/last.pt (14.0 MiB)"]
    before = paths[0].stat().st_mtime_ns
    out.pack(runs)  # nothing has changed: nothing is written
    assert paths[0].stat().st_mtime_ns == before
    assert len(list(out.folder.iterdir())) <= 8


def test_results_of_a_stage_are_written_before_the_next_begins_and_an_error_stops_no_other(out, monkeypatch):
    import gpu

    given = []

    def first(job):
        job.out.update("first", value=7)
        raise RuntimeError("the driver is gone")

    def second(job):
        written = json.loads((out.folder / "gpu.json").read_text())
        assert written["first"]["value"] == 7
        assert "the driver is gone" in written["first"]["error"]
        given.append(job.seconds)

    stages = {"first": gpu.Stage(first, 30), "second": gpu.Stage(second, 45), "third": gpu.Stage(second, None)}
    monkeypatch.setattr(gpu, "STAGES", stages)
    monkeypatch.setattr(gpu, "environment", dict)
    gpu.work(Namespace(device="cuda", minutes=2.0, stages=["first", "second", "third"]), out)
    assert "error" not in out.results["second"], out.results
    assert given[0] == 45
    assert 100 < given[1] <= 115  # all that is left of two minutes but the last five seconds
    gpu.work(Namespace(device="cuda", minutes=0.2, stages=["first"]), out)
    assert out.results["first"]["not_begun"] == "the time was over"


def session(out, *arguments):
    """Run gpu.py in a process of its own; its results go to `out`."""
    command, env = [sys.executable, "scripts/bench/gpu.py", *arguments], {"OUT": str(out), "PATH": "/usr/bin:/bin"}
    env["CUDA_VISIBLE_DEVICES"] = ""  # no GPU, also where there is one
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stages", only(["machine"], ["machine", "machine cluster"]))
def test_a_short_rehearsal_writes_to_out_and_ends_with_ten_lines(tmp_path, stages):
    """With the plain python3 of any machine: neither make nor git."""
    done = session(tmp_path, "--device", "cpu", "--minutes", "3", "--stages", *stages.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"gpu.json", "gpu.log"}
    found = json.loads((tmp_path / "gpu.json").read_text())
    learned = found["learned"]["lines"]
    assert len(learned) == 10
    assert done.stdout.splitlines()[-10].startswith(
        "| machine            | a CPU, rehearsing; no nvidia-smi; python 3."
    )
    assert ("; cluster engine: 2 of 2 trials right, tiny lstm " in learned[2][1]) is ("cluster" in stages)


def test_without_a_gpu_it_ends_at_once(tmp_path):
    done = session(tmp_path, "--stages", "machine", "tests")
    assert done.returncode == 1
    assert "torch sees no GPU here; --device cpu rehearses" in (tmp_path / "gpu.log").read_text()
    assert "tests" not in json.loads((tmp_path / "gpu.json").read_text())


def test_a_wrong_engine_is_run_again_so_that_its_kernel_is_named(out, monkeypatch):
    """One launch at a time, then a short sequence under compute-sanitizer."""
    import gpu
    import gpu_place

    calls = []

    def call(command, env, seconds, *_, **more):
        calls.append((env.get("CUDA_LAUNCH_BLOCKING"), *command[:1], *command[-6:]))
        return gpu_place.Result(1, 1.0, "RuntimeError: an illegal memory access")

    monkeypatch.setattr(gpu, "call", call)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: f"/usr/bin/{name}")
    gpu.engine(gpu.Job(out, {}, "cuda", 100.0))
    assert [blocking for blocking, *_ in calls] == [None, "1", None]
    assert [command[0] for _, *command in calls] == [sys.executable, sys.executable, "compute-sanitizer"]
    assert calls[2][2:4] == ("--steps", "4")
    assert "illegal memory access" in out.results["engine"]["output"]
    assert "illegal memory access" in out.results["engine"]["sanitizer"]
    assert out.results["engine"]["status"] == 1


@pytest.mark.parametrize(("answers", "given"), [(True, [40, 30, 45]), (False, [40, 10])])
def test_a_wrong_engine_does_not_take_longer_than_its_limit(out, monkeypatch, answers, given):
    """A command that hangs has its time, and twenty seconds to stop; one that answers fails after half of its time."""
    import gpu
    import gpu_place

    clock, seen = [1000.0], []

    def call(command, env, seconds, *_, **more):
        seen.append(seconds)
        clock[0] += seconds / 2 if answers else seconds + gpu_place.STOPPING
        return gpu_place.Result(1 if answers else None, seconds, "wrong")

    monkeypatch.setattr(gpu, "call", call)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu.shutil, "which", lambda name: f"/usr/bin/{name}")
    limit = gpu.STAGES["engine"].limit
    gpu.engine(gpu.Job(out, {}, "cuda", limit))
    assert seen == given
    assert clock[0] - 1000 <= limit


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (
            "[gw0] [ 1%] PASSED a\n=== 3 failed, 120 passed, 2 skipped in 9.1s ===",
            {"passed": 120, "failed": 3, "skipped": 2},
        ),
        (
            "[gw0] [ 1%] PASSED a\n[gw1] [ 2%] PASSED b\n[gw1] [ 2%] FAILED tests/nn/test_gpu.py::c\n",
            {"passed": 2, "failed": 1},
        ),
        ("no module named pytest", {}),
    ],
)
def test_outcomes_of_tests_that_ended_or_were_stopped(output, counts):
    import gpu

    assert gpu.outcomes(output)["counts"] == counts


def test_the_failed_tests_are_named_once():
    import gpu

    line = "FAILED tests/nn/test_gpu.py::test_a[x] - AssertionError\n"
    assert gpu.outcomes(f"[gw0] [ 9%] {line}{line}")["failed"] == ["tests/nn/test_gpu.py::test_a[x]"]


# ------------------------------------------------------------------------------------------ open runs


def a_plan(**minutes):
    families = [
        {"table": name.split("_")[0], "overrides": [f"name={name}"], "runs": [name, f"{name}-1"], "minutes": m}
        for name, m in minutes.items()
    ]
    return {"modelled_ms": {"lstm x5": 5.0, "lstm": 2.0}, "families": families}


def test_the_cheapest_families_come_first_and_only_those_that_can_end(out, tmp_path, monkeypatch):
    """500 s: 15 s to start and the model's minutes, twice as long as was measured; then as long as the first took."""
    import gpu_place
    import gpu_tables

    clock, launched = [0.0], []
    (tmp_path / "plan.json").write_text(json.dumps(a_plan(t_a=1.0, t_b=1.5, u_c=2.0, u_d=9.0)))
    monkeypatch.setattr(gpu_tables, "PLAN", tmp_path / "plan.json")
    monkeypatch.setattr(gpu_tables, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_tables.time, "monotonic", lambda: clock[0])
    took = {"t_a": 75.0, "t_b": 105.0, "u_c": 400.0}

    def call(command, env, seconds, out, meanwhile, cwd):
        name = command[2].partition("=")[2]
        launched.append((name, round(seconds), command[3:]))
        clock[0] += min(seconds, took[name])
        for run in (name, f"{name}-1"):
            some_run(tmp_path / "runs", run, "finished" if took[name] <= seconds else "interrupted")
        meanwhile()
        return gpu_place.Result(0 if took[name] <= seconds else None, took[name], "")

    monkeypatch.setattr(gpu_tables, "call", call)
    out.update("step", rows=[{"part": "training", "variant": "lstm x5", "ms": 10.0}])
    gpu_tables.train(out, {}, "cuda", 500.0)
    # 480 s: a takes 135 s by twice the model, and took 75: as the model says. Then b 105 of 405 s, c 135 of 300.
    assert launched == [
        ("t_a", 480, ["device=cuda", "logger=none"]),
        ("t_b", 405, ["device=cuda", "logger=none"]),
        ("u_c", 300, ["device=cuda", "logger=none"]),
    ]
    found = out.results["tables"]
    assert [(f["expected"], f["ended"]) for f in found["families"]] == [(135.0, 2), (105.0, 2), (135.0, 0)]
    assert found["open"] == 4
    assert len(members(out.folder / "runs-1.tar")) == 6


def test_a_measured_step_scales_the_model():
    import gpu_tables

    modelled = {"lstm x5": 5.0, "lstm": 2.0}
    assert gpu_tables.scale(modelled, {"lstm x5": 7.5, "lstm": 8.0}) == 1.5
    assert gpu_tables.scale(modelled, {"lstm": 3.0}) == 1.5
    assert gpu_tables.scale(modelled, {}) == 1.0


def test_the_price_of_a_step():
    """The copy task of Gu et al. with three seeds, 10,000 steps of 500 x 32 x 256: 1.35 minutes; a cumax is dearer.

    Seven launches of 2.5, 2 and 2.5 us a step both ways and the weights' gradient; a step of one seed at least 2 ms.
    """
    import gpu_plan

    layer = (500, 32, 256, 4, False)
    us = 500 * 2 * (2.5 + 2.0 + 2.5) + 3 * 500 * 32 * 4 * 256**2 / 20.8e6
    assert gpu_plan.layer_us(3, *layer) == pytest.approx(us)
    assert gpu_plan.step_ms(3, [layer]) == pytest.approx((500 + us) / 1000)
    assert gpu_plan.step_ms(3, [layer]) * 10_000 / 60_000 == pytest.approx(1.35, abs=0.01)
    assert gpu_plan.step_ms(3, [(500, 32, 256, 4, True)]) == pytest.approx((500 + us + 500 * 28) / 1000)
    assert gpu_plan.step_ms(1, [(2, 1, 8, 4, False)]) == 2.0
    assert gpu_plan.step_ms(5, [(2, 1, 8, 4, False)]) == 5.5


def test_the_sizes_of_a_run_are_its_tasks_and_its_models():
    import gpu_plan

    overrides = ["task=copy", "task.T=20", "task.train_size=256", "task.valid_size=8", "task.test_size=8"]
    with compose.composing() as composer:

        def shapes(*more):
            return gpu_plan.shapes_of(run_of(composer([*overrides, *more])))

        plain = shapes("model=plstm", "loop.max_epochs=3")
        cumax = shapes("paper=gu", "model=gated", "model.gate=om")
        wrong = shapes("+model.head_size=[1,a]")
    assert (plain.steps, plain.layers) == (6, [(40, 128, 128, 3, False)])
    assert plain.together
    assert cumax.layers[0][-1]
    assert wrong is None


def test_families_are_the_tables_open_seeds_and_their_commands_give_its_ids(monkeypatch):
    import gpu_plan

    class Sizes:
        steps, together = 100, True

        def minutes(self, seeds, steps):
            return seeds * steps / 1e9

    monkeypatch.setattr(gpu_plan, "shapes_of", lambda run: Sizes())
    found = list(gpu_plan.plan(["chien_table1", "chien_copy"]))
    tables = [family["table"] for family in found]
    assert tables.count("chien_table1") == 16
    assert {len(family["runs"]) for family in found if family["table"] == "chien_table1"} == {3}
    # Three runs of one seed are committed, so four of five seeds are open there: the table's own number.
    assert {len(family["runs"]) for family in found if family["table"] == "chien_copy"} == {4, 5}
    with compose.composing() as composer:
        for family in found[:3] + found[-3:]:
            assert not any(o.startswith("table=") for o in family["overrides"])
            runs = single(list(map(composer.parse, family["overrides"])), composer)
            assert [run.name for run in runs] == family["runs"]
    seen = {f["steps"] for f in found if f["table"] == "chien_copy" and len(f["runs"]) == 4}
    assert seen == {353464, 412114, 499698}  # what the finished ones needed, not the 782,000 that they may take
    assert list(gpu_plan.plan(["chien_table2"], without=["text8"])) == []


# ------------------------------------------------------------------------------------------ what was learned


def measured_rows():
    """Rows as bench_gpu.py writes them."""
    layer = {"part": "layer", "config": "A", "precision": "fp32"}
    rows = [{"part": "ceiling", "variant": "copy bytes/s", "note": "3e+12"}]
    rows += [{"part": "ceiling", "variant": "fp32 FLOP/s", "note": "5.1e+13"}]
    rows += [layer | {"variant": "nn.LSTM", "ms": 1.1}, layer | {"variant": "graph lstm", "ms": 3.3}]
    rows += [
        layer | {"variant": "cudnn lstm", "ms": 1.2},
        layer | {"variant": "nn.LSTM", "precision": "fp16", "ms": 0.88},
    ]
    rows += [layer | {"variant": "products lstm", "ms": 0.66}, layer | {"variant": "graph lstm x5", "ms": 4.4}]
    return [*rows, layer | {"variant": "kernels lstm", "note": "RuntimeError: no kernel"}]


def test_what_nsight_compute_says_is_read():
    import gpu_cluster

    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    rows = [f'"0","backward","{gpu_cluster.PASSES}","","2,048"', f'"0","backward","{gpu_cluster.LOADS}","inst","1,024"']
    said = "\n".join(["==PROF== Connected to process 1", head, *rows])
    assert gpu_cluster.said_by_ncu(said) == "2.00 passes a load from shared memory, 1024 loads"
    denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
    assert gpu_cluster.said_by_ncu(denied) == f"ncu: {denied}"
    row = gpu_cluster.shared_loads("cpu", 1.0)
    assert row["note"].startswith(("no ncu here", "ncu: "))


def came_back(folder, device="cuda"):
    """A folder as gpu.py leaves it."""
    step = {"part": "training", "config": "copy T=200", "variant": "lstm x5", "precision": "fp32", "ms": 4.0}
    machine = {"device_name": "NVIDIA H100", "torch": "2.11.0", "nvidia_smi": "a, 580", "commit": "0123456789"}
    machine |= {"clusters": {"8 x 128": 16}}
    results = {
        "session": {"device": device},
        "machine": {"rows": machine},
        "engine": {"rows": {"lstm": {"captured": 2e-6}}, "status": 0},
        "layer": {"rows": measured_rows()},
        "cluster": {
            "rows": [
                {"part": "trial", "variant": "lstm", "note": "right"},
                {"part": "trial", "variant": "gated", "note": "it has no cumax"},
                {"part": "layer", "config": "A", "variant": "cluster lstm", "precision": "fp32", "ms": 0.44},
                {"part": "profile", "config": "A", "variant": "cluster lstm backward", "note": "1.02 passes a load"},
            ]
        },
        "tests": {"counts": {"passed": 120, "failed": 1}, "failed": ["tests/nn/test_gpu.py::a"], "status": 1},
        "step": {"rows": [step | {"note": "250.0 steps/s, CPU 93 % of each seed"}]},
        "tables": {"families": [{"table": "gu_synthetic", "ended": 3}], "factor": 1.2, "open": 9, "left_out": []},
    }
    folder.mkdir(exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(results))
    return results


def test_ten_lines_say_what_was_learned(tmp_path):
    import gpu_learned

    found = gpu_learned.lines(came_back(tmp_path))
    assert [what for what, _ in found] == [
        *("machine", "ceilings", "clusters", "graph engine", "us a step, A", "us a step, B", "us a step, B512"),
        *("tests", "training step", "tables"),
    ]
    found = dict(found)
    assert found["ceilings"] == "copy 3 TB/s, fp32 51 TFLOP/s"
    engine = "1 of 2 trials right, A lstm 2, 1.02 passes a load"
    assert found["clusters"] == f"at once: 16 of 8 x 128; cluster engine: {engine}"
    assert found["graph engine"] == "right: lstm captured 2e-06"
    us = "products 3, kernels failed (RuntimeError: no kernel), graph 15, x5 20, nn.LSTM 5, fp16 4"
    assert found["us a step, A"] == us
    assert found["us a step, B"] == "not measured"
    assert found["tests"] == "120 passed, 1 failed; first: tests/nn/test_gpu.py::a"
    assert found["training step"] == "lstm x5 4 ms (CPU 93 %)"
    assert found["tables"] == "runs that ended: 3 of gu_synthetic; 1.2 x the model's time; 9 families open"
    assert len(gpu_learned.lines({})) == 10
    assert {text for _, text in gpu_learned.lines({})} >= {"not measured"}


# ------------------------------------------------------------------------------------------ what is collected


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with the places that --collect writes to."""
    root = tmp_path / "checkout"
    measured = root / "timescales" / "nn" / "engine" / "gpu" / "measured.csv"
    measured.parent.mkdir(parents=True)
    measured.write_text("cell,S,B,H,engine,ms,device\n")
    monkeypatch.setattr(choice, "MEASURED", measured)
    choice.measured.cache_clear()
    yield root
    choice.measured.cache_clear()


def test_what_comes_back_is_put_where_it_belongs(tmp_path, checkout):
    import gpu_collect
    import gpu_place

    back = tmp_path / "back"
    came_back(back)
    there = [some_run(tmp_path / "there", name, "finished", best=2000) for name in ("new", "known")]
    there.append(some_run(tmp_path / "there", "no-checkpoint"))
    there.append(some_run(tmp_path / "there", "damaged", "finished"))
    (there[-1] / "record.json").write_text("{")
    archives, _ = gpu_place.in_archives([path for run in there for path in sorted(run.iterdir())], 15 * MIB, 3)
    (back / "runs-1.tar").write_bytes(archives[0])
    known = some_run(checkout / "runs", "known", "finished", best=17)
    said = "\n".join(gpu_collect.collect(back, checkout))
    bench = checkout / "results" / "bench"
    assert {path.name for path in bench.iterdir()} == {"nvidia-h100.csv", "nvidia-h100.md", "nvidia-h100-learned.md"}
    assert "| A | graph lstm | fp32 | 3.3 | 3 |" in (bench / "nvidia-h100.md").read_text()
    assert "torch 2.11.0" in (bench / "nvidia-h100.md").read_text()
    assert "at 0123456789" in (bench / "nvidia-h100-learned.md").read_text()
    choice.measured.cache_clear()
    assert {(r.cell, r.S, r.B, r.H, r.engine, r.ms) for r in choice.measured()} == {
        ("lstm", 220, 128, 128, "graph", 3.3),
        ("lstm", 220, 128, 128, "cudnn", 1.2),
        ("lstm", 220, 128, 128, "cluster", 0.44),
    }
    assert record.has_ended(checkout / "runs" / "new")
    assert (checkout / "runs" / "new" / "best.pt").stat().st_size == 2000
    assert (known / "best.pt").stat().st_size == 17
    assert "runs/known: left as it is here" in said
    assert "runs/no-checkpoint: not taken: neither an outcome nor a checkpoint" in said
    assert "runs/damaged: not taken" in said
    assert {path.name for path in (checkout / "runs").iterdir()} == {"new", "known"}
    assert "make report TABLE=gu_synthetic" in said


@pytest.mark.parametrize(
    ("there", "here", "taken"), [(90, 40, True), (40, 90, False), (40, 40, False), (40, None, True)]
)
def test_of_a_run_that_goes_on_the_checkpoint_that_is_further_stays(tmp_path, monkeypatch, there, here, taken):
    import gpu_collect

    steps = {"there": there, "here": here or 0}
    source = some_run(tmp_path / "there", "run", last=10)
    target = tmp_path / "here" / "run"
    if here is not None:
        some_run(tmp_path / "here", "run", last=20)
    monkeypatch.setattr(gpu_collect, "resume_step", lambda folder: steps[folder.parent.name])
    gpu_collect.bring(source, target)
    assert (target / "last.pt").stat().st_size == (10 if taken else 20)


def test_of_a_rehearsal_nothing_is_written(tmp_path, checkout):
    import gpu_collect

    came_back(tmp_path / "back", device="cpu")
    assert gpu_collect.collect(tmp_path / "back", checkout)[-1] == "a rehearsal: nothing is written"
    assert not (checkout / "results").exists()


def test_a_folder_that_did_not_come_back_from_there(script, tmp_path):
    assert "has no gpu.json" in script("gpu", "--collect", tmp_path)
