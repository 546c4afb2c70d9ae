"""What bench_gpu.py measures for whole training steps: data, forward, backward, clipping, optimizer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from bench_gpu_steps import PRECISIONS, SEEDS, synchronize
from bench_variants import endless_run
from torch import Tensor
from torch.optim import Optimizer

from timescales.config import compose, identity
from timescales.models.sequence import Output
from timescales.nn.engine.gpu import capture
from timescales.tasks import Batch
from timescales.training import build, graphs, loop, optimizers, stack
from timescales.training.run import TrainingRun

TRAININGS = {
    "copy T=500": ["task=copy", "task.T=500"],
    "pMNIST 256": ["task=pmnist", "model.hidden_size=256"],
    "PTB-char 828": ["task=ptb_char", "model.hidden_size=828"],
    "PTB-word": ["task=ptb_word", "model.hidden_size=[1150,1150,400]", "model.num_layers=3"],
}
STEP = "copy T=200"  # of one training step with and without a capture
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
                    row["note"] = capture.one_line(error)[:120]
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
    runs, together, optimizer = stacked(config, SEEDS)

    def step() -> None:
        loop.fit(runs, together, optimizer, until=runs[0].progress.step + 1)

    result = timed(step, device, seconds)
    return result | {"note": f"{result['note']} of each seed"}


def stacked(
    config: dict[str, Any], seeds: int
) -> tuple[list[TrainingRun], stack.Single | stack.Stack, Optimizer | stack.StackedOptimizer]:
    """Endless runs of one or several seeds, their model and their optimizer, as `loop.fit` takes them."""
    runs = [endless_run(*build.build({**config, "seed": seed}), config) for seed in range(seeds)]
    if seeds == 1:
        return runs, stack.Single(runs[0].model), runs[0].optimizer
    models = [run.model for run in runs]
    together = stack.Stack(models)
    return runs, together, stack.StackedOptimizer(together, models, [run.optimizer for run in runs])


def steps(device: str, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Rows with the times of a whole training step of the copy task, T = 200: of one seed and of several, launched one
    operation after the other and as one CUDA graph (training/graphs.py). If one fails, its row has the reason.
    """
    with compose.composing() as composer:
        for model, seeds, whole in itertools.product(("plstm", "lstm"), (SEEDS, 1), (False, True)):
            variant = model + (f" x{seeds}" if seeds > 1 else "") + (" captured" if whole else "")
            row = {"part": "training", "config": STEP, "variant": variant, "precision": "fp32"}
            try:
                overrides = [f"model={model}", "task=copy", f"device={device}", "logger=none"]
                overrides += ["task.T=10", "model.hidden_size=8", "task.batch_size=4"] if device == "cpu" else []
                config = identity.resolved(composer(overrides))
                if whole:
                    row |= captured_training(config, device, seconds, seeds)
                else:
                    row |= batched_training(config, device, seconds) if seeds > 1 else training(config, device, seconds)
            except Exception as error:
                row["note"] = capture.one_line(error)[:120]
            yield [row]


def captured_training(config: dict[str, Any], device: str, seconds: float, seeds: int) -> dict[str, Any]:
    """As `training`, with the captured steps of `loop.fit`: each measured step of that is a training of its own, which
    captures nothing. On a CPU nothing is captured.
    """
    runs, model, optimizer = stacked(config, seeds)
    clip_norm, device_of = runs[0].settings.clip_norm, runs[0].device

    def gradients(batches: Sequence[Batch], states: Sequence[Any]) -> tuple[list[Tensor], list[Output]]:
        outputs = model(batches, states)
        parts = list(zip(runs, outputs, batches, strict=True))
        losses = [run.task.loss(out.logits, batch) for run, out, batch in parts]
        penalties = [run.task.penalty(out) for run, out, _ in parts]
        torch.autograd.backward([loss + penalty for loss, penalty in zip(losses, penalties, strict=True)])
        if clip_norm is not None:
            model.clip_gradients(clip_norm)
        return losses, outputs

    def step() -> None:  # the lines of `loop.fit`
        batches = [run.draw_batch() for run in runs]
        optimizer.zero_grad(set_to_none=True)
        losses, outputs = captures.of(gradients)(batches, [run.state for run in runs])
        optimizers.step(optimizer, batches[0].lr_scale)
        for run, loss, output in zip(runs, losses, outputs, strict=True):
            run.record_step(loss, output)

    with graphs.StepGraphs(model, device_of) as captures:
        found = timed(step, device, seconds)
        if device_of.type == "cuda" and not captures.graphs:
            found["note"] += "; nothing was captured"
    return found


def timed(step: Callable[[], object], device: str, seconds: float) -> dict[str, Any]:
    """Time of a step: warm up, then call it for so many seconds. The device is synchronised every ten steps.

    The CPU's share is the time until the calls return over the time until the device is done. Near 100 % the CPU's
    launches are the limit.
    """
    for _ in range(8):
        step()
    synchronize(device)
    n, launching, start = 0, 0.0, time.perf_counter()
    while n == 0 or time.perf_counter() - start <= seconds:
        begun = time.perf_counter()
        for _ in range(10):
            step()
        launching += time.perf_counter() - begun
        n += 10
        synchronize(device)
    elapsed = time.perf_counter() - start
    note = f"{n / elapsed:.1f} steps/s, CPU {100 * launching / elapsed:.0f} %"
    return {"ms": 1000 * elapsed / n, "rounds": n, "note": note}
