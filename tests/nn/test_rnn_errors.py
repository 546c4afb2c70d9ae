"""Wrong arguments of the modules: the error says what to do."""

import math
import re

import pytest
import torch
from rnn_cases import KINDS, NEEDS_NO_BIAS, B, H, I, S, build, close, random_input
from torch import nn

import timescales
from timescales.nn.cells import LSTMCell
from timescales.nn.rnn import RNN

OF_ANY_LAYER = [({"batchfirst": True}, "did you mean batch_first"), ({"zzz": 1}, "no argument zzz")]
OF_ANY_LAYER += [({"engine": "warp"}, "auto, eager")]
# Of layers of torch's class torch says it: tests/dropin/test_forms.py.
OF_OTHERS = [
    ({"num_layers": 0}, "at least 1"),
    ({"num_layers": 1.0}, "whole number"),
    ({"dropout": 1.1}, r"dropout should be a number in range \[0, 1\], not 1.1"),
    ({"dropout": -0.1}, r"dropout should be a number in range \[0, 1\]"),
    ({"dropout": True}, r"a number in range \[0, 1\], not True"),
    ({"batch_first": "False"}, "batch_first should be of type bool, not 'False'"),
]
REFUSED = [(kind, *case) for kind in ("LSTM", "MTSLSTM") for case in OF_ANY_LAYER]
REFUSED += [(kind, *case) for kind in ("PLSTM", "RMC") for case in OF_ANY_LAYER + OF_OTHERS]


@pytest.mark.parametrize(("kind", "arguments", "fix"), REFUSED, ids=str)
def test_refused_arguments_say_what_to_do(kind, arguments, fix):
    with pytest.raises(ValueError, match=fix):
        build(kind, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_without_biases(kind):
    if kind not in NEEDS_NO_BIAS:
        reason = "part of its cell's equations|no bias of the forget gate to initialize: leave out its initializer"
        with pytest.raises(ValueError, match=reason):
            build(kind, bias=False)
        return
    rnn, zero = build(kind, bias=False), build(kind)
    assert not {"bias", "bias_ih", "bias_hh"} & {name.rpartition(".")[2] for name, _ in rnn.named_parameters()}
    own = rnn.state_dict()
    with torch.no_grad():
        for name, value in zero.state_dict().items():
            value.copy_(own[name] if name in own else torch.zeros_like(value))
    x, dt = random_input()
    close(rnn(x, dt=dt)[0], zero(x, dt=dt)[0])
    assert all(times.shape == (H,) for times in rnn.timescales())


@pytest.mark.parametrize("kind", KINDS)
def test_device_and_dtype_are_those_of_the_parameters(kind):
    name, arguments = KINDS[kind]
    before = torch.get_default_dtype()
    rnn = getattr(timescales, name)(I, H, device="meta", dtype=torch.float64, **arguments)
    assert {(p.device.type, p.dtype) for p in rnn.parameters()} == {("meta", torch.float64)}
    assert torch.get_default_dtype() is before
    spelled = build(kind, bias=True, bidirectional=False, proj_size=0, device=None, dtype=None)  # torch's defaults
    assert all(map(torch.equal, spelled.parameters(), build(kind).parameters()))


def test_layers_that_do_not_fit():
    for cells, fix in (([], "at least 1"), ([LSTMCell(2, 3), LSTMCell(4, 3)], "3 units cannot feed one of 4")):
        with pytest.raises(ValueError, match=fix):
            RNN(cells)


X = torch.zeros(S, B, I)
PACKED = nn.utils.rnn.pack_padded_sequence(X, [S] * B)


@pytest.mark.parametrize(("arguments", "fix"), [
    ((torch.zeros(S, B, I + 1),), "input_size. Expected 4, got 5"),
    ((PACKED, None, None, torch.ones(S, B)), "every step of packed sequences exists"),
    ((PACKED, None, torch.ones(S, B)), r"the dt of packed sequences is packed, too: pack_padded_sequence\(dt, "),
    ((X.numpy(),), "x must be a tensor, not ndarray"), ((X, None, 2.0), "dt must be a tensor, not float"),
    ((X, None, None, [True]), "mask must be a tensor, not list"), ((X, None, torch.ones(S, B, 1)), "dt must be"),
    ((X, None, torch.ones(B, S)), "dt must be"), ((X, None, None, torch.ones(S)), "mask must be"),
    ((X, []), rf"\(h_n, c_n\), each \(2, B, {H}\), not list"),
    ((X, [LSTMCell.State(torch.zeros(B, H), torch.zeros(B, H))] * 3), "one entry per layer"),
    ((X, [LSTMCell.State(torch.zeros(B + 1, H), torch.zeros(B + 1, H))] * 2), "state"),
    ((X, [LSTMCell.State(torch.zeros(1, H), torch.zeros(1, H))] * 2), "state"),  # must not broadcast in silence
    ((X, [LSTMCell.State(torch.zeros(B, H + 1), torch.zeros(B, H + 1))] * 2), "state"),
    ((X, (torch.zeros(3, B, H), torch.zeros(3, B, H))), rf"\[0\] size \(2, 3, {H}\), got \[3, 3, {H}\]"),
    ((X, (torch.zeros(2, B, H), torch.zeros(2, 1, H))), rf"\[1\] size \(2, 3, {H}\), got \[2, 1, {H}\]"),
    ((X, torch.zeros(2, B, H)), "hx and cx should also be 3-D"),  # of a GRU
    ((X, ([torch.zeros(B, H)] * 3, [torch.zeros(B, H)] * 3)), "state"),  # (h, c) in lists
    ((X, {"h": torch.zeros(2, B, H)}), "not dict"), ((X, [(None, None)] * 2), "state"),
])  # fmt: skip
def test_wrong_shapes_raise_with_the_fix(arguments, fix):
    """What torch's layer refuses, torch says."""
    rnn = timescales.LSTM(I, H, 2)
    with pytest.raises((ValueError, RuntimeError), match=fix):
        rnn(*arguments)


@pytest.mark.parametrize("engine", ["eager", "auto"])
@pytest.mark.parametrize("field", [0, 1])
def test_a_state_of_another_type_or_place_raises_with_the_fix(engine, field):
    rnn = timescales.LSTM(I, H, 2, engine=engine)
    for other in ({"dtype": torch.float64}, {"dtype": torch.float16}, {"device": "meta"}):
        state = [LSTMCell.State(*(torch.zeros(B, H, **(other if k == field else {})) for k in (0, 1)))] * 2
        with pytest.raises(ValueError, match=r"state of layer 0: [hc] is .*\.to\('cpu', torch\.float32\)"):
            rnn(X, state)


@pytest.mark.parametrize(("kind", "name", "place"), [
    ("URLSTM", "weight_hh_l1", "layers[1].weight_hh"), ("PGRU", "weight_ih_l0", "layers[0].weight_ih"),
    ("PLSTM", "bias_ih_l1", "layers[1].bias"),
])  # fmt: skip
def test_torchs_names_of_the_weights_say_where_they_are(kind, name, place):
    with pytest.raises(AttributeError, match=f"has no {name}: it is {re.escape(place)}$"):
        getattr(getattr(timescales, kind)(I, H, 2), name)


def test_another_dtype_than_the_weights_has_a_fix():
    """Numbers of NumPy's type cost one line: ours, or torch's where torch has the layer."""
    wide, whole = torch.randn(S, B, I, dtype=torch.float64), torch.ones(S, B, I, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"x is torch\.float64, the weights are torch\.float32: give x\.to"):
        timescales.PLSTM(I, H, 2)(wide)
    with pytest.raises(ValueError, match=r"x is torch\.int64"):
        timescales.PLSTM(I, H, 2)(whole)
    with pytest.raises(ValueError, match=r"input dtype \(torch\.float64\) does not match weight dtype"):
        timescales.LSTM(I, H, 2)(wide)


def test_a_dropout_that_is_set_later_is_checked():
    with pytest.raises(ValueError, match=r"dropout should be a number in range \[0, 1\], not 'half'"):
        timescales.LSTM(I, H, 2).dropout = "half"


@pytest.mark.parametrize("name", ["weight_hh_l2", "weight_hh_l0_reverse", "weight_hr_l0", "layer"])
def test_other_names_have_torchs_message(name):
    with pytest.raises(AttributeError, match=f"^'LSTM' object has no attribute '{name}'$"):
        getattr(timescales.LSTM(I, H, 2), name)


def test_a_state_has_one_name():
    for rnn, other in ((timescales.LSTM(I, H), "state"), (timescales.PLSTM(I, H), "hx")):
        _, state = rnn(X)
        with pytest.raises(ValueError, match="two names of one argument"):
            rnn(X, state, **{other: state})
        with pytest.raises(ValueError, match="input and x are two names of one argument"):
            rnn(X, x=X)


@pytest.mark.parametrize("engine", ["eager", "fused", "compiled", "auto"])
def test_four_dimensions_are_refused(engine):
    rnn = timescales.PLSTM(I, H, engine=engine)
    with pytest.raises(ValueError, match=r"^x must have 3 dimensions, \(S, B, input\), not \(5, 2, 3, 4\)$"):
        rnn(torch.randn(5, 2, 3, I))
    two = {name: torch.stack([p, p]) for name, p in rnn.named_parameters()}
    with pytest.raises(ValueError, match=r"PLSTMCell needs x \(S, B, input\) and weight_ih \(rows, input\)"):
        torch.func.functional_call(rnn, two, (torch.randn(5, 3, I),))


def test_messages_have_the_shapes_of_batch_first():
    for shape, words in ((I,), r"x must be \(B, S, input\), or"), ((2, 3, 4, I), r"\(B, S, input\), not"):
        with pytest.raises(ValueError, match=words):
            timescales.PLSTM(I, H, batch_first=True)(torch.zeros(shape))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "MTSLSTM", "PLSTM", "MinGRU"])
def test_dt_by_position_is_no_state(kind):
    message = r"^the second argument is the state, .*, not \(6, 3\): did you mean rnn\(x, dt=dt\), or mask=mask\?$"
    if kind in ("LSTM", "GRU"):
        message = "For batched 3-D input, hx (and cx )?should also be 3-D"
    with pytest.raises((ValueError, RuntimeError), match=message):
        build(kind)(random_input()[0], torch.ones(S, B))


@pytest.mark.parametrize(("kind", "engine", "value"), [
    ("PLSTM", "eager", -1.0), ("PLSTM", "auto", -1e-30), ("LSTM", "eager", math.nan), ("LSTM", "auto", math.inf),
    ("PLSTM", "auto", -math.inf),
])  # fmt: skip
def test_a_dt_that_is_no_time_is_refused(kind, engine, value):
    rnn, dt = getattr(timescales, kind)(I, H, engine=engine), torch.ones(S, B)
    dt[3, 1] = value
    reason = re.escape(f"dt[3, 1] is {value:g}; it must be finite and at least 0: sort the times")
    for given in (dt, dt.double(), dt.clone().requires_grad_()):
        with pytest.raises(ValueError, match=f"^{reason}; dt is the time since the previous step$"):
            rnn(X, dt=given)
    rnn.batch_first = True  # the place is that of the caller's tensor
    with pytest.raises(ValueError, match=r"^dt\[1, 3\] is "):
        rnn(X.transpose(0, 1), dt=dt.T)
    with pytest.raises(ValueError, match="sort the times"):
        rnn(X.transpose(0, 1), dt=dt.T, mask=torch.ones(B, S))


def test_dt_may_be_zero_or_empty():
    rnn = timescales.PLSTM(I, H)
    rnn(X, dt=torch.zeros(S, B))
    assert rnn(X[:0], dt=torch.ones(0, B))[0].shape == (0, B, H)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_dt_is_not_checked_where_it_has_no_numbers():
    """A check would fail there, or fix the result at tracing."""
    rnn, bad = timescales.PLSTM(I, H, engine="eager").requires_grad_(False), torch.full((S, B), -1.0)
    bad_output = torch.func.vmap(lambda dt: rnn(X, dt=dt)[0])(bad[None])
    assert bad_output.shape == (1, S, B, H)
    traced = torch.jit.trace(lambda x, dt: rnn(x, dt=dt)[0], (X, torch.ones(S, B)))
    assert traced(X, bad).shape == (S, B, H)
    compiled = torch.compile(lambda x, dt: rnn(x, dt=dt)[0], backend="eager", fullgraph=True)
    assert compiled(X, bad).shape == (S, B, H)
    with torch._subclasses.FakeTensorMode():
        fake = timescales.PLSTM(I, H, engine="eager")
        assert fake(torch.zeros(S, B, I), dt=torch.full((S, B), -1.0))[0].shape == (S, B, H)
    meta = timescales.PLSTM(I, H, engine="eager").to("meta")
    assert meta(X.to("meta"), dt=bad.to("meta"))[0].shape == (S, B, H)


@pytest.mark.parametrize(("lengths", "others"), [([3, 1], [2, 2]), ([4, 6], [6, 4])])
def test_dt_is_packed_as_x_is(lengths, others):
    def pack(value, by):
        return torch.nn.utils.rnn.pack_padded_sequence(value, torch.tensor(by), enforce_sorted=False)

    rnn, x, dt = timescales.PLSTM(3, 4), torch.ones(6, 2, 3), torch.ones(6, 2)
    rnn(pack(x, lengths), dt=pack(dt, lengths))
    for name in ("dt", "reset"):
        with pytest.raises(ValueError, match=rf"{name}.*pack_padded_sequence\({name}, lengths\)"):
            rnn(pack(x, lengths), **{name: pack(dt, others)})


# --- as torch's layers raise ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["IndRNN", "MinGRU", "JANET", "PLSTM"])
def test_a_wrong_shape_is_a_runtime_error_as_torchs_and_a_value_error(kind):
    rnn = getattr(timescales, kind)(I, H)
    _, state = rnn(X)
    for call in (lambda: rnn(torch.zeros(S, B, I + 1)), lambda: rnn(X[:, 1:], state)):
        with pytest.raises(RuntimeError) as error:
            call()
        assert isinstance(error.value, ValueError), "as in earlier versions"
