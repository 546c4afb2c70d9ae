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


def of(group, **values):
    """Return the settings of a group by their keys in full."""
    return {f"{group}.{key}": value for key, value in values.items()}


WORD_MODEL = of("optimizer", name="nt_asgd", lr=30.0, weight_decay=1.2e-6, nonmono=5)
WORD_MODEL |= of("task", embedding=400, tied=True, length=70, dropout_embedding=0.1, dropout_output=0.4)
WORD_MODEL |= of("task", weight_drop=0.5, ar=2.0, tar=1.0, recurrent="trained")
WORD_MODEL |= of("model", hidden_size=[1150, 1150, 400], num_layers=3) | of("loop", clip_norm=0.25)
PTB = WORD_MODEL | of("task", batch_size=20, dropout_input=0.4, dropout_hidden=0.25)
WT2 = WORD_MODEL | of("task", batch_size=80, dropout_input=0.65, dropout_hidden=0.2)
MTS = of("model", alpha=0.56, freeze_gates="ifgo", layer1_bias="log_t_minus_1", quantiles="authors")
ADAM = of("optimizer", name="adam", lr=1e-3) | of("loop", clip_norm=1.0)
GU_COPY = of("task", layout="gu", score="answers", fresh=True)
GU_COPY |= of("model", hidden_size=256) | of("loop", clip_norm=1.0)
GU_ADDING = ADAM | of("task", T=2000, batch_size=32, train_size=32_000)
GU_ADDING |= of("model", hidden_size=256) | of("loop", max_epochs=100)
GU_WT103 = ADAM | of("task", embedding=1024, length=128, batch_size=128, dropout_embedding=0.3, articles="reset")
GU_WT103 |= of("model", hidden_size=3072, num_layers=1) | of("loop", clip_norm=0.1, max_epochs=100)
GU_PROGRAM = ADAM | of("task", length=9, nesting=4, strategy="mix")
GU_PROGRAM |= of("task", batch_size=128, train_size=128_000, test_size=12_800)
GU_PROGRAM |= of("model", hidden_size=1024, head_size=[256, 256, 256, 256]) | of("loop", max_epochs=500)
GU_DIGITS = ADAM | of("model", hidden_size=512, head_size=256) | of("task", batch_size=50) | of("loop", max_epochs=150)
GU_SCIFAR = GU_DIGITS | of("loop", max_epochs=100) | of("task", valid_size=5_000)
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
