"""The C++ engine against the eager one in float64: results and all gradients, over cells, shapes, dt, masks, resets."""

import copy
import itertools
from typing import NamedTuple

import engine_cases
import pytest
import torch
from cell_cases import ALL
from engine_cases import MODELS, close, compare, evaluate, learned_start, model, some_resets, some_state
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from timescales import GRU, LSTM, PLSTM, RNN, URLSTM, GatedRNN
from timescales.nn import cells
from timescales.nn import engine as engines
from timescales.nn.engine import eager, equations
from timescales.nn.engine.cpu import fused, shared_library

INF = float("inf")
TINY = torch.finfo(torch.float32).tiny


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(1)
    yield
    torch.set_num_threads(before)


def of(name, inputs, H):
    """A model by its name in MODELS, or of a kernel."""
    if name in MODELS or name == "gru":
        return {**MODELS, "gru": GRU}[name](inputs, H)
    rnn = model(name, inputs, H)
    if name == "lru":  # the rounding of a phase grows with the steps that a unit remembers
        rnn.layers[0].nu_log.data.clamp_(min=-3.0)
    return rnn


# --- cells and shapes -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", engine_cases.KERNELS)
def test_every_kernel(name):
    """20 units fill no whole vector, 5 rows no tile. The same bits each time: two threads sum in one order."""
    torch.manual_seed(0)  # with other weights of the Phased LSTM eager float32 is 2e-5 off, too
    S, B, H = 6, 5, {"goru_fft": 16, "slstm_heads": 21}.get(name, 20)
    rnn, x = model(name, 4, H), torch.randn(6, 5, 4)
    assert engines.pick("auto", rnn.layers[0], x) is fused.run
    tolerance = 1e-5 if name == "odd" else engine_cases.CELL_TOLERANCE
    compare("fused", rnn, x, tolerance=tolerance)
    given = {"dt": 0.5 + torch.rand(S, B), "mask": torch.rand(S, B) < 0.7, "reset": some_resets(S, B)}
    state, last = some_state(rnn, B), name == "plstm"
    compare("fused", rnn, x, state, last=last, states=True, tolerance=tolerance, **given)
    assert equations.signature(rnn.layers[0], False) == equations.signature(rnn.layers[0], False)  # traced once
    first, again = (evaluate(rnn, "fused", torch.float32, x, state, last=False, **given) for _ in range(2))
    assert all(torch.equal(value, again[key]) for key, value in first.items())


# Those of the recurrent loop; of scans: less than a vector, several chunks of steps, more sequences than a chunk has,
# several vectors of inputs, incomplete vectors of units, pre-activations of more than a chunk's share of the cache.
SCANS = [(2, 1, 1, 1), (250, 1, 3, 70), (31, 19, 2, 33), (13, 9, 70, 17), (5, 10, 3, 1100)]
CASES = [(name, shape) for shape in engine_cases.SHAPES for name in ("lstm", "plstm")]
OTHERS = ("ur", "plstm_separate", "plstm_authors", "plstm_fixed", "gru", "slstm")
CASES += list(zip(OTHERS, engine_cases.SHAPES, strict=True))
CASES += [(name, shape) for shape in SCANS for name in ("mingru", "plscan")]
CASES += list(zip(("minlstm", "lru", "lru", "minlstm", "rglru"), SCANS, strict=True))


@pytest.mark.parametrize(("name", "shape"), CASES, ids=str)
def test_shapes(name, shape):
    """Without all, and with dt, with a mask, and with both; with and without a state; also of the last state alone."""
    S, B, inputs, H = shape
    rnn, x = of(name, inputs, H), torch.randn(S, B, inputs)
    assert equations.known(rnn.layers[0], False).is_scan == (shape in SCANS)
    dt, mask = 2.0 * torch.rand(S, B), torch.rand(S, B) < 0.7
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        compare("fused", rnn, x, some_state(rnn, B) if k % 2 else None, d, m, last=k in (1, 2))


# Slices of the batch; units shared with a barrier where they are many; more threads than rows; scans that share units.
THREADS = [(name, n, B, H) for name in ("lstm", "plstm") for n, B, H in ((1, 3, 420), (3, 1, 100), (7, 3, 420))]
THREADS += [("lstm", 2, 40, 20), ("plstm", 3, 14, 20), ("gru", 3, 3, 420), ("gated_lstm_um_4", 3, 5, 20)]
THREADS += [("odd", 3, 5, 20), ("minlstm", 2, 5, 70), ("lru", 3, 1, 70), ("minlstm", 4, 3, 70), ("lru", 2, 40, 70)]


@pytest.mark.parametrize(("name", "threads", "B", "H"), THREADS)
def test_any_number_of_threads(name, threads, B, H):
    torch.set_num_threads(threads)
    S = 110 if name in ("minlstm", "lru") else 6
    rnn, x = of(name, 4, H), torch.randn(S, B, 4)
    given = {"mask": torch.rand(S, B) < 0.7, "reset": some_resets(S, B)}
    compare("fused", rnn, x, some_state(rnn, B))
    compare("fused", rnn, x, some_state(rnn, B), 2.0 * torch.rand(S, B), **given)
    first, again = (evaluate(rnn, "fused", torch.float32, x, None, None, last=False, **given) for _ in range(2))
    assert all(torch.equal(value, again[key]) for key, value in first.items())


@pytest.mark.parametrize(("name", "H", "threads", "B"), [
    ("lstm", 512, 1, 1), ("plstm", 512, 2, 17), ("lstm", 530, 1, 16), ("plstm", 530, 1, 3),
])  # fmt: skip
def test_large_layers(name, H, threads, B):
    """Weights that leave the cache at every step; one tile of rows and two; units beyond whole vectors."""
    torch.set_num_threads(threads)
    S, inputs = 4, 40
    rnn, x, reset = of(name, inputs, H), torch.randn(S, B, inputs), torch.zeros(S, B)
    reset[2, 0] = 1.0
    compare("fused", rnn, x, some_state(rnn, B))
    compare("fused", rnn, x, some_state(rnn, B), 2.0 * torch.rand(S, B), torch.rand(S, B) < 0.8, True, reset=reset)


@pytest.mark.parametrize(("name", "threads"), [("lstm", 1), ("plstm", 3)])
@pytest.mark.parametrize("side", ["front", "end"])
def test_padding_is_left_out_of_the_products(name, side, threads):
    """Sequences of 0 to S steps in any order: products are made for the rows that exist, results are everybody's."""
    torch.set_num_threads(threads)
    S, B = 9, 14
    rnn = RNN([learned_start(cells.PLSTMCell)(33, 20)]) if name == "plstm" else of(name, 33, 20)
    lengths, step = torch.randint(S + 1, (B,)), torch.arange(S).unsqueeze(1)
    lengths[3], lengths[8] = 0, S
    mask = step >= S - lengths if side == "front" else step < lengths
    x, dt = torch.randn(S, B, 33), 3.0 * torch.rand(S, B)
    compare("fused", rnn, x, some_state(rnn, B), dt, mask)
    compare("fused", rnn, x, some_state(rnn, B), dt, mask, True, reset=some_resets(S, B), states=True)


@pytest.mark.parametrize(("name", "inputs", "threads"), [("lstm", 3, 1), ("plstm", 40, 1), ("lstm", 40, 3)])
def test_blocks_of_the_weights_gradients(name, inputs, threads):
    """They are summed in blocks of 256 rows that exist: several, none of them whole, nor the tiles of units."""
    torch.set_num_threads(threads)
    S, B, H = 45, 17, 75
    rnn, x, mask = MODELS[name](inputs, H), torch.randn(S, B, inputs), torch.rand(S, B) < 0.9
    compare("fused", rnn, x, some_state(rnn, B))
    compare("fused", rnn, x, some_state(rnn, B), None, mask)


@pytest.mark.parametrize(("name", "bias"), [
    ("plstm", -30.0), ("plstm", 12.0), ("plstm", 200.0), ("plstm_separate", 30.0), ("plstm_authors", 30.0),
    ("plstm_authors", -12.0),
])  # fmt: skip
def test_extreme_reset_gates(name, bias):
    """Reset gates at 0 and 1 to within far less than float32 keeps of 1 - r."""
    rnn, (S, B) = MODELS[name](3, 9), (40, 5)
    with torch.no_grad():
        rnn.layers[0].bias[:9] = bias
    # A saturated gate's gradient is a product of numbers near 1e-30, which are held at 0: scale + 1e-3 in `close`.
    compare("fused", rnn, torch.randn(S, B, 3), some_state(rnn, B), 2.0 * torch.rand(S, B))


AGES = [name for name in engine_cases.KERNELS if "age" in ALL.get(name, (cells.LSTMCell,))[0].State._fields]


@pytest.mark.parametrize("name", AGES)
@pytest.mark.parametrize(
    ("age", "largest", "of_state", "of_gradients"), [(1e3, 1e3, 3e-5, 2e-4), (1e6, 1.0, 2e-6, 2e-6)]
)
def test_large_ages(name, age, largest, of_state, of_gradients):
    """Where 1 - sigmoid(x) would lose every digit, the kernels compute sigmoid(-x).

    Reset gates are from far below 1 to nearly 1. Errors are relative to the largest number of each tensor. With h up to
    1,000 the pre-activations, and so the gradients of sigmoids, are rounded by 6e-5; eager has up to 5e-4 in float32.
    """
    torch.manual_seed(0)
    S, B, inputs, H = 6, 5, 4, 20
    cell = model(name, inputs, H).layers[0]
    with torch.no_grad():
        cell.bias[:H] = torch.linspace(-16.0, 8.0, H)
    x, dt = torch.randn(S, B, inputs), 0.5 + torch.rand(S, B)
    state = cell.State(*(torch.linspace(-largest, largest, B * H).view(B, H) for _ in cell.State._fields))
    state = state._replace(age=torch.full((B, H), age))

    def results(engine, dtype):
        one = copy.deepcopy(cell).to(dtype)
        given = [v.detach().to(dtype).requires_grad_() for v in (x, dt, *state)]
        output, last = engine.run(one, given[0], one.weights(), cell.State(*given[2:]), given[1])
        loss = sum((v / v.detach().abs().max()).sum() for v in (output, *last))
        wanted = [*given, *(p for p in one.parameters() if p.requires_grad)]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)  # a scan cell does not read h
        zeros = map(torch.zeros_like, wanted)
        return [output, *last], [zero if d is None else d for d, zero in zip(gradients, zeros, strict=True)]

    both = zip(results(fused, torch.float32), results(eager, torch.float64), (of_state, of_gradients), strict=True)
    for found, expected, bound in both:
        for a, b in zip(found, expected, strict=True):
            assert (a - b).abs().max() <= bound * b.abs().max()
    with torch.no_grad():  # what is written into an empty, old state has the factor 1 - f, about 1e-6
        cell.bias[:H] = -14.0
        empty, exact = cell.initial_state(B)._replace(age=torch.full((B, H), 1e6)), copy.deepcopy(cell).double()
        found = fused.run(cell, 0 * x, cell.weights(), empty)[1]
        expected = eager.run(exact, 0 * x.double(), exact.weights(), cell.State(*(v.double() for v in empty)))[1]
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a.double(), b, rtol=5e-6, atol=0.0)


@pytest.mark.parametrize("kind", [cells.LSTMCell, cells.PLSTMCell, cells.MinLSTMCell, cells.PLScanCell])
def test_a_learned_initial_state_gets_its_gradient(kind):
    """From every reset, with and without a state that is given. 40 inputs: their shares are made ahead."""
    for S, inputs, units in ((9, 40, 17), (6, 2, 3)):
        rnn = RNN([learned_start(kind)(inputs, units), learned_start(kind)(units, units)])
        x, mask, reset = torch.randn(S, 3, inputs), torch.rand(S, 3) < 0.7, some_resets(S, 3)
        compare("fused", rnn, x, some_state(rnn, 3), None, None, reset=reset)
        compare("fused", rnn, x, None, None, mask, last=True, reset=reset, states=True)
    assert rnn.layers[0].start.grad.abs().sum() > 0


@pytest.mark.parametrize(("core", "gate", "zoneout"), [
    ("lstm", "ur", {"zoneout_c": 0.5, "zoneout_h": 0.2}), ("lstm", "om", {"zoneout_c": 0.5}),
    ("gru", "ur", {"zoneout_h": 0.2}),
])  # fmt: skip
def test_zoneout_draws_the_numbers_of_the_eager_engine(core, gate, zoneout):
    """In training a step draws random numbers: the engines draw the same ones from one seed, also with resets."""
    rnn = GatedRNN(4, 20, core=core, gate=gate, downsize=1, T_max=30, **zoneout)
    x, mask, resets, found = torch.randn(6, 5, 4), torch.rand(6, 5) < 0.7, some_resets(6, 5), []
    for reset, seed in ((None, 3), (resets, 3), (None, 4)):
        for rnn.engine in ("fused", "eager"):
            torch.manual_seed(seed)
            output, _ = rnn(x, mask=mask, reset=reset)
            found.append([output, *torch.autograd.grad(output.square().sum(), list(rnn.parameters()))])
        for a, b in zip(*found[-2:], strict=True):
            close(a, b)
    assert not torch.equal(found[0][0], found[4][0])


class Divided(cells.Cell):
    """A cell that divides by a parameter. In units that only fill a vector it is 0, so that nothing there is finite."""

    gates = ("candidate",)

    class State(NamedTuple):
        h: Tensor

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.scale = nn.Parameter(1.0 + torch.rand(hidden_size))

    def step(self, gx, gh, state, dt=1.0):
        return self.State(0.9 * state.h.tanh() + (gx if gh is None else gx + gh) / self.scale)


class DividedScan(Divided):
    recurrent = False


@pytest.mark.parametrize("kind", [Divided, DividedScan])
def test_units_that_fill_a_vector_reach_no_product(kind):
    """0 times infinity is not 0."""
    rnn, x = RNN([kind(5, 21)]), torch.randn(9, 15, 5)
    compare("fused", rnn, x, some_state(rnn, 15))


class Mixed(cells.Cell):
    """A scan cell with random numbers, a gate with half as many rows as units, and a field that does not change."""

    gates = ("coarse", "fine")
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        kept: Tensor

    def height(self, gate):
        return self.hidden_size // 2 if gate == "coarse" else self.hidden_size

    def step(self, gx, gh, state, dt=1.0):
        coarse, fine = self.by_gate(gx).values()
        f, noise = coarse.sigmoid().repeat_interleave(2, -1), torch.rand_like(fine)
        return self.State(f * state.h + (1.0 - f) * fine + 0.1 * noise * state.kept, state.kept)


class Noisy(cells.MinGRUCell):
    """A scan cell with random numbers, which is not linear in its state."""

    def step(self, gx, gh, state, dt=1.0):
        u, _ = gx.chunk(2, -1)
        return self.State(torch.where(torch.rand_like(u) < 0.5, u, 0.9 * state.h * state.h.tanh()))


@pytest.mark.parametrize(("kind", "is_scan"), [(Mixed, False), (Noisy, True)])
def test_scan_cells_of_ones_own_draw_the_numbers_of_eager(kind, is_scan):
    """A gate with fewer rows than units runs in the other loop."""
    rnn, x, results = RNN([kind(3, 40)]), torch.randn(60, 3, 3), []
    assert equations.known(rnn.layers[0], False).is_scan == is_scan
    for rnn.engine in ("fused", "eager"):
        torch.manual_seed(3)
        output, _ = rnn(x, [rnn.layers[0].State(*torch.ones(len(rnn.layers[0].State._fields), 3, 40))])
        results.append((output, *torch.autograd.grad(output.square().sum(), list(rnn.parameters()))))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


# --- forms of calls ---------------------------------------------------------------------------------------------------
def test_two_forwards_then_two_backwards():
    """Each call's activations are its own, also when workspaces are used again and the shapes differ."""
    rnn = PLSTM(3, 20, engine="fused")
    inputs = [torch.randn(s, b, 3) for s, b in ((9, 4), (9, 4), (5, 6), (9, 4))]

    def gradients(chosen):
        losses = [rnn(x)[0].square().sum() for x in chosen]
        return [torch.autograd.grad(loss, list(rnn.parameters())) for loss in losses]

    for x, together in zip(inputs, gradients(inputs), strict=True):
        assert all(map(torch.equal, together, gradients([x])[0]))


@pytest.mark.parametrize("make", [lambda: URLSTM(3, 20), lambda: RNN([learned_start(cells.PLSTMCell)(3, 7)])])
def test_retained_graph_and_other_threads_before_backward(make):
    """A second backward computes the activations again, as where hooks did not keep them, for forward's threads."""
    rnn, x = make(), torch.randn(70, 4, 3)
    given = {"mask": torch.rand(70, 4) < 0.7, "reset": some_resets(70, 4), "states": True}

    def loss():
        output, _, every = rnn(x, **given)
        return output.square().sum() + sum(v.sum() for v in tree_leaves(every))

    one = loss()
    first = torch.autograd.grad(one, list(rnn.parameters()), retain_graph=True)
    rnn(torch.randn(9, 4, 3))[0].sum().backward()  # may take the memory in between
    second = torch.autograd.grad(one, list(rnn.parameters()), retain_graph=True)
    torch.set_num_threads(16)
    third = torch.autograd.grad(one, list(rnn.parameters()))
    torch.set_num_threads(2)
    with torch.autograd.graph.save_on_cpu():
        moved = torch.autograd.grad(loss(), list(rnn.parameters()))
    for other in (second, third, moved):
        assert all(map(torch.equal, first, other))


@pytest.mark.parametrize("name", ["plstm", "gru", "mingru", "plscan", "lru"])
def test_some_gradients_not_wanted(name):
    """Of one tensor alone: as when all are wanted. A frozen model has those of its input."""
    rnn, x = of(name, 3, 20), torch.randn(30, 2, 3)
    state, weights = some_state(rnn, 2), torch.linspace(-1.0, 1.0, 20)
    tensors = [x, *state[0], *rnn.parameters()]

    def gradients(wanted):
        for k, v in enumerate(tensors):
            v.requires_grad_(k in wanted)
        loss = (rnn(x, state)[0] * weights).sum()
        return torch.autograd.grad(loss, [tensors[k] for k in wanted])

    whole = gradients(range(len(tensors)))
    for k in range(len(tensors)):
        assert torch.equal(gradients([k])[0], whole[k])


# With 40 inputs, their share is made ahead, for windows of some 200 rows: less than one, one, a step more, several.
WITHOUT = [("lstm", 9, 7, 3), ("lstm", 193, 1, 40), ("plstm", 30, 2, 40), ("plstm", 97, 4, 40), ("ur", 9, 60, 40)]
WITHOUT += [("mingru", 150, 2, 3), ("plscan", 150, 2, 3), ("lru", 150, 2, 3)]


@pytest.mark.parametrize(("name", "S", "B", "inputs"), WITHOUT)
def test_without_gradients(name, S, B, inputs):
    """No activations are kept, and the results are the same numbers."""
    rnn = of(name, inputs, 40)
    rnn.engine = "fused"
    x, mask, dt = torch.randn(S, B, inputs), torch.rand(S, B) < 0.7, torch.rand(S, B)
    state, reset = some_state(rnn, B), some_resets(S, B)
    for more in ({}, {"reset": reset, "states": True}):
        expected = rnn(x, state, dt, mask, **more)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                found = rnn(x, state, dt, mask, **more)
            assert not found[0].requires_grad
            assert all(map(torch.equal, tree_leaves(found), tree_leaves(expected)))


def test_pre_activations_of_a_scan_are_not_kept():
    """The workspace grows with the sequence by the fields of the state but h: by none, and by two."""
    sizes = {}
    for kind, S in itertools.product(("mingru", "plscan"), (100, 200)):
        code = fused.compiled(of(kind, 4, 64).layers[0], False)
        sizes[kind, S] = code.functions.timescales_workspace(shared_library.Problem(1, S, 10, 4, 64, 1))
    assert sizes["mingru", 200] == sizes["mingru", 100]
    assert 2 * 100 * 10 * 64 <= sizes["plscan", 200] - sizes["plscan", 100] <= 2.6 * 100 * 10 * 64


def test_pick():
    rnn, x = LSTM(3, 4), torch.randn(2, 2, 3)
    cell = rnn.layers[0]
    assert engines.pick("auto", cell, x) is fused.run
    assert engines.pick("eager", cell, x) is eager.run
    with pytest.raises(ValueError, match=r"engine must be one of auto, eager, fused, compiled, cudnn; not 'fast'$"):
        engines.pick("fast", cell, x)
    with pytest.raises(ValueError, match=r"not 'compile'; did you mean compiled\?"):
        engines.pick("compile", cell, x)
    rnn.double()
    assert engines.pick("auto", cell, x.double()) is eager.run
    rnn.engine = "fused"
    with pytest.raises(ValueError, match=r"x must be float32 on the CPU, not torch.float64 on cpu; use engine='eager'"):
        rnn(x.double())


def test_one_step_at_a_time_equals_the_whole():
    """Single steps are the eager engine's; the state goes from one engine to the other. No step and no row run, too."""
    rnn, x = PLSTM(3, 20, engine="fused"), torch.randn(6, 4, 3)
    whole, end = rnn(x)
    output, state = rnn(x[:3])
    parts = [output]
    for now in x[3:].split(1):
        output, state = rnn(now, state)
        parts.append(output)
    close(torch.cat(parts), whole)
    for a, b in zip(tree_leaves(state), tree_leaves(end), strict=True):
        close(a, b)
    for S, B in ((0, 2), (2, 0)):
        output, state = rnn(torch.randn(S, B, 3), reset=torch.zeros(S, B))
        assert output.shape == (S, B, 20)
        assert state.c.shape == (1, B, 20)


# --- numbers that are none, infinite or very small --------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_what_is_not_a_number_stays_so(engine):
    """In a parameter. In one sequence: test_edges.py."""
    for rows in ("reset", "cell", "output", "power"):
        rnn = PLSTM(3, 4, engine=engine)
        (cell,) = rnn.layers
        with torch.no_grad():
            (cell.power if rows == "power" else cell.bias[cell.rows(rows)]).fill_(float("nan"))
        output, after = rnn(torch.randn(6, 2, 3))
        assert output.isnan().all()
        assert after.h.isnan().all()


def gradients(rnn, x, state=None):
    rnn.zero_grad()
    rnn(x, state)[0].sum().backward()
    return {name: p.grad for name, p in rnn.named_parameters()}


def assert_alike(found, expected):
    """The same numbers, and NaN and infinities at the same places."""
    for a, b in zip(found.values(), expected.values(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, atol=1e-5, rtol=1e-4)


SIZES = [(2, 4), (2, 37), (40, 17), (2, 64)]  # (I, H); 4, 37 and 17 fill no whole group of units


@pytest.mark.parametrize(("size", "bad"), [*zip(SIZES, (INF, -INF, INF, -INF), strict=True)], ids=str)
def test_an_infinite_input_leaves_the_gradients_of_torchs_lstm(size, bad):
    torch.manual_seed(0)
    theirs = nn.LSTM(*size)
    ours = LSTM.from_torch(theirs)
    ours.engine = "fused"
    x = torch.randn(5, 3, size[0])
    x[2, 1, 0] = bad
    found, expected = gradients(ours, x), gradients(theirs, x)
    assert_alike(found, expected)
    assert found["weight_hh_l0"].isfinite().all()
    assert found["bias_ih_l0"].isfinite().all()
    assert found["weight_ih_l0"][:, 1:].isfinite().all()  # only the weights of the infinite feature are touched
    assert found["weight_ih_l0"][:, 0].isnan().all()


@pytest.mark.parametrize(("name", "size"), [(n, SIZES[k % 4]) for k, n in enumerate((*MODELS, "lstm", "plstm"))])
def test_infinities_leave_the_gradients_of_the_eager_engine(name, size):
    torch.manual_seed(0)
    rnn, (inputs, _) = MODELS[name](*size), size
    rnn.engine = "fused"
    plain = copy.deepcopy(rnn)
    plain.engine = "eager"
    x = torch.randn(5, 3, inputs)
    x[2, 1, 0] = INF
    assert_alike(gradients(rnn, x), gradients(plain, x))
    x = torch.randn(5, 3, inputs)
    (zero,) = [cell.initial_state(3) for cell in rnn.layers]
    zero.h[1, 0] = INF
    assert_alike(gradients(rnn, x, [zero]), gradients(plain, x, [zero]))


def test_denormals_flushed_inside_and_restored():
    torch.set_flush_denormal(False)  # an earlier test may have built a run, which turns it on for this thread
    rnn = LSTM(1, 16, engine="fused")
    with torch.no_grad():
        for p in rnn.parameters():
            p.mul_(0.1)
    _, (h, _) = rnn(torch.randn(300, 4, 1))
    (h.sum() * 1e-30).backward()
    grads = torch.cat([p.grad.flatten() for p in rnn.parameters()])
    assert not ((grads != 0) & (grads.abs() < TINY)).any()
    assert torch.tensor(1e-38) * 0.01 > 0  # this thread still has denormal numbers


class Functions(cells.Cell):
    """Each field is a function of itself."""

    gates = ("cell",)
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        cos: Tensor
        erf: Tensor
        exp: Tensor
        floor: Tensor
        ceil: Tensor

    def step(self, gx, gh, state, dt=1.0):
        names = ("sin", *self.State._fields[1:])
        return self.State(*(gx * 0.0 + getattr(torch, k)(v) for k, v in zip(names, state, strict=True)))


def test_functions_of_any_number():
    """Sines beyond 8,192 are the library's; numbers below the smallest normal one may be 0."""
    numbers = torch.cat([torch.linspace(-40, 40, 16_001), torch.logspace(-30, 30, 400), -torch.logspace(-30, 30, 400)])
    ends = torch.tensor([0.0, -0.0, INF, -INF, torch.nan, -200.0, -87.5, 87.9, 88.7, 89.0])
    values = torch.cat([numbers, ends]).unsqueeze(1)
    cell = Functions(1, 1)
    with torch.no_grad():
        x, mask = torch.zeros(2, len(values), 1), torch.zeros(2, len(values))
        mask[0] = 1.0  # a sequence of only one step would run on the eager engine
        _, found = fused.run(cell, x, cell.weights(), cell.State(*[values] * 6), None, mask)
    bounds = {"sin": (0, 2e-7), "cos": (0, 2e-7), "erf": (5e-7, 0), "exp": (5e-7, 0), "floor": (0, 0), "ceil": (0, 0)}
    for (kind, (rtol, atol)), ours in zip(bounds.items(), found, strict=True):
        expected = getattr(torch, kind)(values.double())
        if kind == "exp":
            expected = expected.float().double()
            ours = torch.where((ours == 0.0) & (expected < TINY), expected, ours.double())
        torch.testing.assert_close(ours.double(), expected, rtol=rtol, atol=atol, equal_nan=True)
        if kind in ("sin", "cos"):
            near = (expected.abs() > 1e-7) & (values.abs() < 3)
            assert ((ours - expected) / expected)[near].abs().max() < 1e-6


def test_torchs_kernel_cannot_begin_again():
    reason = "it can neither reset the state within a sequence nor return states; use .*auto"
    with pytest.raises(ValueError, match=reason):
        LSTM(3, 4, engine="cudnn")(torch.zeros(5, 2, 3), reset=torch.zeros(5, 2))
