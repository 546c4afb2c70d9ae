"""Find the units with which a model has as many parameters as the atlas's LSTM, and count its numbers of state."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from timescales.atlas.definition import FILL, Atlas, Rung
from timescales.config import Config, Settings, schema
from timescales.config.compose import Composer
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn.cells.cell import Cell
from timescales.nn.rnn import RNN
from timescales.papers import load
from timescales.tasks import Task
from timescales.training import build

UNITS = "model.hidden_size"
SMALL = {"task.train_size": 32, "task.valid_size": 16, "task.test_size": 16}  # only the task's spec is read


def nearest(count: Callable[[int], int | None], target: int) -> int:
    """Find the number of units whose parameters are nearest to the target, among those that can be built.

    count: returns the parameters of a model with so many units, None if it cannot be built. They grow with the units.
    """

    def built(units: int) -> tuple[int, int]:
        """Return the next number of units that can be built, and its parameters."""
        while (parameters := count(units)) is None:
            units += 1
        return units, parameters

    low, high = 1, 2
    while built(high)[1] < target:
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if built(middle)[1] < target else (low, middle)
    return min((built(units) for units in (low, high)), key=lambda found: abs(found[1] - target))[0]


def kept(cell: Cell) -> int:
    """Count the numbers of state that a cell keeps from one step to the next: those that the next step reads.

    They are not all of `State`: where no gate and no matrix reads h, it is only the output of a step.
    """
    like = cell.weight_ih
    with like.device:  # what the step makes itself
        fields = (like.new_zeros(1, cell.width(name), requires_grad=True) for name in cell.State._fields)
        before = cell.State(*fields)
        after = cell(like.new_zeros(1, cell.input_size), before)
    read = torch.autograd.grad(torch.stack([value.sum() for value in after]).sum(), before, allow_unused=True)
    return sum(gradient.numel() for gradient in read if gradient is not None)


class Sizes:
    """Compute sizes of models on the rungs of an atlas, by building models without memory for their weights."""

    def __init__(self, atlas: Atlas, composer: Composer) -> None:
        self.atlas, self.composer = atlas, composer
        self.tasks: dict[str, Task] = {}
        self.targets: dict[str, int] = {}
        self.found: dict[str, Settings] = {}

    def task(self, rung: Rung) -> Task:
        """Make the task of a rung, with little data."""
        if rung.name not in self.tasks:
            self.tasks[rung.name] = build.build_task(self.config(rung, {"model": "lstm"} | SMALL), "cpu")
        return self.tasks[rung.name]

    def config(self, rung: Rung, more: Settings) -> Config:
        """Compose the configuration of a run on a rung."""
        settings = self.atlas.run(rung, more, self.atlas.rate, 0)
        return schema.resolved(self.composer(load.request(settings)))

    def model(self, rung: Rung, settings: Settings) -> SequenceModel:
        """Build a model on a rung, without memory for its weights. Raises ConfigError if it cannot be built."""
        config = copy.deepcopy(self.config(rung, settings)) | {"device": "meta", "engine": "auto"}
        task = self.task(rung)
        with torch.device("meta"):
            return build.build_model(config, task)

    def parameters(self, rung: Rung, model: Settings) -> int:
        """Count the parameters of a model on a rung. Raises ConfigError if it cannot be built."""
        return sum(p.numel() for p in self.model(rung, model).parameters())

    def state(self, rung: Rung, model: Settings) -> int:
        """Count the numbers of state that a model's cells keep of a sequence. A model without cells has 0."""
        rnn = self.model(rung, model).rnn
        return sum(map(kept, rnn.layers)) if isinstance(rnn, RNN) else 0

    def target(self, rung: Rung) -> int:
        """Count the parameters of the LSTM on a rung."""
        if rung.name not in self.targets:
            self.targets[rung.name] = self.parameters(rung, {"model": "lstm", UNITS: self.atlas.units})
        return self.targets[rung.name]

    def matched(self, rung: Rung, model: Settings) -> Settings:
        """Return the settings of a model with its units, and with a number for `fill`, on a rung.

        Tasks with the same input and output give the same sizes.
        """
        spec = self.task(rung).spec
        key = str((spec.width, spec.output_size, sorted(model.items())))
        if key not in self.found:
            self.found[key] = self._matched(rung, model)
        return self.found[key]

    def _matched(self, rung: Rung, model: Settings) -> Settings:
        fills = [key for key, value in model.items() if value == FILL]

        @functools.cache
        def counted(**settings: Any) -> int | None:
            try:
                return self.parameters(rung, settings)
            except ConfigError:  # such as a number that its heads do not divide
                return None

        def count(units: int, key: str = UNITS, known: Settings = model) -> int | None:
            tried = {**known, key: units} | (dict.fromkeys(fills, units) if key == UNITS else {})
            return counted(**tried)

        # A model may need a multiple of units, of up to 16. If none can be built, the error is not about the units.
        if all(count(self.atlas.units + more) is None for more in range(16)):
            self.parameters(rung, {**model, UNITS: self.atlas.units} | dict.fromkeys(fills, self.atlas.units))
        target = self.target(rung)
        sized = {**model, UNITS: nearest(count, target)}
        for fill in fills:
            sized[fill] = nearest(functools.partial(count, key=fill, known=sized), target)
        return sized
