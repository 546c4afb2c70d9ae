"""Small models, tasks and runs to analyse."""

import csv
import itertools
from pathlib import Path

import torch
from torch.nn.functional import linear, one_hot

from timescales import LSTM, PLSTM, URLSTM, plotting
from timescales.analysis import study
from timescales.analysis.run import Trained
from timescales.models.awd import AWDModel
from timescales.models.sequence import SequenceModel
from timescales.runs.record import Record
from timescales.tasks import Copy, Dyck2, Frequency, VariableCopy, Words

SMALL = ["task=copy", "task.T=5", "task.train_size=64", "task.valid_size=16", "task.test_size=16", "loop.max_steps=4"]
SMALL += ["model.hidden_size=8"]


def copy_task(T=8, test_size=6, **arguments):
    return Copy(T=T, train_size=1, valid_size=1, test_size=test_size, **arguments)


def model_for(task, kind=PLSTM, hidden_size=6, seed=0, **arguments):
    """A model in float64 with weights large enough that units, sequences and steps differ; it answers with symbols."""
    torch.manual_seed(seed)
    model = SequenceModel(kind(task.spec.input_size, hidden_size, **arguments), task.spec).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
        model.readout.bias[8:] = -50.0  # neither the copy task's dummy nor its signal
    return model


@torch.no_grad()
def literal_steps(model, batch, k):
    """Run sequence k through the first layer, step by step: (step, dt, gates, state) of those that exist."""
    cell = model.rnn.layers[0]
    x = one_hot(batch.x, model.spec.input_size).double() if model.spec.input == "one_hot" else batch.x.double()
    ih, hh, bias_ih, bias_hh = cell.weights()
    state = cell.initial_state()
    for s in range(len(x)):
        if batch.mask is None or batch.mask[s, k]:
            dt = 1.0 if batch.dt is None else float(batch.dt[s, k].double())
            gx, gh = linear(x[s, k], ih, bias_ih), linear(state.h, hh, bias_hh)
            act, state = cell.act(gx, gh, state, dt), cell.step(gx, gh, state, dt)
            yield s, dt, act, state


def hold(model, **biases):
    """Make gates of the first layer constant: sigmoid of the given pre-activations."""
    cell = model.rnn.layers[0]
    with torch.no_grad():
        for gate, value in biases.items():
            for weight in (cell.weight_ih, cell.weight_hh, cell.bias_ih if cell.biases == 2 else None):
                if weight is not None:
                    weight[cell.rows(gate)] = 0.0
            (cell.bias_hh if cell.biases == 2 else cell.bias)[cell.rows(gate)] = torch.as_tensor(value).double()
    return cell


DIRECTORIES = itertools.count()


def run_of(model, task, initial=None, seed=0, directory=None, **settings):
    """A run that lies on no disk."""
    name = {PLSTM: "plstm", LSTM: "lstm", URLSTM: "ur"}.get(type(model.rnn), "gated")
    config = {"task": {"name": "copy", "T": getattr(task, "T", None)}, "model": {"name": name, **settings}, "loop": {}}
    found = Record(id="a", status="finished", config=config, seed=seed, steps=10)
    return Trained(Path(directory or f"nowhere{next(DIRECTORIES)}"), found, model, initial or model, task)


def studied(module, model, task, folder, initial=None):
    """The answer of a study, written to a folder; its picture is small enough for git."""
    found = module.study(run_of(model, task, initial))
    written = study.write(found, folder, module.__name__.rpartition(".")[2])
    assert all(path.stat().st_size for path in written)
    assert written[1].stat().st_size <= plotting.LARGEST
    assert all(isinstance(value, float) for value in found.values.values())
    return found


def variable(low=3, high=9, test_size=12):
    return VariableCopy(low=low, high=high, train_size=1, valid_size=1, test_size=test_size)


def waves(n=4):
    return Frequency(train_size=1, valid_size=1, test_size=n, sampling="async")


def words(root, **more):
    small = {"embedding": 5, "batch_size": 3, "length": 9, "allow_partial": True}
    return Words(data_root=str(root), **small | more)


def language_model(task, kind=LSTM, hidden=(6, 7, 5), **more):
    """In float64, with weights large enough that units and words differ."""
    torch.manual_seed(0)
    arguments = {"num_layers": len(hidden), **more}
    model = AWDModel(kind(task.spec.width, list(hidden), **arguments), task.spec).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
        model.vectors.mul_(6.0)
    return model


def run_of_words(model, task, initial=None, name="mts"):
    config = {"task": {"name": "ptb_word", "corpus": "ptb"}, "model": {"name": name, "alpha": 0.56}, "loop": {}}
    found = Record(id="a", status="finished", config=config, steps=10)
    return Trained(Path(f"nowhere{next(DIRECTORIES)}"), found, model, initial or model, task)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def brackets(seed=0):
    return Dyck2(train_size=300, valid_size=20, test_size=200, batch_size=50, seed=seed, data_seed=3)
