"""Hold the state of a run in training: its progress, its checkpoint, and the values to log."""

import io
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.files import checked, write_atomic
from timescales.models.sequence import Output, SequenceModel, State, detached
from timescales.tasks import Batch, Task
from timescales.tasks.task import same_data
from timescales.training.best import Best

Log = Callable[[dict[str, float], int], None]
KEYS = ("model", "optimizer", "losses", "best", "state", "lacks", "progress", "rng")  # what a checkpoint must have


class Generators(TypedDict):
    """Hold the states of torch's random generators, from which dropout draws, on the CPU and on a run's device."""

    cpu: Tensor
    cuda: list[Tensor]


class Checkpoint(TypedDict, total=False):
    """Name the entries of last.pt. best.pt only has `model` and `step`. Files of older versions lack some entries."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    losses: list[Tensor]  # since the last validation
    # The weights at the best validation. They are stored in this file too, so that the two can never disagree.
    best: dict[str, Tensor] | None
    state: list[list[Tensor]]  # of each layer; [] if the task does not carry the state
    lacks: list[str]  # what the data lack (`Task.partial`)
    data: dict[str, str]  # digests of the user's data files and of word vectors (`Task.data`)
    progress: dict[str, Any]  # the fields of `Progress`
    in_step: bool  # whether it was written in a validation, which a resume repeats
    values: dict[str, float]  # of that step, not logged yet
    rng: Generators
    step: int


@dataclass
class Progress:
    """Hold how far a run has come. A resume needs this, the weights, the optimizer and the random generators."""

    step: int = 0
    best: Best | None = None
    since_best: int = 0  # validations since then
    curve: list[dict[str, float]] = field(default_factory=list)  # one entry per validation
    seconds: float = 0.0  # of steps and validations, without waiting and checkpoints
    diverged_at: int | None = None  # the first step whose loss was not finite
    stopped: str | None = None  # why training ended: "max_epochs", "max_steps", "patience", "diverged", or `Task.stop`


class TrainingRun:
    """Hold a model, its task and its optimizer between training steps, which `loop.fit` takes.

    If `directory` has a checkpoint, last.pt, the run continues from it. On a CPU the result is then bitwise that of a
    run that was never stopped. The checkpoint also has the weights at the best validation. Without a directory nothing
    is saved.

    log: called as `log(values, step)` after every step. Most steps have no values.

    Raises ConfigError if last.pt is damaged or belongs to another run.
    """

    def __init__(
        self,
        model: SequenceModel,
        task: Task,
        optimizer: Optimizer,
        log: Log,
        settings: LoopSettings,
        directory: Path | None,
    ) -> None:
        self.model, self.task, self.optimizer = model, task, optimizer
        self.log, self.settings, self.directory = log, settings, directory
        self.last_step = settings.last_step(task.start_of)
        self.progress = Progress()
        self.state: State = None  # the state with which the next batch begins
        self.batch: Batch | None = None  # the batch of the next step, once it is drawn
        self.batches: Iterator[Batch] = iter(())  # the batches after it in this epoch
        # Since the last log step. They stay on the device, so that no step waits for its loss.
        self.losses: list[Tensor] = []
        self.values: dict[str, float] = {}  # to be logged after this step
        self.best_weights: dict[str, Tensor] | None = None
        self.in_step = False  # whether a step was taken, but is not yet validated and logged
        if directory is not None:
            self._resume(directory / "last.pt")
        self.schedule = schedule(optimizer, settings, self.last_step, self.progress.step)
        self.saved, self.saving = time.monotonic(), 0.0  # when the last checkpoint was written; how long it took
        model.train()

    @property
    def device(self) -> torch.device:
        """Return the device of the model."""
        return next(self.model.parameters()).device

    def draw_batch(self) -> Batch:
        """Return the batch of the next training step. It is the same batch until this step is taken."""
        if self.batch is None:
            self.batch = next(self.batches, None)
        if self.batch is None:  # a new epoch, or the rest of one
            self.task.follow(self.progress.curve)
            epoch, start = self.task.position(self.progress.step)
            self.state = self.state if start else None
            self.batches = self.task.batches("train", epoch, start)
            self.batch = next(self.batches)
        return self.batch

    def record_step(self, loss: Tensor, output: Output) -> None:
        """Count a training step. At a log step check the losses since the last one: if one is not finite, end the run.

        loss: that of the task without the penalty, a scalar on its device. output: that of the model, whose state is
        kept for the next batch if the task carries it.
        """
        progress = self.progress
        progress.step += 1
        self.batch, self.values, self.in_step = None, {}, True
        self.state = detached(output.state) if self.task.spec.carried else None
        self.losses.append(loss.detach())
        if progress.step % self.settings.log_every == 0 or progress.step == self.last_step:
            losses = torch.stack(self.losses).tolist()
            self.losses = []
            self.values["train/loss_nats"] = math.fsum(losses) / len(losses)
            if isinstance(output.auxiliary, Tensor):
                self.values["train/auxiliary_loss"] = float(output.auxiliary.detach())
            if (bad := first_not_finite(losses, progress.step)) is not None:
                progress.stopped, progress.diverged_at = "diverged", bad
            if self.schedule is not None:
                self.values["train/lr"] = self.optimizer.param_groups[0]["lr"]
        if self.schedule is not None:
            self.schedule.step()

    def validation_due(self) -> bool:
        """Return whether a validation follows the last step: after every epoch, or after every `eval_every` steps."""
        step, every = self.progress.step, self.settings.eval_every
        due = step % every == 0 if every else self.task.position(step)[1] == 0
        return not self.progress.stopped and (due or step == self.last_step)

    def record_validation(self, metrics: dict[str, float], more: dict[str, float]) -> None:
        """Store a validation, as the best so far or as one without improvement, after which patience may end the run.

        more: values that only the loggers get.
        """
        progress, task = self.progress, self.task
        select, direction = task.spec.select
        if select not in metrics:
            raise ConfigError(f"the task selects weights by {select}, but its metrics are {', '.join(metrics)}")
        self.values |= {f"valid/{name}": value for name, value in metrics.items()}
        epoch, done = task.position(progress.step)
        epochs = epoch + done / (task.start_of(epoch + 1) - task.start_of(epoch))
        progress.curve.append({"step": progress.step, "epoch": epochs} | self.values)
        self.values |= more
        self.batch, self.batches = None, iter(())  # of the next step: the task may follow the curve
        value, best = metrics[select], progress.best
        better = best is None or (value > best.value if direction == "max" else value < best.value)
        if best is not None and math.isnan(best.value):  # as of a user's task whose metric is 0 / 0 at first
            better = not math.isnan(value)
        if not math.isfinite(metrics["loss"]):
            bad = first_not_finite([float(loss) for loss in self.losses], progress.step)
            progress.stopped, progress.diverged_at = "diverged", progress.step if bad is None else bad
        elif better:
            progress.best = Best(f"valid/{select}", value, progress.step)
            progress.since_best = 0
            self.best_weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        else:
            progress.since_best += 1
            if self.settings.patience and progress.since_best >= self.settings.patience:
                progress.stopped = "patience"
        progress.stopped = progress.stopped or task.stop(epoch, metrics)
        if hasattr(self.optimizer, "observe"):  # as NT-ASGD, which may begin to average now
            self.optimizer.observe(metrics["loss"])

    def log_step(self) -> None:
        """Log the values of a step. The last step ends the run."""
        if self.progress.step == self.last_step and not self.progress.stopped:
            self.progress.stopped = "max_steps" if self.last_step == self.settings.max_steps else "max_epochs"
        self.log(self.values, self.progress.step)

    def save_if_due(self, interrupted: bool) -> None:
        """Write a checkpoint at the end, and every `checkpoint_every` seconds, if this takes at most 2 % of the time.

        If the run is interrupted, write it too, and raise KeyboardInterrupt.
        """
        self.in_step = False
        pause = max(self.settings.checkpoint_every, 50 * self.saving)
        if interrupted or self.progress.stopped or time.monotonic() - self.saved >= pause:
            begun = time.monotonic()
            self.save()
            self.saved = time.monotonic()
            self.saving = self.saved - begun
        if interrupted and not self.progress.stopped:
            raise KeyboardInterrupt(f"at step {self.progress.step}")

    def save(self) -> None:
        """Write last.pt, if the run has a directory."""
        if self.directory is None:
            return
        content: Checkpoint = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses,
            "best": self.best_weights,
            "state": [] if self.state is None else [list(layer) for layer in self.model.rnn.split_state(self.state)],
            "lacks": list(self.task.partial),
            "data": dict(self.task.data),
            "progress": asdict(self.progress),
            "in_step": self.in_step,
            "values": self.values if self.in_step else {},
            "rng": rng_state(self.device),
        }
        save_checkpoint(self.directory / "last.pt", content)

    def _resume(self, path: Path) -> None:
        """Continue from a checkpoint if there is one."""
        content = load_checkpoint(path, KEYS, self.device)
        if content is None:
            return
        best = content["progress"]["best"]
        self.progress = Progress(**content["progress"] | {"best": Best(**best) if best else None})
        self.losses, self.best_weights = list(content["losses"]), content["best"]
        # A validation after the last step must not count yet: the task follows it from the next step on.
        self.task.follow([row for row in self.progress.curve if row["step"] < self.progress.step])
        try:
            self.model.load_state_dict(content["model"])
            for group, built in zip(content["optimizer"]["param_groups"], self.optimizer.param_groups, strict=True):
                # How it computes a step stays as it was built.
                group.update({key: built[key] for key in ("fused", "foreach", "capturable") if key in built})
            self.optimizer.load_state_dict(content["optimizer"])
            rnn, layers = self.model.rnn, content["state"]  # none if the task does not carry the state on
            self.state = rnn.join_state(rnn.split_state(layers)) if layers else None
            self.in_step, self.values = content.get("in_step", False), content.get("values", {})
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} belongs to another run: restart this one with resume=false") from error
        set_rng_state(content["rng"], self.device)


def first_not_finite(losses: Sequence[float], step: int) -> int | None:
    """Return the first step whose loss is not finite, or None. The last of the losses is that of `step`."""
    return next((step - len(losses) + 1 + k for k, loss in enumerate(losses) if not math.isfinite(loss)), None)


def schedule(optimizer: Optimizer, settings: LoopSettings, last_step: int, steps_taken: int) -> LambdaLR | None:
    """Return the scheduler of the learning rate, or None for a constant rate. Step it after each training step.

    The rate depends only on the step. A resume also needs the optimizer's state, which has the initial rate.

    Args:
        last_step: the step at which training ends.
        steps_taken: the number of steps taken so far.
    """
    if settings.schedule == "none" and not settings.warmup:
        return None
    if settings.warmup >= last_step:
        raise ConfigError(f"loop.warmup={settings.warmup} must be below the number of training steps, {last_step}")

    def factor(step: int) -> float:
        """Return the learning rate after a number of steps, as a factor of the initial rate."""
        if step < settings.warmup:
            return (step + 1) / (settings.warmup + 1)
        done = min((step - settings.warmup) / (last_step - settings.warmup), 1.0)
        if settings.schedule == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        if settings.schedule == "step":
            assert settings.step_size is not None, "see config/schema.py"
            return settings.gamma ** ((step - settings.warmup) // settings.step_size)
        return 1 - done if settings.schedule == "linear" else 1.0

    return LambdaLR(optimizer, factor, last_epoch=steps_taken - 1)


def resume_step(directory: Path, task: Task) -> int:
    """Return the last step that the run in a directory has finished, from which it would continue; 0 for none.

    Raises ConfigError if the run began on other data than those that the task has today.
    """
    content = load_checkpoint(directory / "last.pt", KEYS)
    if content is None:
        return 0
    if content["lacks"] != task.partial:
        was, now = ("; ".join(parts) or "the whole" for parts in (content["lacks"], task.partial))
        raise ConfigError(f"{directory} was begun on other data ({was}; now {now}): restart it with force=true")
    if task.data and not same_data(content.get("data"), task.data):
        names = ", ".join(task.data)
        raise ConfigError(f"{directory} was begun on another {names}: restart it on this one with force=true")
    return content["progress"]["step"] - content.get("in_step", False)


# --- its checkpoint ---------------------------------------------------------------------------------------------------


def save_checkpoint(path: Path, content: Checkpoint) -> None:
    """Write a checkpoint: a reader sees either the old file or the new one."""
    buffer = io.BytesIO()
    torch.save(_without_views(content), buffer)
    write_atomic(path, buffer.getvalue())


def _without_views(content: Any) -> Any:
    """Copy tensors that are views: torch.save would write the whole tensor that they are a view of."""
    if isinstance(content, dict):
        return {key: _without_views(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(_without_views(value) for value in content)
    if isinstance(content, torch.Tensor) and content.untyped_storage().nbytes() > content.nbytes:
        return content.clone()
    return content


def load_checkpoint(path: Path, keys: tuple[str, ...] = (), device: torch.device | str = "cpu") -> Checkpoint | None:
    """Load a checkpoint to a device. Return None if there is none.

    Raises ConfigError if it is damaged, or if it lacks one of `keys`.
    """
    if not path.is_file():
        return None
    try:
        content = torch.load(checked(path), map_location=device, weights_only=True)
        if missing := [key for key in keys if key not in content]:
            raise KeyError(*missing)
        return content
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError, TypeError) as error:
        fix = "restart the run with resume=false, or with force=true if it has finished"
        raise ConfigError(f"{path} is damaged: {fix}") from error


def rng_state(device: torch.device) -> Generators:
    """Return the states of torch's random generators on the CPU and on a run's device."""
    of_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return {"cpu": torch.get_rng_state(), "cuda": of_gpu}


def set_rng_state(state: Generators, device: torch.device) -> None:
    """Set torch's random generators to states that `rng_state` returned.

    The state of the run's GPU goes to the GPU on which it continues, whatever its number. If a run moves between CPU
    and GPU, it draws from a generator that it has not used before.
    """
    torch.set_rng_state(state["cpu"].cpu())  # loaded to the run's device with the rest of the checkpoint
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0].cpu(), device)
