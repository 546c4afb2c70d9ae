"""Every model on every task as `train.py model=... task=...` composes it: the tables of docs/pairs.md.

Models are built on the meta device, from made-up data (`sample_data.folder`) with the real vocabulary's size.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import examples  # noqa: E402
import torch  # noqa: E402

from timescales.config import Config, Settings, compose, identity  # noqa: E402
from timescales.nn import registry  # noqa: E402
from timescales.nn.registry import MODELS  # noqa: E402
from timescales.nn.rnn import RNN  # noqa: E402
from timescales.reports.markdown import grid  # noqa: E402
from timescales.tasks import Task  # noqa: E402
from timescales.tasks.data import text  # noqa: E402
from timescales.training import build  # noqa: E402

FIVE = tuple(model.name for model in MODELS if model.family == registry.FIVE)
SCANS = tuple(model.name for model in MODELS if model.family == registry.SCAN)
# Networks of another depth are not compared.
OTHERS = tuple(m.name for m in registry.BY_NAME.values() if m.family not in (registry.FIVE, registry.DEEP))
MATRIXLESS = tuple(m.name for m in MODELS if m.family in (registry.SCAN, registry.OTHER) or m.name == "grud")
# Corpora whose number of types depends on the text.
CORPORA = {"ptb_char": text.PTB_CHARACTERS, "ptb_word": text.PTB, "wt2": text.WIKITEXT2, "wt103": text.WIKITEXT103}
# They have no recurrent matrix to drop.
NEEDED = {(task, model): "task.weight_drop=0" for task in ("ptb_word", "wt2") for model in MATRIXLESS}
WORDS = ("ptb_word", "wt2", "wt103")  # their dropouts are for layers of cells
BASELINES = [model.name for model in registry.BASELINES]
CLOSE = 0.01  # parameters count as equal to the LSTM's up to this share
# Why models differ on a task in a setting other than their size.
REASONS = {
    ("imdb", "optimizer.lr"): "the grid search of Chien et al. 2021, section 4.4, chose 5e-4 for pLSTM",
    ("text8", "model.num_layers"): "MTS has one layer or three, no two",
    ("ptb_char", "model.num_layers"): "one layer would need about 20,000 units of a scan cell, or 14,000 complex ones",
    (
        "ptb_word",
        "task.weight_drop",
    ): "scan cells, the GRU-D, and those that compute their matrix have none that could be dropped",
    (
        "wt2",
        "task.weight_drop",
    ): "scan cells, the GRU-D, and those that compute their matrix have none that could be dropped",
}


class Pair(NamedTuple):
    """A model on a task: its configuration, its units by layer, its number of parameters (frozen biases too)."""

    model: str
    config: Config
    settings: Settings
    units: list[int]
    parameters: int


def real_size(overrides: Sequence[str]) -> Task:
    """A task made of small data, whose spec has the vocabulary of the real corpus."""
    task, node = examples.make_task(overrides)
    if corpus := CORPORA.get(node["name"]):
        size = int(corpus.counts["types"])
        task.spec = dataclasses.replace(task.spec, input_size=size, output_size=size)
    return task


def fits(task: str, model: str) -> bool:
    """Whether a model is for a task."""
    return not (task in WORDS and model in BASELINES)


def pair(task: Task, name: str, model: str, more: Sequence[str] = ()) -> Pair:
    """A model on the task `name`, built without memory for its weights. more: further overrides."""
    needed = [NEEDED[name, model], *more] if (name, model) in NEEDED else more
    with compose.composing() as composer:
        config = identity.resolved(composer([f"task={name}", f"model={model}", *needed]))
    with torch.device("meta"):
        network = build.build_model(config | {"device": "meta", "engine": "auto"}, task)
    rnn = network.rnn
    units = [c.hidden_size for c in rnn.layers] if isinstance(rnn, RNN) else [rnn.hidden_size] * rnn.num_layers
    return Pair(model, config, identity.comparable(config), units, sum(p.numel() for p in network.parameters()))


def tables(commands: dict[str, list[str]], models: Sequence[str]) -> str:
    """What is equal among the models on each task, and one row for each pair. commands: a small task of each kind."""
    found = {task: pairs(task, command, models) for task, command in commands.items()}
    equal = [[f"`{task}`", *compared(task, row)] for task, row in found.items()]
    rows = [[f"`{task}`", *described(task, each)] for task, row in found.items() for each in row]
    head = ["task", "model", "units", "parameters", "optimizer", "learning rate", "batch", "clip norm", "recipe"]
    return "\n".join([*grid(["task", "equal", "what else differs"], equal), "", *grid(head, rows)])


def pairs(name: str, command: Sequence[str], models: Sequence[str]) -> list[Pair]:
    """Several models on one task."""
    task = real_size(command)
    return [
        pair(real_size([*command, NEEDED[name, model]]) if (name, model) in NEEDED else task, name, model)
        for model in models
        if fits(name, model)
    ]


def compared(task: str, row: Sequence[Pair]) -> tuple[str, str]:
    """Whether sizes or parameters are equal, and the other differences with their reasons (KeyError without one)."""
    counts = [each.parameters for each in row]
    if all(each.units == row[0].units for each in row):
        equal = "units"
    elif max(counts) <= (1 + 2 * CLOSE) * min(counts):
        equal = f"parameters, up to {100 * (max(counts) / min(counts) - 1):.1f} %"
    else:
        raise ValueError(f"{task}: neither units nor parameters are equal: {counts}; add a recipe")
    common = set.intersection(*(set(each.settings) for each in row)) - {"model.name", "model.hidden_size"}
    differ = sorted(key for key in common if any(each.settings[key] != row[0].settings[key] for each in row))
    return equal, "; ".join(f"`{key}`: {REASONS[task, key]}" for key in differ)


def described(task: str, each: Pair) -> list[str]:
    """The cells of a pair's row after its task."""
    config = each.config
    units = str(each.units[0]) if len(each.units) == 1 else ", ".join(map(str, each.units))
    optimizer = config["optimizer"]
    more = f" (with `{NEEDED[task, each.model]}`)" if (task, each.model) in NEEDED else ""
    size, clip = f"{each.parameters:,}", f"{config['loop']['clip_norm']:g}"
    batch = str(config["task"]["batch_size"])
    recipe = recipes(config["paper"]["name"], task, each.model)
    return [f"`{each.model}`{more}", units, size, optimizer["name"], f"{optimizer['lr']:g}", batch, clip, recipe]


def recipes(paper: str, task: str, model: str) -> str:
    """The paper and those of its recipes that are used for a pair."""
    folder = ROOT / "conf" / "recipe" / paper
    names = [name for name in (task, model, f"{task}_{model}") if (folder / f"{name}.yaml").is_file()]
    return f"{paper}: " + (", ".join(f"`{name}`" for name in names) if names else "none, the task's values")
