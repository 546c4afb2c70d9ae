"""N-parity: is the number of ones among the last N bits odd?"""

from typing import Unpack

import torch
from torch import Tensor

from timescales.tasks.curriculum import Curriculum
from timescales.tasks.task import Sizes, check_choice, entropy_of_bit


class NParity(Curriculum):
    """N-parity: after the last step the model must say whether the number of ones among the last N bits is odd.

    Source: Khajehabdollahi et al. 2024 (arXiv 2309.12927), N-parity task, and their released code.

        input   0 1 1 0 1 0 0      N = 3
        target              1      1: an odd number of ones in 1 0 0; read from the final state
        input   0 1 1 0 1 0 0      curriculum="multi", N = 4
        target              0 1 1  for the last 2, 3 and 4 bits

    Input, output, loss, metrics and the growth of N: see `Curriculum`. Sequences have N + 2 to 2.5 N + 1 steps.
    Loss: at chance ln 2 for each N; with mixed bits and an even N slightly less (8 % for N = 2, 1 % for N = 8).
    Training sequences are new in every epoch; validation and test sets are fixed by the seed (and N).

    bits: "mixed", each sequence has its own probability of a one, uniform on [0, 1]; "fair", one half for all. With
        fair bits, any N - 1 of the last N bits say nothing about the answer.

    Differs: the released code draws one probability for all sequences of a batch, its older version one for each, as
    here. The paper's text was not available; this task follows the code.
    """

    STRETCH = 1.5

    def __init__(
        self,
        *,
        curriculum: str = "single",
        N: int = 2,
        N_max: int = 100,
        threshold: float = 0.98,
        bits: str = "mixed",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(curriculum=curriculum, N=N, N_max=N_max, threshold=threshold, **sizes)
        check_choice("bits", bits, ("mixed", "fair"))
        self.mixed = bits == "mixed"

    def bits(self, steps: int, n: int, generator: torch.Generator) -> Tensor:
        """Draw random bits of n sequences, (S, n) int64, on the CPU."""
        if not self.mixed:
            return super().bits(steps, n, generator)
        of_one = torch.rand(n, generator=generator)
        return (torch.rand(steps, n, generator=generator) < of_one).long()

    def answers(self, backwards: Tensor) -> Tensor:
        """Return 1 where the number of ones is odd, for each trained N, (K, B). backwards: the last bit first."""
        ones = backwards.cumsum(0)  # among the last 1, 2, 3, ... bits
        return ones[[n - 1 for n in self.trained]] % 2

    def chance(self) -> float:
        """Return the sum of the entropies of the answers that are currently trained."""
        # An odd number of ones in n bits has the probability (1 - E[(1 - 2 p)^n]) / 2, with p the probability of a one.
        odd = [0.5 - (0.5 / (n + 1) if self.mixed and n % 2 == 0 else 0.0) for n in self.trained]
        return sum(map(entropy_of_bit, odd))
