"""Tasks: one file each."""

from timescales.tasks.characters import Characters
from timescales.tasks.copy import Copy
from timescales.tasks.digits import Digits
from timescales.tasks.frequency import Frequency
from timescales.tasks.task import AWD, Batch, Spec, Task
from timescales.tasks.words import Words

__all__ = ["AWD", "Batch", "Characters", "Copy", "Digits", "Frequency", "Spec", "Task", "Words"]
