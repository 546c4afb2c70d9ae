"""The cluster engine in its emulator against the eager engine in float64, and faults that the emulator must find.

What only a compiler for GPUs shows is in tests/nn/test_cluster_compile.py.
"""

from __future__ import annotations

import ctypes
import itertools

import cell_models
import pytest
import torch
from engine_cases import CELL_TOLERANCE, batched_seeds, close, compare, evaluate, some_state
from everyday import only

from timescales import GatedRNN
from timescales.nn.engine import eager, equations
from timescales.nn.engine.equations import of_cell
from timescales.nn.engine.gpu import cluster, cluster_kernels, emit_cuda, emulate, graph
from timescales.nn.engine.gpu.emit_cuda import Sizes

HIDDEN = 12


def reason(name):
    """Why a cell has no such kernels; None if it has."""
    return emit_cuda.unsupported_reason(of_cell(cell_models.model(name, 3, HIDDEN).layers[0], False), Sizes(HIDDEN))


ELEMENTWISE = [name for name in cell_models.KERNELS if reason(name) is None]


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
@pytest.mark.parametrize("name", only(["plstm", "gru"], ["lstm", "plstm", "plstm_separate", "gru"]))
def test_equals_eager(name, shape, sized):
    """Results and every gradient, in several launches."""
    S, B, inputs, H, blocks, sequences, steps = shape
    sized(blocks, sequences, steps)
    model = cell_models.model(name, inputs, H)
    for call in random_calls(model, S, B, inputs):
        compare("cluster", model, *call)


@pytest.mark.parametrize("name", only(["adversarial"], ELEMENTWISE))
def test_every_cell_equals_eager(name, sized):
    sized(4, 4)
    model = cell_models.model(name, 3, HIDDEN)
    for call in random_calls(model, 4, 5, 3):
        compare("cluster", model, *call, tolerance=CELL_TOLERANCE)


def test_which_cells_have_such_kernels():
    """All with a recurrent product, but those with a cumax or fewer rows than units."""
    without = {name: reason(name) for name in cell_models.KERNELS if name not in ELEMENTWISE}
    scans = {name for name in without if of_cell(cell_models.model(name, 3, HIDDEN).layers[0], False).is_scan}
    assert {without[name] for name in scans} == {"a cell without recurrent product is a scan; use engine='graph'"}
    expanded = without.keys() - scans
    assert {name for name in expanded if not name.startswith("gated_")} == set()
    assert {without[name] for name in expanded} == {
        "it has no cumax, and as many rows as units in each gate; use engine='graph'"
    }
    assert {"lstm", "ur", "plstm", "gru", "mts_um" if "mts_um" in cell_models.KERNELS else "janet"} <= {*ELEMENTWISE}
    assert len(ELEMENTWISE) >= 20


@pytest.mark.full
@pytest.mark.parametrize(("name", "H"), [("lstm", 128), ("plstm", 128), ("plstm", 110), ("lstm", 256)])
def test_true_sizes(name, H):
    model = cell_models.model(name, 3, H)
    x, dt, mask = torch.randn(6, 11, 3), 2.0 * torch.rand(6, 11), torch.rand(6, 11) < 0.7
    compare("cluster", model, x, some_state(model, 11), dt, mask)


@pytest.mark.parametrize("name", only(["plstm"], ["lstm", "plstm", "gru"]))
def test_batched_seeds_equal_single_ones(name, sized):
    sized(4, 4)
    R, S, B, H = 3, 5, 7, 13
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


def test_sums_have_a_fixed_order(sized):
    """Two calls, with the threads in another order, are equal to the last bit."""
    sized(4, 4)
    model = cell_models.model("plstm", 3, 13)
    x = torch.randn(7, 5, 3)
    first, second = (evaluate(model, "cluster", torch.float32, x, None, None, None, False) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


# ------------------------------------------------------------------------------------------ faults that are found

RING = "return numbers + ((of * NUMBERS + number) * EACH + e) * THREADS + threadIdx.x;"
FAULTS = {  # the text, which of its places, and what stands there instead
    "forward: no barrier before h of the other blocks comes": ("cluster_sync();", 0, ""),
    "forward: no barrier before the first step": ("cluster_sync();", 1, ""),
    "forward: no wait at the end of a step": ("cluster_wait();", 1, ""),
    "forward: one buffer for h": ("here = 1 - here;", 0, ""),
    "forward: a copy less is waited for": ("arrived<AHEAD>();", 0, "arrived<AHEAD + 1>();"),
    "forward: no copy is waited for": ("arrived<AHEAD>();", 0, ""),
    "backward: no barrier before the first step": ("cluster_sync();", 2, ""),
    "backward: no wait at the end of a step": ("cluster_wait();", 2, ""),
    "backward: no barrier of the block": ("block_sync();", 1, ""),
    "backward: a barrier for half of the threads": ("block_sync();", 1, "if (threadIdx.x < THREADS / 2) block_sync();"),
    "backward: one half for the shares": ("here = 1 - here;", 1, ""),
    "backward: a copy less is waited for": ("arrived<AHEAD>();", 1, "arrived<AHEAD + 1>();"),
    "backward: no copy is waited for": ("arrived<AHEAD>();", 1, ""),
    "a ring of one step less": (RING, 0, RING.replace("(of *", "(of % AHEAD *")),
}


def with_faults(text):
    """The text with every fault, each of which happens where `fault` has its number, from 1 on."""
    places = {}
    for number, (original, which, instead) in enumerate(FAULTS.values(), 1):
        at = -1
        for _ in range(which + 1):
            at = text.index(original, at + 1)
        places.setdefault((at, original), []).append(f"if (fault == {number}) {{ {instead} }} else ")
    for (at, original), alternatives in sorted(places.items(), reverse=True):
        text = f"{text[:at]}{''.join(alternatives)}{{ {original} }}{text[at + len(original) :]}"
    return f'extern "C" int fault = 0;\n{text}'


def test_the_emulator_finds_planted_faults(monkeypatch):
    """Each in three orders of the threads; without a fault all is right."""
    model = cell_models.model("plstm", 3, 13)
    cell, sizes = model.layers[0], Sizes(13, 4, 4)
    found = equations.known(cell, False)
    functions, kernels = emit_cuda.texts()
    monkeypatch.setattr(emit_cuda, "texts", lambda: (functions, with_faults(kernels)))
    planted = cluster_kernels.Kernels(emit_cuda.code(found, sizes), sizes)
    fault = ctypes.c_int.in_dll(emulate.library(planted.code), "fault")
    (state,) = some_state(model, 5)
    x, factor, missed = torch.randn(7, 5, 3), torch.randn(7, 5, 13), []

    def run(engine):
        output, _ = engine(cell, x, cell.weights(), state)
        return [output, *torch.autograd.grad((output * factor).sum(), list(cell.parameters()))]

    def faulty(*arguments):
        return graph.run(*arguments, found=found, cluster=planted)

    expected = run(eager.run)
    for number, name in enumerate(["nothing", *FAULTS]):
        for order in range(3):
            fault.value = number
            monkeypatch.setattr(emulate, "orders", itertools.count(10 * order))
            try:
                for a, b in zip(run(faulty), expected, strict=True):
                    close(a, b)
            except (AssertionError, RuntimeError):
                assert number, "the kernels without a fault are wrong"
            else:
                missed.append((name, order))
    assert missed == [("nothing", order) for order in range(3)], missed
