"""Word problem: the product of the elements of a group that were read so far."""

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from timescales.tasks.task import Batch, Sizes, Spec, StepTask, check_at_least, check_choice

Permutation = tuple[int, ...]  # entry i is where point i goes
# Of each group, permutations that generate it.
GROUPS: dict[str, tuple[Permutation, ...]] = {
    "A5": ((1, 2, 3, 4, 0), (1, 2, 0, 3, 4)),
    "S5": ((1, 2, 3, 4, 0), (1, 0, 2, 3, 4)),
    "A4xZ5": ((1, 2, 0, 3, 4, 5, 6, 7, 8), (1, 0, 3, 2, 4, 5, 6, 7, 8), (0, 1, 2, 3, 5, 6, 7, 8, 4)),
    "Z60": ((*range(1, 60), 0),),
    "S3": ((1, 2, 0), (1, 0, 2)),
    "Z2": ((1, 0),),
}


class WordProblem(StepTask):
    """The word problem of a group: after each element the model must output the product of all elements so far.

    Source: Merrill et al. 2024 (arXiv 2404.08819), experiments on A5, A4 x Z5 and Z60, and their released code.

        input   2 0 2 3 0 4      T = 6 elements of S3, numbered as below, uniform
        target  2 2 0 3 3 0      2, 2*0, 2*0*2, ...; every step is scored

    Elements are permutations, numbered in lexicographic order, 0 the identity: in S3 012, 021, 102, 120, 201, 210,
    where entry i says where point i goes. A product a*b applies a first.

        group   order   abelian   solvable
        A5      60      no        no          even permutations of 5 points
        S5      120     no        no          all permutations of 5 points
        A4xZ5   60      no        yes
        Z60     60      yes       yes         number k is k mod 60, and the product is the sum
        S3      6       no        yes
        Z2      2       yes       yes         parity: is the number of ones so far odd?

    The word problem of a group that is not solvable (A5, S5) is complete for NC1: unless TC0 = NC1, no fixed stack of
    linear recurrences whose transitions are diagonal (or do not depend on the input) solves it at every length. A
    nonlinear recurrence of one layer can. Z60, A4xZ5, S3 and Z2 are the controls.

    Input: one-hot vectors, one class for each element, (S, B). Output: the same classes at every step. Loss:
    cross-entropy, the mean over all steps; the logarithm of the order at chance. Metrics: accuracy, the share of
    correct answers; sequence_accuracy, the share of sequences with all answers correct.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    group: "A5", "S5", "A4xZ5", "Z60", "S3" or "Z2".
    T: the number of elements.

    Differs: Merrill et al. draw sequences of all lengths up to T, once, and put a symbol before each. Here all have T
    elements, and each answer is that of a shorter sequence. S3 and Z2 are our addition.
    """

    is_exact = is_balanced = True

    def __init__(self, *, group: str = "A5", T: int = 20, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("group", group, tuple(GROUPS))
        check_at_least(1, T=T)
        self.T = T
        self.elements = generated(GROUPS[group])
        self.products = products(self.elements).to(self.device)
        self.spec = Spec("one_hot", len(self.elements), len(self.elements), "all", horizon=T)

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator = self.generator(split, epoch, step)
        x = self.moved(torch.randint(len(self.elements), (self.T, end - first), generator=generator))
        product, shift = x, 1
        while shift < self.T:  # log2(T) rounds: products over 2, 4, 8, ... steps
            product = torch.cat([product[:shift], self.products[product[:-shift], product[shift:]]])
            shift *= 2
        return Batch(x, product)


def generated(generators: Sequence[Permutation]) -> list[Permutation]:
    """Return all elements of the group that permutations generate, in lexicographic order."""
    identity = tuple(range(len(generators[0])))
    found, new = {identity}, [identity]
    while new:
        new = [element for element in {then(a, b) for a in new for b in generators} if element not in found]
        found.update(new)
    return sorted(found)


def then(a: Permutation, b: Permutation) -> Permutation:
    """Return the product a*b: first a, then b."""
    return tuple(b[point] for point in a)


def products(elements: Sequence[Permutation]) -> Tensor:
    """Return the number of a*b for the numbers of a and b, (n, n) int64."""
    number = {element: k for k, element in enumerate(elements)}
    return torch.tensor([[number[then(a, b)] for b in elements] for a in elements])
