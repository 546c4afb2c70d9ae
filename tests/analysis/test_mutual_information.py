"""Mutual information of words by distance."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from analysed import language_model, run_of_words, words

from timescales import LSTM
from timescales.analysis import mutual_information, study


def slow_information(text, d):
    """Of every pair of words its frequency, by hand."""
    pairs = list(zip(text[:-d], text[d:], strict=True))
    counts, n = (Counter(a for a, _ in pairs), Counter(b for _, b in pairs), Counter(pairs)), len(pairs)
    return sum(c / n * math.log2(c * n / counts[0][a] / counts[1][b]) for (a, b), c in counts[2].items())


def test_information_is_that_of_the_frequencies():
    text = torch.randint(0, 7, (400,), generator=torch.Generator().manual_seed(1))
    for d in (1, 3, 50):
        found = mutual_information.information(text.int(), d)
        assert found == pytest.approx(slow_information(text.tolist(), d), abs=1e-10)
    assert mutual_information.information(torch.arange(4).repeat(50), 4) == pytest.approx(2.0)  # four words in turn


def test_information_of_a_two_state_chain_decays_as_it_must():
    """A symmetric chain that changes with probability s: correlation (1 - 2 s)^d, so I(d) is known exactly."""
    s, n = 0.1, 400_000
    changes = torch.rand(n, generator=torch.Generator().manual_seed(2)) < s
    text = changes.long().cumsum(0) % 2
    for d in (1, 3, 6):
        same = (1 + (1 - 2 * s) ** d) / 2
        exact = 1 + same * math.log2(same) + (1 - same) * math.log2(1 - same)
        assert mutual_information.information(text, d) == pytest.approx(exact, rel=0.05)


def test_a_power_law_is_found_and_ends_where_chance_begins():
    rows = [{"distance": d, "rest": 2.0 * d**-0.7} for d in mutual_information.distances(100_000)]
    found = mutual_information.power_law(rows, 0.0)
    explained = {"power_law": 1.0, "exponential": found["exponential"]}
    assert found == pytest.approx({"exponent": 0.7, "factor": 2.0, "reach": 1000.0, **explained})
    x, y = (np.array([row[key] for row in rows]) for key in ("distance", "rest"))
    assert found["exponential"] == pytest.approx(np.corrcoef(x, np.log(y))[0, 1] ** 2)
    falling = [{"distance": d, "rest": math.exp(-0.2 * d)} for d in range(1, 20)]
    assert mutual_information.power_law(falling, 0.0)["exponential"] == pytest.approx(1.0)
    assert mutual_information.power_law(rows, 2.0 * 25.0**-0.7)["reach"] == 22.0
    assert math.isnan(mutual_information.power_law(rows, 5.0)["exponent"])
    assert mutual_information.distances(100) == list(range(1, 11))
    assert mutual_information.distances(100_000)[8:14] == [9, 10, 12, 15, 18, 22]


def test_mutual_information_of_a_run(root, tmp_path):
    task = words(root)
    model = language_model(task, LSTM, (5,))
    found = mutual_information.study(run_of_words(model, task))
    assert [row["distance"] for row in found.rows] == mutual_information.distances(task.size("train"))
    assert all(row["rest"] == row["bits"] - row["shuffled"] for row in found.rows)
    assert study.write(found, tmp_path, "mutual_information")[1].is_file()
    assert found.rows == mutual_information.study(run_of_words(model, task)).rows
