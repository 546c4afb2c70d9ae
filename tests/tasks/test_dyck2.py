"""Dyck-2: strings, statistics, targets, score."""

import math

import pytest
import torch
from configs import config

from timescales.config import identity
from timescales.tasks import Dyck2
from timescales.tasks.dyck2 import LONGEST, strings
from timescales.training import build


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
