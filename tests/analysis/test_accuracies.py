"""Check accuracy over other delays, lengths of texts and longest pairs, counted one sequence at a time."""

import math
import statistics
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from analysed import brackets, copy_task, model_for, run_of, studied
from small_tasks import pairs, string_of

from timescales import LSTM
from timescales.analysis import generalisation, length_accuracy, longest_pair, study
from timescales.errors import ConfigError
from timescales.models.sequence import Output
from timescales.tasks import IMDB, Batch
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


# --- Lengths of texts ------------------------------------------------------------------------------------------------
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
    task = brackets()  # they have lengths too, but the claim is not of them
    with pytest.raises(ConfigError, match=r"for texts of different length .imdb., not for Dyck2"):
        length_accuracy.study(run_of(model_for(task), task))


# --- Longest pairs of brackets ---------------------------------------------------------------------------------------
def test_lengths_of_pairs_are_those_found_pair_by_pair():
    task = brackets()
    expected = Counter(n for k in range(300) for n in pairs(string_of(task, "train", k)))
    found = longest_pair.pair_lengths(task)
    assert found == dict(expected)
    points = [(math.log(k), math.log(n)) for k, n in expected.items() if 4 <= k <= 100]
    assert longest_pair.slope(found) == pytest.approx(statistics.linear_regression(*zip(*points, strict=True)).slope)


def test_right_strings_are_counted_by_their_longest_pair(tmp_path, monkeypatch):
    task = brackets()
    model = model_for(task, LSTM)
    run = run_of(model, task)
    found = longest_pair.study(run)
    rows = [row for row in found.rows if row["what"] == "accuracy"]
    right = {k: [] for k in range(len(rows))}
    for k in range(200):
        batch = task.batch("test", 0, 0, k, k + 1)
        output = (model(batch).logits[:, 0].sigmoid() > 0.5).tolist()
        longest = max(pairs(string_of(task, "test", k)))
        (place,) = [j for j, row in enumerate(rows) if row["above"] - 0.05 < longest <= row["up_to"] + 0.05]
        right[place].append(output == (batch.target[:, 0] > 0.5).tolist())
    for k, row in enumerate(rows):
        assert (row["n"], row["value"]) == (len(right[k]), pytest.approx(statistics.fmean(right[k])))
    beyond = task.timescales["test"] > 75
    assert 0 < beyond.sum() < 200
    monkeypatch.setattr(longest_pair, "answers", lambda model, task: beyond)
    values = longest_pair.study(run).values
    assert (values["up_to_75"], values["above_75"]) == (0.0, 1.0)  # 75 itself, not a bin's edge
    assert values["wrong_up_to_75"] == 1.0
    assert study.write(found, tmp_path, "longest_pair")[1].is_file()


def test_no_string_is_left_out_of_a_comparison(monkeypatch):
    """Whether the run with the shorter strings comes first or last."""
    tasks = [brackets(), brackets()]
    short = tasks[0].lengths["test"] <= 50
    tasks[0].lengths["test"], tasks[0].timescales["test"] = (
        values["test"][short] for values in (tasks[0].lengths, tasks[0].timescales)
    )
    monkeypatch.setattr(longest_pair, "answers", lambda model, task: torch.ones(len(task.lengths["test"])).bool())
    runs = [run_of(SimpleNamespace(rnn=None), task, size=k) for k, task in enumerate(tasks)]
    names = ["gated, size=0", "gated, size=1"]
    for order in (runs, runs[::-1]):
        rows = [row for row in longest_pair.compare(order).rows if row["what"] == "accuracy"]
        counted = [sum(row["n"] for row in rows if row["run"] == name) for name in names]
        assert counted == [int(short.sum()), 200]
        assert max(row["up_to"] for row in rows) > 100


def test_bins_of_several_runs_are_averaged(tmp_path, monkeypatch):
    runs = [run_of(SimpleNamespace(rnn=None), brackets(seed), seed=seed) for seed in (0, 1)]
    wrong = iter((2, 4))
    monkeypatch.setattr(longest_pair, "answers", lambda model, task: torch.arange(200) % next(wrong) > 0)
    found = longest_pair.compare(runs)
    first = next(row for row in found.rows if row["what"] == "accuracy")
    inside = (runs[0].task.timescales["test"] <= first["up_to"]).nonzero().squeeze(1).tolist()
    shares = [statistics.fmean(k % n > 0 for k in inside) for n in (2, 4)]
    assert (first["runs"], first["n"]) == (2, len(inside))
    assert (first["value"], first["spread"]) == pytest.approx((statistics.fmean(shares), statistics.pstdev(shares)))
    assert study.write(found, tmp_path, "longest_pair")[1].is_file()
