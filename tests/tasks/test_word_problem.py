"""Word problem: groups by their axioms and known counts, products in plain Python, scores."""

import collections
import math

import pytest
import torch
from scipy import stats

from timescales.tasks import WordProblem
from timescales.tasks.word_problem import GROUPS

SIZES = {"train_size": 50, "valid_size": 5, "test_size": 5, "batch_size": 50}
ORDERS = {"A5": 60, "S5": 120, "A4xZ5": 60, "Z60": 60, "S3": 6, "Z2": 2}
# How many elements have the orders 1, 2, 3, ...: these tell the groups apart.
ELEMENTS = {
    "A5": {1: 1, 2: 15, 3: 20, 5: 24},
    "S5": {1: 1, 2: 25, 3: 20, 4: 30, 5: 24, 6: 20},
    "A4xZ5": {1: 1, 2: 3, 3: 8, 5: 4, 10: 12, 15: 32},
    "Z60": {n: sum(math.gcd(k, n) == 1 for k in range(n)) if n > 1 else 1 for n in range(1, 61) if 60 % n == 0},
    "S3": {1: 1, 2: 3, 3: 2},
    "Z2": {1: 1, 2: 1},
}


def order(element):
    """How often a permutation must be applied until every point is where it was."""
    power, n = element, 1
    while power != tuple(range(len(element))):
        power, n = tuple(element[point] for point in power), n + 1
    return n


def commutators(table, members):
    """The subgroup that the commutators of a subgroup's elements generate."""
    inverse = {a: next(b for b in members if table[a][b] == 0) for a in members}
    found = {table[table[table[inverse[a]][inverse[b]]][a]][b] for a in members for b in members}
    while (more := {table[a][b] for a in found for b in found} | found) != found:
        found = more
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_is_the_one_it_is_called(group):
    task = WordProblem(group=group, **SIZES)
    table, n = task.products.tolist(), ORDERS[group]
    assert len(task.elements) == task.spec.input_size == task.spec.output_size == n
    assert task.elements == sorted(set(task.elements))
    assert dict(collections.Counter(map(order, task.elements))) == ELEMENTS[group]
    # the axioms: 0 is the identity, every row and column is a permutation, and brackets do not matter
    assert table[0] == list(range(n)) == [row[0] for row in table]
    assert all(sorted(row) == list(range(n)) for row in [*table, *zip(*table, strict=True)])
    t = task.products
    assert torch.equal(t[t], t[:, t])  # (a b) c and a (b c), for all three
    abelian = torch.equal(t, t.T)
    assert abelian == (group in ("Z60", "Z2"))
    # solvable: taking commutators again and again ends at the identity alone
    members = set(range(n))
    while (inner := commutators(table, members)) != members:
        members = inner
    assert (members == {0}) == (group not in ("A5", "S5"))
    assert len(members) == (1 if members == {0} else 60)


@pytest.mark.parametrize(("group", "T"), [("A5", 20), ("S5", 7), ("A4xZ5", 2), ("Z60", 7), ("S3", 1), ("Z2", 7)])
def test_targets_are_the_products_of_permutations(group, T):
    task = WordProblem(group=group, T=T, **SIZES)
    batch = next(task.batches("train"))
    assert batch.x.shape == batch.target.shape == (T, 50)
    for k in range(50):
        where = tuple(range(len(task.elements[0])))  # of each point
        for read, answer in zip(batch.x[:, k].tolist(), batch.target[:, k].tolist(), strict=True):
            where = tuple(task.elements[read][point] for point in where)
            assert task.elements[answer] == where


def test_every_answer_is_uniform():
    task = WordProblem(group="A5", T=8, train_size=6000, batch_size=6000)
    target = next(task.batches("train")).target
    for step in (0, 3, 7):
        assert stats.chisquare(torch.bincount(target[step], minlength=60).numpy()).pvalue > 1e-3
    assert task.chance() == pytest.approx(math.log(60))
    assert WordProblem(group="S5").chance() == pytest.approx(math.log(120))
