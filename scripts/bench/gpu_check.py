"""Whether the graph engine is right on this GPU: lstm and plstm, against the eager engine in float64.

    python scripts/bench/gpu_check.py --rows FILE [--steps 220] [--device cpu]

The first call of a shape launches its kernels one by one, the later ones replay a CUDA graph. Errors are relative to
the largest number of a tensor. Exits with 1 if one is too large.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from timescales import LSTM, PLSTM, RNN  # noqa: E402

BOUND = 1e-4  # float32, over hundreds of steps that depend on each other
CALLS = ("uncaptured", "captured", "replayed")
MODELS = {"lstm": LSTM, "plstm": PLSTM}


def tensors(model: RNN, x: Tensor) -> dict[str, Tensor]:
    """Output and gradients of a forward and backward pass."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = model(x)[0]
    weights = torch.linspace(-1.0, 1.0, y.numel(), device=y.device, dtype=y.dtype).view_as(y) / y.numel()
    (y * weights).sum().backward()
    gradients = {f"d {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"output": y.detach(), "d x": x.grad} | gradients


def largest_error(found: dict[str, Tensor], true: dict[str, Tensor]) -> float:
    """The largest difference, relative to the largest number of each tensor; infinite if one is not finite."""
    errors = [((found[key] - true[key]).abs().max() / (true[key].abs().max() + 1e-12)).item() for key in true]
    return max(error if error == error else float("inf") for error in errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=220, help="length of the sequences")
    parser.add_argument("--rows", type=Path, required=True, help="JSON file of the errors")
    options = parser.parse_args()
    batch, hidden = (128, 128) if options.device != "cpu" else (4, 8)
    torch.manual_seed(1)
    errors: dict[str, dict[str, float]] = {}
    for name, make in MODELS.items():
        model = make(10, hidden, engine="graph").to(options.device)
        x = torch.randn(options.steps, batch, 10, device=options.device)
        reference = copy.deepcopy(model).double()
        reference.engine = "eager"
        true = tensors(reference, x.double())
        for call in CALLS:
            errors.setdefault(name, {})[call] = largest_error(tensors(model, x), true)
            options.rows.write_text(json.dumps(errors))
            print(f"{name} {call}: largest error {errors[name][call]:.1e}", flush=True)
    sys.exit(any(error > BOUND for calls in errors.values() for error in calls.values()))


if __name__ == "__main__":
    main()
