"""CUDA graphs of the graph engine, their pool and their failures, with stand-ins for CUDA."""

from __future__ import annotations

import contextlib
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import cell_models
import pytest
import torch
from engine_cases import (
    batched_seeds,
    close,
    evaluate,
)

from timescales import LSTM, PLSTM, URLSTM, GatedRNN
from timescales.nn.cells import Cell
from timescales.nn.cells.gates import cumax
from timescales.nn.engine import eager, kept
from timescales.nn.engine.equations import of_cell
from timescales.nn.engine.gpu import capture, graph, graph_function, pointwise
from timescales.nn.engine.gpu.buffers import Buffers
from timescales.nn.engine.gpu.loops import loop_backward, loop_forward


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


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
    for name, value in (
        ("Stream", Stream),
        ("CUDAGraph", object),
        ("graph", recording),
        ("stream", lambda stream: contextlib.nullcontext()),
        ("synchronize", lambda: None),
        ("current_stream", lambda device=None: Stream()),
        ("graph_pool_handle", lambda: (0, 1)),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(capture, "WARMED", set())
    capture.side_stream.cache_clear()


def some_buffers(steps=2, name="lstm", everything=False):
    """Buffers on the CPU, of ones."""
    cell = cell_models.model(name, 3, 4).layers[0]
    b = Buffers(of_cell(cell, everything), (2, steps, 3), 4, torch.device("cpu"), everything, everything, everything)
    for tensor in b.tensors():
        tensor.fill_(1.0)
    return b


@pytest.mark.parametrize("name", ["lstm", "ur", "plstm", "gru", "gated_lstm_om_4"])
def test_capture_warms_up_in_other_buffers(name, monkeypatch):
    """The real `graph_of`, with streams that do nothing and a recording that runs at once."""
    entered = []

    @contextlib.contextmanager
    def recording(made, pool, stream, capture_error_mode):
        entered.append((stream, capture_error_mode))
        with ThreadPoolExecutor() as other:
            held.append(other.submit(capture._lock.acquire, False).result())
        yield

    held = []
    standing_in(monkeypatch, recording)
    b = some_buffers(5, name, everything=True)
    runs = []
    for name in ("step_forward", "step_backward"):
        real = getattr(pointwise, name)
        monkeypatch.setattr(pointwise, name, lambda b, t, real=real: (runs.append(b.z.shape[1]), real(b, t)))
    for loop in (loop_forward, loop_forward, loop_backward):
        capture.graph_of(b, loop)
    assert held
    assert not any(held)  # one thread at a time
    b.d_output = torch.ones(2, 5, 3, 4)
    capture.graph_of(b, loop_backward)
    assert runs == [2] * 2 + [5] * 10 + ([2] * 2 + [5] * 5) * 2  # each loop is warmed up once, and again with d_output
    assert all(mode == "thread_local" and isinstance(stream, Stream) for stream, mode in entered)
    capture.side_stream.cache_clear()


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
    small = some_buffers()
    with pytest.raises(RuntimeError, match="operation not permitted"):
        capture.graph_of(small, fails)
    assert not state["capturing"]
    capture.side_stream.cache_clear()


class Captured:
    count = replays = 0
    fails = False


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_torchs_newer_precision_setting(precision, monkeypatch):
    """torch.get_float32_matmul_precision raises where that was set."""
    before = torch.backends.cuda.matmul.fp32_precision
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    try:
        torch.backends.cuda.matmul.fp32_precision = precision
        assert precision in capture.settings(torch.device("cpu"))
        cell = PLSTM(3, 4).layers[0]
        monkeypatch.setattr(kept, "TRIED", {})
        assert graph.trial(cell, of_cell(cell, timed=True), torch.device("cpu")) is None
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
        torch.set_float32_matmul_precision("highest")
    for legacy, expected in (("high", True), ("highest", False)):
        torch.set_float32_matmul_precision(legacy)
        assert (capture.rounding() == "tf32") is expected


@pytest.fixture
def captured(monkeypatch):
    Captured.count, Captured.replays, Captured.fails = 0, 0, False

    def graph_of(b, loop):
        if Captured.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore lines")
        Captured.count += 1
        return Replay(b, loop)

    monkeypatch.setattr(capture, "graph_of", graph_of)
    monkeypatch.setattr(capture, "is_wanted", lambda x: True)
    monkeypatch.setattr(capture, "settings", lambda device: ())
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return Captured


@pytest.mark.parametrize("name", ["plstm", "gated_lstm_om_4", "zoneout"])
def test_the_trial_is_captured(name, captured, monkeypatch):
    monkeypatch.setattr(kept, "TRIED", {})
    model = GatedRNN(3, 8, zoneout_h=0.3) if name == "zoneout" else cell_models.model(name, 3, 8)
    cell = model.layers[0]
    for _ in range(2):
        assert graph.trial(cell, of_cell(cell, timed=True), torch.device("cpu")) is None
    assert captured.count == 2  # forward and backward, once
    assert not graph.POOLS.get(cell)


def gradients(model, chosen, **arguments):
    losses = [model(x, **arguments)[0].square().sum() for x in chosen]
    return [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]


def test_replicas_are_padded_and_cut_as_single_runs_are(captured, monkeypatch):
    monkeypatch.setattr(graph, "PIECE", 8)
    singles = [PLSTM(3, 7).layers[0] for _ in range(2)]
    cell = batched_seeds(singles)
    x, dt, mask = torch.randn(21, 2, 4, 3), torch.rand(21, 2, 4), torch.rand(21, 2, 4) < 0.7
    for keeps in (True, False):  # padded to 32 steps; in pieces of 8, 8 and 5, the last of them padded
        with torch.set_grad_enabled(keeps):
            output, state = graph.run(cell, x, cell.weights(), cell.initial_state(2, 4), dt, mask)
        assert output.shape == (21, 2, 4, 7)
        for k, one in enumerate(singles):
            expected, end = eager.run(one, x[:, k], one.weights(), one.initial_state(4), dt[:, k], mask[:, k])
            close(output[:, k].detach(), expected.detach(), 1e-5)
            close(state.age[k].detach(), end.age.detach(), 1e-5)


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
    (pool,) = [pool for cell, pool in graph.POOLS.items() if cell is model.layers[0]]
    assert set(pool._live.values()) == {0}
    assert len(pool._free) <= 4  # two of each shape


def test_last_step_alone_and_every_step_have_their_graphs(captured):
    model = PLSTM(3, 20, engine="graph")
    x = torch.randn(9, 4, 3)

    def last_and_all():
        last = torch.autograd.grad(model(x)[1].h.sum(), list(model.parameters()))
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
    (kept,) = graph.POOLS[model.layers[0]]._free
    buffers = weakref.ref(kept[1].b)
    del kept, model
    gc.collect()
    assert buffers() is None


def test_no_more_is_kept_than_a_bound(captured, monkeypatch):
    monkeypatch.setattr(capture, "KEPT", 3)
    model = LSTM(3, 4, engine="graph")
    for S in (*range(1, 9), *range(1, 9)):
        model(torch.randn(S, 2, 3))
    assert captured.count == 3  # the other shapes come no more often than those kept, and run uncaptured
    for _ in range(4):
        model(torch.randn(8, 2, 3))
    assert captured.count == 4
    pool = graph.POOLS[model.layers[0]]
    assert len(pool._free) == 3
    assert any(program.b.z.shape[1] == 8 for _, program in pool._free)
    monkeypatch.setattr(capture, "KEPT", 99)
    monkeypatch.setattr(capture, "KEPT_BYTES", 0)
    for S in (*range(11, 20), *range(11, 20)):
        model(torch.randn(S, 2, 3))
    assert len(pool._free) == 4


def test_what_is_kept_gives_way_when_memory_is_short(captured):
    model = LSTM(3, 4, engine="graph")
    x = torch.randn(5, 2, 3)
    model(x)
    model(x)
    pool = graph.POOLS[model.layers[0]]
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
    small = some_buffers()
    try:
        raise KeyError("somebody else's, which is being handled")
    except KeyError:
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            capture.graph_of(small, fails)


def test_nothing_is_collected_while_a_graph_is_captured(monkeypatch):
    """An old graph that dies in a capture ends it."""
    seen = []

    @contextlib.contextmanager
    def recording(made, pool, stream, capture_error_mode):
        seen.append(gc.isenabled())
        yield

    standing_in(monkeypatch, recording)
    b = some_buffers()
    capture.graph_of(b, lambda b: None)
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("steps", [1, 15, 16, 17, 37])
def test_masked_lengths_are_made_few(steps, captured, monkeypatch):
    """Padding to a multiple of 16 changes nothing; the shapes that are captured are those of the padded lengths."""
    model, x, mask = PLSTM(3, 7), torch.randn(steps, 4, 3), torch.rand(steps, 4) < 0.7
    dt, made = torch.rand(steps, 4), []
    monkeypatch.setattr(graph_function, "Buffers", lambda *a: made.append(a[1][1]) or Buffers(*a))
    expected = evaluate(model, "eager", torch.float32, x, None, dt, mask, False)
    found = evaluate(model, "graph", torch.float32, x, None, dt, mask, False)
    for name in expected:
        close(found[name], expected[name], 1e-5)
    assert set(made) == {-(-steps // 16) * 16}


def test_a_capture_that_fails_in_backward(captured, capsys):
    model = PLSTM(3, 20, engine="graph")
    x, cell = torch.randn(9, 4, 3), model.layers[0]
    expected = gradients(model, [x])[0]
    output, _ = graph.run_or_eager(cell, x, cell.weights(), cell.initial_state(4))
    captured.fails = True
    found = torch.autograd.grad(output.square().sum(), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert capsys.readouterr().err == ""  # it is tried once more
    pool = graph.POOLS[cell]
    assert (set(pool._live.values()), pool._free) == ({0}, [])
    captured.fails = False
    loss = model(x)[0].sum()
    captured.fails = True
    with pytest.raises(RuntimeError, match="could not capture"):
        loss.backward()
    assert (set(pool._live.values()), pool._free) == ({0}, [])


@pytest.mark.parametrize("name", ["plstm", "gru", "gated_lstm_om_4", "odd"])
def test_calls_with_other_equations_have_their_own_graphs(name, captured):
    """With dt, with its gradient, and without it."""
    model = cell_models.model(name, 3, 8)
    cell, x, mask = model.layers[0], torch.randn(9, 4, 3), torch.rand(9, 4) < 0.7
    dt = torch.rand(9, 4)
    for _ in range(4):
        for given in (None, dt, dt.clone().requires_grad_()):
            results = []
            for run in (graph.run, eager.run):
                output, _ = run(cell, x, cell.weights(), cell.initial_state(4), given, mask)
                wanted = list(cell.parameters()) if given is None else [*cell.parameters(), given]
                wanted = [v for v in wanted if v.requires_grad]
                results.append([output, *torch.autograd.grad(output.square().sum(), wanted, allow_unused=True)])
            for a, b in zip(*results, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    close(a, b)
    assert captured.count == (6 if name in ("plstm", "odd") else 2)


class Narrow(Cell):
    """A gate with half as many rows as units: its cumax, or its pre-activations themselves."""

    gates = ("narrow", "wide")

    class State(NamedTuple):
        h: torch.Tensor

    is_cumax = True

    def height(self, gate):
        return self.hidden_size // (2 if gate == "narrow" else 1)

    def step(self, gx, gh, state, dt=1.0):
        narrow, wide = (gx + gh).split([self.hidden_size // 2, self.hidden_size], -1)
        return self.State((cumax(narrow) if self.is_cumax else narrow).repeat_interleave(2, -1) * wide.tanh())


@torch.no_grad()
def test_the_same_kernels_with_another_expansion_have_their_own_graph(captured):
    cell, x = Narrow(3, 8), torch.randn(9, 4, 3)
    for k in range(6):
        cell.is_cumax = k % 2 == 0
        output, _ = graph.run(cell, x, cell.weights(), cell.initial_state(4))
        expected, _ = eager.run(cell, x, cell.weights(), cell.initial_state(4))
        close(output, expected)
    assert captured.count == 2


def test_zoneout_draws_new_numbers_in_every_replay(captured):
    model, x = GatedRNN(3, 8, zoneout_h=0.5), torch.randn(9, 4, 3)
    model.engine = "graph"
    for _ in range(3):
        outputs = [model(x)[0] for _ in range(2)]
        assert not torch.equal(*outputs)
    model.eval()
    for _ in range(3):
        assert torch.equal(*(model(x)[0] for _ in range(2)))
    assert captured.count == 4  # two live calls, in training and in evaluation
