"""The tasks, one module each. `task.py` has their base class, `data/` finds and reads the data sets."""

from timescales.tasks.adding import Adding
from timescales.tasks.characters import Characters
from timescales.tasks.copy import Copy
from timescales.tasks.digits import Digits
from timescales.tasks.dyck2 import Dyck2
from timescales.tasks.frequency import Frequency
from timescales.tasks.imdb import IMDB
from timescales.tasks.scifar import SCIFAR
from timescales.tasks.task import AWD, Batch, Spec, Task
from timescales.tasks.variable_copy import VariableCopy
from timescales.tasks.words import Words

__all__ = [
    "AWD",
    "IMDB",
    "SCIFAR",
    "Adding",
    "Batch",
    "Characters",
    "Copy",
    "Digits",
    "Dyck2",
    "Frequency",
    "Spec",
    "Task",
    "VariableCopy",
    "Words",
]
