"""What a sweeper that searches for settings is told of a run; tests/ecosystem/test_optuna.py has a real one."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobStatus
from omegaconf import OmegaConf
from quick import QUICK, change_record, records

import train as entry
from hydra_plugins import timescales_plugins
from timescales.config.compose import Composer
from timescales.errors import ConfigError
from timescales.experiment import processes
from timescales.experiment.train import check_direction, train_all
from timescales.runs import metrics
from timescales.runs.record import Record
from timescales.training.best import Best

QUICK = [*QUICK, "logger=none"]


@pytest.fixture
def told(monkeypatch):
    """The numbers that sweepers are told."""
    values, train_all = [], entry.train_all

    def spy(*arguments):
        values.append(train_all(*arguments))
        return values[-1]

    monkeypatch.setattr(entry, "train_all", spy)
    return values


def test_another_sweeper_is_told_the_selected_metric(train, told, tmp_path):
    sweep = ["-m", "hydra/sweeper=basic", *QUICK, "seed=0,1"]
    assert train(*sweep).status == 0
    runs = {saved.seed: saved for path in (tmp_path / "runs").iterdir() if (saved := Record.read(path))}
    expected = [runs[seed].metrics["valid/accuracy"] for seed in (0, 1)]
    assert told == expected
    assert train(*sweep).out.count("finished, skipped") == 2
    assert told == 2 * expected  # skipped runs answer, too
    assert "skip=committed is for" in train(*sweep, "skip=committed").err  # only our sweeper looks into results/


def test_a_launcher_that_is_not_ours_is_hydras_to_sweep_with(train, monkeypatch):
    """Such as Ray's, in tests/ecosystem/test_hydra_launchers.py; it calls what train.py gave to Hydra."""
    basic = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
    monkeypatch.setattr(ConfigStore.instance(), "repo", copy.deepcopy(ConfigStore.instance().repo))  # for this test
    ConfigStore.instance().store("foreign", basic, "hydra/launcher")
    sweep = ["-m", "hydra/launcher=foreign", *QUICK, "seed=0,1"]
    assert train(*sweep).status == 0
    assert [saved["seed"] for saved in records()] == [0, 1]


def test_the_value_is_the_best_one_and_the_worst_of_a_run_that_diverged():
    saved = Record(id="a", status="finished", select=["loss", "min"], best=Best("valid/loss", 0.25, 3))
    assert metrics.selected(saved) == 0.25
    assert metrics.selected(replace(saved, status="diverged")) == math.inf
    assert metrics.selected(replace(saved, status="diverged", select=["accuracy", "max"])) == -math.inf


@pytest.mark.parametrize(
    ("direction", "select", "fix"),
    [
        ("minimize", ("loss", "min"), None),
        (["maximize"], ("accuracy", "max"), None),
        (None, ("accuracy", "max"), None),  # a sweeper without it
        ("minimize", ("accuracy", "max"), "hydra.sweeper.direction=maximize"),
        ("max", ("accuracy", "max"), "hydra.sweeper.direction=maximize"),
        (["minimize", "minimize"], ("loss", "min"), "hydra.sweeper.direction=minimize"),
    ],
)
def test_the_direction_is_checked(direction, select, fix):
    given = OmegaConf.create({"direction": direction}).direction
    if fix is None:
        check_direction(select, given)
        return
    with pytest.raises(ConfigError, match=f"valid/{select[0]}.*{fix}"):
        check_direction(select, given)


def test_the_direction_is_checked_before_the_first_step_and_of_a_run_that_has_finished(train):
    """Nothing is trained of the latter, and its value would be taken the wrong way round."""
    composer = Composer()
    cfg = composer(QUICK)
    with pytest.raises(ConfigError, match="direction=maximize"):
        train_all(cfg, QUICK, "minimize")
    assert not list(Path().glob("runs/*"))
    assert train(*QUICK).status == 0
    (path,) = Path("runs").iterdir()
    assert train_all(cfg, QUICK, "maximize") == Record.read(path).best.value
    with pytest.raises(ConfigError, match="direction=maximize"):
        train_all(cfg, QUICK, "minimize")


def test_one_suggestion_that_cannot_be_trained_is_a_failure_beside_the_others(train, monkeypatch):
    """What a sweeper is told by our launchers; here they train in this process."""
    monkeypatch.setattr(processes, "launch", lambda job, parameters, jobs: [job(overrides) for overrides in jobs])
    launcher = timescales_plugins.TimescalesJoblib()
    sweeper = OmegaConf.create({"hydra": {"sweeper": {"direction": "maximize"}, "sweep": {"dir": "study"}}})
    launcher.setup(hydra_context=None, task_function=None, config=sweeper)
    ends = launcher.launch([[*QUICK, "model.nope=1"], [*QUICK, "seed=3"]], 0)
    assert [end.status for end in ends] == [JobStatus.FAILED, JobStatus.COMPLETED]
    assert "model.nope" in str(ends[0]._return_value)
    assert Path("study").is_dir()
    (saved,) = (Record.read(path) for path in Path("runs").iterdir())
    assert (saved.seed, ends[1].return_value) == (3, saved.best.value)


def test_a_record_without_the_metric_asks_for_force(train, tmp_path):
    assert train(*QUICK).status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    change_record(directory, select=None)
    composer = Composer()
    with pytest.raises(ConfigError, match="force=true"):
        train_all(composer(QUICK), QUICK, "maximize")
