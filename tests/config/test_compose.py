"""Configurations composed without Hydra's command line, and their identities."""

import re
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from quick import QUICK

from timescales import paths
from timescales.config import compose, folders, schema, values
from timescales.config.run import run_of, runs_of
from timescales.errors import ConfigError
from timescales.experiment import plan
from timescales.papers import load

VALUES = [1, 1.5, 1e-05, -3, True, None, "ur", "-", "a b", "it's", "a,b", "null", "1.5", "", "a\\", "ünï", "$x", "a=b"]
VALUES += [[1150, 1150, 400], [[1], []], {"law": "chrono", "T_max": 750}]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_survives_being_spelled_as_an_override(value):
    assert compose.parse(f"task.name={values.spell(value)}").value() == value


def test_kind_is_the_identity_without_what_costs_nothing():
    several = (["seed=1", "optimizer.lr=1"], ["seed=2", "optimizer.lr=2"], ["task.T=6"])
    composer = compose.Composer()
    one, two, longer = (run_of(composer(["task=copy", *more])) for more in several)
    assert one.cost_key == two.cost_key != longer.cost_key
    assert (one.seed, one.config["optimizer"]["lr"]) == (1, 1)


def test_what_may_change_a_number_changes_the_identity():
    plain = {"task": {}, "loop": {}}
    for key in vars(schema.LoopSettings()):
        same = schema.identity(plain | {"loop": {key: 7}}) == schema.identity(plain)
        assert same is (key in ("checkpoint_every", "log_one_over_e")), key
    for key, value in {"seed": 1, "precision": "tf32", "deterministic": True, "paper": {"name": "gu"}}.items():
        assert schema.identity(plain | {key: value}) != schema.identity(plain), key


def test_compositions_do_not_change_one_another():
    """Hydra's functions change the files that they are given: of a shared file each gets a copy of its own."""
    models = folders.choices("model")
    composer = compose.Composer()
    first = [composer([f"model={model}", "task=pmnist"]) for model in models]
    composer(["model=lstm", "task=pmnist"]).model.hidden_size = 7
    again = [composer([f"model={model}", "task=pmnist"]) for model in models]
    assert first == again


def test_without_recipes_models_are_composed_as_hydra_would():
    models, tasks = folders.choices("model"), folders.choices("task")
    composer = compose.Composer()
    for k, model in enumerate(models[::3]):
        texts = ("paper=none", "optimizer=adam", f"task={tasks[k % len(tasks)]}", f"model={model}")
        chosen = [compose.parse(text) for text in texts]
        made = composer._of_model(chosen)
        expected = composer._of_choice(chosen)
        assert (made, list(made.model)) == (expected, list(expected.model))
    for texts in (("paper=chien", "task=copy"), ("task=copy",), ("paper=none", "task=copy", "recipe=gu/copy")):
        assert composer._of_model([compose.parse(text) for text in (*texts, "model=gru")]) is None


def test_a_model_depends_on_its_own_file_alone():
    """So that `_of_model` may put it beside any task: what is said of models stands in conf/model, and nothing else."""
    for path in paths.conf().glob("*/*.yaml"):
        text, group = path.read_text(), path.parent.name
        if group == "model":
            assert not re.search("^(# @package|defaults:)", text, re.MULTILINE), path
        elif group in compose.PLAIN_GROUPS:
            assert not re.search("^model:|override /?model:", text, re.MULTILINE), path


@pytest.mark.parametrize(
    ("group", "text", "key", "value"),
    [
        ("model", "loop: {patience: 7}\nmodel: {name: mine}", "loop.patience", 7),
        ("task", "model: {num_layers: 1, hidden_size: 128}", "model.num_layers", 1),  # as the LSTM's file has them
        ("task", "model: {dropout: 0.5}", "model.dropout", 0.5),
    ],
)
def test_files_in_a_folder_of_ones_own_are_composed_by_hydra(tmp_path, group, text, key, value):
    (tmp_path / group).mkdir()
    (tmp_path / group / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    folders.use(tmp_path)
    try:
        composer = compose.Composer()
        chosen = {"model": "dilated", "task": "frequency"} | {group: "mine"}
        cfg = composer(["paper=none", *(f"{name}={file}" for name, file in chosen.items())])
        assert OmegaConf.select(cfg, key) == value
    finally:
        folders.use(None)


# --- A user's own config groups (--config-dir) work in sweeps and tables as in single runs ----------------------------
SMALL = "defaults: [override /model: plstm]\nmodel: {hidden_size: 5}\ntask: {T: 3}"
FILES = {
    "experiment/small.yaml": f"# @package _global_\n{SMALL}\n",
    "experiment/long.yaml": "# @package _global_\nloop: {max_epochs: 2}\noptimizer: {lr: 0.25}\n",
    "experiment/pair.yaml": "# @package _global_\nseed: 3\nseeds: 2\n",
    "experiment/ours/deep.yaml": "# @package model\nhidden_size: 6\n",
    "head/wide.yaml": "# @package model\nhead_size: 3\n",
}
LINES = [
    ["+experiment=small"],
    ["+experiment=small", "model=gru"],  # the command line has the last word
    ["+experiment=long", "task=frequency", "paper=gu"],
    ["+experiment=[small,long]"],
    ["+experiment=ours/deep", "model=ur"],
    ["+head=wide", "~model.frozen"],
    ["model.hidden_size=4", "model={hidden_size:5}"],  # a group's name, and yet a value
    ["task=pmnist", "model=lstm", "model.hidden_size=[8,9]", "+model.extra=1", "loop.clip_norm=null"],
    ["paper=gu", "model=ur", "model.forget_init={law:chrono,T_max:750}", "run_dir=x"],
    ["task={T:4}", "loop={max_epochs:3}", "loop.max_epochs=2"],
]


@pytest.fixture
def folder(tmp_path):
    """The user's folder, given on this process's command line."""
    for name, text in FILES.items():
        file = tmp_path / "my" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    folders.use(tmp_path / "my")
    yield tmp_path / "my"
    folders.use(None)


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_sweep_composes_what_hydra_composes_for_a_single_run(folder, line):
    composer = compose.Composer()
    ours = composer(line)
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        single = hydra_compose("config", [*line, f"hydra.searchpath=[{values.spell(f'file://{folder}')}]"])
    assert OmegaConf.to_container(ours, resolve=True) == OmegaConf.to_container(single, resolve=True)


def test_a_group_is_an_axis_of_a_sweep_and_its_runs_are_those_of_single_commands(train, folder):
    mine, small = ["--config-dir", str(folder)], [*QUICK, "loop.max_steps=1", "logger=none"]
    swept = train("-m", *mine, *small, "+experiment=small,pair,ours/deep")
    assert swept.status == 0
    assert "4 runs: 0 already finished, 4 to train" in swept.out
    records = {path.parent.name.rpartition("-")[0] for path in Path("runs").glob("*/record.json")}
    assert records == {"copy-plstm-s0", "copy-lstm-s3", "copy-lstm-s4", "copy-lstm-s0"}
    assert "experiment=pair: " in swept.out
    for words, runs in ((["+experiment=small"], 1), (["+experiment=pair"], 2), (["-m", "+experiment=small"], 1)):
        again = train(*mine, *small, *words)
        told = "already finished, 0 to train" if "-m" in words else "finished, skipped"
        assert (again.status, again.out.count(told)) == (0, runs)
    wrong = train("-m", *mine, *small, "+experiment=small,smal")
    assert "Could not find 'experiment/smal'" in wrong.err
    assert "did you mean small?" in wrong.err
    for several in ([], ["-m"]):
        assert "+experiment=small" in train(*several, *mine, *small, "experiment=small").err


def test_a_file_without_a_package_is_told_what_its_first_line_must_be(train, folder):
    for name in ("experiment", "ours/experiment"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "here.yaml").write_text("task: {T: 3}\n")
        for several in ([], ["-m"]):
            told = train(*several, "--config-dir", str(folder), f"+{name}=here").err
            assert f"In '{name}/here'" in told
            assert "# @package _global_" in told


def test_a_group_is_added_to_the_runs_of_a_table(folder, capsys):
    table = load.table("chien_copy")
    composer = compose.Composer()

    def requests(*overrides):
        return plan.of_table(table, "t20", composer, overrides)

    plain, both = requests("seed=200"), requests("seed=200", "+experiment=long,pair")
    assert len(both) == 2 * len(plain) > 0
    assert f"{len(plain)} of {len(both)} runs are not part of table chien_copy" in capsys.readouterr().out
    with pytest.raises(HydraException, match="Could not find 'experiment/lnog'"):
        requests("+experiment=long,lnog")


def test_seeds_of_a_setting_are_the_runs_that_hydra_would_compose():
    """The setting is composed once, with one seed after another."""
    settings = [["model=plstm", "task=frequency"], ["task=copy", "task.T=${seed}"], ["task=copy", "seeds=2"]]
    seeds = (["seed=5"], ["seed=6"], [], ["seed=${task.batch_size}"], ["seed=7", "++seed=8"])
    requests = [[*setting, *seed] for setting in settings for seed in seeds]
    composer = compose.Composer()
    for request in requests:
        made, expected = composer.runs(request), runs_of(composer(request), several=True)
        assert [(run.config, run.id) for run in made] == [(run.config, run.id) for run in expected], request
        assert repr(made[0].config) == repr(expected[0].config), "types are the same, too"


def test_of_a_key_that_is_given_twice_the_last_value_counts_and_a_seed_out_of_range_is_refused():
    composer = compose.Composer()
    composer.runs(["task=copy", "model.hidden_size=5"])
    for first in ("model.hidden_size=6", "model={hidden_size:6}"):
        for last in ("null", "7"):
            given = ["task=copy", "model.hidden_size=4", first, f"model.hidden_size={last}"]
            (found,) = (run for request in plan.combinations(given, composer) for run in composer.runs(request))
            assert found.config["model"]["hidden_size"] == (None if last == "null" else 7)
    composer.runs(["task=copy", "seed=1"])
    for wrong in (-1, 2**63):
        with pytest.raises(ConfigError, match="seed must be at least 0"):
            composer.runs(["task=copy", f"seed={wrong}"])
