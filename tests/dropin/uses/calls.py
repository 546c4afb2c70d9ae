"""Construction, the call, and the state."""

import torch
from rnn_cases import KINDS, NEEDS_NO_BIAS, B, H, I, S
from torch import nn

from uses.layers import FROM_BIAS, LSTMS, NAMED, OF_TORCH, OTHERS, POWER_LAW, Layer
from uses.registry import BIASES, NOT_RUN, TORCHS, Differs, Refused, group, refused_here, use
from uses.tensors import close, data, fields, plain, trained, with_fields

group("Arguments and calls")


@use("`rnn(x)` with x (S, B, I); three layers")
def call(layer: Layer) -> None:
    output, state = layer.make(3)(data())
    assert output.shape == (S, B, H)
    assert fields(state)[0].shape == (3, B, H)
    assert all(value.shape[:2] == (3, B) for value in fields(state))  # a field may be wider than H
    close(fields(state)[0][-1], output[-1])


@use("`batch_first=True`; the state stays (layers, B, H)")
def batch_first(layer: Layer) -> None:
    expected, last = layer.make()(data())
    output, state = layer.make(batch_first=True)(data().transpose(0, 1))
    close(output.transpose(0, 1), expected)
    close(fields(state), fields(last))


@use("a state given back continues the sequence")
def continued(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    whole, last = rnn(x)
    first, state = rnn(x[:2])
    second, state = rnn(x[2:], state)
    close(torch.cat([first, second]), whole)
    close(fields(state), fields(last))


@use("a state given by torch's name, `rnn(x, hx=state)`")
def state_by_torchs_name(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    _, state = rnn(x)
    close(rnn(x, hx=state)[0], rnn(x, state)[0])
    assert not torch.allclose(rnn(x, hx=state)[0], rnn(x)[0])


@use("`output, (h_n, c_n) = rnn(x)`, and `rnn(x, (h_0, c_0))`", only=LSTMS)
def two_tensors(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    h_0, c_0 = data(3, B, H, seed=2), data(3, B, H, seed=3)
    output, (h_n, c_n) = rnn(x, (h_0, c_0))
    assert h_n.shape == c_n.shape == (3, B, H)
    close(h_n[-1], output[-1])
    assert not torch.allclose(rnn(x)[0], output)


@use("`output, h_n = rnn(x)`, and `rnn(x, h_0)`", only=frozenset(KINDS) - LSTMS - NAMED)
def one_tensor(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    output, h_n = rnn(x, data(3, B, H, seed=2))
    assert h_n.shape == (3, B, H)
    close(h_n[-1], output[-1])
    assert not torch.allclose(rnn(x)[0], output)


@refused_here(
    "`output, (h_n, c_n) = rnn(x)` of a power-law layer, whose state has an age",
    "this state is not unpacked: read state.h", POWER_LAW, "such a state has three fields",
)  # fmt: skip
def two_tensors_of_three(layer: Layer) -> None:
    _, (_, _) = layer.make()(data())


@use("no step, x (0, B, I): the state is returned as it was", torch=Refused("larger than 0", torchs=True))
def no_step(layer: Layer) -> None:
    rnn = layer.make()
    _, state = rnn(data())
    output, after = rnn(data()[:0], state)
    assert output.shape == (0, B, H)
    close(fields(after), fields(state))


@use("an empty batch, x (S, 0, I), forward and backward")
def no_batch(layer: Layer) -> None:
    output, *grads = trained(layer.make(), data()[:, :0])
    assert output.shape == (S, 0, H)
    assert not any(grad.any() for grad in grads)


@use("one step; and one sequence without a batch, x (S, I)")
def one_of_each(layer: Layer) -> None:
    rnn = layer.make()
    close(rnn(data()[:1])[0], rnn(data())[0][:1])
    close(rnn(data()[:, 0])[0], rnn(data()[:, :1])[0][:, 0])


@use("a packed sequence")
def packed(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    output, _ = rnn(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 2])))
    close(nn.utils.rnn.pad_packed_sequence(output)[0][:, 0], rnn(x)[0][:, 0])


@use("`bidirectional=True`")
def bidirectional(layer: Layer) -> None:
    assert layer.make(bidirectional=True)(data())[0].shape == (S, B, 2 * H)


@refused_here("`proj_size=2` of other layers", "put an nn.Linear after it", LSTMS - {"LSTM"}, TORCHS)
@use("`proj_size=2`", only={"LSTM"})
def projection(layer: Layer) -> None:
    assert layer.make(proj_size=2)(data())[0].shape == (S, B, 2)


@refused_here(
    "`bias=False`, where the equations need a bias",
    "the biases are part of its cell's equations", KINDS.keys() - NEEDS_NO_BIAS - FROM_BIAS, BIASES,
)  # fmt: skip
@refused_here("`bias=False`, where a bias is the start of the memory", "leave out its initializer", FROM_BIAS, BIASES)
@use("`bias=False`", only=NEEDS_NO_BIAS)
def no_bias(layer: Layer) -> None:
    rnn = layer.make(bias=False)
    assert not any(name.rpartition(".")[2].startswith("bias") for name, _ in rnn.named_parameters())
    assert rnn(data())[0].isfinite().all()


@use("`dtype=` (and so `device=`), and what follows `num_layers` by position, as torch's `LSTM(I, H, 1, True, True)`")
def torchs_arguments(layer: Layer) -> None:
    assert layer.make(dtype=torch.float64)(data().double())[0].dtype == torch.float64
    assert layer.construct(I, H, 1, True, True).batch_first


@use('`batch_first="False"`', everywhere=Refused("batch_first should be of type bool"))
def text_for_a_truth_value(layer: Layer) -> None:
    assert layer.make(batch_first="False")(data())[1] is None


@use("`dropout=0.5` between layers, also set after construction: in training only")
def dropout(layer: Layer) -> None:
    rnn, later, x = layer.make(3, dropout=0.5), layer.make(3), data()
    later.dropout = 0.5
    for each in (rnn, later):
        assert not torch.equal(each(x)[0], each(x)[0])
        close(each.eval()(x)[0], layer.make(3).eval()(x)[0])


@use("`rnn.flatten_parameters()`, and `rnn.reset_parameters()`: the weights that the seed gives to a new layer")
def reset_parameters(layer: Layer) -> None:
    rnn = layer.make(3)
    rnn.flatten_parameters()
    expected = {key: value.clone() for key, value in rnn.state_dict().items()}
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(1.0)
    torch.manual_seed(0)
    rnn.reset_parameters()
    for key, value in rnn.state_dict().items():
        assert torch.equal(value, expected[key]), key


@use(
    "an input of another dtype than the weights",
    torch=Refused("dtype", torchs=True), ours=Refused("give x.to(torch.float32)"), as_torch=True,
)  # fmt: skip
def other_dtype(layer: Layer) -> None:
    layer.make()(data().double())


@use(
    "an input with another number of features",
    torch=Refused("Expected 4", torchs=True), ours=Refused("this RNN reads 4"), as_torch=True,
)  # fmt: skip
def other_features(layer: Layer) -> None:
    layer.make()(data(S, B, I + 1))


@use(
    "a state of another batch size",
    torch=Refused("Expected hidden", torchs=True), ours=Refused("h of layer 0 is (3, 6), not (4, 6)"), as_torch=True,
)  # fmt: skip
def other_batch(layer: Layer) -> None:
    rnn = layer.make()
    _, state = rnn(data())
    rnn(data(S, B + 1, I), state)


@refused_here("`hidden_size=0`", "a whole number of at least 1", OTHERS, "a layer without units has no output")
@use("`hidden_size=0` of torch's class", everywhere=Refused("greater than zero"), only=OF_TORCH)
def no_units(layer: Layer) -> None:
    layer.construct(I, 0)


@use("torch's attributes, `input_size` to `dropout`, and `bidirectional` (False) and `proj_size` (0)")
def attributes(layer: Layer) -> None:
    rnn = layer.make(3, batch_first=True, dropout=0.5)
    assert (rnn.input_size, rnn.hidden_size, rnn.num_layers, rnn.batch_first, rnn.dropout) == (I, H, 3, True, 0.5)
    assert (rnn.bidirectional, rnn.proj_size) == (False, 0)


@refused_here("the attribute `weight_hh_l0` of other layers", "it is layers[0].weight_hh", OTHERS, TORCHS)
@use("the attribute `weight_hh_l0`", only=OF_TORCH)
def attribute_weight(layer: Layer) -> None:
    rnn = layer.make(3)
    assert rnn.weight_hh_l0.shape[1] == H
    assert "weight_ih_l2" in rnn.state_dict()


@use(
    "code that looks for torch's class by `isinstance`, with other layers",
    torch=NOT_RUN, ours=Differs("it is not found"), only=OTHERS, why=TORCHS,
)  # fmt: skip
@use("code that looks for torch's class by `isinstance`", only=OF_TORCH)
def torchs_class(layer: Layer) -> None:
    assert isinstance(layer.make(), nn.RNNBase)


@use("`torch.set_default_dtype(torch.float64)`")
def default_dtype(layer: Layer) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        rnn = layer.make()
    finally:
        torch.set_default_dtype(torch.float32)
    assert rnn(data(dtype=torch.float64))[0].dtype == torch.float64


@use("a state as one tuple per layer, as earlier versions returned it", torch=NOT_RUN)
def state_by_layer(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    _, state = rnn(x)
    by_layer = [tuple(value[k] for value in fields(state)) for k in range(3)]
    close(rnn(x, by_layer)[0], rnn(x, state)[0])


@use("the state of some sequences is set to zero in place between two calls")
def state_in_place(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    with torch.no_grad():
        _, state = rnn(x)
        for value in fields(state):
            value[:, 1] = 0.0
        found, kept = rnn(x, state)[0], rnn(x, rnn(x)[1])[0]
        close(found[:, [0, 2]], kept[:, [0, 2]])
        assert not torch.allclose(found[:, 1], kept[:, 1])
        zeros = with_fields(state, [torch.zeros_like(value) for value in fields(state)])
        close(found[:, 1], rnn(x, zeros)[0][:, 1])


@use("inside `torch.nn.Sequential`, after a layer that returns a tensor")
def sequential(layer: Layer) -> None:
    torch.manual_seed(1)
    linear, rnn = nn.Linear(I, I), layer.make()
    close(nn.Sequential(linear, rnn)(data())[0], rnn(linear(data()))[0])


@use("the C++ and the eager engine give the same results and gradients", torch=NOT_RUN, eager=NOT_RUN)
def engines_agree(layer: Layer) -> None:
    rnn, x = layer.make(3), data().requires_grad_()
    close(trained(rnn, x), trained(plain(rnn), x), layer.tolerance)
