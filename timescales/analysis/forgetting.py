"""Measure how long the units of a trained run remember: the spread of time scales of their mean forget gates.

Source: Gu et al. 2020, appendix D.1 and Fig. 5 (gates averaged over time and samples, after the copy task), appendix
E.1 and Fig. 12 (forget gates that start near 1, after the adding task; the smallest time scale of the model with refine
gates is more than ten times below that of the plain LSTM).
"""

import torch

from timescales.analysis.characteristic_times import named_quantiles
from timescales.analysis.observe import mean_forget
from timescales.models.sequence import SequenceModel
from timescales.nn.inits import timescale_of_gate
from timescales.tasks import Task

WEIGHTS = "last"  # as in the paper: after training, even if the loss was lower before
BINS = range(-2, 15)  # time scales from 2^-2 to 2^14 steps, each with half an octave on both sides; open at the ends


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return quantiles of the units' time scales -1 / ln f in steps, f a unit's mean over time and test sequences.

    They are over the units of all layers. "share/8" is the share of units with a time scale of about 8 steps, and so on
    for powers of two: the histogram. Differs: the paper's time scale of a gate is 1 / (1 - f), half a step more than -1
    / ln f.
    """
    times = timescale_of_gate(torch.cat(mean_forget(model, task))).cpu()
    quantiles = {"min": times.min().item()} | named_quantiles(times) | {"max": times.max().item()}
    octaves = times.log2().round().clamp(BINS[0], BINS[-1])
    return quantiles | {f"share/{2.0**k:g}": (octaves == k).double().mean().item() for k in BINS}
