"""Every task, small, and helpers to compare its batches."""

import pytest
import torch

from timescales import tasks
from timescales.tasks.task import IGNORED

SMALL = {"train_size": 70, "valid_size": 40, "test_size": 30, "batch_size": 16}
REVIEWS = {"allow_partial": True, "steps": 20}
TASKS = {
    "copy": (tasks.Copy, {"T": 6}), "copy_authors": (tasks.Copy, {"T": 6, "layout": "authors"}),
    "copy_tallec": (tasks.Copy, {"T": 6, "layout": "tallec"}),
    "copy_gu": (tasks.Copy, {"T": 6, "layout": "gu", "score": "answers"}),
    "copy_fresh": (tasks.Copy, {"T": 6, "fresh": True}), "variable_copy": (tasks.VariableCopy, {"low": 3, "high": 9}),
    "adding": (tasks.Adding, {"T": 10}), "dyck2": (tasks.Dyck2, {}),
    "dyck2_short": (tasks.Dyck2, {"longest": 20}), "scifar": (tasks.SCIFAR, {"allow_partial": True}),
    "imdb": (tasks.IMDB, REVIEWS),
    "imdb_variant": (tasks.IMDB, REVIEWS | {"pad": "front", "readout": "true_length", "outputs": 2, "lower": True}),
    "smnist": (tasks.Digits, {}), "pmnist": (tasks.Digits, {"permutation": "bit_reversal"}),
    "pmnist_random": (tasks.Digits, {"permutation": "random"}), "frequency_async": (tasks.Frequency, {}),
    "frequency_sync_1": (tasks.Frequency, {"sampling": "sync_1", "time_input": True}),
    "frequency_sync_01": (tasks.Frequency, {"sampling": "sync_01"}),
    "frequency_uniform": (tasks.Frequency, {"negatives": "uniform", "time_input": True}),
    "linear_functional": (tasks.LinearFunctional, {"T": 9, "noise": 0.0}),
    "linear_exponential": (tasks.LinearFunctional, {"T": 9, "noise": 0.0, "kernel": "exponential", "tau": 3.0}),
    "n_parity": (tasks.NParity, {"N": 4, "N_max": 9}),
    "n_parity_multi": (tasks.NParity, {"N": 4, "N_max": 6, "curriculum": "multi", "bits": "fair"}),
    "n_delayed_match": (tasks.NDelayedMatch, {"N": 4, "N_max": 9}),
    "n_delayed_match_multi": (tasks.NDelayedMatch, {"N": 4, "N_max": 5, "curriculum": "multi"}),
    "delayed_match": (tasks.DelayedMatch, {"delay": 5, "distractors": 0.5}),
    "program": (tasks.Program, {"length": 2, "nesting": 2, "strategy": "baseline"}),
    "program_mix": (tasks.Program, {"category": "control", "length": 3, "nesting": 2}),
    "program_double": (tasks.Program, {"category": "double", "length": 5, "nesting": 1, "strategy": "naive"}),
    "selective_copy": (tasks.SelectiveCopy, {"T": 9, "length": 4, "alphabet": 6}),
    "selective_copy_irregular": (tasks.SelectiveCopy, {"T": 9, "length": 4, "alphabet": 6, "gaps": "irregular"}),
    "mqar": (tasks.MQAR, {"T": 12, "pairs": 2, "keys": 4, "values": 4}),
    "contextual_match": (tasks.ContextualMatch, {"delay": 5, "features": 3}),
    "contextual_match_last": (tasks.ContextualMatch, {"delay": 5, "features": 3, "cue": "last"}),
    "rescaling": (tasks.TimeRescaling, {"unit": 2, "test_units": [1, 3], "letters": 5}),
    "word_problem": (tasks.WordProblem, {"T": 6}), "word_problem_S3": (tasks.WordProblem, {"T": 6, "group": "S3"}),
}  # fmt: skip

COPIES = [name for name, (kind, _) in TASKS.items() if issubclass(kind, tasks.Copy)]

# A seed shuffles them, it does not choose them.
SAME_SET = ["smnist", "pmnist", "pmnist_random", "scifar", "dyck2", "dyck2_short"]

each_task = pytest.mark.parametrize("name", TASKS)


def equal(a: tasks.Batch, b: tasks.Batch):
    return all(
        (x is None and y is None) or (x.shape == y.shape and x.dtype == y.dtype and torch.equal(x, y))
        for x, y in zip(a, b, strict=True)
    )


def epoch_of(task, split, epoch=0, start=0):
    return list(task.batches(split, epoch, start))


def sequences(batch):
    return batch.x.shape[1]


def answer(task, batch, sure=40.0):
    """Logits of an oracle: the right answer everywhere."""
    if isinstance(task, tasks.Adding):
        return batch.target.double().unsqueeze(-1)
    if isinstance(task, tasks.Dyck2):
        return sure * (2 * batch.target.double() - 1)
    if isinstance(task, tasks.LinearFunctional):
        x, steps = batch.x[..., 0].double(), range(task.T)
        sums = [sum(w * x[t - s] for s, w in enumerate(task.weights[: t + 1].tolist())) for t in steps]
        return torch.stack(sums).unsqueeze(-1)
    if isinstance(task, tasks.Curriculum):
        of_trained = sure * torch.nn.functional.one_hot(batch.target, 2).double().flatten(1)
        return torch.nn.functional.pad(of_trained, (0, task.spec.output_size - of_trained.shape[1]))
    if isinstance(task, tasks.TimeRescaling):
        return sure * torch.nn.functional.one_hot(batch.target[:, 0], task.letters).double()
    if task.spec.output_size == 1:
        return sure * (2 * batch.target.double() - 1).unsqueeze(-1)
    return sure * torch.nn.functional.one_hot(batch.target.clamp(min=0), task.spec.output_size).double()


def joined(task, parts):
    """Several tensors of one value per step and sequence, or per sequence, as one; shorter ones are padded."""
    if task.spec.readout == "last":
        return torch.cat(parts)
    longest = max(len(part) for part in parts)
    fill = IGNORED if parts[0].dtype == torch.int64 else 0
    return torch.cat([torch.cat([p, p.new_full((longest - len(p), *p.shape[1:]), fill)]) for p in parts], 1)


def one_batch(task, batches):
    """Several batches as one (what the losses and metrics read of them)."""
    masks = [b.mask for b in batches]
    mask = None if masks[0] is None or task.spec.readout == "last" else joined(task, masks)
    return tasks.Batch(torch.empty(0), joined(task, [b.target for b in batches]), mask)


def numbers(batch, order=None):
    """Which images a batch holds, from their first three pixels."""
    at = [0, 1, 2] if order is None else [order.tolist().index(k) for k in range(3)]
    low, middle, high = (batch.x[at, :, 0] * 255).round().long()
    return low + 256 * middle + 65536 * high


# --- Strings of brackets ----------------------------------------------------------------------------------------------
def string_of(task, split, k):
    """A string of Dyck-2."""
    return "".join("()[]"[n] for n in task.symbols[split][k, : task.lengths[split][k]])


def pairs(string):
    """The lengths of its pairs, 2 for (). Asserts that each bracket has its partner."""
    opened = []
    for t, character in enumerate(string):
        if character in "([":
            opened.append((character, t))
        else:
            kind, at = opened.pop()
            assert kind + character in ("()", "[]")
            yield t - at + 1
    assert not opened
