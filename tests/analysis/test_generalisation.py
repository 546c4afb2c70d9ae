"""Copying over other delays."""

import math
import statistics

import pytest
import torch
from analysed import copy_task, model_for, run_of, studied

from timescales.analysis import generalisation, study
from timescales.models.sequence import Output
from timescales.tasks.copy import LENGTH, SIGNAL
from timescales.training.loop import evaluate


@pytest.mark.parametrize("layout", ["paper", "authors", "tallec", "gu"])
def test_accuracy_in_pieces_is_the_tasks_own(layout):
    task = copy_task(T=120, test_size=300, layout=layout)  # two batches, three pieces
    model = model_for(task)
    right = evaluate(model, task, "test")["accuracy"]
    assert generalisation.accuracy(model, task) == pytest.approx(right, abs=1e-12)
    assert 0.08 < right < 0.2
    first = task.batch("test", 0, 0, 0, 40)
    some = (model(first).logits[-LENGTH:].argmax(-1) == first.target[-LENGTH:]).double().mean()
    assert generalisation.accuracy(model, task, 40) == pytest.approx(float(some), abs=1e-12)


class Remembers:
    """Copies as it should after at most `span` steps; after more it says 0."""

    def __init__(self, span):
        self.span = span

    def __call__(self, batch, state=None):
        seen, began, logits = state or ([], None, [])
        logits, seen = [], list(seen)
        for x in batch.x:
            seen.append(x)
            began = len(seen) - 1 if x[0] == SIGNAL and began is None else began
            k = -1 if began is None else len(seen) - 1 - began
            forgotten = began is None or began - 10 > self.span
            answer = torch.zeros_like(x) if k < 0 or k >= LENGTH or forgotten else seen[k]
            logits.append(torch.nn.functional.one_hot(answer, 10))
        return Output(torch.stack(logits), (seen, began, None))


def test_a_model_with_a_limited_span_generalises_up_to_it():
    found = generalisation.measure(Remembers(span=50), copy_task(T=20))
    assert list(found) == ["5", "10", "15", "20", "30", "50", "75", "100", "150", "200"]
    assert [found[T] for T in ("5", "10", "15", "20", "30", "50")] == [1.0] * 6
    for T in ("75", "100", "150", "200"):  # symbol 0 is right one time in eight; 10,000 symbols
        assert found[T] == pytest.approx(1 / 8, abs=0.02)


def test_delays_are_the_papers_or_in_proportion():
    paper = [50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000]
    assert generalisation.delays(200) == generalisation.delays(500) == paper
    assert generalisation.delays(100) == [T // 2 for T in paper]
    assert generalisation.delays(1) == [1, 2, 4, 5, 8, 10]  # no delay below 1, none twice


def test_other_delays_are_of_the_same_task():
    other = generalisation.at_delay(copy_task(T=20, layout="gu", seed=3), 30)
    assert (other.T, other.layout, other.seed, other.size("test"), other.steps) == (30, "gu", 3, 1000, 50)


def test_the_generalisation_study_is_the_probe(tmp_path, monkeypatch):
    monkeypatch.setattr(generalisation, "SEQUENCES", 50)
    task = copy_task(T=6)
    model = model_for(task)
    found = studied(generalisation, model, task, tmp_path)
    assert found.values == generalisation.measure(model, task)
    row = found.rows[0]
    assert (row["T"], row["trained"]) == (2, 6)
    each = generalisation.shares(model, generalisation.at_delay(task, 2)).tolist()
    assert len(each) == 50
    assert row["accuracy"] == pytest.approx(statistics.fmean(each))
    assert row["standard_error"] == pytest.approx(statistics.stdev(each) / math.sqrt(50))
    runs = [run_of(model, task, seed=0), run_of(model_for(task, seed=1), task, seed=1)]
    both = [generalisation.measure(run.model, task) for run in runs]
    several = generalisation.compare(runs)
    assert several.values["plstm/6"] == pytest.approx((both[0]["6"] + both[1]["6"]) / 2)
    assert study.write(several, tmp_path, "several")[1].is_file()
