"""The graph engine against the eager one in float64, with torch twins; its pool of graphs, with stand-ins for CUDA's;
the Triton kernels, compiled for a GPU that is not here. In the interpreter they run in test_triton.py."""

from __future__ import annotations

import contextlib
import csv
import gc
import importlib.util
import itertools
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from synthetic import SMALL, sizes
from test_fused import GATED, MODELS, SHAPES, close, evaluate, not_a_number_goes_through, some_state
from torch.utils._python_dispatch import TorchDispatchMode

from timescales import LSTM, PLSTM, URLSTM, GatedRNN
from timescales.nn import engine as engines
from timescales.nn.engine import choice, cudnn, eager, graph, pointwise, programs
from timescales.nn.engine.buffers import Buffers, loop_backward, loop_forward


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def compare(model, x, state=None, dt=None, mask=None, last=False, engine="graph"):
    fast = evaluate(model, engine, torch.float32, x, state, dt, mask, last)
    true = evaluate(model, "eager", torch.float64, x, state, dt, mask, last)
    model.float()
    assert fast.keys() == true.keys()
    for name in true:
        assert fast[name].shape == true[name].shape
        close(fast[name], true[name], what=name)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(name, shape):
    S, B, inputs, H = shape
    model = MODELS[name](inputs, H)
    x, dt, mask = torch.randn(S, B, inputs), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.7
    for (d, m), last in itertools.product(itertools.product((None, dt), (None, mask)), (False, True)):
        compare(model, x, some_state(model, B) if last else None, d, m, last)


@pytest.mark.parametrize("gate", GATED)
def test_gated_equals_eager(gate):
    model = GATED[gate](3, 7)
    compare(model, torch.randn(7, 5, 3), some_state(model, 5), None, torch.rand(7, 5) < 0.7)
    compare(GatedRNN(3, [7, 5], 2, gate=gate, T_max=30), torch.randn(7, 5, 3))


@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_layers_batch_first(name):
    model = {"lstm": LSTM, "plstm": PLSTM}[name](5, [12, 20], 2, True)
    compare(model, torch.randn(4, 7, 5), some_state(model, 4), torch.rand(4, 7) + 0.5, torch.rand(4, 7) < 0.7)


@pytest.mark.parametrize("bias", [-30.0, -12.0, 12.0, 30.0, 200.0])
def test_extreme_reset_gates(bias):
    for name in ("plstm", "plstm_separate", "plstm_authors"):
        model = MODELS[name](3, 9)
        with torch.no_grad():
            model.layers[0].bias[:9] = bias
        compare(model, torch.randn(40, 5, 3), some_state(model, 5), 2.0 * torch.rand(40, 5))


def test_time_shorter_than_epsilon():
    model = PLSTM(2, 5, epsilon=0.5)
    with torch.no_grad():
        model.layers[0].bias[:5] = -3.0
    compare(model, torch.randn(12, 4, 2), some_state(model, 4), 0.8 * torch.rand(12, 4))


# ------------------------------------------------------------------------------------------ replicas


def stacked(cells):
    """What an engine is given for several seeds: weights (R, ...), and the cell whose parameters are stacked too."""
    weights = [cell.weights() for cell in cells]
    together = type(weights[0])(*(None if v[0] is None else torch.stack(v) for v in zip(*weights, strict=True)))
    cell = cells[0]
    if getattr(cell, "power", None) is not None:
        power = torch.stack([one.power for one in cells])
        cell = type(cell)(cell.input_size, cell.hidden_size, coupled=cell.coupled)
        del cell.power
        cell.power = power
    return cell, together


def test_replicas_are_padded_and_cut_as_single_runs_are(captured, monkeypatch):
    monkeypatch.setattr(graph, "PIECE", 8)
    singles = [PLSTM(3, 7).layers[0] for _ in range(2)]
    cell, weights = stacked(singles)
    x, dt, mask = torch.randn(21, 2, 4, 3), torch.rand(21, 2, 4), torch.rand(21, 2, 4) < 0.7
    for keeps in (True, False):  # padded to 32 steps; in pieces of 8, 8 and 5, the last of them padded
        with torch.set_grad_enabled(keeps):
            output, state = graph.run(cell, x, weights, cell.initial_state(2, 4), dt, mask)
        assert output.shape == (21, 2, 4, 7)
        for k, one in enumerate(singles):
            expected, end = eager.run(one, x[:, k], one.weights(), one.initial_state(4), dt[:, k], mask[:, k])
            close(output[:, k].detach(), expected.detach(), 1e-5)
            close(state.age[k].detach(), end.age.detach(), 1e-5)


@pytest.mark.parametrize("name", ["lstm", "ur", "plstm", "plstm_separate"])
def test_replicas_equal_single_runs(name):
    """Several seeds in one call: each as it would be alone, results and gradients."""
    R, S, B, inputs, H = 3, 6, 4, 5, 9
    models = [MODELS[name](inputs, H) for _ in range(R)]
    x, mask = torch.randn(S, R, B, inputs, requires_grad=True), torch.rand(S, R, B) < 0.8
    dt = 2.0 * torch.rand(S, R, B)
    factor = torch.randn(S, R, B, H)
    cell, weights = stacked([model.layers[0] for model in models])
    state = cell.initial_state(R, B)
    output, after = graph.run(cell, x, weights, state, dt, mask)
    (output * factor).sum().backward()
    together = [x.grad.clone(), *(torch.stack([m.layers[0].get_parameter(n).grad for m in models]) for n, _ in
                                  models[0].layers[0].named_parameters())]  # fmt: skip
    x.grad = None
    for model in models:
        model.zero_grad()
    for r, model in enumerate(models):
        one = model.layers[0]
        y, end = graph.run(one, x[:, r], one.weights(), one.initial_state(B), dt[:, r], mask[:, r])
        close(output[:, r], y)
        for a, b in zip(after, end, strict=True):
            close(a[r], b)
        (y * factor[:, r]).sum().backward()
    alone = [x.grad, *(torch.stack([m.layers[0].get_parameter(n).grad for m in models]) for n, _ in
                       models[0].layers[0].named_parameters())]  # fmt: skip
    for a, b in zip(together, alone, strict=True):
        close(a, b)


# ------------------------------------------------------------------------------------------ launches and memory


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
    b = Buffers(graph.Kernel("coupled"), (1, 220, 128), 128, torch.device("meta"), False, False)
    b.d_output = b.h[:, 1:]
    assert round(b.bytes() / 1e6) == 102


# ------------------------------------------------------------------------------------------ graphs, with stand-ins


class Replay:
    """Stands in for a CUDA graph: replaying runs the loop."""

    def __init__(self, b, loop):
        self.b, self.loop = b, loop

    def replay(self):
        Captured.replays += 1
        self.loop(self.b)


class Stream:
    cuda_stream = 0

    def __init__(self, device=None):
        self.waited = 0

    def wait_stream(self, other):
        self.waited += 1


def standing_in(monkeypatch, recording):
    """Streams that do nothing, and `recording` for torch.cuda.graph."""
    for name, value in (("Stream", Stream), ("CUDAGraph", object), ("graph", recording),
                        ("stream", lambda stream: contextlib.nullcontext()), ("synchronize", lambda: None),
                        ("current_stream", lambda device=None: Stream()),
                        ("graph_pool_handle", lambda: (0, 1))):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(programs, "_warmed", set())
    programs.side_stream.cache_clear()


@pytest.mark.parametrize("kind", GATES)
def test_capture_warms_up_in_other_buffers(kind, monkeypatch):
    """The real `capture`, with streams that do nothing and a recording that runs at once."""
    entered = []

    @contextlib.contextmanager
    def recording(made, pool, stream, capture_error_mode):
        entered.append((stream, capture_error_mode))
        with ThreadPoolExecutor() as other:
            held.append(other.submit(programs._lock.acquire, False).result())
        yield

    held = []
    standing_in(monkeypatch, recording)
    R, S, B, H = 2, 5, 3, 4
    power = torch.full((R, H), 0.5)
    b = Buffers(graph.Kernel(kind, power, 1e-3), (R, S, B), H, torch.device("cpu"), True, True)
    for value in vars(b).values():
        if isinstance(value, torch.Tensor):
            value.fill_(1.0)
    runs = []
    for name in ("step_forward", "step_backward"):
        real = getattr(pointwise, name)
        monkeypatch.setattr(pointwise, name, lambda b, t, real=real: (runs.append(b.z.shape[1]), real(b, t)))
    for loop in (loop_forward, loop_forward, loop_backward):
        programs.capture(b, loop)
    assert held
    assert not any(held)  # one thread at a time
    b.d_output = torch.ones(R, S, B, H)
    programs.capture(b, loop_backward)
    assert runs == [2] * 2 + [5] * 10 + ([2] * 2 + [5] * 5) * 2  # each loop is warmed up once, with d_output anew
    assert all(mode == "thread_local" and isinstance(stream, Stream) for stream, mode in entered)
    programs.side_stream.cache_clear()


def test_after_a_capture_that_failed_another_one_ends(monkeypatch):
    """torch's generator is left capturing by the first."""
    state = {"capturing": False}

    @contextlib.contextmanager
    def recording(made, pool, stream, capture_error_mode):
        state["capturing"] = True
        yield  # as torch's own: what raises here leaves the state as it is
        state["capturing"] = False

    def fails(b):
        if b is not small:
            return  # warming up
        raise RuntimeError("operation not permitted")

    standing_in(monkeypatch, recording)
    small = Buffers(graph.Kernel("lstm"), (1, 2, 3), 4, torch.device("cpu"), False, False)
    with pytest.raises(RuntimeError, match="operation not permitted"):
        programs.capture(small, fails)
    assert not state["capturing"]
    programs.side_stream.cache_clear()


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_torchs_newer_precision_setting(precision, monkeypatch):
    """torch.get_float32_matmul_precision raises where that was set."""
    before = torch.backends.cuda.matmul.fp32_precision
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    try:
        torch.backends.cuda.matmul.fp32_precision = precision
        assert precision in programs.settings(torch.device("cpu"))
        graph.compare_kernels("coupled", torch.device("cpu"))
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
        torch.set_float32_matmul_precision("highest")
    for legacy, expected in (("high", True), ("highest", False)):
        torch.set_float32_matmul_precision(legacy)
        assert (programs.rounding() == "tf32") is expected


def test_a_float64_default_leaves_the_buffers_float32():
    model, x = PLSTM(3, 7), torch.randn(5, 2, 3)
    dt, mask = torch.rand(5, 2), torch.rand(5, 2) < 0.7
    expected = evaluate(model, "graph", torch.float32, x, None, dt, mask, False)
    torch.set_default_dtype(torch.float64)
    try:
        for kind in GATES:
            graph.compare_kernels(kind, torch.device("cpu"))
        b = Buffers(graph.Kernel("coupled"), (1, 2, 3), 4, torch.device("cpu"), True, True)
        dtypes = {v.dtype for v in vars(b).values() if isinstance(v, torch.Tensor)}
        assert dtypes == {torch.float32, torch.uint8}
        found = evaluate(model, "graph", torch.float32, x, None, dt, mask, False)
    finally:
        torch.set_default_dtype(torch.float32)
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


class Captured:
    count = replays = 0
    fails = False


@pytest.fixture
def captured(monkeypatch):
    Captured.count, Captured.replays, Captured.fails = 0, 0, False

    def capture(b, loop):
        if Captured.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore lines")
        Captured.count += 1
        return Replay(b, loop)

    monkeypatch.setattr(programs, "capture", capture)
    monkeypatch.setattr(programs, "captures", lambda x: True)
    monkeypatch.setattr(programs, "settings", lambda device: ())
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return Captured


def gradients(model, chosen, **arguments):
    losses = [model(x, **arguments)[0].square().sum() for x in chosen]
    return [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]


def test_captured_at_the_second_time_and_kept(captured):
    model = PLSTM(3, 20, engine="graph")
    x = torch.randn(9, 4, 3)
    first = gradients(model, [x])
    assert (captured.count, captured.replays) == (0, 0)
    for k in range(1, 5):
        for a, b in zip(first[0], gradients(model, [x])[0], strict=True):
            assert torch.equal(a, b)
        assert (captured.count, captured.replays) == (2, 2 * k)
    with torch.no_grad():
        output, _ = model(x)
        again, _ = model(2 * x)
    assert captured.count == 2
    assert not torch.equal(output, again)  # the first was not written over
    assert torch.equal(output, model(x)[0])


def test_live_calls_have_buffers_of_their_own(captured):
    """Also more calls than are captured at once, of two shapes, with the backward passes in any order."""
    model = PLSTM(3, 20, engine="graph")
    inputs = [torch.randn(s, b, 3) for s, b in ((9, 4), (9, 4), (5, 6), (9, 4), (9, 4), (5, 6), (9, 4))]
    alone = [gradients(model, [x])[0] for x in inputs]
    for chosen, expected in ((inputs, alone), (inputs[::-1], alone[::-1])):
        for grads, wanted in zip(gradients(model, chosen), expected, strict=True):
            for a, b in zip(grads, wanted, strict=True):
                assert torch.equal(a, b)
    (pool,) = [pool for cell, pool in graph._pools.items() if cell is model.layers[0]]
    assert set(pool._live.values()) == {0}
    assert len(pool._free) <= 4  # two of each shape


def test_last_step_alone_and_every_step_have_their_graphs(captured):
    model = PLSTM(3, 20, engine="graph")
    x = torch.randn(9, 4, 3)

    def last_and_all():
        last = torch.autograd.grad(model(x)[1][0].h.sum(), list(model.parameters()))
        return last + torch.autograd.grad(model(x)[0].sum(), list(model.parameters()))

    first = last_and_all()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, last_and_all(), strict=True))
    assert captured.count == 3


def test_retained_graph(captured):
    model = URLSTM(3, 20, engine="graph")
    for _ in range(2):
        loss = model(torch.randn(9, 4, 3))[0].square().sum()
        first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        model(torch.randn(9, 4, 3))[0].sum().backward()
        second = torch.autograd.grad(loss, list(model.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_buffers_come_back_and_die_with_their_cell(captured):
    model = LSTM(3, 20, engine="graph")
    x = torch.randn(9, 4, 3)
    model(x)
    for _ in range(5):
        model(x)  # its autograd node dies at once, without a backward pass
    assert captured.count == 1
    (kept,) = graph._pools[model.layers[0]]._free
    buffers = weakref.ref(kept[1].b)
    del kept, model
    gc.collect()
    assert buffers() is None


def test_no_more_is_kept_than_a_bound(captured, monkeypatch):
    monkeypatch.setattr(programs, "KEPT", 3)
    model = LSTM(3, 4, engine="graph")
    for S in (*range(1, 9), *range(1, 9)):
        model(torch.randn(S, 2, 3))
    assert captured.count == 3  # the other shapes come no more often than those kept, and run uncaptured
    for _ in range(4):
        model(torch.randn(8, 2, 3))
    assert captured.count == 4
    pool = graph._pools[model.layers[0]]
    assert len(pool._free) == 3
    assert any(program.b.z.shape[1] == 8 for _, program in pool._free)
    monkeypatch.setattr(programs, "KEPT", 99)
    monkeypatch.setattr(programs, "KEPT_BYTES", 0)
    for S in (*range(11, 20), *range(11, 20)):
        model(torch.randn(S, 2, 3))
    assert len(pool._free) == 4


def test_what_is_kept_gives_way_when_memory_is_short(captured):
    model = LSTM(3, 4, engine="graph")
    x = torch.randn(5, 2, 3)
    model(x)
    model(x)
    pool = graph._pools[model.layers[0]]
    (kept,) = pool._free
    asked = []

    def make():
        asked.append(len(pool._free))
        if len(asked) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return kept[1]

    pool._seen["other"] = 1
    assert pool.take("other", make) is kept[1]
    assert asked == [1, 0]


def test_a_capture_that_fails_is_said_once_by_auto_and_raised_by_name(captured, capsys):
    model = PLSTM(3, 20, engine="graph")
    x = torch.randn(9, 4, 3)
    expected = gradients(model, [x])[0]
    captured.fails = True
    with pytest.raises(RuntimeError, match=r"could not capture: RuntimeError: operation not .*; use engine='eager'"):
        model(x)
    cell = model.layers[0]
    for _ in range(4):
        output, _ = graph.run_or_eager(cell, x, cell.weights(), cell.initial_state(4))
        found = torch.autograd.grad(output.square().sum(), list(model.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    said = capsys.readouterr().err
    assert said.count("\n") == 1  # when it is given up
    assert "launched one by one: RuntimeError: operation not permitted" in said
    with pytest.raises(RuntimeError, match="could not capture"):  # what auto gave up is raised by name as before
        model(x)
    captured.fails = False
    model(x)
    assert captured.count == 1


def test_a_capture_may_fail_once(captured):
    """Something of the process may have come between, which need not be there the next time."""
    model, x = PLSTM(3, 20), torch.randn(9, 4, 3)
    cell = model.layers[0]
    for fails, captures in ((False, 0), (True, 0), (False, 1)):
        captured.fails = fails
        graph.run_or_eager(cell, x, cell.weights(), cell.initial_state(4))
        assert captured.count == captures


def test_what_came_first_is_raised_by_a_capture_that_failed(monkeypatch):
    """Its end raises an error of its own, which would hide that memory was short."""

    @contextlib.contextmanager
    def recording(made, pool, stream, capture_error_mode):
        try:
            yield
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    def fails(b):
        if b is small:  # and not warming up
            raise torch.OutOfMemoryError("CUDA out of memory")

    standing_in(monkeypatch, recording)
    small = Buffers(graph.Kernel("lstm"), (1, 2, 3), 4, torch.device("cpu"), False, False)
    try:
        raise KeyError("somebody else's, which is being handled")
    except KeyError:
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            programs.capture(small, fails)


def test_nothing_is_collected_while_a_graph_is_captured(monkeypatch):
    """An old graph that dies in a capture ends it."""
    seen = []

    @contextlib.contextmanager
    def recording(made, pool, stream, capture_error_mode):
        seen.append(gc.isenabled())
        yield

    standing_in(monkeypatch, recording)
    b = Buffers(graph.Kernel("lstm"), (1, 2, 3), 4, torch.device("cpu"), False, False)
    programs.capture(b, lambda b: None)
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("steps", [1, 15, 16, 17, 37])
def test_masked_lengths_are_made_few(steps, captured, monkeypatch):
    """Padding to a multiple of 16 changes nothing; the shapes that are captured are those of the padded lengths."""
    model, x, mask = PLSTM(3, 7), torch.randn(steps, 4, 3), torch.rand(steps, 4) < 0.7
    dt, made = torch.rand(steps, 4), []
    monkeypatch.setattr(graph, "Buffers", lambda *a: made.append(a[1][1]) or Buffers(*a))
    expected = evaluate(model, "eager", torch.float32, x, None, dt, mask, False)
    found = evaluate(model, "graph", torch.float32, x, None, dt, mask, False)
    for name in expected:
        close(found[name], expected[name], 1e-5)
    assert set(made) == {-(-steps // 16) * 16}


@pytest.mark.parametrize("masked", [False, True])
def test_long_sequences_are_evaluated_in_pieces(masked, monkeypatch):
    model, x = PLSTM(3, 7), torch.randn(70, 4, 3)
    dt, mask = torch.rand(70, 4), torch.rand(70, 4) < 0.7 if masked else None
    made = []
    monkeypatch.setattr(graph, "PIECE", 32)
    monkeypatch.setattr(graph, "Buffers", lambda *a: made.append(a[1][1]) or Buffers(*a))
    cell = model.layers[0]
    with torch.no_grad():
        output, state = graph.run(cell, x, cell.weights(), cell.initial_state(4), dt, mask)
        expected, end = eager.run(cell, x, cell.weights(), cell.initial_state(4), dt, mask)
    assert made == [32, 32, 6]
    close(output, expected, 1e-5)
    for a, b in zip(state, end, strict=True):
        close(a, b, 1e-5)


def test_a_capture_that_fails_in_backward(captured, capsys):
    model = PLSTM(3, 20, engine="graph")
    x, cell = torch.randn(9, 4, 3), model.layers[0]
    expected = gradients(model, [x])[0]
    output, _ = graph.run_or_eager(cell, x, cell.weights(), cell.initial_state(4))
    captured.fails = True
    found = torch.autograd.grad(output.square().sum(), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert capsys.readouterr().err == ""  # it is tried once more
    pool = graph._pools[cell]
    assert (set(pool._live.values()), pool._free) == ({0}, [])
    captured.fails = False
    loss = model(x)[0].sum()
    captured.fails = True
    with pytest.raises(RuntimeError, match="could not capture"):
        loss.backward()
    assert (set(pool._live.values()), pool._free) == ({0}, [])


def test_auto_goes_on_with_eager_where_the_engine_fails(monkeypatch, capsys):
    def broken(b, t):
        raise ValueError("no such kernel")

    monkeypatch.setattr(pointwise, "step_forward", broken)
    monkeypatch.setattr(graph, "_announced", set())
    model = PLSTM(3, 4)
    cell, x = model.layers[0], torch.randn(5, 2, 3)
    for _ in range(2):
        output, _ = graph.run_or_eager(cell, x, cell.weights(), cell.initial_state(2))
        assert torch.equal(output, eager.run(cell, x, cell.weights(), cell.initial_state(2))[0])
    assert capsys.readouterr().err == "timescales: no graph engine, something slower runs: ValueError: no such kernel\n"


# ------------------------------------------------------------------------------------------ what it refuses


def test_double_backward_is_refused():
    model = LSTM(3, 4, engine="graph")
    loss = model(torch.randn(3, 2, 3))[0].sum()
    with pytest.raises(RuntimeError, match=r"no second derivatives: .* use engine='eager'"):
        torch.autograd.grad(loss, model.layers[0].weight_hh, create_graph=True)


def test_changed_weights_are_noticed():
    model = LSTM(3, 4, engine="graph")
    loss = model(torch.randn(3, 2, 3))[0].sum()
    with torch.no_grad():
        model.layers[0].weight_hh.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_not_a_number_goes_through():
    not_a_number_goes_through("graph")


def test_by_name_says_why_it_cannot():
    x = torch.randn(5, 2, 3)
    for model, reason in (
        (GatedRNN(3, 4, gate="o", engine="graph"), r"the graph engine cannot run here: it has no kernel for Gated"),
        (LSTM(3, 4, engine="graph").double(), "x must be float32, not torch.float64"),
        (PLSTM(3, 4, engine="cudnn"), "the cudnn engine cannot run here: it has the plain LSTM alone"),
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
    dt = torch.rand(5, 2, requires_grad=True)
    model(torch.randn(5, 2, 3), dt=dt)[0].sum().backward()
    assert dt.grad.abs().sum() > 0


def test_inference_mode_and_no_gradients():
    model = PLSTM(3, 40, engine="graph")
    x, mask, dt = torch.randn(9, 7, 3), torch.rand(9, 7) < 0.7, torch.rand(9, 7)
    expected, _ = model(x, None, dt, mask)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            output, _ = model(x, None, dt, mask)
        assert torch.equal(output, expected)


# ------------------------------------------------------------------------------------------ cuDNN and the choice


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cudnn_engine_by_its_cpu_twin(shape):
    S, B, inputs, H = shape
    for model in (LSTM(inputs, H), GatedRNN(inputs, H, gate="-"), LSTM(inputs, H, forget_init="uniform")):
        x = torch.randn(S, B, inputs)
        compare(model, x, some_state(model, B), engine="cudnn")
        compare(model, x, last=True, engine="cudnn")


def test_cudnn_engine_takes_no_steps():
    model, state = LSTM(3, 5, engine="cudnn"), some_state(LSTM(3, 5), 2)
    output, after = model(torch.randn(0, 2, 3), state)
    assert output.shape == (0, 2, 5)
    assert torch.equal(after[0].c, state[0].c)


def test_cudnn_engine_keeps_float32_under_autocast():
    torch.manual_seed(0)
    model, x = LSTM(3, 5, 2, forget_init=6.0, engine="cudnn"), torch.randn(40, 2, 3)
    expected, _ = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, state = model(x)
        again, _ = model(x, state)  # taken as it was given
    assert torch.equal(output, expected)
    assert again.dtype == state[0].c.dtype == torch.float32


def measured(monkeypatch, text):
    rows = tuple(choice.Row(c, int(s), int(b), int(h), e, float(ms), d)
                 for c, s, b, h, e, ms, d in (line.split(",") for line in text.split()))  # fmt: skip
    monkeypatch.setattr(choice, "measured", lambda: rows)


def test_choice_by_the_nearest_measured_size(monkeypatch):
    measured(monkeypatch, """
        lstm,220,128,128,cudnn,1.0,H200 lstm,220,128,128,graph,2.0,H200
        lstm,784,100,512,cudnn,9.0,H200 lstm,784,100,512,graph,7.0,H200
        lstm,100,1,64,cudnn,1.0,H200
        lstm,784,100,512,cudnn,5.0,A100 lstm,784,100,512,graph,8.0,A100
        coupled,220,128,128,graph,2.0,H200 coupled,220,128,128,eager,80.0,H200
    """)  # fmt: skip
    assert choice.ranking("lstm", 200, 128, 100, "H200") == ["cudnn", "graph", "eager"]
    assert choice.ranking("lstm", 784, 100, 700, "H200") == ["graph", "cudnn", "eager"]
    assert choice.ranking("lstm", 784, 100, 700, "A100") == ["cudnn", "graph", "eager"]
    assert choice.ranking("lstm", 100, 1, 64, "H200")[0] == "cudnn"  # alone at its size: nothing was compared there
    assert choice.ranking("coupled", 1000, 1, 512, "L4") == ["graph", "eager", "cudnn"]
    assert choice.ranking("refine", 220, 128, 128, "H200") == list(choice.DEFAULT)
    assert choice.ranking("lstm", 450, 110, 260, "H200") == ["graph", "cudnn", "eager"]  # by ratios, not differences


def test_measurements_are_well_formed():
    with choice.MEASURED.open(newline="") as file:
        assert csv.DictReader(file).fieldnames == list(choice.Row._fields)
    for row in choice.measured():
        assert row.cell in GATES
        assert row.engine in choice.DEFAULT


def test_choice_on_a_gpu(monkeypatch):
    """What auto takes: by the ranking, the first that can run."""
    measured(monkeypatch, "")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H200")
    lstm, plstm, ordered = LSTM(3, 4).layers[0], PLSTM(3, 4).layers[0], GatedRNN(3, 4, gate="o").layers[0]
    x = torch.randn(5, 2, 3)
    assert engines.pick_on_gpu(lstm, x, masked=False) is cudnn.run
    assert engines.pick_on_gpu(lstm, x, masked=True) is graph.run_or_eager
    assert engines.pick_on_gpu(plstm, x, masked=False) is graph.run_or_eager
    assert engines.pick_on_gpu(lstm, x.unsqueeze(1), masked=False) is graph.run_or_eager  # replicas
    assert engines.pick_on_gpu(ordered, x, masked=False) is eager.run
    torch.use_deterministic_algorithms(True)
    try:
        assert engines.pick_on_gpu(lstm, x, masked=False) is graph.run_or_eager
    finally:
        torch.use_deterministic_algorithms(False)
    monkeypatch.setattr(graph, "unsupported_reason", lambda cell, x: "Triton is broken")
    assert engines.pick_on_gpu(plstm, x, masked=False) is eager.run


def test_the_trial_says_what_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(triton_kernels, "unavailable", None)
    monkeypatch.setattr(pointwise, "no_triton", "torch came without Triton; pip install triton")
    reason = graph.trial.__wrapped__("coupled", "cuda:0")
    assert reason == "RuntimeError: torch came without Triton; pip install triton; use engine='eager'"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("broken", "reason"), [
    ("raise OSError('libcuda.so.1: cannot open')", "importing Triton failed: OSError('libcuda.so.1: cannot open')"),
    ("raise ModuleNotFoundError(name='triton')", "torch came without Triton; pip install triton"),
])  # fmt: skip
def test_a_triton_that_cannot_be_imported(tmp_path, monkeypatch, broken, reason):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(broken)
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("another_pointwise", pointwise.__file__)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    assert found.triton is None
    assert found.no_triton == reason


@pytest.mark.parametrize(("task", "masks"), [("variable_copy", True), ("copy", False)])
def test_cudnn_on_a_task_with_masks_is_one_line(task, masks, train, tmp_path):
    found = train(f"task={task}", "model=lstm", "engine=cudnn", "device=cpu", "model.hidden_size=4", "logger=none",
                  "loop.max_steps=1", "task.batch_size=4", *sizes(task, 8, 4, 4), *SMALL.get(task, []))  # fmt: skip
    assert (found.status != 0) is masks, found
    if masks:
        (line,) = found.err.strip().splitlines()
        assert "the cudnn engine cannot run here: it cannot hold the state where a mask is 0; use engine='auto'" in line
        assert not list((tmp_path / "runs").glob("*/record.json"))


def test_the_bench_rehearses_and_auto_goes_by_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu

    monkeypatch.setattr(bench_gpu, "TRAININGS", {})
    bench_gpu.main(["--device", "cpu", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*.csv")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == "layer"]
    assert len(rows) == 17
    assert all(float(row["ms"]) > 0 and float(row["floor_ms"]) > 0 and not row["note"] for row in rows)
    assert "| tiny | graph coupled | fp32 |" in path.with_suffix(".md").read_text()
    numbers = [row | {"ms": float(row["ms"])} for row in rows]
    ms = {"graph coupled": 2.0, "nn.LSTM": 1.6, "eager coupled": 80.0}
    shown = [{"config": "A", "variant": name, "precision": "fp32", "ms": value} for name, value in ms.items()]
    assert [line.split(": ")[-1] for line in bench_gpu.targets(shown)] == ["missed", "met"]
    assert "40 times as fast" in bench_gpu.targets(shown)[1]
    # A line of another size was measured before, and one at this size is measured anew.
    (tmp_path / "measured.csv").write_text(
        "cell,S,B,H,engine,ms,device\nlstm,500,4,8,graph,3.0,H200\nlstm,8,4,8,graph,9000.0,H200\n"
        "lstm,8,4,8,graph,9000.0,L4\n"
    )
    monkeypatch.setattr(choice, "MEASURED", tmp_path / "measured.csv")
    choice.measured.cache_clear()
    try:
        for _ in range(2):
            assert choice.measured()  # cached
            bench_gpu.for_auto(numbers, bench_gpu.TINY, "H200", tmp_path / "measured.csv")
        assert choice.Row("lstm", 500, 4, 8, "graph", 3.0, "H200") in choice.measured()
        assert [row.device for row in choice.measured() if row.ms == 9000.0] == ["L4"]
        assert len({row._replace(ms=0.0) for row in choice.measured()}) == len(choice.measured())
        found = {row.engine for row in choice.measured() if row.cell == "lstm"}
        assert found == {"graph", "cudnn", "eager"}
        here = [row for row in choice.measured() if (row.cell, row.S, row.device) == ("lstm", 8, "H200")]
        fastest = min(here, key=lambda row: row.ms)
        assert choice.ranking("lstm", 8, 4, 8, "H200")[0] == fastest.engine
    finally:
        choice.measured.cache_clear()


def test_the_bench_counts_what_a_variant_keeps(monkeypatch):
    """Static buffers count, which are there before the step that is looked at."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu

    held = [2**20]
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: held[0])
    for name in ("reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(bench_gpu, "clocked", lambda step, device: 1.0)

    def make():
        held[0] += 5 * 2**20
        return lambda: None

    (row,) = bench_gpu.rows_of("A", {("graph coupled", "fp32"): make}, "cuda", 0.0)
    assert row["peak_MiB"] == 5.0


def test_the_bench_rehearses_whole_trainings(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu

    monkeypatch.setattr(bench_gpu, "TRAININGS", {name: bench_gpu.TRAININGS[name] for name in [bench_gpu.COMPARED]})
    rows = [row for found in bench_gpu.trainings("cpu", 0.01) for row in found]
    assert [row["variant"] for row in rows] == ["lstm", "plstm", "plstm eager", "plstm x16"]
    assert all(row["ms"] > 0 and "steps/s" in row["note"] for row in rows)
    assert len(bench_gpu.targets(rows)) == 2


# ------------------------------------------------------------------------------------------ compiling


@pytest.mark.parametrize("kind", GATES)
def test_kernels_compile_without_a_gpu(kind, tmp_path, monkeypatch):
    """The interpreter is lenient where the compiler is not. For the H100 and H200 (sm_90)."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    fixed = {"H": 100, "G": GATES[kind], "KIND": kind, "BLOCK": triton_kernels.BLOCK}
    if kind not in AGED:
        fixed |= dict.fromkeys(("age", "dage", "dpower", "power"))
    for absent in ({}, {"dt": None, "mask": None, "d_output": None}):
        for kernel in (triton_kernels.forward_kernel, triton_kernels.backward_kernel):
            constants = {name: value for name, value in (fixed | absent).items() if name in kernel.arg_names}
            types = dict.fromkeys(("t", "S", "B", "rows"), "i32") | {"epsilon": "fp32", "floor": "fp32", "mask": "*u8"}
            types |= dict.fromkeys(constants, "constexpr")
            signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
            made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
            assert len(made.asm["cubin"]) > 1000
