"""Files of one's own: their batches from any step on, so that trainings resume as those of every task."""

import pytest
import torch
from configs import config
from synthetic import SMALL

from timescales.config import schema
from timescales.training import build


def task_of(name, corpora):
    overrides = [f"task={name}", *SMALL[name], "model.hidden_size=6", "task.batch_size=8", "device=cpu"]
    _, task, _ = build.build(schema.resolved(config(*overrides, f"data_root={corpora}")))
    return task


@pytest.mark.parametrize("name", ["text", "series"])
def test_the_same_seed_gives_the_same_batches_from_any_step_on(name, corpora):
    task, again = task_of(name, corpora), task_of(name, corpora)
    for split in ("train", "valid", "test"):
        whole = list(task.batches(split, 2))
        assert len(whole) == task.n_batches(split)
        for start in range(len(whole) + 1):
            for one, two in zip(whole[start:], again.batches(split, 2, start), strict=True):
                for a, b in zip(one, two, strict=True):  # a target that is not scored is nan
                    assert a is b or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
