"""Inputs in every layout, tensor subclasses, and numbers at the edge."""

import math

import torch
from rnn_cases import KINDS, B, H, I, S
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from uses.layers import BOUNDED, ELEMENTWISE, Layer
from uses.registry import NOT_RUN, Differs, Refused, group, use
from uses.tensors import close, data, fields, trained, with_fields

group("Inputs")


def check(layer: Layer, x: Tensor) -> None:
    """Results and gradients for an x of any layout are those for a contiguous copy."""
    rnn = layer.make()
    expected = trained(rnn, torch.tensor(x.detach().tolist()).view(x.shape).requires_grad_())
    close(trained(rnn, x.detach().requires_grad_()), expected)


@use("x in other layouts: a transposed view, every second element of a longer tensor, expanded (stride 0)")
def other_layouts(layer: Layer) -> None:
    check(layer, data(I, B, S).permute(2, 1, 0))
    check(layer, data(2 * S, 2 * B, 2 * I)[1::2, ::2, ::2])
    check(layer, data(1, 1, I).expand(S, B, I))


@use("x is the real or the imaginary part of a complex tensor, with torch's negation bit where it is conjugated")
def complex_parts(layer: Layer) -> None:
    check(layer, torch.complex(data(), data(seed=2)).conj().real)
    x = torch.fft.fft(data(), dim=0).conj().imag
    assert x.is_neg()
    check(layer, x)


@use("the state and the gradient of the output have the negation bit")
def negated_elsewhere(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    _, state = rnn(x)
    values = [torch.complex(v, -v.detach()).conj().imag for v in fields(state)]
    assert all(value.is_neg() for value in values)
    given = with_fields(state, values)
    output, _ = rnn(x, given)
    direction = torch.complex(data(S, B, H), data(S, B, H, seed=5)).conj().imag
    found = torch.autograd.grad(output, list(rnn.parameters()), direction, materialize_grads=True)
    copied = with_fields(state, [torch.tensor(v.tolist()) for v in values])
    wanted, direction = list(rnn.parameters()), torch.tensor(direction.tolist())
    expected = torch.autograd.grad(rnn(x, copied)[0], wanted, direction, materialize_grads=True)
    close(found, expected)


@use("the state is expanded over the batch (stride 0), as a learned initial state")
def expanded_state(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    _, state = rnn(x)
    sizes = [value.shape[-1] for value in fields(state)]
    first = [torch.full((1, 1, size), 0.1 * k, requires_grad=True) for k, size in enumerate(sizes, 1)]
    read = first[layer.unread :]
    output, _ = rnn(x, with_fields(state, [v.expand(1, B, -1) for v in first]))
    expected, _ = rnn(x, with_fields(state, [v.expand(1, B, -1).contiguous() for v in first]))
    close(output, expected)
    close(torch.autograd.grad(output.sum(), read), torch.autograd.grad(expected.sum(), read))


@use("only the state requires a gradient")
def gradient_of_the_state_alone(layer: Layer) -> None:
    rnn, x = layer.make().requires_grad_(False).double(), data(dtype=torch.float64)
    _, state = rnn(x)
    values = [v.clone().requires_grad_() for v in fields(state)]
    k = layer.unread
    found = torch.autograd.grad(rnn(x, with_fields(state, values))[0].sum(), values[k:])
    assert all(grad.isfinite().all() for grad in found)
    assert found[0].any()
    step = 1e-5 * data(*values[k].shape, seed=4, dtype=torch.float64)
    with torch.no_grad():
        moved = ([*values[:k], values[k] + s * step, *values[k + 1 :]] for s in (1, -1))
        up, down = (rnn(x, with_fields(state, v))[0].sum() for v in moved)
    close((up - down) / 2e-5, (found[0] * step).sum() / 1e-5, 1e-3)


@use("100,000 steps: two halves equal the whole", eager=NOT_RUN)
def many_steps(layer: Layer) -> None:
    rnn, x = layer.make(), data(100_000, 1, I)
    with torch.no_grad():
        whole, _ = rnn(x)
        first, state = rnn(x[:50_000])
        second, state = rnn(x[50_000:], state)
    assert whole.isfinite().all()
    close(torch.cat([first, second]), whole, 1e-6)
    loss_and_grads = trained(rnn, x)
    assert all(value.isfinite().all() for value in loss_and_grads)


@use("2,000 steps on the eager engine: two halves equal the whole", torch=NOT_RUN, fused=NOT_RUN)
def many_steps_eager(layer: Layer) -> None:
    rnn, x = layer.make(), data(2000, 1, I)
    whole, *grads = trained(rnn, x)
    assert all(value.isfinite().all() for value in (whole, *grads))
    with torch.no_grad():
        first, state = rnn(x[:1000])
        close(torch.cat([first, rnn(x[1000:], state)[0]]), whole, 1e-6)


@use("NaN in one sequence reaches neither the others nor earlier steps")
def not_a_number(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    sound = rnn(x)[0]
    x[2, 1, 0] = math.nan
    output = rnn(x)[0]
    close(output[:, [0, 2]], sound[:, [0, 2]])
    close(output[:2, 1], sound[:2, 1])
    assert output[2:, 1].isnan().any()


# An exponential gate of an infinite input is no number, nor are the sum of two infinite preactivations and a remembered
# infinity that fades.
FINITE = BOUNDED - {"CfC", "SLSTM", "GRUD"}


@use("x = inf in one sequence: the gradients of the recurrent weights are finite", only=FINITE)
def infinity(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    x[2, 1, 0] = math.inf
    output, *grads = trained(rnn, x)
    names = [name for name, _ in rnn.named_parameters()]
    assert output.isfinite().all()
    recurrent = [grad for name, grad in zip(names, grads, strict=True) if "weight_hh" in name]
    assert all(grad.isfinite().all() for grad in recurrent)


@use("gradients of the output of size 1e-20")
def small_gradients(layer: Layer) -> None:
    check_small(layer, 1e-20)


# A ReLU passes a gradient on as it is: also a tiny one, and a sparse one is refused by another message.
GATED = frozenset(KINDS) - {"IndRNN", "NRU", "SRU"}


@use(
    "gradients of the output of size 1e-30", fused=Differs("below 1e-30 they are set to zero"), only=GATED,
    why="products of numbers near 1e-38 are slow on processors",
)  # fmt: skip
def tiny_gradients(layer: Layer) -> None:
    check_small(layer, 1e-30)


def check_small(layer: Layer, size: float) -> None:
    """Gradients are proportional to the gradient of the output, of this size."""
    rnn, x = layer.make(), data()
    output, wanted = rnn(x)[0], list(rnn.parameters())
    small, ones = torch.full_like(output, size), torch.ones_like(output)
    found = torch.autograd.grad(output, wanted, small, retain_graph=True)
    close([g / size for g in found], list(torch.autograd.grad(output, wanted, ones)), layer.tolerance)


@use("x is sparse", everywhere=Refused("sparse", torchs=True))
def sparse(layer: Layer) -> None:
    rnn, x = layer.make(), data().relu()
    close(rnn(x.to_sparse())[0], rnn(x)[0])


SPARSE = Refused("Sparse", torchs=True)


@use("the gradient of the output is sparse", torch=SPARSE, eager=SPARSE, only=ELEMENTWISE & GATED)
def sparse_gradient(layer: Layer) -> None:
    rnn, direction = layer.make(), data(S, B, H).relu()
    output, wanted = rnn(data())[0], list(rnn.parameters())
    found = torch.autograd.grad(output, wanted, direction.to_sparse(), retain_graph=True)
    close(found, torch.autograd.grad(output, wanted, direction))


@use("the gradient of the output is torch's tensor of zeros without memory")
def zero_gradient(layer: Layer) -> None:
    rnn = layer.make()
    output = rnn(data())[0]
    found = torch.autograd.grad(output, list(rnn.parameters()), torch._efficientzerotensor(output.shape))
    assert not any(grad.any() for grad in found)


group("Tensor subclasses")


class Tagged(Tensor):
    """A subclass that changes nothing."""


@use("a subclass of `torch.Tensor` that changes nothing")
def subclass(layer: Layer) -> None:
    rnn = layer.make()
    close(rnn(data().as_subclass(Tagged))[0].as_subclass(Tensor), rnn(data())[0])


@use("`TwoTensor` (torch's test subclass with two values) as x: both values are computed")
def two_values(layer: Layer) -> None:
    rnn, a, b = layer.make(), data(), data(seed=2)
    output, _ = rnn(TwoTensor(a, b))
    close(output.a, rnn(a)[0])
    close(output.b, rnn(b)[0])


@use("`FakeTensor` as x: shapes without numbers")
def fake(layer: Layer) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        output, _ = layer.make()(mode.from_tensor(data()))
    assert output.shape == (S, B, H)


@use("modules on the meta device, then `to_empty`")
def meta(layer: Layer) -> None:
    with torch.device("meta"):
        rnn = layer.make()
    output, _ = rnn(torch.empty(S, B, I, device="meta"))
    assert output.shape == (S, B, H)
    assert output.is_meta
    rnn = rnn.to_empty(device="cpu")
    rnn.load_state_dict(layer.make().state_dict())
    close(rnn(data())[0], layer.make()(data())[0])
