"""Train an LSTM and a power-law LSTM on a task that needs memory. Draw and print their results.

The task is asynchronous frequency discrimination without the time as an input (Chien et al. 2021, table 3): is the
period of a wave, sampled at irregular times, between 5 and 6? The gate of the power-law LSTM depends on the time since
the last sample; an LSTM does not know it. Scaled down: 64 units instead of 110, 15 epochs instead of 70, batches of 64
instead of 32, a higher learning rate. The runs are those of train.py, so a second `make demo` finds them finished.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import plotting  # noqa: E402

FOLDER = ROOT / "runs" / "demo"
MODELS = {"lstm": "LSTM", "plstm": "power-law LSTM"}
SCALED = ["task=frequency", "task.batch_size=64", "optimizer.lr=0.01"]
FULL = ["model.hidden_size=64", "loop.max_epochs=15"]
# Without a compiler for the fused engine: the same comparison in minutes.
SLOW = ["model.hidden_size=32", "loop.max_epochs=10"]


def train() -> dict[str, dict[str, Any]]:
    """Train both models. Returns their records by model."""
    size = FULL if fused_engine_runs() else SLOW
    command = [sys.executable, "train.py", "-m", f"model={','.join(MODELS)}", *SCALED, *size, "logger=csv"]
    done = subprocess.run([*command, f"run_dir={FOLDER}"], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    paths = sorted(FOLDER.glob("*/record.json"), key=lambda path: path.stat().st_mtime)  # the newest wins
    records = [json.loads(path.read_text()) for path in paths]
    return {record["config"]["model"]["name"]: record for record in records if record["status"] == "finished"}


def fused_engine_runs() -> bool:
    """Return whether the fused engine runs here. The first call compiles it."""
    from timescales import LSTM
    from timescales.nn.engine.cpu import fused

    return isinstance(fused.compiled(LSTM(1, 1).layers[0], timed=False), fused.Compiled)


def printed_accuracies() -> dict[str, float]:
    """Return the paper's accuracy at full size, in percent, by model."""
    from omegaconf import OmegaConf

    cells = OmegaConf.load(ROOT / "conf" / "table" / "chien_table3.yaml").table.cells
    setting = {"task.sampling": "async", "task.time_input": False}
    return {cell.where.model: cell.value for cell in cells if setting.items() <= cell.where.items()}


def draw(records: dict[str, dict[str, Any]]) -> Path:
    """Draw the validation accuracy of both models by epoch. Returns the path of the picture."""

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure)
        for name, model in MODELS.items():
            points = [(row["epoch"], 100 * row["valid/accuracy"]) for row in records[name]["curve"]]
            label = f"{model}: {100 * records[name]['metrics']['test/accuracy']:.1f} % on the test set"
            ax.plot(*zip(*points, strict=True), color=plotting.COLOURS[name], lw=2, label=label)
        ax.axhline(52, color="#bbbbbb", ls=":", lw=1)
        look = {"color": "#999999", "ha": "right", "va": "bottom", "transform": ax.get_yaxis_transform()}
        ax.text(0.99, 52.4, "always the same answer", **look)
        ax.set(xlabel="epoch (5,000 new waves each)", ylabel="validation accuracy (%)")
        ax.set(xlim=(0, None), ylim=(45, 100))
        ax.legend(frameon=False, loc="upper left")

    return plotting.write(fill, FOLDER / "demo", "Irregularly sampled waves: is the period between 5 and 6?")[0]


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    ).parse_args()
    start = time.monotonic()
    print("Two models, one task: is the period of an irregularly sampled wave between 5 and 6?\n", flush=True)
    records = train()
    picture = draw(records)
    print_results(records)
    print(f"\nThe curves: {os.path.relpath(picture)}   ({time.monotonic() - start:.0f} s in all)\n")
    print("Next:")
    print("  make tour                                        # look at what networks remember: two minutes")
    print("  make small TABLE=chien_copy                      # a paper's experiment in a quarter of an hour")
    print("  .venv/bin/python train.py model=plstm task=frequency --cfg job                # every setting")


def print_results(records: dict[str, dict[str, Any]]) -> None:
    """Print a line per model: accuracy, parameters and time, and the paper's accuracy."""
    print(f"\n  {'model':16}{'test accuracy':>14}{'parameters':>12}{'seconds':>9}   paper, full size")
    paper = printed_accuracies()
    for name, model in MODELS.items():
        record = records[name]
        accuracy = f"{100 * record['metrics']['test/accuracy']:12.1f} %"
        print(f"  {model:16}{accuracy}{record['parameters']:12,}{record['seconds']:9.0f}   {paper[name]:.2f} %")


if __name__ == "__main__":
    main()
