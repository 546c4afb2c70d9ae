"""Time rescaling: signals in NumPy, speeds of the splits, metrics by speed."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from timescales.tasks import TimeRescaling
from timescales.tasks.rescaling import MORSE

SIZES = {"batch_size": 200, "train_size": 200, "valid_size": 60, "test_size": 60}


def heard(code, unit):
    """What a code sounds like, step by step, with the silence after it."""
    marks = [np.repeat([1, 0], [1 if mark == "." else 3, 1]) for mark in code]
    return np.repeat(np.concatenate([*marks, [0, 0]]), unit)


@pytest.mark.parametrize("split", ["train", "test"])
def test_each_sequence_is_a_silence_and_a_letter_at_the_speed_of_its_split(split):
    task = TimeRescaling(unit=3, test_units=[1, 3, 5], letters=26, lead=2, **SIZES)
    batch = next(task.batches(split))
    silences = []
    for x, mask, (letter, unit) in zip(
        batch.x[..., 0].T.numpy(), batch.mask.T.numpy(), batch.target.tolist(), strict=True
    ):
        assert np.array_equal(np.sort(mask), mask)  # padded at the front
        sound = heard(MORSE[letter], unit)
        silence, rest = np.split(x[mask], [mask.sum() - len(sound)])
        assert rest.tolist() == sound.tolist()
        assert not silence.any()
        assert not x[~mask].any()
        silences.append(len(silence) / unit)
    assert set(silences) == {0, 1, 2}
    assert sorted(set(batch.target[:, 1].tolist())) == ([3] if split == "train" else [1, 3, 5])
    assert batch.mask.any(1).all()


def test_letters_and_silences_are_uniform():
    task = TimeRescaling(letters=5, train_size=5_000, batch_size=5_000, valid_size=5, test_size=5)
    assert stats.chisquare(np.bincount(next(task.batches("train")).target[:, 0])).pvalue > 1e-3
    assert task.chance() == pytest.approx(math.log(5))


def test_accuracy_is_told_for_each_speed():
    task = TimeRescaling(unit=2, test_units=[1, 2, 4], letters=4, **SIZES)
    batch = next(task.batches("test"))
    letter, unit = batch.target.T
    logits = torch.nn.functional.one_hot(torch.where(unit == 4, (letter + 1) % 4, letter), 4).double()
    sums = {name: (float(total), n) for name, (total, n) in task.metrics(logits, batch).items()}
    assert {name: sums[name] for name in sums if name != "loss"} == {
        "accuracy": (40, 60),
        "accuracy_at_1": (20, 20),
        "accuracy_at_2": (20, 20),
        "accuracy_at_4": (0, 20),
    }
    valid = next(task.batches("valid"))
    assert set(task.metrics(torch.zeros(60, 4), valid)) == {"loss", "accuracy", "accuracy_at_2"}


def test_the_alphabet_is_the_international_one():
    """SOS and the letters that are one another's mirror image."""
    code = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", MORSE, strict=True))
    assert [code[letter] for letter in "SOS"] == ["...", "---", "..."]
    assert len(set(MORSE)) == 26
    assert [code[a] == code[b][::-1] for a, b in ("AN", "DU", "GW", "BV", "FL", "QY")] == [True] * 6
