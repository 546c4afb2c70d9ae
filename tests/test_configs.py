"""Every shipped yaml: it composes with every other, its keys are its class's arguments, and it takes a step."""

import inspect

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from synthetic import SMALL, sizes

from timescales import build, cli, schema

MODELS, TASKS, OPTIMIZERS = (cli.choices(group) for group in ("model", "task", "optimizer"))
# Arguments that do not come from a yaml: the loop's own, and what only the library's users choose.
ELSEWHERE = {"input_size", "engine", "batch_first", "unknown", "seed", "device", "data_root", "params"}


def config(*overrides):
    schema.register()
    with initialize_config_dir(str(cli.conf()), version_base="1.3"):
        return compose("config", ["device=cpu", "logger=none", *overrides])


def content(group, name):
    found = yaml.safe_load((cli.conf() / group / f"{name}.yaml").read_text())
    return found.get(group, found)


@pytest.mark.parametrize(("group", "name"), [("model", m) for m in MODELS] + [("task", t) for t in TASKS])
def test_keys_are_the_arguments(group, name):
    keys = set(content(group, name)) - {"_target_", "name", *build.HEAD}
    arguments = set(inspect.signature(build.locate(group, content(group, name)["_target_"])).parameters) - ELSEWHERE
    assert keys == arguments


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_keys_are_arguments(name):
    keys = set(content("optimizer", name)) - {"_target_", "name"}
    assert "lr" in keys
    assert keys <= set(inspect.signature(build.locate("optimizer", content("optimizer", name)["_target_"])).parameters)


@pytest.mark.parametrize("group", ["model", "task", "optimizer", "logger", "paper"])
def test_name_is_the_files_name(group):
    assert all(content(group, name)["name"] == name for name in cli.choices(group))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
def test_every_pair_takes_a_step(task, model, corpora):
    overrides = ["task.batch_size=4", *sizes(task, 8), *SMALL.get(task, [])]
    cfg = config(f"task={task}", f"model={model}", "model.hidden_size=5", f"data_root={corpora}", *overrides)
    network, job, optimizer = build.build(schema.resolved(cfg))
    batch = next(job.batches("train"))
    output = network(batch)
    (job.loss(output.logits, batch) + job.penalty(output)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters() if p.requires_grad)
    optimizer.step()
    assert torch.isfinite(job.loss(network(batch).logits, batch))


@pytest.mark.parametrize(("overrides", "expected"), [
    (["task=frequency", "model=plstm"], {"model.hidden_size": 110, "model.epsilon": 1e-5}),
    (["task=frequency", "model=plstm", "model.hidden_size=7"], {"model.hidden_size": 7, "model.epsilon": 1e-5}),
    (["task=frequency", "model=plstm", "paper=gu"], {"model.hidden_size": 128, "model.epsilon": 1e-3}),
    (["task=pmnist", "model=lstm"], {"model.hidden_size": 256, "task.permutation": "bit_reversal"}),
    (["task=copy"], {"optimizer.name": "rmsprop", "optimizer.alpha": 0.9, "loop.max_epochs": 1000}),
    (["task=copy", "optimizer=sgd"], {"optimizer.name": "sgd"}),
    (["task=pmnist", "model=lstm", "paper=gu"], {"model.hidden_size": 512, "model.head_size": 256,
                                                 "task.batch_size": 50, "loop.max_epochs": 150}),
    (["task=copy", "model=gated", "paper=gu", "optimizer=adam"], {"task.layout": "gu", "task.score": "answers",
                                                                  "optimizer.lr": 1e-3, "loop.clip_norm": 1.0}),
    (["task=smnist"], {"optimizer.name": "adam", "task.permutation": "none"}),
])  # fmt: skip
def test_precedence(overrides, expected):
    cfg = config(*overrides)
    assert {key: OmegaConf.select(cfg, key) for key in expected} == expected


RECIPES = sorted(path.relative_to(cli.conf() / "recipe") for path in cli.conf().glob("recipe/*/*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_recipes_are_picked(recipe):
    paper, name = recipe.parts[0], recipe.stem
    task = next(t for t in TASKS if name.startswith(f"{t}_"))
    cfg = config(f"paper={paper}", f"task={task}", f"model={name.removeprefix(task + '_')}")
    said = OmegaConf.load(cli.conf() / "recipe" / recipe)
    resolved = OmegaConf.merge(cfg, said)
    for group in said:
        for key in said[group]:
            assert cfg[group][key] == resolved[group][key]


@pytest.mark.parametrize(("task", "horizon"), [
    (["task=copy", "task.T=200"], 300), (["task=copy", "task.T=500"], 750), (["task=frequency"], 125),
    (["task=frequency", "task.sampling=sync_01"], 1250), (["task=pmnist"], 784),
])  # fmt: skip
def test_chronos_T_max_is_the_tasks_horizon(task, horizon, corpora):
    small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4", "model.hidden_size=2000"]
    plain = schema.resolved(config("model=chrono", *task, *small, f"data_root={corpora}"))
    network, *_ = build.build(plain)
    assert plain["model"]["T_max"] == horizon  # the record says what "auto" came to
    longest = float(network.rnn.timescales()[0].max())
    assert 0.95 * (horizon - 0.5) < longest < horizon


@pytest.mark.parametrize("gate", ["-", "c", "o", "u", "r", "om", "um", "or", "ur"])
@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_every_gate_takes_a_step(core, gate):
    small = ["task.T=3", "task.batch_size=4", "task.train_size=8", "task.valid_size=4", "task.test_size=4"]
    cfg = config("model=gated", f"model.core={core}", f"model.gate={gate}", "model.hidden_size=16", *small)
    network, job, _ = build.build(schema.resolved(cfg))
    batch = next(job.batches("train"))
    job.loss(network(batch).logits, batch).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("model", ["gated", "+lstm"])
def test_a_head_for_any_model(model):
    plus = "+" if model.startswith("+") else ""
    cfg = config(f"model={model.strip('+')}", f"{plus}model.head_size=7", f"{plus}model.head_dropout=0.5", "task.T=3")
    network, *_ = build.build(schema.resolved(cfg))
    assert network.readout.in_features == 7
    assert network.head[2].p == 0.5


def test_same_seed_same_weights_whatever_the_task_drew(corpora):
    weights = []
    for task in ("smnist", "pmnist"):
        small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4"]
        cfg = config(f"task={task}", "model.hidden_size=3", f"data_root={corpora}", *small)
        weights.append(build.build(schema.resolved(cfg))[0].state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
