"""Which cases `make test` runs (tests/support/everyday.py), and that the parts of the others are all of them."""

import argparse
import itertools
from types import SimpleNamespace

import everyday
import pytest


class Case:
    """A case of a test, as pytest collects it."""

    def __init__(self, number, params, *covering):
        self.nodeid, self.marks = f"tests/test_x.py::test_x[{number}]", {"covering": pytest.mark.covering(*covering)}
        self.callspec = SimpleNamespace(params=params)

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, name):
        self.marks[name] = name


def collected(cases, part=None):
    """The cases that are left, and those of them that are marked full."""
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    everyday.pytest_collection_modifyitems(SimpleNamespace(option=SimpleNamespace(part=part), hook=hook), cases)
    return cases, [case for case in cases if case.get_closest_marker("full")]


def product(*covering):
    values = itertools.product("abcdef", (1, True, 2.5, [3]), ("x", "y"))
    return [Case(k, {"n": n, "m": m, "o": o}, *covering) for k, (n, m, o) in enumerate(values)]


def kept(*covering):
    cases, full = collected(product(*covering))
    return [case.callspec.params for case in cases if case not in full]


def test_every_value_occurs_in_few_cases():
    few = kept()
    assert 6 <= len(few) <= 8  # of 48
    for name, values in {"n": [*"abcdef"], "m": ["1", "2.5", "True", "[3]"], "o": ["x", "y"]}.items():
        assert sorted({str(case[name]) for case in few}) == values


def test_every_pair_occurs_where_it_is_asked_for():
    few = kept("n,m", "o")
    assert len(few) == 24
    assert len({(case["n"], str(case["m"])) for case in few}) == 24
    assert {case["o"] for case in few} == {"x", "y"}


def test_an_attribute_is_a_value():
    layers = [SimpleNamespace(column=column, name=name) for column in ("fast", "slow") for name in "pqrs"]
    cases = [
        Case(f"{use}{k}", {"use": use, "layer": one}, "use,layer.column")
        for use in "ab"
        for k, one in enumerate(layers)
    ]
    cases, full = collected(cases)
    few = [case.callspec.params for case in cases if case not in full]
    assert sorted((case["use"], case["layer"].column) for case in few) == [*itertools.product("ab", ("fast", "slow"))]


def test_a_case_that_is_full_is_not_chosen():
    cases = product()
    for case in cases[:40]:
        case.add_marker("full")
    _, full = collected(cases)
    assert set(cases[:40]) < set(full)
    assert {case.callspec.params["n"] for case in cases if case not in full} == {"f"}


def test_the_parts_are_all_that_make_test_leaves_out_each_once():
    _, full = collected(product())
    names = sorted(case.nodeid for case in full)
    parts = [collected(product(), (k, 3))[0] for k in (1, 2, 3)]
    assert sorted(case.nodeid for part in parts for case in part) == names
    assert all(parts)


def test_a_part_is_k_of_n():
    assert everyday.part("2/3") == (2, 3)
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=everyday.part)
    for wrong in ("0/3", "4/3", "2", "a/b"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--part", wrong])


def test_a_name_that_is_no_parameter_is_an_error():
    with pytest.raises(pytest.UsageError, match=r"test_x.*'k'.*the parameters are n, m, o"):
        collected(product("n,k"))
