"""The first 20 training losses of models on tasks, in float64: what they are now.

`make golden` writes them into golden_curves.json; test_golden.py compares. A change there is a change of numbers: the
committed records of that model and task become stale. Not every pair has a curve of its own: see `pairs`.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402
from hydra import compose, initialize_config_dir  # noqa: E402
from synthetic import SMALL, sizes, stand_alone, write_corpora  # noqa: E402

from timescales import paths  # noqa: E402
from timescales.config import folders, identity  # noqa: E402
from timescales.training import build, optimizers  # noqa: E402
from timescales.training.model import detached  # noqa: E402

PATH = ROOT / "tests" / "golden_curves.json"
STEPS = 20


def curve(task: str, model: str, data_root: str) -> list[float]:
    """Training losses of 20 steps of a small model, by the eager engine in float64."""
    import torch

    small = ["model.hidden_size=6", "task.batch_size=8", *sizes(task, 160, 8, 8), *SMALL.get(task, [])]
    identity.register()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose(
            "config",
            [f"task={task}", f"model={model}", *small, f"data_root={data_root}", "device=cpu", "run_dir=unused"],
        )
    network, job, optimizer = build.build(identity.resolved(cfg))
    network.double()
    losses, state = [], None
    for batch in itertools.islice(job.batches("train"), STEPS):
        optimizer.zero_grad()
        output = network(batch, state)
        state = detached(output.state) if job.spec.carried else None
        loss = job.loss(output.logits, batch)
        (loss + job.penalty(output)).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), cfg.loop.clip_norm)
        optimizers.step(optimizer, batch.lr_scale)
        losses.append(loss.item())
    assert len(losses) == STEPS
    return losses


def pairs() -> list[tuple[str, str]]:
    """Every task with the LSTM and the pLSTM, every model on two tasks, and the first five models on the digits.

    The numbers of any other pair change only if the task's curve with the LSTM or the model's on the copy task does
    (`record.golden`).
    """
    tasks, models = folders.choices("task"), folders.choices("model")
    first = {(task, model) for task in ("smnist", "pmnist") for model in ("chrono", "lstm", "mts", "plstm", "ur")}
    both = {(task, model) for task in tasks for model in ("lstm", "plstm")}
    return sorted(first | both | {(task, model) for task in ("copy", "frequency") for model in models})


def main() -> None:
    with tempfile.TemporaryDirectory() as data_root, pytest.MonkeyPatch.context() as monkeypatch:
        stand_alone(monkeypatch, Path(data_root) / "cache")
        write_corpora(Path(data_root))
        curves = {f"{task}/{model}": curve(task, model, data_root) for task, model in pairs()}
    PATH.write_text(json.dumps(curves, indent=0) + "\n")
    print(f"{len(curves)} curves written to {PATH.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
