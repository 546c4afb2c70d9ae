"""Pictures and tables of trained runs: against literal twins, on tiny models."""

import csv
import functools
import importlib
import itertools
import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic
import texts
import torch
from matplotlib.figure import Figure
from scipy import stats
from torch.nn import functional as F

from timescales import GRU, LSTM, MTSLSTM, PLSTM, ExpRNN, analysis
from timescales.analysis import (
    assigned,
    bins,
    characteristic_times,
    common,
    decay_curves,
    forgetting,
    gate_maps,
    learning_curves,
    mutual_information,
    routing,
    study,
    timescale_law,
    word_ablation,
)
from timescales.analysis.run import Run, load
from timescales.config import compose, identity
from timescales.errors import ConfigError
from timescales.nn.inits import InverseGamma
from timescales.papers import printed
from timescales.runs import record, wandb_run
from timescales.tasks import IMDB, Adding, Characters, Copy, Frequency, Words
from timescales.training import build
from timescales.training.awd import AWDModel
from timescales.training.model import SequenceModel

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["task=copy", "task.T=5", "model.hidden_size=8", "task.train_size=64", "task.valid_size=16",
         "task.test_size=16", "loop.max_steps=4"]  # fmt: skip


@pytest.fixture
def analyse(script):
    return functools.partial(script, "analyse")


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------------------------------- the script


def test_every_question_of_a_run(train, analyse, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=plstm", "logger=csv", f"run_dir={run}").status == 0
    said = analyse(run, "--svg")
    assert "timescale_law/alpha" in said
    assert said.splitlines()[-1].startswith("not asked of this model and task: ")
    assert all(name in said.splitlines()[-1] for name in ("mutual_information", "routing", "word_ablation"))
    for name in ("timescale_law.png", "timescale_law.svg"):
        assert (run / "analysis" / name).is_file()
    assert all(path.stat().st_size <= 200_000 for path in (run / "analysis").glob("*.png"))
    found = rows(run / "analysis" / "timescale_law.csv")
    assert len(found) == 8
    times = [float(row["timescale"]) for row in found]
    assert times == sorted(times, reverse=True)
    assert record.read(run)["probes"]["timescale_law/alpha"] == analysis.measure_run(run, "timescale_law")["alpha"]


def test_several_runs_go_into_one_picture(train, analyse, tmp_path):
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        assert train(*SMALL, f"model={run.name}", "logger=none", f"run_dir={run}").status == 0
    assert "timescale_law/2/alpha" in analyse(*runs, "--only=timescale_law", f"--to={tmp_path / 'both'}")
    assert {row["run"] for row in rows(tmp_path / "both" / "timescale_law.csv")} == {"lstm", "plstm"}
    assert (tmp_path / "both" / "timescale_law.png").is_file()
    assert "--to=DIR is for several runs" in analyse(*runs)
    assert "--to=DIR is for several runs" in analyse(runs[0], "--to=x")
    other = tmp_path / "adding"
    assert train("task=adding", "task.T=6", *SMALL[2:], "logger=none", f"run_dir={other}").status == 0
    assert "give runs of one task" in analyse(runs[0], other, "--only=timescale_law", f"--to={tmp_path / 'both'}")


def test_curves_of_a_finished_and_an_interrupted_run_side_by_side(train, tmp_path):
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        more = ["loop.eval_every=1", "logger=csv", f"run_dir={run}"]
        assert train(*SMALL, f"model={run.name}", *more).status == 0
    loaded = [load(run) for run in runs]
    whole = [dict(run.record) for run in loaded]
    loaded[1].record |= {"status": "interrupted", "curve": []}  # it goes on: its curve.csv knows
    found = learning_curves.compare(loaded)
    for k, (name, kept) in enumerate(zip(("lstm", "plstm"), whole, strict=True), 1):
        curve = [(point["step"], point["valid/accuracy"], point["valid/loss"]) for point in kept["curve"]]
        mine = [row for row in found.rows if row["run"] == name]
        assert [(row["step"], row["valid/accuracy"], row["valid/loss"]) for row in mine] == curve
        assert found.values[f"{k}/best"] == pytest.approx(kept["best"]["value"])
        assert (found.values[f"{k}/best_step"], found.values[f"{k}/last"]) == (kept["best"]["step"], curve[-1][1])
    loaded[0].record["curve"] = [*whole[0]["curve"], {"step": 5, "epoch": 2.0, "valid/loss": None}]  # it was NaN
    loaded[0].record["curve"].append({"step": 6, "epoch": 3.0, "valid/loss": math.inf, "valid/accuracy": math.nan})
    again = learning_curves.compare(loaded)
    assert again.values == found.values
    assert len(found.rows) == 8
    assert found.notes == ["no table has a printed score of such runs"]
    figure = Figure()
    found.draw(figure)
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in left.lines] == [4, 4]
    assert [line.get_label() for line in right.lines] == ["lstm (1 run)", "plstm (1 run)", "chance, 0.832"]
    loaded[1].record |= {"status": "interrupted", "curve": [], "chance": 0.5}
    (runs[1] / "curve.csv").unlink()
    paper = learning_curves.Printed("test/sequence_accuracy", 0.25, "made_up")
    loaded[1].task = SimpleNamespace(spec=replace(loaded[1].task.spec, horizon=99))
    said = {("lstm", loaded[0].task.spec.horizon): [], ("plstm", 99): [paper]}
    found = learning_curves.compare(loaded, lambda config, horizon: said[config["model"]["name"], horizon])
    assert found.values["plstm/made_up/test/sequence_accuracy"] == 0.25
    assert found.notes == ["plstm: no validation in its record or curve.csv"]
    found.draw(figure := Figure())
    first, sequences, losses = figure.axes
    assert [one.get_ylabel() for one in figure.axes] == ["valid/accuracy", "valid/sequence_accuracy", "valid/loss"]
    assert list(sequences.lines[-1].get_ydata()) == [0.25, 0.25]
    assert [len(axes.lines) for axes in (first, sequences)] == [2, 3]
    assert [line.get_label() for line in losses.lines[2:]] == ["chance, 0.5", "chance, 0.832"]
    assert study.write(found, tmp_path, "learning_curves")[1].is_file()


def test_curves_need_no_weights(train, analyse, tmp_path):
    """Records alone will do, as they lie in results/, and a run before its first checkpoint."""
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        assert train(*SMALL, f"model={run.name}", "logger=none", f"run_dir={run}").status == 0
        for path in run.glob("*.pt"):
            path.unlink()
    record.update(runs[1], status="interrupted", curve=[])
    said = analyse(*runs, "--only=learning_curves", f"--to={tmp_path / 'both'}")
    assert said.splitlines()[-1] == "  plstm: no validation in its record or curve.csv"
    assert {row["run"] for row in rows(tmp_path / "both" / "learning_curves.csv")} == {"lstm"}
    assert "best.pt is not there" in analyse(*runs, f"--to={tmp_path / 'both'}")


@pytest.mark.parametrize(("kind", "best"), [(Copy, (0.6, 20)), (Adding, (0.2, 10))])
def test_the_best_of_a_curve_is_what_the_task_selects_by(kind, best):
    task = kind(T=4, train_size=1, valid_size=1, test_size=1)
    run = run_of(SequenceModel(LSTM(task.spec.width, 3), task.spec), task, name="lstm")
    run.record["curve"] = [
        {"step": step, "epoch": step / 10, "valid/accuracy": value, "valid/loss": value}
        for step, value in ((10, 0.2), (20, 0.6), (30, 0.4))
    ]
    found = learning_curves.compare([run]).values
    assert (found["1/best"], found["1/best_step"], found["1/last"]) == (*best, 0.4)


@pytest.mark.parametrize(("folder", "runs"), [
    ("copy_T200", ["copy-plstm-s0-13403dd51704", "copy-chrono-s0-be36e84924a8", "copy-lstm-s0-8c702aa0450c"]),
    ("first_epochs/dyck2", ["dyck2-lstm-s1-d470a8dd2a69", "dyck2-mts-s1-639f486a4072"]),
])  # fmt: skip
def test_committed_curves_are_those_of_the_parked_runs(folder, runs, tmp_path):
    loaded = [load(ROOT / "results" / "parked" / run, None) for run in runs]
    path, _ = study.write(learning_curves.compare(loaded, printed.printed), tmp_path, "learning_curves")
    assert path.read_text() == (ROOT / "results" / "analysis" / folder / path.name).read_text()


@pytest.mark.parametrize(("overrides", "values"), [
    (["task=pmnist", "task.permutation=random", "model=plstm", "model.hidden_size=256", "loop.max_epochs=3", "seed=9"],
     [("test/accuracy", 0.944, "chien_table1")]),
    (["task=pmnist", "task.permutation=random", "model=plstm", "model.hidden_size=256", "task.batch_size=64"], []),
    (["task=pmnist", "task.permutation=random", "model=lstm", "model.hidden_size=256", "loop.eval_every=100",
      "loop.log_every=1", "loop.max_eval_batches=2"], [("test/accuracy", 0.913, "chien_table1")]),
    (["task=frequency", "task.sampling=async", "task.time_input=false", "model=chrono"],
     [("test/accuracy", 0.6964, "chien_table3")]),
    (["task=ptb_char", "model=lstm", "loop.max_steps=10"], [("test/bpc", 1.426, "chien_table2")]),
    (["paper=gu", "task=pmnist", "model=gated", "model.gate=ur", "optimizer.lr=5e-4", "loop.max_epochs=1"],
     [("valid/accuracy", 0.9643, "gu_table5")]),
    (["task=copy", "task.T=200", "model=plstm"], []),  # steps to 99 %: no score
])  # fmt: skip
def test_what_papers_print_of_a_configuration(overrides, values):
    with compose.composing() as composer:
        config = identity.resolved(composer(overrides))
    build.fill_horizon(config["model"], 125)  # as a run records it
    found = printed.printed(config, 125)
    assert [(one.metric, pytest.approx(one.value), one.table) for one in found] == values


def test_an_unexpected_error_of_one_question_stops_no_other(train, analyse, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert train(*SMALL, "model=plstm", "logger=none", f"run_dir={run}").status == 0

    def broken(*_):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(characteristic_times, "study", broken)
    assert analyse(run).startswith("error: characteristic_times failed (--only=NAME shows where)")
    assert (run / "analysis" / "timescale_law.png").is_file()
    with pytest.raises(RuntimeError, match="shapes"):
        analyse(run, "--only=characteristic_times")


def test_what_is_no_run_or_no_question(train, analyse, tmp_path):
    assert "has no record.json: give the directory of a run" in analyse(tmp_path)
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    assert "no such question; did you mean timescale_law? (there are " in analyse(run, "--only=timescal_law")
    assert "error: " in analyse(run, "--only=word_ablation")
    (run / "best.pt").unlink()
    (run / "last.pt").unlink()
    assert "best.pt is not there: force=true trains the run again" in analyse(run)


def test_a_run_that_goes_on_is_read_at_its_best_so_far(train, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=none", f"run_dir={run}").status == 0
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    whole = load(str(run))
    assert torch.equal(torch.randn(3), expected), "loading draws nothing from the caller's generator"
    (run / "best.pt").unlink()
    record.update(run, status="interrupted")
    found = load(run)
    for a, b in zip(found.model.parameters(), whole.model.parameters(), strict=True):
        assert (a == b).all()
    assert any((a != b).any() for a, b in zip(found.model.parameters(), found.initial.parameters(), strict=True))
    before = (run / "record.json").read_text()
    analysis.study_run(found, "timescale_law")
    with pytest.raises(ConfigError, match=r"run has not ended: let it finish, or continue it with resume=true"):
        analysis.measure_run(run, "timescale_law")  # its answer would outlive these weights
    assert (run / "record.json").read_text() == before  # the run itself may be writing it


def test_forgetting_is_asked_of_the_last_weights(train, tmp_path):
    run = tmp_path / "run"
    assert train("task=adding", "task.T=12", "task.train_size=64", "task.valid_size=16", "task.test_size=16",
                 "model=gated", "model.hidden_size=8", "loop.max_steps=6", "loop.eval_every=2", "logger=none",
                 f"run_dir={run}").status == 0  # fmt: skip
    last = load(run, "last")
    kept = torch.load(run / "last.pt", weights_only=True)
    for key, value in last.model.state_dict().items():
        assert (value.cpu() == kept["model"][key]).all()
    assert analysis.measure_run(run, "forgetting") == forgetting.measure(last.model, last.task)
    (run / "last.pt").unlink()
    with pytest.raises(ConfigError, match=r"last\.pt is not there: force=true trains the run again"):
        analysis.measure_run(run, "forgetting")


def test_the_initial_model_is_the_runs(train, tmp_path):
    run = tmp_path / "run"
    assert train(*SMALL, "model=chrono", "logger=none", f"run_dir={run}").status == 0
    started = record.read(run)["timescales"]["start"][0]
    found = load(run).initial.rnn.timescales()[0]
    assert (float(found.min()), float(found.max())) == pytest.approx((started[0], started[-1]), rel=1e-6)


def test_pictures_go_to_the_runs_page(train, analyse, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert train(*SMALL, "model=lstm", "logger=csv", f"run_dir={run}").status == 0
    shown = []
    monkeypatch.setattr(wandb_run, "pictures", lambda directory: shown.append((directory, *directory.rglob("*.png"))))
    analyse(run, "--only=timescale_law")
    assert shown == [(run, run / "analysis" / "timescale_law.png")]


# ---------------------------------------------------------------------------------------------- language models


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    texts.write_words(folder / "ptb", texts.PTB, types=30, lengths=(300, 60, 115))
    for path in (folder / "ptb").iterdir():
        path.write_text(path.read_text().replace("baa", "<unk>"))
    return folder


def words(root, **more):
    return Words(
        **{"data_root": str(root), "embedding": 5, "batch_size": 3, "length": 9, "allow_partial": True, **more}
    )


def language_model(task, kind=LSTM, hidden=(6, 7, 5), **more):
    """In float64, with weights large enough that units and words differ."""
    torch.manual_seed(0)
    arguments = {"num_layers": len(hidden), **more}
    model = AWDModel(kind(task.spec.width, list(hidden), **arguments), task.spec).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
        model.vectors.mul_(6.0)
    return model


DIRECTORIES = itertools.count()


def run_of(model, task, initial=None, name="mts"):
    config = {"task": {"name": "ptb_word", "corpus": "ptb"}, "model": {"name": name, "alpha": 0.56}, "loop": {}}
    found = {"config": config, "seed": 0, "steps": 10, "status": "finished"}
    return Run(Path(f"nowhere{next(DIRECTORIES)}"), found, model, initial or model, task)


def slow_changes(model, task, layer, units):
    """One word, one replacement, one whole rerun after the other."""
    unk, state = task.vocabulary.index("<unk>"), None
    sums, counts = [0.0] * task.length, [0] * task.length

    def held(x, state):
        after = model.rnn(F.embedding(x, model.vectors), state)[1][layer]
        return getattr(after, "c", after.h)[0, units]

    with torch.no_grad():
        for batch in task.batches("test"):
            for t in range(len(batch.x)):
                clean = held(batch.x[: t + 1], state)
                for k in range(t + 1):
                    x = batch.x[: t + 1].clone()
                    x[t - k] = unk
                    sums[k] += float((held(x, state) - clean).norm() / clean.norm())
                    counts[k] += 1
            state = model(batch, state).state
    return [total / n for total, n in zip(sums, counts, strict=True)]


@pytest.mark.parametrize(("kind", "hidden"), [(LSTM, (6, 7, 5)), (MTSLSTM, (6, 7, 5)), (PLSTM, (4, 5)), (GRU, (5,))])
def test_word_ablation_is_the_brute_force_one(root, kind, hidden):
    task = words(root)
    model = language_model(task, kind, hidden)
    some = torch.tensor([2, 0, 3])
    groups = [[torch.arange(n), some] for n in hidden]
    found = word_ablation.changes(model, task, groups)
    for layer, n in enumerate(hidden):
        assert found[layer].shape == (9, 2)
        for column, units in enumerate((torch.arange(n), some)):
            expected = torch.tensor(slow_changes(model, task, layer, units), dtype=torch.float64)
            torch.testing.assert_close(found[layer][:, column], expected, rtol=0, atol=1e-10)
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


def test_word_ablation_of_a_run(root, tmp_path):
    task = words(root)
    model = language_model(task, MTSLSTM)
    found = word_ablation.study(run_of(model, task))
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


def test_groups_are_of_neighbouring_time_scales():
    times = torch.tensor([3.0, 9.0, 1.0, 7.0, 5.0])
    assert {k: v.tolist() for k, v in common.by_timescale(times, 2, 5).items()} == {
        "1-2": [1, 3], "3-4": [4, 0], "5-5": [2],
    }  # fmt: skip
    paper = common.by_timescale(torch.arange(1150.0), 100, 1150)
    assert [len(units) for units in paper.values()] == [100] * 11 + [50]
    assert list(paper)[-1] == "1101-1150"


def test_words_are_ablated_in_language_models_of_words_alone(root):
    with pytest.raises(ConfigError, match="for language models of words, not for Copy"):
        word_ablation.unknown_word(Copy(T=5, train_size=1, valid_size=1, test_size=1))
    task = words(root)
    task.vocabulary = [word.replace("<unk>", "unk") for word in task.vocabulary]
    with pytest.raises(ConfigError, match="no <unk> to put in a word's place"):
        word_ablation.unknown_word(task)


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
    found = routing.study(run_of(model, task))
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
        routing.study(run_of(model, copy))


def test_ratios_are_of_the_silenced_model_over_the_whole_one(root):
    task = words(root)
    model = language_model(task, LSTM, (4, 46, 5))
    groups = list(common.by_timescale(model.rnn.layers[1].timescales().detach().double(), 50, 1150).values())
    whole, *silenced = routing.perplexities(model, task, 1, groups)[:, 4].tolist()
    rows = routing.study(run_of(model, task)).rows
    assert [row["ratio all words"] for row in rows] == pytest.approx([one / whole for one in silenced], rel=1e-12)


def test_the_papers_routing_is_drawn_beside_the_papers_model_alone(root, monkeypatch):
    monkeypatch.setattr(routing, "GROUP", 2)
    monkeypatch.setattr(routing, "OF", 46)  # a small layer for the paper's, with as many groups
    task = words(root)

    def drawn(size, **changes):
        model = language_model(task, MTSLSTM, (6, size, 5))
        run = run_of(model, task)
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


def test_gate_maps_are_of_the_sixth_window(root, tmp_path):
    task = words(root)
    model = language_model(task, LSTM, (46, 5))
    gates, read = gate_maps.window(model, task)
    text = task.streams["test"][:, 0]
    assert read.tolist() == text[45:54].tolist()
    assert [g.shape for g in gates] == [(9, 46), (9, 5)]
    cell, state = model.rnn.layers[0], model.rnn.layers[0].initial_state()
    with torch.no_grad():
        for t, word in enumerate(text[:54]):
            ih, hh, bias_ih, bias_hh = cell.weights()
            gx, gh = ih @ model.vectors[word] + bias_ih, hh @ state.h + bias_hh
            if t >= 45:
                expected = (gx + gh)[46:92].sigmoid()
                torch.testing.assert_close(gates[0][t - 45], expected, rtol=0, atol=1e-12)
            state = cell.step(gx, gh, state)
    found = gate_maps.study(run_of(model, task))
    assert [row["layer"] for row in found.rows] == [1] * 46 + [2] * 5
    means = [row["mean"] for row in found.rows if row["layer"] == 1]
    assert means == sorted(means)
    torch.testing.assert_close(torch.tensor(means).double(), gates[0].mean(0).sort().values, rtol=0, atol=1e-6)
    assert found.values["layer1/above_0.9"] == float((gates[0].mean(0) > 0.9).double().mean())
    assert study.write(found, tmp_path, "gate_maps")[1].stat().st_size < 200_000


def test_gate_maps_average_ten_of_the_papers_units(root):
    task = words(root)
    model = language_model(task, LSTM, (230, 5))
    rows = gate_maps.study(run_of(model, task)).rows
    times = model.rnn.layers[0].timescales().detach().double()
    assert [row["units"] for row in rows] == [2] * 115 + [2, 2, 1]  # as many in each layer, whatever its own size
    gates, _ = gate_maps.window(model, task)
    order = gates[0].mean(0).argsort(stable=True)
    assert rows[3]["step 4"] == pytest.approx(float(gates[0][3, order[6:8]].mean()))
    assert rows[3]["median_timescale"] == pytest.approx(float(times[order[6:8]].median()))


def test_gates_above_nine_tenths_are_counted_by_their_means(root):
    task = words(root)
    model = language_model(task, LSTM, (46, 5))
    with torch.no_grad():
        for cell in model.rnn.layers:
            cell.weight_ih *= 10.0
            cell.set_bias("forget", torch.full((cell.hidden_size,), 2.2))  # a gate of .9
    gates, _ = gate_maps.window(model, task)
    found = gate_maps.study(run_of(model, task))
    share = float((gates[0].mean(0) > 0.9).double().mean())
    assert found.values["layer1/above_0.9"] == share
    assert 0.0 < share < float((gates[0] > 0.9).double().mean())


@pytest.mark.parametrize("name", ["characters", "frequency", "adding"])
def test_gate_maps_read_the_first_test_sequence(tmp_path, name):
    """Of a text whose segments each begin anew, its first; of what is drawn in batches, that of evaluation's batch."""
    texts.write_words(tmp_path / "ptb", texts.PTB)
    sizes = {"train_size": 1, "valid_size": 1, "test_size": 3}
    task = {
        "characters": lambda: Characters(data_root=str(tmp_path), length=20, state="reset", allow_partial=True,
                                         batch_size=4),
        "frequency": lambda: Frequency(**sizes, sampling="async"),
        "adding": lambda: Adding(T=20, **sizes),
    }[name]()  # fmt: skip
    torch.manual_seed(0)
    model = SequenceModel(LSTM(task.spec.width, 5), task.spec).eval()
    batch = next(iter(task.batches("test")))
    gates, read = gate_maps.window(model, task)
    exists = task.exists(batch)[:, 0]
    torch.testing.assert_close(read, batch.x[exists, 0], rtol=0, atol=0)
    seen = []
    with common.watched(model, lambda layer, act: seen.append(act.forget[0].detach().double())):
        model(batch)
    torch.testing.assert_close(gates[0], torch.stack(seen)[exists], rtol=0, atol=1e-6)


@pytest.mark.parametrize("pad", ["end", "front"])
def test_padding_of_reviews_is_no_text(tmp_path, monkeypatch, pad):
    """The model reads it, up to the last step; questions of the text leave it out."""
    synthetic.stand_alone(monkeypatch, tmp_path)
    synthetic.write_corpora(tmp_path)
    task = IMDB(data_root=str(tmp_path), allow_partial=True, steps=50, valid_size=40, pad=pad)
    torch.manual_seed(0)
    model = SequenceModel(LSTM(task.spec.width, 5), task.spec).eval()
    lengths = task.lengths["test"].tolist()
    (batch,) = task.batches("test")
    assert batch.mask is None
    assert task.exists(batch).sum(0).tolist() == lengths
    read = task.words(batch.x[task.exists(batch)[:, 0], 0])
    assert len(read) == lengths[0]
    assert not {"<pad>"} & set(read)
    whole = [text.split() for label in (0, 1) for text in synthetic.reviews("test", label, 25)]
    assert read in [[word if word in task.vocabulary else "<unk>" for word in text] for text in whole]
    gates, tokens = gate_maps.window(model, task)
    assert len(gates[0]) == len(tokens) == lengths[0]
    assert len(gate_maps.study(run_of(model, task)).rows) == 5
    assert [len(left.logs) for left in decay_curves.kept(model, task)] == [1 + max(lengths)]
    seen = []
    with common.watched(model, lambda layer, act: seen.append(act.forget.detach().double())):
        model(batch)
    expected = torch.stack(seen)[task.exists(batch)].mean(0)
    torch.testing.assert_close(common.mean_forget(model, task)[0], expected)


# ---------------------------------------------------------------------------------------------- time scales


def test_assigned_and_estimated_agree_where_gates_are_held(tmp_path):
    """No weights into the forget gate: its mean is the sigmoid of the bias, which is the law's."""
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    model = SequenceModel(LSTM(10, 30, forget_init={"law": "inverse_gamma", "alpha": 1.0}), task.spec).double().eval()
    cell = model.rnn.layers[0]
    with torch.no_grad():
        for weight in (cell.weight_ih, cell.weight_hh):
            weight[cell.rows("forget")] = 0.0
    run = run_of(model, task, name="lstm")
    found = assigned.study(run)
    times = InverseGamma(1.0).timescales(30).tolist()
    assert [row["assigned"] for row in found.rows] == pytest.approx(times, rel=1e-4)
    assert [row["estimated"] for row in found.rows] == pytest.approx(times, rel=1e-4)
    assert found.values["layer1/spearman"] == pytest.approx(1.0)
    assert found.values["layer1/pearson_log"] == pytest.approx(1.0)
    assert found.values["layer1/assigned_below_20"] == pytest.approx(29 / 30)  # the longest is 30.5 steps
    assert study.write(found, tmp_path, "assigned")[1].is_file()


def test_assigned_is_what_the_biases_said_before_training():
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)

    def held(alpha):
        torch.manual_seed(0)
        law = {"law": "inverse_gamma", "alpha": alpha}
        model = SequenceModel(LSTM(10, 30, forget_init=law), task.spec).double().eval()
        cell = model.rnn.layers[0]
        with torch.no_grad():
            for weight in (cell.weight_ih, cell.weight_hh):
                weight[cell.rows("forget")] = 0.0
        return model

    model = held(1.5)
    found = assigned.study(run_of(model, task, held(0.5), name="lstm"))
    for name, alpha in (("assigned", 0.5), ("estimated", 1.5)):
        times = InverseGamma(alpha).timescales(30)
        assert [row[name] for row in found.rows] == pytest.approx(times.tolist(), rel=1e-4)
        assert found.values[f"layer1/{name}_median"] == pytest.approx(times.median().item(), rel=1e-4)
    below = (InverseGamma(0.5).timescales(30) < 20).double().mean().item()
    assert found.values["layer1/assigned_below_20"] == pytest.approx(below)
    assert 0.5 < below < 0.9


def test_the_runs_own_law_is_the_one_it_was_given(tmp_path):
    """At the layer's own scale and quantiles, of which the authors' end with a unit that never remembers."""
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    model = SequenceModel(MTSLSTM(10, 9, alpha=0.56, scale=2.0, quantiles="authors"), task.spec).double().eval()
    run = run_of(model, task)
    run.config["model"].update(scale=2.0, quantiles="authors")
    figure = Figure()
    assigned.study(run).draw(figure)
    curves = {line.get_label(): line.get_ydata() for line in figure.axes[-1].get_lines()}
    assert len(curves) == len(assigned.ALPHAS)
    for alpha in (0.56, 1.0):
        times = stats.invgamma(alpha, scale=2.0).isf([k / 9 for k in range(1, 9)])
        assert curves[f"alpha {alpha}"][:-1] == pytest.approx(times, rel=1e-4)
        assert math.isnan(curves[f"alpha {alpha}"][-1])


@pytest.mark.parametrize("module", [timescale_law, word_ablation])
def test_four_runs_of_one_model_are_told_apart(root, module):
    task = words(root)
    model = language_model(task, LSTM, (6, 5))
    figure = Figure()
    module.compare([run_of(model, task, name="lstm") for _ in range(4)]).draw(figure)
    for one in figure.axes:
        assert all(line.get_linewidth() > 0 for line in one.get_lines())
        looks = {}  # by what is drawn: the runs have the same words
        for line in one.get_lines():
            if "lstm, seed 0" in line.get_label():
                looks.setdefault(line.get_label(), set()).add((line.get_linewidth(), line.get_marker()))
        assert looks
        assert all(len(found) == 4 for found in looks.values())


def test_correlations_are_scipys():
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 8, (50,), generator=generator).double()
    b = a + torch.randint(0, 5, (50,), generator=generator)
    assert assigned.correlation(assigned.ranks(a), assigned.ranks(b)) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert assigned.correlation(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
    assert assigned.ranks(torch.tensor([3.0, 1.0, 3.0, math.inf])).tolist() == [2.5, 1.0, 2.5, 4.0]
    assert math.isnan(assigned.correlation(torch.ones(3), b[:3]))
    assert math.isnan(assigned.correlation(b[:1], b[:1]))


def test_models_without_forget_gates_are_refused():
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    model = SequenceModel(ExpRNN(10, 4), task.spec)
    run = run_of(model, task, name="exprnn")
    for name in ("assigned", "timescale_law", "gate_maps"):
        with pytest.raises(ConfigError, match="has no forget gate"):
            importlib.import_module(f"timescales.analysis.{name}").study(run)


def test_characteristic_times_before_and_after(tmp_path):
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    initial = SequenceModel(LSTM(10, 4, forget_init=1.0), task.spec)
    model = SequenceModel(LSTM(10, 4, forget_init={"law": "assigned", "timescales": [3.0, 40.0]}), task.spec)
    with torch.no_grad():
        initial.rnn.layers[0].bias_ih.zero_()
        model.rnn.layers[0].bias_ih.zero_()
    run = run_of(model, task, initial, name="lstm")
    found = characteristic_times.study(run)
    began = -1 / math.log(1 / (1 + math.exp(-1.0)))
    assert [row["initial"] for row in found.rows] == pytest.approx([began] * 4, rel=1e-5)
    assert [row["trained"] for row in found.rows] == pytest.approx([3.0, 3.0, 40.0, 40.0], rel=1e-5)
    assert found.values["trained/q90"] == pytest.approx(40.0, rel=1e-5)
    endless = SequenceModel(ExpRNN(10, 4), task.spec)
    both = characteristic_times.compare([run, run_of(endless, task, name="exprnn")])
    assert [row["model"] for row in both.rows] == ["lstm"] * 4 + ["exprnn"] * 4
    assert both.values["2/trained/median"] == math.inf
    figure = Figure()
    other = run_of(model, task, initial, name="lstm")
    other.record["config"]["model"]["alpha"] = 2
    characteristic_times.draw(figure, [run, other, run_of(endless, task, name="exprnn")])
    (one,) = figure.axes
    lines = {line.get_label(): line.get_linestyle() for line in one.get_lines() if line.get_label()[0] != "_"}
    assert [name for name in lines if "run" in name] == [
        "lstm, alpha=0.56 (1 run)", "lstm, alpha=2 (1 run)", "exprnn (1 run) (infinite)"
    ]  # fmt: skip
    assert lines["lstm, alpha=0.56 (1 run)"] != lines["lstm, alpha=2 (1 run)"]
    assert "the task's horizon" in one.texts[0].get_text()
    assert study.write(both, tmp_path, "characteristic_times")[1].is_file()


# ---------------------------------------------------------------------------------------------- mutual information


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
    assert found == pytest.approx({"exponent": 0.7, "factor": 2.0, "reach": 1000.0})
    assert mutual_information.power_law(rows, 2.0 * 25.0**-0.7)["reach"] == 22.0
    assert math.isnan(mutual_information.power_law(rows, 5.0)["exponent"])
    assert mutual_information.distances(100) == list(range(1, 11))
    assert mutual_information.distances(100_000)[8:14] == [9, 10, 12, 15, 18, 22]


def test_mutual_information_of_a_run(root, tmp_path):
    task = words(root)
    model = language_model(task, LSTM, (5,))
    found = mutual_information.study(run_of(model, task))
    assert [row["distance"] for row in found.rows] == mutual_information.distances(task.size("train"))
    assert all(row["rest"] == row["bits"] - row["shuffled"] for row in found.rows)
    assert study.write(found, tmp_path, "mutual_information")[1].is_file()
    assert found.rows == mutual_information.study(run_of(model, task)).rows


def test_pictures_say_which_corpus_where_the_task_does_not(root):
    task = words(root)
    run = run_of(language_model(task), task)
    assert run.title == "ptb_word, mts, seed 0, 10 steps"
    run.record["config"]["task"]["corpus"] = "markov_ptb"
    assert run.title == "ptb_word (markov_ptb), mts, seed 0, 10 steps"


def test_what_was_measured_of_these_weights_before_is_taken(root, tmp_path):
    task = words(root)
    run = run_of(language_model(task), task)
    run.directory = tmp_path
    assert run.earlier("word_ablation") is None
    found = word_ablation.study(run)
    study.write(found, tmp_path / "analysis", "word_ablation")
    assert run.earlier("word_ablation") is None  # there are no weights it could be of
    (tmp_path / "best.pt").touch()
    os.utime(tmp_path / "best.pt", (0, 0))
    assert run.earlier("word_ablation") == found.rows
    os.utime(tmp_path / "best.pt", (2**33, 2**33))
    assert run.earlier("word_ablation") is None  # of other weights than these
    os.utime(tmp_path / "best.pt", (0, 0))
    os.utime(tmp_path / "analysis" / "word_ablation.csv", (9, 9))
    assert run.earlier("word_ablation") is None  # newer than the weights, older than the question
    os.utime(tmp_path / "analysis" / "word_ablation.csv")
    both = word_ablation.compare([run, run])
    assert len(both.rows) == 2 * len(found.rows)
    assert both.values["2/layer1/left_1"] == found.values["layer1/left_1"]
