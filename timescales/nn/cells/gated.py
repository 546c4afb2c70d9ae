"""An LSTM and a GRU with any of the nine gates of Gu et al. 2020. The formulas of the gates are in gates.py.

rmc.py has the relational memory core, which uses the same gates.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.cells.gates import MECHANISMS, cumax, refined, with_master_gates
from timescales.nn.cells.lstm import LSTMCell
from timescales.nn.cells.ur import URLSTMCell
from timescales.nn.inits import (
    Chrono,
    ChronoUnknown,
    Constant,
    Initializer,
    Uniform,
    check_bool,
    check_whole,
    is_number,
    timescale_of_gate,
)
from timescales.nn.rnn import CellRNN


class GatedCell(Cell):
    """Base class of the gated cells: the gating mechanism, its bias, and zoneout.

    The table shows the pre-activation gx + gh of each gate as `.`, with gx = weight_ih x + bias and gh = weight_hh h;
    each gate has its own rows of them.

        gate    main                                auxiliary                     effective f, i
        -       f = sigmoid(. + 1)                                                f, sigmoid(.)
        c u     f = sigmoid(. + b)                                                f, sigmoid(. - b)
        o       f = cumax(.)                                                      f, 1 - cumax(.)
        r       f = sigmoid(. + 1)                  r = sigmoid(. - 1)            g, 1 - g
        ur      f = sigmoid(. + b)                  r = sigmoid(. - b)            g, 1 - g
        or      f = cumax(.)                        r = sigmoid(.)                g, 1 - g
        um      F = sigmoid(. + b), I = sigmoid(. - b)      f, i = sigmoid(.)     f w + (F - w), i w + (I - w)
        om      F = cumax(.), I = 1 - cumax(.)              f, i = sigmoid(.)     as um (ON-LSTM, Shen et al. 2018)

    with g = 2 r f + (1 - 2 r) f^2 and w = F I. The master gates F and I have H / downsize rows; each row serves
    `downsize` neighbouring units. A cumax ends at 1. So with gate om the last `downsize` units remember nothing: half
    of them for H = 32, one in 32 for the paper's 512. With gates o and or it is the last unit.

    Arguments:
        input_size, hidden_size: sizes I and H.
        gate: -, c, o, u, r, om, um, or, ur. Default: "ur".
        forget_bias: the constant 1 of the gates - and r. It is not trained.
        T_max: longest time scale of gate c, in steps, or "hidden_size" (default: H), or "unknown" for the initializer
            `ChronoUnknown`.
        downsize: units per row of a master gate; must divide H. Default: 16.
        train_bias: whether b is trained. Default: True.
        subtract_bias: whether b is subtracted from the second gate. None (default): as in the table.
        zoneout_h: probability in training that a unit keeps its old h; in evaluation h is the corresponding average
            (Krueger et al. 2016). Default: 0. (Gu et al.: h 0.05 and c 0.5 for the LSTM, h 0.1 for the GRU.)

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); b = `gate_bias`, one value for each row of the main gate: uniform
    logit U[1/n, 1 - 1/n] for n rows, or chrono ln U[1, T_max - 1].
    Source: Gu, Gulcehre, Paine, Hoffman & Pascanu 2020, section 3 and appendices A, B.4, B.5, D.2 and D.5.
    Not stated in the paper: T_max of gate c (section 5 has a rule without a hyper-parameter; here it is the number of
    units), and whether gate r has the forget bias of listing 1 (here: yes, and it is subtracted from the refine gate as
    in listing 2).
    Differs: the authors' later code (HiPPO, state-spaces) does not train b (train_bias=False) and does not subtract it
    from the refine gate (subtract_bias=False).
    """

    # The gates of a cell without an auxiliary gate, with a refine gate, and with master gates.
    gates_plain: tuple[str, ...]
    gates_refine: tuple[str, ...]
    gates_master: tuple[str, ...]
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
        bias: bool = True,
    ) -> None:
        if gate not in MECHANISMS:
            raise ValueError(f"gate must be one of {', '.join(MECHANISMS)}; not {gate!r}")
        check_whole(downsize=downsize)
        check_bool(train_bias=train_bias, subtract_bias=True if subtract_bias is None else subtract_bias)
        self.gate, self.downsize, self.mechanism = gate, downsize, MECHANISMS[gate]
        auxiliary = self.mechanism.auxiliary
        by_auxiliary = {"none": self.gates_plain, "refine": self.gates_refine, "master": self.gates_master}
        self.gates = by_auxiliary[auxiliary]  # type: ignore[misc]  # they depend on the mechanism, not on the class
        super().__init__(input_size, hidden_size, bias=bias)
        if auxiliary == "master" and hidden_size % downsize:
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of downsize {downsize}, or give downsize=1")
        self.zoneout_h = _probability("zoneout_h", zoneout_h)
        self.main = "master_forget" if auxiliary == "master" else "forget"
        if self.mechanism.main == "cumax" and self.gate_rows(self.main) == 1:  # it is always 1
            fix = "give more units, or with gate=om a smaller downsize"
            raise ValueError(f"a cumax of one row remembers nothing: {fix}")
        opposite = {"none": "input", "refine": "refine", "master": "master_input"}[auxiliary]
        subtract = gate != "-" if subtract_bias is None else subtract_bias
        self.opposite = opposite if subtract and opposite in self.gates else None
        init = self._initializer(forget_bias, T_max)
        b = None if init is None else init.bias(self.gate_rows(self.main)).to(self.weight_ih.dtype)
        if b is not None and train_bias and self.mechanism.init != "constant":
            self.gate_bias = nn.Parameter(b)
        else:
            self.register_buffer("gate_bias", b)

    def _initializer(self, forget_bias: float, T_max: str | float) -> Initializer | None:
        """Return the initializer of `gate_bias`; None for a gate without one."""
        if not (T_max in ("hidden_size", "unknown") or (is_number(T_max) and T_max > 2)):
            raise ValueError(f"T_max must be hidden_size, unknown, or a number above 2 (steps), not {T_max!r}")
        if self.mechanism.init == "constant":
            return Constant(forget_bias)
        if self.mechanism.init == "uniform":
            return Uniform()
        if self.mechanism.init is None:
            return None
        if T_max == "unknown":
            return ChronoUnknown()
        return Chrono(T_max if is_number(T_max) else self.units)

    @property
    def units(self) -> int:
        """Return the number of units that share a cumax and the rows of the gates: H."""
        return self.hidden_size

    def gate_rows(self, gate: str) -> int:
        """Return the number of rows of a gate for `units` units: units / downsize for a master gate, else units."""
        return self.units // self.downsize if gate.startswith("master_") else self.units

    def height(self, gate: str) -> int:
        """Return the number of rows of a gate: H / downsize for a master gate, else H."""
        return self.gate_rows(gate)

    def added_biases(self) -> dict[str, Tensor]:
        """Return what is added to the bias of the linear map, by gate: b to the main gate, and -b to the second one."""
        if self.gate_bias is None:
            return {}
        return {self.main: self.gate_bias} | ({self.opposite: -self.gate_bias} if self.opposite else {})

    def weights(self) -> Weights:
        weights = super().weights()
        added = self.added_biases()
        return weights._replace(bias_ih=self.add_to_gates(weights.bias_ih, added)) if added else weights

    def effective(self, pre: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the effective forget and input gate, each (..., H), from the pre-activations of the gates by name."""
        main = cumax(pre[self.main]) if self.mechanism.main == "cumax" else pre[self.main].sigmoid()
        if self.mechanism.auxiliary == "refine":
            g = refined(main, pre["refine"].sigmoid())
            return g, 1.0 - g
        if self.mechanism.auxiliary == "master":
            f = pre["forget"].sigmoid()
            i = pre["input"].sigmoid() if "input" in pre else 1.0 - f
            masters = (main, self._input_gate(pre["master_input"]))
            f_master, i_master = (m.repeat_interleave(self.downsize, -1) for m in masters)
            return with_master_gates(f_master, i_master, f, i)
        return main, self._input_gate(pre["input"]) if "input" in pre else 1.0 - main

    def _input_gate(self, z: Tensor) -> Tensor:
        """Return the activation of the input gate that belongs to the main gate."""
        return 1.0 - cumax(z) if self.mechanism.main == "cumax" else z.sigmoid()

    def zoneout(self, old: Tensor, new: Tensor, probability: float) -> Tensor:
        """Return `new` after zoneout: each number keeps its old value with this probability."""
        if not probability:
            return new
        if self.training:
            return torch.where(torch.rand_like(new) < probability, old, new)
        return probability * old + (1.0 - probability) * new

    def timescales(self) -> Tensor:
        """Return -1 / ln f of the effective forget gate, (H,). It is infinite where f is 1: a cumax's last units."""
        f, _ = self.effective(self.by_gate(self.weights().bias()))
        return timescale_of_gate(f)

    def extra_repr(self) -> str:
        zoneout = f", zoneout_h={self.zoneout_h}" if self.zoneout_h else ""
        return f"{super().extra_repr()}, gate={self.gate}{zoneout}"


def _probability(name: str, value: float) -> float:
    """Return `value` as a float. Raises ValueError if it is not in [0, 1)."""
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, not {value!r}")
    return float(value)


class GatedLSTMCell(GatedCell):
    """An LSTM with any of the gates of `GatedCell`, which has the table of the gates f and i and all other arguments.

        u = tanh(.)     o = sigmoid(.)          with . = gx + gh
        c' = f c + i u
        h' = o tanh(c')

    Arguments:
        zoneout_c: zoneout probability of the cell c, as zoneout_h for the output. Default: 0.

    With gate="ur" this is `URLSTMCell`. With "u" and "c" it is `LSTMCell` with the uniform and the chrono initializer.
    """

    gates_plain = LSTMCell.gates
    gates_refine = URLSTMCell.gates
    gates_master = ("master_forget", "master_input", *LSTMCell.gates)

    State = LSTMCell.State
    Act = LSTMCell.Act  # input and forget are the effective gates

    def __init__(self, input_size: int, hidden_size: int, *, zoneout_c: float = 0.0, **arguments: Any) -> None:
        super().__init__(input_size, hidden_size, **arguments)
        self.zoneout_c = _probability("zoneout_c", zoneout_c)

    def act(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> LSTMCell.Act:
        pre = self.by_gate(gx + gh)
        f, i = self.effective(pre)
        return self.Act(i, f, pre["cell"].tanh(), pre["output"].sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> LSTMCell.State:
        i, f, u, o = self.act(gx, gh, state, dt)
        c = f * state.c + i * u
        h = o * c.tanh()
        return self.State(self.zoneout(state.h, h, self.zoneout_h), self.zoneout(state.c, c, self.zoneout_c))


class GatedGRUCell(GatedCell):
    """A GRU with one of the gates of `GatedCell` as its update gate. `GatedCell` has the table and all other arguments.

        s  = sigmoid(.)             the GRU's reset gate, with . = gx + gh
        u  = tanh(gx + s gh)        s after the recurrent product, as in torch
        h' = f h + i u

    A GRU has one gate where an LSTM has two: without an auxiliary gate i = 1 - f, and with master gates the fine input
    gate is 1 minus the fine forget gate.

    Arguments:
        gru_form: "forget" (default): the gate multiplies the old state, as above. "update": f and i are exchanged.

    Differs: the paper has no equations for its GRU. Here the main gate is the forget gate (1 - update gate), with the
    signs of the paper's other equations. The authors' later code multiplies the new value by the gate
    (gru_form="update"). There (state-spaces, cell "gru") the reset gate also stands before the recurrent product,
    tanh(W x + U (s h)), as in Cho et al. 2014; here it stands after it, as in torch.
    """

    gates_plain = ("reset", "forget", "cell")
    gates_refine = ("reset", "forget", "refine", "cell")
    gates_master = ("reset", "master_forget", "master_input", "forget", "cell")

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        reset: Tensor
        input: Tensor
        forget: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, gru_form: str = "forget", **arguments: Any) -> None:
        super().__init__(input_size, hidden_size, **arguments)
        if gru_form not in ("forget", "update"):
            raise ValueError(f"gru_form must be forget or update, not {gru_form!r}")
        self.gru_form = gru_form

    def effective(self, pre: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the gates as `GatedCell` does; with gru_form="update" the two gates are exchanged."""
        f, i = super().effective(pre)
        return (i, f) if self.gru_form == "update" else (f, i)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        pre, recurrent = self.by_gate(gx + gh), self.by_gate(gh)["cell"]
        s = pre["reset"].sigmoid()
        f, i = self.effective(pre)
        return self.Act(s, i, f, (self.by_gate(gx)["cell"] + s * recurrent).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, i, f, u = self.act(gx, gh, state, dt)
        return self.State(self.zoneout(state.h, f * state.h + i * u, self.zoneout_h))


class GatedRNN(CellRNN):
    """LSTM or GRU with one of the nine gates of Gu et al. 2020. `GatedCell` has the table of gates and the arguments.

    Arguments: those of `GatedCell`, of the core's cell (`GatedLSTMCell`, `GatedGRUCell`), and
        core: "lstm" (default) or "gru".

    Call: as `LSTM`; with core="gru" as `GRU`.
    Forgets: with one of nine gating mechanisms, in an LSTM or a GRU.
    Source: Gu et al. 2020.
    """

    cell_classes = (GatedLSTMCell, GatedGRUCell)

    def __init__(self, *sizes: Any, core: str = "lstm", **arguments: Any) -> None:
        if core not in ("lstm", "gru"):
            raise ValueError(f"core must be lstm or gru, not {core!r}")
        if core == "gru" and arguments.pop("zoneout_c", 0.0):
            raise ValueError("zoneout_c is for core=lstm: a GRU has no cell beside its output; use zoneout_h")
        if core == "lstm" and (form := arguments.pop("gru_form", "forget")) != "forget":
            raise ValueError(f"gru_form={form} is for core=gru")
        self.cell_class = GatedLSTMCell if core == "lstm" else GatedGRUCell
        super().__init__(*sizes, **arguments)
