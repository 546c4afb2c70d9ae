"""The graph engine's scan over time in chunks, in torch, against the eager engine; which cells it takes; its kernels.

test_triton.py runs the kernels in Triton's interpreter.
"""

import itertools
from typing import NamedTuple

import cell_models
import pytest
import torch
from engine_cases import TOLERANCE, batched_seeds, close, compare, gradient, some_state, without_resets
from everyday import only
from scan_cells import NO_SCANS, Clock, Factor, Growing, Late
from torch import Tensor
from torch.nn.functional import softplus

import timescales
from timescales.nn.cells import Cell
from timescales.nn.engine import kept, scalar
from timescales.nn.engine.affine import affine, affine_or_reason
from timescales.nn.engine.bounds import bounds
from timescales.nn.engine.equations import of_cell
from timescales.nn.engine.gpu import buffers, emit_scan, emit_triton, graph, loops, scan

KINDS = ("mingru", "minlstm", "plscan", "plscan_fixed_p", "lru")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def of(kind, inputs, hidden):
    rnn = cell_models.model(kind, inputs, hidden)
    if kind == "lru":  # a gradient of theta grows with the steps that a unit remembers
        rnn.layers[0].nu_log.data.clamp_(min=-3.0)
    return rnn


@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_equal_eager(kind, chunk, monkeypatch):
    """23 steps: in chunks of one step, in 6 of which the last is short, and in two."""
    monkeypatch.setattr(buffers, "CHUNK", chunk)
    S, B, H = 23, 4, 7
    model = of(kind, 3, H)
    x, dt, mask = torch.randn(S, B, 3), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    mask[8:16, 1] = False  # whole chunks that do not exist
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("graph", model, x, some_state(model, B) if k % 2 else None, d, m, last=k in (1, 2))


def test_one_step_is_one_chunk():
    model = of("plscan", 3, 7)
    compare("graph", model, torch.randn(1, 4, 3), some_state(model, 4), torch.rand(1, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_batched_seeds(kind, monkeypatch):
    """As each would be alone, results and gradients."""
    monkeypatch.setattr(buffers, "CHUNK", 4)
    R, S, B, H = 3, 14, 4, 8
    cells = [of(kind, 5, H).layers[0] for _ in range(R)]
    together = batched_seeds(cells)
    x, mask = torch.randn(S, R, B, 5, requires_grad=True), torch.rand(S, R, B) < 0.8
    dt, factor = (2.0 * torch.rand(S, R, B)).requires_grad_(), torch.randn(S, R, B, H)
    output, _ = graph.run(together, x, together.weights(), together.initial_state(R, B), dt, mask)
    (output * factor).sum().backward()
    d_x, d_dt = x.grad.clone(), dt.grad.clone()
    x.grad = dt.grad = None
    for r, cell in enumerate(cells):
        y, _ = graph.run(cell, x[:, r], cell.weights(), cell.initial_state(B), dt[:, r], mask[:, r])
        close(output[:, r], y)
        (y * factor[:, r]).sum().backward()
        for key, parameter in cell.named_parameters():
            close(gradient(together.get_parameter(key))[r], gradient(parameter), what=key)
    close(d_x, x.grad)
    close(d_dt, dt.grad)


def test_a_long_product_of_small_gates_is_zero_and_no_more():
    """2,000 steps with f of 1e-3: the product of a chunk is 0 in float32, and no number of a result is lost by that."""
    model = of("mingru", 3, 4)
    with torch.no_grad():
        model.layers[0].bias[:4] = torch.tensor([-7.0, -7.0, 7.0, 0.0])
    compare("graph", model, torch.randn(2000, 2, 3), some_state(model, 2), tolerance=10 * TOLERANCE)


def test_passes_of_a_call(monkeypatch):
    """Each pass once, whatever the number of steps; a field that is overwritten needs no chunks without a mask."""
    called = []
    for name in ("local_forward", "final_forward", "local_backward", "final_backward", "carry"):
        real = getattr(scan, name)
        monkeypatch.setattr(scan, name, lambda *a, real=real, name=name, **k: (called.append(name), real(*a, **k)))
    model = of("plscan", 3, 5)
    model.engine = "graph"
    output, _ = model(torch.randn(300, 2, 3))
    three = ["local_forward", "carry", "final_forward"]
    assert called == [*three, *three, "final_forward"]  # the age, c, and h
    called.clear()
    output.sum().backward()
    assert called == ["local_backward", "carry", "final_backward"]
    called.clear()
    with torch.no_grad():
        model(torch.randn(3, 2, 3), mask=torch.ones(3, 2))
    assert called == [*three, *three, *three]


def components(cell, timed=False):
    found = affine(of_cell(cell, timed))
    return None if found is None else [component.fields for component in found.components]


@pytest.mark.parametrize("timed", [False, True])
def test_which_cells_are_scans(timed):
    """The age of the power law before c, and c before h; the two parts of a complex state together."""
    expected = {"mingru": [(0,)], "minlstm": [(0,)], "plscan": [(2,), (1,), (0,)], "lru": [(0, 1)]}
    found = {kind: components(cell_models.model(kind, 3, 4).layers[0], timed) for kind in expected}
    assert found == expected
    assert all(
        components(cell_models.model(name, 3, 4).layers[0]) is None for name in ("lstm", "plstm", "leaky", "gru")
    )


class Scan(Cell):
    gates = ("rate", "cell")
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        n: Tensor


class Bent(Scan):
    """Not linear in h."""

    def step(self, gx, gh, state, dt=1.0):
        f, u = gx.chunk(2, -1)
        return self.State((f.sigmoid() * state.h + u).tanh(), state.n + dt)


class Detached(Scan):
    """Linear in h, but its gradient is 0."""

    def step(self, gx, gh, state, dt=1.0):
        f, u = gx.chunk(2, -1)
        return self.State(f.sigmoid() * state.h.detach() + u, state.n + dt)


class Crossed(Scan):
    """h and n need each other; n twice as fast in its own way, and clamped where x says so."""

    def step(self, gx, gh, state, dt=1.0):
        f, u = gx.chunk(2, -1)
        f = f.sigmoid()
        h = torch.where(u > 0, 0.5 * f * state.h - (1.0 - f) * state.n / 2.0, -state.n * f) + u
        return self.State(h, 0.3 * state.h + 0.5 * state.n * torch.exp(-f * dt) - u * u)


@pytest.mark.parametrize(
    ("kind", "expected"), [(Bent, None), (Detached, [(0,), (1,)]), (Crossed, [(0, 1)]), (Late, [(1,), (0,)])]
)
def test_cells_of_ones_own(kind, expected, monkeypatch):
    """What is no scan runs step by step, as before."""
    monkeypatch.setattr(buffers, "CHUNK", 3)
    assert components(kind(3, 6), True) == expected
    model = timescales.RNN([kind(3, 6)])
    x, dt, mask = torch.randn(11, 2, 3), torch.rand(11, 2), torch.rand(11, 2) < 0.7
    for d, m in itertools.product((None, dt), (None, mask)):
        compare("graph", model, x, some_state(model, 2), d, m)


@pytest.mark.parametrize("kind", NO_SCANS)
def test_what_is_no_scan(kind, monkeypatch):
    """Conditions on the state that no small state meets, and factors above 1: step by step, as the eager engine."""
    monkeypatch.setattr(buffers, "CHUNK", 4)
    cell = kind(3, 6)
    assert affine_or_reason(of_cell(cell, False)) == NO_SCANS[kind]
    model = timescales.RNN([cell])
    state = [cell.State(*(8.0 * v for v in some_state(model, 2)[0]))]
    compare("graph", model, torch.randn(14, 2, 3), state, None, torch.rand(14, 2) < 0.7)


def test_a_clock_counts_modulo_10():
    model = timescales.RNN([Clock(3, 2)], engine="graph")
    _, last = model(torch.randn(137, 1, 3))
    assert model.split_state(last)[0].n.tolist() == [[7.0, 7.0]]


def test_factors_above_1_do_not_overflow():
    """The state is 0 up to the last of 300 steps, and there it is the input; backward in the reverse order."""
    model = timescales.RNN([Growing(1, 2)], engine="graph")
    with torch.no_grad():
        model.layers[0].weight_ih.fill_(1.0)
        model.layers[0].bias.zero_()
    x = torch.zeros(300, 1, 1)
    x[-1] = 3.0
    x.requires_grad_()
    output, _ = model(x)
    assert output[:, 0, 0].tolist() == [0.0] * 299 + [3.0]
    output[0].sum().backward()
    assert x.grad[:, 0, 0].tolist() == [2.0] + [0.0] * 299


# Functions of a parameter, and of dt where it is given; whether they lie between -1 and 1.
FACTORS = {
    "p": (lambda p, dt: p, False),
    "sigmoid": (lambda p, dt: p.sigmoid(), True),
    "tanh": (lambda p, dt: -p.tanh(), True),
    "clamp": (lambda p, dt: p.clamp(-1, 1), True),
    "clamp_max": (lambda p, dt: p.clamp(max=1), False),
    "exp": (lambda p, dt: (-p.exp() * dt).exp(), True),
    "growth": (lambda p, dt: (p.exp() * dt).exp(), False),
    "softplus": (lambda p, dt: (-softplus(p) * dt).exp(), True),
    "power": (lambda p, dt: p.sigmoid() ** dt, True),
    "fraction": (lambda p, dt: 1 / (1 + p**2), True),
    "pole": (lambda p, dt: 1 / (p - 1), False),
    "complement": (lambda p, dt: 1 - p.sigmoid(), True),
    "twice": (lambda p, dt: 2 * p.sigmoid(), False),
    "largest": (lambda p, dt: p.max().expand_as(p), False),
    "constant": (lambda p, dt: -1.0, True),
    "above": (lambda p, dt: 1.01, False),
}


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("name", FACTORS)
def test_which_factors_are_known_to_be_small(name, timed):
    function, expected = FACTORS[name]
    found = affine_or_reason(of_cell(Factor(3, 4, function=function), timed))
    assert isinstance(found, str) != expected


def test_a_scan_and_single_steps_with_equal_expressions_have_a_trial_each(monkeypatch):
    monkeypatch.setattr(kept, "TRIED", {})
    tried = []
    monkeypatch.setattr(graph, "compare", lambda cell, found, device: tried.append(affine(found) is not None))
    cells = [Factor(3, 4, function=FACTORS[name][0]) for name in ("p", "sigmoid", "tanh")]
    for cell in cells:
        graph.trial(cell, of_cell(cell, False), torch.device("cpu"))
    assert len({emit_triton.code(of_cell(cell, False)) for cell in cells[:2]}) == 1
    assert tried[:2] == [False, True]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "lstm", "plstm", "gru", "mts", "odd", "adversarial"])
def test_bounds_hold(kind, timed):
    """Of every expression of a cell, forward and backward, for random inputs."""
    cell = cell_models.model(kind, 3, 4).layers[0]
    e = of_cell(cell, timed)
    vectors = dict(zip(e.vectors, e.vector_values(cell, cell.weight_ih), strict=True))
    nodes = [node for node in scalar.in_order([*e.new, *e.backward]) if not node.is_boolean]
    inputs = {node: 8.0 * torch.randn(500, 4) for node in nodes if not node.args and node.op != "constant"}
    inputs |= {node: vectors[node.value].detach() for node in inputs if node.op == "vector"}
    inputs |= {node: inputs[node].abs() for node in inputs if node.op == "dt"}
    inputs |= {node: torch.rand(500, 4) for node in inputs if node.op == "noise"}
    found = bounds(e, nodes)
    for node, value in zip(nodes, scalar.evaluate(nodes, inputs), strict=True):
        low, high = found[node]
        ok = (value >= low - 1e-6) & (value <= high + 1e-6) | value.isnan()
        assert bool(ok.all()), (node, low, high)
    assert sum(found[node] != (-float("inf"), float("inf")) for node in nodes) >= 2


@pytest.mark.parametrize("broken", ["local_forward", "carry", "final_backward"])
def test_the_trial_runs_every_pass(broken, monkeypatch):
    """As on a GPU before the kernels are used the first time."""
    cell, device = cell_models.model("minlstm", 2, 12).layers[0], torch.device("cpu")
    found = of_cell(cell, True)
    assert graph.compare(cell, found, device) is None
    real = getattr(scan, broken)

    def wrong(b, *arguments, **named):
        real(b, *arguments, **named)
        b.starts.mul_(1.01)
        b.maps.mul_(1.01)
        b.z.mul_(1.01)

    monkeypatch.setattr(scan, broken, wrong)
    assert "its compiled MinLSTMCell is wrong" in graph.compare(cell, found, device)


def test_bytes():
    """Chunks add little: per field and 64 steps 2 + F numbers, and 1 per vector, of each unit and sequence."""
    S, B, H, F = 640, 4, 32, 3
    found = of_cell(cell_models.model("plscan", 3, H).layers[0], False)
    b = buffers.Buffers(found, (1, S, B), H, torch.device("meta"), False, False)
    steps = S * 3 + (S + 1) * F  # z and the states
    chunks = (S // buffers.CHUNK) * (F * F + 2 * F + 1)
    carried = F + 1  # gradients of the fields and of the vector
    assert b.bytes() == 4 * (B * H * (steps + chunks + carried) + H)
    assert loops.passes_of(b) is scan


@pytest.mark.parametrize("kind", only({"plscan"}, KINDS))  # the others have fewer gradients
def test_kernels_compile_without_a_gpu(kind, tmp_path, monkeypatch):
    """The interpreter is lenient where the compiler is not. For the H100 and H200 (sm_90)."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    H = 100
    kernels = emit_triton.kernels(emit_scan.code(of_cell(cell_models.model(kind, 3, H).layers[0], timed=True)))
    names = [name for name in vars(kernels) if name.startswith(("local_", "final_", "carry"))]
    assert len(names) >= 5
    absent = {"mask": None, "d_dt": None, **without_resets(kernels.final_backward)}
    for name, without in itertools.product(names, ({}, absent)):
        kernel = getattr(kernels, name)
        constants = {"H": H, "THREADS": emit_triton.THREADS, "BACK": not without}
        fixed = {key: value for key, value in (constants | without).items() if key in kernel.arg_names}
        types = dict.fromkeys(("S", "B", "rows", "T", "K"), "i32") | {"mask": "*u8", "again": "*u8"}
        types |= dict.fromkeys(fixed, "constexpr")
        signature = {key: types.get(key, "*fp32") for key in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=signature, constexprs=fixed)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        assert len(made.asm["cubin"]) > 1000
        assert "f64" not in made.asm["ptx"]
