"""The engines for GPUs, on a CPU: `compiled` against the eager engine, forward and backward, and `cudnn` by torch's CPU
kernel. Most cells are compiled by AOTAutograd alone, which traces the same pieces and their gradients and writes no
kernels; two also by torch's C++ compiler. Pieces have two steps here."""

import csv
import warnings

import pytest
import torch
import torch._inductor.config
from cell_cases import CELLS
from engine_cases import MORE, SHAPES, AdversarialCell, close, compare, gradient, learned_start, some_state
from engine_cases import model as make
from functorch.compile import nop
from synthetic import sizes
from torch._dynamo.backends.common import aot_autograd
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import timescales
from timescales import GRU, LSTM, PLSTM, RNN, ChronoLSTM, GatedRNN
from timescales.nn import cells, engine
from timescales.nn.engine import caches, eager, gpu

S, B, I, H = 7, 3, 4, 8  # noqa: E741

# A learned power with an age, complex numbers, matrices and attention of a cell's own, rows of a cumax, odd gradients.
FEW = ["plstm", "lru", "exprnn", "adversarial", "gated_gru_um_4"]
FEW += [pytest.param(name, marks=pytest.mark.slow) for name in ("rmc", "slstm", "odd")]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.manual_seed(1)
    monkeypatch.setattr(gpu, "STEPS", 2)
    monkeypatch.setattr(gpu, "BACKEND", "aot_eager")
    monkeypatch.setattr(caches, "WARNED", set())
    monkeypatch.setattr(caches, "TRIAL_RESULTS", {})


@pytest.fixture(scope="module", autouse=True)
def _compiler():
    yield
    gpu._compiled_piece.cache_clear()
    torch.compiler.reset()


@pytest.fixture
def uncompiled(monkeypatch):
    """The loop and its gradients alone: pieces run as they are."""
    monkeypatch.setattr(gpu, "_compiled_piece", lambda key: gpu.piece)


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def everything():
    """dt, mask and reset of a call."""
    return {"dt": 0.1 + torch.rand(S, B), "mask": torch.rand(S, B) < 0.8, "reset": torch.rand(S, B) < 0.3}


@pytest.mark.parametrize("name", [*CELLS, *MORE, "plstm_authors", "gated_lstm_ur", "rmc_um", "slstm_exp"])
def test_the_loop_of_every_cell(name, uncompiled, silent):
    model, x = make(name, I, 12), torch.randn(S, B, I)
    compare("compiled", model, x)
    compare("compiled", model, x, model.split_state(model(x)[1]), **everything(), last=True, states=True)


@pytest.mark.parametrize("name", FEW)
def test_every_cell_compiled(name, silent):
    model = make(name, I, 12)
    compare("compiled", model, torch.randn(S, B, I), **everything(), states=True)


@pytest.mark.slow
def test_kernels_of_torchs_own_compiler(silent, monkeypatch, tmp_path):
    """Also of a second batch size, for which torch compiles again, and a third, for which it does not."""
    monkeypatch.setattr(gpu, "BACKEND", "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch._inductor.config, "compile_threads", 1)  # worker processes take longer to start
    monkeypatch.setattr(torch._inductor.config, "cpp_cache_precompile_headers", False)
    model = make("gru", I, H)
    for B in (3, 5, 2):
        compare("compiled", model, torch.randn(S, B, I), dt=torch.rand(S, B), mask=torch.rand(S, B) < 0.8)


def alike(rnn, *arguments, tolerance=5e-6, **named):
    """Assert that a call has the same results, and gradients of the parameters, as with the eager engine.

    They add up in other orders: with 512-bit vectors a gradient of RMC differs by 1.2e-6 of its size.
    """
    found = []
    for rnn.engine in ("compiled", "eager"):
        rnn.zero_grad()
        torch.manual_seed(2)
        results = [v for v in tree_leaves(rnn(*arguments, **named)) if isinstance(v, torch.Tensor)]
        if any(v.requires_grad for v in results):
            sum(v.sum() for v in results if v.requires_grad).backward()
        found.append([*(v.detach() for v in results), *map(gradient, rnn.parameters())])
    for a, b in zip(*found, strict=True):
        assert a.shape == b.shape
        if a.numel():
            close(a, b, tolerance)


@pytest.mark.parametrize("kind", ["PLSTM", "RMC", "MinGRU"])
def test_forms_of_calls(kind, uncompiled, silent):
    """Layers, both directions, packed and single sequences, carried states, one step, no step and no sequence."""
    for options in ({"bidirectional": True}, {"batch_first": True}):
        rnn, first = getattr(timescales, kind)(I, H, 2, **options), options.get("batch_first", False)
        for shape in ((S,),) if first else ((S, B), (1, B), (0, B), (S, 0)):
            alike(rnn, torch.randn(*shape, I))
        x = torch.randn(S, S, I)
        with torch.no_grad():
            _, state = rnn(x)
        alike(rnn, x, state)
        alike(rnn, pack_padded_sequence(x, torch.tensor([3, 7, 1, 7, 6, 2, 5]), first, enforce_sorted=False))


def test_modes_of_torch(silent):
    """Inference mode, float64, autocast, gradients of some parameters, and a compiled model."""
    rnn, x = PLSTM(I, H, engine="compiled"), torch.randn(S, B, I)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close(torch.compile(rnn, backend="eager")(x)[0], rnn(x)[0], 1e-6)
    with torch.inference_mode():
        alike(rnn, x)
    with torch.autocast("cpu", torch.bfloat16):
        alike(rnn, x, tolerance=0.02)
    alike(rnn.double(), x.double(), tolerance=1e-12)
    rnn.float().layers[0].weight_hh.requires_grad_(False)
    alike(rnn, x)


@pytest.mark.parametrize("kind", [cells.LSTMCell, cells.PLScanCell, AdversarialCell])
def test_a_learned_initial_state(kind, uncompiled, silent):
    """Sequences begin again from it."""
    mask, reset = torch.rand(S, B) < 0.8, torch.rand(S, B) < 0.3
    compare("compiled", RNN([learned_start(kind)(I, H)]).eval(), torch.randn(S, B, I), mask=mask, reset=reset)


def test_random_numbers_are_those_of_the_eager_engine(silent):
    rnn = GatedRNN(I, H, zoneout_h=0.3, zoneout_c=0.2).train()
    alike(rnn, torch.randn(S, B, I))


def test_backward_twice_under_hooks_and_in_checkpoints(silent):
    rnn, x = PLSTM(I, H, engine="compiled"), torch.randn(S, B, I)
    loss = rnn(x)[0].square().sum()
    first = torch.autograd.grad(loss, list(rnn.parameters()), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss, list(rnn.parameters()))))
    again = checkpoint(rnn, x, use_reentrant=False)[0].square().sum()
    for a, b in zip(first, torch.autograd.grad(again, list(rnn.parameters())), strict=True):
        close(a, b)
    with pytest.raises(RuntimeError, match=r"no second derivatives: .* use engine='eager'"):
        torch.autograd.grad(rnn(x)[0].sum(), list(rnn.parameters()), create_graph=True)


SLOPE = 1.5


class Sloped(cells.GRUCell):
    """Its step reads a global name and an attribute."""

    slope = 0.5

    def step(self, gx, gh, state, dt=1.0):
        return self.State((SLOPE * gx.chunk(3, -1)[0] + self.slope * gh.chunk(3, -1)[1]).tanh() + 0.1 * state.h)


def test_what_a_step_reads_counts_in_the_next_call(silent, monkeypatch):
    rnn, x = RNN([Sloped(I, H)]), torch.randn(S, B, I)
    alike(rnn, x)
    monkeypatch.setitem(globals(), "SLOPE", -0.7)
    alike(rnn, x)
    rnn.layers[0].slope = 2.0
    alike(rnn, x)


class Branching(cells.GRUCell):
    """Its step asks for a number, which torch cannot compile: always, or for five sequences."""

    sizes = (B, 5)

    def step(self, gx, gh, state, dt=1.0):
        if len(gx) in self.sizes and float(state.h.detach().sum()) > 1e9:
            return state
        return super().step(gx, gh, state, dt)


def wrong(graph, inputs):
    """A compiler whose first result is wrong."""
    return lambda *a: [graph(*a)[0] + 0.1, *graph(*a)[1:]]


def fails_backward(sizes):
    """A compiler that fails for the backward pass of such batches."""

    def backward(graph, inputs):
        if any(isinstance(v, torch.Tensor) and v.shape[-2:-1] == (n,) for v in inputs for n in sizes):
            raise RuntimeError("no kernel")
        return nop(graph, inputs)

    return aot_autograd(fw_compiler=nop, bw_compiler=backward)


FAILURES = {
    "the first call": (Branching, "aot_eager", "torch cannot compile it"),
    "a later batch": (type("Later", (Branching,), {"sizes": (5,)}), "aot_eager", "torch cannot compile it"),
    "backward": (cells.GRUCell, fails_backward([B, 5]), "no kernel"),
    "backward of a later batch": (cells.GRUCell, fails_backward([5]), "no kernel"),
    "its numbers": (cells.GRUCell, wrong, "its compiled steps are wrong"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_one_warning_and_the_eager_engine(what, monkeypatch, capsys):
    kind, compiler, reason = FAILURES[what]
    monkeypatch.setattr(gpu, "BACKEND", compiler)
    rnn = RNN([kind(I, H)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for size in (B, 5, 5, B):
            alike(rnn, torch.randn(S, size, I))
    (line,) = [str(w.message) for w in said if "eager engine" in str(w.message)]
    assert reason in line
    assert "engine='eager' silences this" in line
    assert "\n" not in line
    timescales.explain(rnn)
    assert f"compiled: no, {gpu.failure(rnn.layers[0], torch.device('cpu'))}" in capsys.readouterr().out


@pytest.mark.slow
def test_engine_compiled_trains_from_the_command_line(train, tmp_path):
    losses = []
    for name in ("compiled", "eager"):
        settings = ["task=variable_copy", "model=plstm", "model.hidden_size=4", *sizes("variable_copy", 8, 4, 4)]
        settings += ["loop.max_steps=3", "loop.log_every=1", "logger=csv", "device=cpu", "task.batch_size=4"]
        assert train(*settings, f"engine={name}", f"run_dir={tmp_path}/{name}").status == 0
        rows = csv.DictReader((tmp_path / name / "curve.csv").open())
        losses.append([float(row["train/loss_nats"]) for row in rows if row["train/loss_nats"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(losses[0]) == 3


# --- cuDNN, and the choice --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[2], SHAPES[4]], ids=str)
def test_cudnn_engine_by_torchs_cpu_kernel(shape):
    S, B, inputs, H = shape
    for model in (LSTM(inputs, H), GRU(inputs, H), LSTM(inputs, H, forget_init="uniform")):
        x = torch.randn(S, B, inputs)
        compare("cudnn", model, x, some_state(model, B))
        compare("cudnn", model, x, last=True)
        assert model(x[:0])[0].shape == (0, B, H)


def test_cudnn_engine_keeps_float32_under_autocast():
    model, x = LSTM(3, 5, 2, forget_init=6.0, engine="cudnn"), torch.randn(40, 2, 3)
    expected, _ = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(x)[0], expected)


def test_choice_on_a_gpu(monkeypatch):
    """cuDNN where it has the equations and the call, compiled pieces otherwise."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda x: True))
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda x: True)
    x = torch.randn(5, 2, 3)
    for model in (LSTM(3, 4), GRU(3, 4), ChronoLSTM(3, 4, T_max=20)):
        cell = model.layers[0]
        assert engine.pick("auto", cell, x) is gpu.cudnn
        for given, masked, stepwise in ((x, True, False), (x, False, True), (x.double(), False, False)):
            assert engine.pick("auto", cell, given, masked, stepwise=stepwise) is gpu.compiled
        for place, name in ((torch, "are_deterministic_algorithms_enabled"), (torch.backends.cudnn, "is_acceptable")):
            with monkeypatch.context() as patch:
                patch.setattr(place, name, lambda *a, name=name: name.startswith("are"))
                assert engine.pick("auto", cell, x) is gpu.compiled
        cell.step = cell.step
        assert engine.pick("auto", cell, x) is gpu.compiled
    for cell in (PLSTM(3, 4).layers[0], Sloped(3, 4), timescales.RMC(3, 4).layers[0], GatedRNN(3, 4).layers[0]):
        assert engine.pick("auto", cell, x) is gpu.compiled
    assert engine.pick("eager", cell, x) is eager.run
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert engine.pick("auto", PLSTM(3, 4).layers[0], x) is eager.run


class Mistaken(cells.GRUCell):
    """Its step is wrong until it is mended."""

    mended = False

    def step(self, gx, gh, state, dt=1.0):
        if not type(self).mended:
            raise ValueError("mine")
        return super().step(gx, gh, state, dt)


def test_what_is_wrong_with_a_step_is_raised_and_does_not_count_as_a_failure_to_compile(uncompiled, silent):
    rnn = RNN([Mistaken(I, H)], engine="compiled")
    with pytest.raises(ValueError, match="mine"):
        rnn(torch.randn(S, B, I))
    Mistaken.mended = True
    rnn(torch.randn(S, B, I))
    assert gpu.failure(rnn.layers[0], torch.device("cpu")) is None
