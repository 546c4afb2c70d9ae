"""How much does a word of the corpus tell about the word at some distance? It is said to decay as a power of distance.

Source: Mahto et al. 2020, section 2.4 and Fig. 2, after Lin & Tegmark 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.needs import needs_words
from timescales.analysis.run import Run
from timescales.analysis.study import Study
from timescales.tasks.task import entropy
from timescales.training.progress import progress

TITLE = "Mutual information of two words of the training text, by their distance"
LONGEST = 1000  # words; smaller in texts of less than ten times as many words
SHUFFLED = 3  # texts in random order; their information is an artefact of the estimate from counts
ALPHA = 0.56  # the exponent with which the multi-timescale models are built


def study(run: Run) -> Study:
    """Rows: by distance the information in bits, that of the text in random order, and the difference (`rest`).

    Values: exponent and factor of the power law rest = factor * distance^-exponent, by least squares of logarithms,
    from distance 1 to `reach`, the last one before `rest` is as small as differences between shuffled texts.
    Raises ConfigError for a task that is not language modelling by words.
    """
    words = needs_words(run.task).tokens["train"].cpu()
    floor, error = _shuffled_information(words)
    rows = []
    for distance in progress(distances(len(words)), "mutual information"):
        bits = information(words, distance)
        rows.append({"distance": distance, "bits": bits, "shuffled": floor, "rest": bits - floor})
    values = power_law(rows, 3.0 * error)
    return Study(TITLE, rows, values, lambda figure: draw(figure, run, rows, values))


def _shuffled_information(words: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of the information in random orders of the words. All distances are alike then."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(words), generator=generator) for _ in range(SHUFFLED)]
    bits = torch.tensor([information(words[order], 1) for order in orders])
    return float(bits.mean()), float(bits.std())


def information(words: Tensor, distance: int) -> float:
    """I(X; Y) = H(X) + H(Y) - H(X, Y) in bits, of the words (N,) and the words `distance` later.

    H is the entropy of the frequencies. Since most pairs occur once or never, the estimate is too large: compare it
    with that of a text in random order. The paper does not state its estimator.
    """
    x, y = words[:-distance].long(), words[distance:].long()
    pairs = torch.unique(x * (int(words.max()) + 1) + y, return_counts=True)[1]
    return entropy_in_bits(torch.bincount(x)) + entropy_in_bits(torch.bincount(y)) - entropy_in_bits(pairs)


def entropy_in_bits(counts: Tensor) -> float:
    """Entropy in bits of the frequencies given by counts (n,)."""
    return entropy(counts) / math.log(2.0)


def distances(n: int) -> list[int]:
    """1 to 10, then twelve per decade, up to LONGEST or a tenth of n words."""
    last = max(1, min(LONGEST, n // 10))
    return sorted({d for k in range(37) if (d := round(10 ** (k / 12))) <= last} | set(range(1, min(10, last) + 1)))


def power_law(rows: Sequence[dict[str, float]], least: float) -> dict[str, float]:
    """Exponent and factor of the line through the logarithms of distance and rest, and the last distance it uses.

    Uses the distances before the first one whose rest is not above `least`; nan if there are fewer than two.
    """
    above = [row["rest"] > least for row in rows]
    used = rows[: above.index(False)] if False in above else rows
    if len(used) < 2:
        return {"exponent": torch.nan, "factor": torch.nan, "reach": float(used[-1]["distance"]) if used else 0.0}
    x, y = (torch.tensor([row[key] for row in used], dtype=torch.float64).log() for key in ("distance", "rest"))
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    factor = float((y.mean() - slope * x.mean()).exp())
    return {"exponent": -slope, "factor": factor, "reach": float(used[-1]["distance"])}


def draw(figure: Any, run: Run, rows: Sequence[dict[str, float]], values: dict[str, float]) -> None:
    """The information above that of shuffled texts by distance, its power law, and the slope of the models' alpha."""
    (ax,) = plotting.panels(figure)
    shown = [row for row in rows if row["rest"] > 0]
    label = f"{run.config['task']['corpus']}, minus {rows[0]['shuffled']:.2f} bits of shuffled text"
    ax.plot([row["distance"] for row in shown], [row["rest"] for row in shown], "o", color="black", ms=4, label=label)
    if values["reach"] > 1:
        x = [1.0, values["reach"]]
        label = f"power law, exponent {values['exponent']:.2f}"
        ax.plot(x, [values["factor"] * d ** -values["exponent"] for d in x], "-", color="black", lw=1.2, label=label)
        middle = values["reach"] ** 0.5
        at_middle = values["factor"] * middle ** -values["exponent"]
        label = f"exponent {ALPHA}: the paper's multi-timescale models"
        y = [at_middle * (d / middle) ** -ALPHA for d in x]
        ax.plot(x, y, ":", color=plotting.COLOURS["mts"], lw=1.5, label=label)
    ax.set(xscale="log", yscale="log", xlabel="distance (words)", ylabel="mutual information (bits)")
    plotting.plain_ticks(ax)
    plotting.small_legend(ax)
