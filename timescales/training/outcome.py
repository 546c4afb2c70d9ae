"""What the record says of a run whose training has ended."""

from __future__ import annotations

from typing import Any

from timescales.training import checkpoint, loop, optimizers
from timescales.training.run import TrainingRun


def outcome(run: TrainingRun) -> dict[str, Any]:
    """What the record says of a run that has ended: metrics at the best validation and, as `last`, at the last step.

    Leaves the model at its best weights, and writes these to best.pt.
    """
    progress, diverged = run.progress, run.progress.stopped == "diverged"
    result: dict[str, Any] = {
        "status": "diverged" if diverged else "finished",
        "stopped": progress.stopped,
        "steps": progress.step,
        "diverged_at": progress.diverged_at,
        "best": progress.best,
        "curve": progress.curve,
        "seconds": progress.seconds,
        "metrics": {},
        "last": {},
    }
    if not diverged:
        with optimizers.eval_weights(run.optimizer):
            result["last"] = metrics_on_test(run, progress.curve[-1])
    if progress.best is not None:
        assert run.best_weights is not None
        run.model.load_state_dict(run.best_weights)
        step = progress.best["step"]
        if run.directory is not None:
            checkpoint.save(run.directory / "best.pt", {"model": run.best_weights, "step": step})
        if step == progress.step and not diverged:
            result["metrics"] = result["last"]
        else:
            result["metrics"] = metrics_on_test(run, next(row for row in progress.curve if row["step"] == step))
    return result


def metrics_on_test(run: TrainingRun, row: dict[str, float]) -> dict[str, float]:
    """The metrics of the test split, with those of the validation in a row of the curve."""
    metrics = loop.evaluate(run.model, run.task, "test", run.settings.max_eval_batches)
    return {f"test/{k}": v for k, v in metrics.items()} | {k: v for k, v in row.items() if k.startswith("valid/")}
