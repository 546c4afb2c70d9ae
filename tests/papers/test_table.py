"""Tables as data: which runs they ask for, and what they read of them."""

import made_up
import pytest
from made_up import made_row

from timescales.config import compose
from timescales.config.run import run_of
from timescales.papers import load
from timescales.papers.parse import parse
from timescales.papers.table import expand
from timescales.runs import metrics
from timescales.runs.record import Record

NODE = made_up.TABLE | {
    "name": "t",
    "runs": [
        {"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1]},
        {"task": "smnist", "model": "lstm", "seed": 0},
    ],
}
TABLE = parse(NODE)


def test_a_table_is_the_union_of_its_grids():
    runs = expand(TABLE)
    assert runs == [
        {"task": "copy", "model": "lstm", "seed": 0},
        {"task": "copy", "model": "lstm", "seed": 1},
        {"task": "copy", "model": "plstm", "seed": 0},
        {"task": "copy", "model": "plstm", "seed": 1},
        {"task": "smnist", "model": "lstm", "seed": 0},
    ]
    given = load.request(runs[3])
    assert given == ["task=copy", "model=plstm", "seed=1"]


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        ({"model": ["plstm"]}, [("copy", "plstm", 0), ("copy", "plstm", 1)]),  # the second grid has no plstm
        ({"seed": [1]}, [("copy", "lstm", 1), ("copy", "plstm", 1)]),
        ({"task": ["smnist"]}, [("smnist", "lstm", 0)]),
        ({"task": ["smnist"], "model": ["lstm"], "seed": [0]}, [("smnist", "lstm", 0)]),
        ({"seed": [7]}, [("copy", "lstm", 7), ("copy", "plstm", 7), ("smnist", "lstm", 7)]),  # beyond the table
        ({"seed": [7, 1], "model": ["lstm"]}, [("copy", "lstm", 7), ("copy", "lstm", 1), ("smnist", "lstm", 7)]),
        ({"loop.max_steps": [3], "seed": [0]}, [("copy", "lstm", 0), ("copy", "plstm", 0), ("smnist", "lstm", 0)]),
    ],
)
def test_narrowing(narrow, expected):
    runs = expand(TABLE, "paper", narrow)
    assert [(r["task"], r["model"], r["seed"]) for r in runs] == expected
    assert all(r.get("loop.max_steps") == (3 if "loop.max_steps" in narrow else None) for r in runs)


def test_runs_of_a_table_are_the_runs_of_the_plain_command():
    """So a run is shared by every table that asks for it, and by who trained it by hand."""
    with compose.composing() as composer:
        table = load.table("chien_table3")
        (axes,) = expand(
            table,
            "paper",
            {
                "seed": [2],
                "model": ["plstm"],
                "task.sampling": ["async"],
                "task.time_input": [False],
                "task.negatives": ["log_uniform"],
            },
        )
        by_hand = composer(["model=plstm", "task=frequency", "seed=2"])
        assert run_of(composer(load.request(axes))).name == run_of(by_hand).name


@pytest.mark.parametrize(("sign", "counts"), [("<", "n.."), ("<=", "nn."), (">", "..n"), (">=", ".nn")])
def test_each_sign_of_a_condition_means_itself(sign, counts):
    """Below, at and above the threshold; n: it holds there."""
    table = parse(NODE | {"success": f"valid/loss {sign} 0.5", "select": "best"})
    curve = [{"step": 1, "epoch": 1.0, "valid/accuracy": 0.25}, {"step": 2, "epoch": 2.0}]
    found = Record(id="a", status="finished", curve=curve, steps=4)
    for value, means in zip((0.4, 0.5, 0.6), counts, strict=True):
        assert table.succeeded(made_row({"best valid/loss": value})) is (means == "n")
        found.curve[1]["valid/loss"] = value
        steps = metrics.metric(found, f"steps to valid/loss {sign} 0.5")
        assert str(steps) == ("2" if means == "n" else ">4")
    for wrong in ("valid/loss", "valid/loss = 1", "valid/loss > 1.2.3", "valid/loss > 1 2"):
        with pytest.raises((ValueError, KeyError)):
            metrics.threshold(wrong)
