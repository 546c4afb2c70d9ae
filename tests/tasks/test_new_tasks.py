"""Variable copy, adding, sequential CIFAR-10, Dyck-2 and IMDB: what their papers say of the data, by numbers."""

import collections
import functools
import math
import re

import pytest
import synthetic
import torch
from configs import config
from scipy import stats

from timescales import LSTM, PLSTM
from timescales.config import identity
from timescales.runs import record
from timescales.tasks import IMDB, SCIFAR, Adding, Batch, Copy, Dyck2, VariableCopy
from timescales.tasks.data import cifar
from timescales.tasks.dyck2 import LONGEST, strings
from timescales.tasks.variable_copy import PAD
from timescales.training import build, checkpoint
from timescales.training.model import SequenceModel

# --- variable copy ------------------------------------------------------------------------------------------------


def test_variable_copy_layout():
    task = VariableCopy(low=1, high=6, train_size=300, valid_size=5, test_size=5, batch_size=300)
    batch, delays = next(task.batches("train")), task.delays("train")
    steps = int(delays.max()) + 20
    assert batch.x.shape == batch.target.shape == batch.mask.shape == (steps, 300)
    for k, T in enumerate(delays.tolist()):
        symbols = batch.x[:10, k]
        assert symbols.max() <= 7
        inputs = [*symbols.tolist(), *[8] * T, 9, *[8] * 9]
        assert batch.x[: T + 20, k].tolist() == inputs
        assert batch.target[:, k].tolist() == [8] * (T + 10) + symbols.tolist() + [PAD] * (steps - T - 20)
        assert batch.mask[:, k].tolist() == [True] * (T + 20) + [False] * (steps - T - 20)


def test_variable_copy_delays_are_uniform_both_ends_included():
    task = VariableCopy(low=200, high=210, train_size=11_000, valid_size=5, test_size=5)
    counts = torch.bincount(task.delays("train") - 200, minlength=11)
    assert len(counts) == 11
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert VariableCopy().spec.horizon == 500
    assert VariableCopy(high=1000).spec.horizon == 1000
    assert [VariableCopy().size(split) for split in ("train", "valid")] == [100_000, 10_000]


def test_variable_copy_scores_what_exists():
    task = VariableCopy(low=0, high=8, train_size=9, valid_size=5, test_size=5, batch_size=9)
    batch = next(task.batches("train"))
    logits = torch.randn(*batch.target.shape, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = task.loss(logits, batch)
    (g,) = torch.autograd.grad(loss, logits)
    assert torch.equal(g.abs().sum(-1) > 0, batch.mask)
    log_p = logits.detach().log_softmax(-1).gather(-1, batch.target.clamp(min=0).unsqueeze(-1))[batch.mask]
    assert loss.item() == pytest.approx(-log_p.mean().item(), rel=1e-6)
    # one wrong answer in one sequence, and nonsense in the padding
    right = torch.nn.functional.one_hot(batch.target.clamp(min=0), 10).double()
    right[~batch.mask] = torch.randn(int((~batch.mask).sum()), 10, dtype=torch.float64)
    T = int(task.delays("train")[3])
    right[T + 12, 3] = 0
    right[T + 12, 3, (batch.target[T + 12, 3] + 1) % 8] = 1
    sums = task.metrics(right, batch)
    assert (sums["accuracy"][0].item(), sums["accuracy"][1]) == (89, 90)
    assert (sums["sequence_accuracy"][0].item(), sums["sequence_accuracy"][1]) == (8, 9)
    assert task.correct(right, batch).tolist() == [k != 3 for k in range(9)]


def test_variable_copy_with_one_delay_is_copy():
    sizes = {"train_size": 20, "valid_size": 5, "test_size": 5, "batch_size": 20}
    variable, plain = VariableCopy(low=4, high=4, **sizes), Copy(T=4, **sizes)
    a, b = next(variable.batches("train")), next(plain.batches("train"))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.target, b.target)
    assert a.mask.all()
    logits = torch.randn(24, 20, 10)
    assert variable.loss(logits, a).item() == pytest.approx(plain.loss(logits, b).item(), rel=1e-6)
    assert variable.chance() == pytest.approx(plain.chance(), rel=1e-6)


def test_variable_copy_recipe_for_chrono():
    cfg = config("task=variable_copy", "model=chrono", "task.high=1000")
    assert cfg.model.T_max == 1000  # the longest delay (caption of figure A.1)


# --- adding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [2, 7, 2000])
def test_adding(T):
    task = Adding(T=T, train_size=200, valid_size=50, test_size=50, batch_size=200)
    batch = next(task.batches("train"))
    numbers, marks = batch.x.unbind(-1)
    assert batch.x.shape == (T, 200, 2)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert marks[: T // 2].sum(0).eq(1).all()
    assert marks[T // 2 :].sum(0).eq(1).all()
    assert set(marks.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(batch.target, (numbers * marks).sum(0))
    if T == 2000:
        assert stats.kstest(numbers.flatten()[:50_000].numpy(), stats.uniform(0, 1).cdf).pvalue > 1e-3
        where = marks.argmax(0).double() / (T // 2)
        assert stats.kstest(where.numpy(), stats.uniform(0, 1).cdf).pvalue > 1e-3


def test_adding_scores():
    task = Adding(T=4, train_size=5, valid_size=5, test_size=5)
    batch = Batch(torch.zeros(4, 3, 2), torch.tensor([1.0, 0.5, 1.5]))
    logits = torch.tensor([[1.03], [0.55], [1.5]])
    sums = task.metrics(logits, batch)
    assert sums["loss"][0].item() == pytest.approx(0.03**2 + 0.05**2, rel=1e-4)
    assert task.correct(logits, batch).tolist() == [True, False, True]
    assert task.chance() == pytest.approx(0.167, abs=5e-4)  # as printed
    assert task.spec.select == ("loss", "min")


# --- sequential CIFAR-10 ------------------------------------------------------------------------------------------


def test_scifar_is_normalised_and_read_row_by_row(tmp_path):
    synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 40, 20)
    sizes = {"valid_size": 5, "allow_partial": True, "data_root": str(tmp_path)}
    task = SCIFAR(**sizes)
    assert [task.size(split) for split in ("train", "valid", "test")] == [35, 5, 20]
    raw = cifar.read(tmp_path / "cifar-10-python.tar.gz")
    batch = next(task.batches("test"))
    assert batch.x.shape == (1024, 20, 3)
    mean, sd = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
    for pixel in (0, 31, 32, 1023):
        for channel in range(3):
            expected = (raw.test[:, channel, pixel].double() / 255 - mean[channel]) / sd[channel]
            torch.testing.assert_close(batch.x[pixel, :, channel].double(), expected, rtol=0, atol=1e-6)
    assert batch.target.tolist() == [k % 10 for k in range(100_000, 100_020)]
    numbers = [int(n) for n in raw.train[35:, 0, 0]]
    valid = next(task.batches("valid"))
    assert ((valid.x[0, :, 0] * sd[0] + mean[0]) * 255).round().int().tolist() == numbers  # the last ones
    assert task.partial == ["CIFAR-10 subset: 40 of 50,000 training images, 20 of 10,000 test images"]


def test_scifar_parameters(tmp_path):
    synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 20, 5)
    task = SCIFAR(valid_size=5, allow_partial=True, data_root=str(tmp_path))
    for head, readout in ((256, 512 * 256 + 256 + 256 * 10 + 10), (None, 512 * 10 + 10)):
        model = SequenceModel(LSTM(task.spec.width, 512), task.spec, head)
        assert sum(p.numel() for p in model.rnn.parameters()) == 1_058_816  # Gu et al.: H = 512, I = 3
        assert sum(p.numel() for p in [*model.head.parameters(), *model.readout.parameters()]) == readout


# --- Dyck-2 -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dyck():
    return Dyck2()


def text(task, split, k):
    return "".join("()[]"[n] for n in task.symbols[split][k, : task.lengths[split][k]])


def pairs(string):
    opened = []
    for t, character in enumerate(string):
        if character in "([":
            opened.append((character, t))
        else:
            kind, at = opened.pop()
            assert kind + character in ("()", "[]")
            yield at, t
    assert not opened


def test_dyck_strings_are_well_formed_unique_and_disjoint(dyck):
    every = [text(dyck, split, k) for split, n in dyck.sizes.items() for k in range(n)]
    assert [dyck.size(split) for split in ("train", "valid", "test")] == [10_000, 2_000, 5_000]
    assert len(every) == len(set(every)) == 17_000
    scales = torch.cat(list(dyck.timescales.values())).tolist()
    for string, scale in zip(every, scales, strict=True):
        assert scale == max(close - at + 1 for at, close in pairs(string))  # () is 2
    assert all(2 <= len(s) <= LONGEST and len(s) % 2 == 0 for s in every)


def test_dyck_statistics_as_published(dyck):
    """Length mean 48, median 30, 13 % above 100; nesting 10.4; longest pair mean 44, median 26, 18.2 % above 75."""
    lengths = torch.cat(list(dyck.lengths.values())).double()
    scales = torch.cat(list(dyck.timescales.values())).double()
    n = len(lengths)

    def near(value, expected, error):
        assert value == pytest.approx(expected, abs=error)

    near(lengths.mean().item(), 48, 5 * 45 / math.sqrt(n) + 0.5)
    near(lengths.median().item(), 30, 2)
    near((lengths > 100).double().mean().item(), 0.13, 0.013)
    near(scales.mean().item(), 44, 5 * 44 / math.sqrt(n) + 0.5)
    near(scales.median().item(), 26, 2)
    near((scales > 75).double().mean().item(), 0.182, 0.018)
    train = [text(dyck, "train", k) for k in range(3000)]
    distances = torch.tensor([close - at + 1 for s in train for at, close in pairs(s)])
    for distance, share in ((2, 0.279), (4, 0.163), (6, 0.103), (8, 0.071), (10, 0.052), (20, 0.018)):
        near((distances == distance).double().mean().item(), share, 0.1 * share)
    depth = [max(sum(1 if c in "([" else -1 for c in s[: k + 1]) for k in range(len(s))) for s in train[:500]]
    near(sum(depth) / len(depth), 10.4, 1.5)
    short = [sum(1 for k in lengths.tolist() if k == length) for length in (2, 4, 6, 8)]
    assert short[:3] == [2, 8, 40]  # all that there are
    near(short[3], 177, 15)


def test_dyck_targets_and_score(dyck):
    batch = next(dyck.batches("test"))
    assert batch.x.shape[0] == dyck.lengths["test"][:500].max()
    for k in range(100):
        string, opened = text(dyck, "test", k), []
        for t, character in enumerate(string):
            opened = [*opened, character] if character in "([" else opened[:-1]
            expected = {"[": [1.0, 0.0], "(": [0.0, 1.0]}[opened[-1]] if opened else [0.0, 0.0]
            assert batch.target[t, k].tolist() == expected
        assert batch.mask[:, k].sum() == len(string)
    logits = torch.randn(*batch.target.shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = dyck.loss(logits, batch)
    errors = (logits.detach().sigmoid() - batch.target).square()[batch.mask]
    assert loss.item() == pytest.approx(errors.sum().item() / (2 * len(errors)), rel=1e-5)
    (g,) = torch.autograd.grad(loss, logits)
    assert torch.equal(g.abs().sum(-1) > 0, batch.mask)
    oracle = 20 * (2 * batch.target - 1)
    oracle[0, 7, 0] *= -1
    oracle[~batch.mask] *= -1
    assert (~dyck.correct(oracle, batch)).nonzero().tolist() == [[7]]


def test_dyck_is_one_data_set_for_every_seed(dyck):
    other = Dyck2(seed=5)
    assert torch.equal(other.symbols["train"], dyck.symbols["train"])
    a, b = (next(task.batches("train")) for task in (dyck, other))
    assert a.x.shape != b.x.shape or not torch.equal(a.x, b.x)  # in another order
    assert strings(50, 0) != strings(50, 1)
    assert strings(50, 0) == strings(50, 0)


def test_another_data_seed_is_another_set_of_strings():
    small = {"train_size": 40, "valid_size": 5, "test_size": 5}
    assert not torch.equal(Dyck2(**small).symbols["train"], Dyck2(data_seed=1, **small).symbols["train"])


def test_dyck_stops_and_sizes(dyck):
    assert dyck.stop(1, {"loss": 0.99e-4, "accuracy": 0.0}) == "solved"
    assert dyck.stop(2000, {"loss": 1.01e-4, "accuracy": 1.0}) is None
    trained = {}
    for model in ("lstm", "mts"):
        cfg = identity.resolved(config("paper=mahto", "task=dyck2", f"model={model}"))
        assert (cfg["optimizer"]["lr"], cfg["loop"]["max_epochs"], cfg["loop"]["clip_norm"]) == (1e-4, 2000, 1.0)
        network, *_ = build.build(cfg)
        trained[model] = sum(p.numel() for p in network.parameters())
        if model == "mts":  # frozen: forget, input, output and cell biases of both vectors
            assert network.rnn.timescales()[0].max().item() == pytest.approx(33.0, abs=0.1)
            assert (network.rnn.timescales()[0] > 20).sum() == 2
    assert trained["lstm"] == 268_802


# --- IMDB ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    root = tmp_path_factory.mktemp("films")
    synthetic.write_imdb(root / "aclImdb_v1.tar.gz", 400, 100)
    synthetic.write_glove(root / ".vector_cache" / "glove.6B.100d.txt")
    return str(root)


def make(films, **more):
    return IMDB(**{"data_root": films, "allow_partial": True, "steps": 20, "valid_size": 40, **more})


@functools.cache
def texts(split):
    each = {"train": 200, "test": 50}[split]
    return sorted(((k, text) for k in (0, 1) for text in synthetic.reviews(split, k, each)), key=lambda r: r[1])


def words_of_training_part(task):
    drawn = torch.randperm(400, generator=task.generator("parts"))[40:].tolist()
    return [word for k in drawn for word in texts("train")[k][1].split()]


def test_imdb_tokens_padding_and_mask(films):
    expected = [text.split() for _, text in texts("test")]
    for pad in ("end", "front"):
        for readout in ("last_step", "true_length"):
            task = make(films, pad=pad, readout=readout)
            number = {word: k + 2 for k, word in enumerate(task.vocabulary)}
            batch = next(task.batches("test"))
            assert batch.x.shape == (20, 100)
            assert task.lengths["test"].tolist() == [len(words) for words in expected]  # before they are cut
            for k, words in enumerate(expected):
                row = [number.get(word, 0) for word in words[:20]]
                fill = [1] * (20 - len(row))
                assert batch.x[:, k].tolist() == (row + fill if pad == "end" else fill + row)
            if readout == "true_length":
                assert torch.equal(batch.mask, batch.x != 1)
            else:
                assert batch.mask is None
            assert batch.target.tolist() == [label for label, _ in texts("test")]


def test_imdb_vocabulary_is_the_training_parts(films):
    """The most frequent first, alphabetical where equal, as torchtext; each validation word that training lacks is
    unknown."""
    task = make(films, vocabulary=13)
    words = [word for _, text in texts("train") for word in text.split()]
    whole = make(films)
    own = [word for word in words if re.fullmatch(r"train\dx\d+", word)]
    assert len(own) == 400  # one a review
    assert sum(word in whole.vocabulary for word in own) == 360  # those of the training part
    part = collections.Counter(words_of_training_part(task))
    by_torchtext = sorted(sorted(part.items()), key=lambda item: -item[1])
    assert task.vocabulary == [word for word, _ in by_torchtext[:13]]
    assert task.spec.input_size == 15


def test_imdb_parts_are_disjoint_and_drawn_by_the_seed(films):
    tasks = [make(films, seed=seed, steps=45) for seed in (0, 0, 1)]
    assert [tasks[0].size(split) for split in ("train", "valid", "test")] == [360, 40, 100]
    parts = [torch.randperm(400, generator=task.generator("parts"))[:40].tolist() for task in tasks]
    assert parts[0] == parts[1] != parts[2]
    names = [[text.split()[-1] for _, text in texts("train")][k] for k in parts[0]]
    assert not set(names) & set(tasks[0].vocabulary)
    labels = [texts("train")[k][0] for k in parts[0]]
    assert next(tasks[0].batches("valid")).target.tolist() == labels


def test_imdb_vectors(films):
    task = make(films)
    table = task.spec.embedding
    assert table.shape == (len(task.vocabulary) + 2, 100)
    assert not table[:2].any()  # unknown, padding
    for k, word in enumerate(task.vocabulary):
        if word in synthetic.GLOVE:
            row = synthetic.GLOVE.index(word)
            torch.testing.assert_close(table[k + 2], row + torch.arange(1, 101) / 100, rtol=0, atol=1e-5)
    others = table[[k + 2 for k, word in enumerate(task.vocabulary) if word not in synthetic.GLOVE]]
    assert {"It", "Never"} < set(task.vocabulary)  # capitalised: no vector of their own
    assert stats.kstest(others.flatten().numpy(), stats.norm(0, 1).cdf).pvalue > 1e-3
    lower = make(films, lower=True)
    assert "It" not in lower.vocabulary
    at = lower.vocabulary.index("it") + 2
    torch.testing.assert_close(lower.spec.embedding[at], 7 + torch.arange(1, 101) / 100, rtol=0, atol=1e-5)


def test_imdb_says_what_is_partial(films):
    task = make(films)
    assert task.partial[0] == "IMDB subset: 400 of 25,000 train reviews, 100 of 25,000 test reviews"
    words = words_of_training_part(task)
    share = sum(word in synthetic.GLOVE for word in words) / len(words)
    assert task.partial[1] == f"GloVe subset: 8 of 400,000 vectors, {share:.0%} of tokens"


@pytest.mark.parametrize(("rnn", "hidden", "outputs", "parameters"), [
    (LSTM, 128, 1, 117_889), (LSTM, 128, 2, 118_018), (PLSTM, 154, 1, 118_119), (PLSTM, 154, 2, 118_274),
])  # fmt: skip
def test_imdb_parameters_as_printed(films, rnn, hidden, outputs, parameters):
    task = make(films, outputs=outputs)
    model = SequenceModel(rnn(task.spec.width, hidden), task.spec)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert not [key for key in model.state_dict() if "vectors" in key]
    assert task.spec.dropout == 0.2
    assert task.spec.select == ("loss", "min")


def test_imdb_one_logit_is_the_logistic_loss(films):
    task = make(films)
    batch = next(task.batches("test"))
    logits = torch.randn(100, 1, dtype=torch.float64)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], batch.target.double())
    assert task.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.equal(task.correct(logits, batch), (logits[:, 0] > 0) == batch.target.bool())


def test_imdb_accuracy_by_length(films):
    """What figure 4 needs: which review is right, next to its length."""
    task = make(films)
    right = torch.cat([task.correct(torch.ones(len(b.target), 1), b) for b in task.batches("test")])
    labels = torch.tensor([label for label, _ in texts("test")])
    long = task.lengths["test"] > 20
    assert 20 < long.sum() < 80
    assert right[long].double().mean() == labels[long].double().mean()  # "positive" is right where it is


@pytest.mark.parametrize(("model", "hidden", "lr"), [("lstm", 128, 1e-3), ("chrono", 128, 1e-3), ("plstm", 154, 5e-4)])
def test_imdb_recipes(model, hidden, lr):
    cfg = config("task=imdb", f"model={model}")
    assert (cfg.model.hidden_size, cfg.optimizer.lr, cfg.loop.max_epochs) == (hidden, lr, 20)
    assert model != "chrono" or cfg.model.T_max == 400


def test_a_run_on_a_part_is_marked(films, train, tmp_path):
    small = ["task.steps=8", "task.valid_size=40", "model.hidden_size=3", "loop.max_steps=2", "logger=none"]
    done = train("task=imdb", *small, f"data_root={films}", "run_dir=here", "task.allow_partial=true")
    assert done.status == 0, done
    said = record.read(tmp_path / "here")["partial"]
    assert len(said) == 2
    assert "GloVe subset: 8 of 400,000 vectors" in said[1]
    refused = train("task=imdb", *small, f"data_root={films}", "run_dir=there")
    assert refused.status == 1
    assert "allow_partial=true" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    # The same run on the whole data is the same run, but what a part gave is not taken for it.
    again = [*small, f"data_root={films}", "run_dir=here"]
    assert "finished, skipped" in train("task=imdb", *again, "task.allow_partial=true").out
    refused = train("task=imdb", *again)
    assert refused.status == 1
    assert "trained on a part of the data (IMDB subset: 400 of" in refused.err
    swept = train("-m", "task=imdb", *again[:-1], "task.allow_partial=true")
    assert (swept.status, "1 to run" in swept.out) == (0, True)
    assert "on a part of the data" in train("-m", "task=imdb", *again[:-1]).out
    forced = train("-m", "task=imdb", *again[:-1], "force=true")  # gets as far as the data, which are no more today
    assert "1 to run" in forced.out
    assert "force=true trains it on the whole" not in forced.out


def test_a_run_goes_on_only_with_the_data_it_was_begun_on(films, train, tmp_path):
    words = ["task=imdb", "task.allow_partial=true", "task.steps=8", "task.valid_size=40", "model.hidden_size=3",
             "logger=none", "run_dir=here", "loop.checkpoint_every=0", f"data_root={films}"]  # fmt: skip
    assert train(*words, "loop.max_steps=2").status == 0
    found = record.read(tmp_path / "here")
    last = checkpoint.load(tmp_path / "here" / "last.pt")
    assert last["lacks"] == found["partial"]
    checkpoint.save(tmp_path / "here" / "last.pt", last | {"lacks": []})
    record.update(tmp_path / "here", status="interrupted")
    refused = train(*words, "loop.max_steps=2")
    assert refused.status == 1
    assert "was begun on other data (the whole; now IMDB subset: 400 of" in refused.err
    # Neither a kill before the data are loaded nor a lost record makes another run of it.
    checkpoint.save(tmp_path / "here" / "last.pt", last)
    record.start(tmp_path / "here", found["id"], found["config"])
    assert train(*words, "loop.max_steps=2").status == 0
    assert record.read(tmp_path / "here")["metrics"] == found["metrics"]
    (tmp_path / "here" / "record.json").unlink()
    assert train(*words, "loop.max_steps=2").status == 0
    again = record.read(tmp_path / "here")
    assert (again["metrics"], again["partial"]) == (found["metrics"], found["partial"])
