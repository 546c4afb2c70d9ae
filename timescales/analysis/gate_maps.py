"""Show how much of its memory each unit keeps while a text is read: the forget gates of all units over one window.

Source: Mahto et al. 2021, appendix A.3 and Fig. 5; Mahto et al. 2020, Fig. 5.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.observe import sequence
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.models.sequence import SequenceModel
from timescales.tasks import Task
from timescales.training.gates import needs_forget_gates, recorded

TITLE = "Forget gates over time: units sorted by their mean, short memory at the top, long at the bottom"
WINDOW = 5  # the authors' example: words 350 to 419 of the test text, the sixth window of 70


def study(run: Trained) -> Study:
    """Study forget gates over the sixth window of the test text if the state is carried, else over the first sequence.

    Rows: one per group of neighbouring units: layer, number of units, the median of the time scales assigned by their
    initial forget biases, the mean gate, and the mean gate at each step. Values: for each layer the share of units
    whose mean gate is above .9 ("long units"), and the mean gate; the same share of all units; and the share of the
    long units that are in the layer with most of them (no value without any long unit).
    """
    gates, inputs = window(run.model, run.task)
    rows: list[TableRow] = []
    values: dict[str, float] = {}
    # Ten units are averaged in a row if the widest layer has 1,150; in proportion for other sizes.
    neighbours = max(1, round(max(cell.hidden_size for cell in run.model.rnn.layers) * 10 / 1150))
    for layer, (forget, cell) in enumerate(zip(gates, run.initial.rnn.layers, strict=True), 1):
        means = forget.mean(0)
        values[f"layer{layer}/above_0.9"] = float((means > 0.9).double().mean())
        values[f"layer{layer}/mean"] = float(means.mean())
        assigned = cell.timescales().detach().cpu().double()
        for units in means.argsort(stable=True).split(neighbours):
            row = {"layer": layer, "units": len(units), "median_timescale": float(assigned[units].median())}
            steps = {f"step {t}": value for t, value in enumerate(forget[:, units].mean(1).tolist(), 1)}
            rows.append(row | {"mean": float(means[units].mean())} | steps)
    values |= over_layers([forget.mean(0) > 0.9 for forget in gates])
    words = run.task.words(inputs) if len(inputs) <= 100 else None  # more could not be read below the picture
    return Study(TITLE, rows, values, lambda figure: draw(figure, rows, words))


def over_layers(long: Sequence[Tensor]) -> dict[str, float]:
    """Return the share of long units in all layers, and in the layer with most. long: (units,) bool by layer."""
    numbers = [int(layer.sum()) for layer in long]
    values = {"above_0.9": sum(numbers) / sum(map(len, long))}
    return values | ({"in_one_layer": max(numbers) / sum(numbers)} if sum(numbers) else {})


@torch.no_grad()
def window(model: SequenceModel, task: Task) -> tuple[list[Tensor], Tensor]:
    """Return each layer's forget gates over one window or sequence, float64 (S, H), and its inputs, (S,) or (S, I).

    Padding is skipped. Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model.rnn)
    carried, state = task.spec.carried, None
    batches = list(itertools.islice(task.batches("test"), WINDOW + 1)) if carried else [sequence(task, 0)]
    for batch in batches[:-1]:
        state = model(batch, state).state
    gates, _ = recorded(model, batches[-1], state)
    exists = task.exists(batches[-1])[:, 0].cpu()
    return [forget[:, 0].double().cpu()[exists] for forget in gates], batches[-1].x[:, 0].cpu()[exists]


def draw(figure: Any, rows: list[TableRow], words: list[str] | None) -> None:
    """Draw a map per layer, one below the other; on the right the median assigned time scales of some rows."""
    layers = [[row for row in rows if row["layer"] == k] for k in sorted({row["layer"] for row in rows})]
    axes = plotting.panels(figure, 1, len(layers), width=10.0, height=1.2 + 2.6 * len(layers), sharex=True)
    for layer, (ax, layer_rows) in enumerate(zip(axes, layers, strict=True), 1):
        image = _draw_layer(ax, layer_rows)
        units = sum(row["units"] for row in layer_rows)
        ax.set(ylabel=f"layer {layer}\n{units:,} units in {len(layer_rows)} rows", yticks=[])
    if words:
        axes[-1].set_xticks(range(1, len(words) + 1), map(plotting.literal, words), rotation=90, fontsize=6)
        axes[-1].set_xlabel("words read")
    else:
        axes[-1].set_xlabel("steps")
    figure.colorbar(image, ax=axes, label="forget gate", shrink=0.6)


def _draw_layer(ax: Any, rows: list[TableRow]) -> Any:
    """Draw the map of a layer. Return its image."""
    steps = [key for key in rows[0] if key.startswith("step ")]
    gates = [[row[key] for key in steps] for row in rows]
    extent = (0.5, len(steps) + 0.5, len(rows) + 0.5, 0.5)
    look = {"aspect": "auto", "vmin": 0.0, "vmax": 1.0, "cmap": "viridis", "interpolation": "nearest"}
    image = ax.imshow(gates, extent=extent, **look)
    labelled = sorted({round(q * (len(rows) - 1)) for q in (0.0, 0.25, 0.5, 0.75, 1.0)})
    times = [plotting.format_number(rows[k]["median_timescale"]) for k in labelled]
    right = ax.secondary_yaxis("right")
    right.set_yticks([k + 1 for k in labelled], times, fontsize=8)
    right.set_ylabel("median time scale of the\ninitial biases (steps)", fontsize=8)
    return image
