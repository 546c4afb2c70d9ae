"""Groups of units silenced for the next layer."""

import math

import pytest
import torch
from analysed import language_model, run_of_words, words
from matplotlib.figure import Figure
from torch.nn import functional as F

from timescales import LSTM, MTSLSTM
from timescales.analysis import NotMadeFor, bins, observe, routing, study
from timescales.errors import ConfigError
from timescales.tasks import Copy


def slow_perplexities(model, task, layer, units):
    """Word after word, layer after layer: by bin of the words' counts, then of all."""
    states = [cell.initial_state(1) for cell in model.rnn.layers]
    losses = {k: [] for k in range(5)}
    which = bins.bins_of(task.counts().numpy())
    with torch.no_grad():
        for batch in task.batches("test"):
            for x, target in zip(batch.x, batch.target, strict=True):
                h = model.vectors[x]
                for k, cell in enumerate(model.rnn.layers):
                    ih, hh, bias_ih, bias_hh = cell.weights()
                    states[k] = cell.step(h @ ih.T + bias_ih, states[k].h @ hh.T + bias_hh, states[k])
                    h = states[k].h.clone()
                    if k == layer:
                        h[:, units] = 0.0
                loss = float(F.cross_entropy(model.readout(h), target))
                for k in (int(which[int(target)]), 4):
                    losses[k].append(loss)
    return [math.exp(sum(found) / len(found)) if found else math.nan for found in losses.values()]


@pytest.mark.parametrize(("hidden", "layer"), [((6, 7, 5), 1), ((5,), 0)])
def test_silenced_groups_are_silent_for_the_next_layer_alone(root, monkeypatch, hidden, layer):
    monkeypatch.setattr(bins, "EDGES", (19, 16, 13))  # the small corpus's words occur some 16 times
    monkeypatch.setattr(routing, "LOGITS", 600)  # so that groups do not go through the readout at once
    task = words(root)
    model = language_model(task, LSTM, hidden)
    groups = [torch.tensor([1, 4]), torch.tensor([0]), torch.tensor([2, 3])]
    found = routing.perplexities(model, task, layer, groups)
    assert found.shape == (4, 5)
    for row, units in zip(found, (torch.tensor([], dtype=torch.long), *groups), strict=True):
        expected = torch.tensor(slow_perplexities(model, task, layer, units), dtype=torch.float64)
        torch.testing.assert_close(row, expected, rtol=1e-10, atol=0, equal_nan=True)
    assert not found[:, :4].isnan().all(0).any()
    losses, _ = bins.token_losses(model, task)
    assert float(found[0, 4]) == pytest.approx(math.exp(float(losses.mean())), rel=1e-10)


def test_routing_of_a_run(root, tmp_path):
    task = words(root)
    model = language_model(task, MTSLSTM, (6, 46, 5))
    found = routing.study(run_of_words(model, task))
    assert [row["units"] for row in found.rows][:2] == ["1-2", "3-4"]
    assert len(found.rows) == len(routing.PRINTED[0]) == 23  # two of 46 units, as 50 of 1,150
    assert all(len(ratios) == 23 for ratios in routing.PRINTED)
    times = [row["timescale"] for row in found.rows]
    assert times == sorted(times, reverse=True)
    most = max(found.rows, key=lambda row: row["ratio all words"])
    assert found.values["all/largest"] == most["ratio all words"]
    assert found.values["all/median_timescale"] == most["median"]
    assert study.write(found, tmp_path, "routing")[1].stat().st_size < 200_000
    copy = Copy(T=5, train_size=1, valid_size=1, test_size=1)
    with pytest.raises(ConfigError, match="language models of words, not for Copy"):
        routing.study(run_of_words(model, copy))


# Mean time scales of the paper's 23 groups of second-layer units, in steps.
TIMES = [13290, 174.9, 65.9, 35.3, 22.2, 15.3, 11.1, 8.5, 6.6, 5.3, 4.3, 3.6, 3.0, 2.5, 2.1, 1.8, 1.5, 1.3, 1.06]
TIMES += [0.88, 0.71, 0.54, 0.34]


def test_the_released_ratios_show_two_of_the_three_statements():
    """Section 3.2.4, by the ratios of Fig. 12: rare words lose most with the long groups (20 to 300 steps, four), words
    of 1K to 10K occurrences with the medium ones (5 to 10, three); words above 10K lose nothing with the shortest."""
    rows = [
        {"timescale": time} | dict(zip((f"ratio {words}" for words in routing.WORDS), (*ratios, 1.0), strict=True))
        for time, *ratios in zip(TIMES, *routing.PRINTED, strict=True)
    ]
    values = routing.by_band(rows)
    assert values["none"] == 1.0
    assert values["long/below_100"] == pytest.approx((1.055 * 1.058 * 1.043 * 1.028) ** (1 / 4))
    assert values["long/below_100"] > values["long/above_10K"]
    assert values["long/below_100"] > values["not_long/below_100"]
    assert values["medium/1K_10K"] == pytest.approx((1.026 * 1.012 * 1.023) ** (1 / 3))
    assert values["shortest/above_10K"] == pytest.approx((0.991 * 0.993 * 0.994 * 0.993) ** (1 / 4), abs=2e-3)
    assert values["shortest/above_10K"] < 1.0 < values["medium/1K_10K"]


def test_a_band_without_groups_and_a_bin_without_words_have_no_value():
    row = {"timescale": 50.0} | {f"ratio {words}": 1.1 for words in routing.WORDS}
    values = routing.by_band([row | {"ratio below 100": math.nan}])
    assert values["long/above_10K"] == pytest.approx(1.1)
    assert not {"long/below_100", "medium/1K_10K", "not_long/all"} & set(values)


def test_routing_is_measured_of_assigned_time_scales_alone(root):
    task = words(root)
    model = language_model(task, MTSLSTM, (6, 46, 5))
    assert routing.measure(model, task) == pytest.approx(routing.study(run_of_words(model, task)).values, nan_ok=True)
    with pytest.raises(NotMadeFor, match="LSTMCell"):
        routing.measure(language_model(task, LSTM, (6, 46, 5)), task)


def test_ratios_are_of_the_silenced_model_over_the_whole_one(root):
    task = words(root)
    model = language_model(task, LSTM, (4, 46, 5))
    groups = list(observe.by_timescale(model.rnn.layers[1].timescales().detach().double(), 50, 1150).values())
    whole, *silenced = routing.perplexities(model, task, 1, groups)[:, 4].tolist()
    rows = routing.study(run_of_words(model, task)).rows
    assert [row["ratio all words"] for row in rows] == pytest.approx([one / whole for one in silenced], rel=1e-12)


def test_the_papers_routing_is_drawn_beside_the_papers_model_alone(root, monkeypatch):
    monkeypatch.setattr(routing, "GROUP", 2)
    monkeypatch.setattr(routing, "OF", 46)  # a small layer for the paper's, with as many groups
    task = words(root)

    def drawn(size, **changes):
        model = language_model(task, MTSLSTM, (6, size, 5))
        run = run_of_words(model, task)
        for key, value in changes.items():
            part, _, key = key.partition("_")
            run.config[part][key] = value
        figure = Figure()
        found = routing.study(run)
        found.draw(figure)
        assert len(found.rows) == 23
        return sum(line.get_linestyle() == ":" and len(line.get_xdata()) == 23 for line in figure.axes[0].get_lines())

    assert drawn(46) == 4
    assert drawn(45) == 0  # as many groups, the last of one unit
    for changes in ({"model_alpha": 1.0}, {"model_name": "lstm"}, {"task_corpus": "markov_ptb"}, {"task_name": "wt2"}):
        assert drawn(46, **changes) == 0, changes
