"""An LSTM and a GRU with any of the nine gates of Gu et al. 2020; the parts are in gates.py."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.cells.gates import MECHANISMS, URLSTMCell, cumax, mastered, refined
from timescales.nn.cells.lstm import LSTMCell
from timescales.nn.inits import Chrono, ChronoUnknown, Constant, Law, Uniform, is_number


class GatedCell(Cell):
    """What the two gated cells share: the mechanism, its bias and zoneout. `.` below is gx + gh.

    Source: Gu, Gulcehre, Paine, Hoffman & Pascanu 2020, section 3 and appendices A, B.4, B.5, D.2 and D.5.

        gate    main                                auxiliary                     effective f, i
        -       f = sigmoid(. + 1)                                                f, sigmoid(.)
        c u     f = sigmoid(. + b)                                                f, sigmoid(. - b)
        o       f = cumax(.)                                                      f, 1 - cumax(.)
        r       f = sigmoid(. + 1)                  r = sigmoid(. - 1)            g, 1 - g
        ur      f = sigmoid(. + b)                  r = sigmoid(. - b)            g, 1 - g
        or      f = cumax(.)                        r = sigmoid(.)                g, 1 - g
        um      F = sigmoid(. + b), I = sigmoid(. - b)      f, i = sigmoid(.)     f w + (F - w), i w + (I - w)
        om      F = cumax(.), I = 1 - cumax(.)              f, i = sigmoid(.)     the same: ON-LSTM, Shen et al. 2018

    with g = 2 r f + (1 - 2 r) f^2 and w = F I. Master gates have H / downsize rows, each for `downsize` neighbours.

    Init: weights and bias U(+-1/sqrt H); b = `gate_bias`, one number for each row of the main gate: uniform (n rows)
    logit U[1/n, 1 - 1/n], chrono log U[1, T_max - 1] (T_max="hidden_size", "unknown" for the law without one, or a
    number of steps). These two are trained beside the linear map's own bias, as in the paper; the 1 of - and r, which
    is the argument `forget_bias`, is not.

    Silent in the paper, decided here: T_max of C- (its section 5 has a rule without a hyper-parameter: taken to be the
    number of units); whether R- has listing 1's forget bias (yes, and subtracted from the refine gate as listing 2's).
    Differs: the authors' later code (HiPPO, state-spaces) holds b fixed (train_bias=False) and does not subtract it
    from the refine gate (subtract_bias=False); None subtracts it wherever the table above does.
    zoneout_h (and an LSTM's zoneout_c): in training each unit keeps its old value with this probability, and in
    evaluation that much of it (Krueger et al. 2016; Gu et al.: LSTM c .5 and h .05, GRU h .1).
    """

    main_only: tuple[str, ...]  # the gates' names: with no auxiliary gate
    refining: tuple[str, ...]
    mastering: tuple[str, ...]
    gate_bias: Tensor | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        gate: str = "ur",
        forget_bias: float = 1.0,
        T_max: str | float = "hidden_size",
        downsize: int = 16,
        train_bias: bool = True,
        subtract_bias: bool | None = None,
        zoneout_h: float = 0.0,
    ) -> None:
        if gate not in MECHANISMS:
            raise ValueError(f"gate must be one of {', '.join(MECHANISMS)}; not {gate!r}")
        if isinstance(downsize, bool) or not isinstance(downsize, int) or downsize < 1:
            raise ValueError(f"downsize must be a whole number of at least 1, not {downsize!r}")
        self.gate, self.downsize = gate, downsize
        self.mechanism = MECHANISMS[gate]
        auxiliary = self.mechanism.auxiliary
        # An instance's gates, not the class's: they are the mechanism's.
        self.gates = {"none": self.main_only, "refine": self.refining, "master": self.mastering}[auxiliary]  # type: ignore[misc]
        super().__init__(input_size, hidden_size)
        if auxiliary == "master" and hidden_size % downsize:
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of downsize {downsize}, or give downsize=1")
        self.zoneout_h = rate("zoneout_h", zoneout_h)
        self.main = "master_forget" if auxiliary == "master" else "forget"
        counter = {"none": "input", "refine": "refine", "master": "master_input"}[auxiliary]
        subtract = gate != "-" if subtract_bias is None else subtract_bias
        self.counter = counter if subtract and counter in self.gates else None
        law = self._law(forget_bias, T_max)
        b = None if law is None else law.bias(self.height(self.main)).to(self.weight_ih.dtype)
        if b is not None and train_bias and self.mechanism.law != "constant":
            self.gate_bias = nn.Parameter(b)
        else:
            self.register_buffer("gate_bias", b)

    def _law(self, forget_bias: float, T_max: str | float) -> Law | None:
        if not (T_max in ("hidden_size", "unknown") or (is_number(T_max) and T_max > 2)):
            raise ValueError(f"T_max must be hidden_size, unknown, or a number above 2 (steps), not {T_max!r}")
        if self.mechanism.law == "chrono":
            return ChronoUnknown() if T_max == "unknown" else Chrono(
                self.hidden_size if T_max == "hidden_size" else T_max  # type: ignore[arg-type]
            )  # fmt: skip
        return {"constant": Constant(forget_bias), "uniform": Uniform(), None: None}[self.mechanism.law]

    def height(self, gate: str) -> int:
        """Rows of a gate: a master gate has one for each `downsize` units."""
        return self.hidden_size // self.downsize if gate.startswith("master_") else self.hidden_size

    def weights(self) -> Weights:
        ih, hh, bias, other = super().weights()
        if self.gate_bias is not None:
            by = {self.main: self.gate_bias} | ({self.counter: -self.gate_bias} if self.counter else {})
            bias = self.shifted(bias, by)
        return Weights(ih, hh, bias, other)

    def effective(self, pre: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The forget and the input gate that act on the cell, each (..., H), from pre-activations by gate."""
        ordered = self.mechanism.main == "cumax"
        main = cumax(pre[self.main]) if ordered else pre[self.main].sigmoid()

        def entering(z: Tensor) -> Tensor:
            return 1.0 - cumax(z) if ordered else z.sigmoid()

        if self.mechanism.auxiliary == "refine":
            g = refined(main, pre["refine"].sigmoid())
            return g, 1.0 - g
        if self.mechanism.auxiliary == "master":
            f = pre["forget"].sigmoid()
            i = pre["input"].sigmoid() if "input" in pre else 1.0 - f
            masters = (main, entering(pre["master_input"]))
            f_master, i_master = (m.repeat_interleave(self.downsize, -1) for m in masters)
            return mastered(f_master, i_master, f, i)
        return main, entering(pre["input"]) if "input" in pre else 1.0 - main

    def zoned(self, old: Tensor, new: Tensor, rate: float) -> Tensor:
        """`new` under zoneout of a rate from `old`."""
        if not rate:
            return new
        if self.training:
            return torch.where(torch.rand_like(new) < rate, old, new)
        return rate * old + (1.0 - rate) * new

    def timescales(self) -> Tensor:
        """-1 / ln f of the effective gate at zero input and state; infinite where that is 1, a cumax's last units."""
        f, _ = self.effective(self.by_gate(self.weights().bias_ih))
        return 1.0 / f.log().abs()

    def extra_repr(self) -> str:
        zoneout = f", zoneout_h={self.zoneout_h}" if self.zoneout_h else ""
        return f"{super().extra_repr()}, gate={self.gate}{zoneout}"


def rate(name: str, value: float) -> float:
    """`value` if it is a probability below 1."""
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, not {value!r}")
    return float(value)


class GatedLSTMCell(GatedCell):
    """An LSTM with any of the gates of `GatedCell`; `.` is gx + gh.

        u = tanh(.)     o = sigmoid(.)
        c' = f c + i u
        h' = o tanh c'

    gate="ur" is `URLSTMCell`, "u" and "c" are `LSTMCell` with the uniform law and with chrono's.
    """

    main_only = LSTMCell.gates
    refining = URLSTMCell.gates
    mastering = ("master_forget", "master_input", *LSTMCell.gates)

    State = LSTMCell.State
    Act = LSTMCell.Act  # input and forget are the effective gates

    def __init__(self, input_size: int, hidden_size: int, *, zoneout_c: float = 0.0, **arguments: object) -> None:
        super().__init__(input_size, hidden_size, **arguments)  # type: ignore[arg-type]
        self.zoneout_c = rate("zoneout_c", zoneout_c)

    def act(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> LSTMCell.Act:
        pre = self.by_gate(gx + gh)
        f, i = self.effective(pre)
        return self.Act(i, f, pre["cell"].tanh(), pre["output"].sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> LSTMCell.State:
        i, f, u, o = self.act(gx, gh, state, dt)
        c = f * state.c + i * u
        h = o * c.tanh()
        return self.State(self.zoned(state.h, h, self.zoneout_h), self.zoned(state.c, c, self.zoneout_c))


class GatedGRUCell(GatedCell):
    """A GRU with any of the gates of `GatedCell`, in the place of its update gate; `.` is gx + gh.

        s  = sigmoid(.)             the GRU's reset gate
        u  = tanh(gx + s gh)        after the recurrent product, as in torch
        h' = f h + i u

    A GRU has one gate where an LSTM has two: without an auxiliary gate i = 1 - f, and under master gates the fine input
    gate is 1 minus the fine forget gate.
    Differs: the paper has no equations for its GRU; its main gate is taken to be the forget gate, 1 - update gate, with
    the sign of all its other equations. The authors' later code uses the gate as the weight of what is new:
    gru_form="update" exchanges f and i.
    """

    main_only = ("reset", "forget", "cell")
    refining = ("reset", "forget", "refine", "cell")
    mastering = ("reset", "master_forget", "master_input", "forget", "cell")

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        reset: Tensor
        input: Tensor
        forget: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, gru_form: str = "forget", **arguments: object) -> None:
        super().__init__(input_size, hidden_size, **arguments)  # type: ignore[arg-type]
        if gru_form not in ("forget", "update"):
            raise ValueError(f"gru_form must be forget or update, not {gru_form!r}")
        self.gru_form = gru_form

    def effective(self, pre: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """As in `GatedCell`; exchanged in the update form."""
        f, i = super().effective(pre)
        return (i, f) if self.gru_form == "update" else (f, i)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        pre, recurrent = self.by_gate(gx + gh), self.by_gate(gh)["cell"]
        s = pre["reset"].sigmoid()
        f, i = self.effective(pre)
        return self.Act(s, i, f, (self.by_gate(gx)["cell"] + s * recurrent).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, i, f, u = self.act(gx, gh, state, dt)
        return self.State(self.zoned(state.h, f * state.h + i * u, self.zoneout_h))
