"""The picture of speed in the README shows what was measured."""

from timescales import paths
from timescales.files import csv_rows
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


def test_the_site_shows_a_small_picture():
    name = "speed.png"
    assert f"(results/{name})" in (paths.ROOT / "docs" / "site" / "index.md").read_text()
    assert 0 < (paths.RESULTS / name).stat().st_size < 60_000
