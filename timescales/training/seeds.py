"""The runs of one launch, begun, trained and ended: mostly a single run, else several that differ in their seeds.

Several are trained side by side or one after another. Every run keeps its own model, task, optimizer, checkpoints and
record. Those that stand at the same step are trained together, as a `Stack`; those ahead wait. A run that ends, fails
or diverges leaves the others. If their model cannot be batched, or the memory is too small for all, they are trained
one after another.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from timescales.training.interrupt import Interrupt, raise_if_requested
from timescales.training.loop import fit, for_each
from timescales.training.run import TrainingRun
from timescales.training.stack import Single, Stack, StackedOptimizer, reason_not_batched, reason_unlike, separate

Begin = Callable[[], TrainingRun]
End = Callable[[int, TrainingRun], Any]
Fail = Callable[[int, BaseException], Any]


class Launch:
    """Trains runs, or one alone, until each has ended or failed; `run` is a TrainingRun here.

    begin: for each run what builds it, and continues it from its checkpoint. end: tests the k-th, which is trained, and
    writes its outcome. fail: notes why the k-th has failed or was interrupted. An error in a run's own part (building,
    data, log, checkpoint, test) ends that run alone, an error in a shared step or validation ends all that share it.
    """

    def __init__(self, begin: Sequence[Begin], end: End, fail: Fail) -> None:
        self.begin, self.end, self.fail = list(begin), end, fail
        self.next = 0  # the first that has not begun
        self.training: dict[int, TrainingRun] = {}
        self.errors: list[BaseException] = []

    def train(self) -> None:
        """Train all runs, side by side where that is possible.

        Errors are raised when the other runs have ended, KeyboardInterrupt when all that have begun have saved.
        """
        with Interrupt() as interrupt:
            # While a single run is built there is nothing to save.
            with interrupt.immediate() if len(self.begin) == 1 else contextlib.nullcontext():
                reason = self.begin_all(interrupt)
            if reason is None:
                reason = self.side_by_side()
            if reason:
                print(f"{len(self.begin)} seeds, one after another: {reason}", file=sys.stderr)
            self.one_after_another(interrupt)
            self.raise_first_error()
            raise_if_requested("after the end of the run")  # a sweep does not go on

    def begin_all(self, interrupt: Interrupt) -> str | None:
        """Begin the runs, and return None if they can be batched, else the reason; "" for one that nobody need know.

        The first one that trains may show that they cannot be: the later ones are then not begun yet.
        """
        first = None
        while self.next < len(self.begin) and not interrupt.requested:
            k = self.begin_next()
            if first is None and k in self.training and len(self.begin) > 1:
                first = self.training[k]
                reason = reason_not_batched(first.model, first.optimizer, first.draw_batch())
                if reason is not None:
                    return reason
        return reason_unlike([run.model for run in self.training.values()])

    def begin_next(self) -> int:
        """Begin the next run and draw its batch; it ends at once if nothing is left to train. Returns its number."""
        k, self.next = self.next, self.next + 1
        try:
            run = self.training[k] = self.begin[k]()
            if run.going and not run.in_step:
                for_each([run], TrainingRun.draw_batch)
        except (Exception, KeyboardInterrupt) as error:
            self.failed(k, error)
        self.end_if_over()
        return k

    def end_if_over(self) -> None:
        """End the runs whose training has ended or failed."""
        for k, run in [(k, run) for k, run in self.training.items() if not run.going]:
            del self.training[k]
            error, run.error = run.error, None
            try:
                if error is not None:
                    raise error
                self.end(k, run)
            except (Exception, KeyboardInterrupt) as why:
                self.failed(k, why)

    def failed(self, k: int, error: BaseException) -> None:
        """Keep the error that has ended a run."""
        self.errors.append(error)
        with contextlib.suppress(Exception):  # what is raised in noting an error is not what went wrong
            self.fail(k, error)

    def side_by_side(self) -> str | None:
        """Train the runs that stand at the same step together; returns why they must go on one after another, if so."""
        while self.training:
            positions = sorted({run.position for run in self.training.values()})
            group = [run for run in self.training.values() if run.position == positions[0]]
            if not self.train_group(group, until=positions[1][0] if len(positions) > 1 else None):
                return "side by side they do not fit into memory"
        return None

    def one_after_another(self, interrupt: Interrupt) -> None:
        """Train each run to its end; one that has begun takes at least a step, and saves, when it is interrupted."""
        while self.training or (self.next < len(self.begin) and not interrupt.requested):
            if not self.training:
                self.begin_next()
            if self.training:
                self.train_group([next(iter(self.training.values()))])

    def train_group(self, runs: Sequence[TrainingRun], until: int | None = None) -> bool:
        """Train runs that stand at the same step until one ends; False, as before the step, if memory is too small."""
        fits = True
        try:
            fit_group(runs, until)
        except Exception as error:
            fits = len(runs) == 1 or not isinstance(error, torch.OutOfMemoryError)
            for run in runs if fits else ():
                run.error = error
        if len(runs) > 1:  # after the block above, since the error keeps all that the step computed in memory
            separate([run.model for run in runs], [run.optimizer for run in runs])
        self.end_if_over()
        return fits

    def raise_first_error(self) -> None:
        """Raise the first of the errors if there are any, an interruption before all others."""
        errors, self.errors = self.errors, []
        if self.next < len(self.begin):
            errors.append(KeyboardInterrupt("before all seeds had begun"))
        try:
            if errors:
                raise next((error for error in errors if not isinstance(error, Exception)), errors[0])
        finally:
            errors.clear()  # an error remembers this frame


def fit_group(runs: Sequence[TrainingRun], until: int | None) -> None:
    """Fit one run by itself, or several as a stack."""
    if len(runs) == 1:
        fit(runs, Single(runs[0].model), runs[0].optimizer, until)
        return
    models, optimizers = [run.model for run in runs], [run.optimizer for run in runs]
    stack = Stack(models)
    fit(runs, stack, StackedOptimizer(stack, models, optimizers), until)
