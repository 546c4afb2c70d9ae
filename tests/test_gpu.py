"""On a GPU: what the CPU tests show, there too. `make gpu` runs these; `make test` leaves them out."""

import pytest
import torch
from hydra import compose, initialize_config_dir

from timescales import build, cli, loop, schema
from timescales.schema import Loop

pytestmark = pytest.mark.gpu
MODELS = cli.choices("model")


def config(device, *overrides):
    schema.register()
    small = ["task.T=8", "task.batch_size=16", "task.train_size=160", "task.valid_size=20", "task.test_size=20"]
    with initialize_config_dir(str(cli.conf()), version_base="1.3"):
        cfg = compose("config", ["task=copy", f"device={device}", "logger=none", *small, *overrides])
    return schema.resolved(cfg)


@pytest.mark.parametrize("model", MODELS)
def test_a_step_equals_the_cpus(model):
    losses, gradients = [], []
    for device in ("cpu", "cuda"):
        network, task, _ = build.build(config(device, f"model={model}", "engine=eager"))
        batch = next(task.batches("train"))
        loss = task.loss(network(batch).logits, batch)
        loss.backward()
        losses.append(loss.item())
        gradients.append([p.grad.cpu() for p in network.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for cpu, gpu in zip(*gradients, strict=True):
        torch.testing.assert_close(gpu, cpu, rtol=1e-3, atol=1e-6)  # float32 sums in another order


@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_data_are_those_of_the_cpu(task):
    found = []
    for device in ("cpu", "cuda"):
        plain = config(device, f"task={task}")
        plain["task"].pop("T", None)
        found.append(next(build.build(plain)[1].batches("train", 3, 1)))
    for cpu, gpu in zip(*found, strict=True):
        if cpu is not None:
            torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-6, atol=1e-6)


def test_resume_continues(tmp_path):
    plain = config("cuda")
    results = []
    for folder, steps in (("whole", (9,)), ("parts", (4, 9))):
        (tmp_path / folder).mkdir()
        for step in steps:
            network, task, optimizer = build.build(plain)
            settings = Loop(max_epochs=1, max_steps=step)
            found = loop.fit(network, task, optimizer, lambda v, s: None, settings, tmp_path / folder)
            if step < 9:  # as if it had been interrupted there
                from timescales import checkpoint

                last = checkpoint.load(tmp_path / folder / "last.pt")
                last["progress"] |= {"stopped": None, "curve": [], "best": None}
                checkpoint.save(tmp_path / folder / "last.pt", last)
        results.append(found.curve[-1]["valid/loss"])
    assert results[1] == pytest.approx(results[0], rel=1e-4)
