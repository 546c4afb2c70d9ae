"""Small arrays in the format of those that Mahto et al. 2021 released, and where the real ones are."""

import dataclasses

import numpy as np
import synthetic

from timescales.nn import inits
from timescales.tasks.data import released

UNITS = (46, 46, 16)  # of layers 1 to 3, for 1,150, 1,150 and 400


def real():
    """The folder of the real arrays under TIMESCALES_DATA, or None."""
    return synthetic.real(released.CORPUS)


def write(base):
    """Made-up arrays under base/mahto-released: the baseline's time scales follow an inverse gamma of alpha 1.5."""
    folder = base / released.FOLDER
    for file in released.FILES:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        np.save((folder / file).with_suffix(""), _array(file))
    return folder


def _array(file):
    if file.startswith("unit_ablation"):
        return np.linspace(0.99, 1.05, 23) + 0.001 * int(file.split("bin")[1][0])
    layer = int(file.split("_layer_")[1][0])
    alpha = 0.56 if "-mts" in file and layer == 2 else 1.5
    q = (np.arange(UNITS[layer - 1]) + 0.5) / UNITS[layer - 1]
    return inits.inverse_gamma_isf(inits.torch.from_numpy(q), alpha).numpy().astype(np.float32)


def accepted(monkeypatch, folder):
    """Take the arrays of a folder for the released ones."""
    corpus = dataclasses.replace(released.CORPUS, counts=released.CORPUS.count(folder))
    monkeypatch.setattr(released, "CORPUS", corpus)
