"""Test a run whose training has ended, and return the result that its record stores."""

from dataclasses import dataclass, field

from timescales.training import loop
from timescales.training.best import Best
from timescales.training.run import TrainingRun, save_checkpoint


@dataclass
class Outcome:
    """Hold the fields of a record that are only known when its run has ended."""

    status: str
    stopped: str | None
    steps: int
    diverged_at: int | None
    best: Best | None
    curve: list[dict[str, float]]
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)


def outcome(run: TrainingRun) -> Outcome:
    """Test a run whose training has ended, with the weights of the best validation and with the last weights.

    Afterwards the model has the best weights, and best.pt has them too.
    """
    progress, diverged = run.progress, run.progress.stopped == "diverged"
    result = Outcome(
        status="diverged" if diverged else "finished",
        stopped=progress.stopped,
        steps=progress.step,
        diverged_at=progress.diverged_at,
        best=progress.best,
        curve=progress.curve,
        seconds=progress.seconds,
    )
    if not diverged:
        with loop.eval_weights(run.optimizer):
            result.last = metrics_on_test(run, progress.curve[-1])
    if progress.best is not None:
        assert run.best_weights is not None
        run.model.load_state_dict(run.best_weights)
        step = progress.best.step
        if run.directory is not None:
            save_checkpoint(run.directory / "best.pt", {"model": run.best_weights, "step": step})
        if step == progress.step and not diverged:
            result.metrics = result.last
        else:
            result.metrics = metrics_on_test(run, next(row for row in progress.curve if row["step"] == step))
    return result


def metrics_on_test(run: TrainingRun, row: dict[str, float]) -> dict[str, float]:
    """Return the metrics of the test split, with those of the validation in a row of the curve."""
    metrics = loop.evaluate(run.model, run.task, "test", run.settings.max_eval_batches)
    return {f"test/{k}": v for k, v in metrics.items()} | {k: v for k, v in row.items() if k.startswith("valid/")}
