"""Train: fit on "train", validate on "valid". "test" is read when training has ended (`outcome.py`)."""

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from timescales.errors import ConfigError
from timescales.models.sequence import Output, SequenceModel, State
from timescales.tasks import Batch, Task
from timescales.training.graphs import StepGraphs
from timescales.training.interrupt import Interrupt, Requested, raise_if_requested
from timescales.training.memory import one_over_e_values
from timescales.training.progress import progress
from timescales.training.run import TrainingRun


def fit(run: TrainingRun, until: int | None = None) -> None:
    """Train until the run ends: after its last step, or earlier by the task, patience, or a loss that is not finite.

    A signal (`Interrupt`) ends it with KeyboardInterrupt, after everything is saved. It ends after the current step or,
    in a validation, after the current batch.

    until: the step at which to pause.
    """
    model, optimizer, clock = run.model, run.optimizer, Clock(run)
    end = run.last_step if until is None else min(until, run.last_step)

    def gradients(batch: Batch, state: State) -> tuple[Tensor, Output]:
        output = model(batch, state)
        loss = run.task.loss(output.logits, batch)
        (loss + (run.task.penalty(output) + output.auxiliary)).backward()
        if run.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), run.settings.clip_norm)
        return loss, output

    with Interrupt() as interrupt, StepGraphs(model, run.device) as graphs:
        if run.in_step:  # its validation was interrupted
            finish_step(run, clock, interrupt)
        while not run.progress.stopped and run.progress.step < end:
            batch = run.draw_batch()
            optimizer.zero_grad(set_to_none=True)
            loss, output = graphs.of(gradients)(batch, run.state)
            step(optimizer, batch.lr_scale)
            run.record_step(loss, output)
            del output, loss  # their memory is free for a validation
            finish_step(run, clock, interrupt)


class Clock:
    """Measure the seconds of a run.

    The time in which a process was stopped (SIGSTOP, a suspended job) must not count. So if the processor has worked
    for less than 1 % of more than ten seconds, only its working time counts.
    """

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.since, self.worked = run, time.monotonic(), time.process_time()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Add the seconds until this block to the run's, and leave out those of the block."""
        seconds, worked = time.monotonic() - self.since, time.process_time() - self.worked
        self.run.progress.seconds += worked if seconds > 10 and worked < seconds / 100 else seconds
        try:
            yield
        finally:
            self.since, self.worked = time.monotonic(), time.process_time()


def step(optimizer: Optimizer, lr_scale: float | None = None) -> None:
    """Take one step of an optimizer.

    lr_scale: multiplies its learning rates, only in this step. None: 1.
    """
    if lr_scale is None:
        optimizer.step()
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] *= lr_scale
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def finish_step(run: TrainingRun, clock: Clock, interrupt: Interrupt) -> None:
    """Validate if it is time, log, and save if it is time. The clock does not count the saving."""
    if run.validation_due():
        try:
            with eval_weights(run.optimizer):
                metrics = evaluate(run.model, run.task, "valid", run.settings.max_eval_batches)
                with clock.paused():  # so that a record is the same whether T_1/e is logged or not
                    one_over_e = one_over_e_values(run.model, run.task, run.settings.log_one_over_e)
                run.record_validation(metrics, one_over_e)
        except Requested as error:
            with clock.paused():
                run.save()  # a resumed run begins with this validation
            raise KeyboardInterrupt(f"at step {run.progress.step}, before its validation") from error
    run.log_step()
    with clock.paused():
        run.save_if_due(bool(interrupt.requested))


def eval_weights(optimizer: Optimizer) -> contextlib.AbstractContextManager[None]:
    """Return the context in which to evaluate: the optimizer's own `eval_weights`, or nothing if it has none."""
    return optimizer.eval_weights() if hasattr(optimizer, "eval_weights") else contextlib.nullcontext()


@torch.no_grad()
def evaluate(model: SequenceModel, task: Task, split: str, max_batches: int | None = None) -> dict[str, float]:
    """Compute the task's metrics over a split, or its first max_batches batches. The model's mode does not change.

    They are the means of the metrics over the batches, and what is derived from these, as floats, whatever a user's
    task returns. Raises ConfigError for a metric that is not a number.
    """
    totals: dict[str, Any] = {}
    counts: dict[str, int] = {}
    state, mode = None, model.training
    model.eval()
    try:
        n_batches = min(task.n_batches(split), max_batches or sys.maxsize)
        for batch in progress(itertools.islice(task.batches(split), max_batches), f"evaluation on {split}", n_batches):
            raise_if_requested(f"in the evaluation on {split}")
            output = model(batch, state)
            for name, (total, count) in task.metrics(output.logits, batch).items():
                totals[name] = totals.get(name, 0.0) + total
                counts[name] = counts.get(name, 0) + count
            state = output.state if task.spec.carried else None
            del output  # its memory is free for the next batch
    finally:
        model.train(mode)
    means = {name: plain(name, total) / plain(name, counts[name]) for name, total in totals.items()}
    return {name: plain(name, value) for name, value in task.derived(means).items()}


def plain(name: str, value: Any) -> float:
    """Convert a metric to a plain float, which a record can hold. Raises ConfigError if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the task's metric {name} must be a number; not {value!r}") from error
