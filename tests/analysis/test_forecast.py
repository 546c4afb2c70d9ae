"""Forecasts of series of one's own: values, rows and the picture, and both files of docs/own.md."""

import csv
import math
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from timescales import plotting
from timescales.analysis import forecast, study
from timescales.errors import NotMadeFor
from timescales.runs import record
from timescales.tasks import Series

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "own.md").read_text()
FILES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[0]
COMMANDS = [line for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]


@pytest.fixture
def saw(tmp_path):
    """A saw tooth of period 4 with noise and gaps; its forecast task."""
    rng = np.random.default_rng(0)
    values = [f"{k % 4 + rng.normal(0, 0.1):.3f}" if rng.random() > 0.1 else "" for k in range(200)]
    lines = [f"{name},{k},{value}" for name in ("a", "b") for k, value in enumerate(values)]
    (tmp_path / "saw.csv").write_text("\n".join(["name,t,y", *lines]))
    return Series(data=str(tmp_path / "saw.csv"), id="name", time="t", target="y", window=8, horizon=3, season=4)


def oracle(task):
    """A model that knows the saw tooth, from the number of the row that it is asked for."""
    starts = iter(torch.from_numpy(task.begins["test"]).split(500))

    def model(batch):
        rows = next(starts) + torch.arange(len(batch.x)).unsqueeze(1)
        return SimpleNamespace(logits=((rows % 4 - task.mean) / task.deviation).unsqueeze(-1))

    return model


def test_values_and_rows_are_those_of_the_windows(saw, tmp_path):
    run = SimpleNamespace(task=saw, model=oracle(saw), config={"model": {"name": "lstm"}}, colour="#666666")
    found = forecast.study(run)
    begin = saw.begins["test"]
    truth = saw.series.target[begin[:, None] + 8 + np.arange(3)]
    errors = (begin[:, None] + 8 + np.arange(3)) % 4 - truth
    means = (np.nanmean(np.abs(errors)), np.nanmean(errors**2) ** 0.5)
    assert (found.values["mae"], found.values["rmse"]) == pytest.approx(means, rel=1e-5)
    baselines = {f"rmse/{rule.replace(' ', '_')}": rmse for rule, (_, rmse) in saw.baselines().items()}
    assert {key: value for key, value in found.values.items() if "/" in key} == pytest.approx(baselines)
    assert found.values["skill"] == pytest.approx(1 - found.values["rmse"] / min(baselines.values()))
    assert found.values["rmse"] < 0.15
    for name in ("a", "b"):
        rows = [row for row in found.rows if row["series"] == name]
        assert len({row["time"] for row in rows}) == len(rows)  # no forecast twice
        assert [row["ahead"] for row in rows[:4]] == [1, 2, 3, 1]
        for row in rows:
            assert row["lstm"] == pytest.approx(row["time"] % 4, abs=1e-5)
            assert np.isnan(row["truth"]) or row["truth"] == pytest.approx(row["time"] % 4, abs=0.5)
    table, picture = study.write(found, tmp_path, "forecast")
    assert len(list(csv.reader(table.open()))) == len(found.rows) + 1
    assert Image.open(picture).size[0] > 500


def test_a_rule_that_makes_no_error_leaves_no_skill_to_show(tmp_path):
    """The series does not change any more in its test part."""
    rows = [f"{k % 3 if k < 150 else 1}" for k in range(200)]
    (tmp_path / "still.csv").write_text("\n".join(["y", *rows]))
    task = Series(data=str(tmp_path / "still.csv"), target="y", window=8)
    run = SimpleNamespace(task=task, model=oracle(task), config={"model": {"name": "lstm"}}, colour="#666666")
    found = forecast.study(run)
    assert (found.values["rmse/last_value"], "skill" in found.values) == (0.0, False)
    assert study.write(found, tmp_path, "forecast")[1].is_file()


def test_dollar_signs_of_a_file_are_no_formula(tmp_path, script):
    """matplotlib reads what is between two of them as TeX, and $_a_$ is none."""
    lines = [f"{name},{k},{k % 7}" for name in ("$_a_$", "b") for k in range(100)]
    (tmp_path / "cost.csv").write_text("\n".join(["$_id_$,$_t_$,$_cost_$", *lines]))
    columns = {"id": "$_id_$", "time": "$_t_$", "target": "$_cost_$"}
    task = Series(data=str(tmp_path / "cost.csv"), window=8, horizon=2, **columns)
    run = SimpleNamespace(task=task, model=oracle(task), config={"model": {"name": "lstm"}}, colour="#666666")
    found = forecast.study(run)
    assert study.write(found, tmp_path, "forecast")[1].is_file()
    settings = [f"task.{key}='{column}'" for key, column in columns.items()]
    picture = tmp_path / "some.png"
    output = script("examples", "task=series", f"task.data={tmp_path / 'cost.csv'}", *settings, "--png", picture)
    assert output == f"written: {picture}\n"


def lab(colour):
    """A colour's lightness and its two hues, whose distance is about what eyes see (CIE 1976 L*a*b*, D65)."""
    red, green, blue = (c / 12.92 if c < 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    f, g, h = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * g - 16, 500 * (f - g), 200 * (g - h)


def test_the_truth_has_a_colour_unlike_the_forecasts_of_any_model(saw):
    run = SimpleNamespace(task=saw, model=oracle(saw), config={"model": {"name": "lstm"}}, colour="#666666")
    forecast.study(run).draw(figure := Figure())
    colours = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
    assert colours["lstm"] == "#666666"
    for other in (colours["value 4 rows before"], *plotting.SHADES.values()):
        assert math.dist(lab(colours["truth"]), lab(other)) > 35


def test_classification_is_refused(saw):
    saw.kind = "classification"
    with pytest.raises(NotMadeFor, match="not for classification"):
        forecast.study(SimpleNamespace(task=saw))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tides", "shop"])
def test_the_files_of_the_page_from_data_to_picture(train, analyse, tmp_path, name):
    """Some epochs of a small model, which then knows more than the best simple rule."""
    exec(compile(FILES, "docs/own.md", "exec"), {"__name__": "own"})
    training = next(command for command in COMMANDS if f"{name}.csv" in command)
    analysis = next(command for command in COMMANDS if f"analyse.py runs/{name} " in command)
    words = shlex.split(training)
    assert words[:2] == [".venv/bin/python", "train.py"]
    few = ["loop.max_epochs=25", "optimizer.lr=0.01", "model.hidden_size=16", "logger=none", "device=cpu"]
    done = train(*words[2:], *few)
    assert done.status == 0, done
    printed = dict(re.findall(r"test, simple rule, (.*): mae .*, rmse ([\d.]+)", done.out))
    assert set(printed) == {"last value", "mean"} | ({"value 7 rows before"} if name == "shop" else set())
    saved = record.Record.read(tmp_path / "runs" / name)
    rmse = saved["metrics"]["test/rmse"]
    assert rmse < 0.8 * min(map(float, printed.values()))
    assert saved["chance"] == 1.0
    assert f"runs/{name}/analysis/forecast.png" in analyse(*shlex.split(analysis)[2:])
    assert record.Record.read(tmp_path / "runs" / name)["probes"]["forecast/rmse"] == pytest.approx(rmse)
