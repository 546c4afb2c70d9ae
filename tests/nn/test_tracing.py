"""torch.jit.trace and torch.export: they see torch's operations, and the state is saved with the program."""

from __future__ import annotations

import io
import logging

import pytest
import torch
from rnn_cases import close
from torch.utils._pytree import tree_leaves

import timescales
from timescales import LSTMCell


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["LSTM", "PLSTM", "GRU"])
def test_a_traced_module_has_torchs_operations(name):
    """Also torch.onnx.export traces. A kernel would be stored as a call of Python, or as constants."""
    torch.manual_seed(0)
    rnn = getattr(timescales, name)(3, 5, 2)
    x, other = torch.randn(6, 2, 3), torch.randn(6, 2, 3)
    traced = torch.jit.trace(rnn, (x,))
    assert "PythonOp" not in str(traced.inlined_graph)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    (output, state), (expected, end) = torch.jit.load(file)(other), rnn(other)
    close(output, expected, 1e-6)
    for value, field in zip(tree_leaves(state), tree_leaves(end), strict=True):
        close(value, field, 1e-6)
    if name != "GRU":
        for rnn.engine in ("fused", "compiled"):
            with pytest.raises(ValueError, match=r"tracers need torch's own operations; use engine='eager'"):
                torch.jit.trace(rnn, (x,))


@pytest.mark.parametrize("name", ["LSTM", "PLSTM", "GRU"])
def test_an_exported_program_with_a_state_is_saved(name, caplog):
    caplog.set_level(logging.ERROR, "torch._export.serde.serialize")  # one of its warnings cannot be formatted
    torch.manual_seed(0)
    rnn = getattr(timescales, name)(3, 5, 2)
    x, other = torch.randn(6, 2, 3), torch.randn(6, 2, 3)
    _, state = rnn(x)
    file = io.BytesIO()
    torch.export.save(torch.export.export(rnn, (x, state)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    output, end = loaded(other, state)
    expected, after = rnn(other, state)
    close(output, expected, 1e-6)
    close(tree_leaves(end), tree_leaves(after), 1e-6)
    close(loaded(other, end)[0], rnn(other, rnn(other, state)[1])[0], 1e-6)


def test_states_that_are_shared_or_defined_again(recwarn):
    """A cell of one's own may take the state of another, and a notebook runs its cells again."""

    def define():
        class Mine(LSTMCell):
            class State(LSTMCell.State):
                pass

        return Mine

    class Other(LSTMCell):
        State = LSTMCell.State

    first, second = define(), define()
    values = (torch.zeros(1), torch.ones(1))
    for cell in (first, second, Other):
        leaves, form = torch.utils._pytree.tree_flatten(cell.State(*values))
        assert type(torch.utils._pytree.tree_unflatten(leaves, form)) is cell.State
    assert not recwarn.list
