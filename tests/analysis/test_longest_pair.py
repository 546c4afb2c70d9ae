"""Accuracy by the longest pair of brackets; lengths of pairs."""

import math
import statistics
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from analysed import brackets, copy_task, model_for, run_of

from timescales.analysis import longest_pair, study
from timescales.errors import ConfigError


def text_of(task, split, k):
    return "".join("()[]"[s] for s in task.symbols[split][k, : task.lengths[split][k]].tolist())


def pairs_of(string):
    """Lengths of its pairs, by taking innermost pairs out one after the other."""
    at, found = list(enumerate(string)), []
    while at:
        k = next(k for k in range(1, len(at)) if at[k - 1][1] + at[k][1] in ("()", "[]"))
        found.append(at[k][0] - at[k - 1][0] + 1)
        del at[k - 1 : k + 1]
    return found


def test_lengths_of_pairs_are_those_found_pair_by_pair():
    task = brackets()
    expected = Counter(n for k in range(300) for n in pairs_of(text_of(task, "train", k)))
    found = longest_pair.pair_lengths(task)
    assert found == dict(expected)
    points = [(math.log(k), math.log(n)) for k, n in expected.items() if 4 <= k <= 100]
    assert longest_pair.slope(found) == pytest.approx(statistics.linear_regression(*zip(*points, strict=True)).slope)


def test_right_strings_are_counted_by_their_longest_pair(tmp_path, monkeypatch):
    torch.manual_seed(0)
    task = brackets()
    model = model_for(task)
    run = run_of(model, task)
    found = longest_pair.study(run)
    rows = [row for row in found.rows if row["what"] == "accuracy"]
    right = {k: [] for k in range(len(rows))}
    for k in range(200):
        batch = task.batch("test", 0, 0, k, k + 1)
        output = (model(batch).logits[:, 0].sigmoid() > 0.5).tolist()
        longest = max(pairs_of(text_of(task, "test", k)))
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
    with pytest.raises(ConfigError, match="strings of brackets"):
        longest_pair.study(run_of(model, copy_task()))


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
