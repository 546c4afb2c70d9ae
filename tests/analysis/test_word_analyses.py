"""Check routing, word ablation and mutual information of language models against brute force."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from analysed import language_model, run_of_words, words
from matplotlib.figure import Figure
from torch.nn import functional as F

from timescales import GRU, LSTM, MTSLSTM, PLSTM
from timescales.analysis import NotMadeFor, bins, mutual_information, observe, routing, study, word_ablation
from timescales.errors import ConfigError


def slow_information(text, d):
    """Of every pair of words its frequency, by hand."""
    pairs = list(zip(text[:-d], text[d:], strict=True))
    counts, n = (Counter(a for a, _ in pairs), Counter(b for _, b in pairs), Counter(pairs)), len(pairs)
    return sum(c / n * math.log2(c * n / counts[0][a] / counts[1][b]) for (a, b), c in counts[2].items())


def test_information_is_that_of_the_frequencies():
    text = torch.randint(0, 7, (400,), generator=torch.Generator().manual_seed(1))
    for d in (1, 3, 50):
        found = mutual_information.information(text.int(), d)
        assert found == pytest.approx(slow_information(text.tolist(), d), abs=1e-10)
    assert mutual_information.information(torch.arange(4).repeat(50), 4) == pytest.approx(2.0)  # four words in turn


def test_information_of_a_two_state_chain_decays_as_it_must():
    """A symmetric chain that changes with probability s: correlation (1 - 2 s)^d, so I(d) is known exactly."""
    s, n = 0.1, 400_000
    changes = torch.rand(n, generator=torch.Generator().manual_seed(2)) < s
    text = changes.long().cumsum(0) % 2
    for d in (1, 3, 6):
        same = (1 + (1 - 2 * s) ** d) / 2
        exact = 1 + same * math.log2(same) + (1 - same) * math.log2(1 - same)
        assert mutual_information.information(text, d) == pytest.approx(exact, rel=0.05)


def test_a_power_law_is_found_and_ends_where_chance_begins():
    rows = [{"distance": d, "rest": 2.0 * d**-0.7} for d in mutual_information.distances(100_000)]
    found = mutual_information.power_law(rows, 0.0)
    explained = {"power_law": 1.0, "exponential": found["exponential"]}
    assert found == pytest.approx({"exponent": 0.7, "factor": 2.0, "reach": 1000.0, **explained})
    x, y = (np.array([row[key] for row in rows]) for key in ("distance", "rest"))
    assert found["exponential"] == pytest.approx(np.corrcoef(x, np.log(y))[0, 1] ** 2)
    falling = [{"distance": d, "rest": math.exp(-0.2 * d)} for d in range(1, 20)]
    assert mutual_information.power_law(falling, 0.0)["exponential"] == pytest.approx(1.0)
    assert mutual_information.power_law(rows, 2.0 * 25.0**-0.7)["reach"] == 22.0
    assert math.isnan(mutual_information.power_law(rows, 5.0)["exponent"])
    assert mutual_information.distances(100) == list(range(1, 11))
    assert mutual_information.distances(100_000)[8:14] == [9, 10, 12, 15, 18, 22]


def test_mutual_information_of_a_run(root, tmp_path):
    task = words(root)
    model = language_model(task, LSTM, (5,))
    found = mutual_information.study(run_of_words(model, task))
    assert [row["distance"] for row in found.rows] == mutual_information.distances(task.size("train"))
    assert all(row["rest"] == row["bits"] - row["shuffled"] for row in found.rows)
    assert study.write(found, tmp_path, "mutual_information")[1].is_file()
    assert found.rows == mutual_information.study(run_of_words(model, task)).rows


# --- Groups silenced for the next layer ------------------------------------------------------------------------------
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
    row = {"timescale": 50.0, "median": 40.0} | {f"ratio {words}": 1.1 for words in routing.WORDS}
    values = routing.values_of([row | {"ratio below 100": math.nan}])
    assert values["long/above_10K"] == pytest.approx(1.1)
    assert (values["above_10K/largest"], values["above_10K/median_timescale"]) == (1.1, 40.0)
    without = {"long/below_100", "medium/1K_10K", "not_long/all", "below_100/largest", "below_100/median_timescale"}
    assert not without & set(values)


def test_routing_is_measured_of_assigned_time_scales_alone(root):
    """Its ratios are those of the silenced model over the whole one."""
    task = words(root)
    model = language_model(task, MTSLSTM, (6, 46, 5))
    found = routing.study(run_of_words(model, task))
    assert routing.measure(model, task) == pytest.approx(found.values, nan_ok=True)
    groups = list(observe.by_timescale(model.rnn.layers[1].timescales().detach().double(), 50, 1150).values())
    whole, *silenced = routing.perplexities(model, task, 1, groups)[:, 4].tolist()
    assert [row["ratio all words"] for row in found.rows] == pytest.approx([one / whole for one in silenced], rel=1e-12)
    with pytest.raises(NotMadeFor, match="LSTMCell"):
        routing.measure(language_model(task, LSTM, (6, 46, 5)), task)


def test_the_papers_routing_is_drawn_beside_the_papers_model_alone(root, monkeypatch):
    monkeypatch.setattr(routing, "GROUP", 2)
    monkeypatch.setattr(routing, "PAPER_UNITS", 46)  # a small layer for the paper's, with as many groups
    task = words(root)

    def drawn(size, **changes):
        model = language_model(task, MTSLSTM, (6, size, 5))
        run = run_of_words(model, task)
        for key, value in changes.items():
            part, _, key = key.partition("_")
            run.config[part][key] = value
        found = routing.study(run)
        found.draw(figure := Figure())
        assert len(found.rows) == 23
        return sum(line.get_linestyle() == ":" and len(line.get_xdata()) == 23 for line in figure.axes[0].get_lines())

    assert drawn(46) == 4
    assert drawn(45) == 0  # as many groups, the last of one unit
    for changes in ({"model_alpha": 1.0}, {"model_name": "lstm"}, {"task_corpus": "markov_ptb"}, {"task_name": "wt2"}):
        assert drawn(46, **changes) == 0, changes


# --- Words replaced with <unk> ---------------------------------------------------------------------------------------
def slow_changes(model, task, groups):
    """One word, one replacement, one whole rerun after the other: for each layer (length, groups)."""
    unk, state = task.vocabulary.index("<unk>"), None
    sums = [torch.zeros(task.length, len(of_layer), dtype=torch.float64) for of_layer in groups]
    counts = torch.zeros(task.length, 1)

    def held(x, state):
        """What each group of units of each layer holds."""
        states = model.rnn.split_state(model.rnn(F.embedding(x, model.vectors), state)[1])
        return [
            [getattr(after, "c", after.h)[0, units] for units in of_layer]
            for after, of_layer in zip(states, groups, strict=True)
        ]

    with torch.no_grad():
        for batch in task.batches("test"):
            for t in range(len(batch.x)):
                clean = held(batch.x[: t + 1], state)
                for k in range(t + 1):
                    x = batch.x[: t + 1].clone()
                    x[t - k] = unk
                    for layer, values in enumerate(held(x, state)):
                        for column, value in enumerate(values):
                            was = clean[layer][column]
                            sums[layer][k, column] += float((value - was).norm() / was.norm())
                    counts[k] += 1
            state = model(batch, state).state
    return [total / counts for total in sums]


@pytest.mark.parametrize(("kind", "hidden"), [(LSTM, (6, 7, 5)), (PLSTM, (5,)), (GRU, (5,))])
def test_word_ablation_is_the_brute_force_one(root, kind, hidden):
    task = words(root)
    model = language_model(task, kind, hidden)
    some = torch.tensor([2, 0, 3])
    groups = [[torch.arange(n), some] for n in hidden]
    found = word_ablation.changes(model, task, groups)
    expected = slow_changes(model, task, groups)
    for layer in range(len(hidden)):
        assert found[layer].shape == (9, 2)
        torch.testing.assert_close(found[layer], expected[layer], rtol=0, atol=1e-10)
    assert found[0][0, 0] > 10 * found[0][8, 0] > 0


def test_decay_is_that_of_an_exponential():
    rows = [
        {"layer": layer, "units": units, "timescale": 1.0, "distance": k, "change": 3.0 * math.exp(-k / steps)}
        for layer, units, steps in ((1, "all", 4.0), (2, "all", 9.0), *((2, f"{n}", n) for n in (20.0, 9.0, 5.0, 2.0)))
        for k in range(31)
    ]
    values = word_ablation.values_of(rows)
    assert (values["layer1/decay"], values["layer2/decay"]) == pytest.approx((1 / 4, 1 / 9))
    assert values["layer2/left_10"] == pytest.approx(math.exp(-10 / 9))
    assert values["longer/decay"] == pytest.approx((1 / 20 + 1 / 9) / 2)
    assert values["shorter/decay"] == pytest.approx((1 / 5 + 1 / 2) / 2)
    assert word_ablation.decay({0: 2.0, 30: 0.0}) == pytest.approx(math.log(1e7) / 30)  # no more than float32 can tell
    short = word_ablation.values_of([row for row in rows if row["distance"] < 30])
    assert not [key for key in short if key.endswith("decay")]


def test_word_ablation_of_a_run(root, tmp_path):
    task = words(root)
    model = language_model(task, MTSLSTM)
    found = word_ablation.study(run_of_words(model, task))
    layers = [row for row in found.rows if row["units"] == "all"]
    assert [(row["layer"], row["distance"]) for row in layers] == [(k, n) for k in (1, 2, 3) for n in range(9)]
    groups = [row for row in found.rows if row["units"] != "all" and row["distance"] == 0]
    assert [(row["layer"], row["units"]) for row in groups] == [(2, f"{k}-{k}") for k in range(1, 8)]
    times = [row["timescale"] for row in groups]
    assert times == sorted(times, reverse=True)
    assert found.values["layer1/left_1"] == pytest.approx(layers[1]["change"] / layers[0]["change"])
    assert study.write(found, tmp_path, "word_ablation")[1].stat().st_size < 200_000


def test_every_layer_of_a_deep_model_is_drawn(root):
    task = words(root)
    found = word_ablation.study(run_of_words(language_model(task, hidden=(5,) * 6), task))
    found.draw(figure := Figure())
    assert [line.get_label() for line in figure.axes[0].lines] == [f"layer {k}" for k in range(1, 7)]


def test_a_change_of_what_was_nothing_is_infinite(root):
    task = words(root)
    model = language_model(task, LSTM, (5,))
    unk = task.vocabulary.index("<unk>")
    with torch.no_grad():
        for bias in (model.rnn.layers[0].bias_ih, model.rnn.layers[0].bias_hh):
            bias.zero_()
        model.vectors[torch.arange(len(model.vectors)) != unk] = 0.0  # all but <unk> leave the state at 0
        silent = torch.full((2, 1), 1 - min(unk, 1))
        state = [model.rnn.layers[0].initial_state(1)]
        (found,) = word_ablation.replaced(model, silent, state, unk, [torch.ones(5, 1).double()])
        (same,) = word_ablation.replaced(model, torch.full((2, 1), unk), state, unk, [torch.ones(5, 1).double()])
    assert found.isinf().all()
    torch.testing.assert_close(same, torch.zeros_like(same), rtol=0, atol=1e-12)


def test_words_are_ablated_where_the_vocabulary_has_an_unknown_one(root):
    task = words(root)
    task.vocabulary = [word.replace("<unk>", "unk") for word in task.vocabulary]
    with pytest.raises(ConfigError, match="no <unk> to replace a word with"):
        word_ablation.unknown_word(task)
