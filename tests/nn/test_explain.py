"""`timescales.explain`, and the renderer that writes expressions in every language, from tables of operations."""

import math
import re

import pytest
import torch

import timescales
from timescales.nn.cells import LSTMCell
from timescales.nn.engine import gpu
from timescales.nn.engine.cpu.emit_cpp import CPP


def printed(capsys, *arguments, **named) -> str:
    timescales.explain(*arguments, **named)
    return capsys.readouterr().out


def test_the_equations_give_the_step(capsys):
    """The printed lines are Python: evaluated, they give the numbers of the cell's step."""
    for rnn in (timescales.LSTM(1, 1), timescales.PLSTM(1, 1), timescales.GRU(1, 1), timescales.PGRU(1, 1)):
        cell = rnn.layers[0].double()
        text = printed(capsys, rnn, dt=True)
        block = re.search(r"for each unit\n(.*?)\nwhere", text, re.S)[1]
        once = re.search(r"from the parameters\n(.*?)\n\n", text, re.S)
        text = f"{once[1]}\n{block}" if once else block
        lines = [line.strip().replace("'", "_new") for line in text.splitlines()]
        gx, gh = torch.randn(2, 1, sum(map(cell.height, cell.gates)), dtype=torch.float64)
        state = cell.State(*torch.rand(len(cell.State._fields), 1, 1, dtype=torch.float64))
        expected = cell.step(gx, gh, state, torch.tensor([[1.7]], dtype=torch.float64))
        names = {"dt": 1.7, "max": max, "neg": lambda x: -x, "power": getattr(cell, "power", torch.zeros(1)).item()}
        names |= {key: getattr(math, key) for key in ("tanh", "exp", "expm1", "log1p")}
        names["sigmoid"] = lambda x: 1.0 / (1.0 + math.exp(-x))
        names |= {field: value.item() for field, value in state._asdict().items()}
        for k, gate in enumerate(cell.gates):
            x, h = gx[0, k].item(), gh[0, k].item()
            names |= {f"x_{gate}": x, f"h_{gate}": h, f"z_{gate}": x + h}
        for line in lines:
            exec(line, names)
        for field, value in expected._asdict().items():
            assert names[f"{field}_new"] == pytest.approx(value.item(), rel=1e-12)


def test_what_is_explained(capsys):
    text = printed(capsys, timescales.LSTM(3, 4))
    assert text.startswith("LSTMCell(3, 4)\n")
    assert "16 pre-activations, 4 of c; 80 bytes" in text
    assert "eager: yes" in text
    assert "fused: yes\n" in text
    assert "compiled: yes, but on a CPU only to test it\n" in text
    assert "auto: takes fused" in text
    *cell, empty, _, other = text.splitlines()
    assert printed(capsys, timescales.LSTM(3, 4).layers[0]).splitlines() == cell
    assert (empty, other) == ("", "torch.autocast, tracers and exporters, projections; and on a GPU what cuDNN can run")


def test_what_only_some_calls_or_cells_have(capsys, monkeypatch):
    """Calls that an engine does not take; and pre-activations, which the fused engine computes again for scan cells."""
    monkeypatch.setattr(gpu, "cudnn_reason", lambda *call: "it cannot begin again" if call[-1] else None)
    assert "cudnn: yes; no call with reset= or states=True\n" in printed(capsys, timescales.LSTM(3, 4))
    kept = {"MinGRU": "nothing but the output; 0 bytes", "PLScan": "128 of c, 128 of age; 1,024 bytes"}
    for kind, what in kept.items():
        line = f"sequence: {what} (fused computes the pre-activations again)\n"
        assert line in printed(capsys, getattr(timescales, kind)(10, 128))


def test_why_an_engine_cannot_run(capsys):
    class Mixed(LSTMCell):
        def step(self, gx, gh, state, dt=1.0):
            new = super().step(gx, gh, state, dt)
            return self.State(new.h.flip(-1), new.c)

    text = printed(capsys, Mixed(3, 4))
    assert "No kernel can be made of its step: Mixed.step (" in text
    assert "fused: no, Mixed.step (" in text
    assert "auto: takes eager" in text
    assert "fused: no, x must be float32" in printed(capsys, timescales.LSTM(3, 4).double())


def test_what_cannot_be_explained():
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.ModuleDict({"rnn": timescales.PLSTM(2, 3)})

    takes = "explain needs a layer or a cell of this package, such as timescales.LSTM; "
    inside = "not Net: give it the layer inside, .body.rnn"
    for module, found in ((torch.nn.LSTM(2, 3), "not torch.nn.LSTM"), (Net(), inside), (3, "not int")):
        with pytest.raises(ValueError, match=f"^{re.escape(takes + found)}$"):
            timescales.explain(module)
    with pytest.raises(ValueError, match=r"^dt must be True or False, .*; not Tensor$"):
        timescales.explain(timescales.PLSTM(2, 3), torch.zeros(4, 2, 2))


class Constants(timescales.Cell):
    """A step with much that depends on the parameter alone."""

    gates, State = ("cell",), timescales.GRUCell.State

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.keep = torch.nn.Parameter(torch.full((hidden_size,), 0.7))

    def step(self, gx, gh, state, dt=1.0):
        p = 1 - torch.sigmoid(self.keep)
        a, b, c, d = -(p + 2) * 3, 2 / (p - 1), (-p) ** 2, 2**-self.keep
        return self.State(p * gx + a * gh + b * state.h + c * gx * gh + d * gx * state.h)


def test_what_is_computed_once_is_written_as_in_python(capsys):
    cell = Constants(1, 1)
    text = printed(capsys, cell)
    once = re.search(r"from the parameters\n(.*?)\n\n", text, re.S)[1]
    assert "    p1 = 1 - sigmoid(keep)\n" in once
    assert "    p4 = (-(1 - sigmoid(keep))) ** 2\n" in once
    p = 1 - 1 / (1 + math.exp(-0.7))
    names = {"keep": 0.7, "sigmoid": lambda x: 1 / (1 + math.exp(-x))}
    for line in once.splitlines():
        exec(line.strip(), names)
    values = [names[f"p{k}"] for k in range(1, 6)]
    assert values == pytest.approx([p, -(p + 2) * 3, 2 / (p - 1), p**2, 2**-0.7])


def test_numbers_of_each_language():
    values = (0.1, 3.0, 1e-40, math.inf, -math.inf, math.nan)
    written = ["0.1f", "3.0f", "1e-40f", "__builtin_inff()", "-__builtin_inff()", '__builtin_nanf("")']
    assert [CPP.number(value) for value in values] == written
