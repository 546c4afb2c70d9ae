"""How much of its memory does each unit keep while a text is read? Forget gates of all units over one window.

Source: Mahto et al. 2021, appendix A.3 and Fig. 5; Mahto et al. 2020, Fig. 5.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_forget_gates, sequence, watched
from timescales.analysis.run import Run
from timescales.analysis.study import Study
from timescales.tasks import Task
from timescales.training.model import SequenceModel

TITLE = "Forget gates over time: units sorted by their mean, short memory above, long below"
LABELLED = 100  # steps at most whose words can be read below the picture
WINDOW = 5  # the authors' example: words 350 to 419 of the test text, the sixth window of 70
NEIGHBOURS, OF = 10, 1150  # units averaged in a row, in every layer; where the widest has another size, in proportion


def study(run: Run) -> Study:
    """Rows: one a group of neighbouring units: layer, mean gate, the median of the time scales that their forget biases
    began with, and the mean gate at each step. Values: each layer's share of units whose mean gate is above .9, and
    the mean gate. Where the state is carried the sixth window of the test text is read, else the first sequence."""
    gates, read = window(run.model, run.task)
    rows: list[dict[str, Any]] = []
    values: dict[str, float] = {}
    neighbours = max(1, round(max(cell.hidden_size for cell in run.model.rnn.layers) * NEIGHBOURS / OF))
    for layer, (forget, cell) in enumerate(zip(gates, run.initial.rnn.layers, strict=True), 1):
        means = forget.mean(0)
        values |= {
            f"layer{layer}/above_0.9": float((means > 0.9).double().mean()),
            f"layer{layer}/mean": float(means.mean()),
        }
        began = cell.timescales().detach().cpu().double()
        for units in means.argsort(stable=True).split(neighbours):
            steps = {f"step {t}": value for t, value in enumerate(forget[:, units].mean(1).tolist(), 1)}
            row = {"layer": layer, "units": len(units), "median_timescale": float(began[units].median())}
            rows.append(row | {"mean": float(means[units].mean())} | steps)
    words = run.task.words(read) if len(read) <= LABELLED else None
    return Study(TITLE, rows, values, lambda figure: draw(figure, rows, words))


@torch.no_grad()
def window(model: SequenceModel, task: Task) -> tuple[list[Tensor], Tensor]:
    """Each layer's forget gates over one window or sequence, float64 (S, H), and what was read, (S,) or (S, I).

    Padding is left out: of a shorter text the picture ends where the text does.
    Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model)
    carried, state = task.spec.carried, None
    batches = list(itertools.islice(task.batches("test"), WINDOW + 1)) if carried else [sequence(task, 0)]
    for batch in batches[:-1]:
        state = model(batch, state).state
    gates: list[list[Tensor]] = [[] for _ in model.rnn.layers]
    with watched(model, lambda layer, act: gates[layer].append(act.forget[0].double().cpu())):
        model(batches[-1], state)
    exists = task.exists(batches[-1])[:, 0].cpu()
    return [torch.stack(steps)[exists] for steps in gates], batches[-1].x[:, 0].cpu()[exists]


def draw(figure: Any, rows: list[dict[str, Any]], words: list[str] | None) -> None:
    """A map a layer, one under the other; on the right the median time scales that some rows were begun with."""
    layers = [[row for row in rows if row["layer"] == k] for k in sorted({row["layer"] for row in rows})]
    axes = plotting.panels(figure, 1, len(layers), width=10.0, height=1.2 + 2.6 * len(layers), sharex=True)
    for k, (one, own) in enumerate(zip(axes, layers, strict=True), 1):
        steps = [key for key in own[0] if key.startswith("step ")]
        image = one.imshow(
            [[row[key] for key in steps] for row in own], aspect="auto", vmin=0.0, vmax=1.0, cmap="viridis",
            interpolation="nearest", extent=(0.5, len(steps) + 0.5, len(own) + 0.5, 0.5),
        )  # fmt: skip
        units = sum(row["units"] for row in own)
        one.set(ylabel=f"layer {k}\n{units:,} units in {len(own)} rows", yticks=[])
        shown = sorted({round(q * (len(own) - 1)) for q in (0.0, 0.25, 0.5, 0.75, 1.0)})
        right = one.secondary_yaxis("right")
        right.set_yticks([p + 1 for p in shown], [plotting.say(own[p]["median_timescale"]) for p in shown], fontsize=8)
        right.set_ylabel("median time scale of the\nfirst biases (steps)", fontsize=8)
    if words:
        axes[-1].set_xticks(range(1, len(words) + 1), words, rotation=90, fontsize=6)
        axes[-1].set_xlabel("words read")
    else:
        axes[-1].set_xlabel("steps")
    figure.colorbar(image, ax=axes, label="forget gate", shrink=0.6)
