"""Words replaced with <unk>, against brute force."""

import math

import pytest
import torch
from analysed import language_model, run_of_words, words
from torch.nn import functional as F

from timescales import GRU, LSTM, MTSLSTM, PLSTM
from timescales.analysis import study, word_ablation
from timescales.errors import ConfigError
from timescales.tasks import Copy


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


@pytest.mark.parametrize(
    ("kind", "hidden"),
    [(LSTM, (6, 7, 5)), pytest.param(MTSLSTM, (6, 7, 5), marks=pytest.mark.full), (PLSTM, (4, 5)), (GRU, (5,))],
)
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


def test_a_held_forget_gate_keeps_a_change_as_its_powers(root):
    """A layer that does not read itself, with f = .7 throughout: of a word's change f^k is left after k words."""
    task = words(root)
    model = language_model(task, LSTM, (5,))
    cell = model.rnn.layers[0]
    with torch.no_grad():
        cell.weight_hh.zero_()
        cell.weight_ih[cell.rows("forget")] = 0.0
        cell.set_bias("forget", torch.full((5,), 0.7, dtype=torch.float64).logit())
        block, states = next(word_ablation.blocks(model, task))
        (S, W), unk = block.shape, task.vocabulary.index("<unk>")
        found = word_ablation.replaced(model, block, states, unk, [torch.eye(5).double()])[0]
        expected = torch.zeros(S, 5, dtype=torch.float64)
        clean, other = (torch.empty(S, W, 5, dtype=torch.float64) for _ in range(2))  # what a word writes: i g
        for written, tokens in ((clean, block), (other, torch.full_like(block, unk))):
            i, _, g, _ = (F.embedding(tokens, model.vectors) @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh).chunk(
                4, -1
            )
            written.copy_(i.sigmoid() * g.tanh())
        c = states[0].c
        for t in range(S):
            c = 0.7 * c + clean[t]
            for k in range(t + 1):
                expected[k] += (0.7**k * (other[t - k] - clean[t - k]) / c).abs().sum(0)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_decay_is_that_of_an_exponential():
    rows = [
        {"layer": layer, "units": units, "timescale": 1.0, "distance": k, "change": 3.0 * math.exp(-k / steps)}
        for layer, units, steps in ((1, "all", 4.0), (2, "all", 9.0), *((2, f"{n}", n) for n in (20.0, 9.0, 5.0, 2.0)))
        for k in range(31)
    ]
    values = word_ablation.values_of(rows)
    assert (values["layer1/decay"], values["layer2/decay"]) == pytest.approx((1 / 4, 1 / 9))
    assert values["layer2/left_10"] == pytest.approx(math.exp(-10 / 9))
    assert (values["longer/decay"], values["shorter/decay"]) == pytest.approx(
        ((1 / 20 + 1 / 9) / 2, (1 / 5 + 1 / 2) / 2)
    )
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


def test_words_are_ablated_in_language_models_of_words_alone(root):
    with pytest.raises(ConfigError, match="for language models of words, not for Copy"):
        word_ablation.unknown_word(Copy(T=5, train_size=1, valid_size=1, test_size=1))
    task = words(root)
    task.vocabulary = [word.replace("<unk>", "unk") for word in task.vocabulary]
    with pytest.raises(ConfigError, match="no <unk> to replace a word with"):
        word_ablation.unknown_word(task)
