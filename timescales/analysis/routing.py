"""Measure which words depend on which units: perplexity by word frequency, with groups of units silenced.

The groups are by time scale. Source: Mahto et al. 2021, section 3.2.4 and Figs. 3, 11 and 12.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import plotting
from timescales.analysis import bins
from timescales.analysis.needs import needs, needs_softmax
from timescales.analysis.observe import by_timescale
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.errors import NotMadeFor
from timescales.models.sequence import SequenceModel
from timescales.nn import engine
from timescales.tasks import Task, Words
from timescales.training.progress import progress

TITLE = "Perplexity with a group of second-layer units silenced, over that without, by word frequency"
GROUP, PAPER_UNITS = 50, 1150  # units silenced at once in the paper's second layer; in proportion for other sizes
ALPHA = 0.56  # of the inverse gamma distribution of the paper's time scales
WORDS = ("above 10,000", "1,000 to 10,000", "100 to 1,000", "below 100", "all words")
# Mean time scales in steps of the groups that section 3.2.4 calls long, medium and shortest.
BANDS = {"long": (20.0, 300.0), "medium": (5.0, 10.0), "shortest": (0.0, 1.0)}
LOGITS = 4_000_000  # computed at once, 16 MB; larger blocks of memory would be allocated again each time

# Ratios of groups 1 to 23 of the paper's multi-timescale model on the Penn Treebank, by bin: Fig. 12, as released.
# They are of perplexities rounded to two decimals, of the model of table 3.
PRINTED = [
    [float(ratio) for ratio in ratios.split()]
    for ratios in (
        """1 .988 .987 .990 .988 .982 .990 .988 .990 .985 .991 .991 .993 .996 .997 .985 .990 .990 .991 .993 .994 .993
        .988""",
        """.991 .999 1.009 1.004 1.010 1.025 1.010 1.026 1.012 1.023 1.014 1.003 1.005 1.002 .999 1.013 .997 .997 1.003
        .991 .987 .988 1.001""",
        """1.009 1.032 1.039 1.040 1.027 1.031 1.024 1.020 1.026 1.024 1.018 1.021 1.018 1.018 1.019 1.024 1.025 1.019
        1.020 1.023 1.023 1.022 1.020""",
        """1.029 1.055 1.058 1.043 1.028 1.024 1.023 1.014 1.022 1.018 1.012 1.022 1.014 1.018 1.017 1.021 1.023 1.030
        1.015 1.023 1.034 1.031 1.024""",
    )
]


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return the values of `study`, for a model whose layer has assigned time scales, as the paper's has."""
    cell = model.rnn.layers[_layer(model)]
    if "forget" not in getattr(cell, "frozen", ()):
        made_for = "layers with assigned time scales (model=mts)"
        raise NotMadeFor(f"this analysis is for {made_for}: those of {type(cell).__name__} are learned")
    return values_of(rows_of(model, needs(task, Words)))


def study(run: Trained) -> Study:
    """Study the ratios of perplexities with and without a group of units silenced.

    Rows: one per group, longest time scale first: its units by rank, their mean and median time scale, and the ratio
    for each bin.

    Values: for each bin with words the largest ratio, and the median time scale of the group that has it; and the
    ratios of `by_band`. Raises ConfigError for a task that is not language modelling by words.
    """
    rows = rows_of(run.model, needs(run.task, Words))
    units = run.model.rnn.layers[_layer(run.model)].hidden_size
    return Study(TITLE, rows, values_of(rows), lambda figure: draw(figure, run, rows, units))


def _layer(model: SequenceModel) -> int:
    """Return the index of the layer whose units are silenced: the second, or the only one."""
    return min(1, len(model.rnn.layers) - 1)


def rows_of(model: SequenceModel, task: Words) -> list[TableRow]:
    """Return the rows of `study`."""
    needs_softmax(model)
    layer = _layer(model)
    times = model.rnn.layers[layer].timescales().detach().cpu().double()
    groups = by_timescale(times, GROUP, PAPER_UNITS)
    perplexity = perplexities(model, task, layer, list(groups.values()))
    ratios = (perplexity[1:] / perplexity[0]).tolist()
    return [
        {"units": name, "timescale": float(times[units].mean()), "median": float(times[units].median())}
        | {f"ratio {words}": ratio for words, ratio in zip(WORDS, group_ratios, strict=True)}
        for (name, units), group_ratios in zip(groups.items(), ratios, strict=True)
    ]


def values_of(rows: Sequence[TableRow]) -> dict[str, float]:
    """Return the values of `study`."""
    values: dict[str, float] = {}
    for name, words in zip((*bins.NAMES, "all"), WORDS, strict=True):
        largest = max(rows, key=lambda row: row[f"ratio {words}"])
        if not math.isnan(largest[f"ratio {words}"]):
            values |= {f"{name}/largest": largest[f"ratio {words}"], f"{name}/median_timescale": largest["median"]}
    return values | by_band(rows)


def by_band(rows: Sequence[TableRow]) -> dict[str, float]:
    """Return for each bin the ratio with a group silenced, the geometric mean over the groups of a band.

    "long/below_100" is that of the groups whose mean time scale is 20 to 300 steps, "not_long/below_100" that of all
    other groups, and so on for the bands of BANDS; "none" is the ratio with no group silenced, 1. A band or a bin
    without any groups or words has no value.
    """
    values = {"none": 1.0}
    for band, (low, high) in BANDS.items():
        inside = [low <= row["timescale"] <= high for row in rows]
        for kind, wanted in ((band, True), (f"not_{band}", False)):
            chosen = [row for row, is_inside in zip(rows, inside, strict=True) if is_inside == wanted]
            for name, words in zip((*bins.NAMES, "all"), WORDS, strict=True):
                ratios = [row[f"ratio {words}"] for row in chosen]
                if ratios and not any(map(math.isnan, ratios)):
                    values[f"{kind}/{name}"] = statistics.geometric_mean(ratios)
    return values


@torch.no_grad()
def perplexities(model: SequenceModel, task: Words, layer: int, groups: Sequence[Tensor]) -> Tensor:
    """Return test perplexity by bin and of all words, with all units, then with each group silenced: (1 + groups, 5).

    As in the authors' code, the group's h is set to 0 where the next layer (or, after the last, the readout) reads it,
    at every step; the layer itself is not disturbed.
    """
    n = 1 + len(groups)
    bin_of = torch.from_numpy(bins.bins_of(task.counts().cpu().numpy())).to(task.device)
    sums = torch.zeros(n, len(bins.NAMES), dtype=torch.float64, device=task.device)
    counts = torch.zeros(len(bins.NAMES), dtype=torch.float64, device=task.device)
    for output, words in _outputs(model, task, layer, groups):
        at_once = max(1, LOGITS // (len(words) * len(bin_of)))
        for first in range(0, n, at_once):
            logits = model.readout(output[:, first : first + at_once])  # (S, groups, V)
            target = words.unsqueeze(1).expand(-1, logits.shape[1])
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
            sums[first : first + at_once].index_add_(1, bin_of[words], loss.T.double())
        counts += torch.bincount(bin_of[words], minlength=len(counts))
    sums, counts = (torch.cat([values, values.sum(-1, keepdim=True)], -1) for values in (sums, counts))
    return (sums / counts).exp().cpu()


def _outputs(
    model: SequenceModel, task: Words, layer: int, groups: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the last layer's outputs (S, 1 + groups, H) and the words to predict (S,) of each window of the test text.

    The layers up to `layer` are the same for all groups, and run once.
    """
    n, cells = 1 + len(groups), model.rnn.layers
    passed_on = torch.ones(n, cells[layer].hidden_size).to(model.readout.weight)
    for k, units in enumerate(groups, 1):
        passed_on[k, units] = 0.0
    states = [cell.initial_state(1 if k <= layer else n) for k, cell in enumerate(cells)]
    for batch in progress(task.batches("test"), "groups of units silenced", task.n_batches("test")):
        x = F.embedding(batch.x, model.vectors)  # (S, 1, E): the test text is one stream
        for k, cell in enumerate(cells):
            x, states[k] = engine.run(model.rnn.engine, cell, x, cell.weights(), states[k])
            if k == layer:
                x = x * passed_on
        yield x, batch.target.flatten()


def draw(figure: Any, run: Trained, rows: Sequence[TableRow], units: int) -> None:
    """Draw ratios by group, with the paper's if it silenced the same groups of the same model on the same text.

    units: number of units of the silenced layer.
    """
    model, task = run.config["model"], run.config["task"]
    is_papers_model = (model["name"], model.get("alpha"), units) == ("mts", ALPHA, PAPER_UNITS)
    is_papers = is_papers_model and (task["name"], task.get("corpus")) == ("ptb_word", "ptb")
    (ax,) = plotting.panels(figure, width=9.0)
    for k, shade in enumerate(plotting.shades(len(bins.NAMES))):
        ax.plot([row[f"ratio {WORDS[k]}"] for row in rows], "o-", color=shade, ms=4, lw=1.8, label=WORDS[k])
        if is_papers:
            ax.plot(PRINTED[k], ":", color=shade, lw=1.2)
    if is_papers:
        ax.plot([], [], ":", color="#444444", label="the paper's (Fig. 12: the\nreleased model of table 3)")
    ax.axhline(1.0, color="#999999", lw=1)
    times = [plotting.format_number(row["timescale"]) for row in rows]
    ax.set_xticks(range(len(rows)), times, rotation=60, fontsize=8)
    ax.set_xlabel("mean time scale of the silenced units' forget biases (steps)")
    ax.set_ylabel("perplexity silenced / perplexity")
    plotting.legend_at_right(ax, title="words that occur ... times", title_fontsize=8)
