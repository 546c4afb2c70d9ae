"""One renderer writes expressions in every language, from tables of operations."""

import math

import pytest

from timescales.nn.engine import render
from timescales.nn.engine.cpu.emit_cpp import CPP
from timescales.nn.engine.scalar import Expressions
from timescales.nn.explain import TEXT


def test_both_languages_have_the_same_operations():
    assert {*CPP.operations, "mean"} == {*TEXT.operations}  # a kernel has its means before


@pytest.fixture
def inputs():
    expressions = Expressions()
    return {expressions.input("state", k): name for k, name in enumerate("pqr")}


def test_parentheses_only_where_an_operation_needs_them(inputs):
    p, q, r = inputs
    shown = {
        p * (q + r): "p * (q + r)",
        (p + q) + r: "(p + q) + r",
        -(p + q): "-(p + q)",
        p - (-q).apply("exp"): "p - exp(-q)",
        (p + q).apply("exp"): "exp(p + q)",
        (p * q).apply("max", q + 1.0): "max(p * q, q + 1.0)",
        p.apply("gt", 0).apply("select", p / q, 2.0): "select(p > 0.0, p / q, 2.0)",
    }
    for node, text in shown.items():
        assert TEXT.expression(node, inputs) == text


def test_a_number_is_a_vector_where_the_language_needs_one(inputs):
    p = next(iter(inputs))
    one, zero = p.expressions.node(1.0), p.expressions.node(0.0)
    nodes = [p + 2.0, p.apply("gt", 2.0), p.apply("pow", 1.5), p.expressions("div", one, zero)]
    assert [CPP.expression(node, inputs) for node in nodes] == [
        "p + 2.0f",
        "p > spread_vec(2.0f)",
        "power(p, spread_vec(1.5f))",
        "spread_vec(1.0f) / 0.0f",
    ]


def test_numbers_of_each_language():
    values = (0.1, 3.0, 1e-40, math.inf, -math.inf, math.nan)
    assert [CPP.number(value) for value in values] == [
        *("0.1f", "3.0f", "1e-40f"),
        *("__builtin_inff()", "-__builtin_inff()", '__builtin_nanf("")'),
    ]


def test_both_sigmoids_are_one_statement(inputs):
    p, q, _ = inputs
    s = (p + q).apply("sigmoid")
    results = [s * q, 1.0 - s, p.apply("gt", q).apply("and", q.apply("gt", 0.0)).apply("select", p, q)]
    assert render.statements(CPP, results, inputs, ["a", "b", "c"]) == [
        "Vec v3 = p + q;",
        "Vec v4, v5;",
        "both_sigmoids(v3, v4, v5);",
        "Vec v6 = v4 * q;",
        "Mask v7 = p > q;",
        "Mask v8 = q > spread_vec(0.0f);",
        "Mask v9 = v7 & v8;",
        "Vec v10 = select(v9, p, q);",
        "a = v6;",
        "b = v5;",
        "c = v10;",
    ]


def test_equations_name_what_is_used_twice(inputs):
    p, q, _ = inputs
    shared = p * q
    results = [shared + p, shared - q, q, q.expressions.node(2.0)]
    assert render.equations(TEXT, results, inputs, ["p'", "q'", "r'", "s'"]) == [
        "a1 = p * q",
        "p' = a1 + p",
        "q' = a1 - q",
        "r' = q",
        "s' = 2.0",
    ]
