"""A recurrent policy's training step over collected episodes: a loop over the steps, and one call with `reset`.

    python scripts/bench/episodes.py [--rounds 30]

128 steps of 8 environments, 512 features, 128 units, an episode of 50 steps on average; forward and backward, on one
thread. The three take turns; the median and the quartiles of the rounds are printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))

from timescales import LSTM

S, B, I, H = 128, 8, 512, 128  # noqa: E741


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=30, help="how often each is measured (default: 30)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, reset = torch.randn(S, B, I), (torch.rand(S, B) < 1 / 50).float()
    theirs, ours = nn.LSTM(I, H), LSTM(I, H)

    def loop(layer: nn.Module) -> Tensor:
        state, outputs = (x.new_zeros(1, B, H), x.new_zeros(1, B, H)), []
        for t in range(S):
            h, c = ((1 - reset[t]).unsqueeze(-1) * field for field in state)
            output, state = layer(x[t : t + 1], (h, c))
            outputs.append(output)
        return torch.cat(outputs)

    runs: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
        "a loop over the steps of torch.nn.LSTM": (theirs, lambda: loop(theirs)),
        "a loop over the steps of timescales.LSTM": (ours, lambda: loop(ours)),
        "one call, timescales.LSTM with reset": (ours, lambda: ours(x, reset=reset)[0]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, (layer, run) in runs.items():
            layer.zero_grad()
            start = time.perf_counter()
            run().square().mean().backward()
            seconds[name].append(time.perf_counter() - start)
    for name, values in seconds.items():
        low, middle, high = statistics.quantiles(values[1:], n=4)
        print(f"{name}: {1e3 * middle:.1f} ms ({1e3 * low:.1f} to {1e3 * high:.1f})")


if __name__ == "__main__":
    main()
