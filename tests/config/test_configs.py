"""Every shipped yaml: it composes with every other, and its keys are its class's arguments."""

import inspect
import sys
from pathlib import Path

import pytest
import torch
import yaml
from configs import config
from omegaconf import OmegaConf

from timescales import paths
from timescales.config import folders, identity
from timescales.training import build

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import matched
import pages
import pairs
import sample_data

MODELS, TASKS, OPTIMIZERS = (folders.choices(group) for group in ("model", "task", "optimizer"))
# Arguments that do not come from a yaml: the loop's own, and what only the library's users choose.
ELSEWHERE = {"input_size", "engine", "batch_first", "positional", "unknown", "seed", "device", "data_root", "params"}


def content(group, name):
    found = yaml.safe_load((paths.conf() / group / f"{name}.yaml").read_text())
    return found.get(group, found)


@pytest.mark.parametrize(("group", "name"), [("model", m) for m in MODELS] + [("task", t) for t in TASKS])
def test_keys_are_the_arguments(group, name):
    keys = set(content(group, name)) - {"_target_", "name", *build.AROUND_RNN}
    arguments = set(build.arguments_of(build.locate(group, content(group, name)["_target_"]))) - ELSEWHERE
    assert keys == arguments


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_keys_are_arguments(name):
    keys = set(content("optimizer", name)) - {"_target_", "name"}
    assert "lr" in keys
    assert keys <= set(inspect.signature(build.locate("optimizer", content("optimizer", name)["_target_"])).parameters)


@pytest.mark.parametrize("group", ["model", "task", "optimizer", "logger", "paper"])
def test_name_is_the_files_name(group):
    assert all(content(group, name)["name"] == name for name in folders.choices(group))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["task=frequency", "model=plstm"], {"model.hidden_size": 110, "model.epsilon": 1e-5}),
        (["task=frequency", "model=plstm", "model.hidden_size=7"], {"model.hidden_size": 7, "model.epsilon": 1e-5}),
        (["task=frequency", "model=plstm", "paper=gu"], {"model.hidden_size": 128, "model.epsilon": 1e-3}),
        (["task=pmnist", "model=lstm"], {"model.hidden_size": 256, "task.permutation": "bit_reversal"}),
        (["task=copy"], {"optimizer.name": "rmsprop", "optimizer.alpha": 0.9, "loop.max_epochs": 1000}),
        (["task=copy", "optimizer=sgd"], {"optimizer.name": "sgd"}),
        (
            ["task=pmnist", "model=lstm", "paper=gu"],
            {"model.hidden_size": 512, "model.head_size": 256, "task.batch_size": 50, "loop.max_epochs": 150},
        ),
        (
            ["task=copy", "model=gated", "paper=gu"],
            {"task.layout": "gu", "task.score": "answers", "optimizer.name": "adam", "loop.clip_norm": 1.0},
        ),
        (["task=copy", "model=ur", "paper=gu", "optimizer=sgd"], {"optimizer.name": "sgd", "optimizer.lr": 0.1}),
        (["task=program", "model=lstm"], {"model.forget_init": 1.0, "model.head_size": [256, 256, 256, 256]}),
        (["task=smnist", "model=lstm", "paper=gu"], {"model.forget_init": 1.0, "model.hidden_size": 512}),
        (["task=smnist"], {"optimizer.name": "adam", "task.permutation": "none"}),
        # A learning rate that a task or a recipe sets is for its own optimizer.
        (["task=dyck2"], {"optimizer.name": "adam", "optimizer.lr": 1e-4}),
        (["task=dyck2", "optimizer=sgd"], {"optimizer.lr": 0.1}),
        (["task=imdb", "model=plstm"], {"optimizer.lr": 5e-4}),
        (["task=imdb", "model=plstm", "optimizer=nt_asgd"], {"optimizer.lr": 30.0}),
        (["task=imdb", "optimizer=sgd"], {"optimizer.lr": 0.1}),
        (["task=dyck2", "optimizer=sgd", "optimizer.lr=3"], {"optimizer.lr": 3}),
    ],
)
def test_precedence(overrides, expected):
    cfg = config(*overrides)
    assert {key: OmegaConf.select(cfg, key) for key in expected} == expected


def test_no_file_sets_a_learning_rate_for_every_optimizer():
    files = [*paths.conf().glob("task/*.yaml"), *paths.conf().glob("recipe/*/*.yaml")]
    rates = [(yaml.safe_load(file.read_text()).get("optimizer") or {}).get("lr") for file in files]
    assert {"${lr_for:adam,1.0e-4}"} <= {rate for rate in rates if rate is not None}
    assert all(str(rate).startswith("${lr_for:") for rate in rates if rate is not None)


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
DYCK = {
    "model.hidden_size": 256,
    "optimizer.lr": 1e-4,
    "task.batch_size": 32,
    "task.train_size": 10_000,
    "task.valid_size": 2_000,
    "task.test_size": 5_000,
    "loop.max_epochs": 2000,
    "loop.clip_norm": 1.0,
}
WAVES = {
    "model.hidden_size": 110,
    "optimizer.lr": 1e-3,
    "task.batch_size": 32,
    "task.train_size": 5_000,
    "loop.max_epochs": 70,
    "loop.clip_norm": 10.0,
}
COPY = {
    "optimizer.name": "rmsprop",
    "optimizer.lr": 1e-3,
    "optimizer.alpha": 0.9,
    "task.batch_size": 128,
    "task.train_size": 100_000,
    "loop.max_epochs": 1000,
    "loop.clip_norm": 1.0,
}
FILMS = {
    "task.vocabulary": 25_000,
    "task.steps": 400,
    "task.dropout": 0.2,
    "task.valid_size": 2_500,
    "loop.max_epochs": 20,
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
DIGITS = ADAM | {"model.hidden_size": 256, "task.batch_size": 128, "task.valid_size": 10_000, "loop.max_epochs": 100}
CHARACTERS = {"optimizer.name": "adam", "loop.clip_norm": 5.0, "task.batch_size": 128, "task.state": "carried"}
PTB_CHAR = CHARACTERS | {"task.length": 150, "task.embedding": 20, "loop.max_epochs": 50}
TEXT8 = CHARACTERS | {"task.length": 500, "task.embedding": None, "loop.max_epochs": 10, "model.num_layers": 2}
# What each paper says of a task and model, written down a second time: a constant that slips is seen here.
SAID = {
    "chien/copy_lstm": COPY | {"task.T": 200, "model.hidden_size": 128},
    "chien/copy_plstm": COPY | {"model.hidden_size": 128, "model.epsilon": 1e-3, "model.power": "learned"},
    "chien/frequency_lstm": WAVES,
    "chien/frequency_chrono": WAVES | {"model.T_max": "auto"},
    "chien/frequency_plstm": WAVES | {"model.epsilon": 1e-5},
    "chien/imdb_lstm": FILMS | {"model.hidden_size": 128, "optimizer.lr": 1e-3},
    "chien/imdb_chrono": FILMS | {"model.hidden_size": 128, "optimizer.lr": 1e-3, "model.T_max": 400},
    "chien/imdb_plstm": FILMS | {"model.hidden_size": 154, "optimizer.lr": 5e-4},
    "chien/pmnist_lstm": DIGITS,
    "chien/pmnist_plstm": DIGITS,
    "chien/smnist_lstm": DIGITS,
    "chien/smnist_plstm": DIGITS,
    "chien/ptb_char_lstm": PTB_CHAR | {"model.hidden_size": 716},
    "chien/ptb_char_plstm": PTB_CHAR | {"model.hidden_size": 828},
    "chien/text8_lstm": TEXT8 | {"model.hidden_size": 512},
    "chien/text8_plstm": TEXT8 | {"model.hidden_size": 592},
    "chien/variable_copy_chrono": COPY | {"task.low": 200, "task.high": 500, "model.T_max": 500},
    "gu/adding_lstm": GU_ADDING,
    "gu/adding_ur": GU_ADDING,
    "gu/adding_gated": GU_ADDING,
    "gu/copy_lstm": GU_COPY,
    "gu/copy_ur": GU_COPY,
    "gu/copy_gated": GU_COPY | {"model.zoneout_c": 0.0, "model.zoneout_h": 0.0, "model.gate": "ur"},
    "gu/pmnist_lstm": GU_DIGITS | {"task.permutation": "bit_reversal"},
    "gu/pmnist_ur": GU_DIGITS | {"task.permutation": "bit_reversal"},
    "gu/pmnist_gated": GU_DIGITS | {"task.permutation": "bit_reversal"},
    "gu/smnist_lstm": GU_DIGITS | {"task.permutation": "none"},
    "gu/smnist_ur": GU_DIGITS | {"task.permutation": "none"},
    "gu/smnist_gated": GU_DIGITS | {"task.permutation": "none"},
    "gu/scifar_lstm": GU_SCIFAR,
    "gu/scifar_ur": GU_SCIFAR,
    "gu/scifar_gated": GU_SCIFAR,
    "gu/program_lstm": GU_PROGRAM,
    "gu/program_gated": GU_PROGRAM,
    "gu/wt103_lstm": GU_WT103,
    "gu/wt103_gated": GU_WT103,
    "mahto/dyck2_lstm": DYCK,
    "mahto/dyck2_mts": DYCK | {"model.alpha": 1.5, "model.freeze_gates": "ifgo", "model.quantiles": "interior"},
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


def test_constants_of_every_recipe_are_checked():
    tasks = {f"{pair.split('/')[0]}/{task}" for pair in SAID for task in TASKS if pair.split("/")[1].startswith(task)}
    ours = {f"chien/ptb_char_{model}" for model in pairs.SCANS} | {"chien/text8_mts", "gu/lstm"}
    assert {recipe.with_suffix("").as_posix() for recipe in RECIPES} <= set(SAID) | tasks | ours


FIVE = ("lstm", "chrono", "ur", "mts", "plstm")
MATCHED = {"ptb_char": 2_150_482, "text8": 3_223_067, "imdb": 117_889}  # parameters of the LSTM of Chien et al.
DIFFERENT_SIZES = {
    "ptb_char": {"model.hidden_size"},
    "text8": {"model.hidden_size", "model.num_layers"},  # MTS has one layer or three
    "imdb": {"model.hidden_size"},
}


@pytest.mark.parametrize("task", TASKS)
def test_like_is_compared_with_like(task):
    """Models differ in model.* alone, in one size. The learning rate of pLSTM on IMDB is the paper's own."""
    given = {model: identity.comparable(identity.resolved(config(f"task={task}", f"model={model}"))) for model in FIVE}
    shared = [{k: v for k, v in each.items() if not k.startswith("model.")} for each in given.values()]
    if task == "imdb":
        assert [each.pop("optimizer.lr") for each in shared] == [1e-3, 1e-3, 1e-3, 1e-3, 5e-4]
    assert all(each == shared[0] for each in shared)
    common = set.intersection(*(set(each) for each in given.values()))
    differ = {key for key in common for each in given.values() if each[key] != given["lstm"][key]} - {"optimizer.lr"}
    assert {"model.dropout", "model.hidden_size", "model.num_layers"} <= common
    assert differ - {"model.name"} == DIFFERENT_SIZES.get(task, set())


@pytest.fixture(scope="module")
def made_up():
    with sample_data.folder():
        yield


@pytest.mark.parametrize("task", MATCHED)
def test_sizes_match_the_parameters(task, made_up):
    found = {each.model: each.parameters for each in pairs.pairs(task, pages.command(task), MODELS)}
    assert found["lstm"] == MATCHED[task]
    assert all(count == pytest.approx(MATCHED[task], rel=0.01) for count in found.values())


@pytest.mark.full
@pytest.mark.parametrize("task", MATCHED)
def test_no_other_number_of_units_is_nearer(task, made_up):
    parameters, lstm = matched.counted(task)
    for model, units in folders.matched()[task].items():
        counts = {n: parameters(model, n) for n in (units - 2, units - 1, units, units + 1, units + 2)}
        near = {n: count for n, count in counts.items() if count is not None}
        assert min(near, key=lambda n: abs(near[n] - lstm.parameters)) == units, model


def test_the_nearest_number_of_units_that_can_be_built():
    def of_heads(units):
        return units * units if units % 4 == 0 else None

    assert [matched.nearest(of_heads, target) for target in (1, 200, 210, 2500)] == [4, 12, 16, 48]
    assert matched.nearest(lambda units: 10 * units + 3, 64) == 6


def test_what_no_paper_here_sets_is_as_published():
    assert config("task=copy", "model=janet").model.beta == 1.0
    assert config("task=copy", "model=mts").model.alpha == 0.56


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


@pytest.mark.covering
@pytest.mark.parametrize("gate", ["-", "c", "o", "u", "r", "om", "um", "or", "ur"])
@pytest.mark.parametrize("core", ["lstm", "gru"])
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
