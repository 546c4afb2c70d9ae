"""Contextual delayed match: is a later object like the first one in the feature that a cue names?"""

from typing import Unpack

import torch
from torch.nn import functional as F

from timescales.tasks.task import Batch, Sizes, Spec, Task, check_at_least, check_choice


class ContextualMatch(Task):
    """Contextual delayed match to sample: two objects must be compared in the feature that a cue names.

    Source: defined here. It is the delayed match to sample of neuroscience with the context of Mante et al. 2013
    (Nature 503, 78-84): the same input, and a cue that says which of its two features counts.

        colour   C . . A . . C      delay=5, features=4: letters are colours, numbers shapes
        shape    2 . . 4 . . 3
        marked   1 . . . . . 1      the sample and the test; objects between them do not matter
        cue      s . . . . . .      the shape counts (cue="first"); with cue="last" it comes with the test
        target               0      1: equal in the feature that counts; read from the final state

    The test has the sample's colour with probability 1/2, otherwise another colour; and independently of this the
    sample's shape with probability 1/2. At each step of the delay there is a random object with probability
    `distractors`.

    Input: one-hot vectors of colour and shape, the mark, and one-hot vectors of the cue, (S, B, 2 features + 3) with
    S = delay + 2. Output: two classes, after the last step. Loss: cross-entropy; ln 2 at chance. Metric: accuracy; 1/2
    at chance, 3/4 for a rule that compares the same feature in every sequence.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    delay: the steps between the sample and the test.
    distractors: the probability of an object at each of these steps.
    features: the number of colours, and of shapes.
    cue: "first" (with the sample: one feature must be kept) or "last" (with the test: both must).
    """

    is_exact = is_balanced = True

    def __init__(
        self,
        *,
        delay: int = 40,
        distractors: float = 0.3,
        features: int = 8,
        cue: str = "first",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("cue", cue, ("first", "last"))
        check_at_least(0, delay=delay)
        check_at_least(2, features=features)
        if not 0.0 <= distractors <= 1.0:
            raise ValueError(f"distractors must be a probability, from 0 to 1, not {distractors}")
        self.delay, self.distractors, self.features = delay, distractors, features
        self.cue_at = {"first": 0, "last": delay + 1}[cue]
        self.spec = Spec("real", 2 * features + 3, 2, "last", horizon=delay + 1)

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator, n = self.generator(split, epoch, step), end - first
        nothing = self.features
        things = torch.randint(self.features, (self.delay + 2, n, 2), generator=generator)
        is_there = torch.rand(self.delay, n, 1, generator=generator) < self.distractors
        alike = torch.randint(2, (n, 2), generator=generator)
        other = torch.randint(1, self.features, (n, 2), generator=generator)
        context = torch.randint(2, (n,), generator=generator)  # the feature that counts
        things[1:-1] = torch.where(is_there, things[1:-1], nothing)
        things[-1] = torch.where(alike.bool(), things[0], (things[0] + other) % self.features)

        marked = torch.zeros(self.delay + 2, n, 1, dtype=torch.int64)
        marked[[0, -1]] = 1
        cue = torch.zeros(self.delay + 2, n, 2, dtype=torch.int64)
        cue[self.cue_at] = F.one_hot(context, 2)
        seen = F.one_hot(things, nothing + 1)[..., :nothing].flatten(2)
        x = torch.cat([seen, marked, cue], -1).to(torch.get_default_dtype())
        return Batch(self.moved(x), self.moved(alike.gather(1, context.unsqueeze(1)).squeeze(1)))

    def trivial_baselines(self) -> dict[str, float]:
        """Return the accuracy of a rule that compares the same feature in every sequence."""
        return {"one feature, whatever the cue": 0.75}
