"""A small task and a model for the tests with other projects: is the sum of the last steps positive?"""

import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import timescales

S, B, H = 12, 32, 8
LAYERS = {"LSTM": timescales.LSTM, "PLSTM": timescales.PLSTM, "GRU": timescales.GRU}


def examples(number: int = 8 * B, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sequences (number, S, 1) and their classes (number,)."""
    x = torch.randn(number, S, 1, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, -4:, 0].sum(1) > 0).long()


class Classifier(nn.Module):
    """A recurrent layer and a linear readout of its last output."""

    def __init__(self, layer: str = "PLSTM", hidden_size: int = H) -> None:
        super().__init__()
        self.rnn = LAYERS[layer](1, hidden_size, batch_first=True)
        self.readout = nn.Linear(hidden_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.rnn(x)[0][:, -1])


def classifier(layer: str) -> Classifier:
    """A classifier with the weights of seed 0."""
    torch.manual_seed(0)
    return Classifier(layer)


def trained(layer: str, epochs: int, batch_size: int = B) -> tuple[Classifier, list[float]]:
    """A classifier after some epochs of plain torch, and the loss of each step."""
    model, (x, y), losses = classifier(layer), examples(), []
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(epochs):
        for k in range(0, len(x), batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[k : k + batch_size]), y[k : k + batch_size])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return model, losses


def difference(model: nn.Module, other: nn.Module) -> float:
    """The largest difference between the weights of two models."""
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def compare_with_two_processes(script: str, folder: Path) -> None:
    """Run a script, which writes the weights of each layer to `folder`, in two processes; they are those of one."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*launch, script, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for layer in LAYERS:
        expected, _ = trained(layer, epochs=2)
        found = classifier(layer)
        found.load_state_dict(torch.load(folder / f"{layer}.pt", weights_only=True))
        assert difference(found, expected) < 1e-5
