"""docs/loggers.md: its sweep.yaml names real keys, and the command that `wandb agent` starts trains and logs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from quick import SIZES

from timescales.config import compose, identity
from timescales.config.run import run_of
from timescales.training import build

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "loggers.md").read_text()
SWEEP = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
CHOSEN = {"model": "plstm", "optimizer.lr": 0.0021, "loop.schedule": "cosine", "loop.clip_norm": "null", "seed": 1}


def command_of(sweep, chosen):
    """The command that an agent starts: W&B's own functions fill the macros, as its agent does."""
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    known = utils.create_sweep_command_args({"args": {key: {"value": value} for key, value in chosen.items()}})
    known |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [sweep["program"]]}
    words = []
    for word in utils.create_sweep_command(list(sweep["command"])):
        words += known[word[2:-1]] if word.startswith("${") else [word]
    return words


def test_the_command_is_the_one_on_the_page():
    assert f"`{' '.join(command_of(SWEEP, CHOSEN))}`" in PAGE
    assert set(CHOSEN) == set(SWEEP["parameters"])


def test_each_value_of_the_sweep_is_a_setting():
    with compose.composing() as composer:
        for key, parameter in SWEEP["parameters"].items():
            values = parameter.get("values") or [parameter["min"], parameter["max"]]
            ids = set()
            for value in values:
                overrides = command_of(SWEEP, CHOSEN | {key: value})[3:]
                ids.add(run_of(composer(overrides)).id)
            assert len(ids) == len(values), key


def test_the_metric_is_the_one_that_chooses_the_checkpoint():
    with compose.composing() as composer:
        config = identity.resolved(composer([*command_of(SWEEP, CHOSEN)[3:], "device=cpu"]))
    _, task, _ = build.build(config)
    name, direction = task.spec.select
    assert SWEEP["metric"] == {"name": f"valid/{name}", "goal": f"{direction}imize"}


@pytest.mark.slow
def test_an_agents_command_trains_and_logs_as_the_agents_run(tmp_path):
    """Offline, with the environment and the file of settings that an agent gives."""
    from test_loggers import inspected, of_type

    given = {"program": str(ROOT / "train.py"), "command": [*SWEEP["command"]]}
    small = [*SIZES, "task.T=2", "loop.max_steps=4", "loop.eval_every=2", "device=cpu"]
    given["command"][-1:] = [*small, "${args_no_hyphens}"]
    words = command_of(given, CHOSEN)
    words[:2] = [sys.executable]
    settings = tmp_path / "config.yaml"
    settings.write_text(yaml.dump({key: {"value": value} for key, value in CHOSEN.items()} | {"wandb_version": 1}))
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "WANDB_SWEEP_ID": "sweep123",
        "WANDB_RUN_ID": "agents",
        "WANDB_SWEEP_PARAM_PATH": str(settings),
    }
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "runs").glob("copy-plstm-s1-*")
    record = json.loads((directory / "record.json").read_text())
    assert (record["status"], record["steps"], record["config"]["loop"]["clip_norm"]) == ("finished", 4, None)
    (logged,) = (directory / "wandb").glob("offline-run-*-agents/run-agents.wandb")
    records = inspected(logged)
    assert of_type(records, "run")[0]["sweep_id"] == "sweep123"
    summary = {key: value for found in of_type(records, "summary") for key, value in found["update"].items()}
    assert summary["valid/accuracy"] == record["metrics"]["valid/accuracy"] == record["best"]["value"]
    again = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "finished, skipped" in again.stdout
