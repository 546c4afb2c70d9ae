"""What the engines read is what the sizes of a call say: a state or weight of another shape is broadcast or refused."""

import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import fuzzed_calls
import pytest
import torch
from engine_cases import close
from torch import Tensor, nn

from timescales import RNN, Cell
from timescales.nn import cells
from timescales.nn.engine.cpu import fused

S, B, I, H = 5, 3, 2, 4  # noqa: E741
ENGINES = ("eager", "fused", "compiled")
ROOT = Path(__file__).parents[2]


def with_start(kind, start, **arguments):
    """A layer whose cells begin from the learned tensor `start` in every field of their state."""

    class Own(kind):
        def __init__(self, *sizes):
            super().__init__(*sizes, **arguments)
            self.start = nn.Parameter(start.clone()) if isinstance(start, Tensor) else start

        def initial_state(self, *batch):
            return self.State(*(self.start for _ in self.State._fields))

    torch.manual_seed(0)
    return RNN([Own(I, H)])


def run(rnn, name):
    """Output, last state and all gradients."""
    rnn.engine = name
    rnn.zero_grad()
    x = torch.linspace(-1.0, 1.0, S * B * I).view(S, B, I)
    output, state = rnn(x)
    output.square().sum().backward()
    return [output.detach(), *rnn.split_state(state)[0], *(p.grad for p in rnn.parameters())]


def numbers(*shape):
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel()).view(shape)


KINDS = (cells.LSTMCell, cells.MinGRUCell)
FITS = [(H,), (1, H), (B, 1), (), (1, 1), (B, H)]


@pytest.mark.parametrize(("kind", "shape"), [(KINDS[k % 2], shape) for k, shape in enumerate(FITS)])
def test_a_learned_state_of_any_shape_that_broadcasts(kind, shape):
    """The numbers, and the gradient of `start`, are those of the same state written out as (B, H)."""
    start = numbers(*shape)
    whole = with_start(kind, start.expand(B, H))
    expected = run(whole, "eager")
    for name in ENGINES:
        rnn = with_start(kind, start)
        found = run(rnn, name)
        for a, b in zip(found[:-1], expected[:-1], strict=True):
            close(a, b)
        close(rnn.layers[0].start.grad, whole.layers[0].start.grad.sum_to_size(shape))
        assert rnn.layers[0].start.grad.any()


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("start", [0.5, torch.tensor(0.5, dtype=torch.float64)], ids=str)
def test_a_number_as_the_state(name, start):
    """Also a tensor of one number of another type, which torch's operations take as a number."""
    close(run(with_start(cells.LSTMCell, start), name)[0], run(with_start(cells.LSTMCell, numbers(1) * 5), "eager")[0])


WRONG = [
    (numbers(H // 2), r"h is \(2,\), not \(batch, hidden\) = \(3, 4\)"),
    (numbers(B), r"h is \(3,\), not .* = \(3, 4\)"),
    (numbers(B, H + 1), r"h is \(3, 5\), not .* = \(3, 4\)"),
    (numbers(S, B, H), r"h is \(5, 3, 4\), not .* = \(3, 4\)"),
    (numbers(H, B), r"h is \(4, 3\), not .* = \(3, 4\)"),
    (numbers(B, H).double(), r"h is torch\.float64 on cpu: .*\.to\('cpu', torch\.float32\)"),
    ("zeros", "h is a str; give a tensor"),
]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("kind", "start", "line"), [(KINDS[k % 2], *case) for k, case in enumerate(WRONG)])
def test_a_state_that_does_not_broadcast_is_one_line(name, kind, start, line):
    with pytest.raises(ValueError, match=f"^Own: the state's {line}") as raised:
        run(with_start(kind, start), name)
    assert "\n" not in str(raised.value)


def test_a_state_of_another_class_is_one_line():
    rnn = with_start(cells.LSTMCell, 0.0)
    rnn.layers[0].initial_state = lambda *batch: (torch.zeros(H), torch.zeros(H))
    with pytest.raises(ValueError, match=r"the state of Own is a tuple: .*self\.State\(h, c\)"):
        run(rnn, "fused")


def test_a_cell_for_the_eager_engine_alone_may_carry_other_shapes():
    """With compiled = False only h must have a number for each unit."""

    class Outer(Cell):
        gates = ("key", "value")
        compiled = False

        class State(NamedTuple):
            h: Tensor
            fast: Tensor

        def initial_state(self, *batch):
            return self.State(torch.zeros(H), torch.zeros(*batch, H, H))

        def step(self, gx, gh, state, dt=1.0):
            key, value = (gx + gh).tanh().chunk(2, -1)
            fast = 0.9 * state.fast + key.unsqueeze(-1) * value.unsqueeze(-2)
            return self.State((fast @ key.unsqueeze(-1)).squeeze(-1), fast)

    output, _ = RNN([Outer(I, H)])(numbers(S, B, I))
    assert output.shape == (S, B, H)


@pytest.mark.parametrize(("kind", "name"), [
    (cells.LSTMCell, "fused"), (cells.GRUCell, "compiled"), (cells.MinGRUCell, "fused"), (cells.GRUCell, "eager"),
])  # fmt: skip
def test_a_bias_of_one_number_is_one_for_every_row(kind, name):
    for key in kind(I, H).bias_names():
        whole, one = (with_start(kind, numbers(H)) for _ in range(2))
        for rnn, shape in ((whole, getattr(whole.layers[0], key).shape), (one, (1,))):
            setattr(rnn.layers[0], key, nn.Parameter(torch.full(shape, 0.3)))
        close(run(one, name)[0], run(whole, "eager")[0])
        bias, expected = getattr(one.layers[0], key).grad, getattr(whole.layers[0], key).grad.sum(0, keepdim=True)
        close(bias, expected)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("key", "shape"), [
    ("weight_hh", (4 * H, H - 1)), ("weight_hh", (4 * H, 1)), ("weight_hh", (5 * H, H)), ("weight_hh", (H,)),
    ("weight_ih", (4 * H, I + 1)), ("bias_ih", (H,)), ("bias_hh", (2, 4 * H)),
], ids=str)  # fmt: skip
def test_a_weight_of_another_shape_is_one_line(name, key, shape):
    rnn = with_start(cells.LSTMCell, 0.0)
    setattr(rnn.layers[0], key, nn.Parameter(torch.zeros(shape)))
    with pytest.raises(ValueError, match=rf"^Own: {key} is {re.escape(str(shape))}; it must be \({4 * H},") as raised:
        run(rnn, name)
    assert "\n" not in str(raised.value)


# ------------------------------------------------------------------------------------------ the engine itself
def test_called_directly_the_engine_refuses_what_its_library_would_misread():
    (cell,) = with_start(cells.PLSTMCell, 0.0).layers
    x, weights, state = torch.zeros(S, B, I), cell.weights(), cell.State(*torch.zeros(3, B, H))
    code = fused.compiled(cell, True)
    for name, arguments in {
        r"state \(3, 4\); it is \(3, 2\)": (weights, state._replace(c=torch.zeros(B, H // 2)), torch.ones(S, B)),
        r"hh \(12, 4\); it is \(12, 1\)": (weights._replace(hh=torch.zeros(3 * H, 1)), state, torch.ones(S, B)),
        r"hh \(12, 4\); it is missing": (weights._replace(hh=None), state, torch.ones(S, B)),
        r"bias_ih \(12,\); it is \(1,\)": (weights._replace(bias_ih=torch.zeros(1)), state, torch.ones(S, B)),
        r"dt \(5, 3\); it is \(5, 1\)": (weights, state, torch.ones(S, 1)),
        r"dt \(5, 3\); it is missing": (weights, state, None),
    }.items():
        with pytest.raises(RuntimeError, match=name):
            fused.run(cell, x, arguments[0], arguments[1], arguments[2], given=code)


def test_memory_that_was_freed_is_one_line():
    """As FSDP frees the memory of weights between the calls."""
    rnn = RNN([cells.LSTMCell(I, H)], engine="fused")
    output, _ = rnn(numbers(S, B, I))
    rnn.layers[0].weight_hh.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"the memory of hh \(16, 4\) was freed"):
        output.sum().backward()


def test_a_mask_of_floats_has_no_gradient():
    mask = torch.ones(S, B, requires_grad=True)
    output, _ = RNN([cells.LSTMCell(I, H)], engine="fused")(numbers(S, B, I), mask=mask)
    output.sum().backward()
    assert mask.grad is None


MANY = int(os.environ.get("FUZZED_CALLS", "2500"))


@pytest.mark.parametrize(("cases", "first"), [(120, 0), pytest.param(MANY, 120, marks=pytest.mark.slow)])
def test_calls_of_random_tensors_have_the_eager_loops_numbers_or_one_line(cases, first):
    counts = collections.Counter(map(fuzzed_calls.check, range(first, first + cases)))
    assert min(counts["numbers"], counts["refused"]) > cases / 8


def library(name):
    """The path of a library of g++; its name alone if g++ has none; nothing without g++."""
    if not shutil.which("g++"):
        return ""
    return subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(os.sep not in library("libasan.so"), reason="g++ has no address sanitizer")
def test_the_address_sanitizer_sees_none_in_any_kind_of_cell(tmp_path):
    """`fuzzed_calls.py` with kernels that were compiled with the address sanitizer."""
    cases = os.environ.get("FUZZED_CALLS", "1000")
    environment = {
        "CXX": "g++ -fsanitize=address -fno-omit-frame-pointer", "ASAN_OPTIONS": "detect_leaks=0",
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}", "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}",
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("fuzzed_calls.py")), cases, "0"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "'numbers': " in done.stdout
