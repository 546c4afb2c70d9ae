"""Every shipped yaml: it composes with every other, and its keys are its class's arguments."""

import inspect

import matched
import pytest
import sample_data
import yaml
from configs import config
from omegaconf import OmegaConf

from timescales import paths
from timescales.config import folders, schema
from timescales.nn import registry
from timescales.training import build

MODELS, TASKS, OPTIMIZERS = (folders.choices(group) for group in ("model", "task", "optimizer"))
# Arguments that do not come from a yaml: the loop's own, and what only the library's users choose.
ELSEWHERE = {"input_size", "engine", "batch_first", "seed", "device", "data_root", "params"}
ELSEWHERE |= {"bias", "bidirectional", "proj_size", "dtype"}  # of torch's layers, for those who call them
# Arguments of the cells that are no keys: T_max stands for forget_init, and no authors' code has these two cells.
OF_CELL = {name: {"forget_init"} for name in ("janet", "elstm", "mingru", "minlstm", "signed_mingru")}
OF_CELL |= {name: {"epsilon_form"} for name in ("pgru", "plscan")}


def content(group, name):
    found = yaml.safe_load((paths.conf() / group / f"{name}.yaml").read_text())
    return found.get(group, found)


@pytest.mark.parametrize(("group", "name"), [("model", m) for m in MODELS] + [("task", t) for t in TASKS])
def test_keys_are_the_arguments(group, name):
    keys = set(content(group, name)) - {"_target_", "name", *build.AROUND_RNN}
    arguments = set(build.arguments_of(build.locate(group, content(group, name)["_target_"]))) - ELSEWHERE
    assert keys == arguments - OF_CELL.get(name, set())


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
        # What no paper here sets is as published.
        (["task=copy", "model=janet"], {"model.beta": 1.0}),
        (["task=copy", "model=mts"], {"model.alpha": 0.56}),
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


MATCHED = {"ptb_char": 2_150_482, "text8": 3_223_067, "imdb": 117_889}  # parameters of the LSTM of Chien et al.
DIFFERENT_SIZES = {"ptb_char": {"model.hidden_size"}, "imdb": {"model.hidden_size"}}
DIFFERENT_SIZES |= {"text8": {"model.hidden_size", "model.num_layers"}}  # MTS has one layer or three


@pytest.mark.parametrize("task", TASKS)
def test_like_is_compared_with_like(task):
    """Models differ in model.* alone, in one size. The learning rate of pLSTM on IMDB is the paper's own."""
    names = [model.name for model in registry.MODELS if model.family == registry.FIVE]
    given = {name: schema.comparable(schema.resolved(config(f"task={task}", f"model={name}"))) for name in names}
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


@pytest.mark.slow
@pytest.mark.parametrize("task", MATCHED)
def test_sizes_match_the_parameters_and_no_other_number_of_units_is_nearer(task, made_up):
    parameters, _ = matched.counted(task)
    assert parameters("lstm", None) == MATCHED[task]
    for model in [name for name in MODELS if registry.BY_NAME[name].family != registry.DEEP]:
        assert parameters(model, None) == pytest.approx(MATCHED[task], rel=0.01), model
    for model, units in folders.matched()[task].items():
        counts = {n: parameters(model, n) for n in (units - 2, units - 1, units, units + 1, units + 2)}
        near = {n: count for n, count in counts.items() if count is not None}
        assert min(near, key=lambda n: abs(near[n] - MATCHED[task])) == units, model
