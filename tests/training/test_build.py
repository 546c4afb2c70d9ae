"""What `build` makes of a configuration: sizes, weights, and torch's settings."""

import pytest
import torch
from configs import config

from timescales.config import identity
from timescales.training import build


@pytest.mark.parametrize(
    ("task", "horizon"),
    [
        (["task=copy", "task.T=200"], 300),
        (["task=copy", "task.T=500"], 750),
        (["task=frequency"], 125),
        (["task=frequency", "task.sampling=sync_01"], 1250),
        (["task=pmnist"], 784),
    ],
)
def test_chronos_T_max_is_the_tasks_horizon(task, horizon, corpora):
    small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4", "model.hidden_size=2000"]
    plain = identity.resolved(config("model=chrono", *task, *small, f"data_root={corpora}"))
    network, *_ = build.build(plain)
    assert plain["model"]["T_max"] == horizon  # the record says what "auto" came to
    longest = float(network.rnn.timescales()[0].max())
    assert 0.95 * (horizon - 0.5) < longest < horizon


def test_auto_is_filled_in_lists_too():
    node = {"forget_init": [{"law": "chrono", "T_max": "auto"}, "default"], "T_max": "auto"}
    build.fill_horizon(node, 7)
    assert node == {"forget_init": [{"law": "chrono", "T_max": 7}, "default"], "T_max": 7}


@pytest.mark.parametrize(
    ("gate", "core"), zip(["-", "c", "o", "u", "r", "om", "um", "or", "ur"], 5 * ["lstm", "gru"], strict=False)
)
def test_every_gate_takes_a_step(core, gate):
    small = ["task.T=3", "task.batch_size=4", "task.train_size=8", "task.valid_size=4", "task.test_size=4"]
    cfg = config("model=gated", f"model.core={core}", f"model.gate={gate}", "model.hidden_size=16", *small)
    network, job, _ = build.build(identity.resolved(cfg))
    batch = next(job.batches("train"))
    job.loss(network(batch).logits, batch).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("model", ["gated", "+lstm"])
def test_a_head_for_any_model(model):
    plus = "+" if model.startswith("+") else ""
    cfg = config(f"model={model.strip('+')}", f"{plus}model.head_size=7", f"{plus}model.head_dropout=0.5", "task.T=3")
    network, *_ = build.build(identity.resolved(cfg))
    assert network.readout.in_features == 7
    assert network.head[2].p == 0.5


def test_same_seed_same_weights_whatever_the_task_drew(corpora):
    weights = []
    for task in ("smnist", "pmnist"):
        small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4"]
        cfg = config(f"task={task}", "model.hidden_size=3", f"data_root={corpora}", *small)
        weights.append(build.build(identity.resolved(cfg))[0].state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_precision_and_determinism_are_torchs_settings_too():
    for precision, words in (("tf32", "high"), ("fp32", "highest")):
        for deterministic in (True, False):  # the last ones are what other tests find
            more = [f"precision={precision}", f"deterministic={deterministic}", "model.hidden_size=2", "task.T=1"]
            build.build(identity.resolved(config("task=copy", *more, "task.train_size=1")))
            assert torch.backends.cudnn.allow_tf32 is (precision == "tf32")
            assert torch.get_float32_matmul_precision() == words
            assert torch.are_deterministic_algorithms_enabled() is deterministic
    assert torch.tensor(1e-30) * torch.tensor(1e-10) == 0.0  # no denormal numbers: they take a hundred times as long
