"""Sequences of a task, as text or as a picture: `python scripts/examples.py task=copy task.T=5 -n 3`.

Takes the overrides of train.py and shows some sequences of the first training batch: what the model reads, the target,
and which positions the accuracy (or the score of a language model) counts. --png FILE draws them instead.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from timescales import plotting  # noqa: E402
from timescales.config import compose, folders  # noqa: E402
from timescales.config.run import run_of  # noqa: E402
from timescales.errors import ConfigError, one_line  # noqa: E402
from timescales.tasks import (  # noqa: E402
    MQAR,
    ContextualMatch,
    Copy,
    Curriculum,
    DelayedMatch,
    Dyck2,
    Program,
    SelectiveCopy,
    Series,
    Task,
    TimeRescaling,
)
from timescales.tasks.characters import NextSymbol  # noqa: E402
from timescales.tasks.copy import SYMBOLS  # noqa: E402
from timescales.tasks.digits import pixel_order  # noqa: E402
from timescales.tasks.pixels import Pixels  # noqa: E402
from timescales.tasks.program import SYMBOLS as OF_PROGRAMS  # noqa: E402
from timescales.tasks.scifar import MEAN, SCIFAR, SD  # noqa: E402
from timescales.tasks.task import IGNORED  # noqa: E402
from timescales.training import build  # noqa: E402

COLUMNS = 100  # letters of a printed line; longer sequences are shown without their middle
DRAWN = 80  # letters of a drawn sequence of symbols
GAP = "..."
CHANNELS = {"Adding": ("number", "marker"), "Frequency": ("wave", "time"), "SCIFAR": ("red", "green", "blue")}


class Example(NamedTuple):
    """One sequence: x (S,) whole numbers or (S, I) real ones; target as in its batch; dt (S,) or None."""

    x: Tensor
    target: Tensor
    dt: Tensor | None


def make_task(overrides: Sequence[str]) -> tuple[Task, dict[str, Any]]:
    """Build the task of a configuration, on the CPU. Return it with its settings. Raises ConfigError."""
    composer = compose.Composer()
    try:
        config = run_of(composer(overrides)).config
    except compose.WRONG_INPUT as error:
        raise ConfigError(one_line(error)) from error
    return build.build_task(config, "cpu"), config["task"]


def examples(task: Task, n: int) -> list[Example]:
    """n sequences of the first training batch, evenly spaced, without the steps that a mask leaves out."""
    batch = next(task.batches("train"))
    n, size, cut = min(n, batch.x.shape[1]), batch.x.shape[1], []
    for k in range(0, size - size % n, size // n):
        exists = torch.ones(len(batch.x), dtype=torch.bool) if batch.mask is None else batch.mask[:, k].bool()
        target = batch.target[k] if task.spec.readout == "last" else batch.target[:, k][exists]
        cut.append(Example(batch.x[:, k][exists], target, None if batch.dt is None else batch.dt[:, k][exists]))
    return cut


def symbols(task: Task, numbers: Tensor) -> list[str]:
    """Return a short word for each whole number (S,)."""
    if isinstance(task, Copy):
        return ["01234567.!"[k] for k in numbers.tolist()]
    if isinstance(task, Dyck2):
        return ["()[]"[k] for k in numbers.tolist()]
    if isinstance(task, Program):
        return [OF_PROGRAMS[k] if k >= 0 else "." for k in numbers.tolist()]
    if isinstance(task, SelectiveCopy):
        return [{0: ".", task.alphabet - 1: "!"}.get(k, f"{k:x}") for k in numbers.tolist()]
    if isinstance(task, MQAR):
        return [recalled(task, k) for k in numbers.tolist()]
    if isinstance(task, NextSymbol) and task.words(numbers) is None:
        return [{"\n": "\\n", " ": "_"}.get(task.symbols[k], task.symbols[k]) for k in numbers.tolist()]
    return task.words(numbers) or [str(k) for k in numbers.tolist()]


def inputs(task: Task, example: Example) -> dict[str, list[str]]:
    """Return the rows that show what the model reads, an entry for each step."""
    if task.spec.input != "real":
        return {"input": symbols(task, example.x)}
    if isinstance(task, Program):
        return {"input": symbols(task, torch.where(example.x.any(-1), example.x.argmax(-1), -1))}
    if isinstance(task, DelayedMatch):
        return things(task, example.x)
    if isinstance(task, ContextualMatch):
        return features(task, example.x)
    n = example.x.shape[1]
    own = tuple(task.channels) if isinstance(task, Series) else () if n > 1 else ("input",)
    names = CHANNELS.get(type(task).__name__, own)
    x = example.x.long() if isinstance(task, Curriculum) else example.x  # bits
    rows = {names[k] if k < len(names) else f"input {k + 1}": numerals(x[:, k]) for k in range(n)}
    if example.dt is not None:
        rows["dt"] = numerals(example.dt)
    return rows


def things(task: DelayedMatch, x: Tensor) -> dict[str, list[str]]:
    """Return a row for each place: a letter or number for a colour, `o` for an apple, a point for nothing."""
    letters = [chr(ord("A") + k) for k in range(26)] if task.colours <= 26 else [str(k) for k in range(task.colours)]
    names = [*letters[: task.colours], "o"]
    places = x.unflatten(1, (task.choices, -1)).unbind(1)
    return {
        f"place {k + 1}": [names[int(thing.argmax())] if thing.any() else "." for thing in place]
        for k, place in enumerate(places)
    }


def features(task: ContextualMatch, x: Tensor) -> dict[str, list[str]]:
    """Rows of the colours (letters), the shapes (numbers), the mark and the cue (c: colour, s: shape)."""
    colours, shapes = [chr(ord("A") + k) for k in range(26)], [str(k + 1) for k in range(task.features)]
    parts = x.split([task.features, task.features, 1, 2], 1)
    named = {"colour": colours, "shape": shapes, "marked": ["1"], "cue": ["c", "s"]}
    return {
        row: [names[int(step.argmax())] if step.any() else "." for step in part]
        for (row, names), part in zip(named.items(), parts, strict=True)
    }


def recalled(task: MQAR, number: int) -> str:
    """Return a key as a letter, or as <number> if there are many; a value as a number; the blank as a point."""
    if number > task.keys:
        return str(number - task.keys)
    return "." if number == 0 else chr(ord("A") + number - 1) if task.keys <= 26 else f"<{number}>"


def targets(task: Task, example: Example) -> list[str]:
    """Return the target at each step; where it is read from the final state, at the last one."""
    if isinstance(task, TimeRescaling):
        return [""] * (len(example.x) - 1) + [chr(ord("A") + int(example.target[0]))]
    if task.spec.readout == "last":
        shown = " ".join(numerals(example.target.flatten()))  # several for N-parity with curriculum=multi
        return [""] * (len(example.x) - 1) + [shown]
    if isinstance(task, DelayedMatch | MQAR):
        return [str(k + 1) if k >= 0 else "." for k in example.target.tolist()]
    if isinstance(task, Dyck2):
        return [{(1, 0): "]", (0, 1): ")"}.get(tuple(pair), "-") for pair in example.target.int().tolist()]
    if example.target.is_floating_point():
        return numerals(example.target)
    return symbols(task, example.target if isinstance(task, Program) else example.target.clamp(min=0))


def numerals(values: Tensor) -> list[str]:
    """Numbers (N,) as words: real ones with two digits after the point, a point for what is no number."""
    return [("." if math.isnan(v) else f"{v:.2f}") if isinstance(v, float) else str(v) for v in values.tolist()]


def scored(task: Task, example: Example) -> list[bool]:
    """Return which steps the task's accuracy, or the score of a language model, counts."""
    steps = len(example.x)
    if task.spec.readout == "last":
        return [False] * (steps - 1) + [True]
    if isinstance(task, Copy):
        return ((example.target >= 0) & (example.target < SYMBOLS)).tolist()
    if example.target.dim() > 1:
        return [True] * steps
    return ((example.target != IGNORED) & ~example.target.isnan()).tolist()


def shown(widths: Sequence[int], room: int) -> list[int | None]:
    """Choose the steps that fit; None stands for a middle that is left out."""
    if sum(widths) <= room:
        return list(range(len(widths)))
    half = room // 2
    first = sum(total <= half for total in itertools.accumulate(widths))
    last = sum(total <= half for total in itertools.accumulate(reversed(widths)))
    return [*range(max(1, first)), None, *range(len(widths) - max(1, last), len(widths))]


def printed(task: Task, example: Example) -> str:
    """Write a sequence as rows of text with the scored positions underlined; a program as one line with its answer."""
    if isinstance(task, Program):
        program, answer = ("".join(row).strip(".") for row in (inputs(task, example)["input"], targets(task, example)))
        return f"{program} -> {answer}"
    rows = inputs(task, example) | {"target": targets(task, example)}
    widths = [max(map(len, column)) for column in zip(*rows.values(), strict=True)]
    rows["scored"] = ["-" * width * mark for width, mark in zip(widths, scored(task, example), strict=True)]
    label = max(map(len, rows)) + 2
    columns = shown([width + 1 for width in widths], COLUMNS - label - len(GAP))
    lines = []
    for name, row in rows.items():
        words = [GAP if k is None else row[k].rjust(widths[k]) for k in columns]
        lines.append((name.ljust(label) + " ".join(words)).rstrip())
    return "\n".join(lines) + f"\n{len(example.x)} steps"


def draw(figure: Any, task: Task, settings: Mapping[str, Any], found: Sequence[Example]) -> None:
    """One row of the figure for each sequence."""
    real = task.spec.input == "real" and not isinstance(task, ContextualMatch | Curriculum | DelayedMatch | Program)
    images = isinstance(task, Pixels)
    more = {"gridspec_kw": {"width_ratios": (1, 4)}} if images else {}
    height = (1.6 if real else 0.8) * len(found) + 0.5
    axes = plotting.panels(figure, 2 if images else 1, len(found), 7.0, height, **more)
    for k, example in enumerate(found):
        if images:
            draw_image(axes[2 * k], task, settings, example)
        ax = axes[2 * k + 1] if images else axes[k]
        (draw_real if real else draw_symbols)(ax, task, example)


def draw_symbols(ax: Any, task: Task, example: Example) -> None:
    """Input above target, a letter or word for each step; scored positions are shaded."""
    rows = {"target": targets(task, example), **inputs(task, example)}
    widths = [max(map(len, column)) + 1 for column in zip(*rows.values(), strict=True)]
    marks, at = scored(task, example), 0.0
    for k in shown(widths, DRAWN):
        width = 3 if k is None else widths[k]
        if k is not None and marks[k]:
            ax.axvspan(at, at + width, color="#c0392b", alpha=0.15, lw=0)
        for height, row in enumerate(rows.values()):
            word = "…" if k is None else plotting.literal(row[k])
            ax.text(at + width / 2, height, word, ha="center", va="center", fontsize=8)
        at += width
    ax.set(xlim=(0, max(at, DRAWN)), ylim=(-0.6, len(rows) - 0.4), xticks=[], yticks=range(len(rows)))
    ax.set_yticklabels(map(plotting.literal, rows))
    ax.spines[["bottom", "left"]].set_visible(False)
    ax.tick_params(length=0)


def draw_real(ax: Any, task: Task, example: Example) -> None:
    """Draw the channels over the steps, or over time if the task gives it. The target is one more, or in the title."""
    at = torch.arange(len(example.x)) if example.dt is None else example.dt.cumsum(0)
    dots = {"marker": "."} if len(example.x) < 200 else {}
    for name, values in zip(inputs(task, example), example.x.T, strict=False):
        ax.plot(at, values, lw=0.8, label=plotting.literal(name), **dots)
    if task.spec.readout == "all":
        look = {"marker": "o", "ms": 4} if example.target.isnan().any() else {}  # few steps, perhaps only one
        ax.plot(at, example.target, lw=1.2, label="target", color="#c0392b", **look)
    else:
        ax.set_title(f"target {targets(task, example)[-1]}, read after the last step", fontsize=8, loc="left")
    ax.set_xlabel("time" if example.dt is not None else "step", fontsize=8)
    ax.tick_params(labelsize=8)
    if len(ax.lines) > 1:
        ax.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_image(ax: Any, task: Task, settings: Mapping[str, Any], example: Example) -> None:
    """Draw the image that a sequence of pixels reads; pixels that it leaves out are white."""
    if isinstance(task, SCIFAR):
        values = (example.x * torch.tensor(SD) + torch.tensor(MEAN)).clamp(0, 1)
        ax.imshow(values.reshape(32, 32, 3).numpy())
    else:
        image = torch.full((28 * 28,), torch.nan)
        order = pixel_order(settings["permutation"], settings["permutation_seed"])
        image[order[: len(example.x)]] = example.x[:, 0]
        ax.imshow(image.reshape(28, 28).numpy(), cmap="gray")
    ax.axis("off")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for train.py, such as task=copy task.T=5")
    parser.add_argument("-n", type=int, default=3, metavar="N", help="how many sequences")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the sequences into FILE")
    parser.add_argument(
        "--config-dir", type=Path, metavar="FOLDER", help="a folder with a task of your own, as for train.py"
    )
    options = parser.parse_args()
    try:
        folders.use(options.config_dir)
        if options.n < 1:
            raise ConfigError(f"-n {options.n}: give the number of sequences, at least 1")
        task, settings = make_task(options.overrides)
        found = examples(task, options.n)
        if options.png is None:
            between = "\n" if isinstance(task, Program) else "\n\n"
            print(between.join(printed(task, example) for example in found))
            return
        title = f"{settings['name']}: what is read, and the target"
        paths = plotting.write(lambda figure: draw(figure, task, settings, found), options.png, title)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}; give another --png FILE")
    print(f"written: {paths[0]}")


if __name__ == "__main__":
    main()
