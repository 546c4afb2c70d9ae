"""What every task must keep: the same data for the same seed, sizes, shapes, losses, metrics, chance."""

import itertools
import math

import numpy as np
import pytest
import torch
from small_tasks import COPIES, SAME_SET, TASKS, answer, each_task, epoch_of, equal, joined, one_batch, sequences

from timescales import LSTM, tasks
from timescales.models.sequence import SequenceModel
from timescales.tasks.copy import DUMMY
from timescales.tasks.data.text import SPLITS
from timescales.tasks.task import IGNORED, loss_of_steps, sizes_within

SEQUENCES = (tasks.Copy, tasks.VariableCopy, tasks.SelectiveCopy, tasks.WordProblem, tasks.Program, tasks.MQAR)
METRICS = {kind: {"loss", "accuracy", "sequence_accuracy"} for kind in SEQUENCES}
METRICS |= {kind: {"loss", "accuracy", "newest_accuracy"} for kind in (tasks.NParity, tasks.NDelayedMatch)}
METRICS |= {tasks.DelayedMatch: {"loss", "accuracy", "distractor_accuracy"}}
METRICS |= {tasks.LinearFunctional: {"loss"}}
# Of the best constant predictor's loss over 10,000 sequences, where it is above 2e-3; 59 / 20,000 for 60 classes.
SAMPLING_ERRORS = {"adding": 6e-3, "linear_functional": 1.5e-2, "linear_exponential": 1.5e-2, "n_parity": 8e-3}
SAMPLING_ERRORS |= {"word_problem": 4e-3, "program": 4e-3, "program_mix": 4e-3}


@each_task
def test_the_seed_alone_decides_on_the_data(make, name):
    """And every split is its own, every training epoch fresh where the task draws anew."""
    task, again, other = make(name, seed=3), make(name, seed=3), make(name, seed=4)
    for split in SPLITS:
        first = epoch_of(task, split, 2)
        torch.manual_seed(2)
        before = torch.get_rng_state()
        assert all(map(equal, first, epoch_of(again, split, 2)))
        assert torch.equal(torch.get_rng_state(), before)  # no draw from the global generator
        same = [equal(*pair) for pair in zip(first, epoch_of(other, split, 2), strict=True)]
        assert all(same) if name in SAME_SET and split != "train" else not any(same)
        same = all(map(equal, epoch_of(task, split, 0), epoch_of(task, split, 1)))
        assert same == (split != "train" or (name in COPIES and name != "copy_fresh"))


@each_task
def test_start_resumes_the_identical_batches(make, name):
    task, reader = make(name), make(name)
    for split, starts in (("train", (0, 1, 4, 5, 6)), ("valid", (1,))):
        whole = epoch_of(task, split, 1)
        for start in starts:
            next(reader.batches("train", 0))  # what was read before does not matter
            rest = epoch_of(reader, split, 1, start)
            assert len(rest) == max(len(whole) - start, 0)
            assert all(map(equal, rest, whole[start:]))


@each_task
def test_splits_differ(make, name):
    task = make(name, train_size=40, valid_size=40, test_size=40, batch_size=40)
    batches = [epoch_of(task, split)[0] for split in SPLITS]
    for a, b in itertools.combinations(batches, 2):
        assert not equal(a, b)
    if name in COPIES:
        seen = [{tuple(x.tolist()) for x in batch.x[:10].T} for batch in batches]
        assert all(a.isdisjoint(b) for a, b in itertools.combinations(seen, 2))


@each_task
def test_sizes_and_batches_fit_the_spec(make, name):
    def lengths(task, split):
        return [sequences(batch) for batch in task.batches(split)]

    task = make(name)
    assert [task.size(split) for split in SPLITS] == [70, 40, 30]
    assert task.n_batches("train") == 5
    assert lengths(task, "train") == [16, 16, 16, 16, 6]
    assert [lengths(task, split) for split in ("valid", "test")] == [[40], [30]]
    assert lengths(make(name, valid_size=501), "valid") == [500, 1]
    spec = task.spec
    for batch in task.batches("train"):
        steps, n = batch.x.shape[:2]
        if batch.target.is_floating_point():
            assert batch.target.dtype == torch.get_default_dtype()
        else:
            assert batch.target.dtype == torch.int64
            real = batch.target[batch.target != IGNORED]
            assert real.min() >= 0
            assert real.max() < max(spec.output_size, 2)
        if spec.input == "real":
            assert (batch.x.shape[2], batch.x.dtype) == (spec.input_size, torch.get_default_dtype())
        else:
            assert batch.x.dim() == 2
            assert batch.x.min() >= 0
            assert batch.x.max() < spec.input_size
        shape = (n,) if spec.readout == "last" else (steps, n)
        assert batch.target.shape[: len(shape)] == shape
        assert spec.width == (100 if spec.input == "tokens" else spec.input_size)
        for extra in (batch.mask, batch.dt):
            assert extra is None or extra.shape == batch.x.shape[:2]


@each_task
def test_a_model_learns_from_a_batch(make, name):
    torch.manual_seed(0)
    task = make(name, batch_size=3)
    model = SequenceModel(LSTM(task.spec.width, 4), task.spec).eval()  # no dropout
    batch = next(task.batches("train"))
    output = model(batch)
    loss = task.loss(output.logits, batch)
    assert loss.dim() == 0
    loss.backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in model.parameters())
    sums = task.metrics(output.logits, batch)
    assert sums["loss"][0].item() / sums["loss"][1] == pytest.approx(loss.item(), rel=1e-6)
    with pytest.raises(ValueError, match="batch_size"):
        make(name, batch_size=0)
    for size in ("train_size", "valid_size", "test_size"):
        with pytest.raises(ValueError, match=size):
            make(name, **{size: 0})


def answers(batch, copy):
    """The steps of a batch that are asked for; a copy task's dummies are scored, too."""
    return (batch.target != IGNORED) & (batch.target != DUMMY) if copy else batch.target != IGNORED


@pytest.mark.parametrize("name", [name for name, (kind, _) in TASKS.items() if kind in SEQUENCES])
def test_what_is_scored_step_by_step(make, name):
    """The loss reads each step that is scored, accuracy each answer, a sequence counts where all answers are right."""
    task = make(name)
    batch = next(task.batches("test"))
    asked = answers(batch, name in COPIES or name == "variable_copy")
    scored = asked if getattr(task, "score", "all") == "answers" else batch.target != IGNORED
    shape = *batch.target.shape, task.spec.output_size
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    loss = task.loss(logits, batch)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.equal(gradient.abs().sum(-1) > 0, scored)
    log_p = logits.detach().log_softmax(-1).gather(-1, batch.target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    assert loss.item() == pytest.approx(-log_p[scored].mean().item(), rel=1e-6)
    right = answer(task, batch)
    right[~asked] = torch.randn(shape, dtype=torch.float64)[~asked]
    step = int(asked[:, 3].nonzero()[-1])
    right[step, 3] = right[step, 3].roll(1)
    sums = {key: (float(total), n) for key, (total, n) in task.metrics(right, batch).items()}
    n = int(asked.sum())
    assert (sums["accuracy"], sums["sequence_accuracy"]) == ((n - 1, n), (29, 30))
    assert task.correct(right, batch).tolist() == [k != 3 for k in range(30)]


@each_task
def test_an_oracle_is_always_right(make, name):
    task = make(name)
    for split in SPLITS:
        for batch in task.batches(split):
            logits = answer(task, batch)
            sums = task.metrics(logits, batch)
            found = {key for key in sums if "_at_" not in key}  # rescaling: at each speed of the split
            assert found == METRICS.get(type(task), {"loss", "accuracy"})
            if "accuracy" in sums:
                assert task.correct(logits, batch).shape == (sequences(batch),)
                assert task.correct(logits, batch).all()
            for key, (total, n) in sums.items():
                assert total.item() == pytest.approx(0.0 if key == "loss" else n, abs=1e-9)
            assert task.loss(logits, batch).item() == pytest.approx(0.0, abs=1e-9)
            assert math.isnan(task.optimum()) or task.optimum() == 0.0
            wrong = task.metrics(-logits, batch)
            assert all(wrong[key][0] == 0 for key in wrong if key != "loss")


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


@pytest.mark.parametrize("classes", [2, 7, 8, 15, 16, 50])  # the order of dimensions changes at 8 or 16
def test_the_loss_of_steps_is_the_cross_entropy(classes):
    random = np.random.default_rng(classes)
    z, target = random.normal(size=(7, 3, classes)), random.integers(classes, size=(7, 3))
    target[:, 1], target[2:4] = IGNORED, IGNORED
    scored = target != IGNORED
    right = np.eye(classes)[np.where(scored, target, 0)]
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    each = np.where(scored, -np.log((p * right).sum(-1)), 0.0)
    logits = torch.tensor(z, requires_grad=True)
    for reduction, expected in (("none", each.ravel()), ("sum", each.sum()), ("mean", each.sum() / scored.sum())):
        loss = loss_of_steps(logits, torch.tensor(target), reduction)
        np.testing.assert_allclose(loss.detach(), expected, atol=1e-12)
    loss.backward()
    np.testing.assert_allclose(logits.grad, (p - right) * scored[..., None] / scored.sum(), atol=1e-12)


@each_task
def test_chance_is_the_best_constant_predictor(make, name):
    """The best answer that ignores the input, measured on data: at each position, how often each class was seen."""
    n = 500 if name in SAME_SET or "imdb" in name else 2000 if "01" in name else 10_000
    task = make(name, **{"test_size" if "program" in name else "train_size": n}, batch_size=500)
    # Training sequences of program are easier, but for one strategy; chance is that of the hardest level.
    batches = epoch_of(task, "test" if isinstance(task, tasks.Program) else "train")
    together = one_batch(task, batches)
    if name == "adding":
        logits = torch.ones(n, 1, dtype=torch.float64)
    elif isinstance(task, tasks.LinearFunctional):
        logits = torch.zeros(task.T, n, 1, dtype=torch.float64)
    elif isinstance(task, tasks.Curriculum):
        ones = together.target.double().mean(0)
        frequency = torch.stack([1 - ones, ones], -1).log().flatten()
        logits = torch.nn.functional.pad(frequency, (0, task.spec.output_size - len(frequency))).expand(n, -1)
    elif isinstance(task, tasks.Dyck2):
        mean = together.target.double().sum(1, keepdim=True) / together.mask.sum(1)[:, None, None]
        logits = mean.logit(1e-12).expand_as(together.target)
    else:
        target = together.target[:, 0] if isinstance(task, tasks.TimeRescaling) else together.target
        seen = torch.nn.functional.one_hot(target.clamp(min=0), max(task.spec.output_size, 2)).double()
        seen = seen * (target != IGNORED).unsqueeze(-1)
        frequency = seen.sum(-2, keepdim=True) / seen.sum((-2, -1)).reshape(*seen.shape[:-2], 1, 1)
        if name == "variable_copy":  # the signal, at no fixed place, tells when to answer
            answers = (together.target != DUMMY) & (together.target != IGNORED)
            dummy = torch.eye(seen.shape[-1], dtype=torch.float64)[DUMMY]
            frequency = torch.where(answers.unsqueeze(-1), seen[answers].mean(0), dummy)
        logits = frequency.clamp(min=1e-300).log().expand_as(seen)
        if task.spec.output_size == 1:
            logits = logits[..., 1:] - logits[..., :1]
    loss = task.loss(logits, together).item()
    # n sequences leave a sampling error of the mean of about 1/sqrt(n) x .04 (labels) and 7/(2n) (symbols).
    assert loss == pytest.approx(task.chance(), abs=SAMPLING_ERRORS.get(name, 2e-3))
    worse = task.loss(torch.zeros_like(logits), together).item()
    assert loss <= worse + 1e-12


@each_task
def test_stops_by_the_papers_rule_only(make, name):
    task = make(name)
    rule = name in COPIES and name != "copy_gu"
    for epoch, value, whole, word in [
        *((1, 0.999, 0.999, "solved"), (201, 1.0, 0.999, "solved"), (1, 0.9989, 0.999, None), (1, 1.0, 0.9989, None)),
        *((200, 0.1999, 0.5, None), (201, 0.1999, 0.5, "failed"), (201, 0.2, 0.5, None)),
    ]:
        found = task.stop(epoch, {"accuracy": value, "sequence_accuracy": whole, "loss": 1.0})
        assert found == (word if rule else None)


@pytest.mark.parametrize(
    ("name", "bad", "fix"),
    [
        ("copy", {"layout": "text"}, "paper, authors, tallec, gu"),
        ("copy", {"score": "last"}, "all, answers"),
        ("copy", {"T": -1}, "at least 0"),
        ("copy", {"layout": "gu", "solved": 0.9}, "no rule ends a run of layout gu early: leave out solved"),
        ("copy_authors", {"T": 0}, "at least 1"),
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
        ("smnist", {"train_size": 601 - 40}, "600 training"),
        ("smnist", {"test_size": 101}, "100 test"),
        ("frequency_async", {"sampling": "sync"}, "async, sync_1, sync_01"),
        ("frequency_async", {"negatives": "log"}, "log_uniform, uniform"),
        ("linear_functional", {"kernel": "power"}, "exponential, polynomial"),
        ("linear_functional", {"T": 0}, "at least 1"),
        ("linear_functional", {"tau": math.nan}, "tau and p must be above 0"),
        ("linear_functional", {"noise": math.inf}, "noise at least 0, not 10.0, 1.1 and inf"),
        ("mqar", {"power": math.nan}, "power above 0"),
        ("linear_functional", {"tau": 0.0}, "above 0"),
        ("n_parity", {"curriculum": "double"}, "single, multi"),
        ("n_parity", {"bits": "random"}, "mixed, fair"),
        ("n_parity", {"N": 1}, "2 <= N <= N_max"),
        ("n_delayed_match", {"N": 10, "N_max": 9}, "2 <= N <= N_max"),
        ("n_delayed_match", {"threshold": 98.0}, "below 1"),
        ("delayed_match", {"delay": -1}, "at least 0"),
        ("delayed_match", {"distractors": 1.5}, "from 0 to 1"),
        ("delayed_match", {"choices": 5, "colours": 4}, "not 5 of 4"),
        ("program", {"category": "all"}, "addition, control, program, copy, reverse, double"),
        ("program", {"strategy": "blend"}, "mix, combine, naive, baseline"),
        ("program", {"length": 0}, "at least 1"),
        ("program", {"length": 17}, "at most 16 for category=program"),
        ("program", {"category": "copy"}, "give task.nesting=1, not 2"),
        ("program", {"tries": 0}, "at least 1"),
        ("selective_copy", {"T": -1}, "at least 0"),
        ("selective_copy", {"length": 0}, "at least 1"),
        ("selective_copy", {"alphabet": 3}, "at least 4"),
        ("selective_copy", {"gaps": "long"}, "uniform, irregular"),
        ("dyck2", {"longest": 10}, "from 16"),
        ("mqar", {"pairs": 5}, "at least pairs"),
        ("mqar", {"T": 7}, "at least 4 pairs, 8"),
        ("mqar", {"power": 0.0}, "power above 0"),
        ("contextual_match", {"delay": -1}, "at least 0"),
        ("contextual_match", {"distractors": -0.1}, "from 0 to 1"),
        ("contextual_match", {"features": 1}, "at least 2"),
        ("contextual_match", {"cue": "middle"}, "first, last"),
        ("rescaling", {"unit": 0}, "unit must be"),
        ("rescaling", {"test_units": []}, "at least 1"),
        ("rescaling", {"letters": 27}, "from 2 to 26"),
        ("rescaling", {"lead": -1}, "at least 0"),
        ("word_problem", {"group": "A6"}, "A5, S5, A4xZ5, Z60, S3, Z2"),
        ("word_problem", {"T": 0}, "at least 1"),
    ],
)
def test_bad_arguments_say_what_is_right(make, name, bad, fix):
    with pytest.raises(ValueError, match=fix):
        make(name, **bad)


@pytest.mark.parametrize(
    ("n", "n_test", "sizes", "line"),
    [
        (400, 50, (None, 400, None), "valid_size must be below 400, the number of training reviews of IMDB"),
        (12, 50, (None, 2500, None), "valid_size must be below 12"),
        (400, 50, (390, 20, None), "train_size 390 [+] valid_size 20 and test_size 50 are too many"),
        (400, 50, (390, 5, 60), "test_size 60 are too many"),
        (400, 0, (None, 40, None), "IMDB has only 400 training and 0 test reviews here"),
        (1, 50, (None, 1, None), "IMDB has only 1 training and 50 test reviews here"),
    ],
)
def test_sizes_that_do_not_fit_name_the_setting_to_change(n, n_test, sizes, line):
    with pytest.raises(ValueError, match=line):
        sizes_within("IMDB", "reviews", n, n_test, *sizes)
    assert sizes_within("IMDB", "reviews", 400, 50, None, 399, None)["train_size"] == 1
