"""The arrays that Mahto et al. 2021 released: found, fetched by commit and checksum, refused where they differ."""

import io
import urllib.request

import numpy as np
import pytest
import released_files

from timescales.errors import MissingData
from timescales.tasks.data import corpus, released

pytestmark = pytest.mark.usefixtures("cache")


def test_arrays_by_model_and_layer(tmp_path, monkeypatch):
    folder = released_files.real() or released_files.write(tmp_path)
    if released_files.real() is None:
        released_files.accepted(monkeypatch, folder)
    times, ratios = released.time_scales(folder.parent), released.ratios(folder.parent)
    assert list(times) == ["PTB", "PTB-mts", "WT2", "WT2-mts"]
    units = (1150, 1150, 400) if released_files.real() else released_files.UNITS
    assert all([layer.shape for layer in layers] == [(n,) for n in units] for layers in times.values())
    assert ratios.shape == (4, 23)
    second = "estimated_timescales/WT2_timescale_layer_2_output.npy"
    assert np.array_equal(times["WT2"][1], np.load(folder / second))


@pytest.mark.skipif(released_files.real() is None, reason="needs the released arrays under TIMESCALES_DATA")
def test_the_real_arrays():
    times, ratios = released.time_scales(), released.ratios()
    largest = [round(max(float(layer.max()) for layer in times[model]), 1) for model in ("PTB", "WT2")]
    assert largest == [88.8, 205.9]
    # Table 3's perplexities of the multi-timescale model, and table 1's: only the first give two decimals.
    for printed, fits in (([6.79, 26.68, 167.97, 1902.37], True), ([6.84, 27.14, 176.11, 2100.89], False)):
        silenced = ratios * np.array(printed)[:, None]
        assert np.allclose(silenced, silenced.round(2), rtol=0, atol=1e-9) == fits


def test_other_arrays_are_refused(tmp_path):
    folder = released_files.write(tmp_path)
    with pytest.raises(ValueError, match=r"is not what was released \(432 of 10,800 time scales\): move it"):
        released.time_scales(tmp_path)
    (folder / released.FILES[0]).write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match=r"layer_1_output\.npy cannot be read .*: move it elsewhere"):
        released.ratios(tmp_path)


def test_a_download_is_of_one_commit_and_checked(tmp_path, monkeypatch):
    there = released_files.write(tmp_path / "server")
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        return io.BytesIO((there / url.partition("/results/")[2]).read_bytes())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(corpus, "_check_reachable", lambda url: None)
    with pytest.raises(MissingData, match="something else than what was released"):
        released.time_scales(tmp_path / "mine")
    assert not (tmp_path / "mine" / released.FOLDER).exists()
    assert len(asked) == 16
    assert all(f"/{released.COMMIT}/results/" in url for url in asked)
    released_files.accepted(monkeypatch, there)
    assert len(released.time_scales(tmp_path / "mine")["PTB"][0]) == released_files.UNITS[0]
    assert len(asked) == 32
    released.ratios(tmp_path / "mine")
    assert len(asked) == 32  # what is there is not fetched again
