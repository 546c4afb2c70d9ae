"""Which cases of a test `make test` runs: few of a large product, chosen so that no value is left out.

    @pytest.mark.covering                              # every value of every parameter occurs in some case
    @pytest.mark.covering("task,model", "n")           # every pair of task and model, and every n
    @pytest.mark.covering("use,layer.column")          # every pair of a use and the `column` of a layer
    @pytest.mark.parametrize("name", only(FEW, ALL))   # the cases of these few values
    @pytest.mark.parametrize("a,b", product(A, B, DEAR))     # all pairs, but none of these few
    @pytest.mark.full                                  # no case

The other cases get the marker `full`: `make test` leaves them out, `make test-all` and pytest by itself run them.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest


def only(few: Iterable[object], values: Iterable[object]) -> list[Any]:
    """The values of a parameter; those that are not among the few are marked `full`."""
    chosen = set(few)
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.full) for value in values]


def product(first: Iterable[object], second: Iterable[object], dear: Iterable[tuple[object, object]]) -> list[Any]:
    """All pairs of two parameters' values; those that are dear are marked `full`, so that `covering` takes others."""
    left = set(dear)
    pairs = itertools.product(first, second)
    return [pytest.param(*pair, marks=[pytest.mark.full] * (pair in left)) for pair in pairs]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part 2/3`: the second of three parts of the cases that `make test` leaves out."""
    parser.addoption("--part", metavar="K/N", type=part, help="of the tests marked full, the Kth of N parts alone")


def part(text: str) -> tuple[int, int]:
    """K and N of the text K/N."""
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError
    return k, n


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marker and name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that are left out; with `--part` take a part of these and nothing else."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("full"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        for item in left_out(cases):
            item.add_marker("full")
    if config.option.part:
        k, n = config.option.part
        chosen = {item for item in items if item.get_closest_marker("full") and shuffled(item) % n == k - 1}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def left_out(cases: list[Any]) -> list[Any]:
    """The cases of a test that bring no combination of values which the chosen cases do not have.

    The order is random, but the same in every run, and another one for each test: two tests of tasks and models take
    different pairs. Cases that bring much that is new are chosen first.
    """
    groups = [names.split(",") for names in cases[0].get_closest_marker("covering").args]
    wanted = {item: combinations(item, groups) for item in sorted(cases, key=shuffled)}
    seen: set[Any] = set()
    for size in range(max(map(len, wanted.values())), 0, -1):
        for item, values in list(wanted.items()):
            if len(values - seen) >= size:
                seen |= wanted.pop(item)
    return list(wanted)


def combinations(item: Any, groups: list[list[str]]) -> set[Any]:
    """The combinations of values in a case: one for each group of names, by default one for each parameter."""
    params = item.callspec.params
    try:
        return {
            tuple((name, value_of(params, name)) for name in names) for names in groups or [[key] for key in params]
        }
    except (KeyError, AttributeError) as error:
        raise pytest.UsageError(f"{item.nodeid}: covering({error}): the parameters are {', '.join(params)}") from error


def value_of(params: dict[str, Any], name: str) -> Any:
    """A parameter, or an attribute of one, in a form that can be compared: True is not 1."""
    key, _, attribute = name.partition(".")
    value = getattr(params[key], attribute) if attribute else params[key]
    return repr(value) if isinstance(value, list | dict | set) else (type(value), value)


def shuffled(item: Any) -> int:
    """A number that looks random and depends on the test's name alone."""
    return zlib.crc32(item.nodeid.encode())
