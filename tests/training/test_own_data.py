"""Trainings on files of one's own: resumed as those of every task."""

import pytest
import torch
from configs import config
from synthetic import SMALL
from trainings import fit, interrupted_and_resumed

from timescales.config import schema
from timescales.training import build

SETTINGS = ("model.hidden_size=6", "task.batch_size=8", "loop.max_steps=25", "loop.eval_every=10", "loop.log_every=3")


def parts(task, model, corpora):
    overrides = [f"task={task}", f"model={model}", *SMALL[task], *SETTINGS, "model.num_layers=2", "model.dropout=0.3"]
    plain = schema.resolved(config(*overrides, f"data_root={corpora}", "device=cpu"))
    return build.build(plain), schema.LoopSettings(**plain["loop"])


@pytest.mark.parametrize(("task", "model"), [("text", "lstm"), ("series", "plstm")])
def test_interrupted_and_resumed_is_bitwise_equal_to_undisturbed(task, model, corpora, tmp_path):
    def run(place, log):
        built, settings = parts(task, model, corpora)
        return fit(*built, log, settings, place)

    _, resumed, _ = interrupted_and_resumed(run, tmp_path, 13)
    assert resumed.progress.step == 25


@pytest.mark.parametrize("name", ["text", "series"])
def test_the_same_seed_gives_the_same_batches_from_any_step_on(name, corpora):
    (_, task, _), _ = parts(name, "lstm", corpora)
    (_, again, _), _ = parts(name, "lstm", corpora)
    for split in ("train", "valid", "test"):
        whole = list(task.batches(split, 2))
        assert len(whole) == task.n_batches(split)
        for start in range(len(whole) + 1):
            for one, two in zip(whole[start:], again.batches(split, 2, start), strict=True):
                for a, b in zip(one, two, strict=True):  # a target that is not scored is nan
                    assert a is b or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
