"""Golden curves: the first 20 training losses of models on tasks, in float64.

`make golden` writes them to golden_curves.json (NEW=1: those of new models alone), and test_golden.py compares. If a
curve changes, the numbers of that model and task change, and their committed records become outdated. Not every pair
has a curve: see `pairs`.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402
import torch  # noqa: E402
from configs import config  # noqa: E402
from synthetic import SMALL, sizes, stand_alone, write_corpora  # noqa: E402

from timescales.config import folders, schema  # noqa: E402
from timescales.models.sequence import detached  # noqa: E402
from timescales.training import build, loop  # noqa: E402

PATH = ROOT / "tests" / "golden_curves.json"
STEPS = 20
# Settings at which a curve was measured, where the recipe of its task is another one today.
MEASURED_AT = {
    "adding/lstm": ["model.forget_init=default"],
    "scifar/lstm": ["model.forget_init=default"],
    "scifar/plstm": ["model.head_size=null"],
    "ptb_word/lstm": ["task.recurrent=frozen"],
    "ptb_word/plstm": ["model.num_layers=1"],
    "wt2/lstm": ["task.recurrent=frozen"],
    "wt2/plstm": ["model.num_layers=1"],
}


def curve(task: str, model: str, data_root: str) -> list[float]:
    """The training losses of 20 steps of a small model, computed by the eager engine in float64."""
    small = ["model.hidden_size=6", "task.batch_size=8", *sizes(task, 160, 8, 8), *SMALL.get(task, [])]
    small += MEASURED_AT.get(f"{task}/{model}", [])
    cfg = config(f"task={task}", f"model={model}", *small, f"data_root={data_root}", "run_dir=unused")
    network, job, optimizer = build.build(schema.resolved(cfg))
    network.double()
    losses, state = [], None
    for batch in itertools.islice(job.batches("train"), STEPS):
        optimizer.zero_grad()
        output = network(batch, state)
        state = detached(output.state) if job.spec.carried else None
        loss = job.loss(output.logits, batch)
        (loss + job.penalty(output)).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), cfg.loop.clip_norm)
        loop.step(optimizer, batch.lr_scale)
        losses.append(loss.item())
    assert len(losses) == STEPS
    return losses


def pairs() -> list[tuple[str, str]]:
    """All pairs of a task and a model that have a curve.

    The numbers of another pair change only if those of its task with the LSTM or of its model on the copy task change
    (`provenance.golden`).
    """
    tasks, models = folders.choices("task"), folders.choices("model")
    digits = {(task, model) for task in ("smnist", "pmnist") for model in ("chrono", "lstm", "mts", "plstm", "ur")}
    all_tasks = {(task, model) for task in tasks for model in ("lstm", "plstm")}
    all_models = {(task, model) for task in ("copy", "frequency") for model in models}
    return sorted(digits | all_tasks | all_models)


def main() -> None:
    with tempfile.TemporaryDirectory() as data_root, pytest.MonkeyPatch.context() as monkeypatch:
        stand_alone(monkeypatch, Path(data_root) / "cache")
        write_corpora(Path(data_root))
        known = json.loads(PATH.read_text()) if "--missing" in sys.argv else {}
        names = {f"{task}/{model}": (task, model) for task, model in pairs()}
        curves = {name: known[name] if name in known else curve(*pair, data_root) for name, pair in names.items()}
    PATH.write_text(json.dumps(curves, indent=0) + "\n")
    print(f"{len(curves)} curves written to {PATH.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
