"""Language modelling: what is read and scored, the carried state, AWD-LSTM's model, resume."""

import math
import os
import signal

import pytest
import texts
import torch
import trainings
from torch.nn import functional as F

from timescales import LSTM, MTSLSTM, PLSTM
from timescales.analysis import bins
from timescales.config.schema import Loop
from timescales.optim import NTASGD
from timescales.tasks import AWD, Batch, Characters, Spec, Words
from timescales.tasks.characters import IGNORED, streams
from timescales.tasks.data.text import SPLITS
from timescales.tasks.words import batchify
from timescales.training import loop
from timescales.training.awd import AWDModel, LockedDropout
from timescales.training.model import SequenceModel
from timescales.training.outcome import outcome
from timescales.training.run import TrainingRun


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return texts.write_texts(tmp_path_factory.mktemp("data"))


def characters(root, **more):
    return Characters(**{"data_root": str(root), "allow_partial": True, "batch_size": 7, "length": 25, **more})


def words(root, **more):
    small = {"embedding": 8, "batch_size": 3, "length": 12, "allow_partial": True}
    return Words(**{"data_root": str(root), **small, **more})


def model_for(task, rnn=LSTM, hidden=8, layers=1, seed=0, **more):
    torch.manual_seed(seed)
    made = rnn(task.spec.width, hidden, layers, **more)
    return (AWDModel if task.spec.awd else SequenceModel)(made, task.spec)


# --- characters ---------------------------------------------------------------------------------------------------


def test_streams_by_hand():
    text = torch.arange(10, 21, dtype=torch.int16)  # eleven symbols
    filled = streams(text, 3, before=99, whole=True)
    assert filled.T.tolist() == [[99, 10, 11, 12, 13], [13, 14, 15, 16, 17], [17, 18, 19, 20, IGNORED]]
    assert streams(text, 3, before=99, whole=False).T.tolist() == [[99, 10, 11, 12], [12, 13, 14, 15], [15, 16, 17, 18]]
    assert streams(text[:2], 4, 99, True).T.tolist() == [[99, 10], [10, 11], [11, IGNORED], [IGNORED, IGNORED]]


@pytest.mark.parametrize("corpus", ["ptb", "text8"])
@pytest.mark.parametrize("split", SPLITS)
def test_every_character_is_scored_once_and_follows_its_input(root, corpus, split):
    task = characters(root, corpus=corpus)
    batches = list(task.batches(split))
    x, target = (torch.cat([getattr(b, name) for b in batches]).T for name in ("x", "target"))
    real = target != IGNORED
    read = "".join(task.symbols[k] for k in target[real])
    before = "\n" if corpus == "ptb" else " "
    assert "".join(task.symbols[k] for k in x[real]) == (before + read)[:-1]
    left_over = task.size(split) - len(read)
    assert left_over == (task.size(split) % 7 if split == "train" else 0)
    assert {len(b.x) for b in batches[:-1]} <= {25}
    assert x.min() >= 0
    if split == "train":
        assert len(batches) == task.n_batches("train")
        assert all(torch.equal(a.x, b.x) for a, b in zip(task.batches(split, 3, 4), batches[4:], strict=True))


def test_bits_per_character_of_one_who_knows_nothing(root):
    task = characters(root, corpus="text8", embedding=None)
    model = model_for(task)
    for p in model.readout.parameters():
        torch.nn.init.zeros_(p)
    for split in ("valid", "test"):
        found = loop.evaluate(model, task, split)
        assert found["bpc"] == pytest.approx(math.log2(27), rel=1e-6)
        assert found["loss"] == pytest.approx(math.log(27), rel=1e-6)
    assert math.log(26) < task.chance() < math.log(27)


def whole_streams(model, task, split):
    """The mean loss over a split, each stream read in one piece."""
    read = task.streams[split].long()
    logits = model(Batch(read[:-1].clamp(min=0), read[1:])).logits
    return F.cross_entropy(logits.flatten(0, 1), read[1:].flatten(), ignore_index=IGNORED).item()


@pytest.mark.parametrize("rnn", [LSTM, PLSTM])
def test_carried_segments_are_one_long_sequence(root, rnn):
    task = characters(root, embedding=5, length=1)
    model = model_for(task, rnn, layers=2).double()
    found = loop.evaluate(model, task, "valid")
    assert found["loss"] == pytest.approx(whole_streams(model, task, "valid"), rel=1e-12)
    reset = loop.evaluate(model, characters(root, embedding=5, length=1, state="reset"), "valid")
    assert abs(reset["loss"] - found["loss"]) > 1e-6
    other = loop.evaluate(model, characters(root, embedding=5, length=2, batch_size=3), "valid")
    assert other["loss"] == pytest.approx(found["loss"], rel=1e-12)  # neither batch nor segments matter


def test_training_carries_the_state_without_its_past(root, tmp_path):
    """With a learning rate of 0, one epoch's losses are those of each stream in one piece, without dropout."""
    task = characters(root, embedding=5)
    model = model_for(task)
    losses = []
    settings = Loop(max_epochs=2, log_every=1)
    log = lambda values, step: losses.append(values["train/loss_nats"])  # noqa: E731
    trainings.fit(model, task, torch.optim.SGD(model.parameters(), lr=0.0), log, settings, tmp_path)
    lengths = torch.tensor([len(b.x) for b in task.batches("train")], dtype=torch.float64)
    assert len(losses) == 2 * len(lengths)
    epochs = torch.tensor(losses, dtype=torch.float64).view(2, -1)
    assert torch.equal(epochs[0], epochs[1])  # the second epoch begins with zeros again
    mean = (epochs[0] * lengths).sum() / lengths.sum()
    assert mean.item() == pytest.approx(whole_streams(model, task, "train"), rel=1e-5)


@pytest.mark.parametrize(("corpus", "embedding", "rnn", "hidden", "layers", "count"), [
    ("ptb", 20, LSTM, 716, 1, 2_150_482), ("ptb", 20, PLSTM, 828, 1, 2_152_194),
    ("text8", None, LSTM, 512, 2, 3_223_067), ("text8", None, PLSTM, 592, 2, 3_222_875),
])  # fmt: skip
def test_the_papers_parameter_counts(tmp_path, corpus, embedding, rnn, hidden, layers, count):
    texts.write_words(tmp_path / "ptb", texts.PTB, types=60)
    texts.write_text8(tmp_path / "text8")
    task = characters(tmp_path, corpus=corpus, embedding=embedding)
    assert len(task.symbols) == (50 if corpus == "ptb" else 27)
    assert sum(p.numel() for p in model_for(task, rnn, hidden, layers).parameters()) == count


# --- words --------------------------------------------------------------------------------------------------------


def test_batchify_by_hand():
    assert batchify(torch.arange(11), 3).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert batchify(torch.arange(4), 1).tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("epoch", range(4))
def test_windows_read_every_word_once(root, epoch):
    task = words(root)
    rows, batches = len(task.streams["train"]), list(task.batches("train", epoch))
    x, target = (torch.cat([getattr(b, name) for b in batches]) for name in ("x", "target"))
    # The authors end when only one word is left to predict.
    assert rows - 2 <= len(x) <= rows - 1
    assert torch.equal(x, task.streams["train"][: len(x)])
    assert torch.equal(target, task.streams["train"][1 : len(x) + 1])
    for batch, (_, drawn) in zip(batches, task.windows(epoch), strict=True):
        assert batch.lr_scale == drawn / 12
        assert len(batch.x) == drawn or batch is batches[-1]
    assert [len(b.x) for b in task.batches("train", epoch, 3)] == [len(b.x) for b in batches[3:]]


def test_no_window_begins_where_one_word_alone_is_left(root):
    task = words(root)
    last = {task.windows(epoch)[-1][0] for epoch in range(100)}
    assert max(last) == len(task.streams["train"]) - 3


def test_windows_lengths(root):
    task = words(root, length=70, batch_size=1)
    drawn = torch.tensor([n for epoch in range(300) for _, n in task.windows(epoch)], dtype=torch.float64)
    assert len(drawn) > 2500
    halved = drawn < 52
    assert halved.double().mean().item() == pytest.approx(0.05, abs=0.015)
    # int() of a normal variable is half a word less on average
    assert drawn[~halved].mean().item() == pytest.approx(69.5, abs=0.4)
    assert drawn[halved].mean().item() == pytest.approx(34.5, abs=2.0)
    assert drawn[~halved].std().item() == pytest.approx(5.0, abs=0.3)
    assert min(n for epoch in range(50) for _, n in words(root, length=6).windows(epoch)) == 5
    assert task.windows(3) == words(root, length=70, batch_size=1).windows(3)
    assert task.windows(3) != task.windows(4)
    assert task.windows(3) != words(root, length=70, batch_size=1, seed=1).windows(3)


def test_steps_of_epochs_of_different_lengths(root):
    task, other = words(root), words(root)
    counts = [len(task.windows(epoch)) for epoch in range(30)]
    assert len(set(counts)) > 2
    expected = [(epoch, k) for epoch, n in enumerate(counts) for k in range(n)]
    assert [other.position(step) for step in range(len(expected))] == expected
    assert [task.start_of(epoch) for epoch in range(31)] == [sum(counts[:epoch]) for epoch in range(31)]
    with pytest.raises(NotImplementedError, match="epochs have different numbers of windows: ask start_of"):
        task.n_batches("train")


def test_evaluation_reads_windows_of_one_length(root):
    task = words(root)
    for split, n in (("valid", 10), ("test", 1)):
        batches = list(task.batches(split))
        rows = task.size(split) // n
        assert [len(b.x) for b in batches] == [12] * ((rows - 1) // 12) + [(rows - 1) % 12] * ((rows - 1) % 12 > 0)
        assert all(b.x.shape[1] == n and b.lr_scale is None for b in batches)
    one, other = model_for(task).double(), words(root, batch_size=5, length=7)
    found, again = loop.evaluate(one, task, "test"), loop.evaluate(one, other, "test")
    assert found["loss"] == pytest.approx(again["loss"], rel=1e-12)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-12)


def test_losses_of_single_words(root):
    task = words(root)
    model = model_for(task, layers=2).double()
    losses, targets = bins.token_losses(model, task)
    assert torch.equal(targets, task.tokens["test"][1:].long())  # one stream: the text as it is
    assert len(losses) == task.size("test") - 1
    assert losses.mean().item() == pytest.approx(loop.evaluate(model, task, "test")["loss"], rel=1e-12)
    # the fifth word's loss, given the first four
    read = task.streams["test"][:5].long()
    found = losses[3].item()
    assert model.training
    logits = model.eval()(Batch(read[:-1], read[1:])).logits
    assert found == pytest.approx(F.cross_entropy(logits[-1], read[4]).item(), rel=1e-12)
    counts = task.counts()
    assert counts.sum() == sum(task.size(split) for split in SPLITS)
    assert counts[task.vocabulary.index("<eos>")] == 60 + 9 + 8
    assert task.counts(("test",)).sum() == task.size("test")


def test_losses_stand_beside_their_words(root):
    task = words(root)
    model = model_for(task).double().eval()
    read = task.streams["test"][:31].long()  # more than two windows
    logits = model(Batch(read[:-1], read[1:])).logits[:, 0]
    losses, found = bins.token_losses(model, task)
    torch.testing.assert_close(losses[:30], F.cross_entropy(logits, read[1:, 0], reduction="none"))
    assert torch.equal(found[:30], read[1:, 0])


def test_penalties_by_hand(root):
    task = words(root, ar=2.0, tar=1.0)
    model = model_for(task)
    output = model(next(task.batches("train")))
    raw, dropped = output.raw.detach(), output.dropped.detach()
    by_hand = 2.0 * sum(float(v) ** 2 for v in dropped.flatten()) / dropped.numel()
    steps = raw.flatten(1).tolist()
    changes = [(steps[t + 1][k] - steps[t][k]) ** 2 for t in range(len(steps) - 1) for k in range(len(steps[0]))]
    assert task.penalty(output).item() == pytest.approx(by_hand + sum(changes) / len(changes), rel=1e-5)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], raw[kept] / 0.6)
    assert kept.double().mean().item() == pytest.approx(0.6, abs=0.3)
    assert words(root, ar=0.0, tar=0.0).penalty(output) == 0.0


# --- AWD-LSTM's model ---------------------------------------------------------------------------------------------


def test_locked_dropout_has_one_mask_for_all_steps():
    torch.manual_seed(0)
    x, dropout = torch.ones(5, 40, 50), LockedDropout(0.4)
    y = dropout(x)
    assert all(torch.equal(y[0], step) for step in y)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
    assert (y[0] == 0).double().mean().item() == pytest.approx(0.4, abs=0.05)
    assert torch.equal(dropout.eval()(x), x)


def test_every_dropout_has_its_own_rate(root):
    task = words(root, dropout_input=0.2, dropout_hidden=0.3, dropout_output=0.4, weight_drop=0.6)
    model = model_for(task, layers=2)
    assert (model.drop_input.p, model.rnn.between.p, model.drop_output.p) == (0.2, 0.3, 0.4)
    assert [cell.weight_drop for cell in model.rnn.layers] == [0.6, 0.6]


def test_a_dropped_word_is_dropped_everywhere(root):
    task = words(root, dropout_embedding=0.5, dropout_input=0.0)
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


def test_evaluation_drops_nothing(root):
    task = words(root)
    model = model_for(task, layers=2).eval()
    batch = next(task.batches("test"))
    plain = model.rnn(model.vectors[batch.x])[0]
    torch.testing.assert_close(model(batch).logits, F.linear(plain, model.vectors, model.readout.bias), rtol=0, atol=0)
    assert not torch.equal(model.train()(batch).logits, model(batch).logits)


@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_recurrent_weights_are_dropped_once_per_window_and_trained(root, engine):
    task = words(root, dropout_embedding=0.0, dropout_input=0.0, dropout_output=0.0, weight_drop=0.5)
    model = model_for(task, engine=engine)
    cell = model.rnn.layers[0]
    torch.manual_seed(3)
    batch = next(task.batches("train"))
    output = model(batch)
    torch.manual_seed(3)
    used = F.dropout(cell.weight_hh, 0.5).detach()
    assert (used == 0).double().mean().item() == pytest.approx(0.5, abs=0.15)
    twin = torch.nn.LSTM(8, 8)
    with torch.no_grad():
        for name in ("weight_ih", "bias_ih", "bias_hh"):
            getattr(twin, f"{name}_l0").copy_(getattr(cell, name))
        twin.weight_hh_l0.copy_(used)
    torch.testing.assert_close(output.raw, twin(model.vectors[batch.x])[0], rtol=1e-5, atol=1e-6)
    task.loss(output.logits, batch).backward()
    grad = cell.weight_hh.grad
    assert torch.equal(grad != 0, used != 0)  # the gradient reaches exactly the weights that were used


def test_frozen_recurrent_weights_stay_but_are_dropped(root):
    task = words(root, recurrent="frozen")
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
    assert not torch.equal(model.rnn(x)[0], model.rnn(x)[0])  # dropped again each time


def test_looking_at_time_scales_changes_no_numbers(root, tmp_path):
    """W&B's logger looks at every validation, others never."""
    curves = []
    for looks in (False, True):
        task = words(root)
        model = model_for(task, layers=2)

        def log(values, step, looks=looks, model=model):
            if looks and "valid/loss" in values:
                model.rnn.timescales()

        (directory := tmp_path / str(looks)).mkdir()
        settings = Loop(max_steps=8, log_every=2, eval_every=2)
        curves.append(
            trainings.fit(model, task, NTASGD(model.parameters(), lr=5.0), log, settings, directory).progress.curve
        )
    assert len(curves[0]) == 4
    assert curves[0] == curves[1]


def mts(task, hidden):
    published = {"freeze_gates": "ifgo", "layer1_bias": "log_t_minus_1", "quantiles": "authors"}
    return model_for(task, MTSLSTM, hidden, 3, **published)


def test_a_unit_that_never_remembers_keeps_everything_finite(root):
    """The published run's last unit of layer 2 has a forget bias of -inf; biases there do not move."""
    task = words(root, recurrent="frozen")
    model = mts(task, [10, 9, 8])
    assert model.rnn.timescales()[1][-1] == 0
    optimizer = NTASGD(model.parameters())
    before = [[bias.clone() for bias in cell.weights()[2:]] for cell in model.rnn.layers]
    losses = []
    for epoch in range(3):
        for batch in task.batches("train", epoch):
            optimizer.zero_grad()
            output = model(batch)
            loss = task.loss(output.logits, batch)
            (loss + task.penalty(output)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            losses.append(loss.detach())
    assert torch.stack(losses).isfinite().all()
    assert all(p.isfinite().all() for p in model.parameters())
    after = [cell.weights()[2:] for cell in model.rnn.layers]
    fixed = [all(map(torch.equal, *pair)) for pair in zip(before, after, strict=True)]
    assert fixed == [True, True, False]
    assert math.isfinite(loop.evaluate(model, task, "valid")["perplexity"])


@pytest.mark.parametrize(("types", "count"), [(10_000, 24_221_600), (33_278, 33_556_078)])
def test_the_published_parameter_counts(types, count):
    spec = Spec("tokens", types, types, "all", 70, embedding=400, awd=AWD(0.1, 0.4, 0.25, 0.4, 0.5, "frozen"))
    with torch.device("meta"):
        model = AWDModel(LSTM(400, [1150, 1150, 400], 3), spec)
    assert sum(p.numel() for p in model.parameters()) == count
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == count - 11_220_000


def test_initial_weights(root):
    model = model_for(words(root, embedding=16), hidden=16)
    assert model.readout.weight is model.vectors
    assert 0.09 < model.vectors.abs().max() <= 0.1
    assert not model.readout.bias.any()
    untied = model_for(words(root, tied=False), hidden=5)
    assert untied.readout.weight.shape == (len(words(root).vocabulary), 5)
    assert 0.09 < untied.readout.weight.abs().max() <= 0.1


def test_a_step_has_its_windows_rate_and_the_penalties(root):
    dropouts = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_drop")
    task = words(root, ar=20.0, tar=10.0, **dict.fromkeys(dropouts, 0.0))
    model, twin = model_for(task), model_for(task)
    batch = next(batch for batch in task.batches("train") if batch.lr_scale != 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    run = TrainingRun(model, task, optimizer, trainings.quiet, Loop(), directory=None)
    run.batch = batch
    loop.fit_single(run, until=1)
    output = twin(batch)
    (task.loss(output.logits, batch) + task.penalty(output)).backward()
    for p, before in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, before - 0.5 * batch.lr_scale * before.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("make", "mend"), [
    (lambda root: model_for(words(root), hidden=5), r"model\.hidden_size=8 .*or task\.tied=false"),
    (lambda root: model_for(words(root), layers=2, dropout=0.1), r"task\.dropout_hidden"),
    (lambda root: words(root, weight_drop=1.0), "dropout of weight must be at least 0 and below 1"),
    (lambda root: words(root, recurrent="fixed"), "trained, frozen"),
    (lambda root: words(root, corpus="text8"), "ptb, wt2"),
    (lambda root: words(root, batch_size=300), r"train: 660 words are too few for 300 streams"),
    (lambda root: words(root, length=0), "length must be at least 1"),
    (lambda root: characters(root, corpus="wt2"), "ptb, text8"),
    (lambda root: characters(root, state="kept"), "carried, reset"),
    (lambda root: characters(root, batch_size=10_000), "batch_size 10000 is more than"),
    (lambda root: characters(root, embedding=0), "embedding must be at least 1"),
])  # fmt: skip
def test_bad_arguments_say_what_is_right(root, make, mend):
    with pytest.raises(ValueError, match=mend):
        make(root)


# --- resume -------------------------------------------------------------------------------------------------------


def parts(root, name):
    if name == "characters":
        task = characters(root, embedding=5)
        model = model_for(task, PLSTM, layers=2, dropout=0.2)
        return model, task, torch.optim.Adam(model.parameters(), lr=1e-2)
    task = words(root, recurrent="trained")
    model = model_for(task, layers=2)
    # This rate is too high to get better each time, so that averaging begins after some validations.
    return model, task, NTASGD(model.parameters(), lr=60.0, nonmono=1)


@pytest.mark.parametrize(("name", "stops"), [("characters", (5, 20, 33)), ("words", (3, 25, 50))])
def test_interrupted_and_resumed_is_bitwise_equal_to_undisturbed(root, tmp_path, name, stops):
    settings = Loop(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, clip_norm=0.25)

    def fit(place, stop=None):
        def log(values, step):
            logged.append((step, values))
            if step == stop:
                os.kill(os.getpid(), signal.SIGINT)

        return trainings.fit(*parts(root, name), log, settings, place)

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
    assert outcomes[0]["metrics"] == outcomes[1]["metrics"]
    assert outcomes[0]["last"] == outcomes[1]["last"]


def test_averages_are_what_is_validated_kept_and_tested(root, tmp_path):
    task = words(root)
    model = model_for(task)
    optimizer = NTASGD(model.parameters(), lr=5.0)
    optimizer.param_groups[0]["averaging"] = True
    settings = Loop(max_epochs=1, clip_norm=0.25)
    run = trainings.fit(model, task, optimizer, trainings.quiet, settings, tmp_path)
    raw = {key: value.clone() for key, value in model.state_dict().items()}
    with optimizer.eval_weights():
        averages = {key: value.clone() for key, value in model.state_dict().items()}
        expected = {split: loop.evaluate(model, task, split) for split in ("valid", "test")}
    assert not torch.equal(raw["vectors"], averages["vectors"])
    assert run.progress.curve[-1]["valid/perplexity"] == expected["valid"]["perplexity"]
    found = outcome(run)
    assert found["metrics"]["test/perplexity"] == found["last"]["test/perplexity"] == expected["test"]["perplexity"]
    assert all(torch.equal(value, averages[key]) for key, value in model.state_dict().items())
