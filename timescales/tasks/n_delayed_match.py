"""N-delayed match: is the last bit the same as the one N - 1 steps before it?"""

import math

from torch import Tensor

from timescales.tasks.curriculum import Curriculum


class NDelayedMatch(Curriculum):
    """N-delayed match-to-sample: does the last bit equal the first of the last N bits, N - 1 steps before it?

    Source: Khajehabdollahi et al. 2024 (arXiv 2309.12927), N-DMS task, and their released code.

        input   0 1 1 0 1 0 0      N = 3
        target              0      1 0 0: the last bit, 0, differs from the first one, 1; read from the final state
        input   0 1 1 0 1 0 0      curriculum="multi", N = 4
        target              1 0 1  for the last 2, 3 and 4 bits

    Input, output, loss, metrics and the growth of N: see `Curriculum`. Sequences have N + 2 to 4 N + 1 steps, and 0 and
    1 are equally probable. Loss: at chance ln 2 for each N.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed (and N).

    Differs: the paper's text was not available. What this page does not describe is as in the released code.
    """

    STRETCH = 3.0

    def answers(self, backwards: Tensor) -> Tensor:
        """Return 1 where the bits are equal, for each N that is trained, (K, B). backwards: the last bit first."""
        return (backwards[[n - 1 for n in self.trained]] == backwards[0]).long()

    def chance(self) -> float:
        """Return ln 2 for each N that is currently trained."""
        return math.log(2.0) * len(self.trained)
