"""The cluster engine in its emulator against the eager engine in float64, and faults that the emulator must find.

What only a compiler for GPUs shows is in tests/nn/test_cluster_compile.py.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import cell_models
import pytest
import torch
from engine_cases import CELL_TOLERANCE, batched_seeds, close, compare, evaluate, some_state
from everyday import only

from timescales import LSTM, PLSTM, GatedRNN
from timescales.nn import engine as engines
from timescales.nn.engine import eager, equations, kept
from timescales.nn.engine.equations import of_cell
from timescales.nn.engine.gpu import choice, cluster, cluster_kernels, cuda, emit_cuda, emulate, graph
from timescales.nn.engine.gpu.buffers import Buffers
from timescales.nn.engine.gpu.emit_cuda import Sizes

HIDDEN = 12


def found_of(name):
    """The equations of a cell."""
    return of_cell(cell_models.model(name, 3, HIDDEN).layers[0], False)


def reason(name):
    """Why a cell has no such kernels; None if it has."""
    return emit_cuda.unsupported_reason(found_of(name), Sizes(HIDDEN))


CLUSTER = [name for name in cell_models.KERNELS if reason(name) is None]
ORDERED = [name for name in CLUSTER if any(block.is_expanded for block in found_of(name).blocks)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


@pytest.fixture
def sized(monkeypatch):
    """A function that sets the blocks and the sequences of a cluster, and the steps of a launch."""

    def set_sizes(blocks, sequences, steps=cluster_kernels.STEPS):
        monkeypatch.setattr(cluster, "sizes", lambda cell: Sizes(cell.hidden_size, blocks, sequences))
        monkeypatch.setattr(cluster_kernels, "STEPS", steps)

    return set_sizes


def random_calls(model, S, B, inputs):
    """Calls with and without dt, mask, state and gradient of the output."""
    x, dt, mask = torch.randn(S, B, inputs), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        yield x, some_state(model, B) if k % 2 else None, d, m, k in (1, 2)


# S, B, inputs, H, blocks and sequences of a cluster, steps of a launch. Neither are the units a multiple of the blocks,
# nor the sequences of the cluster's; a thread has two sequences in the last; a block of the second has no unit.
SHAPES = [(7, 5, 3, 13, 4, 4, 4), (6, 19, 2, 32, 8, 8, 6), (3, 3, 1, 9, 8, 8, 2), (5, 9, 2, 30, 4, 8, 2)]


@pytest.mark.parametrize("shape", only([SHAPES[0]], SHAPES), ids=str)
@pytest.mark.parametrize("name", only(["plstm", "gru"], ["lstm", "plstm", "plstm_separate", "gru", "gated_lstm_o"]))
def test_equals_eager(name, shape, sized):
    """Results and every gradient, in several launches."""
    S, B, inputs, H, blocks, sequences, steps = shape
    sized(blocks, sequences, steps)
    model = cell_models.model(name, inputs, H)
    for call in random_calls(model, S, B, inputs):
        compare("cluster", model, *call)


@pytest.mark.parametrize("name", only(["adversarial"], [name for name in CLUSTER if name not in ORDERED]))
def test_every_cell_equals_eager(name, sized):
    sized(4, 4)
    model = cell_models.model(name, 3, HIDDEN)
    for call in random_calls(model, 4, 5, 3):
        compare("cluster", model, *call, tolerance=CELL_TOLERANCE)


@pytest.mark.parametrize("name", only(["gated_gru_om_4"], ORDERED))
def test_cumax_and_fewer_rows_equal_eager(name, sized):
    """Rows of a gate that serve units of two blocks, blocks with fewer units and with none."""
    sized(8, 8, 3)
    model = cell_models.model(name, 3, 20)
    for call in random_calls(model, 4, 5, 3):
        compare("cluster", model, *call, tolerance=CELL_TOLERANCE)


def test_cumax_of_numbers_that_are_far_apart(sized):
    """Without the largest one subtracted, exponentials would be infinite; those of whole blocks are 0."""
    sized(4, 4)
    model = cell_models.model("gated_lstm_o", 3, 13)
    with torch.no_grad():
        for bias in model.layers[0].by_gate(model.layers[0].bias).values():
            bias += torch.tensor([-100.0] * 5 + [100.0] * 4 + [-100.0] * 4)
    compare("cluster", model, torch.randn(5, 5, 3))


def test_which_cells_have_such_kernels():
    """All with a recurrent product."""
    without = {name for name in cell_models.KERNELS if name not in CLUSTER}
    assert {reason(name) for name in without} == {"a cell without recurrent product is a scan; use engine='graph'"}
    assert without == {name for name in cell_models.KERNELS if found_of(name).is_scan}
    assert {"lstm", "ur", "plstm", "gru", "gated_lstm_o", "gated_gru_om_4"} <= {*CLUSTER}
    assert {name.partition("_4")[0][-2:] for name in ORDERED} == {"_o", "om", "um", "or"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "H"), [("lstm", 128), ("plstm", 128), ("plstm", 110), ("lstm", 256), ("gated_lstm_o", 110)]
)
def test_true_sizes(name, H):
    model = cell_models.model(name, 3, H)
    x, dt, mask = torch.randn(6, 11, 3), 2.0 * torch.rand(6, 11), torch.rand(6, 11) < 0.7
    compare("cluster", model, x, some_state(model, 11), dt, mask)


@pytest.mark.parametrize("name", only(["plstm", "gated_gru_om_4"], ["lstm", "plstm", "gru", "gated_gru_om_4"]))
def test_batched_seeds_equal_single_ones(name, sized):
    sized(4, 4)
    R, S, B, H = 3, 5, 7, 12 if name in ORDERED else 13
    cells = [cell_models.model(name, 3, H).layers[0] for _ in range(R)]
    together = batched_seeds(cells)
    x, factor = torch.randn(S, R, B, 3), torch.randn(S, R, B, H)
    dt, mask = 2.0 * torch.rand(S, R, B), torch.rand(S, R, B) < 0.7
    output, after = cluster.run(together, x, together.weights(), together.initial_state(R, B), dt, mask)
    gradients = torch.autograd.grad((output * factor).sum(), list(together.parameters()))
    for r, cell in enumerate(cells):
        y, end = eager.run(cell, x[:, r], cell.weights(), cell.initial_state(B), dt[:, r], mask[:, r])
        close(output[:, r], y)
        for a, b in zip(after, end, strict=True):
            close(a[r], b)
        expected = torch.autograd.grad((y * factor[:, r]).sum(), list(cell.parameters()))
        for found, wanted in zip(gradients, expected, strict=True):
            close(found[r], wanted)


@pytest.mark.parametrize("name", only(["plstm"], ["lstm", "plstm", "gru", "adversarial", "gated_gru_om_4"]))
def test_sequences_begin_again_and_return_states(name, sized):
    """With a launch that ends where a sequence begins again."""
    sized(4, 4, 2)
    model = cell_models.model(name, 3, 12)
    x, dt, mask, reset = torch.randn(7, 5, 3), 3.0 * torch.rand(7, 5), torch.rand(7, 5) < 0.6, torch.rand(7, 5) < 0.2
    reset[0, 0] = reset[2, 1:3] = reset[3:5, -1] = reset[-1, 0] = True
    for m, r, states in ((mask, reset, True), (None, reset, False), (mask, None, True)):
        compare("cluster", model, x, some_state(model, 5), dt, m, reset=r, states=states, tolerance=CELL_TOLERANCE)


@pytest.mark.full
@pytest.mark.parametrize("arguments", [{"zoneout_c": 0.2}, {"core": "gru"}], ids=str)
def test_zoneout_in_training_draws_what_eager_draws(arguments, sized):
    sized(4, 4)
    model = GatedRNN(3, 8, zoneout_h=0.3, gate="ur", **arguments).train()
    x, mask, found = torch.randn(7, 5, 3), torch.rand(7, 5) < 0.7, []
    for engine in ("cluster", "eager"):
        torch.manual_seed(5)
        found.append(evaluate(model, engine, torch.float32, x, some_state(model, 5), None, mask, False))
    for name, value in found[0].items():
        close(value, found[1][name], what=name)


@pytest.mark.full
def test_long_sequences_are_evaluated_in_pieces(sized, monkeypatch):
    sized(4, 4)
    monkeypatch.setattr(graph, "PIECE", 8)
    model = cell_models.model("plstm", 3, 13)
    cell, x = model.layers[0], torch.randn(20, 4, 3)
    with torch.no_grad():
        output, state = cluster.run(cell, x, cell.weights(), cell.initial_state(4))
        expected, end = eager.run(cell, x, cell.weights(), cell.initial_state(4))
    close(output, expected)
    for a, b in zip(state, end, strict=True):
        close(a, b)


@pytest.mark.parametrize("name", ["plstm", "gated_gru_om_4"])
def test_sums_have_a_fixed_order(name, sized):
    """Two calls, with the threads in another order, are equal to the last bit."""
    sized(4, 4)
    model = cell_models.model(name, 3, 12)
    x = torch.randn(7, 5, 3)
    first, second = (evaluate(model, "cluster", torch.float32, x, None, None, None, False) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


# ------------------------------------------------------------------------------------------ faults that are found

RING = "return numbers + ((of * NUMBERS + number) * EACH + e) * THREADS + threadIdx.x;"
FAULTS = {  # the text, which of its places, and what stands there instead
    "forward: no barrier before h of the other blocks comes": ("cluster_sync();", 2, ""),
    "forward: no barrier before the first step": ("cluster_sync();", 3, ""),
    "forward: no wait at the end of a step": ("cluster_wait();", 1, ""),
    "forward: one buffer for h": ("here = 1 - here;", 0, ""),
    "forward: a copy less is waited for": ("arrived<AHEAD>();", 0, "arrived<AHEAD + 1>();"),
    "forward: no copy is waited for": ("arrived<AHEAD>();", 0, ""),
    "backward: no barrier before the first step": ("cluster_sync();", 4, ""),
    "backward: no wait at the end of a step": ("cluster_wait();", 2, ""),
    "backward: no barrier of the block": ("block_sync();", 4, ""),
    "backward: a barrier for half of the threads": ("block_sync();", 4, "if (threadIdx.x < THREADS / 2) block_sync();"),
    "backward: one half for the shares": ("here = 1 - here;", 1, ""),
    "backward: a copy less is waited for": ("arrived<AHEAD>();", 1, "arrived<AHEAD + 1>();"),
    "backward: no copy is waited for": ("arrived<AHEAD>();", 1, ""),
    "a ring of one step less": (RING, 0, RING.replace("(of *", "(of % AHEAD *")),
}
FAULTS_OF_CUMAX = {
    "forward: no barrier before the numbers of the other blocks": ("cluster_sync();", 0, ""),
    "forward: no barrier of the block before the largest number": ("block_sync();", 1, ""),
    "forward: no barrier of the block before its sum": ("block_sync();", 2, ""),
    "forward: the block tells what it has to itself alone": (
        "remote_store(&of_block(e, k, which, p.rank), g, value);",
        0,
        "of_block(e, k, which, p.rank) = value;",
    ),
    "backward: no barrier before the numbers of the other blocks": ("cluster_sync();", 1, ""),
    "backward: no barrier of the block": ("block_sync();", 3, ""),
}


def with_faults(text, faults):
    """The text with every fault, each of which happens where `fault` has its number, from 1 on."""
    places = {}
    for number, (original, which, instead) in enumerate(faults.values(), 1):
        at = -1
        for _ in range(which + 1):
            at = text.index(original, at + 1)
        places.setdefault((at, original), []).append(f"if (fault == {number}) {{ {instead} }} else ")
    for (at, original), alternatives in sorted(places.items(), reverse=True):
        text = f"{text[:at]}{''.join(alternatives)}{{ {original} }}{text[at + len(original) :]}"
    return f'extern "C" int fault = 0;\n{text}'


@pytest.mark.parametrize(("name", "faults"), [("plstm", FAULTS), ("gated_lstm_o", FAULTS_OF_CUMAX)], ids=["plstm", "o"])
def test_the_emulator_finds_planted_faults(name, faults, monkeypatch):
    """Each in three orders of the threads; without a fault all is right."""
    model = cell_models.model(name, 3, 13)
    cell, sizes = model.layers[0], Sizes(13, 4, 4)
    found = equations.known(cell, False)
    functions, kernels = emit_cuda.texts()
    monkeypatch.setattr(emit_cuda, "texts", lambda: (functions, with_faults(kernels, faults)))
    planted = emit_cuda.Kernels(emit_cuda.code(found, sizes), sizes)
    fault = ctypes.c_int.in_dll(emulate.compiled(planted.code), "fault")
    (state,) = some_state(model, 5)
    x, factor, missed = torch.randn(7, 5, 3), torch.randn(7, 5, 13), []

    def run(engine):
        output, _ = engine(cell, x, cell.weights(), state)
        return [output, *torch.autograd.grad((output * factor).sum(), list(cell.parameters()))]

    def faulty(*arguments):
        return graph.run(*arguments, found=found, cluster=lambda *_: planted)

    expected = run(eager.run)
    for number, fault_name in enumerate(["nothing", *faults]):
        for order in range(3):
            fault.value = number
            monkeypatch.setattr(emulate, "orders", itertools.count(10 * order))
            try:
                for a, b in zip(run(faulty), expected, strict=True):
                    close(a, b)
            except (AssertionError, RuntimeError):
                assert number, "the kernels without a fault are wrong"
            else:
                missed.append((fault_name, order))
    assert missed == [("nothing", order) for order in range(3)], missed


# ------------------------------------------------------------------------------------------ which calls it takes


def test_by_name_says_why_it_cannot(monkeypatch):
    x = torch.randn(5, 2, 3)
    for model, reason in (
        (LSTM(3, 4, engine="cluster").double(), "x must be float32, not torch.float64"),
        (
            GatedRNN(3, 192, gate="om", engine="cluster"),
            "must fit into registers: at most 168 units; use engine='graph'",
        ),
        (LSTM(3, 257, engine="cluster"), "must fit into registers: at most 256 units; use engine='graph'"),
    ):
        with pytest.raises(ValueError, match=reason):
            model(x.to(model.layers[0].weight_hh.dtype))
    model = LSTM(3, 4, engine="cluster")
    there = SimpleNamespace(is_cuda=True, device=torch.device("cuda:0"))
    monkeypatch.setattr(graph, "plain_reason", lambda cell, x: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    reason = cluster.unsupported_reason(model.layers[0], there)
    assert reason == "it needs compute capability 9.0, and this GPU has 8.6; use engine='graph'"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(cluster, "trial", lambda *a: None)
    assert cluster.unsupported_reason(model.layers[0], there) is None


def test_auto_takes_it_only_where_it_was_measured_to_be_fastest(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H200")
    cell, x = PLSTM(3, 4).layers[0], torch.randn(5, 2, 3)
    for ms, chosen in ((None, graph.run_or_eager), (1.0, cluster.run_or_graph), (3.0, graph.run_or_eager)):
        rows = [choice.Row("PLSTMCell", 5, 2, 4, "graph", 2.0, "H200")]
        rows += [] if ms is None else [choice.Row("PLSTMCell", 5, 2, 4, "cluster", ms, "H200")]
        monkeypatch.setattr(choice, "measured", lambda rows=rows: tuple(rows))
        assert engines.pick_on_gpu(cell, x, masked=False) is chosen
        assert engines.pick_on_gpu(cell, x, masked=False, stepwise=True) is chosen
    rows[-1] = rows[-1]._replace(ms=1.0)
    monkeypatch.setattr(cluster, "unsupported_reason", lambda *a: "its kernels are wrong")
    assert engines.pick_on_gpu(cell, x, masked=False) is graph.run_or_eager


def test_the_trial_finds_wrong_kernels(sized, monkeypatch, capsys):
    sized(4, 4)
    monkeypatch.setattr(kept, "TRIED", {})
    cell = PLSTM(2, 13).layers[0]
    found, device = equations.known(cell, False), torch.device("cpu")
    assert cluster.trial(cell, found, device) is None
    real = cluster_kernels.run_backward
    monkeypatch.setattr(cluster_kernels, "run_backward", lambda b: (real(b), b.d_states[1].mul_(1.01)))
    monkeypatch.setattr(kept, "TRIED", {})
    assert cluster.trial(cell, found, device).startswith("its compiled PLSTMCell is wrong: the gradient of c")
    assert "timescales: no cluster engine, something slower runs: its compiled" in capsys.readouterr().err


@pytest.mark.parametrize("engine", [cluster, graph])
def test_a_trial_in_another_precision_is_another_one(engine, sized, monkeypatch):
    """What is half a percent off is wrong in float32, and as good as products are in TF32."""
    sized(4, 4)
    monkeypatch.setattr(kept, "TRIED", {})
    monkeypatch.setattr(kept, "SAID", set())
    cell = PLSTM(2, 13).layers[0]
    found, device = equations.known(cell, False), torch.device("cpu")
    real = graph._run_on

    def off(*arguments):
        output, last = real(*arguments)
        return 1.005 * output, last

    monkeypatch.setattr(graph, "_run_on", off)
    for precision, wrong in (("highest", True), ("high", False), ("highest", True)):
        torch.set_float32_matmul_precision(precision)
        try:
            reason = engine.trial(cell, found, device)
        finally:
            torch.set_float32_matmul_precision("highest")
        assert (reason is not None) is wrong, (precision, reason)
    assert len(kept.TRIED) == 2


def test_auto_goes_on_with_the_graph_engine_where_it_fails(monkeypatch, capsys):
    def fails(b):
        raise cuda.CudaError("cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (1)")

    monkeypatch.setattr(cluster_kernels, "run_forward", fails)
    monkeypatch.setattr(kept, "SAID", set())
    cell, x = PLSTM(3, 4).layers[0], torch.randn(5, 2, 3)
    for _ in range(2):
        output, _ = cluster.run_or_graph(cell, x, cell.weights(), cell.initial_state(2))
        close(output, eager.run(cell, x, cell.weights(), cell.initial_state(2))[0])
    assert capsys.readouterr().err.count("no cluster engine, something slower runs: CudaError: cuLaunchKernel") == 1


def test_a_launch_gives_the_driver_the_struct_by_value(sized, monkeypatch):
    """A driver that is not there gets what the emulator gets: the same results."""
    sized(4, 4)
    calls = []

    class Driver:
        def cuLaunchKernel(self, function, *rest):
            *sizes, shared, stream, parameters, extra = rest
            (address,) = parameters
            calls.append((function, sizes, shared, stream.value, extra))
            size = ctypes.sizeof(ctypes.c_int64) * len(given[-1])
            return 0 if ctypes.string_at(address, size) == bytes(given[-1]) else 1

    given = []
    monkeypatch.setattr(cuda, "driver", Driver)
    cell = PLSTM(3, 13).layers[0]
    found = equations.known(cell, True)
    b = Buffers(found, (2, 5, 7), 13, torch.device("cpu"), True, True, True, cluster=cluster.kernels_of(cell, found))
    given.append(cluster_kernels.arguments_of(cluster_kernels.tensors(b), (0, 5, 5, 7)))
    cuda.launch("backward", given[-1], (b.cluster.sizes.grid(7), 2), 32, SimpleNamespace(cuda_stream=17))
    assert calls == [("backward", [8, 2, 1, 32, 1, 1], 0, 17, None)]
    assert given[-1][0] == b.z.data_ptr()
    assert (given[-1][-2], given[-1][-1]) == (5 << 32, 5 | 7 << 32)
