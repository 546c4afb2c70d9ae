"""Every task, small, and helpers to compare its batches."""

import pytest
import torch

from timescales.tasks import (
    IMDB,
    MQAR,
    SCIFAR,
    Adding,
    Batch,
    ContextualMatch,
    Copy,
    Curriculum,
    DelayedMatch,
    Digits,
    Dyck2,
    Frequency,
    LinearFunctional,
    NDelayedMatch,
    NParity,
    Program,
    SelectiveCopy,
    TimeRescaling,
    VariableCopy,
    WordProblem,
)
from timescales.tasks.task import IGNORED

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
    "dyck2_short": (Dyck2, {"longest": 20}),
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
    "linear_functional": (LinearFunctional, {"T": 9, "noise": 0.0}),
    "linear_exponential": (LinearFunctional, {"T": 9, "noise": 0.0, "kernel": "exponential", "tau": 3.0}),
    "n_parity": (NParity, {"N": 4, "N_max": 9}),
    "n_parity_multi": (NParity, {"N": 4, "N_max": 6, "curriculum": "multi", "bits": "fair"}),
    "n_delayed_match": (NDelayedMatch, {"N": 4, "N_max": 9}),
    "n_delayed_match_multi": (NDelayedMatch, {"N": 4, "N_max": 5, "curriculum": "multi"}),
    "delayed_match": (DelayedMatch, {"delay": 5, "distractors": 0.5}),
    "program": (Program, {"length": 2, "nesting": 2, "strategy": "baseline"}),
    "program_mix": (Program, {"category": "control", "length": 3, "nesting": 2}),
    "program_double": (Program, {"category": "double", "length": 5, "nesting": 1, "strategy": "naive"}),
    "selective_copy": (SelectiveCopy, {"T": 9, "length": 4, "alphabet": 6}),
    "selective_copy_irregular": (SelectiveCopy, {"T": 9, "length": 4, "alphabet": 6, "gaps": "irregular"}),
    "mqar": (MQAR, {"T": 12, "pairs": 2, "keys": 4, "values": 4}),
    "contextual_match": (ContextualMatch, {"delay": 5, "features": 3}),
    "contextual_match_last": (ContextualMatch, {"delay": 5, "features": 3, "cue": "last"}),
    "rescaling": (TimeRescaling, {"unit": 2, "test_units": [1, 3], "letters": 5}),
    "word_problem": (WordProblem, {"T": 6}),
    "word_problem_S3": (WordProblem, {"T": 6, "group": "S3"}),
}

COPIES = [name for name, (kind, _) in TASKS.items() if issubclass(kind, Copy)]

# A seed shuffles them, it does not choose them.
SAME_SET = ["smnist", "pmnist", "pmnist_random", "scifar", "dyck2", "dyck2_short"]

each_task = pytest.mark.parametrize("name", TASKS)


def equal(a: Batch, b: Batch):
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
    if isinstance(task, Adding):
        return batch.target.double().unsqueeze(-1)
    if isinstance(task, Dyck2):
        return sure * (2 * batch.target.double() - 1)
    if isinstance(task, LinearFunctional):
        x, steps = batch.x[..., 0].double(), range(task.T)
        sums = [sum(w * x[t - s] for s, w in enumerate(task.weights[: t + 1].tolist())) for t in steps]
        return torch.stack(sums).unsqueeze(-1)
    if isinstance(task, Curriculum):
        of_trained = sure * torch.nn.functional.one_hot(batch.target, 2).double().flatten(1)
        return torch.nn.functional.pad(of_trained, (0, task.spec.output_size - of_trained.shape[1]))
    if isinstance(task, TimeRescaling):
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
    return Batch(torch.empty(0), joined(task, [b.target for b in batches]), mask)


def numbers(batch, order=None):
    """Which images a batch holds, from their first three pixels."""
    at = [0, 1, 2] if order is None else [order.tolist().index(k) for k in range(3)]
    low, middle, high = (batch.x[at, :, 0] * 255).round().long()
    return low + 256 * middle + 65536 * high
