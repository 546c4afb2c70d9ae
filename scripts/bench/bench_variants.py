"""What scripts/bench/bench.py measures: one training step of each variant, as a function to call again and again."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))
from timescales import GRU, JANET, LSTM, PGRU, PLSTM, URLSTM, ExpRNN, GatedRNN
from timescales.tasks import Copy
from timescales.training.model import SequenceModel

UNIT = "nn.LSTM"
RELATIVES: dict[str, dict[str, Any]] = {"GRU": {}, "pGRU": {}, "JANET": {"T_max": 200}, "expRNN": {}}


class Config(NamedTuple):
    S: int
    B: int
    I: int  # noqa: E741
    H: int
    irregular: str = ""  # with dt and a mask where the variant has them: a tenth "missing", or "padded" in front


class LoopLSTM(nn.Module):
    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H = nn.Linear(I + H, 4 * H), H

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[1], self.H)
        outputs = []
        for now in x.unbind(0):
            i, f, g, o = self.linear(torch.cat([now, h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


class LoopPLSTM(nn.Module):
    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.linear, self.H, self.power = nn.Linear(I + H, 3 * H), H, nn.Parameter(torch.zeros(H))

    def forward(self, x: Tensor) -> Tensor:
        h = c = k = x.new_zeros(x.shape[1], self.H)
        p, outputs = self.power.sigmoid(), []
        for t, now in enumerate(x.unbind(0), 1):
            r, g, o = self.linear(torch.cat([now, h], -1)).chunk(3, -1)
            r = r.sigmoid()
            k = r * t + (1 - r) * k
            f = ((t - k + 1) / (t - k + 1e-3)) ** -p
            c = f * c + (1 - f) * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


class ScriptLSTM(nn.Module):
    def __init__(self, I: int, H: int) -> None:  # noqa: E741
        super().__init__()
        self.input, self.recurrent = nn.Linear(I, 4 * H), nn.Linear(H, 4 * H)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.size(1), self.recurrent.in_features)
        c = torch.zeros_like(h)
        outputs: list[Tensor] = []
        for now in self.input(x).unbind(0):
            i, f, g, o = (now + self.recurrent(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)


def outputs_of(model: nn.Module, irregular: dict[str, Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """(every output, the last one) of a layer that returns (outputs, state)."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        output, state = model(x, **irregular)
        return output, state[0].h if irregular or not isinstance(model, nn.LSTM) else state[0][0]

    return run


def packed(model: nn.Module, lengths: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """As `outputs_of`, for sequences of these lengths, packed."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        sequences = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, (h, _) = model(sequences)
        return nn.utils.rnn.pad_packed_sequence(output, total_length=len(x))[0], h[0]

    return run


def step_of(name: str, config: Config, loss: str) -> Callable[[], None]:
    """One training step of a variant, ready to be called again and again."""
    S, B, I, H, irregular = config  # noqa: E741
    x, d_output = torch.randn(S, B, I), torch.randn(S, B, H) / B
    lengths = torch.linspace(S * 15 // 125, S, B).long()[torch.randperm(B)]  # of padded ones; for all variants alike
    mask = torch.rand(S, B) < 0.9 if irregular == "missing" else torch.arange(S).unsqueeze(1) >= S - lengths
    times = {"dt": torch.rand(S, B) * 2, "mask": mask} if irregular else {}
    if name == "bare GEMM":
        return bare_gemm(config)
    kind, _, cell = name.partition(" ")
    if kind == UNIT:
        model: nn.Module = nn.LSTM(I, H)
        run = packed(model, lengths) if cell == "packed" else outputs_of(model, {})
    elif kind == "training":
        return training_step(config, {"LSTM": LSTM, "coupled": PLSTM}[cell])
    elif kind in ("lstm", "gru"):
        model = GatedRNN(I, H, core=kind, gate=cell)
        run = outputs_of(model, times)
    elif name in RELATIVES:
        model = {"GRU": GRU, "pGRU": PGRU, "JANET": JANET, "expRNN": ExpRNN}[name](I, H, **RELATIVES[name])
        run = outputs_of(model, times)
    elif kind in ("fused", "eager"):
        make = {"LSTM": LSTM, "UR": URLSTM, "coupled": PLSTM, "separate": PLSTM}[cell]
        model = make(I, H, engine=kind, **({"coupled": False} if cell == "separate" else {}))
        run = outputs_of(model, times)
    else:
        model = {"loop LSTM": LoopLSTM, "loop pLSTM": LoopPLSTM, "script LSTM": ScriptLSTM}[name](I, H)
        loop = torch.jit.script(model) if kind == "script" else model

        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            output = loop(x)
            return output, output[-1]

    def step() -> None:
        model.zero_grad()
        output, last = run(x)
        if loss == "all":
            output.backward(d_output)
        else:
            last.backward(d_output[-1])

    return step


def training_step(config: Config, make: Any) -> Callable[[], None]:
    """The body of the training loop on the copy task: data, model with readout, loss, backward, clipping, RMSprop."""
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


def bare_gemm(config: Config) -> Callable[[], None]:
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
