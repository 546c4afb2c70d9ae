"""Does a language model that carries its state on find its way from the zeros with which a text begins?

Source: none; ours. Such a model is trained on one start from zeros in each stream and epoch, and evaluated on one start
in each stream of a split: a stream that such a start leads astray may be lost to its end, for the state is carried on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import plotting
from timescales.analysis.run import MARKERS, Run, titles
from timescales.analysis.study import Study, progress
from timescales.errors import ConfigError
from timescales.tasks import Task
from timescales.tasks.task import Batch
from timescales.training.model import SequenceModel

TITLE = "Validation text in pieces, each from zeros and from a state that another piece has left"
STEPS, PIECES = 120, 1280
LOST = 1.0  # nats a symbol by which a piece's second half is worse from zeros
LOGITS = 2**24  # numbers at once


class Starts(NamedTuple):
    """What came of each piece: the losses (STEPS, pieces) in nats from zeros and from the warm state, and how large the
    last layer's h is at the piece's end from zeros, mean |h| over its units (pieces,)."""

    cold: Tensor
    warm: Tensor
    activity: Tensor


def study(run: Run) -> Study:
    """Rows: what = "step": for each step after the start the losses in nats, means over the pieces: cold (from zeros),
    found (cold of those that are not lost) and warm; what = "piece": of each piece cold and warm of its second half,
    the `activity` in which it ends from zeros, and whether it is lost.

    Values: pieces, the share of them lost, the means of cold, found and warm over all steps, the least activity of
    those found, and the greatest of those lost.
    Raises ConfigError for a task whose state is not carried on, or whose validation text is too short for two pieces.
    """
    return _told([("", run.colour, starts(run.model, run.task))])


def compare(runs: Sequence[Run]) -> Study:
    """The same of several runs."""
    names = titles(runs)
    return _told([(name, run.colour, starts(run.model, run.task)) for name, run in zip(names, runs, strict=True)])


def starts(model: SequenceModel, task: Task) -> Starts:
    """The same pieces from zeros and from one warm state, on the CPU.

    The warm state is that at the end of the piece whose second half is read best from zeros. It comes from another
    text, so the first steps after it are read worse than any.
    """
    text = pieces(task)
    cold, activity = losses(model, text)
    best = int(cold[STEPS // 2 :].mean(0).nan_to_num(torch.inf).argmin())
    with torch.no_grad():
        state = model(_batch(text[:, best : best + 1])).state
    return Starts(cold, losses(model, text, state)[0], activity)


def pieces(task: Any) -> Tensor:
    """At most PIECES pieces of the validation streams, evenly over them, (STEPS + 1, pieces)."""
    if not task.spec.carried:
        own = " with state=reset" if hasattr(task, "streams") else ""
        raise ConfigError(f"this question is for models that carry their state on, not for {type(task).__name__}{own}")
    read = task.streams["valid"].long()
    text = read.T.unfold(1, STEPS + 1, STEPS).flatten(0, 1) if len(read) > STEPS else read.new_empty(0, STEPS + 1)
    text = text[(text >= 0).all(1)]  # a stream may end with a filling
    if len(text) < 2:
        raise ConfigError(f"validation streams of {len(read) - 1} symbols have no two pieces of {STEPS}")
    return text[torch.linspace(0, len(text) - 1, min(PIECES, len(text))).long()].T


@torch.no_grad()
def losses(model: SequenceModel, text: Tensor, state: Sequence[Any] | None = None) -> tuple[Tensor, Tensor]:
    """The loss of each piece at each step, (STEPS, pieces), and the last layer's mean |h| at its end, (pieces,).

    text: (STEPS + 1, pieces); state: one for all pieces, (1, H) a layer, or None for zeros.
    """
    at_once = max(1, LOGITS // (STEPS * model.spec.output_size))
    out, ends = [], []
    for part in progress(text.split(at_once, 1), "pieces"):
        batch, n = _batch(part), part.shape[1]
        begin = None if state is None else [type(s)(*(v.expand(n, -1).contiguous() for v in s)) for s in state]
        logits, after = model(batch, begin)[:2]
        out.append(F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), reduction="none").view(-1, n).cpu())
        ends.append(after[-1].h.abs().mean(1).cpu())
    return torch.cat(out, 1), torch.cat(ends)


def _batch(text: Tensor) -> Batch:
    return Batch(text[:-1].contiguous(), text[1:].contiguous())


def _told(found: Sequence[tuple[str, str, Starts]]) -> Study:
    """The study of some runs, each (name, colour, starts)."""
    rows: list[dict[str, Any]] = []
    values: dict[str, float] = {}
    lines = []
    for name, colour, (cold, warm, activity) in found:
        run, prefix = ({"run": name}, f"{name}/") if name else ({}, "")
        late = [each[STEPS // 2 :].mean(0) for each in (cold, warm)]
        lost = ~(late[0] - late[1] <= LOST)  # NaN, too
        means = {"cold": cold.mean(1), "found": cold[:, ~lost].mean(1), "warm": warm.mean(1)}
        if lost.all():
            del means["found"]
        steps = _rows("step", run, means)
        each = _rows(
            "piece", run, dict(zip(("cold", "warm"), late, strict=True)) | {"activity": activity, "lost": lost}
        )
        rows += steps + each
        values |= {f"{prefix}pieces": float(len(lost)), f"{prefix}lost": float(lost.double().mean())}
        values |= {f"{prefix}{key}": float(mean.double().mean()) for key, mean in means.items()}
        if not lost.all():
            values[f"{prefix}least_activity_of_found"] = float(activity[~lost].min())
        if lost.any():
            values[f"{prefix}greatest_activity_of_lost"] = float(activity[lost].max())
        lines.append((name, colour, steps, each))
    return Study(TITLE, rows, values, lambda figure: draw(figure, lines))


def _rows(what: str, run: dict[str, str], columns: dict[str, Tensor]) -> list[dict[str, Any]]:
    """A row for each place, counted from 1, with four decimals: thousands of rows."""
    by_place = zip(*(column.double().tolist() for column in columns.values()), strict=True)
    return [
        {"what": what, **run, "at": k} | {key: round(value, 4) for key, value in zip(columns, values, strict=True)}
        for k, values in enumerate(by_place, 1)
    ]


def draw(figure: Any, found: Sequence[tuple[str, str, Sequence[dict[str, Any]], Sequence[dict[str, Any]]]]) -> None:
    """Left: loss by step, from zeros and warm. Right: a dot a piece, its second half's loss over where its h ends."""
    left, right = plotting.panels(figure, 2, width=11.0)
    for number, (name, colour, steps, each) in enumerate(found):
        said = f"{name}: " if name else ""
        for key, style, words in (("cold", "-", "from zeros"), ("warm", ":", "from a warm state")):
            left.plot([row["at"] for row in steps], [row[key] for row in steps], ls=style, lw=1.6, color=colour,
                      marker=MARKERS[number % len(MARKERS)], ms=4, markevery=10, label=f"{said}{words}")  # fmt: skip
        lost = sum(row["lost"] for row in each)
        right.plot([row["activity"] for row in each], [row["cold"] for row in each], "x" if number % 2 else "o",
                   ms=4, mew=0.8, color=colour, fillstyle="none",
                   label=f"{said}{lost:.0f} of {len(each):,} lost")  # fmt: skip
    left.set(xlabel="steps after the start", ylabel="loss (nats), mean over pieces", xscale="log")
    right.set(xlabel="mean |h| of the last layer, where a piece from zeros ends",
              ylabel=f"loss of its last {STEPS - STEPS // 2} steps (nats)")  # fmt: skip
    plotting.plain(left)
    for one in (left, right):
        one.legend(frameon=False, fontsize=8)
