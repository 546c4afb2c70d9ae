"""Derivatives of every kind, and what changes how torch computes them."""

import torch
import torch.autograd.forward_ad as forward_mode
from rnn_cases import KINDS, B, S
from torch import Tensor
from torch.backends import mkldnn
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

from uses.layers import ELEMENTWISE, WITH_PARAMETERS, WITHOUT_PARAMETERS, Layer
from uses.registry import EAGER, MODIFIED, NOT_RUN, SECOND, Differs, Refused, group, use
from uses.tensors import close, close_in_size, data, fields, loss_of, plain, same, trained, with_fields

group("Derivatives")


# The suRNN's switch jumps: what stands for its derivative is no limit of differences.
@use("`torch.autograd.gradcheck` in float64", only=KINDS.keys() - {"SuRNN"})
def numerical(layer: Layer) -> None:
    rnn = layer.make().double()
    x = data(3, 2, 4).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: rnn(x)[0], [x, *rnn.parameters()])


@use(
    "second derivatives where the step has parameters or random numbers",
    torch=NOT_RUN, fused=EAGER, only=WITH_PARAMETERS, why=SECOND,
)  # fmt: skip
@use("second derivatives, `create_graph=True`", only=WITHOUT_PARAMETERS)
def second_derivatives(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    (first,) = torch.autograd.grad(loss_of(rnn(x)[0]), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    rnn, direction, squares = plain(rnn).double(), 1e-4 * data(seed=3).double(), []
    for sign in (1, -1):
        moved = (x.detach().double() + sign * direction).requires_grad_()
        squares.append(torch.autograd.grad(loss_of(rnn(moved)[0]), moved)[0].square().sum())
    close((squares[0] - squares[1]) / 2e-4, (second * direction).sum() / 1e-4, 1e-3)


@use(
    "`is_grads_batched=True` where the step has parameters or random numbers",
    torch=NOT_RUN, fused=EAGER, only=WITH_PARAMETERS, why=SECOND,
)  # fmt: skip
@use("`is_grads_batched=True`", only=WITHOUT_PARAMETERS)
def batched_gradients(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    output, _ = rnn(x)
    directions = data(2, *output.shape, seed=4)
    (found,) = torch.autograd.grad(output, x, directions, is_grads_batched=True, retain_graph=True)
    for k in range(2):
        close(found[k], torch.autograd.grad(output, x, directions[k], retain_graph=True)[0])


@use("forward-mode derivatives, `torch.autograd.forward_ad`", torch=Refused("forward AD", torchs=True), fused=EAGER)
def forward_derivatives(layer: Layer) -> None:
    rnn, x, direction = layer.make(), data(), data(seed=2)
    with forward_mode.dual_level():
        tangent = forward_mode.unpack_dual(rnn(forward_mode.make_dual(x, direction))[0]).tangent
    x.requires_grad_()
    (reverse,) = torch.autograd.grad(loss_of(plain(rnn)(x)[0]), x)
    output = rnn(x)[0].detach().requires_grad_()
    (weight,) = torch.autograd.grad(loss_of(output), output)
    close((weight * tangent).sum(), (reverse * direction).sum(), 1e-3)


@use("`torch.func.vmap` over x", torch=Refused("Batching rule", torchs=True))
def mapped(layer: Layer) -> None:
    rnn, x, y = layer.make(), data(), data(seed=2)
    found = vmap(lambda x: rnn(x)[0])(torch.stack([x, y]))
    close(found, torch.stack([rnn(x)[0], rnn(y)[0]]))


@use("`torch.func.grad`, `jvp` and `jacrev`", torch=Refused("forward AD", torchs=True))
def transformed(layer: Layer) -> None:
    rnn, x = layer.make(), data(3, 2, 4)
    close(grad(lambda x: loss_of(rnn(x)[0]))(x), trained(rnn, x.clone().requires_grad_())[1], 1e-4)
    jacobian = jacrev(lambda x: rnn(x)[0])(x)
    direction = data(3, 2, 4, seed=2)
    close(jvp(lambda x: rnn(x)[0], (x,), (direction,))[1], torch.tensordot(jacobian, direction, 3))


@use("`functional_call` with other weights, and gradients with respect to them")
def functional(layer: Layer) -> None:
    rnn, other, x = layer.make(), layer.make(seed=5), data()
    weights = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
    output, _ = functional_call(rnn, weights, (x,))
    expected = trained(other, x)
    same([output], [other(x)[0]])
    close(torch.autograd.grad(loss_of(output), list(weights.values())), tuple(expected[1:]))


@use("an ensemble: `stack_module_state` and `vmap` over the weights", torch=Refused("Batching rule", torchs=True))
def ensemble(layer: Layer) -> None:
    rnns, x = [layer.make(seed=k) for k in range(2)], data()
    parameters, buffers = stack_module_state(rnns)
    found = vmap(lambda p, b: functional_call(rnns[0], (p, b), (x,))[0])(parameters, buffers)
    close(found, torch.stack([rnn(x)[0] for rnn in rnns]), 1e-3)


@use("backward twice with `retain_graph=True`")
def backward_twice(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    output, _ = rnn(x)
    wanted = [x, *rnn.parameters()]
    first = torch.autograd.grad(loss_of(output), wanted, retain_graph=True)
    close(torch.autograd.grad(loss_of(output), wanted), first)


@use("one layer called twice before backward")
def called_twice(layer: Layer) -> None:
    rnn, x, y = layer.make(), data(), data(seed=2)
    wanted = list(rnn.parameters())
    together = torch.autograd.grad(loss_of(rnn(x)[0]) + loss_of(rnn(y)[0]), wanted)
    apart = (torch.autograd.grad(loss_of(rnn(batch)[0]), wanted) for batch in (x, y))
    close(together, tuple(a + b for a, b in zip(*apart, strict=True)), 1e-4)


@use("a loss of only the last state")
def loss_of_the_state(layer: Layer) -> None:
    rnn, x = layer.make(3), data().requires_grad_()
    wanted = [x, *rnn.parameters()]

    def gradients(module: torch.nn.Module, dtype: torch.dtype) -> list[Tensor]:
        _, state = module.to(dtype)(x.to(dtype))
        loss = sum(loss_of(value) for value in fields(state))
        found = torch.autograd.grad(loss, [x, *module.parameters()], allow_unused=True)
        return [torch.zeros_like(p) if g is None else g.float() for p, g in zip(wanted, found, strict=True)]

    expected = gradients(plain(rnn), torch.float64)
    close_in_size(layer, gradients(rnn, torch.float32), expected, layer.tolerance)


@use("gradients of a part of the weights; the others are frozen")
def some_frozen(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    expected = trained(rnn, x)[-1]
    for parameter in list(rnn.parameters())[:-1]:
        parameter.requires_grad_(False)
    _, found = trained(rnn, x)
    close(found, expected)


@use("a weight changed in place between forward and backward", everywhere=MODIFIED)
def changed_in_place(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    output, _ = rnn(x)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(2)
    output.sum().backward()


@use("x changed in place between forward and backward", everywhere=MODIFIED)
def input_changed_in_place(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    output, _ = rnn(x)
    x.zero_()
    output.sum().backward()


@use(
    "the output of a GRU changed in place before backward", fused=MODIFIED, only=["GRU"],
    why="backward reads the output, beside which torch's GRU keeps the states",
)  # fmt: skip
@use("the output changed in place before backward", torch=MODIFIED, fused=MODIFIED, only=KINDS.keys() - {"GRU"})
def output_changed_in_place(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    wanted = list(rnn.parameters())
    expected = torch.autograd.grad(loss_of(2 * rnn(x)[0]), wanted)
    output, _ = rnn(x)
    close(torch.autograd.grad(loss_of(output.mul_(2)), wanted), expected)


hooks = torch.autograd.graph


@use(
    "saved tensors that come back in other strides, with layer norms",
    torch=NOT_RUN, ours=Differs("the gradients of torch's layer norm are wrong"), only={"RMC"},
    why="torch's layer norm, which it calls, has this fault",
)  # fmt: skip
@use(
    "saved tensors that come back in other strides, `saved_tensors_hooks`",
    torch=Differs("the gradients are wrong"), only=KINDS.keys() - {"RMC"},
)  # fmt: skip
def saved_in_other_strides(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    expected = trained(rnn, x)
    with hooks.saved_tensors_hooks(
        lambda v: v.movedim(0, -1).contiguous().movedim(-1, 0) if v.dim() > 1 else v, lambda v: v
    ):
        close(trained(rnn, x), expected)


@use("saved tensors on the CPU, `save_on_cpu`, and packed to half precision, `saved_tensors_hooks`")
def saved_elsewhere(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    expected = trained(rnn, x)
    with hooks.save_on_cpu():
        close(trained(rnn, x), expected)
    half, single = (lambda v, t=t: v.to(t) if v.is_floating_point() else v for t in (torch.half, torch.float))
    with hooks.saved_tensors_hooks(half, single):
        found = trained(rnn, x)
    for a, b in zip(found, expected, strict=True):
        close(a / b.abs().max(), b / b.abs().max(), 0.02)


@use("`checkpoint`, non-reentrant and reentrant")
def checkpointed(layer: Layer) -> None:
    rnn, x = layer.make(3), data().requires_grad_()
    expected = trained(rnn, x)
    for reentrant in (False, True):
        output = checkpoint(lambda x: rnn(x)[0], x, use_reentrant=reentrant)
        for parameter in rnn.parameters():
            parameter.grad = None
        x.grad = None
        loss_of(output).backward()
        close([output, x.grad, *(p.grad for p in rnn.parameters())], expected)


@use("`torch.no_grad` and `torch.inference_mode`, and an input made there that is read outside of it")
def without_gradients(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    equal = close if layer.column == "torch" else same  # torch may choose another LSTM
    expected, state = rnn(x)
    continued = rnn(x, state)[0]
    with torch.no_grad():
        output, _ = rnn(x)
        assert not output.requires_grad
        equal([output], [expected])
    with torch.inference_mode():
        output, state = rnn(x)
        assert output.is_inference()
        equal([rnn(x, state)[0]], [continued])
        x = data()
    with torch.no_grad():
        close(rnn(x)[0], expected)


@use("`torch.use_deterministic_algorithms(True)` and `torch.autograd.detect_anomaly`")
def deterministic(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    expected = trained(rnn, x)
    with torch.autograd.detect_anomaly(check_nan=True):
        close(trained(rnn, x), expected)
    torch.use_deterministic_algorithms(True)
    try:
        same(trained(rnn, x), expected)
    finally:
        torch.use_deterministic_algorithms(False)


@use(
    "`torch.autocast` to bfloat16 on the CPU, x in bfloat16 (the output of an `nn.Linear`): close to float32, the "
    "gradients too; the eager engine runs"
)
def autocast(layer: Layer) -> None:
    rnn, x = layer.make(), data().bfloat16().requires_grad_()
    expected = trained(rnn, x.detach().float().requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        found = trained(rnn, x)
    assert not torch.equal(found[0].float(), expected[0])
    close(found[0].float(), expected[0], 0.03)
    for a, b in zip(found, expected, strict=True):
        assert torch.nn.functional.cosine_similarity(a.float().flatten(), b.flatten(), 0) > 0.99


@use(
    "`torch.autocast` to bfloat16 on the CPU, x in float32: the C++ engine computes in float32, bitwise as without",
    torch=Differs("products in bfloat16"), eager=NOT_RUN, as_torch=True, only=ELEMENTWISE,
)  # fmt: skip
def autocast_of_float32(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    expected = trained(rnn, x)
    with torch.autocast("cpu", torch.bfloat16), mkldnn.flags(enabled=layer.column != "torch"):  # not on every CPU
        same(trained(rnn, x), expected)


@use("`torch.autocast` to bfloat16: the output is float32", torch=Differs("it is bfloat16"), as_torch=True)
def autocast_result(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    with torch.autocast("cpu", torch.bfloat16):
        for given in (x.bfloat16(), x):
            output, state = rnn(given)
            assert {value.dtype for value in (output, *fields(state))} == {torch.float32}


@use("`.double()`: float64 throughout")
def double(layer: Layer) -> None:
    rnn = layer.make().double()
    output, _ = rnn(data().double())
    assert output.dtype == torch.float64
    close(output.float(), layer.make()(data())[0], 1e-3)


@use("`.half()` and `.bfloat16()`: the values of float32 up to rounding, for six steps")
def half(layer: Layer) -> None:
    expected = layer.make()(data())[0]
    for dtype in (torch.half, torch.bfloat16):
        output, _ = layer.make().to(dtype)(data().to(dtype))
        assert output.dtype == dtype
        close(output.float(), expected, 0.05)


@use("hooks: forward, pre-forward, backward, on each parameter, and on the output, also with `retain_grad`")
def hooks_of_every_kind(layer: Layer) -> None:
    rnn, x, seen = layer.make(), data().requires_grad_(), []
    expected = trained(rnn, x)
    output, _ = rnn(x)
    output.retain_grad()
    output.register_hook(lambda grad: 2 * grad)
    loss_of(output).backward()
    close(x.grad, 2 * expected[1])
    value = output.detach().requires_grad_()
    close(output.grad, 2 * torch.autograd.grad(loss_of(value), value)[0])
    rnn.zero_grad()
    x.grad = None
    rnn.register_forward_pre_hook(lambda module, given: seen.append("before"))
    rnn.register_forward_hook(lambda module, given, made: seen.append("after"))
    rnn.register_full_backward_hook(lambda module, given, made: seen.append("backward"))
    for parameter in rnn.parameters():
        parameter.register_hook(lambda grad: seen.append("parameter"))
    output, _ = rnn(x)
    loss_of(output).backward()
    assert seen[:2] == ["before", "after"]
    assert seen.count("parameter") == len(list(rnn.parameters()))
    assert seen.count("backward") == 1
    close([output, x.grad, *(p.grad for p in rnn.parameters())], expected)


@use("truncated backpropagation: the state is detached between segments")
def truncated(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    _, state = rnn(x[:3])
    given = with_fields(state, [value.detach() for value in fields(state)])
    output, *grads = trained(rnn, x[3:], given)
    close(output, rnn(x)[0][3:])
    assert output.shape == (S - 3, B, output.shape[-1])
    assert all(g.isfinite().all() for g in grads)
