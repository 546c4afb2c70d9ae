"""AWD-LSTM: its dropouts, its initial weights, and one training step."""

import pytest
import texts
import torch
import trainings
from configs import config
from language import characters, model_for, words
from torch.nn import functional as F

from timescales import EURNN, GRUD, LSTM, RMC, URNN, ExpRNN, MinGRU
from timescales.config import schema
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.models.awd import AWDModel, LockedDropout
from timescales.optim import NTASGD
from timescales.tasks import AWD, Spec
from timescales.training import build, loop
from timescales.training.run import TrainingRun


def test_locked_dropout_has_one_mask_for_all_steps():
    torch.manual_seed(0)
    x, dropout = torch.ones(5, 40, 50), LockedDropout(0.4)
    y = dropout(x)
    assert all(torch.equal(y[0], step) for step in y)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
    assert (y[0] == 0).double().mean().item() == pytest.approx(0.4, abs=0.05)
    assert torch.equal(dropout.eval()(x), x)


def test_every_dropout_has_its_own_rate(text_root):
    task = words(text_root, dropout_input=0.2, dropout_hidden=0.3, dropout_output=0.4, weight_drop=0.6)
    model = model_for(task, layers=2)
    assert (model.drop_input.p, model.rnn.between.p, model.drop_output.p) == (0.2, 0.3, 0.4)
    assert [cell.weight_drop for cell in model.rnn.layers] == [0.6, 0.6]


@pytest.mark.parametrize("layer", [ExpRNN, URNN, EURNN, RMC, GRUD, MinGRU])  # a computed matrix, rows of none, none
def test_what_is_no_recurrent_weight_is_neither_dropped_nor_frozen(text_root, layer):
    settings = {"weight_drop": 0.5} if layer in (URNN, GRUD) else {"weight_drop": 0.0, "recurrent": "frozen"}
    with pytest.raises(ValueError, match=r"no recurrent weights to drop or freeze: give task\.weight_drop=0"):
        model_for(words(text_root, **settings), layer)


def test_a_dropped_word_is_dropped_everywhere(text_root):
    task = words(text_root, dropout_embedding=0.5, dropout_input=0.0)
    model = model_for(task)
    seen = []
    model.rnn.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    batch = next(task.batches("train"))
    model(batch)
    dropped = (seen[0] == 0).all(-1)
    for word in batch.x.unique():
        assert len(set(dropped[batch.x == word].tolist())) == 1
    assert 0 < dropped.double().mean() < 1
    torch.testing.assert_close(seen[0][~dropped], 2 * model.vectors[batch.x][~dropped])


def test_evaluation_drops_nothing(text_root):
    task = words(text_root)
    model = model_for(task, layers=2).eval()
    batch = next(task.batches("test"))
    plain = model.rnn(model.vectors[batch.x])[0]
    torch.testing.assert_close(model(batch).logits, F.linear(plain, model.vectors, model.readout.bias), rtol=0, atol=0)
    assert not torch.equal(model.train()(batch).logits, model(batch).logits)


@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_recurrent_weights_are_dropped_once_per_window_and_trained(text_root, engine):
    task = words(text_root, dropout_embedding=0.0, dropout_input=0.0, dropout_output=0.0, weight_drop=0.5)
    model = model_for(task, engine=engine)
    cell = model.rnn.layers[0]
    torch.manual_seed(3)
    batch = next(task.batches("train"))
    output = model(batch)
    torch.manual_seed(3)
    used = F.dropout(cell.weight_hh, 0.5).detach()
    assert (used == 0).double().mean().item() == pytest.approx(0.5, abs=0.15)
    reference = torch.nn.LSTM(8, 8)
    with torch.no_grad():
        for name in ("weight_ih", "bias_ih", "bias_hh"):
            getattr(reference, f"{name}_l0").copy_(getattr(cell, name))
        reference.weight_hh_l0.copy_(used)
    torch.testing.assert_close(output.raw, reference(model.vectors[batch.x])[0], rtol=1e-5, atol=1e-6)
    task.loss(output.logits, batch).backward()
    grad = cell.weight_hh.grad
    assert torch.equal(grad != 0, used != 0)  # the gradient reaches the weights that were used, and no others


def test_frozen_recurrent_weights_stay_but_are_dropped(text_root):
    task = words(text_root, recurrent="frozen")
    model = model_for(task, layers=2)
    optimizer = NTASGD(model.parameters(), lr=1.0, weight_decay=0.1)
    optimizer.param_groups[0]["averaging"] = True
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for batch in task.batches("train"):
        optimizer.zero_grad()
        output = model(batch)
        (task.loss(output.logits, batch) + task.penalty(output)).backward()
        optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if "weight_hh" not in name}
    with optimizer.eval_weights():
        assert all(torch.equal(p, before[name]) for name, p in model.named_parameters() if "weight_hh" in name)
    x = model.vectors[batch.x]
    assert not torch.equal(model.rnn(x)[0], model.rnn(x)[0])  # other weights are dropped each time


@pytest.mark.parametrize(("types", "count"), [(10_000, 24_221_600), (33_278, 33_556_078)])
def test_the_published_parameter_counts(types, count):
    spec = Spec("tokens", types, types, "all", 70, embedding=400, awd=AWD(0.1, 0.4, 0.25, 0.4, 0.5, "frozen"))
    with torch.device("meta"):
        model = AWDModel(LSTM(400, [1150, 1150, 400], 3), spec)
    assert sum(p.numel() for p in model.parameters()) == count
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == count - 11_220_000


def test_initial_weights(text_root):
    model = model_for(words(text_root, embedding=16), hidden=16)
    assert model.readout.weight is model.vectors
    assert 0.09 < model.vectors.abs().max() <= 0.1
    assert not model.readout.bias.any()
    untied = model_for(words(text_root, tied=False), hidden=5)
    assert untied.readout.weight.shape == (len(words(text_root).vocabulary), 5)
    assert 0.09 < untied.readout.weight.abs().max() <= 0.1


def words_config(root, *settings):
    small = ["task.embedding=8", "task.batch_size=3", "task.length=12", "task.allow_partial=true"]
    return config("task=ptb_word", "model=plstm", f"data_root={root}", *small, *settings)


@pytest.mark.parametrize(("settings", "units"), [
    (["model.hidden_size=20", "model.num_layers=3"], [20, 20, 8]),
    (["model.hidden_size=20", "model.num_layers=3", "task.tied=false"], [20, 20, 20]),
    (["model.hidden_size=[20,8]", "model.num_layers=2"], [20, 8]),
    (["model.hidden_size=8", "model.num_layers=1"], [8]),
])  # fmt: skip
def test_tied_weights_size_the_last_layer(text_root, settings, units):
    plain = schema.resolved(words_config(text_root, *settings))
    model, *_ = build.build(plain)
    assert [cell.hidden_size for cell in model.rnn.layers] == units
    again = schema.resolved(words_config(text_root, *settings))
    assert plain["model"]["hidden_size"] == again["model"]["hidden_size"]


@pytest.mark.parametrize(
    "settings", [["model.hidden_size=20", "model.num_layers=1"], ["model.hidden_size=[8,20]", "model.num_layers=2"]]
)
def test_a_size_that_does_not_fit_names_the_fix(text_root, settings):
    with pytest.raises(ConfigError, match=r"last layer of 8 units .*not 20: give model\.hidden_size=8 .*num_layers=3"):
        build.build(schema.resolved(words_config(text_root, *settings)))


def test_a_step_uses_the_learning_rate_of_its_window_and_the_penalties(text_root):
    dropouts = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_drop")
    task = words(text_root, ar=20.0, tar=10.0, **dict.fromkeys(dropouts, 0.0))
    model, reference = model_for(task), model_for(task)
    batch = next(batch for batch in task.batches("train") if batch.lr_scale != 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    run = TrainingRun(model, task, optimizer, trainings.quiet, LoopSettings(), directory=None)
    run.batch = batch
    loop.fit(run, until=1)
    output = reference(batch)
    (task.loss(output.logits, batch) + task.penalty(output)).backward()
    for p, before in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p, before - 0.5 * batch.lr_scale * before.grad, rtol=1e-5, atol=1e-7)


BAD_ARGUMENTS = [
    (lambda text_root: model_for(words(text_root), hidden=5), r"model\.hidden_size=8 .*or task\.tied=false"),
    (lambda text_root: model_for(words(text_root), layers=2, dropout=0.1), r"task\.dropout_hidden"),
    (lambda text_root: words(text_root, weight_drop=1.0), "dropout of weight must be at least 0 and below 1"),
    (lambda text_root: words(text_root, recurrent="fixed"), "trained, frozen"),
    (lambda text_root: words(text_root, corpus="text8"), "ptb, wt2"),
    (lambda text_root: words(text_root, batch_size=300), "train: 660 words .* a batch_size of at most 220 or a larger"),
    (lambda text_root: words(text_root, length=0), "length must be at least 1"),
    (lambda text_root: characters(text_root, corpus="wt2"), "ptb, text8"),
    (lambda text_root: characters(text_root, state="kept"), "carried, reset"),
    (lambda text_root: characters(text_root, batch_size=10_000), "batch_size 10000 is more than"),
    (lambda text_root: characters(text_root, embedding=0), "embedding must be at least 1"),
]


@pytest.mark.parametrize(("make", "fix"), BAD_ARGUMENTS)
def test_bad_arguments_name_the_fix(text_root, make, fix):
    with pytest.raises(ValueError, match=fix):
        make(text_root)


@pytest.mark.parametrize(("lengths", "line"), [
    ((1, 90, 80), "train: 2 words are too few, 3 are needed; give a larger corpus"),
    ((600, 20, 80), "valid: 22 words are too few, 30 are needed; give a larger corpus"),
])  # fmt: skip
def test_a_smaller_batch_is_advised_only_where_it_helps(tmp_path, lengths, line):
    with pytest.raises(ValueError, match=line):
        words(texts.write_texts(tmp_path, lengths=lengths), batch_size=1)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_empty_text_is_named(tmp_path, split):
    root = texts.write_texts(tmp_path)
    (root / "ptb" / f"ptb.{split}.txt").write_text("")
    for make in (words, characters):
        with pytest.raises(ValueError, match=f"{split}: the text is empty"):
            make(root)
