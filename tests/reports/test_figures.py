"""Pictures of tables: what is drawn is what was found."""

from types import SimpleNamespace

import pytest
from made_up import TABLE, made_row, quoted, report_of, rows
from matplotlib.figure import Figure

from timescales import paths, plotting
from timescales.files import csv_rows
from timescales.papers.table import Figure as PanelOf
from timescales.paths import ROOT
from timescales.reports import figures, forest, readme, speed, write
from timescales.runs.metrics import Censored


def test_what_is_drawn_is_what_was_found():
    found = [*rows([0.5, 0.7], **{"task.T": 5}), *rows([0.9], **{"task.T": 10})]
    curve = [{"step": 10, "valid/accuracy": 0.25}, {"step": 20, "valid/accuracy": 0.75}]
    decays = [{"probe/decay/1": k + 1.0, "probe/decay/10": k + 4.0} for k in range(len(found))]
    found = [made_row(values, row, curve=curve) for values, row in zip(decays, found, strict=True)]
    kinds = {"curves": {}, "line": {"x": "task.T"}, "probe": {"probe": "decay", "xlabel": "age", "ylabel": "kept"}}
    drawn = {}
    for kind, settings in kinds.items():
        of = report_of({**TABLE, "figure": {"kind": kind} | settings}, {"paper": found})
        drawn[kind] = Figure().subplots()
        figures.KINDS[kind](drawn[kind], figures.Panel(of, "paper", of.table, *of.table.figure))
    numbers = {kind: [(*line.get_xdata(), *line.get_ydata()) for line in one.lines] for kind, one in drawn.items()}
    close = pytest.approx
    assert numbers["curves"] == [(10, 20, 0.25, 0.75)] * 3
    assert numbers["line"][0] == close((5, 10, 60.0, 90.0))
    assert numbers["line"][1] == close((5, 5, 10, 50.0, 70.0, 90.0))
    assert numbers["probe"] == [close((1, 10, 1.5, 4.5)), close((1, 10, 3.0, 6.0))]
    band = drawn["probe"].collections[0].get_paths()[0].get_extents()  # one standard error of 1 and 2: .5
    assert (band.y0, band.y1) == close((1.0, 5.0))


def test_values_of_a_setting_that_are_no_numbers_stand_side_by_side():
    found = [*rows([0.5], **{"task.T": None}), *rows([0.9], **{"task.T": 10}), *rows([0.6], **{"task.T": [1, 2]})]
    panel = PanelOf(kind="line", x="task.T", xscale="log")
    of = report_of(TABLE, {"paper": found})
    ax = Figure().subplots()
    figures.KINDS["line"](ax, figures.Panel(of, "paper", of.table, panel))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["none", "10", "[1, 2]"]
    assert (*ax.lines[0].get_xdata(), *ax.lines[0].get_ydata()) == pytest.approx((0, 1, 2, 50, 90, 60))


def test_dollar_signs_of_settings_are_no_formula():
    """matplotlib reads what is between two of them as TeX, and $_a_$ is none."""
    places = {name: {"task.target": f"$_{name}_$"} for name in "ab"}
    found = [row for axes in places.values() for row in rows([0.5, 0.6, 0.7], **axes) + rows([0.9] * 3, "lstm", **axes)]
    panels = [{"kind": "line", "x": "task.target"}, {"kind": "curves", "where": places["a"]}]
    table = TABLE | {"title": "$_t_$", "figure": panels, "cells": [{"where": places["b"], "value": 90.0}]}
    table |= {"claims": [quoted("plstm > lstm @ task.target=$_a_$")]}
    table |= {"runs": [grid | {"task.target": ["$_a_$", "$_b_$"]} for grid in TABLE["runs"]]}
    of = report_of(table, {"paper": found})
    for picture in (figures.draw(of), forest.verdicts(of)):
        assert plotting.small_png(picture)[:4] == b"\x89PNG"


def test_curves_of_a_table_of_times_are_those_of_the_metric_that_reaches_the_threshold():
    curve = [{"step": 10, "valid/accuracy": 0.25}, {"step": 20, "valid/accuracy": 0.75}]
    metric = "steps to valid/accuracy >= 0.5"
    found = [made_row({metric: 20}, row, curve=curve) for row in rows([0.9])]
    of = report_of({**TABLE, "metric": metric, "better": "lower", "figure": {"kind": "curves"}}, {"paper": found})
    ax = Figure().subplots()
    figures.KINDS["curves"](ax, figures.Panel(of, "paper", of.table, *of.table.figure))
    assert list(ax.lines[0].get_ydata()) == [0.25, 0.75]
    assert ax.get_legend_handles_labels()[1] == ["plstm", "threshold 0.5"]


def test_values_of_an_analysis_are_drawn_at_any_number_and_counted_where_they_are():
    decays = [{"probe/decay/2500000": 1.0, "probe/decay/0.50": 2.0, "probe/decay/mean": 3.0}, {}, {}]
    found = [made_row(values, row) for values, row in zip(decays, rows([0.5, 0.6, 0.7]), strict=True)]
    settings = {"kind": "probe", "probe": "decay", "xlabel": "age", "ylabel": "kept"}
    of = report_of({**TABLE, "figure": settings}, {"paper": found})
    ax = Figure().subplots()
    figures.KINDS["probe"](ax, figures.Panel(of, "paper", of.table, *of.table.figure))
    assert [(*line.get_xdata(), *line.get_ydata()) for line in ax.lines] == [(0.5, 2500000, 2.0, 1.0)]
    assert ax.get_legend_handles_labels()[1] == ["plstm (n=1)"], "two runs were not analysed"


def test_a_run_that_never_reached_the_threshold_is_an_empty_dot():
    metric = "steps to valid/accuracy >= 0.9"
    runs = [*rows([0.9], **{"task.T": 5}), *rows([0.9], **{"task.T": 10})]
    runs = [made_row({metric: steps}, row) for row, steps in zip(runs, (100, Censored(300)), strict=True)]
    found = report_of({**TABLE, "metric": metric, "better": "lower"}, {"paper": runs})
    ax = Figure().subplots()
    figures.KINDS["line"](ax, figures.Panel(found, "paper", found.table, PanelOf(kind="line", x="task.T")))
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [(list(line.get_xdata()), line.get_fillstyle()) for line in dots] == [([5], "full"), ([10], "none")]


def test_a_run_that_never_reached_the_threshold_is_an_empty_dot_among_verdicts():
    metric = "steps to valid/accuracy >= 0.9"
    never = [made_row({metric: steps}, row) for row, steps in zip(rows([0.9] * 2), (100, Censored(300)), strict=True)]
    for value in (None, 200.0):
        cells = [{"where": {"model": "plstm"}, "value": value, "tolerance": 100}]
        table = TABLE | {"metric": metric, "better": "lower", "unit": "steps", "cells": cells}
        picture = forest.verdicts(report_of(table, {"paper": never}))
        (ax,) = picture.axes
        full, empty = (line for line in ax.lines if line.get_linestyle() == "None" and line.get_color() == "black")
        assert (full.get_fillstyle(), empty.get_fillstyle()) == ("full", "none")
        assert [*full.get_xdata(), *empty.get_xdata()] == ([-1, 1] if value else [100, 300])
        without = forest.verdicts(report_of(table, {"paper": never[:1]}))
        words = [[text.get_text() for part in one.legends for text in part.get_texts()] for one in (picture, without)]
        assert words[0] == [*words[1], "run that never reached the threshold, at its last step"]
        assert ("holds, agrees" in words[0]) == bool(value), "without claims and printed values nothing is judged"


def test_a_value_without_a_margin_is_drawn_at_the_printed_one_or_far_away():
    table = {
        **TABLE,
        "tolerance": 0,
        "cells": [{"where": {"model": name}, "value": 90.0} for name in ("plstm", "lstm")],
    }
    found = report_of(table, {"paper": rows([0.9, 0.9]) + rows([0.9, 0.95], "lstm")})
    (ax,) = forest.verdicts(found).axes
    dots = [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "."]
    assert dots == [[0, 0], [0, forest.FAR]]


def test_pictures_are_drawn_again_if_runs_or_pictures_or_code_change(made, monkeypatch):
    calls = []

    def pictures(found):
        calls.append("figure")
        (found.folder / "verdicts.png").write_text("drawn")

    monkeypatch.setattr(write, "pictures", pictures)

    def drawn(found):
        calls.clear()
        write.draw(found)
        return bool(calls)

    found = made()
    assert [drawn(found), drawn(found), drawn(made())] == [True, False, False]
    (found.folder / "verdicts.png").unlink()
    assert [drawn(found), drawn(found)] == [True, False]
    found.rows["paper"].pop()
    assert [drawn(found), drawn(found)] == [True, False]
    monkeypatch.setattr(write, "_code", lambda: ["other code"])
    assert [drawn(found), drawn(found)] == [True, False]
    # What simple rules reach may depend on data, or on a task of the user's.
    rules = {"figure": {"kind": "curves", "trivial_baselines": True}}
    assert [drawn(made(**rules)), drawn(made(**rules))] == [True, False]
    for changing in (made(**rules, needs=["mnist"]), made(**rules, own=True)):
        assert [drawn(changing), drawn(changing)] == [True, True]


@pytest.fixture
def drawn(monkeypatch):
    """The axes of every figure drawn, a list a figure."""
    found = []

    def panels(*args, **options):
        found.append(plotting.panels(*args, **options))
        return found[-1]

    monkeypatch.setattr(figures, "panels", panels)
    return found


def test_panels_of_parts_show_their_runs_alone_with_one_range_of_values(made, drawn):
    parts = [{"kind": "curves", "where": {"model": model}} for model in ("plstm", "lstm")]
    found = made(figure=parts)
    shown = list(figures._panels(found))
    assert [{row.axes["model"] for row in panel.rows} for panel in shown] == [{"plstm"}, {"lstm"}] * 2
    assert [panel.size for panel in shown] == ["paper", "paper", "t20", "t20"], "of the rungs the largest"
    assert figures._title(shown[1]).endswith(", lstm")
    figures.draw(found)
    assert len({ax.get_ylim() for ax in drawn[-1]}) == 1
    found = made(figure=[*parts, {"kind": "curves"}, {"kind": "line", "x": "task.T"}])
    for size in ("t5", "t20"):
        found.rows[size].clear()
    figures.draw(found)
    assert [ax.get_gridspec().get_geometry() for ax in drawn[-1]] == [(2, 2)] * 4, "four panels: two a row"
    found.rows["paper"][:] = [row for row in found.rows["paper"] if row.axes["model"] == "lstm"]
    figures.draw(found)
    assert len(drawn[-1]) == 3, "a part without runs has no panel"


def test_the_front_picture_is_the_cells_in_percent(monkeypatch):
    cells = [{"label": "power law", "where": {"model": "plstm"}, "value": None}]
    found = report_of({**TABLE, "cells": cells}, {"paper": rows([0.9, 0.94])})
    for k, row in enumerate(found.rows["paper"]):
        last = {"epoch": 2.0, "valid/accuracy": row.value("last valid/accuracy")}
        found.rows["paper"][k] = made_row(like=row, curve=[{"epoch": 1.0, "valid/accuracy": 0.5}, last])
    figure = Figure()
    monkeypatch.setattr(plotting, "write", lambda fill, path, title: (fill(figure), [path])[1])
    readme.draw(found)
    drawn = [(*line.get_xdata(), *line.get_ydata()) for line in figure.axes[0].lines]
    each, mean = [(1, 2, 50, 90), (1, 2, 50, 94)], (1, 2, 50, 92)
    assert drawn == [pytest.approx(numbers) for numbers in (*each, mean)]
    assert "mean of 2 runs: power law that reads it 92.0 %." in readme.picture(found)


def test_pictures_that_committed_reports_show_are_there():
    for name in ("figure.png", "verdicts.png"):
        pages = [path for path in (ROOT / "results").glob("*/table.md") if f"({name})" in path.read_text()]
        assert len(pages) >= 10
        assert [path.parent.name for path in pages if not (path.parent / name).is_file()] == []
    assert "(../../results/times.png)" in (ROOT / "docs" / "papers" / "ours.md").read_text()
    assert 0 < (ROOT / "results" / "times.png").stat().st_size <= plotting.LARGEST


def test_times_of_units_beyond_the_data_end_in_an_arrow():
    found = [*rows([0.5], model="plstm"), *rows([0.6], model="lstm"), *rows([0.7], model="ur")]
    name = "probe/one_over_e/"
    keys = [f"{name}{key}" for key in ("q10", "median", "q90", "zero_input/median")]
    found[0].values.update(zip(keys, (1.0, 4.0, 20.0, 5.0), strict=True))
    found[1].values.update(zip(keys, (2.0, None, None, 90.0), strict=True))
    of = report_of({**TABLE, "figure": {"kind": "times"}}, {"paper": found})
    ax = Figure().subplots()
    figures.KINDS["times"](ax, figures.Panel(of, "paper", of.table, *of.table.figure))
    drawn = [(line.get_marker(), *map(float, line.get_xdata())) for line in ax.lines]
    known = [("None", 1.0, 20.0), ("o", 4.0), ("d", 5.0)]
    assert drawn == [*known, ("None", 2.0, 2.0), (">", 2.0), ("d", 90.0)]
    assert len(ax.get_yticklabels()) == 2, "ur was not measured"


def test_times_of_several_tables_share_one_range(tmp_path, drawn):
    name = "probe/one_over_e/"
    found = []
    for k, median in enumerate((3.0, 300.0)):
        runs = rows([0.5], model="plstm")
        runs[0].values.update({f"{name}q10": median / 2, f"{name}median": median, f"{name}q90": 2 * median})
        runs[0].values[f"{name}zero_input/median"] = median
        found.append(report_of({**TABLE, "name": f"study_{k}"}, {"paper": runs}))
    figures.draw_times(found, tmp_path / "times.png")
    assert (tmp_path / "times.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    (axes,) = drawn
    assert [ax.get_title("left") for ax in axes] == ["study_0", "study_1"]
    low, high = axes[0].get_xlim()
    assert axes[1].get_xlim() == (low, high)
    assert low < 1.5 < 600 < high
    assert [float(line.get_xdata()[0]) for line in axes[1].lines if line.get_marker() == "o"] == [300.0]


def test_curves_show_what_simple_rules_reach(monkeypatch):
    from timescales.config import compose
    from timescales.errors import MissingData
    from timescales.tasks import DelayedMatch
    from timescales.training import build

    composer = compose.Composer()
    row = made_row(like=rows([0.5])[0], curve=[{"step": 10, "valid/accuracy": 0.4}])
    found = report_of({**TABLE, "figure": {"kind": "curves", "trivial_baselines": True}}, {"paper": [row]})
    settings = ["task=delayed_match", "task.choices=4", "task.distractors=0.3", "device=cpu"]
    found.composed[row.id] = SimpleNamespace(config=composer(settings))
    (panel,) = figures._panels(found)
    ax = Figure().subplots()
    figures.KINDS["curves"](ax, panel)
    expected = DelayedMatch(choices=4, distractors=0.3).trivial_baselines()
    assert expected
    drawn = {line.get_label(): line.get_ydata()[0] for line in ax.lines[1:]}
    assert drawn == {f"{rule}: {value:.3g}": value for rule, value in expected.items()}

    def without_data(*args, **options):
        raise MissingData("MNIST is not there")

    monkeypatch.setattr(build, "construct", without_data)
    assert found.trivial_baselines(row) == {}


def test_a_bar_has_the_ratio_that_was_measured(tmp_path, monkeypatch):
    lines = [
        "gates,A,220,128,10,128,all,0,1,own gate,0.1,,0.25,5",
        "layer,A,220,128,10,128,all,0,1,loop LSTM,0.1,,1.2,5",
        "layer,A,220,128,10,128,last,0,1,loop pLSTM,0.1,,3.0,5",  # another loss
        "layer,B,784,100,1,256,all,0,1,fused LSTM,0.1,,0.4,5",  # another size
    ]
    (tmp_path / "bench").mkdir()
    head = "section,config,S,B,I,H,loss,flush,threads,variant,seconds,MiB,ratio,rounds"
    (tmp_path / "bench" / speed.BENCH).write_text("\n".join([head, *lines, ""]))
    figure = Figure()
    monkeypatch.setattr(plotting, "write", lambda fill, path, title: (fill(figure), [path])[1])
    speed.draw(tmp_path)
    (ax,) = figure.axes
    assert [bar.get_width() for bar in ax.patches] == [0.25, 1.2]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["the gate of ten lines", "LSTM, loop in Python"]


def test_every_layer_of_the_picture_of_speed_is_in_the_committed_benchmark():
    rows = [row for row in csv_rows(paths.RESULTS / "bench" / speed.BENCH) if speed.CONFIG.items() <= row.items()]
    assert speed.SPEED.keys() <= {(row["section"], row["variant"]) for row in rows}
