"""Measure how much a word tells about the word at some distance. It should decay as a power of the distance.

Source: Mahto et al. 2020, section 2.4 and Fig. 2, after Lin & Tegmark 2016.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.assigned import correlation
from timescales.analysis.needs import needs
from timescales.analysis.run import Trained
from timescales.analysis.study import Study
from timescales.tasks import Words
from timescales.tasks.task import entropy
from timescales.training.progress import progress

TITLE = "Mutual information of two words of the training text, by their distance"
LONGEST = 1000  # words; smaller in texts of less than ten times as many words
ALPHA = 0.56  # the exponent with which the multi-timescale models are built


def study(run: Trained) -> Study:
    """Study the mutual information of words of the training text.

    Rows: by distance the information in bits, that of the text in random order, and the difference (`rest`).
    Values: those of `power_law`. Raises ConfigError for a task that is not language modelling by words.
    """
    rows, values = decay(needs(run.task, Words).tokens["train"].cpu())
    return Study(TITLE, rows, values, lambda figure: draw(figure, run, rows, values))


def decay(words: Tensor) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Return rows and values of `study` for a text, words (N,)."""
    # The bias of the estimate is the information in random orders of the words, where all distances are equivalent.
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(words), generator=generator) for _ in range(3)]
    biases = torch.tensor([information(words[order], 1) for order in orders])
    shuffled, error = float(biases.mean()), float(biases.std())
    rows = []
    for distance in progress(distances(len(words)), "mutual information"):
        bits = information(words, distance)
        rows.append({"distance": distance, "bits": bits, "shuffled": shuffled, "rest": bits - shuffled})
    return rows, power_law(rows, 3.0 * error)


def information(words: Tensor, distance: int) -> float:
    """Return I(X; Y) = H(X) + H(Y) - H(X, Y) in bits, of the words (N,) and the words `distance` later.

    H is the entropy of the frequencies. Since most pairs occur once or never, the estimate is too large: compare it
    with that of a text in random order. The paper does not state its estimator.
    """
    x, y = words[:-distance].long(), words[distance:].long()
    pairs = torch.unique(x * (int(words.max()) + 1) + y, return_counts=True)[1]
    of_x, of_y, of_pairs = (entropy(n) / math.log(2.0) for n in (torch.bincount(x), torch.bincount(y), pairs))
    return of_x + of_y - of_pairs


def distances(n: int) -> list[int]:
    """Return 1 to 10, then twelve per decade, up to LONGEST or a tenth of n words."""
    last = max(1, min(LONGEST, n // 10))
    return sorted({d for k in range(37) if (d := round(10 ** (k / 12))) <= last} | set(range(1, min(10, last) + 1)))


def power_law(rows: Sequence[dict[str, float]], least: float) -> dict[str, float]:
    """Fit the power law rest = factor * distance^-exponent, by least squares of logarithms.

    Returns both numbers, the share of the variance of ln(rest) that it explains, and the share that the nearest
    exponential, rest = a * e^(-b distance), explains.

    Uses the distances up to `reach`, the last one before the first whose rest is not above `least` (a multiple of the
    deviation between shuffled texts); nan if there are fewer than two.
    """
    above = [row["rest"] > least for row in rows]
    used = rows[: above.index(False)] if False in above else rows
    reach = float(used[-1]["distance"]) if used else 0.0
    if len(used) < 2:
        return dict.fromkeys(("exponent", "factor", "power_law", "exponential"), torch.nan) | {"reach": reach}
    x, y = (torch.tensor([row[key] for row in used], dtype=torch.float64) for key in ("distance", "rest"))
    slope, start = statistics.linear_regression(x.log().tolist(), y.log().tolist())
    power, exponential = (correlation(along, y.log()) ** 2 for along in (x.log(), x))
    values = {"exponent": -slope, "factor": math.exp(start), "reach": reach}
    return values | {"power_law": power, "exponential": exponential}


def draw(figure: Any, run: Trained, rows: Sequence[dict[str, float]], values: dict[str, float]) -> None:
    """Draw the information above that of shuffled texts by distance, its power law, and the models' slope alpha."""
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
