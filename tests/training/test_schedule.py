"""The learning rate by training step: `loop.schedule` and `loop.warmup`."""

import math

import pytest
import torch
import trainings
from torch.optim import lr_scheduler
from trainings import fit_small as fit
from trainings import interrupted_and_resumed, quiet, same_weights, small_parts

from timescales.config import schema
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.tasks import Copy
from timescales.training.run import load_checkpoint, schedule

STEPWISE = {"schedule": "step", "step_size": 4, "gamma": 0.5}
SCHEDULES = [{"schedule": "cosine"}, {"schedule": "linear"}, STEPWISE, {"warmup": 4}]
SCHEDULES += [{"schedule": "cosine", "warmup": 4}, {"schedule": "linear", "warmup": 4}, STEPWISE | {"warmup": 3}]
IDS = [" ".join(map(str, given.values())) for given in SCHEDULES]


def rates(steps=12, **given):
    """The learning rate of each step, from 1."""
    return of_torch(lambda optimizer: schedule(optimizer, LoopSettings(**given), steps, 0), steps)


def of_torch(build, steps=12):
    """The learning rates of one of torch's schedulers."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, found = build(optimizer), []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_the_rates_are_those_of_torchs_schedulers():
    assert rates(schedule="cosine") == pytest.approx(of_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, 12)))
    linear = of_torch(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, 12))
    assert rates(schedule="linear") == pytest.approx(linear)
    stepwise = of_torch(lambda o: lr_scheduler.StepLR(o, 5, 0.5))
    assert rates(schedule="step", step_size=5, gamma=0.5) == pytest.approx(stepwise)
    assert stepwise == [1.0] * 5 + [0.5] * 5 + [0.25] * 2

    def warm(optimizer):
        parts = [lr_scheduler.LinearLR(optimizer, 1 / 5, 1.0, 4), lr_scheduler.CosineAnnealingLR(optimizer, 8)]
        return lr_scheduler.SequentialLR(optimizer, parts, [4])

    assert rates(schedule="cosine", warmup=4) == pytest.approx(of_torch(warm))
    first = [0.2, 0.4, 0.6, 0.8, 1.0, (1 + math.cos(math.pi / 8)) / 2]
    assert rates(schedule="cosine", warmup=4)[:6] == pytest.approx(first)
    assert rates(warmup=3, steps=6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_without_a_schedule_there_is_none_and_a_warm_up_that_never_ends_is_told():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    assert schedule(optimizer, LoopSettings(), 10, 0) is None
    assert "initial_lr" not in optimizer.param_groups[0]
    with pytest.raises(ConfigError, match=r"loop\.warmup=10 must be below the number of training steps, 10"):
        schedule(optimizer, LoopSettings(warmup=10), 10, 0)


# Within an epoch, at its end, and where two of the schedules change.
@pytest.mark.parametrize(("given", "stop"), list(zip(SCHEDULES, [5, 3, 7, 3, 5, 7, 3], strict=True)), ids=IDS)
def test_interrupted_and_resumed_is_bitwise_equal(tmp_path, given, stop):
    settings = LoopSettings(max_epochs=3, log_every=2, **given)
    *_, logged = interrupted_and_resumed(lambda place, log: fit(place, settings, log), tmp_path, stop)
    rates_logged = {step: values["train/lr"] for step, values in logged if "train/lr" in values}
    assert list(rates_logged) == [2, 4, 6, 8, 10, 12, 14, 15]
    expected = rates(15, **given)
    assert rates_logged == pytest.approx({step: 1e-2 * expected[step - 1] for step in rates_logged})


def test_a_schedule_changes_the_weights_and_nothing_is_logged_without_one(tmp_path):
    logged = []
    plain = fit(tmp_path / "plain", LoopSettings(max_epochs=1, log_every=1), lambda v, s: logged.append(v))
    assert not any("train/lr" in values for values in logged)
    other = fit(tmp_path / "other", LoopSettings(max_epochs=1, log_every=1, schedule="linear"))
    assert not same_weights(plain.model, other.model)
    content = load_checkpoint(tmp_path / "plain" / "last.pt")
    assert "initial_lr" not in content["optimizer"]["param_groups"][0]  # as before there were schedules


def test_it_works_together_with_a_tasks_scale_of_single_batches(tmp_path, monkeypatch):
    """The rate of a step is that of the schedule times that of the batch, and the next one does not know of it."""
    original, used = Copy.batches, []

    def batches(self, split, *position):
        for k, batch in enumerate(original(self, split, *position)):
            yield batch._replace(lr_scale=0.5 + k) if split == "train" else batch

    step = torch.optim.Adam.step
    monkeypatch.setattr(Copy, "batches", batches)
    model, job, optimizer = small_parts()
    groups = optimizer.param_groups
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: used.append(groups[0]["lr"]) or step(self))
    trainings.fit(model, job, optimizer, quiet, LoopSettings(max_epochs=1, schedule="linear"), tmp_path)
    assert used == pytest.approx([1e-2 * scale * (0.5 + k) for k, scale in enumerate((1, 0.8, 0.6, 0.4, 0.2))])


def test_ids_of_runs_without_a_schedule_stay():
    old = {"task": {}, "loop": {"max_epochs": 3}, "seed": 0}
    defaults = {"schedule": "none", "warmup": 0, "step_size": None, "gamma": 0.1}
    assert schema.identity(old | {"loop": old["loop"] | defaults}) == schema.identity(old)
    for given in SCHEDULES:
        assert schema.identity(old | {"loop": old["loop"] | given}) != schema.identity(old)
