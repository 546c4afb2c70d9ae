"""Find the units with which models have as many parameters as a task's LSTM: conf/matched.yaml, by `pages.py matched`.

For the tasks whose recipe says `hidden_size: ${matched:UNITS}`; networks whose layers double their reach are left out.
A model that is within 1 % with the LSTM's units keeps them. Models are built on the meta device, from made-up data with
the real vocabulary's size.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import examples
import sample_data
import task_pages
import torch
import yaml

from timescales import paths
from timescales.atlas.sizes import nearest
from timescales.config import Config, compose, schema
from timescales.errors import ConfigError
from timescales.nn import registry
from timescales.tasks.data import text
from timescales.training import build

HEADER = "# Units with which a model has as many parameters as the LSTM of its task. Written by scripts/pages.py.\n"
FILE = paths.conf() / "matched.yaml"
CLOSE = 0.01  # parameters count as equal to the LSTM's up to this share
CORPORA = {"ptb_char": text.PTB_CHARACTERS}  # whose number of types depends on the text


def tasks() -> list[str]:
    """Return the tasks whose recipe matches sizes."""
    files = sorted((paths.conf() / "recipe").glob("*/*.yaml"))
    return [file.stem for file in files if "${matched:" in file.read_text()]


def texts(check: bool) -> Iterator[tuple[Path, str]]:
    """Yield the file and its text."""
    with sample_data.folder():
        yield FILE, HEADER + yaml.safe_dump({task: matched(task) for task in tasks()}, sort_keys=True)


def matched(task: str) -> dict[str, int]:
    """Return the units of each model that needs others than the LSTM on a task."""
    parameters, units = counted(task)
    wanted = parameters("lstm", units)
    assert wanted is not None
    found = {}
    for model in sorted(name for name, model in registry.BY_NAME.items() if model.family != registry.DEEP):
        same = parameters(model, units)
        if not stated(task, model) and (same is None or abs(same / wanted - 1) > CLOSE):
            found[model] = nearest(functools.partial(parameters, model), wanted)
    return found


def counted(task: str) -> tuple[Callable[[str, int | None], int | None], int]:
    """Return a function of a model and its units, and the LSTM's units on a task.

    It gives the number of parameters, frozen ones too; None where the model cannot be built. Without units they are
    those of the configuration.
    """
    made, _ = examples.make_task(task_pages.command(task))
    if corpus := CORPORA.get(task):
        size = int(corpus.counts["types"])
        made.spec = dataclasses.replace(made.spec, input_size=size, output_size=size)

    def configured(model: str, units: int | None) -> Config:
        more = [] if units is None else [f"model.hidden_size={units}"]
        composer = compose.Composer()
        return schema.resolved(composer([f"task={task}", f"model={model}", *more]))

    def parameters(model: str, units: int | None) -> int | None:
        config = configured(model, units) | {"device": "meta", "engine": "auto"}
        try:
            with torch.device("meta"):
                network = build.build_model(config, made)
        except ConfigError:  # such as a number that its heads do not divide
            return None
        return sum(p.numel() for p in network.parameters())

    return parameters, configured("lstm", None)["model"]["hidden_size"]


def stated(task: str, model: str) -> bool:
    """Tell whether a recipe for only one model states its units."""
    files = (paths.conf() / "recipe").glob(f"*/{task}_{model}.yaml")
    return any("hidden_size:" in file.read_text() for file in files)
