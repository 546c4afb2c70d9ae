"""The training loop: fit on "train", validate on "valid". "test" is read when training has ended (`outcome.py`)."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales.models.sequence import Output, SequenceModel, State
from timescales.tasks import Batch, Task
from timescales.training import optimizers
from timescales.training.graphs import StepGraphs
from timescales.training.interrupt import Interrupt, Requested, raise_if_requested
from timescales.training.memory import one_over_e_values
from timescales.training.progress import progress
from timescales.training.run import TrainingRun
from timescales.training.stack import AnyOptimizer, Single, Stack


def fit(runs: Sequence[TrainingRun], model: Single | Stack, optimizer: AnyOptimizer, until: int | None = None) -> None:
    """Train until a run ends: after its last step, or when the task, patience or a loss that is not finite says so.

    runs: one, or several seeds of one configuration that stand at the same step.
    model, optimizer: those of the run, or those of all seeds batched.
    until: the step at which to pause.
    An error in a run's own part (data, log, checkpoint) ends that run alone and is left in its `error`; an error in a
    step or validation is raised. A signal (`Interrupt`) ends all runs after the step, or after the batch of a
    validation, with everything saved and a KeyboardInterrupt in their `error`.
    """
    clip_norm, clock = runs[0].settings.clip_norm, Clock()
    with Interrupt() as interrupt, StepGraphs(model, runs[0].device) as graphs:
        if runs[0].in_step:  # its validation was interrupted, or found the memory too small for more runs together
            finish_step(runs, model, optimizer, clock, interrupt)
        while all(run.going for run in runs) and runs[0].progress.step != until:
            batches = for_each(runs, TrainingRun.draw_batch)
            if len(batches) < len(runs):
                break

            optimizer.zero_grad(set_to_none=True)

            def gradients(batches: Sequence[Batch], states: Sequence[State]) -> tuple[list[Tensor], list[Output]]:
                outputs = model(batches, states)
                parts = list(zip(runs, outputs, batches, strict=True))
                losses = [run.task.loss(output.logits, batch) for run, output, batch in parts]
                penalties = [run.task.penalty(output) + output.auxiliary for run, output, _ in parts]
                torch.autograd.backward([loss + penalty for loss, penalty in zip(losses, penalties, strict=True)])
                if clip_norm is not None:
                    model.clip_gradients(clip_norm)
                return losses, outputs

            losses, outputs = graphs.of(gradients)(batches, [run.state for run in runs])
            optimizers.step(optimizer, batches[0].lr_scale)

            for_each(runs, TrainingRun.record_step, losses, outputs)
            del outputs, losses  # their memory is free for a validation
            finish_step(runs, model, optimizer, clock, interrupt)


def fit_single(run: TrainingRun, until: int | None = None) -> None:
    """`fit` for one run by itself; its error is raised."""
    fit([run], Single(run.model), run.optimizer, until)
    if run.error is not None:
        raise run.error


def for_each(runs: Sequence[TrainingRun], action: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
    """Call action(run, ...) for each run that has no error, each with its own arguments; returns what they return.

    An error or interruption ends that run alone.
    """
    results = []
    for run, *own_arguments in zip(runs, *arguments, strict=True):
        if run.error is None:
            try:
                results.append(action(run, *own_arguments))
            except (Exception, KeyboardInterrupt) as error:
                run.error = error
    return results


class Clock:
    """Measures the seconds that runs use together."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Count from now on."""
        self.since = time.monotonic()

    def stop(self, runs: Sequence[TrainingRun]) -> None:
        """Count until now, and add to every run its share."""
        for run in runs:
            run.progress.seconds += (time.monotonic() - self.since) / len(runs)

    @contextlib.contextmanager
    def paused(self, runs: Sequence[TrainingRun]) -> Iterator[None]:
        """`stop` before the block, `start` after it."""
        self.stop(runs)
        try:
            yield
        finally:
            self.start()


def finish_step(
    runs: Sequence[TrainingRun],
    model: Single | Stack,
    optimizer: AnyOptimizer,
    clock: Clock,
    interrupt: Interrupt,
) -> None:
    """Validate if it is time, log, and save if it is time, which the clock does not count."""
    if any(run.validation_due() for run in runs):
        try:
            validate(runs, model, optimizer, clock)
        except Requested:
            clock.stop(runs)
            for_each(runs, TrainingRun.save_in_step)
            return
    for_each(runs, TrainingRun.log_step)
    with clock.paused(runs):
        for_each(runs, TrainingRun.save_if_due, [bool(interrupt.requested)] * len(runs))


def validate(runs: Sequence[TrainingRun], model: Single | Stack, optimizer: AnyOptimizer, clock: Clock) -> None:
    """Evaluate all runs on the validation split, with the weights that the optimizer keeps for it.

    The clock does not count T_1/e: no number of a record depends on whether it is logged.
    """
    with optimizers.eval_weights(optimizer):
        metrics = evaluate_all(model, [run.task for run in runs], "valid", runs[0].settings.max_eval_batches)
        with clock.paused(runs):
            one_over_e = [one_over_e_values(run.model, run.task, run.settings.log_one_over_e) for run in runs]
        for_each(runs, TrainingRun.record_validation, metrics, one_over_e)


def evaluate(model: SequenceModel, task: Task, split: str, max_batches: int | None = None) -> dict[str, float]:
    """The task's metrics over a split (or its first max_batches batches); the model's mode stays as it was."""
    return evaluate_all(Single(model), [task], split, max_batches)[0]


@torch.no_grad()
def evaluate_all(
    model: Single | Stack, tasks: Sequence[Task], split: str, max_batches: int | None = None
) -> list[dict[str, float]]:
    """`evaluate` for one model or several batched ones, each with a task of its own."""
    scores = [Scores(task) for task in tasks]
    states: list[State] = [None] * len(tasks)
    mode = model.model.training
    model.model.eval()
    try:
        rounds = zip(*(task.batches(split) for task in tasks), strict=True)
        total = min(tasks[0].n_batches(split), max_batches or sys.maxsize)
        for batches in progress(itertools.islice(rounds, max_batches), f"evaluation on {split}", total):
            raise_if_requested(f"in the evaluation on {split}")
            outputs = model(batches, states)
            states = [score.add(output, batch) for score, output, batch in zip(scores, outputs, batches, strict=True)]
    finally:  # after an error several runs may go on one after another
        model.model.train(mode)
    return [score.means() for score in scores]


class Scores:
    """A task's metrics, summed over the batches of a split."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.totals: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def add(self, output: Output, batch: Batch) -> State:
        """Add a batch; returns the state that the next one begins with."""
        for name, (total, count) in self.task.metrics(output.logits, batch).items():
            self.totals[name] = self.totals.get(name, 0.0) + total
            self.counts[name] = self.counts.get(name, 0) + count
        return output.state if self.task.spec.carried else None

    def means(self) -> dict[str, float]:
        """The metrics' means, and what follows from them."""
        return self.task.derived({name: float(total) / self.counts[name] for name, total in self.totals.items()})
