"""How many units can be silenced before a model no longer copies, and whether the later-reset ones matter most.

Source: Chien et al. 2021, section 5.3 and Fig. 5.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterable

import torch
from torch import Tensor

from timescales.analysis.generalisation import accuracy, copying
from timescales.analysis.reset_units import later_reset
from timescales.model import SequenceModel
from timescales.schema import ConfigError
from timescales.tasks import Copy, Task

ORDERS, SEQUENCES = 10, 200
STEPS, AT_ONCE, OF = 20, 5, 128  # the paper: 20 times 5 more of 128 units


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Accuracy by number of silenced units, "random/0" to "random/100", the mean over 10 random orders.

    For a model with reference times also "later_first/...": the later-reset units first, in random order, then the
    others. ".../mean" is that of the curve. Networks of another size are silenced in proportion.
    The paper leaves open what is silenced (here the output h, the cell running on) and how often (here 10 orders, each
    on the same 200 test sequences).
    """
    own = copying(task)
    if len(model.rnn.layers) != 1:
        raise ConfigError(f"this probe is for one layer of units, not for {len(model.rnn.layers)}")
    H = model.rnn.hidden_size
    orders = [torch.randperm(H, generator=own.generator("ablation", k)) for k in range(ORDERS)]
    found = curve(model, own, "random", orders)
    if "age" in model.rnn.layers[0].State._fields:
        late = later_reset(model, own)
        found |= curve(model, own, "later_first", [torch.cat([o[late[o]], o[~late[o]]]) for o in orders])
    return found


def counts(hidden_size: int) -> list[int]:
    """How many units are silenced, step after step: 0, 5, ..., 100 of 128."""
    return sorted({k * AT_ONCE * hidden_size // OF for k in range(STEPS + 1)})


def curve(model: SequenceModel, task: Copy, name: str, orders: Iterable[Tensor]) -> dict[str, float]:
    """Mean accuracy over orders (each a permutation of the units) by number of silenced units, and the curve's mean."""
    numbers = counts(model.rnn.hidden_size)
    each = [[accuracy(silenced(model, order[:n]), task, SEQUENCES) for n in numbers] for order in orders]
    means = [statistics.fmean(values) for values in zip(*each, strict=True)]
    return {f"{name}/{n}": mean for n, mean in zip(numbers, means, strict=True)} | {
        f"{name}/mean": statistics.fmean(means)
    }


@torch.no_grad()
def silenced(model: SequenceModel, units: Tensor) -> SequenceModel:
    """The model with the outputs h of some units of its one layer forced to 0 at every step; what it was stays.

    A unit's h is read in two places only, the recurrent product and the readout, and each multiplies it by a column of
    its weights. With these columns at 0 all others see exactly what they would see of h = 0, at no cost in time.
    """
    changed = copy.deepcopy(model)
    changed.rnn.layers[0].weight_hh[:, units] = 0.0
    changed.readout.weight[:, units] = 0.0
    return changed
