"""Tasks: the same data for the same seed, the papers' layouts and statistics, losses, metrics, chance."""

import dataclasses
import gzip
import hashlib
import itertools
import math
import os
import sys
import types

import numpy as np
import pytest
import torch
from scipy import stats
from synthetic import write_cifar, write_glove, write_idx, write_imdb, write_mnist

import timescales
from timescales.tasks import IMDB, SCIFAR, Adding, Batch, Copy, Digits, Dyck2, Frequency, Task, VariableCopy
from timescales.tasks.copy import DUMMY
from timescales.tasks.data import mnist
from timescales.tasks.data.corpus import MissingData, data_root
from timescales.tasks.digits import bit_reversal, pixel_order
from timescales.tasks.task import SPLITS
from timescales.tasks.variable_copy import PAD
from timescales.training.model import SequenceModel

# --- MNIST as files -----------------------------------------------------------------------------------------------


def numbers(batch, order=None):
    """Which images a batch holds, from their first three pixels."""
    at = [0, 1, 2] if order is None else [order.tolist().index(k) for k in range(3)]
    low, middle, high = (batch.x[at, :, 0] * 255).round().long()
    return low + 256 * middle + 65536 * high


@pytest.fixture(scope="session")
def digits_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_mnist(root / "MNIST" / "raw")
    write_cifar(root / "cifar-10-python.tar.gz")
    write_imdb(root / "imdb" / "aclImdb.tar.gz", train=800)
    write_glove(root / "glove" / "glove.6B.100d.txt")
    return root


@pytest.fixture
def no_download(monkeypatch):
    monkeypatch.setattr("timescales.tasks.data.corpus._check_reachable", lambda url: None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)


# --- what every task must keep ------------------------------------------------------------------------------------

SMALL = {"train_size": 70, "valid_size": 40, "test_size": 30, "batch_size": 16}
TASKS = {
    "copy": (Copy, {"T": 6}),
    "copy_authors": (Copy, {"T": 6, "layout": "authors"}),
    "copy_tallec": (Copy, {"T": 6, "layout": "tallec"}),
    "copy_gu": (Copy, {"T": 6, "layout": "gu", "score": "answers"}),
    "copy_fresh": (Copy, {"T": 6, "fresh": True}),
    "variable_copy": (VariableCopy, {"low": 3, "high": 9}),
    "adding": (Adding, {"T": 10}),
    "dyck2": (Dyck2, {}),
    "scifar": (SCIFAR, {"allow_partial": True}),
    "imdb": (IMDB, {"allow_partial": True, "steps": 20}),
    "imdb_variant": (
        IMDB,
        {"allow_partial": True, "steps": 20, "pad": "front", "readout": "true_length", "outputs": 2, "lower": True},
    ),
    "smnist": (Digits, {}),
    "pmnist": (Digits, {"permutation": "bit_reversal"}),
    "pmnist_random": (Digits, {"permutation": "random"}),
    "frequency_async": (Frequency, {}),
    "frequency_sync_1": (Frequency, {"sampling": "sync_1", "time_input": True}),
    "frequency_sync_01": (Frequency, {"sampling": "sync_01"}),
    "frequency_uniform": (Frequency, {"negatives": "uniform", "time_input": True}),
}
COPIES = [name for name in TASKS if "copy" in name]
SAME_SET = ["smnist", "pmnist", "pmnist_random", "scifar", "dyck2"]  # a seed shuffles them, it does not choose them
each_task = pytest.mark.parametrize("name", TASKS)


@pytest.fixture
def make(digits_root):
    def build(name, **more) -> Task:
        kind, arguments = TASKS[name]
        place = {"data_root": str(digits_root)} if kind in (Digits, SCIFAR, IMDB) else {}
        return kind(**{**arguments, **SMALL, **place, **more})

    return build


def equal(a: Batch, b: Batch):
    return all(
        (x is None and y is None) or (x.shape == y.shape and x.dtype == y.dtype and torch.equal(x, y))
        for x, y in zip(a, b, strict=True)
    )


def epoch_of(task, split, epoch=0, start=0):
    return list(task.batches(split, epoch, start))


def sequences(batch):
    return batch.x.shape[1]


def answer(task, batch, sure=30.0):
    """Logits of an oracle: the right answer everywhere."""
    if isinstance(task, Adding):
        return batch.target.double().unsqueeze(-1)
    if isinstance(task, Dyck2):
        return sure * (2 * batch.target.double() - 1)
    if task.spec.output_size == 1:
        return sure * (2 * batch.target.double() - 1).unsqueeze(-1)
    return sure * torch.nn.functional.one_hot(batch.target.clamp(min=0), task.spec.output_size).double()


@each_task
@pytest.mark.parametrize("split", SPLITS)
def test_same_seed_same_data(make, name, split):
    torch.manual_seed(1)
    first = epoch_of(make(name, seed=3), split, 2)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = epoch_of(make(name, seed=3), split, 2)
    assert torch.equal(torch.get_rng_state(), before)  # no draw from the global generator
    assert all(map(equal, first, second))
    other = epoch_of(make(name, seed=4), split, 2)
    if name in SAME_SET and split != "train":
        assert all(map(equal, first, other))
    else:
        assert not any(map(equal, first, other))


@each_task
@pytest.mark.parametrize("split", SPLITS)
def test_start_resumes_the_identical_batches(make, name, split):
    whole = epoch_of(make(name), split, 1)
    for start in range(len(whole) + 2):
        task = make(name)
        list(itertools.islice(task.batches("train", 0), 2))  # what was read before does not matter
        rest = epoch_of(task, split, 1, start)
        assert len(rest) == max(len(whole) - start, 0)
        assert all(map(equal, rest, whole[start:]))


@each_task
def test_splits_differ(make, name):
    task = make(name, train_size=40, valid_size=40, test_size=40, batch_size=40)
    batches = [epoch_of(task, split)[0] for split in SPLITS]
    for a, b in itertools.combinations(batches, 2):
        assert not equal(a, b)
    if "copy" in name:
        seen = [{tuple(x.tolist()) for x in batch.x[:10].T} for batch in batches]
        assert not seen[0] & seen[1]
        assert not seen[0] & seen[2]
        assert not seen[1] & seen[2]


@each_task
def test_what_is_fresh_every_epoch(make, name):
    task = make(name)
    for split in SPLITS:
        same = all(map(equal, epoch_of(task, split, 0), epoch_of(task, split, 1)))
        assert same == (split != "train" or (name in COPIES and name != "copy_fresh"))
    assert all(map(equal, epoch_of(task, "train", 0), epoch_of(make(name), "train", 0)))  # and back again


@each_task
def test_sizes_and_batches(make, name):
    def lengths(task, split):
        return [sequences(batch) for batch in task.batches(split)]

    task = make(name)
    assert [task.size(split) for split in SPLITS] == [70, 40, 30]
    assert task.n_batches("train") == 5
    assert lengths(task, "train") == [16, 16, 16, 16, 6]
    assert [lengths(task, split) for split in ("valid", "test")] == [[40], [30]]
    assert lengths(make(name, valid_size=501), "valid") == [500, 1]


@each_task
def test_shapes_fit_the_spec(make, name):
    task = make(name)
    spec = task.spec
    for batch in task.batches("train"):
        steps, n = batch.x.shape[:2]
        if batch.target.is_floating_point():
            assert batch.target.dtype == torch.get_default_dtype()
        else:
            assert batch.target.dtype == torch.int64
            real = batch.target[batch.target != PAD]
            assert real.min() >= 0
            assert real.max() < max(spec.output_size, 2)
        if spec.input == "real":
            assert batch.x.shape[2] == spec.input_size
            assert batch.x.dtype == torch.get_default_dtype()
        else:
            assert batch.x.dim() == 2
            assert batch.x.min() >= 0
            assert batch.x.max() < spec.input_size
        assert batch.target.shape[: 1 if spec.readout == "last" else 2] == (
            (n,) if spec.readout == "last" else (steps, n)
        )
        assert spec.width == (100 if spec.input == "tokens" else spec.input_size)
        for extra in (batch.mask, batch.dt):
            assert extra is None or extra.shape == batch.x.shape[:2]


@each_task
@pytest.mark.parametrize("kind", ["LSTM", "PLSTM"])
def test_a_model_learns_from_a_batch(make, name, kind):
    torch.manual_seed(0)
    task = make(name, batch_size=3)
    model = SequenceModel(getattr(timescales, kind)(task.spec.width, 4), task.spec).eval()  # no dropout
    batch = next(task.batches("train"))
    output = model(batch)
    loss = task.loss(output.logits, batch)
    assert loss.dim() == 0
    loss.backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in model.parameters())
    sums = task.metrics(output.logits, batch)
    assert sums["loss"][0].item() / sums["loss"][1] == pytest.approx(loss.item(), rel=1e-6)


@each_task
def test_an_oracle_is_always_right(make, name):
    task = make(name)
    for split in SPLITS:
        for batch in task.batches(split):
            logits = answer(task, batch)
            sums = task.metrics(logits, batch)
            assert set(sums) == {"loss", "accuracy"} | ({"sequence_accuracy"} if name in COPIES else set())
            assert task.correct(logits, batch).shape == (sequences(batch),)
            assert task.correct(logits, batch).all()
            for key, (total, n) in sums.items():
                assert total.item() == pytest.approx(0.0 if key == "loss" else n, abs=1e-9)
            assert task.loss(logits, batch).item() == pytest.approx(0.0, abs=1e-9)
            wrong = task.metrics(-logits, batch)
            assert all(wrong[key][0] == 0 for key in wrong if key != "loss")


def joined(task, parts):
    """Several tensors of one value per step and sequence, or per sequence, as one; shorter ones are padded."""
    if task.spec.readout == "last":
        return torch.cat(parts)
    longest = max(len(part) for part in parts)
    fill = PAD if parts[0].dtype == torch.int64 else 0
    return torch.cat([torch.cat([p, p.new_full((longest - len(p), *p.shape[1:]), fill)]) for p in parts], 1)


def one_batch(task, batches):
    """Several batches as one (what the losses and metrics read of them)."""
    masks = [b.mask for b in batches]
    mask = None if masks[0] is None or task.spec.readout == "last" else joined(task, masks)
    return Batch(torch.empty(0), joined(task, [b.target for b in batches]), mask)


@each_task
def test_metrics_add_up_over_batches_of_any_size(make, name):
    task = make(name)
    batches, g = epoch_of(task, "train"), torch.Generator().manual_seed(0)
    shape = [answer(task, b).shape for b in batches]
    logits = [torch.randn(*s, generator=g, dtype=torch.float64) for s in shape]
    parts = [task.metrics(*pair) for pair in zip(logits, batches, strict=True)]
    whole = task.metrics(joined(task, logits), one_batch(task, batches))
    for key, (total, n) in whole.items():
        assert sum(part[key][1] for part in parts) == n
        assert sum(part[key][0] for part in parts).item() == pytest.approx(total.item(), rel=1e-6)


@each_task
def test_chance_is_the_best_constant_predictor(make, name):
    """The best answer that ignores the input, measured on data: at each position, how often each class was seen."""
    n = 500 if name in SAME_SET or "imdb" in name else 2000 if "01" in name else 10_000
    task = make(name, train_size=n, batch_size=500)
    batches = epoch_of(task, "train")
    together = one_batch(task, batches)
    if name == "adding":
        logits = torch.ones(n, 1, dtype=torch.float64)
    elif name == "dyck2":
        mean = together.target.double().sum(1, keepdim=True) / together.mask.sum(1)[:, None, None]
        logits = mean.logit(1e-12).expand_as(together.target)
    else:
        seen = torch.nn.functional.one_hot(together.target.clamp(min=0), max(task.spec.output_size, 2)).double()
        seen = seen * (together.target != PAD).unsqueeze(-1)
        frequency = seen.sum(-2, keepdim=True) / seen.sum((-2, -1)).reshape(*seen.shape[:-2], 1, 1)
        if name == "variable_copy":  # the signal, at no fixed place, tells when to answer
            answers = (together.target != DUMMY) & (together.target != PAD)
            dummy = torch.eye(seen.shape[-1], dtype=torch.float64)[DUMMY]
            frequency = torch.where(answers.unsqueeze(-1), seen[answers].mean(0), dummy)
        logits = frequency.clamp(min=1e-300).log().expand_as(seen)
        if task.spec.output_size == 1:
            logits = logits[..., 1:] - logits[..., :1]
    loss = task.loss(logits, together).item()
    # n sequences leave a sampling error of the mean of about 1/sqrt(n) x .04 (labels) and 7/(2n) (symbols).
    assert loss == pytest.approx(task.chance(), abs=6e-3 if name == "adding" else 2e-3)
    worse = task.loss(torch.zeros_like(logits), together).item()
    assert loss <= worse + 1e-12


@each_task
def test_stops_by_the_papers_rule_only(make, name):
    task = make(name)
    keys = ("accuracy", "sequence_accuracy")
    words = {}
    for epoch, value, whole in itertools.product(
        (1, 200, 201), (0.1999, 0.2, 0.9989, 0.999, 1.0), (0.5, 0.9989, 0.999)
    ):
        words[epoch, value, whole] = task.stop(epoch, {**dict(zip(keys, (value, whole), strict=True)), "loss": 1.0})
    for (epoch, value, whole), word in words.items():
        if name not in COPIES or name == "copy_gu":
            assert word is None
        elif value >= 0.999 and whole >= 0.999:
            assert word == "solved"
        else:
            assert word == ("failed" if epoch > 200 and value < 0.2 else None)


def test_copy_as_gu_et_al_have_it_ends_by_steps_alone():
    solved = {"accuracy": 1.0, "sequence_accuracy": 1.0, "loss": 0.0}
    assert Copy(T=5, layout="gu").stop(1, solved) is None
    assert Copy(T=5, layout="paper").stop(1, solved) == "solved"


@each_task
@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"train_size": 0}, {"valid_size": -1}, {"test_size": 0}])
def test_sizes_are_positive(make, name, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        make(name, **bad)


@pytest.mark.parametrize(
    ("name", "bad", "mend"),
    [
        ("copy", {"layout": "text"}, "paper, authors, tallec, gu"),
        ("copy", {"score": "last"}, "all, answers"),
        ("copy", {"T": -1}, "at least 0"),
        ("copy_authors", {"T": 0}, "at least 1"),
        ("copy_tallec", {"T": 0}, "at least 1"),
        ("variable_copy", {"low": 5, "high": 4}, "0 <= low <= high"),
        ("adding", {"T": 1}, "at least 2"),
        ("imdb", {"pad": "left"}, "end, front"),
        ("imdb", {"readout": "last"}, "last_step, true_length"),
        ("imdb", {"outputs": 3}, "1, 2"),
        ("imdb", {"dropout": 1.0}, "below 1"),
        ("imdb", {"steps": 0}, "at least 1"),
        ("imdb", {"test_size": 101}, "100 test"),
        ("imdb", {"allow_partial": False}, "800 of 25,000 train reviews.*allow_partial=true"),
        ("scifar", {"train_size": 601 - 40}, "600 training"),
        ("scifar", {"allow_partial": False}, "600 of 50,000 training images, 100 of 10,000 test images"),
        ("pmnist", {"permutation": "bitreversal"}, "none, bit_reversal, random"),
        ("smnist", {"length": 0}, "between 1 and 784"),
        ("pmnist", {"length": 785}, "between 1 and 784"),
        ("smnist", {"train_size": 601 - 40}, "600 training"),
        ("smnist", {"test_size": 101}, "100 test"),
        ("frequency_async", {"sampling": "sync"}, "async, sync_1, sync_01"),
        ("frequency_async", {"negatives": "log"}, "log_uniform, uniform"),
    ],
)
def test_bad_arguments_say_what_is_right(make, name, bad, mend):
    with pytest.raises(ValueError, match=mend):
        make(name, **bad)


# --- copy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [1, 5, 200])
@pytest.mark.parametrize(
    ("layout", "length", "signals", "first_answer"),
    [("paper", 20, [10], 10), ("authors", 19, [9], 9), ("tallec", 20, [9], 10), ("gu", 20, range(10, 20), 10)],
)
def test_copy_layouts(layout, length, signals, first_answer, T):
    """Positions as T + offset, counted from 0: the table of the papers' and their codes' layouts."""
    task = Copy(T=T, layout=layout, train_size=20, valid_size=5, test_size=5, batch_size=20)
    batch = next(task.batches("train"))
    assert batch.x.shape == batch.target.shape == (T + length, 20)
    symbols = batch.x[:10]
    assert symbols.max() <= 7
    dummy, signal = 8, 9
    expected = torch.full((T + length,), dummy)
    expected[[T + k for k in signals]] = signal
    assert (batch.x[10:] == expected[10:, None]).all()
    assert (batch.target[: T + first_answer] == dummy).all()
    assert torch.equal(batch.target[T + first_answer :], symbols)
    assert batch.mask is None
    assert batch.dt is None


def test_copy_symbols_are_uniform_and_independent():
    task = Copy(T=1, train_size=8000, batch_size=8000, valid_size=1, test_size=1)
    symbols = next(task.batches("train")).x[:10]
    for row in symbols:
        assert stats.chisquare(torch.bincount(row, minlength=8).numpy()).pvalue > 1e-4
    pairs = torch.bincount(8 * symbols[0] + symbols[1], minlength=64)
    assert stats.chisquare(pairs.numpy()).pvalue > 1e-4
    assert len({tuple(s) for s in symbols.T.tolist()}) > 7990


@pytest.mark.parametrize("score", ["all", "answers"])
@pytest.mark.parametrize("layout", ["paper", "authors", "tallec", "gu"])
def test_copy_scored_positions(layout, score):
    task = Copy(T=4, layout=layout, score=score, train_size=6, valid_size=5, test_size=5, batch_size=6)
    batch = next(task.batches("train"))
    logits = torch.randn(*batch.target.shape, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (g,) = torch.autograd.grad(task.loss(logits, batch), logits)
    touched = g.abs().sum((1, 2)) > 0
    assert touched.tolist() == [score == "all" or t >= task.steps - 10 for t in range(task.steps)]
    log_p = logits.detach().log_softmax(-1).gather(-1, batch.target.unsqueeze(-1)).squeeze(-1)
    log_p = log_p[-10:] if score == "answers" else log_p
    assert task.loss(logits, batch).item() == pytest.approx(-log_p.mean().item(), rel=1e-6)
    # accuracy reads the ten answers only, and a sequence counts when all ten are right
    logits = answer(task, batch)
    logits[:-10] = 0
    logits[-3, 0] = 0
    logits[-3, 0, (batch.target[-3, 0] + 1) % 8] = 1
    sums = task.metrics(logits, batch)
    assert (sums["accuracy"][0].item(), sums["accuracy"][1]) == (59, 60)
    assert (sums["sequence_accuracy"][0].item(), sums["sequence_accuracy"][1]) == (5, 6)


@pytest.mark.parametrize(("T", "level"), [(200, 0.0945), (500, 0.0400), (1000, 0.0204)])
def test_copy_chance_as_printed(T, level):
    assert Copy(T=T).chance() == pytest.approx(level, abs=5.1e-5)
    assert Copy(T=T, score="answers").chance() == pytest.approx(2.079, abs=5.1e-4)
    assert Copy(T=50, layout="authors").chance() == pytest.approx(0.3014, abs=5.1e-5)
    assert Copy(T=T).spec.horizon == 3 * T // 2  # chrono's T_max = 3T/2


def test_copy_is_the_papers_size_by_default():
    task = Copy()
    assert [task.size(split) for split in SPLITS] == [100_000, 10_000, 10_000]
    assert task.n_batches("train") == 782
    assert task.batch_size == 128


def test_copy_keeps_its_set_whatever_the_batch_size():
    def sequences(batch_size):
        task = Copy(T=3, train_size=50, valid_size=1, test_size=1, batch_size=batch_size)
        return torch.cat([b.x for b in task.batches("train")], 1)

    assert torch.equal(sequences(7), sequences(50))


# --- pixel digits -------------------------------------------------------------------------------------------------


def test_bit_reversal_as_printed():
    order = bit_reversal(784)
    assert order[:16].tolist() == [0, 512, 256, 768, 128, 640, 384, 64, 576, 320, 192, 704, 448, 32, 544, 288]
    assert order[-8:].tolist() == [703, 447, 127, 639, 383, 255, 767, 511]
    assert (torch.arange(784) * order).sum() == 120_707_268
    assert order.sort().values.tolist() == list(range(784))
    assert bit_reversal(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    for n in (1, 2, 5, 784):  # by strings of bits
        bits = max((n - 1).bit_length(), 1)
        assert [k for k in (int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits)) if k < n] == bit_reversal(n).tolist()


@pytest.mark.parametrize("permutation", ["bit_reversal", "random"])
def test_digits_are_permuted_by_x_of_perm(make, permutation):
    plain, permuted = (epoch_of(make("smnist", permutation=p), "test")[0] for p in ("none", permutation))
    order = pixel_order(permutation)
    assert torch.equal(permuted.x, plain.x[order])
    assert order.sort().values.tolist() == list(range(784))
    assert torch.equal(permuted.target, plain.target)


def test_fewer_pixels_are_the_first_of_the_order(make):
    whole, some = (epoch_of(make("pmnist", length=n), "test")[0] for n in (None, 196))
    assert torch.equal(some.x, whole.x[:196])
    assert make("pmnist", length=196).spec.horizon == 196
    assert (bit_reversal(784)[:196] % 4 == 0).all(), "every fourth pixel"


def test_the_random_order_is_one_for_every_run(make):
    def first(**more):
        return epoch_of(make("pmnist_random", **more), "test")[0]

    assert equal(first(seed=0), first(seed=1))
    assert not equal(first(), first(permutation_seed=1))
    assert not torch.equal(pixel_order("random", 0), pixel_order("random", 1))


def test_digits_are_scaled_and_read_row_by_row(make, digits_root):
    batch = epoch_of(make("smnist"), "test")[0]
    raw = mnist.read_idx(digits_root / "MNIST" / "raw" / "t10k-images-idx3-ubyte")[:30]
    assert batch.x.shape == (784, 30, 1)
    assert batch.x.min() == 0.0
    assert batch.x.max() == 1.0
    for row, column in ((0, 0), (0, 27), (1, 0), (13, 5), (27, 27)):
        expected = torch.from_numpy(raw[:, row, column] / np.float32(255))
        assert torch.equal(batch.x[28 * row + column, :, 0], expected)
    assert batch.target.tolist() == [k % 10 for k in range(100_000, 100_030)]


@pytest.mark.parametrize("name", ["smnist", "pmnist"])
def test_digits_shuffle_is_a_permutation_per_epoch(make, name):
    task = make(name)
    order = pixel_order("bit_reversal" if name == "pmnist" else "none")

    def read(split, epoch):
        batches = epoch_of(task, split, epoch)
        seen = torch.cat([numbers(batch, order) for batch in batches])
        assert torch.equal(torch.cat([b.target for b in batches]), seen % 10)  # labels travel with their images
        return seen.tolist()

    first, second = read("train", 0), read("train", 1)
    assert sorted(first) == sorted(second) == list(range(70))
    assert first != second
    assert first != sorted(first)
    assert read("train", 0) == first
    assert read("valid", 0) == read("valid", 1) == list(range(560, 600))  # the last of the training images
    assert read("test", 0) == list(range(100_000, 100_030))


# First ten labels, mean and standard deviation of a pixel: MNIST's own, known everywhere.
REAL = {"train": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], "test": [7, 2, 1, 0, 4, 1, 4, 9, 5, 9], "mean": 0.1307, "sd": 0.3081}


def test_digits_at_full_size(tmp_path):
    """On the real files where TIMESCALES_DATA has them, else on files of the same size made here."""
    real = bool(os.environ.get("TIMESCALES_DATA")) and mnist.CORPUS.find(data_root(None)) is not None
    root = data_root(None) if real else tmp_path
    if not real:
        write_mnist(tmp_path / "MNIST" / "raw", 60_000, 10_000)
    images, labels, test_images, test_labels = mnist.load(root)
    assert images.shape == (60_000, 784)
    assert test_images.shape == (10_000, 784)
    assert images.dtype == labels.dtype == torch.uint8
    found = mnist.files(mnist.CORPUS.find(root))[0]
    data = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    if real:
        assert hashlib.md5(data).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
        assert images.double().mean().item() / 255 == pytest.approx(REAL["mean"], abs=5.1e-5)
        assert images.double().std().item() / 255 == pytest.approx(REAL["sd"], abs=5.1e-5)
    assert data[16:] == images.numpy().tobytes()
    expected = REAL if real else {k: [n % 10 for n in range(10)] for k in ("train", "test")}
    assert labels[:10].tolist() == expected["train"]
    assert test_labels[:10].tolist() == expected["test"]

    task = Digits(permutation="bit_reversal", data_root=str(root))
    assert [task.size(split) for split in SPLITS] == [50_000, 10_000, 10_000]
    assert task.n_batches("train") == 391
    assert task.spec.horizon == 784
    order = bit_reversal(784)
    valid = next(task.batches("valid"))
    assert torch.equal((valid.x[:, :, 0] * 255).round().byte(), images[50_000:50_500].T[order])
    assert torch.equal(valid.target, labels[50_000:50_500].long())
    test = list(task.batches("test"))[-1]
    assert torch.equal((test.x[:, :, 0] * 255).round().byte(), test_images[-500:].T[order])
    seen = torch.cat([b.target for b in task.batches("test")])
    assert torch.equal(seen, test_labels.long())
    # the best constant predictor: MNIST's classes are not quite equal, .0016 below ln 10
    share = torch.bincount(labels[:50_000].long(), minlength=10).double() / 50_000
    entropy = -(share * share.log()).sum().item()
    assert task.chance() == pytest.approx(entropy, abs=2e-3)
    # the shuffled training images are those before the cut, each once: compared by a hash of their bytes
    weight = torch.arange(1, 785, dtype=torch.float64)
    keys = images[:50_000, order].double() @ weight
    epoch = torch.cat([(b.x[:, :, 0].double() * 255).round().T @ weight for b in task.batches("train")])
    assert torch.equal(epoch.sort().values, keys.sort().values)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist/raw", "mnist", "MNIST", "."])
def test_idx_files_are_found_raw_or_gzipped(tmp_path, folder, suffix):
    write_mnist(tmp_path / folder, 30, 10, suffix)
    images, labels, test_images, test_labels = mnist.load(tmp_path)
    assert (images.shape, labels.shape, test_images.shape, test_labels.shape) == ((30, 784), (30,), (10, 784), (10,))
    assert labels.tolist() == [k % 10 for k in range(30)]
    assert images[:, 0].tolist() == list(range(30))


def spoil(path, change):
    path.write_bytes(change(path.read_bytes()))


DAMAGE = {
    "truncated": lambda data: data[:-5],
    "too_long": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "head_only": lambda data: data[:6],
    "wrong_magic": lambda data: b"\1" + data[1:],
    "other_type": lambda data: data[:2] + b"\x0d" + data[3:],
    "a_web_page": lambda data: b"<!DOCTYPE html><html>moved</html>",
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("number", range(4))
def test_damaged_idx_files_are_named(tmp_path, how, number):
    path = write_mnist(tmp_path / "mnist", 30, 10) / mnist.FILES[number]
    spoil(path, DAMAGE[how])
    with pytest.raises(ValueError, match="fetch it again") as error:
        mnist.load(tmp_path)
    assert str(path) in str(error.value)
    assert not isinstance(error.value, MissingData)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3],
        lambda data: b"",
        lambda data: b"not gzip at all",
        lambda data: data[:200] + bytes(255 - b for b in data[200:240]) + data[240:],
        lambda data: data[:10] + b"\7" + data[11:],  # a block of a type that deflate does not have
        lambda data: data[:-8] + bytes(8),
    ],
    ids=["half", "tail_lost", "empty", "not_gzip", "flipped_bytes", "wrong_block", "wrong_checksum"],
)
def test_damaged_gzip_files_are_named(tmp_path, change):
    path = write_mnist(tmp_path / "mnist", 30, 10, ".gz") / (mnist.FILES[0] + ".gz")
    spoil(path, change)
    with pytest.raises(ValueError, match="fetch it again") as error:
        mnist.load(tmp_path)
    assert str(path) in str(error.value)


def test_other_images_than_mnists_are_marked(tmp_path, monkeypatch):
    arrays = mnist.load(write_mnist(tmp_path / "mnist", 30, 10).parent)
    held = mnist.digest(array.numpy() for array in arrays)
    counts = {"training images": 30, "test images": 10, "digest": held}
    monkeypatch.setattr(mnist, "CORPUS", dataclasses.replace(mnist.CORPUS, counts=counts))
    assert mnist.partial(arrays) == []
    arrays[1][29] += 1
    (words,) = mnist.partial(arrays)
    assert words.startswith("MNIST subset: the right size, but another content")


def test_files_that_do_not_belong_together(tmp_path):
    folder = write_mnist(tmp_path / "mnist", 30, 10)
    write_idx(folder / mnist.FILES[1], np.zeros(29, np.uint8))
    with pytest.raises(ValueError, match="are not MNIST's"):
        mnist.load(tmp_path)
    write_mnist(folder, 30, 10)
    write_idx(folder / mnist.FILES[2], np.zeros((10, 32, 32), np.uint8))
    with pytest.raises(ValueError, match="are not MNIST's"):
        mnist.load(tmp_path)


@pytest.mark.parametrize("how", ["nothing", "one_missing", "no_folder"])
def test_missing_data_names_the_place(tmp_path, no_download, how):
    root = tmp_path / "somewhere" if how == "no_folder" else tmp_path
    if how == "one_missing":
        (write_mnist(tmp_path / "mnist", 30, 10) / mnist.FILES[3]).unlink()
    with pytest.raises(MissingData) as error:
        Digits(data_root=str(root))
    assert isinstance(error.value, ValueError)
    for word in (str(root), "MNIST/raw", "data_root", "TIMESCALES_DATA"):
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def fake_torchvision(monkeypatch, MNIST):
    module = types.ModuleType("torchvision.datasets")
    module.MNIST = MNIST
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    monkeypatch.setattr("timescales.tasks.data.corpus._check_reachable", lambda url: None)


def test_without_network_nothing_is_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingData, match=r"\(HF_HUB_OFFLINE is set\)\. .* `python scripts/fetch_data\.py mnist`"):
        mnist.load(tmp_path)


def test_idx_files_lie_in_one_folder(tmp_path):
    """torchvision leaves both kinds: one of each will do, and what is not there is missed."""
    folder = write_mnist(tmp_path / "mnist", 30, 10)
    write_mnist(folder, 30, 10, ".gz")
    (folder / mnist.FILES[0]).unlink()
    assert [p.name for p in mnist.files(mnist.CORPUS.find(tmp_path))] == [f"{mnist.FILES[0]}.gz", *mnist.FILES[1:]]
    for suffix in ("", ".gz"):
        (folder / f"{mnist.FILES[1]}{suffix}").unlink()
    with pytest.raises(ValueError, match="mnist has 3 of MNIST's four idx files: put the others beside them"):
        mnist.load(tmp_path)


def test_a_failed_download_says_why(tmp_path, monkeypatch):
    def MNIST(root, train, download):
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz:\nTried mirrors")

    fake_torchvision(monkeypatch, MNIST)
    with pytest.raises(MissingData, match=r"Error downloading train-images-idx3-ubyte\.gz") as error:
        mnist.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_download_is_read(tmp_path, monkeypatch):
    def MNIST(root, train, download):
        assert download
        write_mnist(tmp_path.__class__(root) / "MNIST" / "raw", 30, 10)

    fake_torchvision(monkeypatch, MNIST)
    assert mnist.load(tmp_path)[0].shape == (30, 784)


def test_data_root_given_then_environment_then_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TIMESCALES_DATA", str(tmp_path / "env"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root(None) == tmp_path / "env"
    monkeypatch.delenv("TIMESCALES_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(None) == tmp_path / "cache" / "timescales" / "data"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/x") == tmp_path / "x"


# --- frequency discrimination -------------------------------------------------------------------------------------

SAMPLINGS = ("async", "sync_1", "sync_01")
INTERVAL = {"sync_1": 1.0, "sync_01": 0.1}


def draw(n, seed=0, **arguments):
    """n sequences from the generator: time (n, S), exists, period, shift, label."""
    task = Frequency(**arguments)
    time, exists, phase, label = task._draw(n, torch.Generator().manual_seed(seed))
    return time, exists, phase[:, 0], phase[:, 1], label


def within(value, expected, sd, n):
    """A mean of n draws: five standard errors."""
    assert value == pytest.approx(expected, abs=5 * sd / math.sqrt(n))


@pytest.mark.parametrize(
    ("negatives", "positives", "ceiling"), [("log_uniform", 0.5198, 0.9956), ("uniform", 0.5, 0.9997)]
)
def test_periods_and_labels(negatives, positives, ceiling):
    n = 40_000
    _, _, period, _, label = draw(n, sampling="sync_1", negatives=negatives)
    assert torch.equal(label, ((period >= 5) & (period <= 6)).long())
    within(label.double().mean().item(), positives, 0.5, n)

    def mixture(x):  # half from the band, half from the negatives' law
        if negatives == "log_uniform":
            other = np.log(x) / math.log(100)
        else:
            other = (np.clip(x, 1, 5) - 1 + np.clip(x, 6, 100) - 6) / 98
        return 0.5 * np.clip(x - 5, 0, 1) + 0.5 * other

    assert period.min() >= 1
    assert period.max() <= 100
    assert stats.kstest(period.numpy(), mixture).pvalue > 1e-3
    if negatives == "uniform":
        assert label.sum() == n // 2
    # With a point at every 1, periods of 1.2 to 1.25 alias into the band: no one can tell them from label 1.
    aliased = ((period > 1.2) & (period < 1.25) & (label == 0)).double().mean().item()
    assert 1 - aliased == pytest.approx(ceiling, abs=5 * math.sqrt((1 - ceiling) / n) + 5e-5)
    t = torch.arange(50.0, dtype=torch.float64)
    for p in (5.1, 5.9):
        alias = p / (p - 1)
        assert 1.2 < alias < 1.25
        torch.testing.assert_close(
            torch.sin(2 * math.pi * t / p - 0.7), torch.sin(-2 * math.pi * t / alias - 0.7), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("negatives", ["log_uniform", "uniform"])
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_labels_are_balanced_whatever_the_batch_size(negatives, batch_size):
    task = Frequency(sampling="sync_1", negatives=negatives, train_size=1200, batch_size=batch_size)
    label = torch.cat([b.target for b in task.batches("train")]).double()
    within(label.mean().item(), 0.5198 if negatives == "log_uniform" else 0.5, 0.5, 1200)


@pytest.mark.parametrize(
    ("sampling", "least", "most", "mean"),
    [("async", 15, 124, 69.5), ("sync_1", 16, 125, 70.5), ("sync_01", 151, 1250, 700.5)],
)
def test_numbers_of_points(sampling, least, most, mean):
    n = 2000 if sampling == "sync_01" else 20_000
    time, exists, *_ = draw(n, sampling=sampling)
    count = exists.sum(1)
    scale = 10 if sampling == "sync_01" else 1
    assert least <= count.min() <= least + 2 * scale
    assert most - 2 * scale <= count.max() <= most
    within(count.double().mean().item(), mean, 31.8 * scale, n)
    assert stats.kstest(count.double().numpy() / scale, stats.uniform(15, 110).cdf).statistic < 0.03
    # front padding: the points that exist are the last ones
    assert exists[:, -1].all()
    assert (exists.long().diff(dim=1) >= 0).all()
    assert exists[count.argmax()].sum() == exists.shape[1]
    # every wave lies within [0, 125]
    points = time[exists]
    assert points.min() >= 0
    assert points.max() < 125


@pytest.mark.parametrize("sampling", ["sync_1", "sync_01"])
def test_regular_samples(sampling):
    n = 500 if sampling == "sync_01" else 5000
    time, exists, *_ = draw(n, sampling=sampling)
    gap = time.diff(dim=1)[exists[:, :-1]]
    torch.testing.assert_close(gap, torch.full_like(gap, INTERVAL[sampling]), rtol=0, atol=1e-12)
    start, end = time.gather(1, (~exists).sum(1, keepdim=True))[:, 0], time[:, -1]
    duration = end - start + INTERVAL[sampling]  # to within one interval
    # start ~ U(0, 125 - duration)
    share = start / (125 - duration + INTERVAL[sampling])
    assert stats.kstest(share[duration < 110].numpy(), stats.uniform(0, 1).cdf).statistic < 0.08


def test_irregular_samples():
    """Sorted uniform points: on average 69, the largest gap 4.6 in the median and up to 44."""
    time, exists, *_ = draw(20_000, sampling="async")
    both = exists[:, :-1]
    gap = torch.where(both, time.diff(dim=1), 0.0)
    assert (gap >= 0).all()
    largest = gap.max(1).values
    assert largest.median().item() == pytest.approx(4.6, abs=0.1)  # standard error .03
    assert 30 < largest.max() < 80
    # within a sequence the points are uniform: the share below the middle of the longest ones
    long = exists.sum(1) >= 100
    start = time.gather(1, (~exists).sum(1, keepdim=True))
    share = ((time - start) / (time[:, -1:] - start))[long][exists[long]]
    inner = share[(share > 0) & (share < 1)]
    assert stats.kstest(inner[:: len(inner) // 5000].numpy(), stats.uniform(0, 1).cdf).pvalue > 1e-3
    # steps shorter than epsilon do occur: in 10 % of the sequences one below 1e-3
    short = (torch.where(both, time.diff(dim=1), 1.0).min(1).values < 1e-3).double().mean().item()
    assert short == pytest.approx(0.10, abs=0.02)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_duration_and_shift(sampling):
    """The released generator: duration ~ U(15, 125), shift ~ U(0, that sequence's own duration), in radians."""
    n = 1000 if sampling == "sync_01" else 10_000
    _time, exists, _, shift, _ = draw(n, sampling=sampling)
    assert shift.min() >= 0
    if sampling == "async":
        within(shift.mean().item(), 35.0, 27.3, n)
    else:
        longest = exists.sum(1) * INTERVAL[sampling]  # duration, rounded up to a whole number of intervals
        assert stats.kstest(longest.double().numpy(), stats.uniform(15, 110).cdf).statistic < 0.05
        assert (shift <= longest).all()
        assert stats.kstest((shift / longest).numpy(), stats.uniform(0, 1).cdf).statistic < 0.05


@pytest.fixture
def float64_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("negatives", ["log_uniform", "uniform"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("split", ["train", "valid"])
def test_batches_are_the_waves_of_their_periods(sampling, negatives, split, float64_default):
    task = Frequency(sampling=sampling, negatives=negatives, time_input=True, batch_size=16, valid_size=16)
    batch = next(task.batches(split, epoch=0))
    time, exists, phase, label = task._draw(16, task.generator(split, 0, 0))
    period, shift = phase[:, 0], phase[:, 1]
    assert torch.equal(batch.target, label)
    assert torch.equal(batch.target, ((period >= 5) & (period <= 6)).long())
    assert torch.equal(batch.mask.bool(), exists.T)
    seen, wave = batch.x[..., 1], batch.x[..., 0]
    real = batch.mask.bool()
    torch.testing.assert_close(seen[real], time.T[real], rtol=0, atol=1e-12)
    expected = torch.sin(2 * math.pi * seen / period - shift)
    torch.testing.assert_close(wave[real], expected[real], rtol=0, atol=1e-12)
    assert not batch.x[~real].any()
    first = (~real).long().sum(0)
    for b in range(16):
        own = slice(int(first[b]), None)
        assert batch.dt[first[b], b] == 1.0
        torch.testing.assert_close(batch.dt[own, b][1:], seen[own, b].diff(), rtol=0, atol=1e-12)
    assert (batch.dt >= 0).all()
    alone = next(Frequency(sampling=sampling, negatives=negatives, batch_size=16, valid_size=16).batches(split))
    assert torch.equal(alone.x[..., 0], wave)  # without the time as input: the same waves
    assert alone.x.shape[2] == 1


def test_short_steps_survive_float32():
    """dt is taken in float64 and rounded afterwards: differences of float32 times near 100 would be off by 1e-5."""
    task = Frequency(batch_size=500, train_size=500)
    batch = next(task.batches("train"))
    time, exists, *_ = task._draw(500, task.generator("train", 0, 0))
    gap, both = time.diff(dim=1).T, exists[:, :-1].T
    assert batch.dt.dtype == torch.float32
    torch.testing.assert_close(batch.dt[1:][both], gap[both].float(), rtol=0, atol=0)
    assert (batch.dt[1:][both] < 1e-3).any()


@pytest.mark.parametrize("kind", ["LSTM", "PLSTM"])
def test_padding_does_not_touch_the_answer(kind, float64_default):
    torch.manual_seed(0)
    task = Frequency(batch_size=6, time_input=True)
    model = SequenceModel(getattr(timescales, kind)(2, 4), task.spec)
    batch = next(task.batches("train"))
    with torch.no_grad():
        together = model(batch).logits
        for b in range(6):
            real, one = batch.mask[:, b].bool(), slice(b, b + 1)
            alone = Batch(batch.x[real, one], batch.target[one], None, batch.dt[real, one])
            torch.testing.assert_close(model(alone).logits[0], together[b], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("sampling", "horizon"), [("async", 125), ("sync_1", 125), ("sync_01", 1250)])
def test_frequency_defaults(sampling, horizon):
    task = Frequency(sampling=sampling)
    assert task.spec.horizon == horizon
    assert (task.batch_size, task.size("train"), task.n_batches("train")) == (32, 5000, 157)
    assert (task.spec.input_size, task.spec.output_size, task.spec.readout) == (1, 2, "last")
    assert task.chance() == pytest.approx(0.6924, abs=1e-4)  # entropy of 51.98 %
    assert Frequency(negatives="uniform").chance() == pytest.approx(math.log(2), abs=1e-12)
