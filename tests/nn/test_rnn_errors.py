"""Wrong arguments of the modules: the error says what to do."""

import math
import re

import pytest
import torch
from rnn_cases import KINDS, B, H, I, S, build, close, random_input
from torch import nn

import timescales
from timescales.nn.cells import LSTMCell
from timescales.nn.rnn import RNN


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "fix"),
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
        ({"dropout": True}, "dropout must be a number"),
        ({"batch_first": "False"}, "batch_first must be True or False, not 'False'"),
        ({"engine": "warp"}, "auto, eager"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_refused_arguments_say_what_to_do(kind, arguments, fix):
    with pytest.raises(ValueError, match=fix):
        build(kind, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_defaults_may_be_spelled_out(kind):
    rnn = build(kind, bias=True, bidirectional=False, proj_size=0, device=None, dtype=None)
    close(rnn(random_input()[0])[0], build(kind)(random_input()[0])[0])


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: timescales.LSTM(I, [3, 4]), "lists 2 layers, num_layers is 1"),
        (lambda: timescales.LSTM(I, [3, 4], 3), "lists 2 layers, num_layers is 3"),
        (lambda: timescales.LSTM(I, H, 2, forget_init=[1.0]), "forget_init lists 1"),
        (lambda: timescales.LSTM(I, H, 1, frozen=[("input",), ()]), "frozen lists 2"),
        (lambda: timescales.LSTM(I, 0), "hidden_size"),
        (lambda: timescales.LSTM(I, "8"), "hidden_size must be a whole number of at least 1, not '8'"),
        (lambda: timescales.ChronoLSTM(I, H, T_max=9, forget_init=1.0), "ChronoLSTM chooses forget_init .* to LSTM"),
        (lambda: timescales.MTSLSTM(I, H, frozen=("input",)), r"frozen itself: give frozen=\('input',\) to LSTM"),
        (lambda: timescales.MTSLSTM(I, H, 3, forget_init=[1.0] * 3), "MTSLSTM chooses forget_init itself"),
        (lambda: RNN([]), "at least 1"),
        (lambda: RNN([LSTMCell(2, 3), LSTMCell(4, 3)]), "3 units cannot feed one of 4"),
    ],
)
def test_layers_that_do_not_fit(call, fix):
    with pytest.raises(ValueError, match=fix):
        call()


X = torch.zeros(S, B, I)


@pytest.mark.parametrize(
    ("arguments", "fix"),
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
        ((X, []), rf"\(h_n, c_n\), each \(2, B, {H}\), not list"),
        ((X, [LSTMCell.State(torch.zeros(B, H), torch.zeros(B, H))] * 3), "one entry per layer"),
        ((X, [LSTMCell.State(torch.zeros(B + 1, H), torch.zeros(B + 1, H))] * 2), "state"),
        ((X, [LSTMCell.State(torch.zeros(1, H), torch.zeros(1, H))] * 2), "state"),  # must not broadcast in silence
        ((X, [LSTMCell.State(torch.zeros(B, H + 1), torch.zeros(B, H + 1))] * 2), "state"),
        ((X, (torch.zeros(3, B, H), torch.zeros(3, B, H))), rf"h is \(3, 3, {H}\), and there are 2 layers"),
        ((X, (torch.zeros(2, B, H), torch.zeros(2, 1, H))), rf"\(2, 3, {H}\): c of layer 0 is \(1, {H}\)"),
        ((X, torch.zeros(2, B, H)), rf"\(h_n, c_n\), each \(2, B, {H}\): this one has h"),  # of a GRU
        ((X, ([torch.zeros(B, H)] * 3, [torch.zeros(B, H)] * 3)), "state"),  # (h, c) in lists
        ((X, {"h": torch.zeros(2, B, H)}), "not dict"),
        ((X, [(None, None)] * 2), "state"),
    ],
    ids=[
        "unbatched",
        "features",
        "packed",
        "numpy",
        "dt_number",
        "mask_list",
        "dt_rank",
        "dt_turned",
        "mask_rank",
        "no_state",
        "state_of_3_layers",
        "state_of_4_sequences",
        "state_of_1_sequence",
        "state_of_6_units",
        "torchs_state_of_3_layers",
        "torchs_state_of_1_sequence",
        "state_of_a_gru",
        "torchs_state_in_lists",
        "dict",
        "state_of_nothing",
    ],
)
def test_wrong_shapes_raise_with_the_fix(arguments, fix):
    rnn = timescales.LSTM(I, H, 2)
    with pytest.raises(ValueError, match=fix):
        rnn(*arguments)


@pytest.mark.parametrize("engine", ["eager", "auto"])
@pytest.mark.parametrize("field", [0, 1])
def test_a_state_of_another_type_or_place_raises_with_the_fix(engine, field):
    rnn = timescales.LSTM(I, H, 2, engine=engine)
    for other in ({"dtype": torch.float64}, {"dtype": torch.float16}, {"device": "meta"}):
        state = [LSTMCell.State(*(torch.zeros(B, H, **(other if k == field else {})) for k in (0, 1)))] * 2
        with pytest.raises(ValueError, match=r"state of layer 0: [hc] is .*\.to\('cpu', torch\.float32\)"):
            rnn(X, state)


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        ("LSTM", "weight_hh_l1", "layers[1].weight_hh"),
        ("LSTM", "bias_hh_l0", "layers[0].bias_hh"),
        ("PLSTM", "bias_ih_l1", "layers[1].bias"),
    ],
)
def test_torchs_names_of_the_weights_say_where_they_are(kind, name, place):
    rnn = getattr(timescales, kind)(I, H, 2)
    with pytest.raises(AttributeError) as raised:
        getattr(rnn, name)
    assert str(raised.value) == f"{kind} has no {name}: it is {place}"
    layer, parameter = place.split(".")
    assert isinstance(getattr(rnn.layers[int(layer[7])], parameter), torch.nn.Parameter)


@pytest.mark.parametrize("name", ["weight_hh_l2", "weight_hh_l0_reverse", "weight_hr_l0", "layer"])
def test_other_names_have_torchs_message(name):
    with pytest.raises(AttributeError, match=f"^'LSTM' object has no attribute '{name}'$"):
        getattr(timescales.LSTM(I, H, 2), name)


def test_a_state_has_one_name():
    rnn = timescales.LSTM(I, H)
    _, state = rnn(X)
    with pytest.raises(ValueError, match="two names of one argument"):
        rnn(X, state, hx=state)


@pytest.mark.parametrize("engine", ["eager", "fused", "graph", "auto"])
def test_seeds_without_weights_are_refused(engine):
    """A kernel would read the weights of seeds that there are not: memory of something else."""
    rnn = timescales.PLSTM(I, H, engine=engine)
    with pytest.raises(ValueError, match=r"^x must have 3 dimensions, \(S, B, input\), not \(5, 2, 3, 4\)$"):
        rnn(torch.randn(5, 2, 3, I))
    two = {name: torch.stack([p, p]) for name, p in rnn.named_parameters()}
    assert torch.func.functional_call(rnn, two, (torch.randn(5, 2, 3, I),))[0].shape == (5, 2, 3, H)
    with pytest.raises(ValueError, match="weights of R seeds"):
        torch.func.functional_call(rnn, two, (torch.randn(5, 3, 3, I),))


@pytest.mark.parametrize(
    ("batch_first", "x", "message"),
    [
        (False, torch.zeros(S, I), "x must be (S, B, input), not (6, 4); for one sequence use x.unsqueeze(1)"),
        (True, torch.zeros(S, I), "x must be (B, S, input), not (6, 4); for one sequence use x.unsqueeze(0)"),
        (True, torch.zeros(I), "x must be (B, S, input), not (4,)"),
        (True, torch.zeros(2, 3, 4, I), "x must have 3 dimensions, (B, S, input), not (2, 3, 4, 4)"),
        (
            True,
            nn.utils.rnn.pack_padded_sequence(X, [S] * B),
            "packed sequences are not taken: pad them and give mask (B, S), 0 at the padding",
        ),
    ],
    ids=["2-D", "2-D batch first", "1-D", "4-D", "packed"],
)
def test_messages_have_the_shapes_of_batch_first(batch_first, x, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        timescales.PLSTM(I, H, batch_first=batch_first)(x)


@pytest.mark.parametrize("batch_first", [False, True])
def test_what_is_advised_for_one_sequence_runs_it(batch_first):
    rnn, one = timescales.PLSTM(I, H, batch_first=batch_first), torch.randn(S, I)
    output, _ = rnn(one.unsqueeze(0 if batch_first else 1))
    expected = timescales.PLSTM(I, H)
    expected.load_state_dict(rnn.state_dict())
    close(output.flatten(0, 1), expected(one[:, None])[0][:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_dt_by_position_is_no_state(kind):
    message = r"^the second argument is the state, .*, not \(6, 3\): did you mean rnn\(x, dt=dt\), or mask=mask\?$"
    with pytest.raises(ValueError, match=message):
        build(kind)(random_input()[0], torch.ones(S, B))


BAD = pytest.mark.parametrize("value", [-1.0, -1e-30, math.nan, math.inf, -math.inf])


@BAD
@pytest.mark.parametrize("engine", ["eager", "auto"])
@pytest.mark.parametrize("kind", ["PLSTM", "LSTM"])
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


@BAD
@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_dt_at_a_masked_step_may_be_anything(engine, value):
    rnn, dt, mask = timescales.PLSTM(I, H, engine=engine), torch.rand(S, B), torch.ones(S, B)
    mask[3, 1] = 0.0
    expected = rnn(X, dt=dt, mask=mask)[0]
    dt[3, 1] = value
    assert torch.equal(rnn(X, dt=dt, mask=mask)[0], expected)


def test_dt_may_be_zero_whole_or_empty():
    rnn = timescales.PLSTM(I, H)
    rnn(X, dt=torch.zeros(S, B))
    close(rnn(X, dt=torch.ones(S, B, dtype=torch.int64))[0], rnn(X)[0])
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
