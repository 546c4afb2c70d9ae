"""accelerate: prepared training in one and two processes, weights offloaded to the CPU or to a disk."""

import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator, cpu_offload, disk_offload
from models import LAYERS, B, classifier, compare_with_two_processes, difference, examples, trained
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def fit(layer, batch_size=B):
    """Two epochs of accelerate's loop."""
    accelerator, model = Accelerator(cpu=True), classifier(layer)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    loader = DataLoader(TensorDataset(*examples()), batch_size)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(prepared(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(prepared.parameters(), 1e6)
            optimizer.step()
            losses.append(loss.item())
    return accelerator.unwrap_model(prepared), losses


@pytest.mark.parametrize("layer", LAYERS)
def test_two_epochs_give_the_weights_of_a_plain_loop(layer):
    model, losses = fit(layer)
    expected, plain_losses = trained(layer, epochs=2)
    assert difference(model, expected) < 1e-6
    assert max(abs(a - b) for a, b in zip(losses, plain_losses, strict=True)) < 1e-6
    assert sum(losses[8:]) < 0.9 * sum(losses[:8])


@pytest.mark.parametrize("layer", LAYERS)
def test_offloaded_weights_give_the_same_output(layer, tmp_path):
    x, _ = examples()
    expected = classifier(layer)(x).detach()
    for offload in (cpu_offload, lambda model, device: disk_offload(model, tmp_path / layer, device)):
        model = classifier(layer).requires_grad_(False)
        offload(model, torch.device("cpu"))
        assert all(parameter.is_meta for parameter in model.parameters())
        for _ in range(2):
            assert torch.equal(model(x), expected)


def test_two_processes_give_the_weights_of_one(tmp_path):
    """Each reads half of the batch of the plain loop."""
    compare_with_two_processes(__file__, tmp_path)


def in_two_processes(folder):
    assert Accelerator(cpu=True).num_processes == 2
    for layer in LAYERS:
        model, _ = fit(layer, B // 2)
        if Accelerator(cpu=True).is_main_process:
            torch.save(model.state_dict(), Path(folder) / f"{layer}.pt")


if __name__ == "__main__":
    in_two_processes(sys.argv[1])
