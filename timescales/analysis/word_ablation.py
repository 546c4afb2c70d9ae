"""Measure how long one word changes the state of each layer, and of units with different time scales.

Source: Mahto et al. 2020, section 2.5, Eq. 6 and Fig. 6; Mahto et al. 2021, appendix A.4 and Figs. 6-8.
"""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import plotting
from timescales.analysis.needs import needs
from timescales.analysis.observe import by_timescale
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, joined
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn.engine.arguments import first_state
from timescales.nn.engine.eager import recurrent_share
from timescales.tasks import Task, Words
from timescales.training.progress import progress

TITLE = "Change of the cell state by one word replaced with <unk>, over the words read since"
UNK = "<unk>"
GROUP, PAPER_UNITS = 100, 1150  # units of a group in the paper's second layer; in proportion for other sizes
BATCH_SIZE = 8  # windows: about 300 copies of the state on average, enough for fast matrix products
DECAY = 30  # words over which its decay is measured


def study(run: Trained) -> Study:
    """Study the change of states after one replaced word.

    Rows: the mean change by layer, group of units and distance in words. Groups are "all" units of each layer and,
    for the second layer (or the only one), groups of 100 of 1,150 units, longest time scale first.

    Values: for each layer what is left of the change after some words, as a share of the change at distance 0, and the
    mean fall of its logarithm per word over the first 30 words (`decay`); the same decay of the groups of units with
    longer and with shorter time scales, the mean over either half of the groups.
    """
    model = run.model
    grouped_layer = min(1, len(model.rnn.layers) - 1)
    times = [cell.timescales().detach().cpu().double() for cell in model.rnn.layers]
    groups = [{"all": torch.arange(len(layer_times))} for layer_times in times]
    groups[grouped_layer] |= by_timescale(times[grouped_layer], GROUP, PAPER_UNITS)
    change = changes(model, run.task, [list(layer.values()) for layer in groups])
    rows = [
        {"layer": layer + 1, "units": name, "timescale": float(times[layer][units].mean()), "distance": k, "change": c}
        for layer, layer_change in enumerate(change)
        for (name, units), by_distance in zip(groups[layer].items(), layer_change.T.tolist(), strict=True)
        for k, c in enumerate(by_distance)
    ]
    return Study(TITLE, rows, values_of(rows), lambda figure: draw(figure, [(run, rows)]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare the layers of several runs: Fig. 6. Rows of an earlier study of a run are read from its analysis/."""
    of_runs = [run.earlier("word_ablation") or study(run).rows for run in runs]
    heads = [{"run": run.directory.name} for run in runs]
    rows, values = joined([(own, values_of(own)) for own in of_runs], heads)
    return Study(TITLE, rows, values, lambda figure: draw(figure, list(zip(runs, of_runs, strict=True))))


def values_of(rows: Sequence[TableRow]) -> dict[str, float]:
    """Return the values of `study`."""
    curves: dict[tuple[int, str], dict[int, float]] = {}
    for row in rows:
        curves.setdefault((row["layer"], row["units"]), {})[row["distance"]] = row["change"]
    layers = {layer: curve for (layer, units), curve in curves.items() if units == "all"}
    values = {f"layer{k}/left_{n}": c[n] / c[0] for k, c in layers.items() for n in (1, 10, 30) if n in c}
    values |= {f"layer{k}/decay": decay(curve) for k, curve in layers.items() if DECAY in curve}
    groups = [decay(c) for (_, units), c in curves.items() if units != "all" and DECAY in c]  # the longest first
    if len(groups) > 1:
        half = len(groups) // 2  # of an odd number the middle one is in neither
        values |= {"longer/decay": statistics.fmean(groups[:half]), "shorter/decay": statistics.fmean(groups[-half:])}
    return values


def decay(change: Mapping[int, float]) -> float:
    """Return the mean fall of the logarithm of a change per word, over the first 30 words. change: by distance."""
    smallest = 1e-7 * change[0]  # below are rounding errors of float32
    return math.log(change[0] / max(change[DECAY], smallest)) / DECAY


@torch.no_grad()
def changes(model: SequenceModel, task: Task, groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return for each layer the mean of ||c_t^(k) - c_t|| / ||c_t|| at distances k, float64 (K, groups of the layer).

    c_t is the layer's cell state after word t of a window of the test text, and c_t^(k) the same with the word k before
    replaced by <unk>. groups: for each layer the units of each group, over which norms are taken.

    Every word of every window is replaced in turn, and each replacement is run once and counted at all distances; K is
    the length of a window. The paper does not state the following: terms that would reach before the window are
    skipped, and a window begins with the state after the text before it. For a cell without c, h is used. In float32,
    values below 1e-7 are rounding errors. Raises ConfigError for a task that is not language modelling by words, or
    whose corpus has no <unk>.
    """
    task = needs(task, Words)
    unk = unknown_word(task)
    members = [
        torch.stack([torch.zeros(cell.hidden_size).index_fill(0, units.cpu(), 1.0) for units in layer_groups], 1)
        for cell, layer_groups in zip(model.rnn.layers, groups, strict=True)
    ]
    members = [member.to(model.vectors) for member in members]  # (H, groups): 1 where a unit is in a group
    sums = [torch.zeros(task.length, m.shape[1], dtype=torch.float64, device=m.device) for m in members]
    counts = torch.zeros(task.length, 1, dtype=torch.float64, device=task.device)
    total = -(-task.n_batches("test") // BATCH_SIZE)
    for words, states in progress(blocks(model, task), "word ablation", total):
        S, W = words.shape
        for layer_sums, change in zip(sums, replaced(model, words, states, unk, members), strict=True):
            layer_sums[:S] += change
        counts[:S] += W * torch.arange(S, 0, -1, device=task.device).unsqueeze(1)
    reached = int((counts > 0).sum())
    return [(layer_sums[:reached] / counts[:reached]).cpu() for layer_sums in sums]


def unknown_word(task: Task) -> int:
    """Return the token of <unk>. Raises ConfigError for a task without it."""
    vocabulary = needs(task, Words).vocabulary
    if UNK not in vocabulary:
        raise ConfigError(f"this corpus has no {UNK} to replace a word with")
    return vocabulary.index(UNK)


def blocks(model: SequenceModel, task: Words) -> Iterator[tuple[Tensor, list[Any]]]:
    """Yield W consecutive windows of the test text: words (S, W), and each layer's state before each window, (W, H).

    The text is read once, with the state carried. W is BATCH_SIZE, and smaller at the end of the text.
    """
    words: list[Tensor] = []
    states: list[Any] = []
    state: Any = [first_state(cell, 1) for cell in model.rnn.layers]
    for batch in task.batches("test"):
        if words and (len(words) == BATCH_SIZE or len(words[0]) != len(batch.x)):
            yield torch.cat(words, 1), _joined(states)
            words, states = [], []
        words.append(batch.x)
        states.append(state)
        _, after = model.rnn(F.embedding(batch.x, model.vectors), state)
        state = model.rnn.split_state(after)
    yield torch.cat(words, 1), _joined(states)


def _joined(states: Sequence[Any]) -> list[Any]:
    """Join the states of several windows, each one state per layer, into one batch: (W, H) per layer."""
    return [type(layers[0])(*map(torch.cat, zip(*layers, strict=True))) for layers in zip(*states, strict=True)]


def replaced(
    model: SequenceModel, words: Tensor, states: Sequence[Any], unk: int, members: Sequence[Tensor]
) -> list[Tensor]:
    """Return the change at each distance, summed over windows and replaced words: for each layer (S, groups).

    Copy 0 of a window reads the text unchanged. At word t a copy is added in which this word is <unk>; until then it
    equals copy 0. So each pair of a replaced word and a later word is computed once.
    """
    (S, W), cells = words.shape, model.rnn.layers
    weights = [cell.weights() for cell in cells]
    as_read = F.linear(F.embedding(words, model.vectors), weights[0].ih, weights[0].bias_ih)
    as_unk = F.linear(model.vectors[unk].expand(W, 1, -1), weights[0].ih, weights[0].bias_ih)
    now = [type(state)(*(value.unsqueeze(1) for value in state)) for state in states]  # (W, copies, H)
    sums = [member.new_zeros(S, member.shape[1], dtype=torch.float64) for member in members]
    for t in range(S):
        gx = torch.cat([as_read[t].unsqueeze(1).expand(-1, t + 1, -1), as_unk], 1)
        for k, (cell, weight) in enumerate(zip(cells, weights, strict=True)):
            before = type(now[k])(*(torch.cat([value, value[:, :1]], 1) for value in now[k]))
            if k > 0:
                gx = F.linear(now[k - 1].h, weight.ih, weight.bias_ih)
            now[k] = cell.step(gx, recurrent_share(before.h, weight), before)
            sums[k][: t + 1] += _relative_changes(now[k], members[k])
    return sums


def _relative_changes(state: Any, member: Tensor) -> Tensor:
    """Sum the relative change of each copy's cell state over windows: (copies - 1, groups), nearest word first.

    state: (W, copies, H) each. Copy j was changed at word j - 1, so the last copy is at distance 0.
    """
    held = state.c if "c" in state._fields else state.h
    change = (held[:, 1:] - held[:, :1]).square() @ member
    ratio = (change / (held[:, :1].square() @ member)).sqrt()
    ratio = ratio.nan_to_num(nan=0.0, posinf=torch.inf)  # 0 / 0 is no change
    return ratio.sum(0).flip(0).double()


def draw(figure: Any, runs: Sequence[tuple[Trained, Sequence[TableRow]]]) -> None:
    """Draw the layers of every run (left), and for a single run groups of units of one layer (right)."""
    single = len(runs) == 1
    axes = plotting.panels(figure, 2 if single else 1, width=12.0 if single else 7.0)
    for number, (run, rows) in enumerate(runs):
        # The runs of a model have one colour, and line styles distinguish layers.
        look = {"lw": max(0.6, 2.2 - 0.8 * number), "marker": plotting.MARKERS[number % len(plotting.MARKERS)]}
        for layer, style in zip(sorted({row["layer"] for row in rows}), itertools.cycle(plotting.STYLES), strict=False):
            curve = [row for row in rows if row["layer"] == layer and row["units"] == "all"]
            x, y = ([row[key] for row in curve] for key in ("distance", "change"))
            label = f"layer {layer}" if single else f"layer {layer}; {run.title}"
            every = max(1, len(x) // 12)
            axes[0].plot(x, y, ls=style, color=run.colour, label=label, ms=4, markevery=every, **look)
    for ax in axes:
        ax.set(yscale="log", xlabel="words read since", ylabel="relative change of the cell state")
    plotting.small_legend(axes[0])
    if single:
        groups: dict[str, list[TableRow]] = {}
        for row in (row for row in runs[0][1] if row["units"] != "all"):
            groups.setdefault(row["units"], []).append(row)
        for shade, group in zip(plotting.shades(len(groups)), groups.values(), strict=True):
            x, y = ([row[key] for row in group] for key in ("distance", "change"))
            axes[1].plot(x, y, color=shade, lw=1.6, label=plotting.format_number(group[0]["timescale"]))
        layer = next(iter(groups.values()))[0]["layer"]
        axes[1].set_title(f"layer {layer}, groups of units", loc="left", fontsize=10)
        plotting.legend_at_right(axes[1], title="mean time scale\nof the bias (steps)", title_fontsize=8)
