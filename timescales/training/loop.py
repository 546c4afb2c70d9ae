"""The training loop, in a straight line: fit on "train", choose on "valid"; "test" is read by `evaluate` afterwards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from timescales.config.schema import Loop
from timescales.errors import ConfigError
from timescales.tasks import Batch, Task
from timescales.training import checkpoint, optimizers
from timescales.training.interrupt import Interrupt
from timescales.training.model import Output, SequenceModel

Log = Callable[[dict[str, float], int], None]
State = tuple[Any, ...] | None  # of every layer; None: zeros


@dataclass
class Progress:
    """Where a run stands; with the weights, the optimizer and the random generators this is all a resume needs."""

    step: int = 0
    best: dict[str, Any] | None = None  # {"metric", "value", "step"}
    since_best: int = 0  # validations since then
    curve: list[dict[str, float]] = field(default_factory=list)  # one entry per validation
    seconds: float = 0.0
    diverged_at: int | None = None  # the first step whose loss was not finite
    stopped: str | None = None  # why training ended: "max_steps", "patience", the task's word, "diverged"


class Clock:
    """The seconds that a run has used: its share of steps taken together with other runs, none while it waits."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.start()

    def start(self, runs: int = 1) -> None:
        """Count from now on, as one of so many runs."""
        self.since, self.runs = time.monotonic(), runs

    def stop(self) -> float:
        """Count until now; returns the seconds."""
        self.seconds += (time.monotonic() - self.since) / self.runs
        return self.seconds


class Step(NamedTuple):
    """A training step that a run asks for, after `number` others."""

    number: int
    model: SequenceModel
    task: Task
    optimizer: torch.optim.Optimizer
    settings: Loop
    batch: Batch
    state: State
    clock: Clock


class Validation(NamedTuple):
    """A validation that a run asks for, after `number` steps."""

    number: int
    model: SequenceModel
    task: Task
    optimizer: torch.optim.Optimizer
    settings: Loop
    clock: Clock


class Taken(NamedTuple):
    """What came of a step: the loss, on the device, and the state after it."""

    loss: torch.Tensor
    state: State


Training = Generator[Step | Validation, Any, Any]


def fit(
    model: SequenceModel, task: Task, optimizer: torch.optim.Optimizer, log: Log, settings: Loop, directory: Path
) -> Progress:
    """Train one model by itself; see `training`."""
    return answered(training(model, task, optimizer, log, settings, directory), take)


def answered(asking: Generator[Any, Any, Any], answer: Callable[[Any], Any]) -> Any:
    """Send a generator the answer to each thing that it yields; returns what it returns."""
    given = None
    while True:
        try:
            asked = asking.send(given)
        except StopIteration as end:
            return end.value
        try:
            given = answer(asked)
        except BaseException as error:
            asking.throw(error)  # it cleans up, and raises the error again


def take(asked: Step | Validation) -> Taken | dict[str, float]:
    """Compute the step or validation that one run asks for."""
    if isinstance(asked, Validation):
        return evaluate(asked.model, asked.task, "valid", asked.settings.max_eval_batches)
    _, model, task, optimizer, settings, batch, state, _ = asked
    optimizer.zero_grad(set_to_none=True)
    output = model(batch, state)
    loss = task.loss(output.logits, batch)
    (loss + task.penalty(output)).backward()
    if settings.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
    optimizers.step(optimizer, batch.lr_scale)
    return Taken(loss.detach(), detached(output.state) if task.spec.carried else None)


def training(
    model: SequenceModel, task: Task, optimizer: torch.optim.Optimizer, log: Log, settings: Loop, directory: Path
) -> Generator[Step | Validation, Any, Progress]:
    """Train until the epochs or steps are done, the task or patience says stop, or the loss is no longer finite.

    Keeps `last.pt` in `directory` (all that is needed to continue, and the weights at the best validation), and
    continues from it if it is there: bitwise as if never stopped, on a CPU. Raises KeyboardInterrupt, with everything
    saved, on SIGINT or SIGTERM. `log(values, step)` is called after every step, mostly with nothing to say.
    Every step and validation is yielded to the caller, which computes it (`take`) and sends back the result: thus
    `stack.py` computes those of several runs at once, and sets their clocks. Writing checkpoints is not counted.
    """
    device = next(model.parameters()).device
    progress, losses, best_weights, state = _resume(model, optimizer, directory, device)
    last_step = settings.last_step(task.start_of(settings.max_epochs))
    metric, direction = task.spec.select
    clock, saved, writing = Clock(progress.seconds), time.monotonic(), 0.0

    def save() -> None:
        progress.seconds = clock.stop()
        content: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        content |= {"losses": losses, "best": best_weights, "state": [list(layer) for layer in state or ()]}
        content |= {"lacks": list(task.partial)}
        checkpoint.save(directory / "last.pt", content | {"progress": asdict(progress), "rng": checkpoint.rng_state()})

    model.train()
    with Interrupt() as interrupt:
        while progress.step < last_step and not progress.stopped:
            epoch, start = task.position(progress.step)
            state = state if start else None
            for batch in task.batches("train", epoch, start):
                loss, state = yield Step(progress.step, model, task, optimizer, settings, batch, state, clock)

                progress.step += 1
                epoch, done = task.position(progress.step)
                losses.append(loss)  # left on the device: no step waits for its loss
                values: dict[str, float] = {}
                if progress.step % settings.log_every == 0 or progress.step == last_step:
                    numbers = torch.stack(losses).tolist()
                    losses = []
                    values["train/loss_nats"] = math.fsum(numbers) / len(numbers)
                    if (bad := first_bad(numbers, progress.step)) is not None:
                        progress.stopped, progress.diverged_at = "diverged", bad
                due = progress.step % settings.eval_every == 0 if settings.eval_every else done == 0
                if not progress.stopped and (due or progress.step == last_step):
                    with optimizers.eval_weights(optimizer):
                        found = yield Validation(progress.step, model, task, optimizer, settings, clock)
                        if metric not in found:
                            raise ConfigError(f"the task selects by {metric}; its metrics are {', '.join(found)}")
                        improved = math.isfinite(found["loss"]) and better(found[metric], progress.best, direction)
                        if improved:
                            best_weights = {key: value.clone() for key, value in model.state_dict().items()}
                    optimizers.observe(optimizer, found["loss"])
                    values |= {f"valid/{k}": v for k, v in found.items()}
                    epochs = epoch + done / (task.start_of(epoch + 1) - task.start_of(epoch))
                    progress.curve.append({"step": progress.step, "epoch": epochs} | values)
                    _judge(progress, found, metric, improved, losses, settings.patience)
                    progress.stopped = progress.stopped or task.stop(epoch, found)
                log(values, progress.step)

                ending = progress.stopped or progress.step == last_step or interrupt.requested
                if ending or time.monotonic() - saved >= max(settings.checkpoint_every, 50 * writing):
                    if progress.step == last_step and not progress.stopped:
                        progress.stopped = "max_steps" if last_step == settings.max_steps else "max_epochs"
                    begun = time.monotonic()
                    save()
                    clock.start(clock.runs)
                    saved = time.monotonic()
                    writing = saved - begun  # a large model's takes seconds: at most a fiftieth of the time
                if interrupt.requested and not progress.stopped:
                    raise KeyboardInterrupt(f"at step {progress.step}")
                if ending:
                    break
    return progress


def _judge(
    progress: Progress, found: dict[str, float], metric: str, improved: bool, losses: list[torch.Tensor],
    patience: int | None,
) -> None:  # fmt: skip
    """Note a validation: the best so far, or one more without, which may be the last; or the run has diverged."""
    if not math.isfinite(found["loss"]):
        bad = first_bad([float(loss) for loss in losses], progress.step)
        progress.stopped, progress.diverged_at = "diverged", progress.step if bad is None else bad
    elif improved:
        progress.best = {"metric": f"valid/{metric}", "value": found[metric], "step": progress.step}
        progress.since_best = 0
    else:
        progress.since_best += 1
        if patience and progress.since_best >= patience:
            progress.stopped = "patience"


def first_bad(losses: Sequence[float], step: int) -> int | None:
    """The first step whose loss is not finite, or None; `losses` end with that of `step`."""
    return next((step - len(losses) + 1 + k for k, loss in enumerate(losses) if not math.isfinite(loss)), None)


def better(value: float, best: dict[str, Any] | None, direction: str) -> bool:
    """Whether a validation value beats the best so far."""
    return best is None or (value > best["value"] if direction == "max" else value < best["value"])


KEYS = ("model", "optimizer", "losses", "best", "progress", "rng")


def _resume(
    model: SequenceModel, optimizer: torch.optim.Optimizer, directory: Path, device: torch.device
) -> tuple[Progress, list[torch.Tensor], dict[str, torch.Tensor] | None, State]:
    found = checkpoint.load(directory / "last.pt", KEYS, device)
    if found is None:
        return Progress(), [], None, None
    progress = Progress(**found["progress"])
    try:
        model.load_state_dict(found["model"])
        for group, own in zip(found["optimizer"]["param_groups"], optimizer.param_groups, strict=True):
            group.update({key: own[key] for key in ("fused", "foreach", "capturable") if key in own})  # this device's
        optimizer.load_state_dict(found["optimizer"])
        kept = found.get("state") or ()  # one entry per layer where the task carries the state on
        state = tuple(cell.State(*layer) for cell, layer in zip(model.rnn.layers, kept, strict=bool(kept))) or None
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{directory}/last.pt is not of this run: start over with resume=false") from error
    checkpoint.set_rng_state(found["rng"])
    return progress, list(found["losses"]), found["best"], state


def resume_step(directory: Path, lacks: list[str] | None = None) -> int:
    """The step that a run in this directory would continue from.

    lacks: what its data lack now (`Task.partial`). Raises ConfigError if they lacked something else when it began.
    """
    found = checkpoint.load(directory / "last.pt", KEYS)
    if found is None:
        return 0
    if lacks is not None and (before := found.get("lacks", [])) != lacks:  # checkpoints had none at first
        was, now = ("; ".join(parts) or "the whole" for parts in (before, lacks))
        raise ConfigError(f"{directory} was begun on other data ({was}; now {now}): force=true starts it over")
    return found["progress"]["step"]


def outcome(
    model: SequenceModel,
    task: Task,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    settings: Loop,
    directory: Path,
) -> dict[str, Any]:
    """What the record says of an ended run: metrics at the best validation and, as `last`, at the last step.

    Leaves the model at its best weights, and these in best.pt.
    """
    diverged = progress.stopped == "diverged"
    found: dict[str, Any] = {
        "status": "diverged" if diverged else "finished", "stopped": progress.stopped, "steps": progress.step,
        "diverged_at": progress.diverged_at, "best": progress.best, "curve": progress.curve,
        "seconds": progress.seconds, "metrics": {}, "last": {},
    }  # fmt: skip
    if not diverged:
        with optimizers.eval_weights(optimizer):
            found["last"] = _metrics(evaluate(model, task, "test", settings.max_eval_batches), progress.curve[-1])
    if progress.best is not None:
        last = checkpoint.load(directory / "last.pt", KEYS, next(model.parameters()).device)
        assert last is not None, "fit has just written it"
        model.load_state_dict(last["best"])
        checkpoint.save(directory / "best.pt", {"model": last["best"], "step": progress.best["step"]})
        chosen = next(row for row in progress.curve if row["step"] == progress.best["step"])
        if progress.best["step"] == progress.step and not diverged:
            found["metrics"] = found["last"]
        else:
            found["metrics"] = _metrics(evaluate(model, task, "test", settings.max_eval_batches), chosen)
    return found


def _metrics(test: dict[str, float], row: dict[str, float]) -> dict[str, float]:
    return {f"test/{k}": v for k, v in test.items()} | {k: v for k, v in row.items() if k.startswith("valid/")}


QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def timescale_quantiles(model: SequenceModel) -> list[list[float]]:
    """Quantiles (`QUANTILES`) of the units' characteristic times in steps, a list for each layer."""
    q = torch.tensor(QUANTILES, dtype=torch.float64)
    return [t.cpu().double().quantile(q, interpolation="nearest").tolist() for t in model.rnn.timescales()]


def timescale_values(quantiles: list[list[float]]) -> dict[str, float]:
    """Quantiles as values to log: timescale/layer1/q50 and so on."""
    return {
        f"timescale/layer{k + 1}/q{100 * q:.0f}": value
        for k, layer in enumerate(quantiles)
        for q, value in zip(QUANTILES, layer, strict=True)
    }


@torch.no_grad()
def evaluate(model: SequenceModel, task: Task, split: str, max_batches: int | None = None) -> dict[str, float]:
    """The task's metrics over a split (or its first max_batches batches); the model's mode stays as it was."""
    mode = model.training
    model.eval()
    found = answered(scoring(task, split, max_batches), lambda asked: model(*asked))
    model.train(mode)
    return found


def scoring(
    task: Task, split: str, max_batches: int | None = None
) -> Generator[tuple[Batch, State], Output, dict[str, float]]:
    """The task's metrics over a split; yields every batch and the state before it, and is to be sent the output."""
    totals: dict[str, Any] = {}
    counts: dict[str, int] = {}
    state: State = None
    for k, batch in enumerate(task.batches(split)):
        if max_batches is not None and k >= max_batches:
            break
        output = yield batch, state
        state = output.state if task.spec.carried else None
        for name, (total, count) in task.metrics(output.logits, batch).items():
            totals[name] = totals.get(name, 0.0) + total
            counts[name] = counts.get(name, 0) + count
    return task.derived({name: float(total) / counts[name] for name, total in totals.items()})


def detached(state: Sequence[Any]) -> State:
    """The state, one NamedTuple per layer, without its past: what the next segment begins with."""
    return tuple(type(layer)(*(value.detach() for value in layer)) for layer in state)
