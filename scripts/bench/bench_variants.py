"""What bench.py measures: a training step of each variant, as a function without arguments."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tutorial")]

from bench_peers import loop_layer, scan_step  # noqa: E402
from decay import Decay  # noqa: E402

import timescales  # noqa: E402
from timescales import LSTM, PLSTM, RNN, URLSTM, GatedRNN  # noqa: E402
from timescales.config import schema  # noqa: E402
from timescales.models.sequence import SequenceModel  # noqa: E402
from timescales.nn import registry  # noqa: E402
from timescales.tasks import Copy, Task  # noqa: E402
from timescales.training.run import TrainingRun  # noqa: E402

UNIT = "nn.LSTM"
Run = Callable[[Tensor], tuple[Tensor, Tensor]]  # input -> all outputs, the last output
# Models by variant: class and arguments. A variant is called after its class, or as it always was.
NAMES = {"pgru": "pGRU", "leaky": "leaky", "mingru": "minGRU", "minlstm": "minLSTM", "exprnn": "expRNN"}
ARGUMENTS = {"janet": {"T_max": 200}}
OTHERS = [model for model in registry.MODELS if model.family != registry.FIVE and model.name != "gated"]
SCANS = tuple(NAMES.get(model.name, model.layer) for model in OTHERS if model.family == registry.SCAN)
OTHER_CELLS: dict[str, tuple[type[RNN], dict[str, Any]]] = {
    NAMES.get(model.name, model.layer): (getattr(timescales, model.layer), ARGUMENTS.get(model.name, {}))
    for model in OTHERS
}
OTHER_CELLS["own gate"] = (Decay, {})  # the cell of docs/tutorial/decay.py
ENGINE_CELLS: dict[str, tuple[type[RNN], dict[str, Any]]] = {
    "LSTM": (LSTM, {}),
    "UR": (URLSTM, {}),
    "coupled": (PLSTM, {}),
    "separate": (PLSTM, {"coupled": False}),
}


class Config(NamedTuple):
    """Sizes of a measurement.

    irregular: "missing" (a tenth of the steps) or "padded" (in front), for variants that take dt and a mask.
    """

    S: int
    B: int
    I: int  # noqa: E741
    H: int
    irregular: str = ""


class LoopLSTM(nn.Module):
    """An LSTM as a Python loop over steps."""

    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H = nn.Linear(I + H, 4 * H), H

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[1], self.H)
        outputs = []
        for x_t in x.unbind(0):
            i, f, g, o = self.linear(torch.cat([x_t, h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


class LoopPLSTM(nn.Module):
    """The power-law LSTM in the paper's equations, as a Python loop over steps."""

    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H, self.power = nn.Linear(I + H, 3 * H), H, nn.Parameter(torch.zeros(H))

    def forward(self, x: Tensor) -> Tensor:
        h = c = k = x.new_zeros(x.shape[1], self.H)
        p, outputs = self.power.sigmoid(), []
        for t, x_t in enumerate(x.unbind(0), 1):
            r, g, o = self.linear(torch.cat([x_t, h], -1)).chunk(3, -1)
            r = r.sigmoid()
            k = r * t + (1 - r) * k
            f = ((t - k + 1) / (t - k + 1e-3)) ** -p
            c = f * c + (1 - f) * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


class ScriptLSTM(nn.Module):
    """An LSTM for torch.jit.script."""

    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.input, self.recurrent = nn.Linear(I, 4 * H), nn.Linear(H, 4 * H)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.size(1), self.recurrent.in_features)
        c = torch.zeros_like(h)
        outputs: list[Tensor] = []
        for z_t in self.input(x).unbind(0):
            i, f, g, o = (z_t + self.recurrent(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


def outputs_of(model: nn.Module, irregular: dict[str, Tensor]) -> Run:
    """A function that returns all outputs and the last one of a layer with the results (outputs, state)."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        output, state = model(x, **irregular)
        h = state if isinstance(state, Tensor) else state[0] if isinstance(state, tuple) else state.h
        return output, h[-1]

    return run


def packed(model: nn.Module, lengths: Tensor) -> Run:
    """As `outputs_of`, for packed sequences of these lengths."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        sequences = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, (h, _) = model(sequences)
        return nn.utils.rnn.pad_packed_sequence(output, total_length=len(x))[0], h[0]

    return run


def step_of(name: str, config: Config, loss: str) -> Callable[[], None]:
    """A training step of a variant."""
    if name == "bare GEMM":
        return bare_gemm(config)
    if name.startswith("training "):
        return training_step(config, {"LSTM": LSTM, "coupled": PLSTM}[name.removeprefix("training ")])
    S, B, I, H, _ = config  # noqa: E741
    if name.startswith("jax "):
        return scan_step(name.removeprefix("jax "), S, B, I, H)
    x, d_output = torch.randn(S, B, I), torch.randn(S, B, H) / B
    model, run = layer_of(name, config)

    def step() -> None:
        model.zero_grad()
        output, last = run(x)
        if loss == "all":
            output.backward(d_output)
        else:
            last.backward(d_output[-1])

    return step


def layer_of(name: str, config: Config) -> tuple[nn.Module, Run]:
    """The layer of a variant, and a function that runs it."""
    S, B, I, H, irregular = config  # noqa: E741
    lengths = torch.linspace(S * 15 // 125, S, B).long()[torch.randperm(B)]  # of padded sequences
    mask = torch.rand(S, B) < 0.9 if irregular == "missing" else torch.arange(S).unsqueeze(1) >= S - lengths
    times = {"dt": torch.rand(S, B) * 2, "mask": mask} if irregular else {}
    kind, _, cell = name.partition(" ")
    if kind == UNIT:
        lstm = nn.LSTM(I, H)
        return lstm, packed(lstm, lengths) if cell == "packed" else outputs_of(lstm, {})
    if kind == "torchrecurrent":
        layer = loop_layer(cell, I, H)
        return layer, outputs_of(layer, {})
    if name == "nn.GRU":
        gru = nn.GRU(I, H)
        return gru, outputs_of(gru, {})
    if kind in ("loop", "script"):
        loop = {"loop LSTM": LoopLSTM, "loop pLSTM": LoopPLSTM, "script LSTM": ScriptLSTM}[name](I, H)
        return loop, last_output_of(torch.jit.script(loop) if kind == "script" else loop)
    model: nn.Module
    if kind in ("lstm", "gru"):
        model = GatedRNN(I, H, core=kind, gate=cell)
    elif name in OTHER_CELLS:
        make, arguments = OTHER_CELLS[name]
        model = make(I, H, **arguments)  # type: ignore[arg-type, call-arg]  # the modules have torch.nn.LSTM's arguments
    else:
        make, arguments = ENGINE_CELLS[cell]
        model = make(I, H, engine=kind, **arguments)  # type: ignore[arg-type, call-arg]
    return model, outputs_of(model, times)


def last_output_of(loop: Callable[[Tensor], Tensor]) -> Run:
    """As `outputs_of`, for a layer that returns only the outputs."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        output = loop(x)
        return output, output[-1]

    return run


def training_step(config: Config, make: Any) -> Callable[[], None]:
    """A training step of the copy task: data, model with readout, loss, backward, clipping, RMSprop."""
    task = Copy(T=config.S - 20, batch_size=config.B, train_size=64 * config.B)
    model = SequenceModel(make(config.I, config.H), task.spec)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9)
    batches = itertools.chain.from_iterable(task.batches("train", epoch) for epoch in itertools.count())

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad(set_to_none=True)
        task.loss(model(batch).logits, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def endless_run(model: SequenceModel, task: Task, optimizer: Optimizer, config: dict[str, Any]) -> TrainingRun:
    """A run that trains as configured, but neither validates nor saves."""
    settings = dataclasses.replace(schema.LoopSettings(**config["loop"]), max_steps=None, eval_every=10**9)
    return TrainingRun(model, task, optimizer, lambda values, step: None, settings, directory=None)


def bare_gemm(config: Config) -> Callable[[], None]:
    """Only the matrix products of an LSTM, with preallocated results."""
    S, B, I, H, _ = config  # noqa: E741
    x, h, dz = torch.randn(S * B, I), torch.randn(S * B, H), torch.randn(S * B, 4 * H)
    ih, hh = torch.randn(4 * H, I), torch.randn(4 * H, H)
    z, dh, d_ih, d_hh = torch.empty(S * B, 4 * H), torch.empty(B, H), torch.empty(4 * H, I), torch.empty(4 * H, H)
    rows = [slice(t * B, (t + 1) * B) for t in range(S)]

    def step() -> None:
        torch.mm(x, ih.t(), out=z)
        for r in rows:
            torch.addmm(z[r], h[r], hh.t(), out=z[r])
        for r in rows:
            torch.mm(dz[r], hh, out=dh)
        torch.mm(dz.t(), h, out=d_hh)
        torch.mm(dz.t(), x, out=d_ih)
        dz.sum(0)

    return step
