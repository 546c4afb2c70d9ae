"""Tasks: one file each."""

from timescales.tasks.copy import Copy
from timescales.tasks.digits import Digits
from timescales.tasks.frequency import Frequency
from timescales.tasks.task import Batch, Spec, Task

__all__ = ["Batch", "Copy", "Digits", "Frequency", "Spec", "Task"]
