"""Lightning's Trainer: the weights of a plain loop, two processes, a checkpoint, mixed precision."""

import os
import sys
from pathlib import Path

import lightning
import pytest
import torch
from models import LAYERS, B, classifier, compare_with_two_processes, difference, examples, trained
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(lightning.LightningModule):
    def __init__(self, layer):
        super().__init__()
        self.save_hyperparameters()
        self.model, self.losses = classifier(layer), []

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)


def fit(layer, folder, batch_size=B, part=slice(None), **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, default_root_dir=folder, **quiet, **options)
    module = Lit(layer)
    trainer.fit(module, DataLoader(TensorDataset(*(value[part] for value in examples())), batch_size))
    return trainer, module


@pytest.mark.parametrize("layer", LAYERS)
def test_two_epochs_give_the_weights_of_a_plain_loop(layer, tmp_path):
    _, module = fit(layer, tmp_path)
    expected, losses = trained(layer, epochs=2)
    assert difference(module.model, expected) == 0
    assert module.losses == losses
    assert sum(losses[8:]) < 0.9 * sum(losses[:8])
    (file,) = tmp_path.rglob("*.ckpt")
    again = Lit.load_from_checkpoint(file)
    assert difference(again, module) == 0


@pytest.mark.parametrize("layer", LAYERS)
def test_mixed_precision_is_close(layer, tmp_path):
    _, module = fit(layer, tmp_path, precision="bf16-mixed", gradient_clip_val=10.0)
    _, losses = trained(layer, epochs=2)
    assert max(abs(a - b) for a, b in zip(module.losses, losses, strict=True)) < 0.01


def test_two_processes_give_the_weights_of_one(tmp_path):
    """Each reads every second sequence: half of the batch of the plain loop."""
    compare_with_two_processes(__file__, tmp_path)


def in_two_processes(folder):
    part = slice(int(os.environ["RANK"]), None, 2)
    options = {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False, "enable_checkpointing": False}
    for layer in LAYERS:
        trainer, module = fit(layer, folder, B // 2, part, **options)
        assert trainer.world_size == 2
        if trainer.is_global_zero:
            torch.save(module.model.state_dict(), Path(folder) / f"{layer}.pt")


if __name__ == "__main__":
    in_two_processes(sys.argv[1])
