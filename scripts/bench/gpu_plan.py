"""Which runs of the tables are open, what they cost on a GPU, and how to launch them: the cheapest first.

    python scripts/bench/gpu_plan.py --out FILE [--tables gu_synthetic ...]

A family is the open seeds of one setting, which train together. Its price is a model's: per layer and step of a
sequence a product and a kernel, forward and backward, each at least some microseconds; what a GPU really takes is
measured there (`gpu_tables.py`). Only paper-size runs whose data are here are listed. `make gpu-pack` writes this list
into gpu-pack/.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tqdm import tqdm  # noqa: E402

from timescales.config import compose, schema  # noqa: E402
from timescales.config.run import Run  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.experiment import plan as of_tables  # noqa: E402
from timescales.experiment import queue  # noqa: E402
from timescales.nn.engine import equations  # noqa: E402
from timescales.nn.engine.gpu import buffers  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.runs import store  # noqa: E402
from timescales.training import build, stack  # noqa: E402

MINUTES = 60.0  # longer families are not listed
# Tables with families below that. Of the others each takes hours by the model.
TABLES = (
    *("gu_synthetic", "chien_table2", "chien_table1", "chien_copy", "chien_fixed_p", "chien_variable_copy"),
    "mahto_dyck2",
)
# The model, in microseconds and operations per microsecond: an estimate for an H100, from its clock and memory.
LAUNCH, PRODUCT, PRODUCTS_OF_ALL = 2.5, 19.3e6, 20.8e6
KERNEL, KERNEL_BYTES = 2.0, 2.5e6
EXPANDED = 28.0  # a cumax, or a gate with fewer rows than units: about ten launches more, forward and backward
REST = 500.0  # encoder, readout, loss, optimizer
COPY = (220, 128, 128, 4, False)  # steps, batch, hidden, rows, expanded: an LSTM on the copy task, T = 200
CPU = {1: 2000.0, 5: 5500.0}  # a training step cannot be faster than its launches: of one seed, of several


def layer_us(seeds: int, steps: int, batch: int, hidden: int, rows: int, is_expanded: bool) -> float:
    """Microseconds of a layer's forward and backward pass. rows: of all pre-activations of a unit (4 in an LSTM)."""
    product = max(LAUNCH, seeds * batch * rows * hidden**2 / PRODUCT)
    kernel = max(KERNEL, seeds * batch * hidden * (rows + 2) * 8 / KERNEL_BYTES)
    per_step = 2 * (product + kernel + LAUNCH) + EXPANDED * is_expanded
    return steps * per_step + seeds * steps * batch * rows * hidden**2 / PRODUCTS_OF_ALL


def step_ms(seeds: int, layers: list[tuple[int, int, int, int, bool]]) -> float:
    """Milliseconds of a training step of some seeds; layers: steps, batch, hidden, rows, whether it is expanded."""
    us = REST + sum(layer_us(seeds, *layer) for layer in layers)
    return max(us, CPU[1] if seeds == 1 else CPU[5]) / 1000


class Shapes:
    """The sizes of a run's work: batches of its task, steps of its training, layers of its model."""

    def __init__(self, config: dict[str, Any]) -> None:
        config = config | {"device": "cpu", "engine": "graph"}
        model, task, optimizer = build.build(config)
        if task.partial:
            raise ConfigError(f"only a part of the data is here: {'; '.join(task.partial)}")
        batch = next(task.batches("train"))
        steps, size = batch.x.shape[:2]
        self.steps = schema.LoopSettings(**config["loop"]).last_step(task.start_of)
        self.together = stack.reason_not_batched(model, optimizer, batch) is None
        self.layers = []
        for cell in model.rnn.layers:
            found = equations.of_cell(cell, timed=batch.dt is not None)
            rows = round(buffers.width(cell.hidden_size, found.blocks) / cell.hidden_size)
            is_expanded = any(block.is_expanded for block in found.blocks)
            self.layers.append((int(steps), int(size), cell.hidden_size, rows, is_expanded))

    def minutes(self, seeds: int, steps: int) -> float:
        """Minutes that so many seeds and steps take by the model."""
        rounds = 1 if self.together else seeds
        return rounds * steps * step_ms(seeds if self.together else 1, self.layers) / 60_000


def plan(names: Sequence[str], without: Sequence[str] = (), minutes: float = MINUTES) -> Iterator[dict[str, Any]]:
    """The open families of these tables that take at most so many minutes, in the order of the tables.

    without: data sets that will not be there; tables that need them are left out.
    """
    committed, seen, shapes = store.committed(), set[Path](), dict[str, Shapes | None]()
    with compose.composing() as composer:
        for name in tqdm(names, desc="open runs"):
            table = load.table(name)
            if set(table.needs) & set(without):
                continue
            shared = [compose.setting("seeds", schema.MOST_SEEDS), compose.setting("skip", "committed")]
            requests = [[*request, *shared] for request in of_tables.requests_of(table, "paper", composer)]
            made = of_tables.plan(requests, composer, seeds_named=True)
            todo = sorted((run for run in made.todo if run.directory not in seen), key=lambda run: run.seed)
            seen |= {run.directory for run in todo}
            known: dict[str, list[int]] = {}
            for run in made.runs:
                row = committed.get(run.id)
                if row is not None and row.status == "finished":
                    known.setdefault(run.cost_key, []).append(int(row.steps or 0))
            for group in queue.groups_of(todo):
                overrides = overrides_of(group)
                key = group[0].cost_key
                if key not in shapes:
                    shapes[key] = shapes_of(group[0])
                shape = shapes[key]
                if shape is None:
                    continue
                steps = round(statistics.median(known.get(key, [shape.steps])))
                price = shape.minutes(len(group), steps)
                if price <= minutes:
                    yield {
                        "table": name,
                        "overrides": overrides,
                        "runs": [run.directory.name for run in group],
                        "steps": steps,
                        "together": shape.together,
                        "minutes": round(price, 3),
                    }


def overrides_of(group: queue.Group) -> list[str]:
    """The overrides of the launch that trains these runs; without the table's name, which would ask for all of them."""
    given = [text for text in group[0].command if text.partition("=")[0] not in ("table", "seed", "seeds", "skip")]
    several = [f"seeds={len(group)}"] if len(group) > 1 else []
    return [*given, f"seed={group[0].seed}", *several]


def shapes_of(run: Run) -> Shapes | None:
    """The sizes of a run; None, after a line, if it cannot run here or has no kernel."""
    try:
        return Shapes(copy.deepcopy(run.config))
    except Exception as error:  # for example a data set that is not here
        tqdm.write(f"left out: {run.name}: {str(error).splitlines()[0][:120]}")
        return None


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the list")
    parser.add_argument("--tables", nargs="*", default=TABLES, help=f"default: {' '.join(TABLES)}")
    parser.add_argument("--without", nargs="*", default=[], help="data sets that the other machine will not have")
    options = parser.parse_args(arguments)
    found = sorted(plan(options.tables, options.without), key=lambda family: family["minutes"])
    modelled = {"lstm x5": step_ms(5, [COPY]), "lstm": step_ms(1, [COPY])}
    options.out.write_text(json.dumps({"modelled_ms": modelled, "families": found}, indent=1))
    for family in found[:12]:
        print(f"{family['minutes']:6.1f} min  {family['table']}: {len(family['runs'])} x {family['runs'][0]}")
    print(f"{len(found)} open families of at most {MINUTES:g} minutes in {options.out}")


if __name__ == "__main__":
    main()
