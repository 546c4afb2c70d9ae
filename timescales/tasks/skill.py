"""Compute what a metric of a task is without any skill, for pictures and the progress bar."""

import itertools
import math

import torch

from timescales.tasks.task import Task


def no_skill(task: Task, metric: str, chance: float | None, batches: int | None = None) -> float | None:
    """Return the value of a validation metric without any skill; None if it is not known.

    For an accuracy, this is the best constant answer on the first `batches` batches.

    chance: the loss at chance.
    """
    if metric.endswith("accuracy"):
        return _same_answer(task, metric, batches)
    if chance is None or metric == "loss":
        return chance
    if metric == "bpc":
        return chance / math.log(2.0)
    try:
        return task.derived({"loss": chance}).get(metric)
    except KeyError:  # it is computed from another metric than the loss
        return None


def _same_answer(task: Task, metric: str, batches: int | None) -> float | None:
    spec = task.spec
    if spec.output_size > 32:  # up to this number of classes, each is tried
        return None
    answers = torch.eye(spec.output_size) if spec.output_size > 1 else torch.tensor([[1.0], [-1.0]])
    sums, n = torch.zeros(len(answers), dtype=torch.float64), 0
    for batch in itertools.islice(task.batches("valid"), batches):
        shape = (*batch.x.shape[:2], -1) if spec.readout == "all" else (batch.x.shape[1], -1)
        found = [task.metrics(answer.to(task.device).expand(shape), batch) for answer in answers]
        if metric not in found[0]:
            return None
        sums += torch.tensor([float(each[metric][0]) for each in found], dtype=torch.float64)
        n += found[0][metric][1]
    return float(sums.max()) / n
