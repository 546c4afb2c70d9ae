"""The Triton kernels in Triton's interpreter, on CPU tensors: the graph engine against the eager one, every gradient.

The interpreter is chosen when triton is imported, so these run in a process of their own, which the first test starts.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from engine_cases import MODELS, assert_nan_propagates, batched_seeds, close, compare, some_state

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.skipif(not INTERPRETED, reason="runs in the process that test_in_the_interpreter starts")


@pytest.mark.skipif(INTERPRETED, reason="already there")
def test_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 1 skipped" in done.stdout  # this one alone: the others have run


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    from timescales.nn.engine import loops

    torch.manual_seed(1)
    monkeypatch.setattr(loops, "uses_triton", lambda b: True)


# Fewer numbers than a program has, and a few more than one and two programs have: 129 and 258 of blocks of 128.
@inside
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 3, 2, 43), (4, 6, 3, 43)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_kernels_equal_eager(name, shape):
    S, B, inputs, H = shape
    model = MODELS[name](inputs, H)
    x, dt, mask = torch.randn(S, B, inputs), 3.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("graph", model, x, some_state(model, B) if k % 2 else None, d, m, last=k in (1, 2))


@inside
@pytest.mark.parametrize("bias", [-30.0, -12.0, 12.0, 30.0, 200.0])
@pytest.mark.parametrize("name", ["plstm", "plstm_separate", "plstm_authors"])
def test_extreme_reset_gates(name, bias):
    model = MODELS[name](3, 9)
    with torch.no_grad():
        model.layers[0].bias[:9] = bias
    compare("graph", model, torch.randn(12, 5, 3), some_state(model, 5), 2.0 * torch.rand(12, 5))


@inside
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_long_sequence(name):
    model = MODELS[name](2, 8)
    compare("graph", model, torch.randn(60, 3, 2), some_state(model, 3))


@inside
@pytest.mark.parametrize("name", ["lstm", "ur", "plstm", "plstm_separate"])
def test_batched_seeds_equal_the_torch_version(name, monkeypatch):
    from timescales.nn.engine import graph, loops

    R, S, B, H = 3, 4, 5, 11
    cell, weights = batched_seeds([MODELS[name](2, H).layers[0] for _ in range(R)])
    x, mask, factor = torch.randn(S, R, B, 2), torch.rand(S, R, B) < 0.7, torch.randn(S, R, B, H)
    leaves = [v.detach().requires_grad_() for v in (x, *weights) if v is not None]
    found = []
    for on_triton in (True, False):
        monkeypatch.setattr(loops, "uses_triton", lambda b, it=on_triton: it)
        made = type(weights)(*leaves[1:])
        output, after = graph.run(cell, leaves[0], made, cell.initial_state(R, B), 2.0 * torch.ones(S, R, B), mask)
        found.append([output, *after, *torch.autograd.grad((output * factor).sum(), leaves)])
    for a, b in zip(*found, strict=True):
        close(a, b)


@inside
def test_the_trial_finds_a_wrong_kernel(monkeypatch):
    """The kernels on small numbers, as on a GPU before they are used the first time."""
    from timescales.nn.engine import graph, loops, triton_kernels
    from timescales.nn.engine.kernel import GATES

    sides = itertools.cycle((False, False, True, True))  # forward and backward in torch, then by the kernels
    monkeypatch.setattr(loops, "uses_triton", lambda b: next(sides))
    for kind in GATES:
        graph.compare_kernels(kind, torch.device("cpu"))
        with monkeypatch.context() as patch:
            real = triton_kernels.launch_backward
            patch.setattr(triton_kernels, "launch_backward", lambda b, t: (real(b, t), b.dc.add_(1e-2)))  # noqa: B023
            with pytest.raises(RuntimeError, match=f"its {kind} kernel is off by"):
                graph.compare_kernels(kind, torch.device("cpu"))


@inside
def test_not_a_number_goes_through():
    assert_nan_propagates("graph")


if INTERPRETED:
    import triton
    import triton.language as tl

    from timescales.nn.engine.triton_kernels import exp_minus_one, log_one_plus, tanh

    @triton.jit
    def functions(x, out, N: tl.constexpr):
        k = tl.arange(0, N)
        v = tl.load(x + k)
        tl.store(out + k, exp_minus_one(-tl.abs(v)))
        tl.store(out + N + k, log_one_plus(tl.abs(v)))
        tl.store(out + 2 * N + k, tanh(v))


@inside
def test_functions_are_accurate():
    """tanh, exp - 1 and log(1 + x) to a few units in the last place, also near 0."""
    magnitude = torch.logspace(-8, 1.3, 512)
    x, out = torch.cat([magnitude, -magnitude]), torch.empty(3, 1024)
    functions[(1,)](x, out, N=1024)
    y = x.double()
    for found, wanted in zip(out, ((-y.abs()).expm1(), y.abs().log1p(), y.tanh()), strict=True):
        assert ((found - wanted) / wanted).abs().max() < 5e-7
