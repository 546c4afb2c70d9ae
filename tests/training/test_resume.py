"""Checkpoints: a run that is interrupted or killed and goes on is the run that was not."""

import time

import pytest
import torch
from trainings import fit_small as fit
from trainings import interrupted_and_resumed, quiet, same_weights, signal_at, small_parts

from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.training import loop
from timescales.training.run import TrainingRun, load_checkpoint, rng_state, save_checkpoint, set_rng_state


@pytest.mark.parametrize("stop_after", [1, 5, 7])
def test_interrupted_and_resumed_is_bitwise_equal_to_undisturbed(tmp_path, stop_after):
    settings = LoopSettings(max_epochs=3, log_every=2, checkpoint_every=1e9)
    whole, resumed, _ = interrupted_and_resumed(lambda place, log: fit(place, settings, log), tmp_path, stop_after)
    assert resumed.progress.best == whole.progress.best


def test_patience_goes_on_counting_after_an_interruption(tmp_path, monkeypatch):
    values = iter([0.3, 0.2, 0.1, 0.1, 0.1, 0.1])
    worst = {"sequence_accuracy": 0.0, "loss": 1.0}
    monkeypatch.setattr(loop, "evaluate", lambda *a: {"accuracy": next(values), **worst})
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", LoopSettings(max_epochs=20, patience=3), signal_at(15))
    run = fit(tmp_path / "run", LoopSettings(max_epochs=20, patience=3))
    assert (run.progress.stopped, run.progress.step) == ("patience", 20)


def test_a_run_that_ends_as_a_signal_comes_has_ended(tmp_path):
    try:
        run = fit(tmp_path / "run", LoopSettings(max_epochs=2), signal_at(10))
    except KeyboardInterrupt:
        pytest.fail("nothing was left to interrupt")
    assert (run.progress.stopped, run.progress.step) == ("max_epochs", 10)


def test_a_finished_fit_resumes_to_nothing(tmp_path):
    before = fit(tmp_path / "run", LoopSettings(max_epochs=1))
    after = fit(tmp_path / "run", LoopSettings(max_epochs=1), lambda *a: pytest.fail("a step was taken"))
    assert same_weights(before.model, after.model)
    assert before.progress.curve == after.progress.curve


def test_a_checkpoint_does_not_choose_how_the_optimizer_is_computed(tmp_path):
    """A run begun on a GPU, in one kernel, goes on on a CPU as its optimizer was built there; and the other way."""
    fit(tmp_path, LoopSettings(max_epochs=1))
    content = load_checkpoint(tmp_path / "last.pt")
    content["optimizer"]["param_groups"][0] |= {"fused": True, "foreach": False}
    save_checkpoint(tmp_path / "last.pt", content)
    model, job, optimizer = small_parts()
    TrainingRun(model, job, optimizer, quiet, LoopSettings(max_epochs=1), tmp_path)
    (group,) = optimizer.param_groups
    assert (group["fused"], group["foreach"], group["lr"]) == (None, None, 1e-2)
    assert optimizer.state_dict()["state"][0]["step"] == 5


def test_a_run_on_a_cpu_asks_no_gpu_for_its_random_generator(monkeypatch):
    """Which would start the GPU."""
    for name in ("get_rng_state", "get_rng_state_all", "set_rng_state", "is_available"):
        monkeypatch.setattr(torch.cuda, name, lambda *a: pytest.fail("the GPU was asked"))
    state = rng_state(torch.device("cpu"))
    assert state["cuda"] == []
    set_rng_state(state | {"cuda": [torch.tensor([1])]}, torch.device("cpu"))  # begun on a GPU


@pytest.mark.parametrize(("saved", "now"), [("cuda:1", "cuda:0"), ("cuda:0", "cuda:3")])
def test_the_random_generator_of_the_gpu_on_which_a_run_continues(monkeypatch, saved, now):
    states = {name: torch.tensor([k], dtype=torch.uint8) for k, name in enumerate(("cuda:0", "cuda:1"))}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[str(device)])
    done = []
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: done.append((str(device), state)))
    set_rng_state(rng_state(torch.device(saved)), torch.device(now))
    assert done == [(now, states[saved])]


def test_a_run_of_another_gpu_continues_on_the_cpu(tmp_path, monkeypatch):
    """Its tensors say that they lie on cuda:1, which is not here."""
    whole = fit(tmp_path / "whole", LoopSettings(max_epochs=3))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "parts", LoopSettings(max_epochs=3), signal_at(7))
    path = tmp_path / "parts" / "last.pt"
    content = load_checkpoint(path)
    content["rng"]["cuda"] = [torch.zeros(16, dtype=torch.uint8)]
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
        save_checkpoint(path, content)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path, weights_only=True)
    resumed = fit(tmp_path / "parts", LoopSettings(max_epochs=3))
    assert same_weights(whole.model, resumed.model)
    assert resumed.progress.curve == whole.progress.curve


def test_checkpoints_take_at_most_a_fiftieth_of_the_time(tmp_path, monkeypatch):
    clock, steps, saved, original = [0.0], [0], [], save_checkpoint

    def save(*args):
        clock[0] += 0.5
        saved.append(steps[0])
        original(*args)

    def log(values, step):
        clock[0] += 1
        steps[0] = step

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("timescales.training.run.save_checkpoint", save)
    fit(tmp_path / "run", LoopSettings(max_epochs=12, eval_every=100, checkpoint_every=10), log)
    assert saved == [10, 35, 60]


def test_checkpoint_round_trip_and_damage(tmp_path):
    path = tmp_path / "last.pt"
    assert load_checkpoint(path) is None
    content = {"a": torch.arange(3.0), "b": {"c": [1, 2.5, None, "x"]}}
    save_checkpoint(path, content)
    found = load_checkpoint(path)
    assert torch.equal(found["a"], content["a"])
    assert found["b"] == content["b"]
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"not a checkpoint"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"last\.pt is damaged: restart the run with resume=false"):
            load_checkpoint(path)
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]  # no temporary file stays


def test_what_is_not_this_runs_checkpoint_is_named(tmp_path):
    fit(tmp_path / "run", LoopSettings(max_epochs=1))
    path = tmp_path / "run" / "last.pt"
    found = load_checkpoint(path)
    for wrong in ({"model": {}}, [1, 2], found | {"model": {"other": torch.zeros(2)}}):
        save_checkpoint(path, wrong)
        with pytest.raises(ConfigError, match=r"last\.pt .*: restart .* with resume=false"):
            fit(tmp_path / "run", LoopSettings(max_epochs=2))
