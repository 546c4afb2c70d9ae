"""torch's own inputs for nn.LSTM and nn.GRU (ModuleInfo), given to every layer.

torch gives sequences without a batch, and packed ones. `LSTM` and `GRU` must equal torch's layer with the same weights,
and every other layer must run, forward and backward, as with a batch of one. Arguments that a layer has not must be
refused with the reason.
"""

import functools
import io
import math
import multiprocessing

import pytest
import torch
from rnn_cases import KINDS
from torch.nn.utils.rnn import PackedSequence
from uses.registry import LSTMS, NAMED, WITH_BIAS, close, fields

import timescales

COUNT = 32  # of torch's inputs for either layer

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
    more = {"GatedRNN": {"downsize": 1}, "GRUD": {"flags": [[0, 1]]}}.get(own_name, {})
    if kind in PAIRS:
        arguments = arguments | {"hidden_size": 2 * math.ceil(arguments["hidden_size"] / 2)}
    return getattr(timescales, own_name)(**arguments, **own | more).double()


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_every_input_is_given(name):
    assert len(module_inputs()[name]) == COUNT


@pytest.mark.covering("kind,part", "k")
@pytest.mark.parametrize(
    ("kind", "k", "part"),
    [(kind, k, k if kind in ("LSTM", "GRU") else k % 2) for kind in KINDS for k in range(COUNT)],
)
def test_torchs_inputs(kind, k, part):
    """Those of torch's layer whose state is most like its own. `make test` gives LSTM and GRU all of them, which are
    compared with torch's layer, and every other layer two."""
    arguments, (x, *given) = module_inputs()["LSTM" if kind in LSTMS | NAMED else "GRU"][k]
    reason = refused(kind, arguments)
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            build(kind, arguments)
        return
    torch.manual_seed(0)
    rnn = build(kind, arguments)
    state = given[0] if given and kind not in {*NAMED, *PAIRS} else None
    if kind == "MTSLSTM" and state is not None:  # it has one layer
        state = tuple(value[: 1 + rnn.bidirectional] for value in state)
    output, after, found = results(rnn, x, state)
    entries, units = rnn.num_layers * (1 + rnn.bidirectional), (1 + rnn.bidirectional) * rnn.hidden_size
    batch = (int(x.batch_sizes[0]),) if isinstance(x, PackedSequence) else ()
    data = x.data if isinstance(x, PackedSequence) else x
    assert output.shape == (*data.shape[:-1], rnn.proj_size * (1 + rnn.bidirectional) or units)
    if rnn.proj_size == 0:
        widths = [rnn.layers[0].width(field) for field in rnn.layers[0].State._fields]
        assert [value.shape for value in fields(after)] == [(entries, *batch, width) for width in widths]
    assert all(value.isfinite().all() for value in (output, *found))
    if kind in ("LSTM", "GRU"):
        theirs = getattr(torch.nn, kind)(**arguments).double()
        theirs.load_state_dict(rnn.state_dict())
        close([output, fields(after), found], [*compared(results(theirs, x, state))], 1e-12)
    elif not isinstance(x, PackedSequence):
        close(output, rnn(x.unsqueeze(0 if rnn.batch_first else 1), with_batch(state))[0].flatten(0, 1), 1e-12)


def refused(kind, arguments):
    """The reason why a layer has not these arguments; None if it has them."""
    if arguments.get("proj_size") and kind != "LSTM":
        return "put an nn.Linear after it|only supported for LSTM"
    if not arguments.get("bias", True) and kind not in WITH_BIAS:
        return "no bias of the forget gate to initialize|the biases are part of its cell's equations"
    return None


def results(rnn, x, state):
    """The output's numbers, the last state, and the gradients of x, of packed sequences' numbers, and the weights."""
    packed = isinstance(x, PackedSequence)
    data = (x.data if packed else x).detach().requires_grad_()
    output, after = rnn(PackedSequence(data, *x[1:]) if packed else data, state)
    output = output.data if packed else output
    wanted = [data, *(parameter for parameter in rnn.parameters() if parameter.numel())]
    return output, after, torch.autograd.grad(output.square().sum(), wanted)


def compared(found):
    output, after, gradients = found
    return output, fields(after), gradients


def with_batch(state):
    """A state of torch, (layers, H), with a batch of one."""
    if isinstance(state, tuple):
        return tuple(map(with_batch, state))
    return None if state is None else state.unsqueeze(1)
