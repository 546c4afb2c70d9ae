"""Measure whether a language model with a carried state recovers from the zero state at the beginning of a text.

Source: none; our own analysis. Such a model is trained on one start from zeros per stream and epoch, and evaluated on
one start per stream of a split. Since the state is carried, a stream that begins badly may stay bad to its end.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import plotting
from timescales.analysis.groups import Line, titles
from timescales.analysis.needs import needs_softmax
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel, State
from timescales.tasks import Task
from timescales.tasks.task import Batch
from timescales.torch_private import tree_map_only
from timescales.training.progress import progress

TITLE = "Validation text in pieces, each read from the zero state and from the final state of another piece"
STEPS, PIECES = 120, 1280
LOGITS = 2**24  # numbers computed at once


class Starts(NamedTuple):
    """The losses of each piece of text, from the zero state and from a warm state.

    cold, warm: losses (STEPS, pieces) in nats from the zero state and from the warm state.
    activity: mean |h| of the last layer's units at the end of the piece, from zeros, (pieces,).
    """

    cold: Tensor
    warm: Tensor
    activity: Tensor


def study(run: Trained) -> Study:
    """Study the first steps after a start from zeros.

    Rows with what = "step": for each step after the start the mean losses in nats: cold (from zeros), found (from
    zeros, over the pieces that are not lost) and warm. Rows with what = "piece": the cold and warm loss of the second
    half of each piece, its `activity`, and whether it is lost.

    Values: pieces, the share of them that is lost, the means of cold, found and warm over all steps, the least activity
    of the pieces that are not lost, and the greatest of those that are.
    Raises ConfigError for a task that is no text with a carried state, or whose validation text is shorter than two
    pieces.
    """
    return study_of([Line("", run.colour, "", starts(run.model, run.task))])


def compare(runs: Sequence[Trained]) -> Study:
    """Compare several runs."""
    return study_of(
        [Line(name, run.colour, "", starts(run.model, run.task)) for name, run in zip(titles(runs), runs, strict=True)]
    )


def starts(model: SequenceModel, task: Task) -> Starts:
    """Read the same pieces from zeros and from one warm state, on the CPU.

    The warm state is the one at the end of the piece with the best second half from zeros. It comes from another text,
    so the first steps after it have higher losses than later ones.
    """
    needs_softmax(model)
    text = pieces(task)
    cold, activity = losses(model, text)
    best = int(cold[STEPS // 2 :].mean(0).nan_to_num(torch.inf).argmin())
    with torch.no_grad():
        state = model(Batch(text[:-1, best, None], text[1:, best, None])).state
    return Starts(cold, losses(model, text, state)[0], activity)


def pieces(task: Task) -> Tensor:
    """Return at most PIECES pieces of the validation streams, evenly spaced, (STEPS + 1, pieces)."""
    streams: dict[str, Tensor] = getattr(task, "streams", {})
    if not (task.spec.carried and streams):
        setting = " with state=reset" if streams else ""
        raise ConfigError(f"this analysis is for texts with a carried state, not for {type(task).__name__}{setting}")
    stream = streams["valid"].long()
    long_enough = len(stream) > STEPS
    text = stream.T.unfold(1, STEPS + 1, STEPS).flatten(0, 1) if long_enough else stream.new_empty(0, STEPS + 1)
    text = text[(text >= 0).all(1)]  # the last streams may be filled up
    if len(text) < 2:
        raise ConfigError(f"validation streams of {len(stream) - 1} symbols do not have two pieces of {STEPS}")
    return text[torch.linspace(0, len(text) - 1, min(PIECES, len(text))).long()].T


@torch.no_grad()
def losses(model: SequenceModel, text: Tensor, state: State = None) -> tuple[Tensor, Tensor]:
    """Return the loss of each piece at each step, (STEPS, pieces), and the last layer's mean |h| at its end, (pieces,).

    text: (STEPS + 1, pieces). state: the initial state of all pieces, for a batch of one, or None for zeros.
    """
    at_once = max(1, LOGITS // (STEPS * model.spec.output_size))
    loss, activity = [], []
    for part in progress(text.split(at_once, 1), "pieces"):
        n, target = part.shape[1], part[1:].flatten()
        logits, final = model(Batch(part[:-1].contiguous(), part[1:].contiguous()), repeated(state, n))[:2]
        loss.append(F.cross_entropy(logits.flatten(0, 1), target, reduction="none").view(-1, n).cpu())
        activity.append(model.rnn.split_state(final)[-1].h.abs().mean(1).cpu())
    return torch.cat(loss, 1), torch.cat(activity)


def repeated(state: State, n: int) -> State:
    """Repeat a state for a batch of one n times."""
    return tree_map_only(Tensor, lambda value: value.expand(*value.shape[:-2], n, -1).contiguous(), state)


def study_of(lines: Sequence[Line]) -> Study:
    """Make the study of some runs, whose `Starts` are the data of the lines. A label is "" for a single run."""
    rows: list[TableRow] = []
    values: dict[str, float] = {}
    drawn = []
    for line in lines:
        cold, warm, activity = line.data
        cold_half, warm_half = (loss[STEPS // 2 :].mean(0) for loss in (cold, warm))
        lost = ~(cold_half - warm_half <= 1.0)  # worse by more than a nat per symbol; also where it is NaN
        means = {"cold": cold.mean(1), "found": cold[:, ~lost].mean(1), "warm": warm.mean(1)}
        if lost.all():
            del means["found"]
        own = {"pieces": float(len(lost)), "lost": float(lost.double().mean())}
        own |= {key: float(mean.double().mean()) for key, mean in means.items()}
        if not lost.all():
            own["least_activity_of_found"] = float(activity[~lost].min())
        if lost.any():
            own["greatest_activity_of_lost"] = float(activity[lost].max())
        values |= {f"{line.label}/{key}" if line.label else key: value for key, value in own.items()}
        of_pieces = {"cold": cold_half, "warm": warm_half, "activity": activity, "lost": lost}
        steps, pieces = _rows("step", line.label, means), _rows("piece", line.label, of_pieces)
        rows += steps + pieces
        drawn.append(line._replace(data=(steps, pieces)))
    return Study(TITLE, rows, values, lambda figure: draw(figure, drawn))


def _rows(what: str, name: str, columns: dict[str, Tensor]) -> list[TableRow]:
    """Make a row per step or piece, counted from 1. Four decimals, because there are thousands of rows."""
    run = {"run": name} if name else {}
    values_of_rows = zip(*(column.double().tolist() for column in columns.values()), strict=True)
    return [
        {"what": what, **run, "at": k} | {key: round(value, 4) for key, value in zip(columns, values, strict=True)}
        for k, values in enumerate(values_of_rows, 1)
    ]


def draw(figure: Any, lines: Sequence[Line]) -> None:
    """Draw the loss by step, from zeros and warm (left), and a dot per piece (right).

    A dot is the loss of the second half by the activity. lines: with the rows by step and the rows by piece as data.
    """
    left, right = plotting.panels(figure, 2, width=11.0)
    for number, (label, colour, _, (steps, pieces)) in enumerate(lines):
        prefix = f"{plotting.literal(label)}: " if label else ""
        look = {"lw": 1.6, "color": colour, "marker": plotting.MARKERS[number % len(plotting.MARKERS)], "ms": 4}
        x = [row["at"] for row in steps]
        for key, style, words in (("cold", "-", "from zeros"), ("warm", ":", "from a warm state")):
            left.plot(x, [row[key] for row in steps], ls=style, markevery=10, label=f"{prefix}{words}", **look)
        lost = sum(row["lost"] for row in pieces)
        x, y = ([row[key] for row in pieces] for key in ("activity", "cold"))
        look = {"ms": 4, "mew": 0.8, "color": colour, "fillstyle": "none"}
        right.plot(x, y, "x" if number % 2 else "o", label=f"{prefix}{lost:.0f} of {len(pieces):,} lost", **look)
    left.set(xlabel="steps after the start", ylabel="loss (nats), mean over pieces", xscale="log")
    right.set_xlabel("mean |h| of the last layer at the end of a piece, from zeros")
    right.set_ylabel(f"loss of its last {STEPS - STEPS // 2} steps (nats)")
    plotting.plain_ticks(left)
    plotting.small_legend(left)
    plotting.small_legend(right)
