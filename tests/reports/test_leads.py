"""The pictures of the README's second and third paragraph show what was measured, and what the verdicts say."""

from collections import Counter
from types import SimpleNamespace

import pytest

from timescales import paths
from timescales.files import csv_rows
from timescales.papers.verdict import Counts, Outcome
from timescales.reports import leads

HEAD = "section,config,S,B,I,H,loss,flush,threads,variant,seconds,MiB,ratio,rounds\n"


def test_a_bar_has_the_ratio_that_was_measured(tmp_path):
    from matplotlib.figure import Figure

    lines = [
        "gates,A,220,128,10,128,all,0,1,own gate,0.1,,0.25,5",
        "layer,A,220,128,10,128,all,0,1,loop LSTM,0.1,,1.2,5",
        "layer,A,220,128,10,128,last,0,1,loop pLSTM,0.1,,3.0,5",  # another loss
        "layer,B,784,100,1,256,all,0,1,fused LSTM,0.1,,0.4,5",  # another size
    ]
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / leads.BENCH).write_text(HEAD + "\n".join(lines) + "\n")
    figure = Figure()
    leads.draw_speed(figure, tmp_path)
    (ax,) = figure.axes
    assert [bar.get_width() for bar in ax.patches] == [0.25, 1.2]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["the gate of ten lines", "LSTM, loop in Python"]


def test_every_layer_of_the_picture_of_speed_is_in_the_committed_benchmark():
    rows = [row for row in csv_rows(paths.RESULTS / "bench" / leads.BENCH) if leads.CONFIG.items() <= row.items()]
    assert leads.SPEED.keys() <= {(row["section"], row["variant"]) for row in rows}


def report(name, **counts):
    verdict = SimpleNamespace(counts=Counts(**{kind: Counter(found) for kind, found in counts.items()}))
    return SimpleNamespace(table=SimpleNamespace(name=name, paper=name.split("_")[0]), verdict=verdict)


def test_a_bar_has_what_became_of_a_tables_conclusions():
    from matplotlib.figure import Figure

    reports = [
        report("gu_a", conclusions={Outcome.HOLD: 1, Outcome.CALIBRATED: 3}, values={Outcome.DIFFER: 9}),
        report("gu_b", values={Outcome.DIFFER: 2}),
        report("gu_c"),
        report("ours_d", conclusions={Outcome.HOLD: 7}),
    ]
    figure = Figure()
    leads.draw_decided(figure, reports)
    (ax,) = figure.axes
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in ax.containers}
    assert widths == {"holds": [0, 0, 1], "differs": [0, 2, 0], "calibrated": [0, 0, 3]}
    assert [bar.get_x() for bar in ax.containers[-1]][-1] == 1, "calibrated begins where holds ends"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["gu_c", "gu_b", "gu_a"], "the first one is on top"
    assert "nothing of it is at hand" in [text.get_text() for text in ax.texts]


def test_every_outcome_has_a_colour():
    assert set(leads.DECIDED) == set(Outcome)


@pytest.mark.parametrize("name", ["speed.png", "decided.png"])
def test_the_readme_shows_small_pictures(name):
    assert f"(results/{name})" in (paths.ROOT / "README.md").read_text()
    assert 0 < (paths.RESULTS / name).stat().st_size < 60_000
