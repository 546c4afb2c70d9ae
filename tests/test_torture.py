"""What `make torture` found, and a small part of it: killed and broken runs go on, damage is seen, nonsense is one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from timescales import compose

ROOT = Path(__file__).resolve().parents[1]
QUICK = ["task=copy", "task.T=2", "task.train_size=16", "task.valid_size=8", "task.test_size=8", "task.batch_size=8",
         "model.hidden_size=4", "loop.max_steps=4", "loop.log_every=1", "logger=csv"]  # fmt: skip


# --- random overrides -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzz():
    """scripts/torture_fuzz.py."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(str(ROOT / "scripts"))
        import torture_fuzz

        yield torture_fuzz


def test_random_overrides_compose_or_are_one_line(fuzz, tmp_path):
    """200 cases of `make torture`, in a process that must not load torch; a failure names its seed and number."""
    words = [sys.executable, str(ROOT / "scripts" / "torture_fuzz.py"), "1", "0", "200"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 200
    assert [(f"seed 1, case {k}", *case) for k, case in enumerate(found) if case[0] == "fault"] == []
    assert {"valid", "clear"} <= {outcome for outcome, *_ in found}
    assert not list(tmp_path.iterdir())


def test_random_valid_overrides_take_a_step(fuzz, train, corpora, tmp_path):
    with compose.composing() as composer:
        composing = fuzz.Composing(composer)
        cases = [composing.case(1, number, True) for number in range(24)]
    for number, words in [(k, words) for k, (outcome, _, words) in enumerate(cases) if outcome == "valid"][:6]:
        outcome = train(*fuzz.one_step(words, corpora), f"run_dir={tmp_path / str(number)}")
        said = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
        assert outcome.status == 0 or (outcome.status == 1 and len(said) == 1), (
            f"seed 1, case {number}",
            words,
            outcome,
        )
