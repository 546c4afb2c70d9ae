"""logger=tensorboard, read back with TensorBoard's own reader."""

import itertools
import json
import math

import pytest
import torch
from quick import QUICK, curve

from timescales.runs import dashboards, loggers, tensorboard_run
from timescales.runs.record import Record

QUICK = [*QUICK, "model=plstm", "loop.max_steps=4", "loop.log_every=2"]


@pytest.fixture(scope="module", autouse=True)
def _installed():
    pytest.importorskip("tensorboard")


def events(directory):
    """All that TensorBoard reads of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(directory), size_guidance={"scalars": 0, "histograms": 0}).Reload()


def scalars(directory):
    """{name: {step: value}}; no step of a name is there twice."""
    found, read = {}, events(directory)
    for name in read.Tags()["scalars"]:
        points = [(event.step, event.value) for event in read.Scalars(name)]
        assert [step for step, _ in points] == sorted({step for step, _ in points}), name
        found[name] = dict(points)
    return found


def hparams(directory):
    """The events of the HPARAMS tab: how the run began, and how it ended, or None."""
    from tensorboard.plugins.hparams import metadata

    read = events(directory).summary_metadata
    start = metadata.parse_session_start_info_plugin_data(read[metadata.SESSION_START_INFO_TAG].plugin_data.content)
    end = read.get(metadata.SESSION_END_INFO_TAG)
    return start, end and metadata.parse_session_end_info_plugin_data(end.plugin_data.content).status


def test_a_run_is_what_its_curve_and_record_say(train, tmp_path):
    from tensorboard.plugins.hparams import api_pb2

    more = ["++logger.table=chien_copy", "optimizer.lr=0.5", "loop.log_one_over_e=2"]
    assert train(*QUICK, "logger=tensorboard", *more).status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    found, saved = scalars(directory), json.loads((directory / "record.json").read_text())
    logged = curve(directory)
    for name, points in logged.items():
        assert found[name] == pytest.approx(points, rel=1e-6), name  # float32 there
    assert (set(logged["train/loss_nats"]), set(logged["one_over_e/layer1/q0"])) == ({2, 4}, {0, 2, 4})
    best = saved["best"]["metric"]
    expected = {name: value for name, value in saved["metrics"].items() if name.startswith("test/")}
    expected |= {f"last/{name}": value for name, value in saved["last"].items()}
    expected |= {f"best/{best}": saved["best"]["value"]}
    others = {name: points for name, points in found.items() if name not in logged}
    assert others == {name: {4: pytest.approx(value, rel=1e-6)} for name, value in expected.items()}
    drawn = events(directory).Histograms("timescale/layer1/log10_steps")
    assert [event.step for event in drawn] == [0, 2, 4, 4]  # the start, two validations, the end
    assert all(sum(event.histogram_value.bucket) == 4 for event in drawn)  # hidden_size
    start, end = hparams(directory)
    assert (start.group_name, end) == (saved["group"], api_pb2.STATUS_SUCCESS)
    assert start.hparams["optimizer.lr"].number_value == 0.5
    assert start.hparams["model.coupled"].bool_value is saved["config"]["model"]["coupled"]
    assert start.hparams["tags"].string_value == "copy plstm chien chien_copy"
    assert not {"seed", "device", "run_dir", "logger.name"} & set(start.hparams)


def begin(directory):
    """The record of a run that begins, with the least that a logger reads of it."""
    words = {part: {"name": part} for part in ("task", "model", "paper", "logger")}
    settings = {"id": "a1", "seed": 0, "group": "task-model-a1", "config": {**words, "loop": {}, "seed": 0}}
    Record(**settings, status="interrupted").write(directory)


def test_histograms_count_every_unit_in_tenths_of_a_decade(tmp_path):
    begin(tmp_path)
    values = torch.tensor([0.0, 0.5, 1.0, 12.5, 99.9, 1e7, math.inf])
    log = tensorboard_run.TensorBoard(tmp_path, Record.read(tmp_path), lambda: [values], 0)
    log.log({"valid/loss": 1.0}, 5)
    log.finish(None)
    (drawn,) = events(tmp_path).Histograms("timescale/layer1/log10_steps")
    value = drawn.histogram_value
    low = [value.min, *value.bucket_limit[:-1]]
    counts = {round(at, 1): n for at, n in zip(low, value.bucket, strict=True) if n}
    assert counts == {-1.0: 1, -0.4: 1, 0.0: 1, 1.0: 1, 1.9: 1, 4.9: 2}
    assert (value.num, value.sum) == (7, pytest.approx(-0.95 - 0.35 + 0.05 + 1.05 + 1.95 + 2 * 4.95))


def test_what_came_after_the_checkpoint_is_dropped_and_nothing_before_it(tmp_path):
    begin(tmp_path)
    killed = tensorboard_run.TensorBoard(tmp_path, Record.read(tmp_path), lambda: [], 0)
    for step in range(0, 11, 2):
        killed.log({"train/loss_nats": float(step)}, step)  # and no `finish`: the process was killed
    resumed = tensorboard_run.TensorBoard(tmp_path, Record.read(tmp_path), lambda: [], 6)
    for step in range(8, 15, 2):
        resumed.log({"train/loss_nats": -float(step)}, step)
    resumed.finish(None)
    assert scalars(tmp_path)["train/loss_nats"] == {0: 0, 2: 2, 4: 4, 6: 6, 8: -8, 10: -10, 12: -12, 14: -14}
    assert hparams(tmp_path)[1] is None  # interrupted: it may continue
    restarted = tensorboard_run.TensorBoard(tmp_path, Record.read(tmp_path), lambda: [], 0)  # no checkpoint was there
    restarted.log({"train/loss_nats": 1.0}, 2)
    restarted.finish(None)
    assert scalars(tmp_path)["train/loss_nats"] == {2: 1.0}


def test_the_last_row_is_not_logged_twice(tmp_path):
    """A run that was killed between its last row and its record logs that row once more."""
    log, sent = loggers.Curve(tmp_path / "curve.csv", 0), []
    log.log({"timescale/layer1/q50": 2.5}, 4)
    other = type("Other", (), {"log": lambda self, values, step: sent.append((values, step))})()
    curve = loggers.Curve(tmp_path / "curve.csv", 4)
    for value, step in ((2.5, 4), (2.5, 6), (3.5, 6)):
        loggers.Loggers([curve, other], lambda: None, curve)({"timescale/layer1/q50": value}, step)
    q50 = "timescale/layer1/q50"
    assert sent == [({}, 4), ({q50: 2.5}, 6), ({q50: 3.5}, 6)]
    assert len(curve.rows) == 3


def test_seeds_are_runs_of_one_group_and_other_settings_another(train, tmp_path):
    assert train(*QUICK, "logger=tensorboard", "seeds=2", "engine=eager").status == 0
    assert train(*QUICK, "logger=tensorboard", "model.hidden_size=5").status == 0
    found = [hparams(path)[0] for path in (tmp_path / "runs").iterdir()]
    first, second, other = sorted(found, key=lambda start: start.hparams["model.hidden_size"].number_value)
    assert first.group_name == second.group_name != other.group_name
    assert first.hparams == second.hparams
    losses = [scalars(path)["train/loss_nats"] for path in (tmp_path / "runs").iterdir()]
    assert all(set(loss) == {2, 4} for loss in losses)
    assert all(a != b for a, b in itertools.combinations(losses, 2))


def test_a_restarted_run_leaves_no_old_events_whatever_logs_it(train, tmp_path):
    arguments = [*QUICK, f"run_dir={tmp_path / 'mine'}"]
    assert train(*arguments, "logger=tensorboard").status == 0
    other = tmp_path / "mine" / "events.out.tfevents.1.host.1.0.other"  # of another run in the same folder
    other.write_text("")
    (first,) = set((tmp_path / "mine").glob("events*")) - {other}
    assert train(*arguments, "logger=tensorboard", "force=true").status == 0
    (second,) = set((tmp_path / "mine").glob("events*")) - {other}
    assert first != second
    assert train(*arguments, "logger=csv", "force=true").status == 0
    assert set((tmp_path / "mine").glob("events*")) == {other}


def test_a_run_that_fails_says_so(train, tmp_path, monkeypatch):
    from tensorboard.plugins.hparams import api_pb2

    from timescales.training import loop

    monkeypatch.setattr(loop, "fit", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(*QUICK, "logger=tensorboard", f"run_dir={tmp_path / 'mine'}")
    assert hparams(tmp_path / "mine")[1] == api_pb2.STATUS_FAILURE


def test_settings_are_numbers_booleans_and_text_and_outcomes_without_a_value_are_left_out():
    config = {"seed": 3, "model": {"n": 2, "sizes": [1, 2], "on": True, "none": None}}
    expected = {"model.n": 2, "model.sizes": "[1, 2]", "model.on": True, "model.none": "None"}
    assert dashboards.settings(config) == expected
    metrics = {"test/loss": None, "test/accuracy": 0.5, "valid/loss": 1.0}
    saved = Record(id="a", status="finished", metrics=metrics, last={"valid/loss": 2.0})
    assert dashboards.outcome(saved) == {"test/accuracy": 0.5, "last/valid/loss": 2.0}
