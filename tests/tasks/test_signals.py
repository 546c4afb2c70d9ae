"""Check frequency discrimination and time rescaling: statistics of the signals, batches, speeds."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import timescales
from timescales.tasks import Frequency, TimeRescaling
from timescales.tasks.rescaling import MORSE

INTERVAL = {"sync_1": 1.0, "sync_01": 0.1}


def draw(n, seed=0, **arguments):
    """n sequences from the generator: time (n, S), exists, period, shift, label."""
    task = Frequency(**arguments)
    time, exists, phase, label = task._draw(n, torch.Generator().manual_seed(seed))
    return time, exists, phase[:, 0], phase[:, 1], label


def within(value, expected, sd, n):
    """A mean of n draws: five standard errors."""
    assert value == pytest.approx(expected, abs=5 * sd / math.sqrt(n))


@pytest.mark.parametrize(("negatives", "share", "ceiling"), [("log_uniform", 0.5198, 0.9956), ("uniform", 0.5, 0.9997)])
def test_periods_and_labels(negatives, share, ceiling):
    n = 40_000
    _, _, period, _, label = draw(n, sampling="sync_1", negatives=negatives)
    assert torch.equal(label, ((period >= 5) & (period <= 6)).long())
    within(label.double().mean().item(), share, 0.5, n)

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


@pytest.mark.parametrize("sampling", ["async", "sync_1", "sync_01"])
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


@pytest.mark.parametrize(
    ("sampling", "negatives", "split"),
    [("async", "log_uniform", "train"), ("sync_1", "uniform", "valid"), ("sync_01", "uniform", "train")],
)
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


def test_frequency_defaults():
    task = Frequency()
    assert (task.batch_size, task.size("train"), task.n_batches("train")) == (32, 5000, 157)
    assert (task.spec.input_size, task.spec.output_size, task.spec.readout) == (1, 2, "last")
    assert [Frequency(sampling=name).spec.horizon for name in ("async", "sync_1", "sync_01")] == [125, 125, 1250]
    assert task.chance() == pytest.approx(0.6924, abs=1e-4)  # entropy of 51.98 %
    assert Frequency(negatives="uniform").chance() == pytest.approx(math.log(2), abs=1e-12)


def test_the_time_as_an_input_in_units_of_the_longest_sequence():
    tasks = [Frequency(time_input=True, time_unit=unit, train_size=64) for unit in ("raw", "longest")]
    raw, longest = (next(task.batches("train")) for task in tasks)
    assert 60 < raw.x[..., 1].max() <= 125
    torch.testing.assert_close(longest.x[..., 1], raw.x[..., 1] / 125)
    assert torch.equal(longest.x[..., 0], raw.x[..., 0])
    assert torch.equal(longest.dt, raw.dt)


def test_without_the_clock_every_step_counts_as_one():
    with_clock, without = (next(Frequency(dt=dt, train_size=64).batches("train")) for dt in (True, False))
    assert without.dt is None
    assert torch.equal(without.x, with_clock.x)
    torch.manual_seed(0)
    layer = timescales.PLSTM(1, 4)
    ones = torch.ones_like(with_clock.dt)
    torch.testing.assert_close(layer(without.x, mask=without.mask)[0], layer(without.x, dt=ones, mask=without.mask)[0])


# --- Time rescaling --------------------------------------------------------------------------------------------------
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
    sequences = zip(batch.x[..., 0].T.numpy(), batch.mask.T.numpy(), batch.target.tolist(), strict=True)
    for x, mask, (letter, unit) in sequences:
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
    sums = {name: (float(total), n) for name, (total, n) in task.metrics(logits, batch).items() if name != "loss"}
    of_speeds = {"accuracy_at_1": (20, 20), "accuracy_at_2": (20, 20), "accuracy_at_4": (0, 20)}
    assert sums == {"accuracy": (40, 60), **of_speeds}
    valid = next(task.batches("valid"))
    assert set(task.metrics(torch.zeros(60, 4), valid)) == {"loss", "accuracy", "accuracy_at_2"}


def test_the_alphabet_is_the_international_one():
    """SOS and the letters that are one another's mirror image."""
    code = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", MORSE, strict=True))
    assert [code[letter] for letter in "SOS"] == ["...", "---", "..."]
    assert len(set(MORSE)) == 26
    assert [code[a] == code[b][::-1] for a, b in ("AN", "DU", "GW", "BV", "FL", "QY")] == [True] * 6
