"""The tunable unitary RNN: its recurrent matrix is a chain of rotations of pairs of complex units."""

import math

import torch
from torch import Tensor, nn

from timescales.nn.cells.urnn import URNNCell, turn, uniform, wide
from timescales.nn.inits import check_whole
from timescales.nn.rnn import CellRNN


class EURNNCell(URNNCell):
    """EURNN: complex units z, whose recurrent matrix is built of `capacity` layers of rotations.

        W  = D F_L ... F_2 F_1              L = capacity
        a  = gx + W z                       gx has no bias
        z' = a max(0, |a| + bias) / |a|     modReLU
        h' = the real parts of z', then the imaginary ones

    D = diag(exp(i phases)). A layer rotates pairs of units: F_1, F_3, ... the pairs (0, 1), (2, 3), ...; F_2, F_4, ...
    the pairs (1, 2), (3, 4), ... Units at the ends that have no partner stay as they are. A pair is multiplied by

        [exp(i phi) cos theta   -exp(i phi) sin theta]
        [sin theta               cos theta           ]

    With style "fft", the layers rotate the pairs of units that are N / 2, N / 4, ... 1 apart, once each. gx =
    weight_ih x, and N = H / 2.

    Arguments:
        input_size, hidden_size: sizes I and H; H is even.
        capacity: the number of layers L, at least 1; N layers reach every unitary matrix. Default: 2. Not for "fft".
        style: "tunable" (default) or "fft", for which N is a power of two.

    Init: theta, phi and phases U(-pi, pi); weight_ih U(-.01, .01); bias 0; the state before the first step 0.
    Source: Jing, Shen, Dubcek, Peurifoy, Skirlo, LeCun, Tegmark & Soljacic 2017 (arXiv 1612.05231).
    Differs: see `URNNCell`; the readout is given the real and the imaginary parts (in the released code only the real
    parts). The released code multiplies the second unit of a pair by exp(i phi), not the first.
    """

    def __init__(self, input_size: int, hidden_size: int, *, capacity: int = 2, style: str = "tunable") -> None:
        self.capacity, self.style, self.shown = checked_chain(capacity, style)
        super().__init__(input_size, hidden_size)
        nn.init.uniform_(self.weight_ih, -0.01, 0.01)
        nn.init.zeros_(self.bias)
        self.register_parameter("start", None)

    def make_matrix(self, N: int) -> None:
        """Create the angles of W for N units."""
        self.pairs = chain(N, self.capacity, self.style)
        rotations = sum(map(len, self.pairs))
        self.theta, self.phi = uniform(math.pi, rotations), uniform(math.pi, rotations)
        self.phases = uniform(math.pi, N)

    def matrix(self) -> Tensor:
        """Return W, a complex matrix (N, N)."""
        d = turn(wide(self.phases))
        W = rotated(torch.diag(torch.ones_like(d)), self.pairs, wide(self.theta), wide(self.phi))
        return d.unsqueeze(-1) * W


class EURNN(CellRNN):
    """Tunable unitary RNN: complex units that a chain of rotations turns, and never shrinks. See `EURNNCell`.

    Call: as `GRU`; hidden_size is even, and the output has the real parts, then the imaginary ones. It has no kernel,
    so engine="auto" is the eager engine.
    Forgets: not at all: the recurrent matrix is unitary.
    Source: Jing et al. 2017.
    """

    cell_class = EURNNCell


def checked_chain(capacity: int, style: str) -> tuple[int, str, tuple[str, ...]]:
    """Return the number of layers of rotations, their style, and the name of the one that `repr` shows.

    Raises ValueError for a wrong number or an unknown style.
    """
    check_whole(capacity=capacity)
    if style not in ("tunable", "fft"):
        raise ValueError(f"style must be tunable or fft, not {style!r}")
    return capacity, style, ("capacity",) if style == "tunable" else ("style",)  # fft reads no capacity


def chain(N: int, capacity: int, style: str) -> list[list[tuple[int, int]]]:
    """Return the pairs of the N units that each layer rotates. Raises ValueError for a size that "fft" cannot have."""
    if style == "tunable":
        return [[(i, i + 1) for i in range(layer % 2, N - 1, 2)] for layer in range(capacity)]
    if N & (N - 1):
        raise ValueError(f"style=fft needs a power of two as the number of units, not {N}: give style=tunable")
    distances = [N >> k for k in range(1, N.bit_length())]
    return [[(i, i + d) for i in range(N) if not i & d] for d in distances]


def rotated(M: Tensor, pairs: list[list[tuple[int, int]]], theta: Tensor, phi: Tensor | None) -> Tensor:
    """Return the matrix M (N, N) after all layers of rotations of its rows.

    Arguments:
        pairs: the pairs of rows of each layer.
        theta, phi: the angles (rotations,) of all layers one after another. With phi=None all are 0, and M may be real.
    """
    first = 0
    for layer in pairs:
        if not layer:  # a single unit has no partner
            continue
        a, b = torch.tensor(layer, device=M.device).T
        angles = slice(first, first + len(layer))
        first += len(layer)
        cos, sin = (f(theta[angles]).unsqueeze(-1) for f in (torch.cos, torch.sin))
        x, y = M[a], M[b]
        new = cos * x - sin * y
        if phi is not None:
            new = turn(phi[angles]).unsqueeze(-1) * new
        M = M.index_copy(0, a, new).index_copy(0, b, sin * x + cos * y)
    return M
