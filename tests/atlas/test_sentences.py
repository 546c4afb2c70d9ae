"""Check the ten sentences of docs/atlas.md on who remembers what: names and numbers beside the committed scores."""

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
TEXT = page.PAGE.read_text().split("in ten sentences")[1].split("\n## ")[0]
SAID = {int(number): " ".join(text.split()) for number, text in re.findall(r"(?ms)^(\d+)\. (.*?)(?=^\d+\. |\Z)", TEXT)}
NAMES = {number: re.findall(r"`(\w+)`", text) for number, text in SAID.items()}
NUMBERS = {
    number: [
        float(found.replace(",", "")) for found in re.findall(r"\d*\.?\d+(?:,\d{3})*", re.sub(r"`\w+`|A5", "", text))
    ]
    for number, text in SAID.items()
}


def runs(rung, *cells):
    """The scores of all runs of some cells on a rung, in two digits."""
    return [round(score, 2) for cell in cells for score in CELLS[cell].scores[rung].values()]


def others(rung, *cells):
    """The scores of all other cells."""
    return runs(rung, *(cell for cell in CELLS if cell not in cells))


def always(rung, least=1.0):
    """The cells whose runs all have a score of at least that."""
    return {cell for cell in CELLS if min(runs(rung, cell)) >= least}


def sometimes(rung):
    """The cells that have 1.00 in some runs."""
    return {cell for cell in CELLS if max(runs(rung, cell)) == 1} - always(rung)


def uses_time(cell):
    """Whether the time between steps changes what a model makes of a sequence."""
    if registry.BY_NAME[cell].family == registry.BASELINE:
        return False
    torch.manual_seed(0)
    layer = getattr(timescales, registry.BY_NAME[cell].layer)(3, 8, **({"T_max": 9.0} if cell == "chrono" else {}))
    x, dt = torch.randn(6, 2, 3), 0.5 + torch.rand(6, 2)
    return not torch.allclose(layer(x, dt=dt)[0], layer(x)[0])


def test_copying_holding_and_matching():
    assert len(CELLS) == 31
    assert all(sorted(cell.scores[rung]) == [0, 1, 2] for cell in CELLS.values() for rung in atlas().rungs)
    *solve, lstm = NAMES[1]
    assert set(solve) == always("copy_20")
    assert NUMBERS[1] == [20, max(others("copy_20", *solve)), max(runs("copy_20", lstm))]
    lstm, *some = NAMES[2]
    assert lstm in always("keep_80")
    assert set(some) == sometimes("keep_80")
    assert all(min(runs("keep_80", cell)) == 0 for cell in some)
    assert NUMBERS[2] == [80, len(always("keep_80")), len(CELLS), 1, 0, 1]
    assert len(CELLS) - len(always("keep_80")) - len(some) == 6
    *solve, lstm = NAMES[3]
    assert set(solve) == always("match_30")
    assert len(sometimes("match_30")) == 7
    assert NUMBERS[3] == [30, 1, max(runs("match_30", lstm))]


def test_parity_products_and_recall():
    signed, *between = NAMES[4]
    assert signed in always("parity_32")
    assert NUMBERS[4] == [32, len(always("parity_32")), 0, 0, 1, max(runs("parity_32", *between))]
    assert NUMBERS[5] == [1000, *sorted(set(runs("a5_8", *CELLS))), 0.125]
    assert atlas().rungs["a5_8"].score((1 + 7 / 60) / 8) == pytest.approx(0.125, abs=1e-4)
    first, *second, lstm = NAMES[6]
    assert {first} == always("recall_32")
    assert set(second) == always("recall_32", 0.51) - {first}
    assert NUMBERS[6] == [0.5, max(runs("recall_32", lstm))]


def test_waves_speeds_and_pixels():
    using = {cell for cell in CELLS if uses_time(cell)}
    high, low, best = NAMES[7][:12], NAMES[7][12:16], NAMES[7][16]
    assert {*high, *low} == using
    assert set(high) == always("waves_async", 0.7)
    assert all(min(runs("waves_async", cell)) < 0.55 for cell in low)
    least = min(runs("waves_async", best))
    assert least > max(others("waves_async", best))
    assert NUMBERS[7] == [max(others("waves_async", *using)), len(using), 0.7, 0.55, least]
    most = max(runs("morse_faster", *CELLS) + runs("morse_slower", *CELLS))
    assert NUMBERS[8] == [len(always("morse_same")), most]
    (best,) = NAMES[9]
    assert NUMBERS[9] == [98, min(runs("pixels_98", best)), max(others("pixels_98", best))]


def test_ranks():
    tests = atlas().tests.values()
    found = ranks({name: [statistics.fmean(map(cell.mean, of)) for of in tests] for name, cell in CELLS.items()})
    best, *next_ = list(found.mean)[:4]
    assert [best, *next_, "lstm"] == NAMES[10]
    assert sum(found.shown_to_differ(best, name) for name in CELLS) == 6
    assert not any(found.shown_to_differ("lstm", name) for name in CELLS)
    assert NUMBERS[10] == [13, *(round(found.mean[name], 1) for name in (best, next_[0], next_[-1], "lstm"))]
