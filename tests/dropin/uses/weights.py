"""Weights: reparametrised, pruned, averaged, optimised, copied, saved."""

import copy
import io
import pickle
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from uses.registry import (
    NOT_RUN,
    B,
    H,
    I,
    Layer,
    close,
    data,
    fields,
    group,
    loss_of,
    same,
    use,
)

group("Weights")


def place(rnn: nn.Module) -> tuple[nn.Module, str]:
    """The module and the name of the recurrent weights of the first layer; of ExpRNN, which has none, of the others."""
    if isinstance(rnn, nn.RNNBase):
        return rnn, "weight_hh_l0"
    cell = rnn.layers[0]
    return cell, "weight_hh" if cell.weight_hh is not None else "weight_ih"


def reshaped(layer: Layer, shape, remove) -> None:
    """Two steps with weights that `shape` computes anew in each pass; then `remove` makes them permanent."""
    rnn, x = layer.make(), data()
    cell, name = place(rnn)
    before = rnn(x)[0].detach()
    shape(cell, name)
    optimizer = torch.optim.SGD(rnn.parameters(), 0.05)
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
    optimizer = torch.optim.LBFGS(rnn.parameters(), lr=0.1, max_iter=10)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (rnn(x)[0] - 0.2).square().mean()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert closure() < 0.8 * first


@use("Adam with `foreach` and `fused`, gradients clipped: the same steps as one weight at a time")
def adam(layer: Layer) -> None:
    x, found = data(), []
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        rnn = layer.make()
        optimizer = torch.optim.Adam(rnn.parameters(), 0.01, **options)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(rnn(x)[0]).backward()
            nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
            optimizer.step()
        found.append(list(rnn.parameters()))
    close(found[1], found[0])
    close(found[2], found[0])


@use("gradients of two batches accumulate")
def accumulated(layer: Layer) -> None:
    rnn, x, y = layer.make(), data(), data(seed=2)
    (loss_of(rnn(x)[0]) + loss_of(rnn(y)[0])).backward()
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


@use("the state saved with `torch.save` and pickled")
def saved_state(layer: Layer) -> None:
    rnn, x, file = layer.make(3), data(), io.BytesIO()
    _, state = rnn(x)
    torch.save(state, file)
    file.seek(0)
    back = torch.load(file, weights_only=False)
    same([rnn(x, back)[0]], [rnn(x, state)[0]])
    detached = pickle.loads(pickle.dumps(state))
    same(fields(detached), fields(state))


@use("a `state_dict` of `torch.nn.LSTM` or `GRU`, alone or in a model, loaded with `strict=True`", only={"LSTM", "GRU"})
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
