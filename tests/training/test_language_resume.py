"""Language models that are interrupted and resumed, and averaged weights."""

import os
import signal

import pytest
import torch
import trainings
from language import characters, model_for, words

from timescales import PLSTM
from timescales.config.schema import LoopSettings
from timescales.optim import NTASGD
from timescales.training import checkpoint, loop
from timescales.training.outcome import outcome


def parts(text_root, name):
    if name == "characters":
        task = characters(text_root, embedding=5)
        model = model_for(task, PLSTM, layers=2, dropout=0.2)
        return model, task, torch.optim.Adam(model.parameters(), lr=1e-2)
    task = words(text_root, recurrent="trained")
    model = model_for(task, layers=2)
    # With this learning rate some validations are no better than the last, so that averaging starts.
    return model, task, NTASGD(model.parameters(), lr=60.0, nonmono=1)


@pytest.mark.parametrize(("name", "stops"), [("characters", (5, 20, 33)), ("words", (3, 25, 50))])
def test_interrupted_and_resumed_is_bitwise_equal_to_undisturbed(text_root, tmp_path, name, stops):
    settings = LoopSettings(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, clip_norm=0.25)

    def fit(place, stop=None):
        def log(values, step):
            logged.append((step, values))
            if step == stop:
                os.kill(os.getpid(), signal.SIGINT)

        return trainings.fit(*parts(text_root, name), log, settings, place)

    logged = []
    whole = fit(tmp_path / "whole")
    undisturbed, logged = logged, []
    if name == "words":
        assert whole.optimizer.param_groups[0]["averaging"]
        assert 0 < whole.optimizer.param_groups[0]["averaged"] < whole.progress.step
    for stop in stops:
        assert whole.task.position(stop)[1], "in the middle of an epoch"
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "parts", stop)
        torch.rand(3)
    resumed = fit(tmp_path / "parts")
    assert logged == undisturbed
    assert resumed.progress.curve == whole.progress.curve
    weights = [run.model.state_dict().values() for run in (whole, resumed)]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    outcomes = [outcome(whole), outcome(resumed)]
    assert outcomes[0].metrics == outcomes[1].metrics
    assert outcomes[0].last == outcomes[1].last


@pytest.mark.parametrize(("name", "stops"), [("characters", (1, 3)), ("words", (2, 6))])
def test_interrupted_in_a_validation_and_resumed_is_bitwise_equal(text_root, tmp_path, name, stops):
    """With the state that is carried on and, for words, with averaged weights in use."""
    settings = LoopSettings(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, clip_norm=0.25)

    def fit(place, stop=None):
        model, task, optimizer = parts(text_root, name)
        original, validations = task.batches, []

        def batches(split, *position):
            validations.extend([1] * (split == "valid"))
            if len(validations) == stop:
                signal.raise_signal(signal.SIGTERM)
            return original(split, *position)

        task.batches = batches

        def log(values, step):
            logged.append((step, values))

        return trainings.fit(model, task, optimizer, log, settings, place)

    logged = []
    whole = fit(tmp_path / "whole")
    undisturbed, logged = logged, []
    for stop in stops:
        with pytest.raises(KeyboardInterrupt, match="before its validation"):
            fit(tmp_path / "parts", stop)
    (group,) = checkpoint.load(tmp_path / "parts" / "last.pt")["optimizer"]["param_groups"]
    assert group.get("averaging", True)
    resumed = fit(tmp_path / "parts")
    assert logged == undisturbed
    assert resumed.progress.curve == whole.progress.curve
    assert trainings.same_weights(whole.model, resumed.model)


def test_averaged_weights_are_validated_saved_and_tested(text_root, tmp_path):
    task = words(text_root)
    model = model_for(task)
    optimizer = NTASGD(model.parameters(), lr=5.0)
    optimizer.param_groups[0]["averaging"] = True
    settings = LoopSettings(max_epochs=1, clip_norm=0.25)
    run = trainings.fit(model, task, optimizer, trainings.quiet, settings, tmp_path)
    raw = {key: value.clone() for key, value in model.state_dict().items()}
    with optimizer.eval_weights():
        averages = {key: value.clone() for key, value in model.state_dict().items()}
        expected = {split: loop.evaluate(model, task, split) for split in ("valid", "test")}
    assert not torch.equal(raw["vectors"], averages["vectors"])
    assert run.progress.curve[-1]["valid/perplexity"] == expected["valid"]["perplexity"]
    result = outcome(run)
    assert result.metrics["test/perplexity"] == result.last["test/perplexity"] == expected["test"]["perplexity"]
    assert all(torch.equal(value, averages[key]) for key, value in model.state_dict().items())
