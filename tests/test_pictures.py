"""Pictures are the same whatever the user's matplotlibrc says: all drawing is under one fixed style."""

import os
import subprocess
import sys

import pytest

from timescales.paths import ROOT

# What users set for papers of their own. LaTeX is not installed on every machine.
HOSTILE = """\
backend: tkagg; text.usetex: True; font.size: 21; font.family: serif; figure.dpi: 37; figure.autolayout: True
figure.facecolor: black; savefig.bbox: tight; savefig.dpi: 41; savefig.format: pdf; savefig.transparent: True
axes.grid: True; axes.prop_cycle: cycler('color', ['red']); axes.unicode_minus: False
lines.linewidth: 9; image.cmap: gray; legend.fontsize: 3
""".replace("; ", "\n")
# Draws by each way that there is: reports' curves, times and verdicts, and `write`, by which all others go.
DRAW = """
import sys
from pathlib import Path
from timescales import paths, plotting
from timescales.config import compose
from timescales.reports import figures, report, write

folder = Path(sys.argv[1])
composer = compose.Composer()
made = report.make("chien_copy", composer, paths.RESULTS, None, False, folder)
assert len(write.pictures(made)) == 3
figures.draw_times([made], folder / "times.png")

def draw(figure):
    left, right = plotting.panels(figure, 2)
    left.plot([1, 10, 100], [-1, 0, 1])
    left.set_xscale("log")
    left.set_xlabel(r"steps, $10^k$")
    plotting.plain_ticks(left)
    plotting.band(right, [1, 2, 3], [1, 2, 1], [0.1, 0.2, 0.3], "blue", label="50 % of 3_a & b")
    plotting.draw_baselines(right, {"a rule": 1.5})
    right.imshow([[0, 1], [2, 3]])
    plotting.small_legend(right)

plotting.write(draw, folder / "other", "A title: 95 % of #1", svg=True)
"""


def drawn(folder, settings):
    """The pictures that a process with this matplotlibrc draws, by name."""
    folder.mkdir()
    (folder / "matplotlibrc").write_text(settings)
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    environment |= {"MATPLOTLIBRC": str(folder / "matplotlibrc"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", DRAW, str(folder)], env=environment, cwd=folder, check=True)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


@pytest.mark.slow
def test_a_users_matplotlibrc_changes_no_picture(tmp_path):
    plain, hostile = drawn(tmp_path / "plain", ""), drawn(tmp_path / "hostile", HOSTILE)
    assert {"chien_copy/figure.png", "chien_copy/verdicts.png", "other.png", "times.png"} <= {*plain}
    assert {*plain} == {*hostile}
    assert [name for name in plain if hostile[name] != plain[name]] == []
    svg = (tmp_path / "hostile" / "other.svg").read_text()
    assert 'width="504pt" height="302.4pt"' in svg  # 7 times 4.2 inches
    from PIL import Image

    with Image.open(tmp_path / "hostile" / "other.png") as picture:
        assert picture.size == (770, 462)


def test_a_style_set_before_is_there_again_after_drawing(tmp_path):
    import matplotlib

    from timescales import plotting

    with matplotlib.rc_context({"font.size": 21.0}):
        inside = []
        plotting.write(lambda figure: inside.append(matplotlib.rcParams["font.size"]), tmp_path / "a", "A title")
        assert (inside, matplotlib.rcParams["font.size"]) == ([10.0], 21.0)


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((1, 200), ["1", "10", "100"]),
        ((0.9, 12), ["1", "2", "5", "10"]),
        ((3, 95), ["5", "10", "20", "50"]),  # more than 30, but with one power of ten
        ((2.2, 9), ["3", "5", "7"]),
        ((520, 1900), ["700", "1,000"]),
        ((2.2, 4.8), ["3", "4"]),
        ((3.2, 3.9), ["3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8"]),
        ((101, 103), [f"{101 + k / 4:g}" for k in range(9)]),
    ],
)
def test_a_logarithmic_axis_has_at_least_two_labels(limits, labels):
    from matplotlib.figure import Figure

    from timescales import plotting

    axes = Figure().subplots()
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    plotting.plain_ticks(axes)
    axes.figure.draw_without_rendering()
    for axis in (axes.xaxis, axes.yaxis):
        places = [*axis.get_majorticklocs(), *axis.get_minorticklocs()]
        texts = [text.get_text() for text in (*axis.get_majorticklabels(), *axis.get_minorticklabels())]
        ticks = sorted(zip(places, texts, strict=True))
        assert [text for place, text in ticks if text and limits[0] <= place <= limits[1]] == labels
