"""What bench_gpu.py measures for whole training steps: data, forward, backward, clipping, optimizer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench_gpu_steps import PRECISIONS, SEEDS, synchronize
from bench_variants import endless_run

from timescales.config import compose, identity
from timescales.nn.engine import programs
from timescales.training import build, loop, stack

TRAININGS = {
    "copy T=500": ["task=copy", "task.T=500"],
    "pMNIST 256": ["task=pmnist", "model.hidden_size=256"],
    "PTB-char 828": ["task=ptb_char", "model.hidden_size=828"],
    "PTB-word": ["task=ptb_word", "model.hidden_size=[1150,1150,400]", "model.num_layers=3"],
}
COMPARED = "copy T=500"  # also measured with the eager engine, and with several seeds


def trainings(device: str, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Rows with the steps per second of whole training steps. If one fails, its row has the reason."""
    with compose.composing() as composer:
        for name in TRAININGS:
            for variant, precision in variants_of(name, device):
                row = {"part": "training", "config": name, "variant": variant, "precision": precision}
                measure = batched_training if variant.endswith(f"x{SEEDS}") else training
                try:
                    config = identity.resolved(composer(overrides_of(name, variant, precision, device)))
                    row |= measure(config, device, seconds)
                except Exception as error:  # for example a data set that is not here
                    row["note"] = programs.one_line(error)[:120]
                yield [row]


def variants_of(name: str, device: str) -> list[tuple[str, str]]:
    """The variants of a training and their precisions."""
    variants = list(itertools.product(("lstm", "plstm"), PRECISIONS if device != "cpu" else ["fp32"]))
    if name == COMPARED:
        variants += [("plstm eager", "fp32"), (f"plstm x{SEEDS}", "fp32")]
    return variants


def overrides_of(name: str, variant: str, precision: str, device: str) -> list[str]:
    """The overrides of a training; small sizes on a CPU."""
    overrides = [f"model={variant.split()[0]}", *TRAININGS[name]]
    overrides += [f"device={device}", f"precision={precision}", "logger=none"]
    if variant.endswith("eager"):
        overrides.append("engine=eager")
    if device == "cpu":
        overrides += ["model.hidden_size=[8,8,400]" if "word" in name else "model.hidden_size=8"]
        overrides += ["task.batch_size=4"]
        if "copy" in name:
            overrides.append("task.T=10")
    return overrides


def training(config: dict[str, Any], device: str, seconds: float) -> dict[str, Any]:
    """Time of a step of the training loop: `ms`, `rounds` and, in `note`, steps per second."""
    model, task, optimizer = build.build(config)
    run = endless_run(model, task, optimizer, config)
    return timed(lambda: loop.fit_single(run, until=run.progress.step + 1), device, seconds)


def batched_training(config: dict[str, Any], device: str, seconds: float) -> dict[str, Any]:
    """As `training`, for batched seeds. A step is a step of every seed."""
    runs = [endless_run(*build.build({**config, "seed": seed}), config) for seed in range(SEEDS)]
    models = [run.model for run in runs]
    together = stack.Stack(models)
    optimizer = stack.StackedOptimizer(together, models, [run.optimizer for run in runs])

    def step() -> None:
        loop.fit(runs, together, optimizer, until=runs[0].progress.step + 1)

    result = timed(step, device, seconds)
    return result | {"note": f"{result['note']} of each seed"}


def timed(step: Callable[[], None], device: str, seconds: float) -> dict[str, Any]:
    """Time of a step: warm up, then call it for so many seconds. The device is synchronised every ten steps."""
    for _ in range(8):
        step()
    synchronize(device)
    n, start = 0, time.perf_counter()
    while n == 0 or time.perf_counter() - start <= seconds:
        for _ in range(10):
            step()
        n += 10
        synchronize(device)
    elapsed = time.perf_counter() - start
    return {"ms": 1000 * elapsed / n, "rounds": n, "note": f"{n / elapsed:.1f} steps/s"}
