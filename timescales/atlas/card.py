"""Write the card of a user's cell: what it remembers beside the committed cells, as a page and a figure."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from timescales import analysis
from timescales.atlas import measures, own, pictures, scores
from timescales.atlas.inference import Bootstrap, Interval
from timescales.atlas.measures import Cost
from timescales.atlas.scores import Cell
from timescales.atlas.trial import Trial
from timescales.errors import ConfigError
from timescales.files import write_atomic
from timescales.reports.markdown import grid
from timescales.runs import provenance
from timescales.training.memory import one_over_e, quantiles, share_beyond

BESIDE = "lstm"  # the committed cell that every table compares with


def write(trial: Trial) -> list[Path]:
    """Write card.md, card.png and scores.csv into the trial's folder. Return their paths.

    Raises ConfigError if no test has ended.
    """
    if not trial.found:
        raise ConfigError(f"there is no card yet, since no test has ended: {next(iter(trial.missing.values()))}")
    others = {name: c for name, c in scores.cells_of(trial.atlas, scores.committed()).items() if c.has(trial.rungs)}
    new_cell, boot = scores.cells_of(trial.atlas, trial.found)[trial.name], Bootstrap()
    cells = {name: cell.by_ability(trial.rungs) for name, cell in others.items()}
    ours = new_cell.by_ability(trial.rungs)
    intervals = {ability: boot.of(ours, [ability]) for ability in trial.abilities}
    picture = trial.folder / "card.png"
    means = {name: {a: float(v.mean()) for a, v in of_cell.items()} for name, of_cell in cells.items()}
    quick = f" (--quick: {len(trial.rungs)} rungs, one seed)" if trial.quick else ""
    pictures.card(picture, intervals, means, f"{trial.name}: what it remembers{quick}")
    lines = [f"# {trial.name}", "", *head(trial, new_cell), "", "![Scores by ability](card.png)", ""]
    lines += ["## Abilities", "", *abilities(trial, boot, intervals, ours, cells)]
    lines += ["", "## Beside the committed cells", "", *beside(trial, boot, ours, cells)]
    lines += ["", "## How long its units remember", "", *memory(trial)]
    lines += ["", "## Speed and memory", "", *costs(trial)]
    lines += ["", "## Rungs", "", *rungs(trial, new_cell, others), "", "## How to read it", ""]
    lines += ["A score is 0 at chance and 1 at best."]
    if not trial.quick:
        lines += [
            "Intervals hold 95 % of a bootstrap over rungs and seeds; they are those of single comparisons, so that of",
            "twenty one is expected to be wrong. *Higher* and *lower* stand only where the interval of the difference",
            "does not hold 0.",
        ]
    steps = trial.atlas.settings["loop.max_steps"]
    lines += [
        "",
        "What the card does not say: how the cell does at other sizes, with more training, or on language; whether a",
        f"score that is low is one of memory or of training within {steps:,} steps; and of cells that are not shown to",
        "differ nothing, least of all that they are alike. docs/atlas.md of the project has the protocol, and what in",
        "it favours which cell.",
        "",
    ]
    page, table = trial.folder / "card.md", trial.folder / "scores.csv"
    write_atomic(page, "\n".join(lines).encode())
    write_atomic(table, scores.text(trial.found).encode())
    return [page, picture, table]


def head(trial: Trial, new_cell: Cell) -> list[str]:
    """Write what was trained, how, and where."""
    given = " ".join(f"{key}={shlex.quote(str(value))}" for key, value in trial.arguments.items())
    command = " ".join(filter(None, ["timescales-card", trial.source, given, "--quick" if trial.quick else ""]))
    seeds, rate = len(trial.seeds), f"learning rate {trial.rate:g}"
    chosen = "the middle one of three, not chosen" if trial.quick else "chosen from three on another seed"
    sizes = sorted({run.config["model"]["hidden_size"] for run in trial.runs.values()})
    units = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
    size = f"{new_cell.parameters:,} parameters in two residual blocks of {units} units"
    lines = [f"`{command}`", "", f"{size}, {rate} ({chosen})."]
    if trial.quick:
        lines += [
            "",
            f"**A quick look: {len(trial.rungs)} rungs and one seed. It allows no statement on who is better.**",
        ]
    else:
        lines += ["", f"{len(trial.rungs)} rungs, {seeds} seeds."]
    made = provenance.provenance("cpu")
    versions = ", ".join(f"{package} {version}" for package, version in made.versions.items())
    lines += [f"{made.machine}, {made.threads} thread{'s' * (made.threads > 1)}; {versions}."]
    return lines + [f"Left out: `{test}`: {why}." for test, why in trial.missing.items()]


def abilities(
    trial: Trial, boot: Bootstrap, intervals: Mapping[str, Interval], ours: Any, cells: Mapping[str, Any]
) -> list[str]:
    """Make a row for each ability: the score, the LSTM's, the difference with its interval, the best committed cell.

    A quick look names no best cell.
    """
    head, body = ["ability", "what it is", "score"], []
    if BESIDE in cells:
        head += [BESIDE, "difference", *([] if trial.quick else [""])]
    ranked = cells and not trial.quick
    if ranked:
        head.append("best committed cell")
    for ability, interval in intervals.items():
        row = [ability, trial.atlas.abilities[ability], in_words(interval)]
        if BESIDE in cells:
            difference = boot.of(ours, [ability], cells[BESIDE])
            lstm = pictures.two_digits(cells[BESIDE][ability].mean())
            row += [lstm, in_words(difference, sign=True), *([] if trial.quick else [word(difference)])]
        if ranked:
            best = max(cells, key=lambda name, a=ability: cells[name][a].mean())  # type: ignore[misc]
            row.append(f"{best} {pictures.two_digits(cells[best][ability].mean())}")
        body.append(row)
    other = f"`timescales-card timescales.LSTM{' --quick' if trial.quick else ''}` makes the LSTM's card"
    note = [] if cells else ["", f"No scores are committed yet: there is no cell to compare with. {other}."]
    return [*grid(head, body), *note]


def beside(trial: Trial, boot: Bootstrap, ours: Any, cells: Mapping[str, Any]) -> list[str]:
    """Make a row for each committed cell: by how much the new cell is better in the mean over abilities, and in which.

    The best cell comes first. A quick look ranks nothing: its cells are in alphabetical order.
    """
    if not cells:
        return ["No scores are committed yet."]
    names = list(trial.abilities)
    head = ["cell", "mean score, this one minus it"]
    if trial.quick:
        differences = {name: in_words(boot.of(ours, names, cells[name]), sign=True) for name in cells}
        note = "In the order of the alphabet: one seed ranks no cells."
        return [note, "", *grid(head, [[name, differences[name]] for name in sorted(cells)])]
    order = sorted(cells, key=lambda name: -sum(float(cells[name][a].mean()) for a in names))
    body = []
    for name in order:
        each = {ability: boot.of(ours, [ability], cells[name]) for ability in names}
        whole = boot.of(ours, names, cells[name])
        wins, losses = ([a for a in names if word(each[a]) == verdict] for verdict in ("higher", "lower"))
        body.append([name, in_words(whole, sign=True), word(whole), ", ".join(wins), ", ".join(losses)])
    return grid([*head, "", "higher in", "lower in"], body)


def memory(trial: Trial) -> list[str]:
    """Write T_1/e of the units on each test."""
    body, why = [], ""
    for test, run in trial.runs.items():
        if not (run.directory / "best.pt").is_file():
            why = "the cell diverged before its first validation"
            continue
        trained = analysis.load(run.directory)
        try:
            times = torch.cat(one_over_e(trained.model, trained.task, "valid", 50))
        except ConfigError as error:
            why = str(error)
            continue
        if times.isnan().any():
            why = "the gates are no numbers"
            continue
        found = quantiles(times, (0.1, 0.5, 0.9))
        ends = ["longer than the sequences" if math.isinf(end) else f"{end:.3g}" for end in found]
        body.append([test, *ends, f"{100 * share_beyond(times):.0f} %"])
    if not body:
        return [f"T_1/e cannot be measured: {why}."]
    head = ["test", "T_1/e of 10 % of the units below", "median", "90 %", "beyond the longest lag"]
    return ["In steps (of `dt` where a task has it), on validation sequences of the first seed.", "", *grid(head, body)]


def costs(trial: Trial) -> list[str]:
    """Write the cost of a layer of the cell beside nn.LSTM, and the engine that runs it."""
    size = measures.UNITS
    layer = own.OwnLayers(size, size, source=trial.source, arguments=dict(trial.arguments))
    new_cell, lstm = measures.cost(layer, size), measures.cost(nn.LSTM(size, size), size)
    body = [_cost(trial.name, new_cell, lstm), _cost("torch.nn.LSTM", lstm, lstm)]
    where = f"{measures.STEPS} steps, {measures.BATCH} sequences, {size} units"
    head = ["layer", "ms", "of nn.LSTM", "MB kept for backward", "of nn.LSTM"]
    timed = f"the median of {measures.TIMES} calls on this machine with all that ran on it then"
    sentence = f"One layer, forward and backward, {where}; {timed}. Engine: {measures.engine_of(layer)}."
    return [sentence, "", *grid(head, body)]


def _cost(name: str, new_cell: Cost, lstm: Cost) -> list[str]:
    times = [f"{1000 * new_cell.seconds:.1f}", f"{new_cell.seconds / lstm.seconds:.2f}"]
    return [name, *times, f"{new_cell.saved / 1e6:.1f}", f"{new_cell.saved / lstm.saved:.2f}"]


def rungs(trial: Trial, new_cell: Cell, others: Mapping[str, Cell]) -> list[str]:
    """Make a row for each rung: the score and metric of each seed, the LSTM's mean, and the settings of the task."""
    body, beside = [], BESIDE in others
    for rung in trial.rungs:
        seeds = " ".join(pictures.two_digits(value) for value in new_cell.scores[rung.name].values())
        lstm = [pictures.two_digits(others[BESIDE].mean(rung))] if beside else []
        values = [score.value for score in trial.found if score.rung == rung.name]
        measured = " ".join("diverged" if value is None else f"{value:.3g}" for value in values)
        row = [rung.ability, rung.name, seeds, *lstm, f"`{rung.metric}` {measured}"]
        settings = " ".join(f"{key}={value}" for key, value in rung.settings.items())
        body.append([*row, f"{rung.chance:.3g}", f"{rung.best:g}", f"`{settings}`"])
    head = ["ability", "rung", "score of each seed", *[f"{BESIDE}, mean"] * beside]
    return grid([*head, "metric", "chance", "best", "settings"], body)


def in_words(interval: Interval, sign: bool = False) -> str:
    """Write a value with its interval: .93 [.88, .97]."""

    def text(value: float) -> str:
        digits = pictures.two_digits(abs(value))
        return digits if not sign else f"{'-' if value < 0 else '+'}{digits}"

    if interval.low is None or interval.high is None:
        return text(interval.value)
    return f"{text(interval.value)} [{text(interval.low)}, {text(interval.high)}]"


def word(difference: Interval) -> str:
    """Say what the interval of a difference shows: higher, lower, or neither."""
    if difference.low is None:
        return ""
    return ("higher" if difference.value > 0 else "lower") if difference.apart_from_0 else "not shown to differ"
