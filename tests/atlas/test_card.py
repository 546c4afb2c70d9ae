"""Check `timescales-card`: a gate of ten lines from its file to its card; what is wrong with a cell is one line."""

import math
import re
import sys
import types

import pytest
import torch

import timescales
from timescales import commands, paths
from timescales.atlas import card, measures, own, pictures, scores
from timescales.atlas.inference import Interval
from timescales.atlas.own import OwnLayers
from timescales.atlas.scores import Score
from timescales.atlas.trial import Trial, progress
from timescales.errors import ConfigError


def committed(small):
    """Scores of two cells on all rungs and seeds of the small atlas."""
    return [
        Score(cell, rung, seed, chance + (best - chance) * level, 1000)
        for cell, level in (("lstm", 0.9), ("gru", 0.05))
        for rung, (chance, best) in {r.name: (r.chance, r.best) for r in small.rungs.values()}.items()
        for seed in small.seeds
    ]


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_gate_of_ten_lines_has_a_card(small, mine, monkeypatch, quick):
    monkeypatch.setattr(scores, "committed", lambda: committed(small))
    trial = Trial("mine.py:DecayCell", {}, mine / "card", quick, small)
    trial.train()
    page, picture, table = card.write(trial)
    text = page.read_text()
    assert picture.stat().st_size > 5_000
    assert text.startswith(f"# DecayCell\n\n`timescales-card mine.py:DecayCell{' --quick' * quick}`")
    assert "| torch.nn.LSTM | " in text
    assert "Engine: fused." in text
    assert f"two residual blocks of {trial.runs['keep'].config['model']['hidden_size']} units, learning rate" in text
    assert "| score of each seed | lstm, mean | metric | chance | best | settings |" in text
    (keep,) = (line.split(" | ") for line in text.splitlines() if line.startswith("| hold | keep | "))
    values = [score.value for score in trial.found if score.rung == "keep"]
    assert keep[4:7] == [f"`test/accuracy` {' '.join(f'{value:.3g}' for value in values)}", "0.25", "1"]
    assert "T_1/e cannot be measured: DecayCell has no class Act" in text
    rungs = ["keep"] if quick else ["keep", "same", "slower"]
    assert [rung.name for rung in trial.rungs] == rungs
    assert len(table.read_text().splitlines()) == 1 + len(rungs) * (1 if quick else 2)
    if quick:
        assert "one seed. It allows no statement on who is better" in text
        assert re.findall("higher|lower|best committed", text.split("What the card does not say")[0]) == []
        assert re.findall(r"^\| (gru|lstm) \| [+-]", text, re.M) == ["gru", "lstm"]  # by name, not by score
        assert trial.rate == small.rate
    else:
        assert "chosen from three on another seed" in text
        assert "[" in text.split("## Abilities")[1].split("##")[0]
        assert "| best committed cell |" in text
        assert re.findall(r"^\| (gru|lstm) \| [+-]", text, re.M) == ["lstm", "gru"]  # the best first
    ended = {path: path.stat().st_mtime_ns for path in (mine / "card" / "runs").glob("*/record.json")}
    assert len(ended) == (1 if quick else 7)
    again = Trial("mine.py:DecayCell", {}, mine / "card", quick, small)
    again.train()
    assert again.found == trial.found
    assert {path: path.stat().st_mtime_ns for path in ended} == ended


def test_without_committed_scores_a_card_says_so(small):
    trial = types.SimpleNamespace(quick=True, atlas=small, rungs=small.rungs)
    head, _, row, *note = card.abilities(trial, None, {"hold": Interval(0.5, None, None)}, None, {})
    assert head == "| ability | what it is | score |"  # no columns without numbers
    assert row.startswith("| hold |")
    assert note[-1].startswith("No scores are committed yet")
    assert "`timescales-card timescales.LSTM --quick` makes the LSTM's card." in note[-1]
    assert card.beside(trial, None, None, {}) == ["No scores are committed yet."]


def test_a_cell_that_diverges_has_a_card(small, mine):
    grows = (mine / "mine.py").read_text().replace("softplus(rate) * dt", "softplus(rate) * -50")
    (mine / "mine.py").write_text(grows)
    trial = Trial("mine.py:DecayCell", {}, mine / "card", True, small)
    trial.train()
    assert trial.found[0].value is None
    text = card.write(trial)[0].read_text()
    assert "T_1/e cannot be measured: the cell diverged before its first validation." in text
    assert "| hold | keep | .00 |" in text


def test_what_the_time_did_not_allow_is_named_and_continues(small, mine):
    trial = Trial("mine.py:DecayCell", {}, mine / "card", True, small, minutes=1e-4)
    trial.train()
    assert trial.missing == {"keep": "not ended within 0.0001 minutes: the same command continues"}
    with pytest.raises(ConfigError, match=r"no test has ended: not ended within 0\.0001 minutes: the same command"):
        card.write(trial)
    later = Trial("mine.py:DecayCell", {}, mine / "card", True, small)
    later.train()
    assert later.missing == {}
    assert [score.rung for score in later.found] == ["keep"]


@pytest.mark.parametrize(
    ("cap", "elapsed", "done", "left"),
    [(10.0, 100.0, 5, "08:20"), (10.0, 100.0, 50, "01:40"), (None, 100.0, 5, "31:40"), (10.0, 30.0, 0, "09:30")],
)
def test_the_time_that_is_left_is_no_more_than_the_cap_allows(monkeypatch, cap, elapsed, done, left):
    with progress(100, "mine", cap) as bar:
        bar.n = done
        monkeypatch.setattr(bar, "_time", lambda: bar.start_t + elapsed)
        assert f"{left} left" in str(bar)


STEP = """\
import torch
from typing import NamedTuple
from timescales import Cell
class MyCell(Cell):
    gates = ("a",)
    compiled = False
    class State(NamedTuple):
        h: torch.Tensor
    def step(self, gx, gh, state, dt=1.0):
        return self.State("""
BROKEN = {
    "SyntaxError: invalid syntax (broken.py, line 2)": "import torch\ndef = 3\n",
    "ModuleNotFoundError: No module named 'not_there'": "import not_there\n",
    "broken.py has no MyCell; did you mean MyCells?": "class MyCells: pass\n",
    "is neither a timescales.Cell nor a timescales.RNN": "import torch\nclass MyCell(torch.nn.LSTM): pass\n",
    "cannot be built: TypeError": "from timescales import Cell\nclass MyCell(Cell):\n    def __init__(self): pass\n",
    "RuntimeError: The size of tensor a (8) must match the size of tensor b (3)": STEP + "gx + gh + torch.ones(3))\n",
    "no gradient reaches its parameters": STEP + "(gx + gh).detach())\n",
}


@pytest.mark.parametrize("line", BROKEN)
def test_what_is_wrong_with_a_cell_is_one_line(mine, monkeypatch, line):
    (mine / "broken.py").write_text(BROKEN[line])
    said = called(monkeypatch, "broken.py:MyCell", "--quick")
    assert said.startswith("error: broken.py")
    assert line in said
    assert "\n" not in said
    for name in [name for name in sys.modules if name.startswith("timescales_own_")]:
        del sys.modules[name]


def called(monkeypatch, *arguments):
    """What `timescales-card` ends with."""
    monkeypatch.setattr(sys, "argv", ["timescales-card", *arguments])
    with pytest.raises(SystemExit) as leaving:
        commands.card()
    return str(leaving.value.code)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["mine"], "give a file and a class, mine.py:MyCell"),
        (["mine.py"], "error: mine.py: name the class in the file too: mine.py:MyCell"),
        (["nowhere.py:MyCell"], "nowhere.py cannot be imported: there is no such file"),
        (["mine.py:DecayCell", "3"], "3: arguments of the class are given as key=value"),
        (["timescales.PLSTM", "eps=3"], "cannot be built"),
    ],
)
def test_a_wrong_command_is_one_line(mine, monkeypatch, arguments, line):
    said = called(monkeypatch, *arguments)
    assert line in said
    assert "\n" not in said
    assert [path.name for path in mine.iterdir() if path.name != "__pycache__"] == ["mine.py"]


def test_layers_are_those_of_the_class(mine):
    layers = own.OwnLayers(3, 5, 2, source="mine.py:DecayCell")
    torch.manual_seed(0)
    direct = timescales.RNN([own.load("mine.py:DecayCell")(3, 5), own.load("mine.py:DecayCell")(5, 5)])
    direct.load_state_dict(layers.state_dict())
    x = torch.randn(7, 2, 3)
    assert torch.equal(layers(x)[0], direct(x)[0])
    assert layers.timescales() == []
    power = own.OwnLayers(3, 5, 2, source="timescales.PLSTM", arguments={"power": 0.5})
    assert [type(cell).__name__ for cell in power.layers] == ["PLSTMCell", "PLSTMCell"]
    assert len(power.timescales()) == 2
    assert (len(own.digest("mine.py:DecayCell")), own.digest("timescales.PLSTM")) == (8, "")


def test_memory_for_backward_is_counted_without_the_parameters():
    """Of a product: its input, (S, B, I); torch keeps the weights, too, which are no memory of the call."""

    class Product(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x), None

    found = measures.cost(Product(6, 4), 6)
    assert found.saved == 4 * measures.STEPS * measures.BATCH * 6
    assert found.seconds > 0


def test_times_of_units_are_in_steps_or_longer_than_the_sequences(tmp_path, monkeypatch):
    (tmp_path / "best.pt").touch()
    monkeypatch.setattr(card.analysis, "load", lambda directory: types.SimpleNamespace(model=None, task=None))
    monkeypatch.setattr(card, "one_over_e", lambda *_: [torch.tensor([2.5, 2.5, 4.25]), torch.full((2,), math.inf)])
    trial = types.SimpleNamespace(runs={"keep": types.SimpleNamespace(directory=tmp_path)})
    assert card.memory(trial)[-1] == "| keep | 2.5 | 4.25 | longer than the sequences | 40 % |"


def test_words_go_no_further_than_intervals():
    intervals = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.2, -0.1, 0.5), (0.2, None, None)
    words = [card.word(Interval(*interval)) for interval in intervals]
    assert words == ["higher", "lower", "not shown to differ", ""]
    assert card.in_words(Interval(-0.2, -0.3, 0.05), sign=True) == "-.20 [-.30, +.05]"
    assert card.in_words(Interval(1.0, None, None)) == "1.00"
    assert pictures.two_digits(0.934) == ".93"
    with pytest.raises(ConfigError, match="give a file and a class"):
        own.load("MyCell")


# --- The gates of docs/cards -----------------------------------------------------------------------------------------
GATES = sorted((paths.ROOT / "docs" / "cards").glob("*/*.py"))


@pytest.mark.parametrize("path", GATES, ids=lambda path: path.stem)
def test_a_gate_is_compiled_and_has_the_numbers_of_the_eager_engine(path):
    torch.manual_seed(0)
    x, dt = torch.randn(12, 3, 4), 0.5 + torch.rand(12, 3)
    name = re.search(r"^class (\w+)\(Cell\)", path.read_text(), re.MULTILINE)[1]
    made = {engine: OwnLayers(4, 8, source=f"{path}:{name}", engine=engine) for engine in ("fused", "eager")}
    made["eager"].load_state_dict(made["fused"].state_dict())
    found = {}
    for name, layers in made.items():
        output = layers(x, dt=dt)[0]
        output.square().sum().backward()
        found[name] = [output.detach(), *(p.grad for p in layers.parameters())]
    for fused, eager in zip(found["fused"], found["eager"], strict=True):
        torch.testing.assert_close(fused, eager, rtol=1e-4, atol=1e-5)
    assert all(torch.isfinite(value).all() for value in found["eager"])
