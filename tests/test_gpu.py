"""On a GPU: what the CPU tests show, there too. `make gpu` runs these; `make test` leaves them out.

TIMESCALES_GPU_TESTS=cpu rehearses them where there is none.
"""

import os
import signal

import pytest
import torch
from hydra import compose, initialize_config_dir

from timescales import build, cli, loop, schema
from timescales.schema import Loop

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("TIMESCALES_GPU_TESTS", "cuda")


def config(device, *overrides, task="copy"):
    schema.register()
    small = ["task.batch_size=16", "task.train_size=160", "task.valid_size=20", "task.test_size=20"]
    if task == "copy":
        small.append("task.T=8")
    with initialize_config_dir(str(cli.conf()), version_base="1.3"):
        cfg = compose("config", [f"task={task}", f"device={device}", "logger=none", *small, *overrides])
    return schema.resolved(cfg)


@pytest.mark.parametrize("model", cli.choices("model"))
@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_a_step_equals_the_cpus(model, task):
    losses, gradients = [], []
    for device in ("cpu", DEVICE):
        network, job, _ = build.build(config(device, f"model={model}", "engine=eager", task=task))
        batch = next(job.batches("train"))
        loss = job.loss(network(batch).logits, batch)
        loss.backward()
        assert loss.device.type == device.split(":")[0]
        losses.append(loss.item())
        gradients.append([p.grad.cpu() for p in network.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for cpu, gpu in zip(*gradients, strict=True):
        torch.testing.assert_close(gpu, cpu, rtol=1e-3, atol=1e-6)  # float32 sums in another order


@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_data_are_those_of_the_cpu(task):
    found = [next(build.build(config(device, task=task))[1].batches("train", 3, 1)) for device in ("cpu", DEVICE)]
    for cpu, gpu in zip(*found, strict=True):
        if cpu is not None:
            torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-6, atol=1e-6)


def test_interrupted_run_goes_on(tmp_path):
    def fit(folder, stop_after=None):
        (tmp_path / folder).mkdir(exist_ok=True)
        network, job, optimizer = build.build(config(DEVICE))

        def log(values, step):
            if step == stop_after:
                signal.raise_signal(signal.SIGINT)

        return loop.fit(network, job, optimizer, log, Loop(max_epochs=1), tmp_path / folder)

    whole = fit("whole")
    with pytest.raises(KeyboardInterrupt):
        fit("parts", stop_after=4)
    # Sums on a GPU are not always in the same order: equal to rounding, bitwise only with deterministic=true.
    assert fit("parts").curve[-1]["valid/loss"] == pytest.approx(whole.curve[-1]["valid/loss"], rel=1e-4)
