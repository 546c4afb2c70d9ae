"""Read numbers of their trained models that Mahto et al. 2021 released with their code, and removed later.

They are in the history of github.com/HuthLab/multi-timescale-LSTM-LMs (BSD 3-Clause licence), folder results/.
"""

import io
import os
import re
import urllib.request
from pathlib import Path

import numpy as np

from timescales.tasks.data.corpus import Corpus, digest, whole
from timescales.tasks.data.places import Layout, Named

FOLDER = "mahto-released"
NAMES = r"mahto[-_ ]released.*|multi-timescale-lstm-lms.*"  # of folders and archives with them; the latter: GitHub's
URL = (
    "https://raw.githubusercontent.com/HuthLab/multi-timescale-LSTM-LMs/"
    "f9361b2129045feee6ba00c2efd43068f0c100b8/results"
)
MODELS = ("PTB", "PTB-mts", "WT2", "WT2-mts")  # as their files name them; without -mts the baseline
LAYERS = (1, 2, 3)
BINS = (1, 2, 3, 4)  # of words, 1 the most frequent
FILES = (
    *(f"estimated_timescales/{model}_timescale_layer_{layer}_output.npy" for model in MODELS for layer in LAYERS),
    *(f"unit_ablation/bin{k}.txt.npy" for k in BINS),
)


def time_scales(root: str | os.PathLike | None = None) -> dict[str, list[np.ndarray]]:
    """Return for each of MODELS the time scales of its units in steps, an array (units,) of each layer, float32.

    A time scale is -1 / ln of the unit's forget gate, averaged over the test text (their util/estimate_timescale.py).

    root: see `data_root`.

    Raises: MissingData if the files are not found and cannot be downloaded, and ValueError if they differ from those
    that were released.
    """
    arrays = iter(_released(root))
    return {model: [next(arrays) for _ in LAYERS] for model in MODELS}


def ratios(root: str | os.PathLike | None = None) -> np.ndarray:
    """Return the perplexity with a group of 50 units of layer 2 silenced over that without, by bin of words: (4, 23).

    The groups are in the order of the units, the longest assigned time scale first (their util/model_ablation.py and
    the notebook that draws them). Multiplied by the perplexities of the multi-timescale model on the Penn Treebank in
    table 3, the ratios give numbers with two decimals, which no other table's perplexities do: so they are of that
    model. Raises what `time_scales` raises.
    """
    return np.stack(_released(root)[-len(BINS) :])


def _released(root: str | os.PathLike | None) -> list[np.ndarray]:
    """Return the arrays of FILES, checked."""
    place = CORPUS.locate(root)
    arrays = _read(place)
    if differs := CORPUS.differs(_counts(arrays)):
        raise ValueError(f"{place} is not what was released ({', '.join(differs)}): {CORPUS.refetch_hint}")
    return arrays


def _read(place: Path) -> list[np.ndarray]:
    arrays = []
    for file in CORPUS.files(place):
        with CORPUS.reading(file.name):
            arrays.append(np.load(io.BytesIO(file.read()), allow_pickle=False))
    return arrays


def _counts(arrays: list[np.ndarray]) -> dict[str, int | str]:
    units, silenced = (sum(map(len, part)) for part in (arrays[: -len(BINS)], arrays[-len(BINS) :]))
    return {"time scales": units, "ratios": silenced, "digest": digest(arrays)}


def _download(base: Path) -> None:
    with whole(base / FOLDER) as folder:
        for file in FILES:
            target = folder / FOLDER / file
            target.parent.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(f"{URL}/{file}", timeout=30) as answer:
                target.write_bytes(answer.read())
        if differs := CORPUS.differs(_counts(_read(folder / FOLDER))):
            raise ValueError(f"the download from {URL} differs from the published files ({', '.join(differs)})")


CORPUS = Corpus(
    name="mahto_released",
    title="released time scales of Mahto et al. 2021",
    layouts=(Layout({file: re.escape(file.lower()) for file in FILES}),),
    named=Named(folders=NAMES, archives=NAMES),
    counts={"time scales": 10_800, "ratios": 92, "digest": "44453b1f0c563867"},
    count=lambda place: _counts(_read(place)),
    url=f"{URL}/{FILES[0]}",
    download=_download,
)
