"""Weights: reparametrised, pruned, averaged, optimised, copied, saved."""

import copy
import io
import math
import pickle
import warnings

import torch
from rnn_cases import B, H, I
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from timescales.nn.inits import INFINITE
from uses.layers import Layer
from uses.registry import NOT_RUN, group, use
from uses.tensors import close, close_in_size, data, fields, loss_of, plain, same, trained

group("Weights")


def place(rnn: nn.Module) -> tuple[nn.Module, str]:
    """The module and the name of the recurrent weights of the first layer; without, of the others."""
    if isinstance(rnn, nn.RNNBase):
        return rnn, "weight_hh_l0"
    cell = rnn.layers[0]
    return cell, "weight_hh" if cell.weight_hh is not None else "weight_ih"


def reshaped(layer: Layer, shape, remove) -> None:
    """Two steps with weights that `shape` computes again in each pass; then `remove` makes them permanent."""
    rnn, x = layer.make(), data()
    cell, name = place(rnn)
    before = rnn(x)[0].detach()
    shape(cell, name)
    optimizer = torch.optim.SGD(rnn.parameters(), 2e-4)  # at 1e-3 the logarithms of LRU overflow
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(rnn(x)[0]).backward()
        optimizer.step()
    rnn.eval()
    shaped = rnn(x)[0]
    assert (shaped - before).abs().max() > 1e-4
    remove(cell, name)
    close(rnn(x)[0], shaped)


@use("`weight_norm` (by hooks)")
def weight_norm(layer: Layer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        reshaped(layer, nn.utils.weight_norm, nn.utils.remove_weight_norm)


@use("`prune.l1_unstructured`")
def pruned(layer: Layer) -> None:
    reshaped(layer, lambda cell, name: prune.l1_unstructured(cell, name, amount=0.5), prune.remove)


@use("`parametrizations.weight_norm` and `spectral_norm`")
def parametrized(layer: Layer) -> None:
    for shape in (parametrizations.weight_norm, parametrizations.spectral_norm):
        reshaped(layer, shape, parametrize.remove_parametrizations)


EMA = get_ema_multi_avg_fn(0.5)  # of two values their mean, as the default


@use("`AveragedModel`, its mean and an exponential moving average, with and without buffers")
def averaged(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    before = [p.detach().clone() for p in rnn.parameters()]
    for buffers, average_fn in ((False, None), (True, None), (False, EMA), (True, EMA)):
        for parameter, value in zip(rnn.parameters(), before, strict=True):
            parameter.data.copy_(value)
        average = AveragedModel(rnn, multi_avg_fn=average_fn, use_buffers=buffers)
        average.update_parameters(rnn)
        with torch.no_grad():
            for parameter in rnn.parameters():
                parameter.add_(1.0)
        average.update_parameters(rnn)
        close(list(average.module.parameters()), [value + 0.5 for value in before])
        assert average(x)[0].isfinite().all()


@use("L-BFGS: ten steps lower the loss")
def lbfgs(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    goal = layer.make(seed=5)(x)[0].detach()
    optimizer = torch.optim.LBFGS(rnn.parameters(), lr=0.1, max_iter=10)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((rnn(x)[0] - goal) / goal.std()).square().mean()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    # Most gates of PhasedLSTM are closed for all six steps.
    assert closure() < (0.9 if layer.name == "PhasedLSTM" else 0.7) * first


@use("Adam with `foreach` and `fused`, gradients clipped: the same steps as one weight at a time")
def adam(layer: Layer) -> None:
    x, found = data(), []
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        rnn = layer.make()
        optimizer = torch.optim.Adam(rnn.parameters(), 0.01, eps=1e-3, **options)  # some gradients are rounding
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(rnn(x)[0]).backward()
            nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
            optimizer.step()
        found.append(list(rnn.parameters()))
    close(found[1], found[0])
    close(found[2], found[0])


@use("`torch.amp.GradScaler`: the steps as without")
def scaled(layer: Layer) -> None:
    x, found = data(), []
    for enabled in (False, True):
        rnn, scaler = layer.make(), torch.amp.GradScaler("cpu", enabled=enabled)
        optimizer = torch.optim.SGD(rnn.parameters(), 0.001)
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(loss_of(rnn(x)[0])).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append(list(rnn.parameters()))
    close(found[1], found[0], layer.tolerance)


@use("an optimizer for each parameter, stepped during backward (`register_post_accumulate_grad_hook`)")
def stepped_in_backward(layer: Layer) -> None:
    rnn, alone, x = layer.make(3), layer.make(3), data()
    for parameter in rnn.parameters():
        own = torch.optim.SGD([parameter], 0.01)
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
    loss_of(rnn(x)[0]).backward()
    loss_of(alone(x)[0]).backward()
    torch.optim.SGD(alone.parameters(), 0.01).step()
    close(list(rnn.parameters()), list(alone.parameters()))


@use("`frozen=('forget',)`: the time scales are not trained", torch=NOT_RUN, only={"LSTM", "ChronoLSTM", "URLSTM"})
def frozen_gate(layer: Layer) -> None:
    rnn, x = layer.make(3, frozen=("forget",)), data()
    before = [cell.bias_total("forget").clone() for cell in rnn.layers]
    optimizer = torch.optim.SGD(rnn.parameters(), 0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(rnn(x)[0]).backward()
        optimizer.step()
    same([cell.bias_total("forget") for cell in rnn.layers], before)


@use("weights set by their names: 'weight_hh' orthogonal, 'weight_ih' Xavier")
def set_by_name(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    before = rnn(x)[0].detach()
    for name, parameter in rnn.named_parameters():
        if "weight_hh" in name:
            nn.init.orthogonal_(parameter)
        elif "weight_ih" in name:
            nn.init.xavier_uniform_(parameter)
    assert not torch.allclose(rnn(x)[0], before, atol=1e-3)
    close(rnn(x)[0], plain(rnn).double()(x.double())[0].float(), layer.tolerance)


@use("weights in other strides")
def other_strides(layer: Layer) -> None:
    rnn, x = layer.make(), data().requires_grad_()
    expected = trained(rnn, x)
    for parameter in rnn.parameters():
        if parameter.dim() == 2:
            parameter.data = parameter.data.t().contiguous().t()
    close_in_size(layer, trained(rnn, x), expected)


@use("two layers share their weights")
def tied(layer: Layer) -> None:
    rnn, other, x = layer.make(), layer.make(seed=5), data()
    for part, shared in zip(other.modules(), rnn.modules(), strict=True):
        for name, parameter in shared.named_parameters(recurse=False):
            setattr(part, name, parameter)
        for name, buffer in shared.named_buffers(recurse=False):
            setattr(part, name, buffer)
    same([other(x)[0]], [rnn(x)[0]])
    wanted = list(rnn.parameters())
    single = torch.autograd.grad(loss_of(rnn(x)[0]), wanted)
    double = torch.autograd.grad(loss_of(rnn(x)[0]) + loss_of(other(x)[0]), wanted)
    close(double, tuple(2 * grad for grad in single), 1e-4)


@use("weights that hooks bring for each call and take away after it, as accelerate's `cpu_offload`")
def offloaded(layer: Layer) -> None:
    rnn, x = layer.make(3).requires_grad_(False), data()
    expected, state = rnn(x)
    for part in rnn.modules():
        kept = {name: p.clone() for name, p in part.named_parameters(recurse=False)}
        if not kept:
            continue

        def bring(module: nn.Module, _: object, kept=kept) -> None:
            for name, value in kept.items():
                setattr(module, name, nn.Parameter(value, requires_grad=False))

        def take(module: nn.Module, *_: object, kept=kept) -> None:
            for name, value in kept.items():
                setattr(module, name, nn.Parameter(value.to("meta"), requires_grad=False))

        part.register_forward_pre_hook(bring)
        part.register_forward_hook(take)
        take(part)
    assert all(parameter.is_meta for parameter in rnn.parameters())
    same([rnn(x)[0], rnn(x)[0]], [expected, expected])
    assert rnn(x, state)[0].isfinite().all()


@use("every parameter that requires a gradient gets one; gradients of two batches accumulate")
def accumulated(layer: Layer) -> None:
    rnn, x, y = layer.make(), data(), data(seed=2)
    (loss_of(rnn(x)[0]) + loss_of(rnn(y)[0])).backward()
    assert [name for name, p in rnn.named_parameters() if p.requires_grad and p.grad is None] == []
    together = [p.grad.clone() for p in rnn.parameters()]
    rnn.zero_grad()
    for batch in (x, y):
        loss_of(rnn(batch)[0]).backward()
    close([p.grad for p in rnn.parameters()], together)


@use("`parameters_to_vector` and back")
def as_vector(layer: Layer) -> None:
    rnn, other, x = layer.make(), layer.make(seed=5), data()
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(rnn.parameters()), other.parameters())
    for buffer, value in zip(other.buffers(), rnn.buffers(), strict=True):
        buffer.copy_(value)
    same([other(x)[0]], [rnn(x)[0]])


group("Copies and files")


@use("`copy.deepcopy` shares nothing with the original")
def deep_copy(layer: Layer) -> None:
    rnn, x = layer.make(3), data()
    expected = rnn(x)[0].detach()
    duplicate = copy.deepcopy(rnn)
    same([duplicate(x)[0]], [expected])
    with torch.no_grad():
        for parameter in duplicate.parameters():
            parameter.zero_()
    same([rnn(x)[0]], [expected])


@use("`pickle`, and `torch.save` of the whole module")
def pickled(layer: Layer) -> None:
    rnn, x, file = layer.make(3), data(), io.BytesIO()
    same([pickle.loads(pickle.dumps(rnn))(x)[0]], [rnn(x)[0]])
    torch.save(rnn, file)
    file.seek(0)
    same([torch.load(file, weights_only=False)(x)[0]], [rnn(x)[0]])


@use("`state_dict` saved, loaded with `weights_only=True`, into a module of another seed; `assign=True` too")
def state_dict(layer: Layer) -> None:
    rnn, x, file = layer.make(3), data(), io.BytesIO()
    torch.save(rnn.state_dict(), file)
    for assign in (False, True):
        file.seek(0)
        other = layer.make(3, seed=5)
        other.load_state_dict(torch.load(file, weights_only=True), assign=assign)
        same([other(x)[0]], [rnn(x)[0]])


@use("the state saved with `torch.save`, loaded with `weights_only=True`, and pickled")
def saved_state(layer: Layer) -> None:
    rnn, x, file = layer.make(3), data(), io.BytesIO()
    _, state = rnn(x)
    torch.save(state, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    same([rnn(x, back)[0]], [rnn(x, state)[0]])
    detached = pickle.loads(pickle.dumps(state))
    same(fields(detached), fields(state))


@use(
    "a `state_dict` of an earlier version: booleans for frozen biases, and infinite biases",
    torch=NOT_RUN, only={"MTSLSTM"},
)  # fmt: skip
def former_state_dict(layer: Layer) -> None:
    rnn, other = layer.make(quantiles="authors"), layer.make(quantiles="authors", seed=5)
    former = {}
    for name, value in rnn.state_dict().items():
        infinite = torch.where(value.abs() == INFINITE, value * math.inf, value)
        former[name] = value.bool() if name.endswith("frozen_rows") else infinite
    assert any(value.isinf().any() for value in former.values())
    for assign in (False, True):
        other.load_state_dict(former, assign=assign)
        same([other(data())[0]], [rnn(data())[0]])


@use("a `state_dict` of `torch.nn.LSTM` or `GRU`, bare or in a model, loaded with `strict=True`", only={"LSTM", "GRU"})
def torchs_state_dict(layer: Layer) -> None:
    torch.manual_seed(3)
    theirs, ours, x = getattr(nn, layer.name)(I, H, 3), layer.make(3), data()
    ours.load_state_dict(theirs.state_dict())
    close(ours(x)[0], theirs(x)[0])
    model = nn.ModuleDict({"rnn": layer.make(3)})
    model.load_state_dict({f"rnn.{key}": value for key, value in theirs.state_dict().items()})
    close(model["rnn"](x)[0], theirs(x)[0])


@use("`LSTM.from_torch` and `to_torch`", torch=NOT_RUN, only={"LSTM", "GRU"})
def converted(layer: Layer) -> None:
    torch.manual_seed(3)
    theirs, x = getattr(nn, layer.name)(4, H, 2), data()
    ours = type(layer.make()).from_torch(theirs)
    ours.engine = layer.engine
    h = data(2, B, H, seed=2)
    state = (h, data(2, B, H, seed=3)) if layer.name == "LSTM" else h
    expected, last = theirs(x, state)
    output, after = ours(x, state)
    close(output, expected)
    close(fields(after), fields(last))
    close(ours.to_torch()(x, state)[0], expected)
