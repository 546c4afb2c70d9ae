"""Compute what needs no training, from the authors' own models and the data: results/reanalysed/values.csv.

The analyses are ours. They read the time scales and ratios that Mahto et al. 2021 released (tasks/data/released.py),
the strings of Dyck-2, the words of the corpora, and the time scales of a model before training.
"""

import math
import os
from collections.abc import Mapping

import numpy as np
import torch

from timescales.analysis import assigned, gate_maps, longest_pair, mutual_information, routing, timescale_law
from timescales.analysis.study import Source
from timescales.nn.cells.lstm import LSTM
from timescales.nn.inits import InverseGamma
from timescales.tasks import Dyck2
from timescales.tasks.data import released, text

# The settings of each released model, as tables name them, and its name in words.
MODELS = {
    "PTB": ({"task": "ptb_word", "task.corpus": "ptb", "model": "lstm"}, "baseline, Penn Treebank"),
    "PTB-mts": ({"task": "ptb_word", "task.corpus": "ptb", "model": "mts"}, "multi-timescale, Penn Treebank"),
    "WT2": ({"task": "wt2", "model": "lstm"}, "baseline, WikiText-2"),
    "WT2-mts": ({"task": "wt2", "model": "mts"}, "multi-timescale, WikiText-2"),
}
ASSIGNED = InverseGamma(routing.ALPHA, quantiles="authors")  # time scales of layer 2


def sources() -> list[Source]:
    """Compute all numbers that need no training, in minutes of CPU time.

    Raises MissingData for data that are missing and cannot be downloaded.
    """
    return [*models(), untrained(), *data()]


def models(root: str | os.PathLike | None = None) -> list[Source]:
    """Compute the numbers of Mahto et al.'s released models. root: see `data_root`.

    Raises what `released.time_scales` raises.
    """
    found = [
        Source("published model", words, axes, of_time_scales(released.time_scales(root)[name], axes["model"]))
        for name, (axes, words) in MODELS.items()
    ]
    settings = {"task": "ptb_word", "model": "mts", "model.layer1_bias": "eq5"}
    of = "multi-timescale of table 3 (figure 12), Penn Treebank"
    return [*found, Source("published model", of, settings, of_ratios(released.ratios(root)))]


def untrained() -> Source:
    """Compute the numbers of Mahto et al.'s baseline before training, from its forget biases (`timescales()`).

    It is an LSTM of the same sizes with torch's initial weights, drawn with the seed 0.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rnn = LSTM(400, [1150, 1150, 400], 3)
    every = torch.cat(rnn.timescales()).double()
    values = {**timescale_law.fit(every), "longest": float(every.max()), "shortest": float(every.min())}
    named = {f"probe/timescale_law/{key}": value for key, value in values.items()}
    return Source("untrained model", "baseline before training, at zero input", {}, named)


def of_time_scales(layers: list[np.ndarray], model: str) -> dict[str, float]:
    """Compute the values of our analyses that follow from the time scales of units, an array (H,) of each layer.

    "mts": the units of layer 2 were assigned time scales, the longest first, as in the authors' code. The mean forget
    gates that `gate_maps` takes from one window are those of the whole test text here, e^(-1/T).
    """
    times = [torch.from_numpy(layer).double() for layer in layers]
    every = torch.cat(times)
    values = {f"timescale_law/{key}": value for key, value in timescale_law.fit(every).items()}
    values["timescale_law/longest"] = float(every.max())
    long = [torch.exp(-1.0 / layer) > 0.9 for layer in times]
    values |= {f"gate_maps/{key}": value for key, value in gate_maps.over_layers(long).items()}
    values |= {f"gate_maps/layer{k}/above_0.9": float(layer.double().mean()) for k, layer in enumerate(long, 1)}
    if model == "mts":
        agreement = assigned.agreement(ASSIGNED.timescales(len(times[1])), times[1])
        estimated = {key: value for key, value in agreement.items() if not key.startswith("assigned_")}
        values |= {f"assigned/layer2/{key}": value for key, value in estimated.items()}
    return {f"probe/{key}": value for key, value in values.items()}


def of_ratios(ratios: np.ndarray) -> dict[str, float]:
    """Compute the values of `routing.by_band` from ratios (4, groups): bins of words, the most frequent first."""
    times = ASSIGNED.timescales(routing.PAPER_UNITS).split(routing.GROUP)
    rows = [
        {"timescale": float(group.mean())}
        | {f"ratio {words}": float(x) for words, x in zip(routing.WORDS, (*of_bins, math.nan), strict=True)}
        for group, of_bins in zip(times, ratios.T, strict=True)
    ]
    return {f"probe/routing/{key}": value for key, value in routing.by_band(rows).items()}


def data() -> list[Source]:
    """Compute the numbers that only need data."""
    found = [
        Source("data", "training strings of Dyck-2", {"task": "dyck2"}, of_pairs(longest_pair.pair_lengths(Dyck2())))
    ]
    for task, corpus, words in (("ptb_word", "ptb", "Penn Treebank"), ("wt2", "wt2", "WikiText-2")):
        values = mutual_information.decay(text.words(corpus).train)[1]
        named = {f"data/mutual_information/{key}": value for key, value in values.items()}
        found.append(Source("data", f"training words, {words}", {"task": task}, named))
    return found


def of_pairs(pairs: Mapping[int, int]) -> dict[str, float]:
    """Compute the law of the lengths of pairs of brackets, from the number of pairs of each length.

    exponent: minus the slope of log n over log length, from 4 to 100 steps and from 2 to 50. alpha: of the inverse
    gamma distribution nearest to the lengths (Kolmogorov-Smirnov), with its distance and that of alpha = 1.5. Lengths
    are even: the distributions are compared half-way between, at 3, 5, ...
    """
    counts = dict(sorted(pairs.items()))
    lengths, numbers = (torch.tensor(list(part), dtype=torch.float64) for part in (counts, counts.values()))
    up_to = numbers.cumsum(0) / numbers.sum()
    distance = (timescale_law.inverse_gamma_cdf(lengths + 1.0) - up_to).abs().amax(-1)
    nearest, fitted = int(distance.argmin()), ((4, 100), (2, 50))
    values = {f"exponent_{low}_to_{high}": -longest_pair.slope(counts, (low, high)) for low, high in fitted}
    values |= {"alpha": float(timescale_law.GRID[nearest]), "distance": float(distance[nearest])}
    values["distance_at_1.5"] = float(distance[timescale_law.GRID == 1.5].item())
    return {f"data/pairs/{key}": value for key, value in values.items()}
