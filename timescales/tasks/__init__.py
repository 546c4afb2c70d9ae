"""The tasks, one module each. `task.py` has their base class; `data/` finds and reads the data sets."""

from timescales.tasks.adding import Adding
from timescales.tasks.characters import Characters
from timescales.tasks.contextual_match import ContextualMatch
from timescales.tasks.copy import Copy
from timescales.tasks.curriculum import Curriculum
from timescales.tasks.delayed_match import DelayedMatch
from timescales.tasks.digits import Digits
from timescales.tasks.dyck2 import Dyck2
from timescales.tasks.frequency import Frequency
from timescales.tasks.imdb import IMDB
from timescales.tasks.linear_functional import LinearFunctional
from timescales.tasks.mqar import MQAR
from timescales.tasks.n_delayed_match import NDelayedMatch
from timescales.tasks.n_parity import NParity
from timescales.tasks.own_text import OwnText
from timescales.tasks.program import Program
from timescales.tasks.rescaling import TimeRescaling
from timescales.tasks.scifar import SCIFAR
from timescales.tasks.selective_copy import SelectiveCopy
from timescales.tasks.series import Series
from timescales.tasks.task import AWD, IGNORED, Batch, Sizes, Spec, StepTask, Task
from timescales.tasks.variable_copy import VariableCopy
from timescales.tasks.wikitext103 import WikiText103
from timescales.tasks.word_problem import WordProblem
from timescales.tasks.words import Words

__all__ = [
    "AWD", "IGNORED", "IMDB", "MQAR", "SCIFAR", "Adding", "Batch", "Characters", "ContextualMatch", "Copy",
    "Curriculum", "DelayedMatch", "Digits", "Dyck2", "Frequency", "LinearFunctional", "NDelayedMatch", "NParity",
    "OwnText", "Program", "SelectiveCopy", "Series", "Sizes", "Spec", "StepTask", "Task", "TimeRescaling",
    "VariableCopy", "WikiText103", "WordProblem", "Words",
]  # fmt: skip
