"""Series of one's own: parts, windows, gaps and times against loops over the rows, baselines, errors with the row."""

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from timescales.errors import ConfigError
from timescales.tasks import Series
from timescales.training import build

SPLITS = ("train", "valid", "test")


@pytest.fixture
def write(tmp_path):
    def call(lines, name="mine.csv"):
        path = tmp_path / name
        path.write_text(lines if isinstance(lines, str) else "\n".join(lines) + "\n")
        return str(path)

    return call


def irregular(n=80, names=("a", "b"), seed=0, gap=0.15):
    """The rows (name, time, x, y) of series, interleaved by time, None for a gap."""
    rng = np.random.default_rng(seed)
    rows = []
    for name in names:
        for time in rng.uniform(0.2, 3.0, n).cumsum().round(3).tolist():
            cells = [None if rng.random() < gap else round(float(rng.normal(5.0, 2.0)), 3) for _ in range(2)]
            rows.append((name, time, *cells))
    return sorted(rows, key=lambda row: row[1])


def lines_of(rows):
    return ["name,time,x,y", *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]


COLUMNS = {"time": "time", "id": "name", "inputs": ["x", "y"], "target": "y"}


def made(path, **more):
    return Series(**{"data": path, "window": 6, "horizon": 3, "batch_size": 16} | more)


def all_of(task, split):
    """All sequences of a split in order, as one batch."""
    return task.sequences(split, torch.arange(task.size(split)))


def windows_by_hand(rows, window, horizon, fractions=(0.15, 0.15)):
    """By split, the windows as lists of rows: targets within the split, something known to read and to score."""
    times = sorted(row[1] for row in rows)
    end = len(times) - round(fractions[1] * len(times))
    cuts = times[end - round(fractions[0] * len(times))], times[end]
    found = {split: [] for split in SPLITS}
    for name in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == name]
        for k in range(len(own) - window - horizon + 1):
            read, asked = own[k : k + window], own[k + window : k + window + horizon]
            parts = {sum(row[1] >= cut for cut in cuts) for row in asked}
            known = any(cell is not None for row in read for cell in row[2:])
            if known and len(parts) == 1 and any(row[3] is not None for row in asked):
                found[SPLITS[parts.pop()]].append(read + asked)
    return found, cuts


def test_windows_against_a_loop_over_the_rows(write):
    rows = irregular()
    task, (expected, cuts) = made(write(lines_of(rows)), **COLUMNS), windows_by_hand(rows, 6, 3)
    training = [row for row in rows if row[1] < cuts[0]]
    known = [[row[k] for row in training if row[k] is not None] for k in (2, 3)]
    mean, deviation = [statistics.fmean(v) for v in known], [statistics.pstdev(v) for v in known]
    of_series = [[row[1] for row in training if row[0] == name] for name in ("a", "b")]
    unit = statistics.median(b - a for times in of_series for a, b in itertools.pairwise(times))
    assert task.channels == ["x", "y", "x known", "y known", "asked"]
    for split in SPLITS:
        batch = all_of(task, split)
        assert batch.x.shape == (9, len(expected[split]), 5)
        assert len(expected[split]) >= 10
        for b, window in enumerate(expected[split]):
            last = None
            for s, (_, time, *cells) in enumerate(window):
                asked = s >= 6
                there = asked or any(cell is not None for cell in cells)
                filled = [0.0 if c is None else (c - m) / d for c, m, d in zip(cells, mean, deviation, strict=True)]
                x = [0.0] * 4 + [1.0] if asked else [*filled, *(float(c is not None) for c in cells), 0.0]
                assert (batch.x[s, b].tolist(), batch.mask[s, b]) == (pytest.approx(x, abs=1e-6), there)
                gap = 1.0 if last is None or not there else (time - last) / unit
                assert float(batch.dt[s, b]) == pytest.approx(gap, rel=1e-5)
                last = time if there else last
                if asked and cells[1] is not None:
                    assert float(batch.target[s, b]) == pytest.approx((cells[1] - mean[1]) / deviation[1], abs=1e-6)
                else:
                    assert math.isnan(batch.target[s, b])


def test_nothing_of_later_parts_changes_what_training_reads(write):
    """No leakage: with other values in the validation and test parts the training batches are the same."""
    rows = irregular()
    _, cuts = windows_by_hand(rows, 6, 3)
    other = [row if row[1] < cuts[0] else (*row[:2], *(c and 1000.0 * c for c in row[2:])) for row in rows]
    first, second = (made(write(lines_of(r), n), **COLUMNS) for r, n in ((rows, "a.csv"), (other, "b.csv")))
    for one, two in zip(first.batches("train"), second.batches("train"), strict=True):
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one[:4], two[:4], strict=True))
    assert (first.mean, first.deviation) == (second.mean, second.deviation)
    assert not torch.equal(all_of(first, "test").x, all_of(second, "test").x)


def test_whole_series_in_one_part_each_the_same_for_all_seeds(write):
    path = write(lines_of(irregular(20, [f"s{k}" for k in range(20)])))
    one, two = (made(path, **COLUMNS, split="id", valid_fraction=0.2, test_fraction=0.1, seed=seed) for seed in (0, 1))
    series = {split: set(np.searchsorted(one.series.begins, one.begins[split], "right").tolist()) for split in SPLITS}
    assert [len(series[split]) for split in SPLITS] == [14, 4, 2]
    assert set.intersection(*series.values()) == set()
    assert all(np.array_equal(one.begins[split], two.begins[split]) for split in SPLITS)
    assert not torch.equal(next(one.batches("train")).x, next(two.batches("train")).x)  # another order


def test_a_regular_file_without_gaps_has_neither_dt_nor_mask(write):
    lines = ["day,y", *(f"2024-{1 + k // 28:02}-{1 + k % 28:02},{k % 5}" for k in range(28))]
    for more in ({"time": "day"}, {}):
        task = made(write(lines), target="y", window=4, horizon=1, **more)
        batch = next(task.batches("train"))
        assert (batch.dt, batch.mask) == (None, None)
        assert task.channels == ["y", "asked"]
    assert task.series.dates is False
    task = made(write([*lines, "2024-02-07,3"]), target="y", time="day", window=4, horizon=1)
    assert task.series.dates is True
    assert float(all_of(task, "test").dt.max()) == 10.0  # from January 28


def test_a_local_hour_that_comes_twice_has_its_length_with_offsets(write):
    """The night in which summer time ends in Paris, 2024, has eleven hours from 20:00 to 6:00."""
    local = [*((26, h, 2) for h in range(20, 24)), *((27, h, 2) for h in range(3)), *((27, h, 1) for h in range(2, 30))]
    rows = [f"2024-10-{d + h // 24}T{h % 24:02}:00+0{z}:00,{h % 7}" for d, h, z in local]
    task = made(write(["t,y", *rows]), target="y", time="t", window=4, horizon=1)
    assert np.diff(task.series.time).tolist() == [3600.0] * (len(rows) - 1)
    assert task.regular


def test_a_missing_row_is_masked_and_the_next_step_is_longer(write):
    task = made(write(["y", *(str(k % 4) if k != 9 else "NaN" for k in range(40))]), target="y", window=4, horizon=1)
    batch = all_of(task, "train")
    b = task.begins["train"].tolist().index(8)
    assert (batch.mask[:, b].tolist(), batch.dt[:, b].tolist()) == ([1, 0, 1, 1, 1], [1, 1, 2, 1, 1])
    assert task.channels == ["y", "asked"]  # the mask says it all
    assert 5 not in task.begins["train"]  # its only target would be the gap


def test_baselines_against_loops(write):
    rows = irregular(gap=0.2)
    task, (expected, cuts) = made(write(lines_of(rows)), **COLUMNS, season=2), windows_by_hand(rows, 6, 3)
    mean = statistics.fmean(row[3] for row in rows if row[1] < cuts[0] and row[3] is not None)
    errors = {"last value": [], "mean": [], "value 2 rows before": []}
    for window in expected["test"]:
        name = window[0][0]
        own = [row for row in rows if row[0] == name]

        def last_known(k, own=own):
            return next((row[3] for row in own[k::-1] if row[3] is not None), mean)

        at = own.index(window[5])
        for h, row in enumerate(window[6:], 1):
            if row[3] is not None:
                before = {1: at - 1, 2: at, 3: at - 1}[h]
                errors["last value"].append(last_known(at) - row[3])
                errors["mean"].append(mean - row[3])
                errors["value 2 rows before"].append(last_known(before) - row[3])
    assert list(task.trivial_baselines()) == list(errors)
    for rule, found in task.baselines().items():
        mae, rmse = statistics.fmean(map(abs, errors[rule])), statistics.fmean(e * e for e in errors[rule]) ** 0.5
        assert found == pytest.approx((mae, rmse))
        assert task.trivial_baselines()[rule] == found[1]
        assert f"test, simple rule, {rule}: mae {mae:.4g}, rmse {rmse:.4g}" in "\n".join(task.notes())


def test_metrics_are_in_the_unit_of_the_data_and_chance_is_the_training_mean(write):
    task = made(write(lines_of(irregular())), **COLUMNS)
    (batch,) = task.batches("test")
    logits = torch.zeros(9, batch.x.shape[1], 1, dtype=torch.float64)
    sums = task.metrics(logits, batch)
    means = task.derived({name: float(total) / n for name, (total, n) in sums.items()})
    mae, rmse = task.baselines()["mean"]
    assert (means["mae"], means["rmse"]) == (pytest.approx(mae, rel=1e-6), pytest.approx(rmse, rel=1e-6))
    assert float(task.loss(logits, batch)) == pytest.approx(means["loss"], rel=1e-6)
    training = task.series.target[(task.part == 0) & np.isfinite(task.series.target)]
    assert task.chance() == pytest.approx(((training - task.mean) ** 2).mean() / task.deviation**2)
    assert task.spec.select == ("rmse", "min")
    # The gradient ignores what is not scored.
    batch = all_of(task, "train")
    logits = torch.randn(9, task.size("train"), 1, dtype=torch.float64, requires_grad=True)
    task.loss(logits, batch).backward()
    assert torch.equal(logits.grad[..., 0] != 0, ~batch.target.isnan())


# --- classification ---------------------------------------------------------------------------------------------------
def labelled(n=30, lengths=(4, 9)):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n):
        times = rng.uniform(0.5, 2.0, rng.integers(*lengths, endpoint=True)).cumsum().round(2)
        rows += [
            (f"s{k}", time, None if rng.random() < 0.1 else round(float(rng.normal()), 2), "ab"[k % 3 == 0])
            for time in times
        ]
    return rows


CLASSES = {"time": "time", "id": "name", "inputs": ["x"], "target": "y", "kind": "classification", "split": "id"}


def test_whole_series_are_padded_at_the_front(write):
    rows = labelled()
    task = made(write(lines_of(rows)), **CLASSES | {"window": None})
    assert task.series.classes == ["a", "b"]
    assert [task.size(split) for split in SPLITS] == [20, 5, 5]
    for split in SPLITS:
        batch = all_of(task, split)
        for b, first in enumerate(task.begins[split]):
            name = task.series.names[np.searchsorted(task.series.begins, first, "right") - 1]
            own = [row for row in rows if row[0] == name]
            assert (batch.target[b], batch.mask[: -len(own), b].sum()) == ("ab".index(own[0][3]), 0)
            assert batch.mask[-len(own) :, b].tolist() == [row[2] is not None for row in own]
            assert (batch.x[:, b, 0] != 0).tolist() == batch.mask[:, b].bool().tolist()
    shares = [float(all_of(task, split).target.double().mean()) for split in SPLITS]
    assert shares == pytest.approx([6 / 20, 2 / 5, 2 / 5])  # of each class its share: 2 of 10, and 3 of 20
    assert task.trivial_baselines() == {"the commonest class": 0.6}
    p = 6 / 20
    assert task.chance() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p))
    assert task.spec.output_size == 2


def test_a_window_keeps_the_end_of_long_series(write):
    path = write(lines_of(labelled()))
    whole, cut = (all_of(made(path, **CLASSES | {"window": n}), "train") for n in (None, 5))
    assert len(cut.x) == 5
    assert torch.equal(cut.x, whole.x[-5:])
    assert torch.equal(cut.mask, whole.mask[-5:])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_none_and_na_are_words_in_the_columns_of_names_and_classes(write, tmp_path, kind):
    """And gaps in a column of numbers of the same file."""
    classes = ["none", "some", "NaN", "NULL"]
    names = ["NA", "null", "none", "nan", "N/A", "NaT", *(f"s{k}" for k in range(14))]
    rows = [(name, t, ["1.5", "NA", "none", "-1"][t], classes[k % 4]) for k, name in enumerate(names) for t in range(4)]
    path = write(["name,time,x,y", *(",".join(map(str, row)) for row in rows)])
    if kind == "parquet":
        import pandas

        path = str(tmp_path / "mine.parquet")
        columns = dict(zip(("name", "time", "x", "y"), zip(*rows, strict=True), strict=True))
        pandas.DataFrame(columns | {"x": pandas.array([1.5, None, None, -1] * 20, "Float64")}).to_parquet(path)
    task = made(path, **CLASSES | {"window": None})
    assert (task.series.names, task.series.classes) == (names, sorted(classes))
    answers = [task.series.classes[int(k)] for k in task.series.target[::4]]
    assert answers == [classes[k % 4] for k in range(20)]
    np.testing.assert_array_equal(task.series.inputs[:, 0], [1.5, math.nan, math.nan, -1.0] * 20)


@pytest.mark.parametrize("gap", [None, math.nan])
def test_an_empty_cell_of_a_parquet_file_is_no_word(tmp_path, gap):
    import pandas

    path = tmp_path / "mine.parquet"
    pandas.DataFrame({"n": ["a", "a", gap], "y": [1.0, 2.0, 3.0]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"row 3: n is empty, and task.id is needed in each row"):
        Series(data=str(path), id="n", target="y", window=1)


# --- files ------------------------------------------------------------------------------------------------------------
def test_parquet_csv_and_semicolons_are_the_same_data(write, tmp_path):
    import pandas

    rows = irregular()
    path = write(lines_of(rows))
    frame = pandas.read_csv(path)
    frame["time"] = pandas.Timestamp("2024-01-01") + pandas.to_timedelta(frame["time"], unit="s")
    frame.to_parquet(tmp_path / "dates.parquet")
    frame.set_index("time").to_parquet(tmp_path / "index.parquet")
    write("\n".join(lines_of(rows)).replace(",", ";"), "semicolons.csv")
    first = all_of(made(path, **COLUMNS), "test")
    for name in ("dates.parquet", "index.parquet", "semicolons.csv"):
        other = all_of(made(str(tmp_path / name), **COLUMNS), "test")
        pairs = zip(first[:4], other[:4], strict=True)
        assert all(torch.allclose(a, b, atol=1e-4, equal_nan=True) for a, b in pairs), name


TEN = "".join(f"{k},{k % 3}\n" for k in range(10))
DAY, BACK = "2024-10-27", "if clocks went back here, write each time with its UTC offset"
OF_CLASSES = {"kind": "classification", "id": "t", "split": "id"}
BAD = [
    ("t,y\n" + TEN, {"time": "tt"}, "mine.csv has no column 'tt'; did you mean t?"),
    ("t,y\n" + TEN + "10,a\n", {}, "mine.csv, row 12: y is 'a', which is no number: write a number, or leave"),
    ("t,y\n" + TEN + '10,"1,5"\n', {}, "row 12: y is '1,5', which is no number: write a point for the decimal comma"),
    ("t,y\n" + TEN + "10,inf\n", {}, "row 12: y is infinite: leave the cell empty"),
    ("t,y\n" + TEN + "10,1,2\n", {}, "row 12: 3 cells, but the header has 2: fill or quote"),
    ("t,y\n" + TEN + ",1\n", {}, "row 12: t is empty: fill in the time, or leave the row out"),
    ("t,y\n" + TEN + "x,1\n", {}, "row 12: t is 'x': give a number as in the first row"),
    ("t,y\n2024-01-31,1\n2024-02-30,2\n", {}, "row 3: t is '2024-02-30': give a date such as 2024-05-31"),
    ("t,y\n" + TEN + "8.5,1\n", {}, "row 12: its time is before that of row 11: sort the file by time"),
    ("t,y\n" + TEN + "9,1\n", {}, "row 12: the same time as row 11: leave one out, or name the series with task.id"),
    # A row with a UTC offset among local times, and one without among times with an offset.
    (f"t,y\n{DAY}T01:00,1\n{DAY}T02:00,2\n{DAY}T03:00+01:00,3\n", {}, f"row 4: t is {DAY}T03:00+01:00, with a UTC"),
    (f"t,y\n{DAY}T01:00Z,1\n{DAY}T02:00,2\n", {}, f"row 3: t is {DAY}T02:00, without a UTC offset, and the first"),
    # Where clocks go back: with a row for each hour, and with three rows for each hour.
    (f"t,y\n{DAY} 01:00,1\n{DAY} 02:00,2\n{DAY} 02:00,3\n", {}, f"row 4: the same time as row 3: {BACK}"),
    (f"t,y\n{DAY} 02:20,1\n{DAY} 02:40,2\n{DAY} 02:00,3\n", {}, f"row 4: its time is before that of row 3: {BACK}"),
    ("t,y,n\n1,2,a\n1,2,b\n2,2,a\n2,2,b\n1,2,a\n", {"id": "n"}, "row 6: its time is before that of row 4 of series a"),
    ("t,y,n\n1,2,a\n2,2,\n", {"id": "n"}, "row 3: n is empty, and task.id is needed in each row"),
    ("t,y,t\n1,2,3\n", {}, "row 1: two columns are called 't': give each its own name"),
    ("t,y\n", {}, "mine.csv has no rows below its header"),
    ('t,"y\n1,2\n', {}, "mine.csv has no column 'y'; its columns are t, y ..."),
    (f"{'t' * 200_000},y\n1,2\n", {}, "row 1: field larger than field limit (131072): correct the row"),
    ("t,y\n" + TEN, {"window": 20}, "row 2: the series begins here and has only 10 rows: window 20 and horizon 1"),
    ("t,y\n" + TEN, {"window": 2, "horizon": 4}, "the valid part is empty: it needs 4 rows in a row; give more rows"),
    ("t,y\n" + "".join(f"{k},1\n" for k in range(20)), {}, "y is constant in the training part"),
    ("t,y\n" + "".join(f"{k},\n" for k in range(20)), {}, "y has no number in the training part"),
    ("t,y\n" + TEN, {"season": 5}, "season 5 is longer than the window 3: give task.window=5 or more"),
    ("t,y\n" + TEN, {"split": "id"}, "has 1 series, and split=id needs three"),
    ("t,y\n" + TEN, {"target": None}, "target is missing: give task.target=COLUMN"),
    ("t,y\n" + TEN, {"kind": "classification", "split": "id"}, "give task.id=COLUMN"),
    ("t,y\n" + TEN, {"kind": "classification", "id": "t"}, "puts whole series into the parts: give task.split=id"),
    ("t,y\n" + TEN, OF_CLASSES, "give task.inputs=[COLUMN,...]"),
    ("t,y\n" + TEN, {"kind": "regression"}, "kind must be one of forecast, classification; not 'regression'"),
    ("t,y\n" + TEN, {"horizon": 0}, "horizon must be at least 1, not 0"),
    ("t,y\n" + TEN, {"window": 0}, "window must be at least 1, not 0"),
    ("t,y\n" + TEN, {"season": 0}, "season must be at least 1, not 0"),
    ("t,y\n" + TEN, OF_CLASSES | {"inputs": ["y"]}, "inputs has the class, y: leave it out"),
    ("t,y\n" + TEN, OF_CLASSES | {"inputs": ["t"], "season": 2}, "season is for the seasonal baseline of forecasts"),
]


@pytest.mark.parametrize(("text", "more", "words"), BAD)
def test_a_bad_file_or_setting_costs_one_line(write, text, more, words):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        Series(**{"data": write(text), "time": "t", "target": "y", "window": 3} | more)
    assert words in str(error.value)


def test_bad_classes_and_formats_cost_one_line(write, tmp_path):
    import pandas

    one_class = "n,x,y\n" + "".join(f"s{k // 3},{k},a\n" for k in range(30))
    changing = "n,x,y\n" + "".join(f"s{k // 3},{k},{'ab'[k % 2]}\n" for k in range(30))
    (tmp_path / "mine.parquet").write_bytes(b"no parquet")
    pandas.DataFrame({"time": [b"a", b"b"], "y": [1.0, 2.0]}).to_parquet(tmp_path / "bytes.parquet")
    (tmp_path / "mine.xlsx").write_bytes(b"PK")
    of_class = {"id": "n", "inputs": ["x"], "target": "y", "kind": "classification", "split": "id"}
    for path, words in (
        (write(one_class, "one.csv"), "one.csv: all series are of class 'a': give a file with two or more"),
        (write(changing, "two.csv"), "two.csv, row 3: y is 'b' and was 'a' before in series s0: a series has one"),
        (str(tmp_path / "mine.parquet"), "mine.parquet cannot be read as parquet"),
        (str(tmp_path / "mine.xlsx"), "mine.xlsx is neither .csv nor .parquet: save the table as one of them"),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
            Series(data=path, **of_class)
        assert words in str(error.value)
    with pytest.raises(ValueError, match=r"bytes\.parquet, row 1: time is b'a': give a date such as 2024-05-31"):
        Series(data=str(tmp_path / "bytes.parquet"), time="time", target="y")


@pytest.mark.parametrize(
    ("yaml", "value", "read"),
    [("target: 1E3", "1000.0", "1000.0"), ("time: 12:30", "750", "750"), ("inputs: [NO, NO2]", "[false,NO2]", "false")],
)
def test_a_word_that_yaml_read_as_something_else_is_named_and_quotes_keep_it(yaml, value, read):
    key = yaml.partition(": ")[0]
    config = {"_target_": "timescales.tasks.Series", "name": "series"}
    with pytest.raises(ConfigError) as error:
        build.construct("task", config | OmegaConf.to_container(OmegaConf.create(yaml)))
    quoted = "['WORD']" if key == "inputs" else "'WORD'"
    place = f"{key}: {quoted} in a file", f'"task.{key}={quoted}" in a shell'
    for words in (f"task.{key} must be", f"not {value}: YAML read {read}", *place):
        assert words in str(error.value)
