"""Configurations composed without Hydra's command line, and their identities."""

import pytest

from timescales.config import compose, identity, schema, values
from timescales.config.run import run_of


@pytest.mark.parametrize(
    "value",
    [
        1,
        1.5,
        1e-05,
        -3,
        True,
        None,
        "ur",
        "-",
        "a b",
        "it's",
        "a,b",
        "null",
        "1.5",
        "",
        [1150, 1150, 400],
        [[1], []],
        {"law": "chrono", "T_max": 750},
        "a\\",
        "ünï",
        "$x",
        "a=b",
    ],
)
def test_a_value_survives_being_spelled_as_an_override(value):
    with compose.composing() as composer:
        assert composer.parse(f"task.name={values.spell(value)}").value() == value


def test_kind_is_the_identity_without_what_costs_nothing():
    with compose.composing() as composer:
        one, two, longer = (
            run_of(composer(["task=copy", *more]))
            for more in (["seed=1", "optimizer.lr=1"], ["seed=2", "optimizer.lr=2"], ["task.T=6"])
        )
    assert one.cost_key == two.cost_key != longer.cost_key
    assert (one.seed, one.config["optimizer"]["lr"]) == (1, 1)


def test_what_may_change_a_number_changes_the_identity():
    plain = {"task": {}, "loop": {}}
    for key in vars(schema.LoopSettings()):
        same = identity.identity(plain | {"loop": {key: 7}}) == identity.identity(plain)
        assert same is (key in ("checkpoint_every", "log_one_over_e")), key
    for key, value in {"seed": 1, "precision": "tf32", "deterministic": True, "paper": {"name": "gu"}}.items():
        assert identity.identity(plain | {key: value}) != identity.identity(plain), key
