"""One run, or the seeds of one configuration: begun, trained side by side or one after another, and ended.

Every run keeps its own model, task, optimizer, checkpoints and record. Those that stand at the same step are trained
together, as a `Stack`; those ahead wait. A run that ends, fails or diverges leaves the others. If their model cannot be
batched, or the memory is too small for all, they are trained one after another.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from timescales.training.interrupt import Interrupt, raise_if_requested
from timescales.training.loop import fit, for_each
from timescales.training.run import TrainingRun
from timescales.training.stack import Single, Stack, StackedOptimizer, reason_not_batched, reason_unlike, separate


class Job(Protocol):
    """A run from its configuration to its record."""

    def begin(self) -> TrainingRun:
        """Build the model and all that trains it, and continue from the checkpoint if there is one."""

    def end(self, run: TrainingRun) -> None:
        """Test the trained model and write the outcome."""

    def fail(self, error: BaseException) -> None:
        """Note why the run has failed or was interrupted."""

    def close(self) -> None:
        """Close what is open; may be called again."""


class Member:
    """A job on its way: not begun yet, in training while it has a `run`, or ended."""

    def __init__(self, job: Job) -> None:
        self.job, self.begun = job, False
        self.run: TrainingRun | None = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Begin the job and draw its next batch; it ends at once if nothing is left to train."""
        self.begun = True
        self.run = self.attempt(self.job.begin)
        if self.run is not None and self.run.going and not self.run.in_step:
            for_each([self.run], TrainingRun.draw_batch)
        self.end_if_over()

    def end_if_over(self) -> None:
        """End the job if its training has ended or failed."""
        if self.run is not None and self.run.going:
            return
        run, self.run = self.run, None
        if run is not None:
            self.error, run.error = run.error, None
            if self.error is None:
                self.attempt(self.job.end, run)
        if self.error is not None:
            self.attempt(self.job.fail, self.error)
        self.attempt(self.job.close)

    def attempt(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the job; an error ends this job alone."""
        try:
            return action(*arguments)
        except (Exception, KeyboardInterrupt) as error:
            self.error = self.error or error
            return None


def train(jobs: Sequence[Job]) -> None:
    """Do all jobs to their end, side by side where that is possible; where it is not, one line says why.

    An error in a run's own part (building, data, log, checkpoint, test) ends that run alone, an error in a shared step
    or validation ends all that share it. Errors are raised when the other runs have ended, KeyboardInterrupt when all
    that have begun have saved.
    """
    members = [Member(job) for job in jobs]
    try:
        with Interrupt() as interrupt:
            # While a single run is built there is nothing to save.
            with interrupt.immediate() if len(jobs) == 1 else contextlib.nullcontext():
                reason = begin(members, interrupt)
            if reason is None:
                reason = train_side_by_side(members)
            if reason is not None:
                print(f"{len(jobs)} seeds, one after another: {reason}", file=sys.stderr)
                train_one_after_another(members, interrupt)
            raise_first_error(members)
            raise_if_requested("after the end of the run")  # a sweep does not go on
    finally:
        for member in members:
            member.attempt(member.job.close)
            member.error = None


def begin(members: Sequence[Member], interrupt: Interrupt) -> str | None:
    """Begin the jobs, and return None if they can be batched, else the reason.

    The first one that trains may show that they cannot be: the later ones are then not begun yet.
    """
    first = None
    for member in members:
        if interrupt.requested:
            break
        member.begin()
        if first is None and member.run is not None and len(members) > 1:
            first = member.run
            reason = reason_not_batched(first.model, first.optimizer, first.draw_batch())
            if reason is not None:
                return reason
    return reason_unlike([member.run.model for member in members if member.run is not None])


def train_side_by_side(members: Sequence[Member]) -> str | None:
    """Train the runs that stand at the same step together; returns why they must go on one after another, if so."""
    while in_training := [(m, m.run) for m in members if m.run is not None]:
        positions = sorted({run.position for _, run in in_training})
        group = [member for member, run in in_training if run.position == positions[0]]
        if not train_group(group, until=positions[1][0] if len(positions) > 1 else None):
            return "side by side they do not fit into memory"
    return None


def train_one_after_another(members: Sequence[Member], interrupt: Interrupt) -> None:
    """Train each run to its end; one that has begun takes at least a step, and saves, when it is interrupted."""
    for member in members:
        if not member.begun and not interrupt.requested:
            member.begin()
        if member.run is not None:
            train_group([member])


def train_group(members: Sequence[Member], until: int | None = None) -> bool:
    """Train runs that stand at the same step until one ends; False, as before the step, if memory is too small."""
    runs = [member.run for member in members if member.run is not None]
    fits = True
    try:
        fit_group(runs, until)
    except Exception as error:
        fits = len(runs) == 1 or not isinstance(error, torch.OutOfMemoryError)
        for run in runs if fits else ():
            run.error = error
    if len(runs) > 1:  # after the block above, since the error keeps all that the step computed in memory
        separate([run.model for run in runs], [run.optimizer for run in runs])
    for member in members:
        member.end_if_over()
    return fits


def fit_group(runs: Sequence[TrainingRun], until: int | None) -> None:
    """Fit one run by itself, or several as a stack."""
    if len(runs) == 1:
        fit(runs, Single(runs[0].model), runs[0].optimizer, until)
        return
    models, optimizers = [run.model for run in runs], [run.optimizer for run in runs]
    stack = Stack(models)
    fit(runs, stack, StackedOptimizer(stack, models, optimizers), until)


def raise_first_error(members: Sequence[Member]) -> None:
    """Raise the first of the members' errors if there are any, an interruption before all others."""
    errors = [member.error for member in members if member.error is not None]
    if not all(member.begun for member in members):
        errors.append(KeyboardInterrupt("before all seeds had begun"))
    try:
        if errors:
            raise next((error for error in errors if not isinstance(error, Exception)), errors[0])
    finally:
        errors.clear()  # an error remembers this frame
