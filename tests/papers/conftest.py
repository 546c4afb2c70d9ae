"""A table of runs that take a moment, beside the package's own."""

import shutil
import sys
import types

import pytest

from timescales import analysis, paths

YAML = """# @package _global_
table:
  name: quick
  title: Quick
  source: nobody
  runs:
    - &settings
      {task: copy, task.T: 3, model: [lstm, plstm], seed: [0, 1], loop.max_steps: 2, model.hidden_size: 4,
       task.train_size: 20, task.valid_size: 10, task.test_size: 10, task.batch_size: 10}
  metric: test/accuracy
  select: last
  better: higher
  unit: percent
  tolerance: 1.0
  cells:
    - {where: {model: lstm}, value: 10.0}
    - {where: {model: plstm}, value: 10.0}
  claims: [{claim: "plstm > lstm", quote: pLSTM wins, at: section 1}]
  assumed: {optimizer.lr: {said: not stated, try: [0.1]}}
  probe: [steps]
  ladder:
    over: task.T
    rungs:
      t2: {seeds: 1, set: {task.T: 2}, claims: ["plstm > lstm"]}
      t4: {seeds: 1, set: {task.T: 4}, claims: [{claim: "plstm > lstm", of: "plstm > lstm"}]}
"""


@pytest.fixture
def table_text():
    """The file of the table `quick`."""
    return YAML


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """A table `quick` beside the others, results/ in an empty folder, and one analysis of its runs."""
    shutil.copytree(paths.conf(), tmp_path / "conf")
    (tmp_path / "conf" / "table" / "quick.yaml").write_text(YAML)
    monkeypatch.setattr(paths, "conf", lambda: tmp_path / "conf")
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    probe = types.ModuleType("timescales.analysis.steps")
    probe.measure = lambda model, task: {"parameters": float(sum(p.numel() for p in model.parameters()))}
    monkeypatch.setitem(sys.modules, "timescales.analysis.steps", probe)
    there = analysis.names
    monkeypatch.setattr(analysis, "names", lambda *given: there(*given) + ["steps"] * ("measure" in given))
    return tmp_path
