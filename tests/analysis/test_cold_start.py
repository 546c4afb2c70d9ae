"""Starts from zeros in the middle of a text: against one piece at a time, and a model that is led astray on purpose."""

import itertools
import math
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import texts
import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from timescales import LSTM, PLSTM, analysis
from timescales.analysis import cold_start
from timescales.analysis.groups import Line
from timescales.analysis.run import load
from timescales.analysis.study import write
from timescales.errors import ConfigError
from timescales.models.awd import AWDModel
from timescales.models.sequence import Output, SequenceModel
from timescales.tasks import Characters, Copy, Words
from timescales.tasks.task import Batch


class Mood(NamedTuple):
    h: torch.Tensor


class Moody:
    """Knows that 0 1 2 3 4 0 ... is counting, but for ever guesses if the first symbol it sees from zeros is a 0."""

    spec = SimpleNamespace(output_size=5, awd=None)
    rnn = SimpleNamespace(split_state=list)

    def __call__(self, batch, state=None):
        mood = torch.zeros(batch.x.shape[1], 1) if state is None else state[0].h
        mood = torch.where(mood == 0, torch.where(batch.x[0] == 0, -2.0, 1.0).unsqueeze(1), mood)
        logits = 100.0 * F.one_hot((batch.x + 1) % 5, 5) * (mood > 0)
        return Output(logits, (Mood(mood),))


@pytest.fixture
def counting():
    """Ten streams that count, two from each symbol on: (1 + 361, 10), three pieces each."""
    streams = (torch.arange(362).unsqueeze(1) + torch.arange(10)) % 5
    return SimpleNamespace(spec=SimpleNamespace(carried=True), streams={"valid": streams})


def line(name, starts):
    return Line(name, "black", "", starts)


def test_pieces_led_astray_are_counted(counting):
    found = cold_start.study_of([line("", cold_start.starts(Moody(), counting))])
    guess = math.log(5)
    expected = {"pieces": 30.0, "lost": 0.2, "cold": 0.2 * guess, "found": 0.0, "warm": 0.0}
    expected |= {"least_activity_of_found": 1.0, "greatest_activity_of_lost": 2.0}
    assert found.values == pytest.approx(expected)
    steps, each = ([row for row in found.rows if row["what"] == what] for what in ("step", "piece"))
    assert [row["at"] for row in steps] == list(range(1, 121))
    assert all(row["cold"] == round(0.2 * guess, 4) for row in steps)
    # Three pieces of stream 0, then those of stream 1, ...: of streams 0 and 5 each begins with a 0.
    assert [row["at"] for row in each if row["lost"]] == [1, 2, 3, 16, 17, 18]
    assert [row["cold"] for row in each[:4]] == [round(guess, 4)] * 3 + [0.0]
    found.draw(figure := Figure())
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["from zeros", "from a warm state"]
    assert [line.get_label() for line in right.lines] == ["6 of 30 lost"]
    assert len(right.lines[0].get_xdata()) == 30


def test_lost_is_what_is_read_better_from_a_warm_state(monkeypatch):
    """Five pieces of four steps, of which the last two are judged; the last piece is NaN from zeros."""
    monkeypatch.setattr(cold_start, "STEPS", 4)
    cold = torch.tensor([[9, 1, 1, 3, 3], [1, 9, 1, 1, 1], [2, 3.25, 7, 1, 1], [2, 2.75, 7, 1, math.nan]])
    warm = torch.tensor([[1.0, 1, 1, 1, 1], [9, 9, 9, 9, 9], [1.5, 1, 6, 2, 1], [1.5, 2.75, 6.5, 2, 1]])
    activity = torch.tensor([0.5, 0.1, 0.3, 0.4, 0.2])
    found = cold_start.study_of([line("a", cold_start.Starts(cold, warm, activity))])
    each = [row for row in found.rows if row["what"] == "piece"]
    assert [row["lost"] for row in each] == [0, 1, 0, 0, 1]  # by .5, 1.125, .75, -1 and NaN
    assert [row["cold"] for row in each[:4]] == [2, 3, 7, 1]
    assert [row["warm"] for row in each] == [1.5, 1.875, 6.25, 2, 1]
    steps = [row for row in found.rows if row["what"] == "step"]
    assert [row["found"] for row in steps] == [round(x / 3, 4) for x in (13, 3, 10, 10)]
    assert [row["warm"] for row in steps] == [1.0, 9.0, 2.3, 2.75]
    values = {"pieces": 5, "lost": 0.4, "found": 3.0, "warm": 3.7625, "least_activity_of_found": 0.3}
    values |= {"greatest_activity_of_lost": 0.2}
    assert math.isnan(found.values.pop("a/cold"))
    assert found.values == pytest.approx({f"a/{key}": value for key, value in values.items()})
    none = cold_start.study_of([line("", cold_start.Starts(cold[:, 1:2], warm[:, 1:2], activity[1:2]))])
    assert set(none.values) == {"pieces", "lost", "cold", "warm", "greatest_activity_of_lost"}
    assert not any("found" in row for row in none.rows)
    for study in (found, none):
        study.draw(Figure())


def test_pieces_lie_evenly_over_the_streams_and_leave_fillings_out(counting, monkeypatch):
    read = counting.streams["valid"]
    assert cold_start.pieces(counting)[:, 1].tolist() == read[120:241, 0].tolist()
    monkeypatch.setattr(cold_start, "PIECES", 4)
    assert cold_start.pieces(counting).T.tolist() == [
        read[120 * k : 120 * k + 121, stream].tolist() for k, stream in ((0, 0), (0, 3), (1, 6), (2, 9))
    ]
    monkeypatch.setattr(cold_start, "PIECES", 1280)
    read[300:, 9] = -100
    assert cold_start.pieces(counting).shape == (121, 29)
    counting.streams["valid"] = read[:240, :1]
    with pytest.raises(ConfigError, match="validation streams of 239 symbols do not have two pieces of 120"):
        cold_start.pieces(counting)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_losses_are_those_of_one_piece_at_a_time(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(cold_start, "STEPS", 6)
    monkeypatch.setattr(cold_start, "PIECES", 20)
    monkeypatch.setattr(cold_start, "LOGITS", 6 * 50 * 7)  # several batches
    texts.write_words(tmp_path / "ptb", texts.PTB, types=30, lengths=(600, 400, 115))
    common = {"data_root": str(tmp_path), "embedding": 5, "batch_size": 3, "length": 9, "allow_partial": True}
    task = (Characters if kind == "characters" else Words)(**common)
    torch.manual_seed(0)
    if kind == "characters":
        model = SequenceModel(PLSTM(5, 8), task.spec)
    else:
        model = AWDModel(LSTM(5, [6, 5], num_layers=2), task.spec)
    model = model.double().eval()
    cold, warm, activity = cold_start.starts(model, task)
    found = cold_start.pieces(task)
    assert cold.shape == warm.shape == (6, found.shape[1])

    def slowly(piece, state=None):
        losses = []
        for x, y in itertools.pairwise(piece):
            output = model(Batch(x.view(1, 1), y.view(1, 1)), state)
            losses.append(F.cross_entropy(output.logits[0], y.view(1)))
            state = output.state
        return torch.stack(losses), state

    with torch.no_grad():
        slow = [slowly(piece) for piece in found.T]
        torch.testing.assert_close(cold, torch.stack([losses for losses, _ in slow], 1))
        torch.testing.assert_close(
            activity, torch.stack([model.rnn.split_state(state)[-1].h.abs().mean() for _, state in slow])
        )
        best = min(range(len(slow)), key=lambda k: float(slow[k][0][3:].mean()))
        again = [slowly(piece, slow[best][1])[0] for piece in found.T]
        torch.testing.assert_close(warm, torch.stack(again, 1))


def test_a_run_two_runs_and_other_tasks(tmp_path, monkeypatch, train, script):
    monkeypatch.setenv("TIMESCALES_DATA", str(tmp_path))
    monkeypatch.setattr(cold_start, "STEPS", 20)
    texts.write_words(tmp_path / "ptb", texts.PTB, types=30, lengths=(3000, 900, 300))
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        more = ["task.allow_partial=true", "model.hidden_size=8", "loop.max_steps=2", "logger=none", f"run_dir={run}"]
        assert train("task=ptb_char", f"model={run.name}", *more).status == 0
    said = script("analyse", runs[0], "--only=cold_start")
    assert "cold_start/lost" in said
    loaded = [load(run) for run in runs]
    one, both = analysis.study_run(loaded[0], "cold_start"), analysis.compare_runs(loaded, "cold_start")
    assert {key: both.values[f"lstm/{key}"] for key in one.values} == one.values
    assert [row for row in both.rows if row["run"] == "lstm"] == [{**row, "run": "lstm"} for row in one.rows]
    assert write(both, tmp_path / "both", "cold_start")[1].is_file()
    reset = Characters(data_root=str(tmp_path), state="reset", allow_partial=True, batch_size=8)
    for task, name in ((Copy(T=5, train_size=1, valid_size=1, test_size=1), "Copy"), (reset, "Characters with state=")):
        with pytest.raises(ConfigError, match=f"with a carried state, not for {name}"):
            cold_start.pieces(task)
