"""The Triton kernels in Triton's interpreter, on CPU tensors: the graph engine against the eager one, every gradient.

The interpreter is chosen when triton is imported, so these run in a process of their own, which the first test starts.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import cell_models
import pytest
import torch
from engine_cases import (
    CELL_TOLERANCE,
    MODELS,
    assert_nan_propagates,
    batched_seeds,
    close,
    compare,
    evaluate,
    learned_start,
    some_state,
)
from scan_cells import NO_SCANS, Late

from timescales import RNN, GatedRNN

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.skipif(not INTERPRETED, reason="runs in the process that test_in_the_interpreter starts")


@pytest.mark.full
@pytest.mark.skipif(INTERPRETED, reason="it starts the process in which the others run")
@pytest.mark.parametrize("cases", ["not full", "full"])
def test_in_the_interpreter(cases):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", cases, __file__]
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = re.search(r"(\d+) passed(?:, (\d+) skipped)?", done.stdout)
    assert ended, done.stdout
    assert int(ended[1]) > (80 if cases == "not full" else 30)
    assert ended[2] == (None if cases == "not full" else "2")  # this test alone: the others have run


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    from timescales.nn.engine.gpu import loops

    torch.manual_seed(1)
    monkeypatch.setattr(loops, "uses_triton", lambda b: True)


# Fewer numbers than a program has, and a few more than one and two programs have: 129 and 258, of 128 each.
@inside
@pytest.mark.covering
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 2, 43), (2, 6, 3, 43)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_kernels_equal_eager(name, shape):
    S, B, inputs, H = shape
    model = MODELS[name](inputs, H)
    x, dt, mask = torch.randn(S, B, inputs), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("graph", model, x, some_state(model, B) if k % 2 else None, d, m, last=k in (1, 2))


@inside
@pytest.mark.parametrize("name", cell_models.COMPILED)
def test_every_cell_equals_eager(name):
    model = cell_models.model(name, 3, 28)
    x, dt, mask = torch.randn(3, 5, 3), 3.0 * torch.rand(3, 5), torch.rand(3, 5) < 0.6
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare(
            "graph", model, x, some_state(model, 5) if k % 2 else None, d, m, last=k in (1, 2), tolerance=CELL_TOLERANCE
        )


@inside
@pytest.mark.parametrize("arguments", [{"zoneout_c": 0.2}, {"core": "gru"}, {"gate": "om", "downsize": 4}], ids=str)
def test_zoneout_in_training_draws_what_eager_draws(arguments):
    model = GatedRNN(3, 8, zoneout_h=0.3, **arguments).train()
    x, mask, found = torch.randn(7, 5, 3), torch.rand(7, 5) < 0.7, []
    for engine in ("graph", "eager"):
        torch.manual_seed(5)
        found.append(evaluate(model, engine, torch.float32, x, some_state(model, 5), None, mask, False))
    for name, value in found[0].items():
        close(value, found[1][name], what=name)


@inside
@pytest.mark.covering
@pytest.mark.parametrize("bias", [-30.0, -12.0, 12.0, 30.0, 200.0])
@pytest.mark.parametrize("name", ["plstm", "plstm_separate", "plstm_authors"])
def test_extreme_reset_gates(name, bias):
    model = MODELS[name](3, 9)
    with torch.no_grad():
        model.layers[0].bias[:9] = bias
    compare("graph", model, torch.randn(12, 5, 3), some_state(model, 5), 2.0 * torch.rand(12, 5))


@inside
@pytest.mark.parametrize("name", cell_models.AGED)
def test_large_ages(name):
    model = cell_models.model(name, 3, 9)
    for age in (1e4, 1e6, 1e8):
        state = [s._replace(age=age * (1.0 + torch.rand(5, 9))) for s in some_state(model, 5)]
        compare("graph", model, torch.randn(4, 5, 3), state, 2.0 * torch.rand(4, 5))


@inside
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_long_sequence(name):
    model = MODELS[name](2, 8)
    compare("graph", model, torch.randn(40, 3, 2), some_state(model, 3))


@inside
@pytest.mark.parametrize("name", ["mingru", "minlstm", "plscan", "lru"])
def test_scans_in_chunks_equal_eager(name, monkeypatch):
    """The last chunk is short, and one sequence has a chunk that does not exist."""
    from timescales.nn.engine.gpu import buffers, emit_scan, loops

    monkeypatch.setattr(buffers, "CHUNK", 4)
    launched = []
    real = emit_scan._launch
    monkeypatch.setattr(emit_scan, "_launch", lambda b, name: (launched.append(name), real(b, name)))
    S, B, H = 14, 3, 45  # a few more numbers than one program has
    model = cell_models.model(name, 2, H)
    x, dt, mask = torch.randn(S, B, 2), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    mask[4:8, 1] = False
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("graph", model, x, some_state(model, B) if k % 2 else None, d, m, last=k in (1, 2))
    assert {"local_forward0", "final_forward0", "local_backward", "final_backward"} <= set(launched)
    assert loops.passes_of(None) is emit_scan


@inside
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "gated_lstm_om_4", "mingru", "plscan", "lru"])
def test_sequences_that_begin_again(name, monkeypatch):
    """Also from a learned state, with the state after every step; of a scan at the edges of chunks, too."""
    from timescales.nn.engine.gpu import buffers

    monkeypatch.setattr(buffers, "CHUNK", 4)
    S, B, H = 10, 3, 44  # a few more numbers than one program has
    kind, arguments = (cell_models.CELLS | cell_models.MORE)[name]
    model = RNN([learned_start(kind)(2, H, **arguments)]).eval()
    x, dt, mask = torch.randn(S, B, 2), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    reset = torch.zeros(S, B)
    reset[[4, 8, 9], [0, 0, 0]] = reset[[0, 3, 5], [1, 1, 1]] = 1.0
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        state = some_state(model, B) if k % 2 else None
        compare("graph", model, x, state, d, m, last=k in (1, 2), reset=reset, states=k in (0, 3))


@inside
@pytest.mark.parametrize("kind", [*NO_SCANS, Late])
def test_conditions_on_the_state_equal_eager(kind):
    cell = kind(2, 5)
    model = RNN([cell])
    state = [cell.State(*(8.0 * v for v in some_state(model, 2)[0]))]
    compare("graph", model, torch.randn(9, 2, 2), state, None, torch.rand(9, 2) < 0.7)


BATCHED = ["lstm", "ur", "plstm", "gru", "gated_lstm_om_4", "gated_gru_um_4", "exprnn", "odd", "adversarial"]
BATCHED += ["minlstm", "plscan", "lru"]


@inside
@pytest.mark.parametrize("name", BATCHED)
def test_batched_seeds_equal_the_torch_version(name, monkeypatch):
    from timescales.nn.engine.gpu import graph, loops

    R, S, B, H = 3, 4, 5, 12
    cell = batched_seeds([cell_models.model(name, 2, H).layers[0] for _ in range(R)])
    x, mask, factor = torch.randn(S, R, B, 2), torch.rand(S, R, B) < 0.7, torch.randn(S, R, B, H)
    dt = 2.0 * torch.rand(S, R, B)
    found = []
    for on_triton in (True, False):
        monkeypatch.setattr(loops, "uses_triton", lambda b, it=on_triton: it)
        leaves = [v.detach().requires_grad_() for v in (x, dt)]
        output, after = graph.run(cell, leaves[0], cell.weights(), cell.initial_state(R, B), leaves[1], mask)
        wanted = [*leaves, *(p for p in cell.parameters() if p.requires_grad)]
        loss = (output * factor).sum()
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        found.append([output, *after, *gradients])
    for a, b in zip(*found, strict=True):
        close(a, b)


@inside
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "gated_lstm_om_4"])
def test_the_trial_finds_a_wrong_kernel(name, monkeypatch, capsys):
    """As on a GPU before the kernels are used the first time."""
    from timescales.nn.engine import equations
    from timescales.nn.engine.gpu import emit_triton, graph

    cell, device = cell_models.model(name, 2, 12).layers[0], torch.device("cpu")
    found = equations.known(cell, timed=True)
    assert graph.compare(cell, found, device) is None
    real = emit_triton.launch_backward
    monkeypatch.setattr(emit_triton, "launch_backward", lambda b, t: (real(b, t), b.d_states[-1].mul_(1.01)))
    reason = graph.compare(cell, found, device)
    assert reason.startswith(f"its compiled {type(cell).__name__} is wrong: the gradient of ")
    assert capsys.readouterr().err.endswith(reason.removesuffix("; use engine='eager'") + "\n")


@inside
def test_not_a_number_goes_through():
    models = {name: lambda *a, name=name: cell_models.model(name, *a) for name in cell_models.KERNELS}
    assert_nan_propagates("graph", MODELS | models)


if INTERPRETED:
    import triton
    import triton.language as tl

    from timescales.nn.engine.gpu.triton_kernels import (
        both_sigmoids,
        cosine,
        exp_minus_one,
        log_one_plus,
        power,
        sign,
        sine,
        tanh,
    )

    @triton.jit
    def functions(x, out, N: tl.constexpr):
        k = tl.arange(0, N)
        v = tl.load(x + k)
        tl.store(out + k, exp_minus_one(v))
        tl.store(out + N + k, log_one_plus(tl.where(v > -1, v, v / -20 - 1)))
        tl.store(out + 2 * N + k, tanh(v))
        plus, minus = both_sigmoids(v)
        tl.store(out + 3 * N + k, plus)
        tl.store(out + 4 * N + k, minus)

    @triton.jit
    def waves(x, out, N: tl.constexpr):
        k = tl.arange(0, N)
        tl.store(out + k, sine(tl.load(x + k)))
        tl.store(out + N + k, cosine(tl.load(x + k)))

    @triton.jit
    def error_functions(x, out, N: tl.constexpr):
        k = tl.arange(0, N)
        tl.store(out + k, tl.erf(tl.load(x + k)))
        tl.store(out + N + k, tl.floor(tl.load(x + k)))

    @triton.jit
    def powers(x, y, out, N: tl.constexpr):
        k = tl.arange(0, N)
        tl.store(out + k, power(tl.load(x + k), tl.load(y + k)))
        tl.store(out + N + k, sign(tl.load(x + k)))


@inside
def test_functions_are_accurate():
    """To a few units in the last place, also near 0."""
    magnitude = torch.logspace(-8, 1.3, 512)
    x, out = torch.cat([magnitude, -magnitude]), torch.empty(5, 1024)
    functions[(1,)](x, out, N=1024)
    y = x.double()
    inside = torch.where(x > -1, x, x / -20 - 1).double()
    wanted = (y.expm1(), inside.log1p(), y.tanh(), y.sigmoid(), (-y).sigmoid())
    for found, expected in zip(out, wanted, strict=True):
        assert ((found - expected) / expected).abs().max() < 1e-6


@inside
def test_sines_are_accurate():
    magnitude = torch.logspace(-8, 3.9, 512)
    x, out = torch.cat([magnitude, -magnitude]), torch.empty(2, 1024)
    waves[(1,)](x, out, N=1024)
    for found, expected in zip(out, (x.double().sin(), x.double().cos()), strict=True):
        assert (found - expected).abs().max() < 2e-7


@inside
def test_erf_and_floor():
    magnitude = torch.logspace(-8, 1.3, 512)
    x, out = torch.cat([magnitude, -magnitude]), torch.empty(2, 1024)
    error_functions[(1,)](x, out, N=1024)
    torch.testing.assert_close(out[0].double(), x.double().erf(), rtol=5e-7, atol=0.0)
    assert torch.equal(out[1], x.floor())


@inside
def test_powers_and_signs_of_any_number():
    inf, nan = float("inf"), float("nan")
    cases = [(2.0, 0.5), (0.3, -2.5), (-2.0, 3.0), (-2.0, 2.0), (-2.0, 0.5), (0.0, 0.0), (0.0, 2.0), (0.0, -1.0)]
    cases += [(1.0, nan), (nan, 0.0), (nan, 1.0), (inf, -1.0), (-1.5, -3.0), (7.0, 1.0), (-0.5, 4.0), (3.0, nan)]
    x, y = torch.tensor(cases).unbind(1)
    out = torch.empty(2, len(cases))
    powers[(1,)](x.contiguous(), y.contiguous(), out, N=len(cases))
    torch.testing.assert_close(out[0], x.pow(y), rtol=1e-6, atol=0.0, equal_nan=True)
    numbers = ~x.isnan()
    assert torch.equal(out[1][numbers], x[numbers].sign())
