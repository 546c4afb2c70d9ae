"""Recipes: each is picked for its paper, task and model, and its constants are those of the paper."""

import pytest
from configs import config
from omegaconf import OmegaConf

from timescales import paths
from timescales.config import folders

MODELS, TASKS = folders.choices("model"), folders.choices("task")
RECIPES = sorted(path.relative_to(paths.conf() / "recipe") for path in paths.conf().glob("recipe/*/*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_recipes_are_picked(recipe):
    paper, name = recipe.parts[0], recipe.stem
    said = OmegaConf.load(paths.conf() / "recipe" / recipe)
    if name in MODELS:  # on every task
        task, model, said = "copy", name, OmegaConf.create({"model": said})
    else:
        task = next(t for t in TASKS if name == t or name.startswith(f"{t}_"))
        model = name.removeprefix(task).removeprefix("_") or "janet"  # a file for all models
    cfg = config(f"paper={paper}", f"task={task}", f"model={model}")
    resolved = OmegaConf.merge(cfg, said)
    for group in said:
        for key in said[group]:
            assert cfg[group][key] == resolved[group][key]


WORD_MODEL = {
    "optimizer.name": "nt_asgd",
    "optimizer.lr": 30.0,
    "optimizer.weight_decay": 1.2e-6,
    "optimizer.nonmono": 5,
    "task.embedding": 400,
    "task.tied": True,
    "task.length": 70,
    "task.dropout_embedding": 0.1,
    "task.dropout_output": 0.4,
    "task.weight_drop": 0.5,
    "task.ar": 2.0,
    "task.tar": 1.0,
    "loop.clip_norm": 0.25,
    "model.hidden_size": [1150, 1150, 400],
    "model.num_layers": 3,
    "task.recurrent": "trained",
}
PTB = WORD_MODEL | {"task.batch_size": 20, "task.dropout_input": 0.4, "task.dropout_hidden": 0.25}
WT2 = WORD_MODEL | {"task.batch_size": 80, "task.dropout_input": 0.65, "task.dropout_hidden": 0.2}
MTS = {
    "model.alpha": 0.56,
    "model.freeze_gates": "ifgo",
    "model.layer1_bias": "log_t_minus_1",
    "model.quantiles": "authors",
}
ADAM = {"optimizer.name": "adam", "optimizer.lr": 1e-3, "loop.clip_norm": 1.0}
GU_COPY = {
    "model.hidden_size": 256,
    "task.layout": "gu",
    "task.score": "answers",
    "task.fresh": True,
    "loop.clip_norm": 1.0,
}
GU_ADDING = ADAM | {
    "model.hidden_size": 256,
    "task.T": 2000,
    "task.batch_size": 32,
    "task.train_size": 32_000,
    "loop.max_epochs": 100,
}
GU_WT103 = ADAM | {
    "model.hidden_size": 3072,
    "model.num_layers": 1,
    "task.embedding": 1024,
    "task.length": 128,
    "task.batch_size": 128,
    "task.dropout_embedding": 0.3,
    "task.articles": "reset",
    "loop.clip_norm": 0.1,
    "loop.max_epochs": 100,
}
GU_PROGRAM = ADAM | {
    "model.hidden_size": 1024,
    "model.head_size": [256, 256, 256, 256],
    "task.length": 9,
    "task.nesting": 4,
    "task.strategy": "mix",
    "task.batch_size": 128,
    "task.train_size": 128_000,
    "task.test_size": 12_800,
    "loop.max_epochs": 500,
}
GU_DIGITS = ADAM | {"model.hidden_size": 512, "model.head_size": 256, "task.batch_size": 50, "loop.max_epochs": 150}
GU_SCIFAR = GU_DIGITS | {"loop.max_epochs": 100, "task.valid_size": 5_000}
# What papers say of a task and model that no table runs, written down a second time. Of the tables' runs ids.csv tells
# if a constant slips.
SAID = {
    "gu/adding_lstm": GU_ADDING,
    "gu/adding_ur": GU_ADDING,
    "gu/copy_lstm": GU_COPY,
    "gu/copy_ur": GU_COPY,
    "gu/pmnist_ur": GU_DIGITS | {"task.permutation": "bit_reversal"},
    "gu/smnist_ur": GU_DIGITS | {"task.permutation": "none"},
    "gu/scifar_ur": GU_SCIFAR,
    "gu/program_lstm": GU_PROGRAM,
    "gu/wt103_lstm": GU_WT103,
    "mahto/ptb_word_lstm": PTB,
    "mahto/ptb_word_mts": PTB | MTS,
    "mahto/wt2_lstm": WT2,
    "mahto/wt2_mts": WT2 | MTS,
}


@pytest.mark.parametrize("pair", SAID)
def test_constants_are_the_papers(pair):
    paper, name = pair.split("/")
    task = next(t for t in TASKS if name.startswith(f"{t}_"))
    cfg = config(f"paper={paper}", f"task={task}", f"model={name.removeprefix(task + '_')}")
    found = {key: OmegaConf.select(cfg, key) for key in SAID[pair]}
    assert found == SAID[pair]
