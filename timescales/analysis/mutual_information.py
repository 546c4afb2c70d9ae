"""How much does a word of the corpus say about the word some distance on? It is said to decay as a power of distance.

Source: Mahto et al. 2020, section 2.4 and Fig. 2, after Lin & Tegmark 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_words
from timescales.analysis.run import Run
from timescales.analysis.study import Study, progress

TITLE = "Mutual information of two words of the training text, by their distance"
LONGEST = 1000  # words; a distance is read where ten times as many words are there
SHUFFLED = 3  # texts in random order, whose information is what counting alone pretends
ALPHA = 0.56  # the exponent with which the multi-timescale models are built


def study(run: Run) -> Study:
    """Rows: by distance the information in bits, how much a text in random order has as well, and the rest.

    Values: exponent and factor of the power law rest = factor * distance^-exponent, by least squares of logarithms,
    from distance 1 to the last before the rest is lost among the shuffled texts' differences (`reach`).
    Raises ConfigError for a task that is no language model of words.
    """
    words = needs_words(run.task).tokens["train"].cpu()
    generator = torch.Generator().manual_seed(0)
    # In random order all distances are alike: any one will do.
    pretended = torch.tensor(
        [information(words[torch.randperm(len(words), generator=generator)], 1) for _ in range(SHUFFLED)]
    )
    floor, error = float(pretended.mean()), float(pretended.std())
    rows = []
    for d in progress(distances(len(words)), "mutual information"):
        value = information(words, d)
        rows.append({"distance": d, "bits": value, "shuffled": floor, "rest": value - floor})
    values = power_law(rows, 3.0 * error)
    return Study(TITLE, rows, values, lambda figure: draw(figure, run, rows, values))


def information(words: Tensor, distance: int) -> float:
    """I(X; Y) = H(X) + H(Y) - H(X, Y) in bits of the words (N,) and those `distance` on, each H of the frequencies.

    Frequencies of pairs of which most are seen once or never make it too large: compare with a text in random order.
    The paper does not say how it estimates.
    """
    x, y = words[:-distance].long(), words[distance:].long()
    pairs = torch.unique(x * (int(words.max()) + 1) + y, return_counts=True)[1]
    return entropy(torch.bincount(x)) + entropy(torch.bincount(y)) - entropy(pairs)


def entropy(counts: Tensor) -> float:
    """Entropy in bits of the frequencies that the counts (n,) give."""
    p = counts.double() / counts.sum()
    return float(torch.special.entr(p).sum()) / math.log(2.0)


def distances(n: int) -> list[int]:
    """1 to 10, then twelve a decade, to LONGEST or a tenth of n words."""
    last = max(1, min(LONGEST, n // 10))
    return sorted({d for k in range(37) if (d := round(10 ** (k / 12))) <= last} | set(range(1, min(10, last) + 1)))


def power_law(rows: Sequence[dict[str, float]], least: float) -> dict[str, float]:
    """Exponent and factor of the line through the logarithms of distance and rest, and the last distance it reads.

    Only distances before the first whose rest is not above `least`; nan if there are fewer than two.
    """
    above = [row["rest"] > least for row in rows]
    used = rows[: above.index(False)] if False in above else rows
    if len(used) < 2:
        return {"exponent": torch.nan, "factor": torch.nan, "reach": float(used[-1]["distance"]) if used else 0.0}
    x, y = (torch.tensor([row[key] for row in used], dtype=torch.float64).log() for key in ("distance", "rest"))
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    return {
        "exponent": -slope, "factor": float((y.mean() - slope * x.mean()).exp()), "reach": float(used[-1]["distance"])
    }  # fmt: skip


def draw(figure: Any, run: Run, rows: Sequence[dict[str, float]], values: dict[str, float]) -> None:
    """The information beyond chance by distance, both in logarithms, its power law, and the slope of models' alpha."""
    (one,) = plotting.panels(figure)
    shown = [row for row in rows if row["rest"] > 0]
    one.plot([r["distance"] for r in shown], [r["rest"] for r in shown], "o", color="black", ms=4,
             label=f"{run.config['task']['corpus']}, {rows[0]['shuffled']:.2f} bits of chance taken off")  # fmt: skip
    if values["reach"] > 1:
        ends = [1.0, values["reach"]]
        one.plot(ends, [values["factor"] * d ** -values["exponent"] for d in ends], "-", color="black", lw=1.2,
                 label=f"power law, exponent {values['exponent']:.2f}")  # fmt: skip
        middle = values["reach"] ** 0.5
        at = values["factor"] * middle ** -values["exponent"]
        one.plot(ends, [at * (d / middle) ** -ALPHA for d in ends], ":", color=plotting.COLOURS["mts"], lw=1.5,
                 label=f"exponent {ALPHA}: the paper's multi-timescale models")  # fmt: skip
    one.set(xscale="log", yscale="log", xlabel="distance (words)", ylabel="mutual information (bits)")
    plotting.plain(one)
    one.legend(frameon=False, fontsize=8)
