"""Write and read checkpoints: tensors, dicts, lists and numbers, written completely or not at all."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from timescales.errors import ConfigError
from timescales.files import checked, write_atomic


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
    progress: dict[str, Any]  # of `training.run.Progress`
    in_step: bool  # whether it was written in a validation, which a resume repeats
    values: dict[str, float]  # of that step, not logged yet
    rng: Generators
    step: int


def save(path: Path, content: Checkpoint) -> None:
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


def load(path: Path, keys: tuple[str, ...] = (), device: torch.device | str = "cpu") -> Checkpoint | None:
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
        states = state["cuda"]  # older checkpoints have the states of all GPUs, by number
        torch.cuda.set_rng_state(states[min(device.index or 0, len(states) - 1)].cpu(), device)
