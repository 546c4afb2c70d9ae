"""The language model of WikiText-103: the adaptive softmax, a state that restarts with each article."""

import numpy as np
import pytest
import torch
import trainings
from language import model_for, wikitext103

from timescales import LSTM, PLSTM
from timescales.analysis import bins, cold_start, routing
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError, NotMadeFor
from timescales.models.awd import AWDModel
from timescales.tasks import AWD, Spec
from timescales.training import build, loop

NO_DROPOUT = {"dropout_embedding": 0.0}


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def reference(readout, hidden, targets, cutoffs):
    """The logarithm of each target's probability: that of its cluster times that within the cluster."""
    head = log_softmax(hidden @ readout.head.weight.detach().numpy().T)
    ends = [*cutoffs, readout.n_classes]
    found = []
    for row, (h, target) in enumerate(zip(hidden, targets, strict=True)):
        if target < cutoffs[0]:
            found.append(head[row, target])
            continue
        cluster = max(k for k, first in enumerate(cutoffs) if target >= first)
        narrow, wide = (layer.weight.detach().numpy() for layer in readout.tail[cluster])
        inside = log_softmax(h @ narrow.T @ wide.T)
        assert len(inside) == ends[cluster + 1] - ends[cluster]
        found.append(head[row, cutoffs[0] + cluster] + inside[target - cutoffs[cluster]])
    return np.array(found)


def test_the_loss_is_that_of_an_adaptive_softmax(text_root):
    task = wikitext103(text_root, cutoffs=(10, 30), **NO_DROPOUT)
    model = model_for(task, hidden=16).double()
    batch = next(task.batches("train"))
    output = model(batch)
    hidden = output.raw.detach().flatten(0, 1).numpy()
    expected = reference(model.readout, hidden, batch.target.flatten().tolist(), (10, 30))
    assert output.logits.shape == batch.target.shape
    np.testing.assert_allclose(output.logits.detach().flatten().numpy(), expected, rtol=1e-12)
    assert task.loss(output.logits, batch).item() == pytest.approx(-expected.mean(), rel=1e-12)
    total = model.readout.log_prob(output.raw.detach().flatten(0, 1)).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))
    sums = task.metrics(output.logits, batch)
    assert (sums["loss"][0].item(), sums["loss"][1]) == (pytest.approx(-expected.sum()), batch.target.numel())
    assert {0, 1, 2} == {sum(target >= first for first in (10, 30)) for target in batch.target.flatten().tolist()}


def test_the_state_begins_again_with_each_article(text_root):
    """What layers do at a reset: tests/nn/test_resets.py."""
    task = wikitext103(text_root, length=60, **NO_DROPOUT)
    model = model_for(task, PLSTM, hidden=6, layers=2).double()
    first, second = list(task.batches("train"))[:2]
    state, x = model(first).state, model.vectors[second.x]
    output = model(second, state)
    expected, end = model.rnn(x, state, reset=second.reset)
    torch.testing.assert_close(output.raw, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(output.state.age, end.age, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model.rnn(x, state)[0], expected)
    assert not torch.allclose(model.rnn(x, None, reset=second.reset)[0], expected)


def test_dropout_between_layers_has_one_mask_for_a_window_with_resets(text_root):
    task = wikitext103(text_root, dropout_hidden=0.5, **NO_DROPOUT)
    model = model_for(task, layers=2)
    read = []
    model.rnn.between.register_forward_hook(lambda module, inputs, output: read.append(output == 0))
    batch = next(batch for batch in task.batches("train") if batch.reset[1:].any())
    model(batch)
    (dropped,) = read
    assert all(torch.equal(step, dropped[0]) for step in dropped)
    assert dropped.any()


def test_an_engine_without_resets_is_refused_before_the_first_of_them_comes(text_root, monkeypatch):
    task = wikitext103(text_root)
    later = [batch._replace(reset=None) for batch in task.batches("train")]
    monkeypatch.setattr(task, "batches", lambda split: iter(later))
    with pytest.raises(ConfigError, match="the cudnn engine cannot run here"):
        build.check_engine("cudnn", LSTM(8, 8), task, "cpu")
    asked = []
    monkeypatch.setattr(build.engine, "pick", lambda *_, stepwise: asked.append(stepwise))
    build.check_engine("cudnn", LSTM(8, 8), task, "cpu")
    monkeypatch.setattr(task, "has_resets", False)
    build.check_engine("cudnn", LSTM(8, 8), task, "cpu")
    assert asked == [True, False]


def test_interrupted_and_resumed_is_bitwise_equal(text_root, tmp_path):
    """With articles that begin in the middle of a batch."""
    settings = LoopSettings(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, clip_norm=0.1)

    def fit(place, log):
        task = wikitext103(text_root)
        model = model_for(task, PLSTM)
        return trainings.fit(model, task, torch.optim.Adam(model.parameters(), lr=1e-2), log, settings, place)

    whole, *_ = trainings.interrupted_and_resumed(fit, tmp_path, 25)
    assert whole.progress.curve[-1]["valid/perplexity"] < whole.progress.curve[0]["valid/perplexity"]


def test_losses_of_single_words(text_root):
    task = wikitext103(text_root)
    model = model_for(task).double()
    losses, targets = bins.token_losses(model, task)
    assert torch.equal(targets, task.tokens["test"][1:].long())
    assert losses.mean().item() == pytest.approx(loop.evaluate(model, task, "test")["loss"], rel=1e-12)
    assert set(bins.measure(model, task)) > {"all", "train/all"}


def test_analyses_that_need_all_logits_refuse_it(text_root):
    task = wikitext103(text_root)
    model = model_for(task)
    for analysis in (lambda: routing.rows_of(model, task), lambda: cold_start.starts(model, task)):
        with pytest.raises(NotMadeFor, match="not for an adaptive one"):
            analysis()


def test_parameters_at_paper_size():
    """50.3 million weights in the cell, 274 million in the embedding, a tenth of a full softmax's in the readout."""
    awd = AWD(0.3, 0.0, 0.0, 0.0, 0.0, tied=False, cutoffs=(10_000, 20_000, 200_000))
    spec = Spec("tokens", 267_735, 267_735, "all", 128, embedding=1024, awd=awd)
    with torch.device("meta"):
        model = AWDModel(LSTM(1024, 3072), spec)
    assert sum(p.numel() for p in model.rnn.parameters()) == 4 * 3072 * (1024 + 3072) + 2 * 4 * 3072 == 50_356_224
    assert model.vectors.numel() == 274_160_640
    head = 3072 * (10_000 + 3)
    tails = [3072 * 768 + 768 * 10_000, 3072 * 192 + 192 * 180_000, 3072 * 48 + 48 * 67_735]
    assert sum(p.numel() for p in model.readout.parameters()) == head + sum(tails) == 79_317_072


@pytest.mark.parametrize(("more", "hidden", "fix"), [
    ({"cutoffs": (30, 10)}, 16, "task.cutoffs must be numbers that rise, above 0 and below the 41 words"),
    ({"cutoffs": (10, 41)}, 16, "below the 41 words"), ({"cutoffs": (0, 10)}, 16, "above 0"),
    ({"cutoffs": ()}, 16, "task.cutoffs must be"), ({"cutoffs": (10, 10)}, 16, "that rise"),
    ({"cutoffs": (10, 30)}, 15, r"15 are too few for 2; give model\.hidden_size=16 or more, or fewer task\.cutoffs"),
])  # fmt: skip
def test_a_softmax_that_does_not_fit_names_the_fix(text_root, more, hidden, fix):
    with pytest.raises(ValueError, match=fix):
        model_for(wikitext103(text_root, **more), hidden=hidden)
