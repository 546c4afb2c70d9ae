"""Small language-modelling tasks and models for them."""

import torch

from timescales import LSTM
from timescales.models.awd import AWDModel
from timescales.models.sequence import SequenceModel
from timescales.tasks import Characters, WikiText103, Words

SMALL = {"embedding": 8, "batch_size": 3, "length": 12, "allow_partial": True}


def characters(root, **more):
    """A task over characters of a small text under a data root."""
    return Characters(**{"data_root": str(root), "allow_partial": True, "batch_size": 7, "length": 25, **more})


def words(root, **more):
    """A task over words of a small text under a data root."""
    return Words(**{"data_root": str(root), **SMALL, **more})


def wikitext103(root, **more):
    """A task over articles of a small text under a data root."""
    return WikiText103(**{"data_root": str(root), **SMALL, "cutoffs": (20,), **more})


def model_for(task, rnn=LSTM, hidden=8, layers=1, seed=0, **more):
    """A small model for a task."""
    torch.manual_seed(seed)
    layer = rnn(task.spec.width, hidden, layers, **more)
    return (AWDModel if task.spec.awd else SequenceModel)(layer, task.spec)
