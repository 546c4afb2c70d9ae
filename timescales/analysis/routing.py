"""Which words need which units? Perplexity by word frequency with groups of units silenced, by their time scale.

Source: Mahto et al. 2021, section 3.2.4 and Figs. 3, 11 and 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import plotting
from timescales.analysis import bins
from timescales.analysis.common import by_timescale, needs_words
from timescales.analysis.run import Run
from timescales.analysis.study import Study, progress
from timescales.nn import engine
from timescales.tasks import Words
from timescales.training.model import SequenceModel

TITLE = "Perplexity with a group of second-layer units silenced, over that without, by word frequency"
GROUP, OF = 50, 1150  # units silenced at once of the paper's second layer; of other sizes in proportion
ALPHA = 0.56  # of the inverse gamma law of the paper's time scales
WORDS = ("above 10,000", "1,000 to 10,000", "100 to 1,000", "below 100", "all words")
LOGITS = 4_000_000  # at once: 16 MB; larger pieces of memory are handed back and fetched again every time

# Ratios of groups 1 to 23 of the paper's multi-timescale model on the Penn Treebank, by bin: Fig. 12, as released.
# They are of perplexities rounded to two decimals, of the model of table 3.
PRINTED = (
    (1, .988, .987, .990, .988, .982, .990, .988, .990, .985, .991, .991, .993, .996, .997, .985, .990, .990, .991,
     .993, .994, .993, .988),
    (.991, .999, 1.009, 1.004, 1.010, 1.025, 1.010, 1.026, 1.012, 1.023, 1.014, 1.003, 1.005, 1.002, .999, 1.013, .997,
     .997, 1.003, .991, .987, .988, 1.001),
    (1.009, 1.032, 1.039, 1.040, 1.027, 1.031, 1.024, 1.020, 1.026, 1.024, 1.018, 1.021, 1.018, 1.018, 1.019, 1.024,
     1.025, 1.019, 1.020, 1.023, 1.023, 1.022, 1.020),
    (1.029, 1.055, 1.058, 1.043, 1.028, 1.024, 1.023, 1.014, 1.022, 1.018, 1.012, 1.022, 1.014, 1.018, 1.017, 1.021,
     1.023, 1.030, 1.015, 1.023, 1.034, 1.031, 1.024),
)  # fmt: skip


def study(run: Run) -> Study:
    """Rows: one a group, longest time scale first: its units by rank, their mean and median time scale, and by bin the
    ratio.

    Values: for each bin the largest ratio, and the median time scale of the group whose silence gives it.
    Raises ConfigError for a task that is no language model of words.
    """
    model, task = run.model, needs_words(run.task)
    layer = min(1, len(model.rnn.layers) - 1)
    times = model.rnn.layers[layer].timescales().detach().cpu().double()
    groups = by_timescale(times, GROUP, OF)
    found = perplexities(model, task, layer, list(groups.values()))
    ratios = (found[1:] / found[0]).tolist()
    rows: list[dict[str, Any]] = [
        {"units": name, "timescale": float(times[units].mean()), "median": float(times[units].median())}
        | {f"ratio {words}": value for words, value in zip(WORDS, own, strict=True)}
        for (name, units), own in zip(groups.items(), ratios, strict=True)
    ]
    values: dict[str, float] = {}
    for name, words in zip((*bins.NAMES, "all"), WORDS, strict=True):
        most = max(rows, key=lambda row: row[f"ratio {words}"])
        values |= {f"{name}/largest": most[f"ratio {words}"], f"{name}/median_timescale": most["median"]}
    return Study(TITLE, rows, values, lambda figure: draw(figure, run, rows, len(times)))


@torch.no_grad()
def perplexities(model: SequenceModel, task: Words, layer: int, groups: Sequence[Tensor]) -> Tensor:
    """Test perplexity by bin and of all words, first with all units, then with each group silenced: (1 + groups, 5).

    What is silenced is the group's h as the next layer (or, after the last, the readout) receives it, at every step;
    the layer itself runs on undisturbed, as in the authors' code. So the layers up to it run once for all groups.
    """
    n, cells = 1 + len(groups), model.rnn.layers
    heard = torch.ones(n, cells[layer].hidden_size).to(model.readout.weight)
    for k, units in enumerate(groups, 1):
        heard[k, units] = 0.0
    bin_of = torch.from_numpy(bins.bins_of(task.counts().cpu().numpy())).to(task.device)
    sums = torch.zeros(n, len(bins.NAMES), dtype=torch.float64, device=task.device)
    counts = torch.zeros(len(bins.NAMES), dtype=torch.float64, device=task.device)
    states = [cell.initial_state(1 if k <= layer else n) for k, cell in enumerate(cells)]
    for batch in progress(task.batches("test"), "groups of units silenced", task.n_batches("test")):
        x = F.embedding(batch.x, model.vectors)  # (S, 1, E): the test text is one stream
        for k, cell in enumerate(cells):
            run = engine.pick(model.rnn.engine, cell, x)
            x, states[k] = run(cell, x, cell.weights(), states[k])
            x = x * heard if k == layer else x
        target = batch.target.flatten()
        for first in range(0, n, at_once := max(1, LOGITS // (len(target) * len(bin_of)))):
            logits = model.readout(x[:, first : first + at_once])  # (S, groups, V)
            several = target.unsqueeze(1).expand(-1, logits.shape[1])
            loss = F.cross_entropy(logits.flatten(0, 1), several.flatten(), reduction="none").view_as(several)
            sums[first : first + at_once].index_add_(1, bin_of[target], loss.T.double())
        counts += torch.bincount(bin_of[target], minlength=len(counts))
    sums, counts = (torch.cat([v, v.sum(-1, keepdim=True)], -1) for v in (sums, counts))
    return (sums / counts).exp().cpu()


def draw(figure: Any, run: Run, rows: Sequence[dict[str, Any]], units: int) -> None:
    """Ratios by group; the paper's beside them where it silenced the same groups of the same model on the same text.

    units: how many the silenced layer has.
    """
    model, task = run.config["model"], run.config["task"]
    own = (
        (model["name"], model.get("alpha"), units) == ("mts", ALPHA, OF)
        and (task["name"], task.get("corpus")) == ("ptb_word", "ptb")
    )  # fmt: skip
    (one,) = plotting.panels(figure, width=9.0)
    for k, shade in enumerate(plotting.shades(len(bins.NAMES))):
        one.plot([row[f"ratio {WORDS[k]}"] for row in rows], "o-", color=shade, ms=4, lw=1.8, label=WORDS[k])
        if own:
            one.plot(PRINTED[k], ":", color=shade, lw=1.2)
    if own:
        one.plot([], [], ":", color="#444444", label="the paper's (Fig. 12: the\nreleased model of table 3)")
    one.axhline(1.0, color="#999999", lw=1)
    one.set_xticks(range(len(rows)), [plotting.say(row["timescale"]) for row in rows], rotation=60, fontsize=8)
    one.set(
        xlabel="mean time scale of the silenced units' forget bias (steps)", ylabel="perplexity silenced / perplexity"
    )
    one.legend(frameon=False, fontsize=8, title="words that occur ... times", title_fontsize=8,
               loc="center left", bbox_to_anchor=(1.0, 0.5))  # fmt: skip
