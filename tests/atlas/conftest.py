"""A small atlas: two abilities of one rung each, two cells, few steps; and cells of one's own."""

import re

import pytest

from timescales import paths
from timescales.atlas.definition import atlas
from timescales.paths import ROOT

SMALL = """\
name: small_atlas
settings:
  {paper: none, optimizer: adam, task.batch_size: 8, task.train_size: 64, task.valid_size: 16, task.test_size: 40,
   model.block: residual, model.num_layers: 2, loop.max_steps: 6, loop.max_epochs: 10, loop.eval_every: 3}
units: 8
tolerance: 0.02
seeds: [0, 1]
rates: [1.0e-3, 3.0e-3, 1.0e-2]
choice: {seed: 100, rungs: [keep], margin: 0.02}
quick: [keep]
abilities:
  hold:
    says: keep what was read
    rungs:
      keep:
        {task: selective_copy, task.T: 6, task.length: 1, task.alphabet: 6, metric: test/accuracy,
         chance: 0.25, best: 1}
  rescale:
    says: know it at another speed
    rungs:
      same: &morse
        {task: rescaling, task.unit: 1, task.test_units: [1, 2], task.letters: 3, metric: test/accuracy_at_1,
         chance: 0.33, best: 1}
      slower: {<<: *morse, metric: test/accuracy_at_2}
models: {lstm: {}, mingru: {}, not_there_yet: {}}
hypotheses:
  - {first: mingru, second: lstm, rung: keep, dated: "2026-11-27", why: "a test"}
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The small atlas."""
    (tmp_path / "atlas.yaml").write_text(SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(paths, "conf", lambda: tmp_path)
        return atlas.__wrapped__()  # not from the cache


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """mine.py with the gate that begins docs/gates.md, in an empty folder, which is the current one."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code = re.search(r"```python\n(.*?)\nrnn = ", (ROOT / "docs" / "gates.md").read_text(), re.S).group(1)
    (folder / "mine.py").write_text(code)
    return folder
