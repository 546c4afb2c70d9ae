"""The tables of docs/pairs.md: what `train.py model=M task=T` trains at the defaults, and how many parameters it has.

`scripts/pages.py` writes them. Models are built on torch's meta device: they have shapes and no numbers.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.config import identity  # noqa: E402
from timescales.reports.markdown import grid  # noqa: E402
from timescales.tasks import Task  # noqa: E402
from timescales.tasks.data import text  # noqa: E402
from timescales.tasks.task import Spec  # noqa: E402
from timescales.training import build  # noqa: E402
from timescales.training.model import SequenceModel  # noqa: E402

FIVE = ("lstm", "chrono", "ur", "mts", "plstm")
OTHERS = ("gated", "gru", "pgru", "janet", "exprnn")
# The types of a corpus whose number depends on the text. With other tasks, made-up data give a model its real size.
CORPORA = {"ptb_char": text.PTB_CHARACTERS, "ptb_word": text.PTB, "wt2": text.WIKITEXT2}
# What a pair cannot do without on the command line.
NEEDED = {("ptb_word", "exprnn"): ["task.weight_drop=0"], ("wt2", "exprnn"): ["task.weight_drop=0"]}
NO_MATRIX = "expRNN has no recurrent weights that could be dropped: add this setting to the command"
# Why a setting is not the same for all models. Sizes have no entry: they differ where the parameters are equal.
REASONS = {
    ("imdb", "optimizer.lr"): "Chien et al. 2021, section 4.4, choose it by a grid search for each model",
    ("text8", "model.num_layers"): "MTS has one layer or three; one layer has as many parameters as the LSTM's two",
    ("ptb_word", "task.weight_drop"): NO_MATRIX,
    ("wt2", "task.weight_drop"): NO_MATRIX,
}
HEAD = ["task", "model", "hidden size", "parameters", "optimizer", "learning rate", "batch", "clip norm", "recipes"]
TASK_HEAD = ["task", "equal", "parameters of the five", "parameters of all ten", "other differences from the LSTM"]


class Pair(NamedTuple):
    """A model on a task at its defaults: the configuration, the units of each layer, the number of parameters."""

    cfg: DictConfig
    sizes: list[int]
    parameters: int


class Sized(Task):
    """A task without data: all that a model's size depends on."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


def network(config: dict[str, Any], spec: Spec) -> SequenceModel:
    """The model of a resolved configuration for a task with this spec, on the meta device."""
    if spec.awd is not None:  # no size depends on this dropout, which expRNN cannot have
        spec = dataclasses.replace(spec, awd=dataclasses.replace(spec.awd, weight=0.0))
    with torch.device("meta"):
        return build.build_model({**config, "device": "meta", "engine": "auto"}, Sized(spec))


def parameters(model: torch.nn.Module) -> int:
    """The number of parameters. Tied weights count once, fixed biases like trained ones, buffers not at all."""
    return sum(p.numel() for p in model.parameters())


def pairs(compose: Callable[[Sequence[str]], DictConfig], specs: dict[str, Spec]) -> dict[tuple[str, str], Pair]:
    """Every pair, by task and model; `specs` has a task's spec by its name."""
    found = {}
    for task, spec in specs.items():
        for model in (*FIVE, *OTHERS):
            cfg = compose([f"task={task}", f"model={model}", *NEEDED.get((task, model), [])])
            made = network(identity.resolved(cfg), spec)
            found[task, model] = Pair(cfg, [cell.hidden_size for cell in made.rnn.layers], parameters(made))
    return found


def table(found: dict[tuple[str, str], Pair], models: Sequence[str]) -> str:
    """The pairs of some models, a row each."""
    body = []
    for (task, model), (cfg, sizes, n) in found.items():
        if model in models:
            optimizer = [cfg.optimizer.name, f"{cfg.optimizer.lr:g}", cfg.task.batch_size, f"{cfg.loop.clip_norm:g}"]
            link = f"[{task}](tasks/{task}.md)"
            body.append([link, model, ", ".join(map(str, sizes)), f"{n:,}", *optimizer, recipes(cfg)])
    return "\n".join(grid(HEAD, body))


def recipes(cfg: DictConfig) -> str:
    """The recipe files of the paper that apply to a configuration."""
    task, paper = cfg.task.name, cfg.paper.name
    names = [f"{paper}/{name}" for name in (task, f"{task}_{cfg.model.name}")]
    files = [f"`{name}`" for name in names if (paths.conf() / "recipe" / f"{name}.yaml").is_file()]
    return " ".join(files) or f"`{paper}`: none"


def task_table(found: dict[tuple[str, str], Pair]) -> str:
    """A row for each task: whether sizes or parameters are equal, and what else differs."""
    body = []
    for task in dict.fromkeys(task for task, _ in found):
        of_task = {model: found[task, model] for model in (*FIVE, *OTHERS)}
        told = [f"`{key}`: {values}. {REASONS[task, key]}." for key, values in differences(of_task).items()]
        ranges = [span(of_task, models) for models in (FIVE, (*FIVE, *OTHERS))]
        body.append([f"[{task}](tasks/{task}.md)", equal(of_task), *ranges, " ".join(told)])
    return "\n".join(grid(TASK_HEAD, body))


def equal(of_task: dict[str, Pair]) -> str:
    """Whether the models of a task have equal sizes or equal parameters. Raises ValueError if they have neither."""
    lstm = of_task["lstm"]
    if all(pair.sizes == lstm.sizes for pair in of_task.values()):
        return f"sizes ({', '.join(map(str, lstm.sizes))})"
    if all(abs(pair.parameters / lstm.parameters - 1) < 0.01 for pair in of_task.values()):
        return "parameters (within 1 %)"
    raise ValueError(f"task={lstm.cfg.task.name}: the models have neither equal sizes nor equal parameters")


def span(of_task: dict[str, Pair], models: Sequence[str]) -> str:
    """The fewest and the most parameters, with the models that have them."""
    counts = {model: of_task[model].parameters for model in models}
    ends = (min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__))
    return " to ".join(f"{counts[model]:,} ({model})" for model in ends)


def differences(of_task: dict[str, Pair]) -> dict[str, str]:
    """The settings that all models have and that are not the LSTM's for all of them, but sizes; values in words."""
    settings = {model: identity.settings(pair.cfg) for model, pair in of_task.items()}
    found = {}
    for key, value in settings["lstm"].items():
        other = {model: own[key] for model, own in settings.items() if own.get(key, value) != value}
        if other and key not in ("model.name", "model.hidden_size") and all(key in own for own in settings.values()):
            found[key] = ", ".join(f"{model} {own:g}" for model, own in {"lstm": value, **other}.items())
    return found
