"""Small language-modelling tasks and models for them."""

import torch

from timescales import LSTM, PLSTM
from timescales.models.awd import AWDModel
from timescales.models.sequence import SequenceModel
from timescales.optim import NTASGD
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


def parts(root, name):
    """A model that draws random numbers as it trains, a task and an optimizer, for "characters" or "words"."""
    if name == "characters":
        task = characters(root, embedding=5)
        model = model_for(task, PLSTM, layers=2, dropout=0.2)
        return model, task, torch.optim.Adam(model.parameters(), lr=1e-2)
    task = words(root, recurrent="trained")
    model = model_for(task, layers=2)
    # With this learning rate some validations are no better than the last, so that averaging starts.
    return model, task, NTASGD(model.parameters(), lr=60.0, nonmono=1)
