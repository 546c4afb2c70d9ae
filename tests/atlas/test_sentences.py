"""The sentences of docs/atlas.md on who remembers what, each beside the committed scores that it is about."""

import re
import statistics

import pytest
import torch

import timescales
from timescales.atlas import page, scores
from timescales.atlas.definition import atlas
from timescales.atlas.inference import ranks
from timescales.nn import registry

CELLS = scores.cells_of(atlas(), scores.committed())


def runs(rung, *cells):
    """The scores of all runs of some cells on a rung, in two digits."""
    return [round(score, 2) for cell in cells for score in CELLS[cell].scores[rung].values()]


def others(rung, *cells):
    """Those of all other cells."""
    return runs(rung, *(cell for cell in CELLS if cell not in cells))


def solved(rung):
    """The cells that have 1.00 in all runs."""
    return {cell for cell in CELLS if min(runs(rung, cell)) == 1}


def sometimes(rung):
    """Those that have it in some."""
    return {cell for cell in CELLS if max(runs(rung, cell)) == 1} - solved(rung)


def sentence(number):
    """A sentence of the page, in one line."""
    text = page.PAGE.read_text().split("in ten sentences")[1].split("\n## ")[0]
    found = re.search(rf"^{number}\. (.*?)(?=^\d+\. |\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split())


def named(number, part=slice(None)):
    """The models that a sentence names, those of `part` of them, in its order."""
    return re.findall(r"`(\w+)`", sentence(number))[part]


def test_there_are_three_runs_of_each_model_and_rung():
    assert len(CELLS) == 31
    assert all(sorted(cell.scores[rung]) == [0, 1, 2] for cell in CELLS.values() for rung in atlas().rungs)


def uses_time(cell):
    """Whether the time between steps changes what a model makes of a sequence."""
    if registry.BY_NAME[cell].family == registry.BASELINE:
        return False
    torch.manual_seed(0)
    layer = getattr(timescales, registry.BY_NAME[cell].layer)(3, 8, **({"T_max": 9.0} if cell == "chrono" else {}))
    x, dt = torch.randn(6, 2, 3), 0.5 + torch.rand(6, 2)
    return not torch.allclose(layer(x, dt=dt)[0], layer(x)[0])


def numbers(number):
    """The numbers of a sentence, in its order."""
    words = re.sub(r"`\w+`|group A5", "", sentence(number))
    return [float(found.replace(",", "")) for found in re.findall(r"\d*\.?\d+(?:,\d{3})*", words)]


def test_copying():
    *solve, lstm = named(1)
    assert set(solve) == solved("copy_20")
    assert numbers(1) == [20, max(others("copy_20", *solve)), max(runs("copy_20", lstm))] == [20, 0.9, 0.03]


def test_holding():
    lstm, *some = named(2)
    assert lstm in solved("keep_80")
    assert set(some) == sometimes("keep_80")
    assert all(min(runs("keep_80", cell)) == 0 for cell in some)
    assert numbers(2) == [80, len(solved("keep_80")), len(CELLS), 1, 0, 1] == [80, 23, 31, 1, 0, 1]
    assert len(CELLS) - 23 - len(some) == 6


def test_matching():
    *solve, lstm = named(3)
    assert set(solve) == solved("match_30")
    assert len(sometimes("match_30")) == 7
    assert numbers(3) == [30, 1, max(runs("match_30", lstm))] == [30, 1, 0.02]


def test_parity():
    signed, *between = named(4)
    assert signed in solved("parity_32")
    most = max(runs("parity_32", *between))
    assert numbers(4) == [32, len(solved("parity_32")), 0, 0, 1, most] == [32, 16, 0, 0, 1, 0.67]


def test_products():
    assert numbers(5) == [1000, *sorted(set(runs("a5_8", *CELLS))), 0.125] == [1000, 0.12, 0.13, 0.125]
    rung = atlas().rungs["a5_8"]
    assert rung.score((1 + 7 / 60) / 8) == pytest.approx(0.125, abs=1e-4)


def test_recall():
    first, *second, lstm = named(6)
    assert {first} == solved("recall_32")
    assert set(second) == {cell for cell in CELLS if min(runs("recall_32", cell)) > 0.5} - {first}
    assert numbers(6) == [0.5, max(runs("recall_32", lstm))] == [0.5, 0.05]


def test_waves():
    using = {cell for cell in CELLS if uses_time(cell)}
    high, low = named(7, slice(12)), named(7, slice(12, 16))
    assert {*high, *low} == using
    assert set(high) == {cell for cell in CELLS if min(runs("waves_async", cell)) >= 0.7}
    assert all(min(runs("waves_async", cell)) < 0.55 for cell in low)
    best = named(7)[16]
    least = min(runs("waves_async", best))
    assert least > max(others("waves_async", best))
    without = max(others("waves_async", *using))
    assert numbers(7) == [without, len(using), 0.7, 0.55, least] == [0.48, 16, 0.7, 0.55, 0.94]


def test_another_speed():
    most = max(runs("morse_faster", *CELLS) + runs("morse_slower", *CELLS))
    assert numbers(8) == [len(solved("morse_same")), most] == [26, 0.27]


def test_pixels():
    (best,) = named(9)
    found = [98, min(runs("pixels_98", best)), max(others("pixels_98", best))]
    assert numbers(9) == found == [98, 0.83, 0.79]


def test_ranks():
    tests = atlas().tests.values()
    found = ranks({name: [statistics.fmean(map(cell.mean, of)) for of in tests] for name, cell in CELLS.items()})
    best, *next_ = list(found.mean)[:4]
    assert [best, *next_, "lstm"] == named(10)
    assert sum(found.apart(best, name) for name in CELLS) == 6
    assert not any(found.apart("lstm", name) for name in CELLS)
    shown = [round(found.mean[name], 1) for name in (best, next_[0], next_[-1], "lstm")]
    assert numbers(10) == [found.tests, *shown] == [13, 8.2, 8.4, 8.6, 15.8]
