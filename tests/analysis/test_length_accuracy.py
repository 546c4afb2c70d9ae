"""Accuracy by the length of a text."""

import statistics
from types import SimpleNamespace

import pytest
import torch
from analysed import brackets, copy_task, model_for, run_of

from timescales.analysis import length_accuracy, study
from timescales.errors import ConfigError
from timescales.tasks import IMDB, Batch


class Reviews(IMDB):
    """800 texts of which the model is right about those whose number is no multiple of its own."""

    def __init__(self, wrong):
        lengths = torch.randint(1, 700, (800,), generator=torch.Generator().manual_seed(0))
        self.lengths, self.wrong = {"test": lengths}, wrong

    def size(self, split):
        return 800

    def batches(self, split):
        for first in range(0, 800, 500):
            x = torch.arange(first, min(first + 500, 800))
            yield Batch(x, x)

    def correct(self, logits, batch):
        return logits % self.wrong > 0


def echo(batch):
    return SimpleNamespace(logits=batch.x)


def test_accuracy_by_length_is_counted_text_by_text(tmp_path):
    task = Reviews(3)
    run = SimpleNamespace(config={"model": {"name": "lstm"}}, colour="#666666", model=echo, task=task)
    found = length_accuracy.study(run)
    lengths = task.lengths["test"].tolist()
    edges = [0, 100, 150, 200, 250, 300, 400, 10**9]
    for row, low, high in zip(found.rows, edges[:-1], edges[1:], strict=True):
        inside = [k for k, n in enumerate(lengths) if low < n <= high]
        right = sum(k % 3 > 0 for k in inside)
        assert (row["n"], row["right"]) == (len(inside), right)
        assert row["accuracy"] == right / len(inside)
        spread = statistics.pstdev([k % 3 > 0 for k in inside])
        assert row["standard_error"] == pytest.approx(spread / len(inside) ** 0.5)
    short = [k for k, n in enumerate(lengths) if n <= 150]
    assert found.values["up_to_150"] == pytest.approx(sum(k % 3 > 0 for k in short) / len(short))
    assert list(found.values)[-4:] == ["above_400", "up_to_150", "above_150", "drop"]
    long = [k for k, n in enumerate(lengths) if n > 150]
    assert found.values["drop"] == pytest.approx(found.values["up_to_150"] - sum(k % 3 > 0 for k in long) / len(long))
    assert study.write(found, tmp_path, "length_accuracy")[1].is_file()


def test_texts_of_all_seeds_count_together(tmp_path):
    runs = []
    for seed, wrong in enumerate((3, 5)):
        run = run_of(SimpleNamespace(rnn=None), Reviews(wrong), seed=seed)
        run.model = echo
        runs.append(run)
    found = length_accuracy.compare(runs)
    alone = [length_accuracy.table(run.task.lengths["test"], length_accuracy.answers(echo, run.task)) for run in runs]
    for row, a, b in zip(found.rows, *alone, strict=True):
        assert (row["n"], row["right"]) == (a["n"] + b["n"], a["right"] + b["right"])
    assert study.write(found, tmp_path, "length_accuracy")[1].is_file()
    for task in (copy_task(), brackets()):  # strings of brackets have lengths too, but the claim is not of them
        model = model_for(task)
        with pytest.raises(ConfigError, match=f"for texts of different length .imdb., not for {type(task).__name__}"):
            length_accuracy.study(run_of(model, task))
