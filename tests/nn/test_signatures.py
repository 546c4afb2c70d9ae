"""Arguments are written once, in the cell: the layer, `inspect.signature` and the stub have them, old paths too."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import stub
from rnn_cases import H, I

import timescales
from timescales.nn import registry, signatures

OF_TORCH = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
OF_TORCH = (*OF_TORCH, "device", "dtype")  # in torch's order


@pytest.mark.parametrize("model", registry.MODELS, ids=lambda model: model.name)
def test_a_layer_has_the_arguments_of_torch_and_of_its_cell(model):
    layer = getattr(timescales, model.layer)
    found = inspect.signature(layer).parameters
    assert tuple(found)[: len(OF_TORCH)] == OF_TORCH
    assert "engine" in found
    assert not any(parameter.kind in signatures.VARIABLE for parameter in found.values())
    for cell in model.cells:
        for name, parameter in inspect.signature(getattr(timescales, cell)).parameters.items():
            if name not in (*OF_TORCH, *layer.chooses) and layer not in (timescales.LSTM, timescales.URLSTM):
                assert (found[name].default, found[name].kind) == (parameter.default, parameter.kind), name


def test_a_subclass_of_ones_own_has_its_own_signature():
    class Mine(timescales.PLSTM):
        def __init__(self, size, *, slow: bool = True):
            super().__init__(size, size, power_init=(0.0, 0.2 if slow else 1.0))

    class Same(timescales.PLSTM):
        pass

    assert list(inspect.signature(Mine).parameters) == ["size", "slow"]
    assert inspect.signature(Same) == inspect.signature(timescales.PLSTM)
    assert Mine(3).layers[0].hidden_size == 3


def test_a_layer_of_ones_own_cell_is_two_lines():
    class Own(timescales.CellRNN):
        cell_class = timescales.JANETCell

    assert inspect.signature(Own).parameters["beta"].default == 1.0
    assert [cell.beta for cell in Own(I, H, 2, beta=0.5).layers] == [0.5, 0.5]
    with pytest.raises(ValueError, match="Own has no argument betta; did you mean beta"):
        Own(I, H, betta=0.5)


WRONG = """
from timescales import PLSTM, GatedRNN, RNN, RNNState
fields = [(state.h, state.z, state.log_n) for state in list[RNNState]()]
rnn: RNN = PLSTM(10, 128, epsilon=0.01)
PLSTM(10, 128, epsilon="small")  # E: "PLSTM" has incompatible type "str"; expected "float"
PLSTM(10, 128, epsilonn=0.01)  # E: Unexpected keyword argument "epsilonn" for "PLSTM"
GatedRNN(10, [128, 64], 2, gate="um", zoneout_c=0.1)
"""


@pytest.mark.slow  # half a minute
def test_a_type_checker_sees_wrong_arguments(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(stub.ROOT), check=False).stdout
    errors = [line for line in found.splitlines() if "error" in line and "wrong.py" in line]
    expected = [(n, line.split("# E: ")[1]) for n, line in enumerate(WRONG.splitlines(), 1) if "# E: " in line]
    assert len(errors) == len(expected), found
    for error, (line, text) in zip(errors, expected, strict=True):
        assert f":{line}: " in error
        assert text.split('"')[0].strip() in error
