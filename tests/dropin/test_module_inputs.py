"""torch's own inputs for nn.LSTM and nn.GRU (ModuleInfo), sequences without a batch and packed ones, given to ours."""

import functools
import io
import multiprocessing

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence
from uses.registry import close, fields

import timescales

COUNT = 32  # of torch's inputs for either layer


@functools.cache
def module_inputs():
    """Torch's inputs for either layer: arguments, and what is given to forward. A process of its own makes them: its
    test code takes 180 MB, and forbids the whole process to set torch.backends.cudnn.*, which training does."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return torch.load(io.BytesIO(pool.apply(made_by_torch)), weights_only=False)


def made_by_torch():
    from torch.testing._internal import common_modules

    arguments = (None, "cpu", torch.float64, True, True)
    made = {
        "LSTM": common_modules.module_inputs_torch_nn_LSTM(*arguments),
        "GRU": common_modules.module_inputs_torch_nn_RNN_GRU(*arguments, is_rnn=False, with_packed_sequence=True),
    }
    file = io.BytesIO()
    plain = {
        name: [(one.constructor_input.kwargs, one.forward_input.args) for one in all_] for name, all_ in made.items()
    }
    torch.save(plain, file)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_torchs_inputs(kind):
    """Values, states and gradients of torch's layer, for each of its arguments and inputs."""
    given = module_inputs()[kind]
    assert len(given) == COUNT
    for arguments, (x, *state) in given:
        torch.manual_seed(0)
        ours = getattr(timescales, kind)(**arguments).double()
        theirs = getattr(torch.nn, kind)(**arguments).double()
        theirs.load_state_dict(ours.state_dict())
        close(results(ours, x, *state), results(theirs, x, *state), 1e-12)


def results(rnn, x, state=None):
    """The output's numbers, the last state, and the gradients of x, of packed sequences' numbers, and the weights."""
    packed = isinstance(x, PackedSequence)
    data = (x.data if packed else x).detach().requires_grad_()
    output, after = rnn(PackedSequence(data, *x[1:]) if packed else data, state)
    output = output.data if packed else output
    wanted = [data, *(parameter for parameter in rnn.parameters() if parameter.numel())]
    return output, fields(after), torch.autograd.grad(output.square().sum(), wanted)
