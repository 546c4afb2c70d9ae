"""How long does one word change what each layer holds, and what units of different time scales hold?

Source: Mahto et al. 2020, section 2.5, Eq. 6 and Fig. 6; Mahto et al. 2021, appendix A.4 and Figs. 6-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import plotting
from timescales.analysis.common import by_timescale, needs_words
from timescales.analysis.run import MARKERS, Run
from timescales.analysis.study import Study, progress
from timescales.errors import ConfigError
from timescales.nn.engine.eager import project
from timescales.tasks import Task
from timescales.training.model import SequenceModel

TITLE = "Change of the cell state by one word replaced with <unk>, over the words read since"
UNK = "<unk>"
GROUP, OF = 100, 1150  # units of a group in the paper's second layer; of other sizes in proportion
SIDE_BY_SIDE = 8  # windows: some 300 copies of the state on average, enough for matrix products at full speed
AFTER = (1, 10, 30)  # words, at which the values say what is left of the change


def study(run: Run) -> Study:
    """Rows: the mean change by layer, group of units and distance, "all" units and for the second layer (or the only
    one) groups of 100 of 1,150, longest time scale first. Values: what is left of each layer's after some words."""
    model, task = run.model, run.task
    middle = min(1, len(model.rnn.layers) - 1)
    times = [cell.timescales().detach().cpu().double() for cell in model.rnn.layers]
    groups = [[("all", torch.arange(len(own)))] for own in times]
    groups[middle] += list(by_timescale(times[middle], GROUP, OF).items())
    found = changes(model, task, [[units for _, units in own] for own in groups])
    rows = [
        {"layer": layer, "units": name, "timescale": float(times[layer - 1][units].mean()), "distance": k, "change": c}
        for layer, (own, values) in enumerate(zip(groups, found, strict=True), 1)
        for (name, units), column in zip(own, values.T.tolist(), strict=True)
        for k, c in enumerate(column)
    ]
    return Study(TITLE, rows, values_of(rows), lambda figure: draw(figure, [(run, rows)]))


def compare(runs: Sequence[Run]) -> Study:
    """The same of several runs' layers: Fig. 6. What was measured of a run before, in its analysis/, is taken."""
    found = [(run, run.earlier("word_ablation") or study(run).rows) for run in runs]
    rows = [{"run": run.directory.name, **row} for run, own in found for row in own]
    values = {f"{k}/{key}": value for k, (_, own) in enumerate(found, 1) for key, value in values_of(own).items()}
    return Study(TITLE, rows, values, lambda figure: draw(figure, found))


def values_of(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By layer, what is left of the change after some words, as a share of what it was at once."""
    whole = {(row["layer"], row["distance"]): row["change"] for row in rows if row["units"] == "all"}
    layers = sorted({layer for layer, _ in whole})
    return {f"layer{k}/left_{n}": whole[k, n] / whole[k, 0] for k in layers for n in AFTER if (k, n) in whole}


@torch.no_grad()
def changes(model: SequenceModel, task: Task, groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """For each layer the mean of ||c_t^(k) - c_t|| / ||c_t|| at distances k, float64 (K, groups of the layer).

    c_t is what the layer holds after word t of a window of the test text, c_t^(k) the same with the word k before
    replaced by <unk>; groups names the units whose norms these are. Every word of every window is replaced in turn,
    and each replacement is run once and counted at all distances: K = window length.
    Where the paper is silent: terms that would reach before the window are left out, and a window begins with the
    state that the text before it has left. A cell without c holds its h. In float32 what is below 1e-7 is rounding.
    Raises ConfigError for a task that is no language model of words, or whose words have no <unk>.
    """
    unk = unknown_word(task)
    member = [
        torch.stack([torch.zeros(cell.hidden_size).index_fill(0, units.cpu(), 1.0) for units in own], 1)
        for cell, own in zip(model.rnn.layers, groups, strict=True)
    ]
    member = [m.to(model.readout.weight) for m in member]
    sums = [torch.zeros(task.length, m.shape[1], dtype=torch.float64, device=m.device) for m in member]
    counts = torch.zeros(task.length, 1, dtype=torch.float64, device=task.device)
    total = -(-task.n_batches("test") // SIDE_BY_SIDE)
    for words, states in progress(blocks(model, task), "word ablation", total):
        for found, own in zip(sums, replaced(model, words, states, unk, member), strict=True):
            found[: len(words)] += own
        counts[: len(words)] += words.shape[1] * torch.arange(len(words), 0, -1, device=task.device).unsqueeze(1)
    reached = int((counts > 0).sum())
    return [(found[:reached] / counts[:reached]).cpu() for found in sums]


def unknown_word(task: Task) -> int:
    """The number of <unk>. Raises ConfigError for a task without it."""
    vocabulary = needs_words(task).vocabulary
    if UNK not in vocabulary:
        raise ConfigError(f"this corpus has no {UNK} to put in a word's place")
    return vocabulary.index(UNK)


def blocks(model: SequenceModel, task: Task) -> Iterator[tuple[Tensor, list[Any]]]:
    """Windows of the test text side by side: words (S, W), and each layer's state before them, (W, H).

    The text is read once, from state to state; W is at most SIDE_BY_SIDE, and less where the text ends.
    """
    words: list[Tensor] = []
    states: list[Any] = []
    state: Any = [cell.initial_state(1) for cell in model.rnn.layers]
    for batch in task.batches("test"):
        if words and (len(words) == SIDE_BY_SIDE or len(words[0]) != len(batch.x)):
            yield torch.cat(words, 1), side_by_side(states)
            words, states = [], []
        words.append(batch.x)
        states.append(state)
        _, state = model.rnn(F.embedding(batch.x, model.vectors), state)
    yield torch.cat(words, 1), side_by_side(states)


def side_by_side(states: Sequence[Any]) -> list[Any]:
    """Several runs' states, one a layer each, as one: (B, H) each."""
    return [type(layers[0])(*map(torch.cat, zip(*layers, strict=True))) for layers in zip(*states, strict=True)]


def replaced(
    model: SequenceModel, words: Tensor, states: Sequence[Any], unk: int, member: Sequence[Tensor]
) -> list[Tensor]:
    """Summed over windows and words replaced, the change at each distance: for each layer (S, groups).

    Copy 0 of a window is the text as it is; at word t a copy joins in which this word is <unk>: until then it was
    copy 0. So of all pairs of a word replaced and a word read later each is computed once.
    """
    (S, W), cells = words.shape, model.rnn.layers
    weights = [cell.weights() for cell in cells]
    read = project(F.embedding(words, model.vectors), weights[0].ih, weights[0].bias_ih)
    other = project(model.vectors[unk].expand(W, 1, -1), weights[0].ih, weights[0].bias_ih)
    now = [type(state)(*(value.unsqueeze(1) for value in state)) for state in states]  # (W, copies, H)
    sums = [member[k].new_zeros(S, member[k].shape[1], dtype=torch.float64) for k in range(len(cells))]
    for t in range(S):
        gx = torch.cat([read[t].unsqueeze(1).expand(-1, t + 1, -1), other], 1)
        for k, (cell, own) in enumerate(zip(cells, weights, strict=True)):
            before = type(now[k])(*(torch.cat([value, value[:, :1]], 1) for value in now[k]))
            gx = gx if k == 0 else project(now[k - 1].h, own.ih, own.bias_ih)
            now[k] = cell.step(gx, project(before.h, own.hh, own.bias_hh), before)
            held = now[k].c if "c" in now[k]._fields else now[k].h
            change = (held[:, 1:] - held[:, :1]).square() @ member[k]
            ratio = (change / (held[:, :1].square() @ member[k])).sqrt()
            ratio = ratio.nan_to_num(nan=0.0, posinf=torch.inf)  # 0 of 0 has not changed
            sums[k][: t + 1] += ratio.sum(0).flip(0).double()  # copy j is t - j words away
    return sums


def draw(figure: Any, found: Sequence[tuple[Run, Sequence[dict[str, Any]]]]) -> None:
    """Left: layers, of every run. Right, of one run: groups of units of one layer."""
    axes = plotting.panels(figure, 1 if len(found) > 1 else 2, width=7.0 if len(found) > 1 else 12.0)
    for number, (run, rows) in enumerate(found):
        for layer, style in zip(sorted({row["layer"] for row in rows}), plotting.STYLES, strict=False):
            mine = [row for row in rows if row["layer"] == layer and row["units"] == "all"]
            name = f"layer {layer}" + (f"; {run.title}" if len(found) > 1 else "")
            axes[0].plot(
                [r["distance"] for r in mine], [r["change"] for r in mine], ls=style,
                lw=max(0.6, 2.2 - 0.8 * number), marker=MARKERS[number % len(MARKERS)], ms=4,
                markevery=max(1, len(mine) // 12), color=run.colour, label=name,
            )  # fmt: skip
    if len(found) == 1:
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in found[0][1]:
            if row["units"] != "all":
                groups.setdefault(row["units"], []).append(row)
        shades = plotting.shades(len(groups))
        for shade, mine in zip(shades, groups.values(), strict=True):
            axes[1].plot([r["distance"] for r in mine], [r["change"] for r in mine], color=shade, lw=1.6,
                         label=f"{plotting.say(mine[0]['timescale'])}")  # fmt: skip
        axes[1].set_title(f"layer {next(iter(groups.values()))[0]['layer']}, groups of units", loc="left", fontsize=10)
        axes[1].legend(frameon=False, fontsize=8, title="mean time scale\nof the bias (steps)", title_fontsize=8,
                       loc="center left", bbox_to_anchor=(1.0, 0.5))  # fmt: skip
    for one in axes:
        one.set(yscale="log", xlabel="words read since", ylabel="change of the cell state, share of its norm")
    axes[0].legend(frameon=False, fontsize=8)
