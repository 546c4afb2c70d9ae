"""torch's compilers, tracers and exporters."""

import io

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from uses.layers import OF_TORCH, OTHERS, Layer
from uses.registry import NOT_RUN, READERS, Differs, Refused, group, use
from uses.tensors import close, data, fields, loss_of

group("Compilers and exporters")
UNKNOWN = Refused("Dynamo does not support", torchs=True)


def compiled(layer: Layer, **options: bool) -> None:
    torch.compiler.reset()
    rnn = layer.make()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return loss_of(rnn(2 * x)[0])

    fast = torch.compile(loss, backend="eager", **options)
    for steps in (3, 2):
        x = data()[:steps].requires_grad_()
        wanted = [x, *rnn.parameters()]
        close(torch.autograd.grad(fast(x), wanted), torch.autograd.grad(loss(x), wanted))


@use("`torch.compile` (backend eager), forward and backward, two lengths")
def compile_(layer: Layer) -> None:
    compiled(layer)


@use(
    "`torch.compile(fullgraph=True)`",
    torch=NOT_RUN, fused=Refused("use engine='eager'", torchs=True), only=OTHERS, why=READERS,
)  # fmt: skip
@use("`torch.compile(fullgraph=True)` of torch's class", torch=UNKNOWN, ours=UNKNOWN, only=OF_TORCH)
def compile_whole(layer: Layer) -> None:
    compiled(layer, fullgraph=True)


@use("`torch.export`, also saved and loaded, with a state as input")
def export(layer: Layer) -> None:
    rnn, x = layer.make(), data()[:3]
    _, state = rnn(x)
    program, file = torch.export.export(rnn, (x, state)), io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    output, after = torch.export.load(file).module()(x, state)
    expected, last = rnn(x, state)
    close(output, expected)
    close(fields(after), fields(last))


class OutputOnly(torch.nn.Module):
    """A model whose only result is the layer's output."""

    def __init__(self, rnn: torch.nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[0]


@use("`torch.jit.trace` of a model, and of the layer itself, which then returns the state as a tuple")
def traced(layer: Layer) -> None:
    rnn, x, y = layer.make(), data(), data(seed=2)
    close(torch.jit.trace(OutputOnly(rnn), x)(y), rnn(y)[0])
    output, state = torch.jit.trace(rnn, x)(y)
    expected, last = rnn(y)
    close(output, expected)
    close(fields(state), fields(last))


class LastState(OutputOnly):
    """A model of two parts of a sequence whose only result is the last h, which it reads from the state."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, state = self.rnn(x[:3])
        _, state = self.rnn(x[3:], state)
        h = state if isinstance(state, torch.Tensor) else state[0] if type(state) is tuple else state.h
        return h[-1]


@use("`torch.jit.trace` of a model that reads `state.h` and gives the state back")
def traced_state(layer: Layer) -> None:
    rnn, x, y = layer.make(3), data(), data(seed=2)
    close(torch.jit.trace(LastState(rnn), x)(y), rnn(y)[0][-1])


@use("`torch.jit.script`, which torch deprecates", ours=Refused("use torch.jit.trace"), why=READERS)
def scripted(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    close(torch.jit.script(OutputOnly(rnn))(x), rnn(x)[0])


@use(
    "`torch.ao.quantization.quantize_dynamic`, which torch deprecates",
    ours=Differs("the layer stays as it is; `rnn.to_torch()`, or `timescales.restore(model)`, can be quantized"),
    only=("LSTM", "GRU"), why=READERS,
)  # fmt: skip
def quantized(layer: Layer) -> None:
    model = torch.nn.Sequential(layer.make()).eval()
    found = torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM, torch.nn.GRU})
    assert type(found[0]).__module__.startswith("torch.ao.nn.quantized")
    close(found(data())[0], model(data())[0], 0.1)


@use("`torch.fx.symbolic_trace`", ours=Refused("is_leaf_module"), why=READERS)
def symbolically_traced(layer: Layer) -> None:
    rnn, x = OutputOnly(layer.make()), data()
    close(torch.fx.symbolic_trace(rnn)(x), rnn(x))


@use("`make_fx`")
def made_fx(layer: Layer) -> None:
    rnn, x, y = layer.make(), data(), data(seed=2)
    close(make_fx(lambda x: rnn(x)[0])(x)(y), rnn(y)[0])


@use("`FlopCounterMode`")
def counted(layer: Layer) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    rnn, x = layer.make(), data()
    with FlopCounterMode(display=False):
        output, _ = rnn(x)
    close(output, rnn(x)[0])
