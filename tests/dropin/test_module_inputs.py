"""torch's own inputs for nn.LSTM and nn.GRU (ModuleInfo), given to every layer.

torch gives sequences without a batch; each also gets a batch of one. Where torch's arguments exist here, `LSTM` and
`GRU` must equal torch's layer with the same weights, and every other layer must run, forward and backward. The other
arguments must be refused by name.
"""

import functools
import io
import math
import multiprocessing

import pytest
import torch
from rnn_cases import KINDS
from uses.registry import LSTMS, NAMED, close, fields

import timescales

COUNT = 32  # of torch's inputs for either layer

# Arguments that do not exist here, with torch's default.
TORCHS = {"bias": True, "bidirectional": False, "proj_size": 0}

PAIRS = ("URNN", "EURNN")  # their hidden size is even: real and imaginary parts


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


def build(kind, arguments):
    """A layer with torch's arguments; an MTSLSTM has one layer instead of two."""
    own_name, own = KINDS[kind]
    arguments = {key: value for key, value in arguments.items() if kind != "MTSLSTM" or key != "num_layers"}
    more = {"downsize": 1} if own_name == "GatedRNN" else {}
    if kind in PAIRS:
        arguments = arguments | {"hidden_size": 2 * math.ceil(arguments["hidden_size"] / 2)}
    return getattr(timescales, own_name)(**arguments, **own | more).double()


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_every_input_is_given(name):
    assert len(module_inputs()[name]) == COUNT


@pytest.mark.parametrize("k", range(COUNT))
@pytest.mark.parametrize("kind", KINDS)
def test_torchs_inputs(kind, k):
    """Those of torch's layer whose state is most like its own."""
    arguments, (x, *given) = module_inputs()["LSTM" if kind in LSTMS | NAMED else "GRU"][k]
    unknown = [key for key, default in TORCHS.items() if arguments.get(key, default) != default]
    if unknown:
        with pytest.raises(ValueError, match=rf"does not take ({'|'.join(unknown)})="):
            build(kind, arguments)
        return

    torch.manual_seed(0)
    rnn = build(kind, arguments)
    if not isinstance(x, torch.Tensor):
        with pytest.raises(ValueError, match="pad them and give mask"):
            rnn(x)
        return
    batch = 0 if rnn.batch_first else 1
    with pytest.raises(ValueError, match=rf"x\.unsqueeze\({batch}\)"):
        rnn(x)

    x = x.detach().unsqueeze(batch).requires_grad_()
    state = with_batch(given[0], rnn) if given and kind not in {*NAMED, *PAIRS} else None
    output, after = rnn(x, state)
    wanted = [x, *(parameter for parameter in rnn.parameters() if parameter.numel())]
    found = torch.autograd.grad(output.square().sum(), wanted)
    assert output.shape == (*x.shape[:2], rnn.hidden_size)
    widths = [rnn.layers[0].width(field) for field in rnn.layers[0].State._fields]
    assert [value.shape for value in fields(after)] == [(rnn.num_layers, 1, width) for width in widths]
    assert all(value.isfinite().all() for value in (output, *found))
    if kind in ("LSTM", "GRU"):
        theirs = rnn.to_torch()
        expected, last = theirs(x, state)
        close(output, expected, 1e-12)
        close(fields(after), fields(last), 1e-12)
        close(found, torch.autograd.grad(expected.square().sum(), [x, *theirs.parameters()]), 1e-12)


def with_batch(state, rnn):
    """A state of torch, (layers, H), with a batch of one, for as many layers as rnn has."""
    if isinstance(state, tuple):
        return tuple(with_batch(value, rnn) for value in state)
    return state.detach()[: rnn.num_layers].unsqueeze(1)
