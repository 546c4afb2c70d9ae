"""The graph engine on a CPU against the eager one in float64; the Triton kernels, compiled for a GPU that is not here.

test_triton.py runs the kernels in Triton's interpreter.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys

import cell_models
import pytest
import torch
from engine_cases import (
    CELL_TOLERANCE,
    MODELS,
    SHAPES,
    assert_nan_propagates,
    batched_seeds,
    close,
    compare,
    evaluate,
    gradient,
    some_state,
    without_resets,
)
from everyday import only
from torch.utils._python_dispatch import TorchDispatchMode

from timescales import LSTM, PLSTM, RNN, GatedRNN
from timescales.nn.cells import LSTMCell, PLSTMCell
from timescales.nn.engine import eager, kept
from timescales.nn.engine.equations import of_cell
from timescales.nn.engine.gpu import emit_triton, graph, graph_function, pointwise, triton_kernels
from timescales.nn.engine.gpu.buffers import Buffers


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(name, shape):
    S, B, inputs, H = shape
    model = MODELS[name](inputs, H)
    x, dt, mask = torch.randn(S, B, inputs), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.7
    for (d, m), last in itertools.product(itertools.product((None, dt), (None, mask)), (False, True)):
        compare("graph", model, x, some_state(model, B) if last else None, d, m, last)


@pytest.mark.parametrize("name", only(cell_models.KERNELS, cell_models.NAMES))
def test_every_cell_equals_eager(name):
    """Results and every gradient, that of dt included."""
    model = cell_models.model(name, 3, 12)
    x, dt, mask = torch.randn(9, 5, 3), 3.0 * torch.rand(9, 5), torch.rand(9, 5) < 0.7
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("graph", model, x, some_state(model, 5), d, m, last=k == 3, tolerance=CELL_TOLERANCE)


@pytest.mark.parametrize("kind", [GatedRNN, lambda *a, **k: GatedRNN(*a, core="gru", **k)], ids=["lstm", "gru"])
def test_zoneout_in_training_draws_what_eager_draws(kind):
    model = kind(3, 8, gate="ur", zoneout_h=0.3).train()
    x, mask = torch.randn(7, 5, 3), torch.rand(7, 5) < 0.7
    found = []
    for engine in ("graph", "eager"):
        torch.manual_seed(5)
        found.append(evaluate(model, engine, torch.float32, x, some_state(model, 5), None, mask, False))
    for name, value in found[0].items():
        close(value, found[1][name], what=name)


@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_layers_batch_first(name):
    model = {"lstm": LSTM, "plstm": PLSTM}[name](5, [12, 20], 2, batch_first=True)
    compare("graph", model, torch.randn(4, 7, 5), some_state(model, 4), torch.rand(4, 7) + 0.5, torch.rand(4, 7) < 0.7)


@pytest.mark.parametrize("bias", [-30.0, -12.0, 12.0, 30.0, 200.0])
def test_extreme_reset_gates(bias):
    for name in ("plstm", "plstm_separate", "plstm_authors"):
        model = MODELS[name](3, 9)
        with torch.no_grad():
            model.layers[0].bias[:9] = bias
        compare("graph", model, torch.randn(40, 5, 3), some_state(model, 5), 2.0 * torch.rand(40, 5))


@pytest.mark.parametrize("age", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("name", cell_models.AGED)
def test_large_ages(name, age):
    model = cell_models.model(name, 3, 9)
    state = [s._replace(age=age * (1.0 + torch.rand(5, 9))) for s in some_state(model, 5)]
    compare("graph", model, torch.randn(6, 5, 3), state, 2.0 * torch.rand(6, 5))


def test_time_shorter_than_epsilon():
    model = PLSTM(2, 5, epsilon=0.5)
    with torch.no_grad():
        model.layers[0].bias[:5] = -3.0
    compare("graph", model, torch.randn(12, 4, 2), some_state(model, 4), 0.8 * torch.rand(12, 4))


@pytest.mark.parametrize("name", only(cell_models.KERNELS, cell_models.NAMES))
def test_replicas_equal_single_runs(name):
    """Several seeds in one call: each as it would be alone, results and gradients."""
    R, S, B, inputs, H = 3, 6, 4, 5, 8
    cells = [cell_models.model(name, inputs, H).layers[0] for _ in range(R)]
    together = batched_seeds(cells)
    x, mask = torch.randn(S, R, B, inputs, requires_grad=True), torch.rand(S, R, B) < 0.8
    dt = (2.0 * torch.rand(S, R, B)).requires_grad_()
    factor = torch.randn(S, R, B, H)
    output, after = graph.run(together, x, together.weights(), together.initial_state(R, B), dt, mask)
    (output * factor).sum().backward()
    d_x, d_dt = x.grad.clone(), None if dt.grad is None else dt.grad.clone()
    x.grad = dt.grad = None
    for r, cell in enumerate(cells):
        y, end = graph.run(cell, x[:, r], cell.weights(), cell.initial_state(B), dt[:, r], mask[:, r])
        close(output[:, r], y)
        for a, b in zip(after, end, strict=True):
            close(a[r], b)
        (y * factor[:, r]).sum().backward()
        for key, parameter in cell.named_parameters():
            close(gradient(together.get_parameter(key))[r], gradient(parameter), what=key)
    close(d_x, x.grad)
    assert (d_dt is None) == (dt.grad is None)
    if d_dt is not None:
        close(d_dt, dt.grad)


class Count(TorchDispatchMode):
    products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.products += func.overloadpacket.__name__ in ("addmm", "addmm_", "mm", "bmm", "baddbmm", "baddbmm_")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "gates", "aged"), [("lstm", 4, 0), ("ur", 4, 0), ("plstm", 3, 1)])
def test_launches_and_bytes_are_those_of_the_docstring(name, gates, aged, monkeypatch):
    S, B, H = 11, 4, 32
    steps, buffers = [], []
    for name_, real in (("step_forward", pointwise.step_forward), ("step_backward", pointwise.step_backward)):
        monkeypatch.setattr(pointwise, name_, lambda b, t, real=real: (steps.append(t), real(b, t)))
    kept = Buffers.__init__
    monkeypatch.setattr(Buffers, "__init__", lambda b, *a: (kept(b, *a), buffers.append(b))[0])
    model = MODELS[name](3, H)
    model.engine = "graph"
    of_cell(model.layers[0], timed=False)  # not counted
    with Count() as forward:
        output, _ = model(torch.randn(S, B, 3))
    assert forward.products == S + 1
    assert len(steps) == S
    loss = output.sum()
    with Count() as backward:
        loss.backward()
    assert backward.products == S - 1 + 2  # no gradient to the first state, none to x
    assert steps == [*range(S), *reversed(range(S))]
    (b,) = buffers
    assert b.d_output is None or b.d_output.data_ptr() != 0
    b.d_output = None
    between = (2 + aged) * B * H  # before the first step
    carried = (2 + 2 * aged) * B * H + gates * H * H + aged * H
    assert b.bytes() == 4 * (S * B * H * (gates + 2 + aged) + between + carried)


def test_the_docstrings_example():
    found = of_cell(PLSTMCell(10, 128), timed=False)
    b = Buffers(found, (1, 220, 128), 128, torch.device("meta"), False, False)
    b.d_output = b.states[0][:, 1:]
    assert round(b.bytes() / 1e6) == 102


def test_a_float64_default_leaves_the_buffers_float32():
    model, x = PLSTM(3, 7), torch.randn(5, 2, 3)
    dt, mask = torch.rand(5, 2), torch.rand(5, 2) < 0.7
    expected = evaluate(model, "graph", torch.float32, x, None, dt, mask, False)
    torch.set_default_dtype(torch.float64)
    try:
        cell = model.layers[0]
        equations = of_cell(cell, timed=True)
        assert graph.compare(cell, equations, torch.device("cpu")) is None
        b = Buffers(equations, (1, 2, 3), 7, torch.device("cpu"), True, True, True)
        assert {v.dtype for v in b.tensors()} == {torch.float32}
        found = evaluate(model, "graph", torch.float32, x, None, dt, mask, False)
    finally:
        torch.set_default_dtype(torch.float32)
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


@pytest.mark.parametrize("masked", [False, True])
def test_long_sequences_are_evaluated_in_pieces(masked, monkeypatch):
    model, x = PLSTM(3, 7), torch.randn(70, 4, 3)
    dt, mask = torch.rand(70, 4), torch.rand(70, 4) < 0.7 if masked else None
    made = []
    monkeypatch.setattr(graph, "PIECE", 32)
    monkeypatch.setattr(graph_function, "Buffers", lambda *a: made.append(a[1][1]) or Buffers(*a))
    cell = model.layers[0]
    with torch.no_grad():
        output, state = graph.run(cell, x, cell.weights(), cell.initial_state(4), dt, mask)
        expected, end = eager.run(cell, x, cell.weights(), cell.initial_state(4), dt, mask)
    assert made == [32, 32, 6]
    close(output, expected, 1e-5)
    for a, b in zip(state, end, strict=True):
        close(a, b, 1e-5)


def test_auto_goes_on_with_eager_where_the_engine_fails(monkeypatch, capsys):
    def broken(b, t):
        raise ValueError("no such kernel")

    monkeypatch.setattr(pointwise, "step_forward", broken)
    monkeypatch.setattr(kept, "SAID", set())
    model = PLSTM(3, 4)
    cell, x = model.layers[0], torch.randn(5, 2, 3)
    for _ in range(2):
        output, _ = graph.run_or_eager(cell, x, cell.weights(), cell.initial_state(2))
        assert torch.equal(output, eager.run(cell, x, cell.weights(), cell.initial_state(2))[0])
    assert capsys.readouterr().err == "timescales: no graph engine, something slower runs: ValueError: no such kernel\n"


def test_not_a_number_goes_through():
    models = {name: lambda *a, name=name: cell_models.model(name, *a) for name in cell_models.NAMES}
    assert_nan_propagates("graph", MODELS | models)


class Mixed(LSTMCell):
    """It takes the maximum over the units."""

    def step(self, gx, gh, state, dt=1.0):
        h, c = super().step(gx, gh, state, dt)
        return self.State(h - h.amax(-1, keepdim=True), c)


def test_by_name_says_why_it_cannot():
    x = torch.randn(5, 2, 3)
    for model, reason in (
        (
            RNN([Mixed(3, 4)], engine="graph"),
            r"graph engine cannot run here: Mixed.step .*amax; use engine='eager'",
        ),
        (LSTM(3, 4, engine="graph").double(), "x must be float32, not torch.float64"),
        (PLSTM(3, 4, engine="cudnn"), "the cudnn engine cannot run here: it runs only the plain LSTM"),
        (LSTM(3, 4, engine="cudnn").double(), "must be float32"),
    ):
        with pytest.raises(ValueError, match=reason):
            model(x.to(model.layers[0].weight_hh.dtype))
    with pytest.raises(ValueError, match="cannot hold the state where a mask is 0; use engine='auto'"):
        LSTM(3, 4, engine="cudnn")(x, mask=torch.ones(5, 2))


def test_what_goes_to_eager():
    model = PLSTM(3, 4, engine="graph")
    for S, B in ((0, 2), (2, 0)):
        assert model(torch.randn(S, B, 3))[0].shape == (S, B, 4)


def test_inference_mode_and_no_gradients():
    model = PLSTM(3, 40, engine="graph")
    x, mask, dt = torch.randn(9, 7, 3), torch.rand(9, 7) < 0.7, torch.rand(9, 7)
    expected, _ = model(x, None, dt, mask)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            output, _ = model(x, None, dt, mask)
        assert torch.equal(output, expected)


def test_the_trial_says_what_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(triton_kernels, "unavailable", "torch came without Triton; pip install triton")
    monkeypatch.setattr(kept, "TRIED", {})
    cell = PLSTM(3, 4).layers[0]
    for _ in range(2):
        reason = graph.trial(cell, of_cell(cell, timed=False), torch.device("cuda:0"))
        assert reason == "RuntimeError: torch came without Triton; pip install triton; use engine='eager'"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("raise OSError('libcuda.so.1: cannot open')", "importing Triton failed: OSError('libcuda.so.1: cannot open')"),
        ("raise ModuleNotFoundError(name='triton')", "torch came without Triton; pip install triton"),
    ],
)
def test_a_triton_that_cannot_be_imported(tmp_path, monkeypatch, broken, reason):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(broken)
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("another", triton_kernels.__file__)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    assert kernels.triton is None
    assert kernels.unavailable == reason


FEW = ("plstm_authors", "gated_gru_om_4", "adversarial")


@pytest.mark.parametrize("name", ["zoneout", *only(FEW, cell_models.KERNELS)])
def test_kernels_compile_without_a_gpu(name, tmp_path, monkeypatch):
    """The interpreter is lenient where the compiler is not. For the H100 and H200 (sm_90)."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    H = 100
    model = GatedRNN(3, H, zoneout_h=0.1).train() if name == "zoneout" else cell_models.model(name, 3, H)
    kernels = emit_triton.kernels(emit_triton.code(of_cell(model.layers[0], timed=True)))
    constants = {"H": H, "THREADS": emit_triton.THREADS}
    absent = {"mask": None, "d_dt": None, **without_resets(kernels.backward)}
    for kernel, without in ((kernels.forward, {}), (kernels.backward, {}), (kernels.backward, absent)):
        fixed = {key: value for key, value in (constants | without).items() if key in kernel.arg_names}
        types = dict.fromkeys(("t", "S", "B", "rows"), "i32") | {"again": "*u8"} | dict.fromkeys(fixed, "constexpr")
        signature = {key: types.get(key, "*fp32") for key in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=signature, constexprs=fixed)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        assert len(made.asm["cubin"]) > 1000
        assert ".f64" not in made.asm["ptx"]


def test_the_text_of_a_kernel():
    """The LSTM's forward kernel: a reader of the generated code finds the cell's equations."""
    text = emit_triton.code(of_cell(LSTMCell(3, 4), timed=False))
    forward = text[text.index("def forward") : text.index("def backward")]
    lines = [line.strip() for line in forward.splitlines() if line.strip().startswith("x")]
    assert lines == [
        "x9 = sigmoid(z3)",
        "x10 = sigmoid(z1)",
        "x11 = x10 * before1",
        "x12 = sigmoid(z0)",
        "x13 = tanh(z2)",
        "x14 = x12 * x13",
        "x15 = x11 + x14",
        "x16 = tanh(x15)",
        "x17 = x9 * x16",
    ]


def test_cells_with_the_same_equations_have_the_same_kernels():
    texts = [
        {emit_triton.code(of_cell(cell_models.model(name, 3, 8).layers[0], timed=True)) for name in names}
        for names in (cell_models.KERNELS, cell_models.NAMES)
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) == len(cell_models.KERNELS)


def test_constants_of_the_text():
    values = {
        0.1: "0.10000000149011612",
        1e-40: "0.0",
        1e39: 'float("inf")',
        float("nan"): 'float("nan")',
        -2.0: "-2.0",
    }
    for value, text in values.items():
        assert emit_triton.literal(value) == text
