"""RNN: torch.nn.LSTM's calling convention, layers, masks, carried state, saving."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import timescales
from timescales.nn.cells import LSTMCell, PLSTMCell
from timescales.nn.engine import eager
from timescales.nn.rnn import RNN

S, B, I, H = 6, 3, 4, 5  # noqa: E741

KINDS = {
    "LSTM": ("LSTM", {}),
    "ChronoLSTM": ("ChronoLSTM", {"T_max": 20}),
    "URLSTM": ("URLSTM", {}),
    "MTSLSTM": ("MTSLSTM", {}),
    "PLSTM": ("PLSTM", {}),
    "PLSTM_separate": ("PLSTM", {"coupled": False}),
    "GatedRNN": ("GatedRNN", {}),
    "GatedRNN_um_gru": ("GatedRNN", {"gate": "um", "core": "gru", "downsize": H}),
    "GRU": ("GRU", {}),
    "PGRU": ("PGRU", {}),
    "JANET": ("JANET", {"T_max": 20}),
    "ExpRNN": ("ExpRNN", {}),
}


def build(kind, *args, seed=0, **more):
    torch.manual_seed(seed)
    name, arguments = KINDS[kind]
    return getattr(timescales, name)(*(args or (I, H)), **arguments, **more).double()


def layered(kind, **more):
    """Three layers: the one depth beside 1 that every kind has."""
    return build(kind, I, H, 3, **more)


def random_input(*shape, size=I, seed=1):
    g = torch.Generator().manual_seed(seed)
    shape = shape or (S, B)
    x = torch.randn(*shape, size, generator=g, dtype=torch.float64)
    return x, 0.1 + 2 * torch.rand(*shape, generator=g, dtype=torch.float64)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def close_state(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert type(one) is type(other)
        for x, y in zip(one, other, strict=True):
            close(x, y)


# --- calling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_output_and_state(kind, layers):
    rnn = build(kind, I, H, layers)
    x, dt = random_input()
    output, state = rnn(x, dt=dt)
    assert output.shape == (S, B, H)
    assert isinstance(state, tuple)
    assert len(state) == len(rnn.layers) == layers
    for cell, one in zip(rnn.layers, state, strict=True):
        assert isinstance(one, cell.State)
        assert all(v.shape == (B, H) for v in one)
    assert torch.equal(output[-1], state[-1].h)


def test_torchs_habits_are_named():
    """Its h0, and numbers of NumPy's type, cost one line each."""
    gru, lstm = timescales.GRU(3, 8), timescales.LSTM(3, 8, 2)
    with pytest.raises(ValueError, match=r"torch's h0 of layer k is rnn.layers\[k\].State\(h0\[k\]\)"):
        gru(torch.randn(5, 4, 3), torch.zeros(1, 4, 8))
    with pytest.raises(ValueError, match=r"x is torch\.float64, the weights are torch\.float32: give x\.to"):
        lstm(torch.randn(5, 4, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"x is torch\.int64"):
        lstm(torch.ones(5, 4, 3, dtype=torch.int64))
    assert (gru.num_layers, lstm.num_layers) == (1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_read_the_layer_below(kind):
    rnn = layered(kind)
    x, dt = random_input()
    output, state = rnn(x, dt=dt)
    for cell, expected in zip(rnn.layers, state, strict=True):
        x, last = eager.run(cell, x, cell.weights(), cell.initial_state(B), dt)
        close_state([last], [expected])
    close(x, output)


@pytest.mark.parametrize("kind", ["LSTM", "URLSTM", "MTSLSTM", "PLSTM", "GatedRNN", "GRU", "PGRU", "JANET", "ExpRNN"])
def test_hidden_size_per_layer(kind):
    rnn = build(kind, I, [7, 6, 2], 3)
    assert [(c.input_size, c.hidden_size) for c in rnn.layers] == [(4, 7), (7, 6), (6, 2)]
    assert (rnn.input_size, rnn.hidden_size) == (4, 2)
    output, state = rnn(random_input()[0])
    assert output.shape == (S, B, 2)
    assert [s.h.shape[-1] for s in state] == [7, 6, 2]
    assert [t.shape for t in rnn.timescales()] == [(7,), (6,), (2,)]
    assert not any(t.requires_grad for t in rnn.timescales())


@pytest.mark.parametrize("kind", KINDS)
def test_batch_first(kind):
    rnn, turned = layered(kind), layered(kind, batch_first=True)
    x, dt = random_input()
    mask = torch.rand(S, B, generator=torch.Generator().manual_seed(3)) < 0.7
    output, state = rnn(x, dt=dt, mask=mask)
    other, other_state = turned(x.transpose(0, 1), dt=dt.T, mask=mask.T)
    close(other, output.transpose(0, 1))
    close_state(other_state, state)


def test_torchs_positional_arguments():
    rnn = timescales.LSTM(3, 4, 2, True, 0.25)
    assert (rnn.input_size, rnn.hidden_size, len(rnn.layers)) == (3, 4, 2)
    assert (rnn.batch_first, rnn.dropout) == (True, 0.25)


def test_one_law_for_all_layers_or_one_each():
    same = timescales.LSTM(I, H, 2, forget_init=1.0, frozen=("forget",))
    assert all((cell.bias_total("forget") == 1).all() and cell.frozen == ("forget",) for cell in same.layers)
    each = timescales.LSTM(I, H, 2, forget_init=[1.0, "default"], frozen=[("input", "forget"), ()])
    assert (each.layers[0].bias_total("forget") == 1).all()
    assert (each.layers[1].bias_total("forget") != 1).all()
    assert [cell.frozen for cell in each.layers] == [("input", "forget"), ()]


def test_an_rnn_of_mixed_cells():
    rnn = RNN([LSTMCell(I, 3), PLSTMCell(3, 2)]).double()
    output, state = rnn(random_input()[0])
    assert output.shape == (S, B, 2)
    assert [s._fields for s in state] == [("h", "c"), ("h", "c", "age")]


# --- length, carried state, masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_steps_and_one_step(kind):
    rnn = layered(kind)
    x, dt = random_input()
    _, state = rnn(x, dt=dt)
    for given in (None, state):
        output, after = rnn(x[:0], given, dt=dt[:0], mask=torch.ones(0, B))
        assert output.shape == (0, B, H)
        assert output.dtype == x.dtype
        close_state(after, state if given else [cell.initial_state(B) for cell in rnn.layers])
    output, after = rnn(x[:1], state)
    assert output.shape == (1, B, H)
    close(output[0], after[-1].h)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_carries_on(kind):
    rnn = layered(kind)
    x, dt = random_input(9, B)
    whole, end = rnn(x, dt=dt)
    first, state = rnn(x[:4], dt=dt[:4])
    second, state = rnn(x[4:], state, dt=dt[4:])
    close(torch.cat([first, second]), whole)
    close_state(state, end)
    detached = [type(one)(*(v.detach() for v in one)) for one in state]  # a list, as a training loop may keep it
    close(rnn(x[:1], detached)[0], rnn(x[:1], state)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_comes_back_from_a_file(kind):
    """As plain tuples, which torch.load takes with weights_only=True, its default."""
    rnn = layered(kind)
    x, _ = random_input()
    _, state = rnn(x)
    file = io.BytesIO()
    torch.save([tuple(layer) for layer in state], file)
    file.seek(0)
    output, after = rnn(x, torch.load(file, weights_only=True))
    close(output, rnn(x, state)[0])
    assert [type(layer) for layer in after] == [cell.State for cell in rnn.layers]


@pytest.mark.parametrize("where", ["front", "middle", "end", "scattered"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind, where):
    """Padded steps hold garbage input and dt; the output there is the held h, elsewhere as without them."""
    rnn = layered(kind)
    x, dt = random_input(5, B)
    _, state = rnn(*random_input(2, B, seed=8)[:1])
    real = {"front": [3, 4, 5, 6, 7], "middle": [0, 1, 5, 6, 7], "end": [0, 1, 2, 3, 4], "scattered": [1, 3, 4, 6, 7]}
    padded, padded_dt = (100 * v for v in random_input(8, B, seed=9))
    mask = torch.zeros(8, B)
    padded[real[where]], padded_dt[real[where]], mask[real[where]] = x, dt, 1
    for before in (None, state):
        expected, end = rnn(x, before, dt=dt)
        for kind_of_mask in (mask, mask.bool(), mask.long()):
            output, after = rnn(padded, before, dt=padded_dt, mask=kind_of_mask)
            close_state(after, end)
            close(output[real[where]], expected)
        held = torch.zeros(B, H, dtype=torch.float64) if before is None else before[-1].h
        for t in range(8):
            if t not in real[where]:
                assert torch.equal(output[t], held)
            held = output[t]


def test_sequences_of_different_lengths_in_one_batch():
    rnn = layered("PLSTM")
    x, dt = random_input()
    lengths = [6, 2, 0]
    mask = torch.stack([torch.arange(S) >= S - n for n in lengths], 1)
    _, state = rnn(x, dt=dt, mask=mask)
    for b, n in enumerate(lengths):
        _, alone = rnn(x[S - n :, b : b + 1], dt=dt[S - n :, b : b + 1])
        close_state([type(one)(*(v[b : b + 1] for v in one)) for one in state], alone)


def test_no_gradient_comes_from_padding():
    rnn = build("PLSTM")
    x, dt = random_input()
    x.requires_grad_()
    mask = torch.ones(S, B)
    mask[:2, 1] = 0
    rnn(x, dt=dt, mask=mask)[1][0].h.sum().backward()
    assert not x.grad[:2, 1].any()
    assert x.grad[2:, 1].abs().sum(-1).all()


# The fused engine makes the share of 32 or more inputs ahead, for many steps at once.
@pytest.mark.parametrize("inputs", [I, 40])
@pytest.mark.parametrize("engine", ["eager", "auto", "graph"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_at_padding_reaches_no_gradient(kind, engine, inputs):
    """Neither NaN nor infinity: 0 times either is NaN."""
    try:
        rnn = build(kind, inputs, H, 3, engine=engine).float()
        rnn(torch.zeros(2, 1, inputs))
    except ValueError as refused:  # no kernel
        if engine != "graph" or "it has no kernel for" not in str(refused):
            raise
        pytest.skip(str(refused))
    x, dt = (v.float() for v in random_input(size=inputs))
    mask = torch.ones(S, B)
    mask[:2, 1] = mask[4, 0] = 0
    found = []
    for garbage in (0.0, torch.nan, torch.inf):
        nothing = mask == 0
        padded, padded_dt = x.clone().requires_grad_(), dt.masked_fill(nothing, garbage)
        with torch.no_grad():
            padded[nothing] = garbage
        rnn.zero_grad()
        output, _ = rnn(padded, dt=padded_dt, mask=mask)
        output.square().sum().backward()
        found.append([output.detach(), padded.grad, *(p.grad for p in rnn.parameters())])
    assert all(v.isfinite().all() for v in found[0])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_dt_in_another_type_than_x(dtype):
    """Times often come in float64 or whole numbers beside a float32 model."""
    torch.manual_seed(0)
    rnn = timescales.PLSTM(I, H, 2)
    x = random_input()[0].float()
    dt = torch.ones(S, B, dtype=dtype)
    close(rnn(x, dt=dt)[0], rnn(x)[0], 1e-6)


# --- dropout ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_only_between_layers_and_only_in_training(kind):
    plain, dropped = layered(kind), layered(kind, dropout=0.5)
    x, _ = random_input()
    close(dropped.eval()(x)[0], plain(x)[0])
    dropped.train()
    torch.manual_seed(1)
    first, first_state = dropped(x)
    second, second_state = dropped(x)
    assert not torch.equal(first, second)
    close_state(first_state[:1], second_state[:1])  # nothing is dropped before the first layer
    assert kind == "ExpRNN" or (first != 0).all()  # nor after the last; expRNN's modrelu has zeros of its own
    with pytest.warns(UserWarning, match="between layers"):
        single = build(kind, dropout=0.5).train()
    close(single(x)[0], build(kind)(x)[0])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ExpRNN"])
def test_only_the_forward_pass_drops_recurrent_weights(kind):
    rnn = layered(kind)
    for cell in rnn.layers:
        cell.weight_drop = 0.5
    before = torch.get_rng_state()
    rnn.timescales()
    assert all(torch.equal(cell.weights().hh, cell.weight_hh) for cell in rnn.layers)
    assert torch.equal(torch.get_rng_state(), before)
    x, _ = random_input()
    assert not torch.equal(rnn(x)[0], rnn(x)[0])
    rnn.eval()
    assert torch.equal(rnn(x)[0], rnn(x)[0])


def test_dropout_drops_and_scales_the_layer_below():
    """With the second layer an identity-like probe: its input is 0 or twice the first layer's output."""
    rnn = build("LSTM", I, H, 2, dropout=0.5).train()
    seen = []
    second = rnn.layers[1]
    step = second.step
    second.step = lambda gx, *rest: (seen.append(gx), step(gx, *rest))[1]
    with torch.no_grad():
        second.weight_ih.zero_()
        second.weight_ih[:H] = torch.eye(H)
        second.bias_ih.zero_()
    x, _ = random_input(40, B)
    rnn(x)
    below, _ = eager.run(rnn.layers[0], x, rnn.layers[0].weights(), rnn.layers[0].initial_state(B))
    ratio = torch.stack(seen)[..., :H] / below
    assert ((ratio.abs() < 1e-9) | ((ratio - 2).abs() < 1e-9)).all()
    assert 0.4 < (ratio > 1).double().mean() < 0.6  # 600 draws: five standard deviations


# --- torch's tools ------------------------------------------------------------------------------------------------


def test_hooks_on_a_layer_see_its_output():
    rnn, seen = build("LSTM", I, H, 2), []
    rnn.layers[0].register_forward_hook(lambda cell, given, made: seen.append(made[0]))
    x, _ = random_input()
    below = eager.run(rnn.layers[0], x, rnn.layers[0].weights(), rnn.layers[0].initial_state(B))[0]
    rnn(x)
    close(seen[0], below)


SHAPED = {
    "prune": lambda cell: (prune.l1_unstructured(cell, "weight_hh", amount=0.48), prune.remove)[1],
    "weight_norm": lambda cell: (nn.utils.weight_norm(cell, "weight_hh"), nn.utils.remove_weight_norm)[1],
    "spectral_norm": lambda cell: (nn.utils.spectral_norm(cell, "weight_hh"), nn.utils.remove_spectral_norm)[1],
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("engine", ["eager", "auto"])
@pytest.mark.parametrize("how", SHAPED)
def test_weights_shaped_by_hooks_are_those_used(how, engine):
    """Two steps, since each hook makes the weight anew in every pass; then the shape is made permanent."""
    rnn = timescales.LSTM(I, H, engine=engine)
    x = random_input()[0].float()
    remove = SHAPED[how](rnn.layers[0])
    before = rnn(x)[0].detach()
    optimizer = torch.optim.SGD(rnn.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        rnn(x)[0].square().sum().backward()
        optimizer.step()
    rnn.eval()  # where spectral_norm leaves its vectors alone
    shaped = rnn(x)[0]
    assert (shaped - before).abs().max() > 1e-3
    remove(rnn.layers[0], "weight_hh")
    close(rnn(x)[0], shaped, 1e-6)
    if how == "spectral_norm":
        assert torch.linalg.matrix_norm(rnn.layers[0].weight_hh, 2) < 1.2  # one step of the power method at a time
    if how == "prune":
        assert (rnn.layers[0].weight_hh == 0).float().mean() == 0.48


def test_what_follows_torchs_operations_gets_them():
    """A kernel is none: traced, its results would stand in the trace as constants."""
    from torch.func import jacrev, jvp, vmap
    from torch.fx.experimental.proxy_tensor import make_fx

    rnn = timescales.PLSTM(I, H)
    plain = copy.deepcopy(rnn)
    plain.engine = "eager"
    x, y = random_input()[0].float(), random_input(seed=2)[0].float()

    def output(x):
        return rnn(x)[0]

    def expected(x):
        return plain(x)[0]

    close(make_fx(output)(x)(y), expected(y), 1e-6)
    close(vmap(output)(torch.stack([x, y]))[1], expected(y), 1e-6)
    close(torch.export.export(rnn, (x,)).module()(y)[0], expected(y), 1e-6)
    close(jvp(output, (x,), (y,))[1], jvp(expected, (x,), (y,))[1], 1e-6)
    close(jacrev(output)(x), jacrev(expected)(x), 1e-6)
    for engine in ("fused", "graph"):
        rnn.engine = engine
        with pytest.raises(ValueError, match=r"traces want torch's own operations; use engine='eager'"):
            make_fx(output)(x)


@pytest.mark.parametrize("engine", ["fused", "graph"])
def test_torch_compile_leaves_engines_alone(engine, recwarn):
    """As it does torch's own LSTM: what surrounds them is compiled, in silence."""
    rnn = timescales.PLSTM(3, 4, engine=engine)

    def loss(x):
        return rnn(2.0 * x)[0].tanh().sum()

    compiled = torch.compile(loss, backend="eager")
    for S in (5, 7):
        x = torch.randn(S, 2, 3, requires_grad=True)
        found = [torch.autograd.grad(f(x), [x, *rnn.parameters()]) for f in (loss, compiled)]
        for a, b in zip(*found, strict=True):
            assert torch.equal(a, b)
    said = [str(w.message) for w in recwarn]
    assert [text for text in said if "Dynamo" in text] == []  # torch has others to say, of the Python it runs in
    torch.compiler.reset()
    whole = torch.compile(loss, backend="eager", fullgraph=True)
    message = r"Message: torch\.compile leaves kernels alone, .* use engine='eager'"  # not its source line, quoted
    with pytest.raises(torch._dynamo.exc.Unsupported, match=message):
        whole(x)
    rnn.engine = "eager"
    close(whole(x), loss(x), 1e-6)


def test_torch_compile_has_what_no_kernel_runs():
    rnn, x = timescales.GRU(3, 4), torch.randn(5, 2, 3)
    close(torch.compile(rnn, backend="eager", fullgraph=True)(x)[0], rnn(x)[0], 1e-6)
    close(torch.export.export(rnn, (x,), strict=True).module()(x)[0], rnn(x)[0], 1e-6)


@pytest.mark.parametrize("engine", ["fused", "graph"])
def test_derivatives_that_a_kernel_has_not_are_refused_with_their_mend(engine):
    import torch.autograd.forward_ad as forward_mode

    rnn = timescales.LSTM(I, H, engine=engine)
    x = random_input()[0].float().requires_grad_()
    output, _ = rnn(x)
    many = torch.ones(2, *output.shape)
    with pytest.raises(RuntimeError, match=r"no batched gradients: .* use engine='eager'"):
        torch.autograd.grad(output, x, many, is_grads_batched=True)
    with forward_mode.dual_level(), pytest.raises(RuntimeError, match=r"no forward-mode .* use engine='eager'"):
        rnn(forward_mode.make_dual(x.detach(), torch.ones_like(x)))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        ({"bias": False}, "zero and freeze"),
        ({"bidirectional": True}, r"x\.flip\(0\)"),
        ({"proj_size": 3}, r"nn\.Linear"),
        ({"device": "cpu"}, r"\.to\(device\)"),
        ({"dtype": torch.float64}, r"\.to\(dtype\)"),
        ({"batchfirst": True}, "did you mean batch_first"),
        ({"droput": 0.1}, "did you mean dropout"),
        ({"zzz": 1}, "no argument zzz"),
        ({"num_layers": 0}, "at least 1|1 or 3 layers"),
        ({"num_layers": 1.0}, "whole number"),
        ({"dropout": 1.0}, "below 1"),
        ({"dropout": -0.1}, "at least 0"),
        ({"dropout": True}, "bias, is none here"),
        ({"engine": "warp"}, "auto, eager"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_refused_arguments_say_what_to_do(kind, arguments, mend):
    with pytest.raises(ValueError, match=mend):
        build(kind, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_defaults_may_be_spelled_out(kind):
    rnn = build(kind, bias=True, bidirectional=False, proj_size=0, device=None, dtype=None)
    close(rnn(random_input()[0])[0], build(kind)(random_input()[0])[0])


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: timescales.LSTM(I, [3, 4]), "lists 2 layers, num_layers is 1"),
        (lambda: timescales.LSTM(I, [3, 4], 3), "lists 2 layers, num_layers is 3"),
        (lambda: timescales.LSTM(I, H, 2, forget_init=[1.0]), "forget_init lists 1"),
        (lambda: timescales.LSTM(I, H, 1, frozen=[("input",), ()]), "frozen lists 2"),
        (lambda: timescales.LSTM(I, 0), "hidden_size"),
        (lambda: timescales.ChronoLSTM(I, H, T_max=9, forget_init=1.0), "ChronoLSTM chooses forget_init .* to LSTM"),
        (lambda: timescales.MTSLSTM(I, H, frozen=("input",)), r"frozen itself: give frozen=\('input',\) to LSTM"),
        (lambda: timescales.MTSLSTM(I, H, 3, forget_init=[1.0] * 3), "MTSLSTM chooses forget_init itself"),
        (lambda: RNN([]), "at least 1"),
        (lambda: RNN([LSTMCell(2, 3), LSTMCell(4, 3)]), "3 units cannot feed one of 4"),
    ],
)
def test_layers_that_do_not_fit(call, mend):
    with pytest.raises(ValueError, match=mend):
        call()


X = torch.zeros(S, B, I)


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        ((torch.zeros(S, I),), "unsqueeze"),
        ((torch.zeros(S, B, I + 1),), "reads 4"),
        ((nn.utils.rnn.pack_padded_sequence(X, [S] * B),), "mask"),
        ((X.numpy(),), "x must be a tensor, not ndarray"),
        ((X, None, 2.0), "dt must be a tensor, not float"),
        ((X, None, None, [True]), "mask must be a tensor, not list"),
        ((X, None, torch.ones(S, B, 1)), "dt must be"),
        ((X, None, torch.ones(B, S)), "dt must be"),
        ((X, None, None, torch.ones(S)), "mask must be"),
        ((X, []), "one entry per layer"),
        ((X, [LSTMCell.State(torch.zeros(B, H), torch.zeros(B, H))] * 3), "one entry per layer"),
        ((X, [LSTMCell.State(torch.zeros(B + 1, H), torch.zeros(B + 1, H))] * 2), "state"),
        ((X, [LSTMCell.State(torch.zeros(1, H), torch.zeros(1, H))] * 2), "state"),  # must not broadcast in silence
        ((X, [LSTMCell.State(torch.zeros(B, H + 1), torch.zeros(B, H + 1))] * 2), "state"),
        ((X, (torch.zeros(2, B, H), torch.zeros(2, B, H))), "state"),  # torch.nn.LSTM's (h, c)
        ((X, ([torch.zeros(B, H)] * 2, [torch.zeros(B, H)] * 2)), "state"),  # the same by layers
        ((X, [(None, None)] * 2), "state"),
    ],
    ids=[
        "unbatched", "features", "packed", "numpy", "dt_number", "mask_list", "dt_rank", "dt_turned", "mask_rank",
        "no_state", "state_of_3_layers", "state_of_4_sequences", "state_of_1_sequence", "state_of_6_units",
        "torchs_state", "torchs_state_by_layers", "state_of_nothing",
    ],
)  # fmt: skip
def test_wrong_shapes_are_refused_with_their_mend(arguments, mend):
    rnn = timescales.LSTM(I, H, 2)
    with pytest.raises(ValueError, match=mend):
        rnn(*arguments)


@pytest.mark.parametrize("engine", ["eager", "auto"])
@pytest.mark.parametrize("field", [0, 1])
def test_a_state_of_another_type_or_place_is_refused_with_its_mend(engine, field):
    rnn = timescales.LSTM(I, H, 2, engine=engine)
    for other in ({"dtype": torch.float64}, {"dtype": torch.float16}, {"device": "meta"}):
        state = [LSTMCell.State(*(torch.zeros(B, H, **(other if k == field else {})) for k in (0, 1)))] * 2
        with pytest.raises(ValueError, match=r"state of layer 0 is .*\.to\('cpu', torch\.float32\)"):
            rnn(X, state)


# --- copies and files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_deep_copy(kind):
    rnn = layered(kind)
    x, dt = random_input()
    expected = rnn(x, dt=dt)[0]
    twin = copy.deepcopy(rnn)
    assert torch.equal(twin(x, dt=dt)[0], expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(rnn(x, dt=dt)[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_round_trip(kind):
    """Saved, read back with weights_only=True, loaded strictly into a module of another seed."""
    rnn, file = layered(kind), io.BytesIO()
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(torch.randn_like(parameter))
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    other = layered(kind, seed=5)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    x, dt = random_input()
    assert torch.equal(other(x, dt=dt)[0], rnn(x, dt=dt)[0])
    for a, b in zip(rnn.timescales(), other.timescales(), strict=True):
        assert torch.equal(a, b)


def test_frozen_gates_are_a_list():
    with pytest.raises(ValueError, match=r"frozen is a list of gates: write \['forget'\]"):
        timescales.LSTM(3, 4, frozen="forget")
    with pytest.raises(ValueError, match=r"frozen is a list of gates: write \['input'\]"):
        timescales.LSTM(3, 4, 2, frozen=[["forget"], "input"])


def test_frozen_values_travel_with_the_state_dict():
    slow, fast = timescales.MTSLSTM(I, H, alpha=0.3), timescales.MTSLSTM(I, H, alpha=1.5)
    assert not torch.equal(slow.timescales()[0], fast.timescales()[0])
    fast.load_state_dict(slow.state_dict(), strict=True)
    assert torch.equal(slow.timescales()[0], fast.timescales()[0])


def test_names_of_the_parameters_are_torchs():
    def own(rnn):
        return {key.removeprefix("layers.0.") for key, _ in rnn.named_parameters()}

    assert own(timescales.LSTM(I, H)) == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    assert own(timescales.LSTM(I, H, forget_init="uniform")) - own(timescales.LSTM(I, H)) == {"gate_bias"}
    assert own(timescales.URLSTM(I, H)) == {"weight_ih", "weight_hh", "bias", "gate_bias"}
    assert own(timescales.PLSTM(I, H)) == {"weight_ih", "weight_hh", "bias", "power"}
    assert own(timescales.PLSTM(I, H, power=0.2)) == {"weight_ih", "weight_hh", "bias"}
    assert own(timescales.GRU(I, H)) == own(timescales.LSTM(I, H))
    assert own(timescales.GatedRNN(I, H)) == own(timescales.URLSTM(I, H))
    assert own(timescales.ExpRNN(I, H)) == {"weight_ih", "skew", "bias"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns(kind):
    rnn = layered(kind)
    x, dt = random_input()
    rnn(x, dt=dt)[0].square().sum().backward()
    for key, parameter in rnn.named_parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.any(), key


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_are_bitwise_equal(kind):
    x, dt = random_input()
    assert torch.equal(layered(kind)(x, dt=dt)[0], layered(kind)(x, dt=dt)[0])


def test_public_names_are_lazy_and_complete():
    assert set(timescales.__all__) >= {"RNN", "LSTM", "ChronoLSTM", "URLSTM", "MTSLSTM", "PLSTM", "Cell", "LSTMCell"}
    assert all(getattr(timescales, name) is not None for name in timescales.__all__)
    assert set(timescales.__all__) >= {"GatedRNN", "GRU", "PGRU", "JANET", "ExpRNN", "GatedLSTMCell", "GatedGRUCell"}
    with pytest.raises(AttributeError, match="GRUX"):
        timescales.GRUX  # noqa: B018
