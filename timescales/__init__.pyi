"""The public names, for editors and type checkers. Written by scripts/pages.py."""

from collections.abc import Sequence
from typing import Any

import torch

from timescales.nn.inits import ForgetInit
from timescales.nn.cells.cell import Cell as Cell
from timescales.nn.rnn import CellRNN as CellRNN
from timescales.nn.cells.cfc import CfC as _CfC
from timescales.nn.cells.cfc import CfCCell as CfCCell
from timescales.nn.cells.chrono import ChronoLSTM as _ChronoLSTM
from timescales.nn.cells.cornn import CoRNN as _CoRNN
from timescales.nn.cells.cornn import CoRNNCell as CoRNNCell
from timescales.nn.cells.elstm import ELSTM as _ELSTM
from timescales.nn.cells.elstm import ELSTMCell as ELSTMCell
from timescales.nn.cells.eurnn import EURNN as _EURNN
from timescales.nn.cells.eurnn import EURNNCell as EURNNCell
from timescales.nn.cells.exprnn import ExpRNN as _ExpRNN
from timescales.nn.cells.exprnn import ExpRNNCell as ExpRNNCell
from timescales.nn.cells.goru import GORU as _GORU
from timescales.nn.cells.goru import GORUCell as GORUCell
from timescales.nn.cells.gru import GRU as _GRU
from timescales.nn.cells.gru import GRUCell as GRUCell
from timescales.nn.cells.grud import GRUD as _GRUD
from timescales.nn.cells.grud import GRUDCell as GRUDCell
from timescales.nn.cells.gated import GatedGRUCell as _GatedGRUCell
from timescales.nn.cells.gated import GatedLSTMCell as _GatedLSTMCell
from timescales.nn.cells.gated import GatedRNN as _GatedRNN
from timescales.nn.cells.hgrn import HGRN as _HGRN
from timescales.nn.cells.hgrn import HGRNCell as HGRNCell
from timescales.nn.cells.indrnn import IndRNN as _IndRNN
from timescales.nn.cells.indrnn import IndRNNCell as IndRNNCell
from timescales.nn.cells.janet import JANET as _JANET
from timescales.nn.cells.janet import JANETCell as JANETCell
from timescales.nn.cells.lem import LEM as _LEM
from timescales.nn.cells.lem import LEMCell as LEMCell
from timescales.nn.cells.lru import LRU as _LRU
from timescales.nn.cells.lru import LRUCell as LRUCell
from timescales.nn.cells.lstm import LSTM as _LSTM
from timescales.nn.cells.lstm import LSTMCell as LSTMCell
from timescales.nn.cells.leaky import LeakyRNN as _LeakyRNN
from timescales.nn.cells.leaky import LeakyRNNCell as LeakyRNNCell
from timescales.nn.cells.mts import MTSLSTM as _MTSLSTM
from timescales.nn.cells.mingru import MinGRU as _MinGRU
from timescales.nn.cells.mingru import MinGRUCell as MinGRUCell
from timescales.nn.cells.minlstm import MinLSTM as _MinLSTM
from timescales.nn.cells.minlstm import MinLSTMCell as MinLSTMCell
from timescales.nn.cells.nru import NRU as _NRU
from timescales.nn.cells.nru import NRUCell as NRUCell
from timescales.nn.cells.pgru import PGRU as _PGRU
from timescales.nn.cells.pgru import PGRUCell as PGRUCell
from timescales.nn.cells.plstm import PLSTM as _PLSTM
from timescales.nn.cells.plstm import PLSTMCell as _PLSTMCell
from timescales.nn.cells.plscan import PLScan as _PLScan
from timescales.nn.cells.plscan import PLScanCell as PLScanCell
from timescales.nn.cells.paragru import ParaGRU as _ParaGRU
from timescales.nn.cells.paragru import ParaGRUCell as ParaGRUCell
from timescales.nn.cells.paralstm import ParaLSTM as _ParaLSTM
from timescales.nn.cells.paralstm import ParaLSTMCell as ParaLSTMCell
from timescales.nn.cells.phased import PhasedLSTM as _PhasedLSTM
from timescales.nn.cells.phased import PhasedLSTMCell as PhasedLSTMCell
from timescales.nn.cells.rglru import RGLRU as _RGLRU
from timescales.nn.cells.rglru import RGLRUCell as RGLRUCell
from timescales.nn.cells.rmc import RMC as _RMC
from timescales.nn.cells.rmc import RMCCell as RMCCell
from timescales.nn.rnn import RNN as RNN
from timescales.nn.state import RNNState as RNNState
from timescales.nn.cells.slstm import SLSTM as _SLSTM
from timescales.nn.cells.slstm import SLSTMCell as SLSTMCell
from timescales.nn.cells.sru import SRU as _SRU
from timescales.nn.cells.sru import SRUCell as SRUCell
from timescales.nn.cells.signed_mingru import SignedMinGRU as _SignedMinGRU
from timescales.nn.cells.signed_mingru import SignedMinGRUCell as SignedMinGRUCell
from timescales.nn.cells.surnn import SuRNN as _SuRNN
from timescales.nn.cells.surnn import SuRNNCell as SuRNNCell
from timescales.nn.cells.ur import URLSTM as _URLSTM
from timescales.nn.cells.ur import URLSTMCell as URLSTMCell
from timescales.nn.cells.urnn import URNN as _URNN
from timescales.nn.cells.urnn import URNNCell as URNNCell
from timescales.nn.accelerate import accelerate as accelerate
from timescales.nn.explain import explain as explain
from timescales.nn.engine.cpu.workspace import free_memory as free_memory
from timescales.runs.weights import load as load
from timescales.nn.rnn import one_cell_per_layer as one_cell_per_layer
from timescales.nn.accelerate import restore as restore
from timescales.reports.frames import results as results

__version__: str
__all__ = ["__version__", "Cell", "CellRNN", "CfC", "CfCCell", "ChronoLSTM", "CoRNN", "CoRNNCell", "ELSTM", "ELSTMCell", "EURNN", "EURNNCell", "ExpRNN", "ExpRNNCell", "GORU", "GORUCell", "GRU", "GRUCell", "GRUD", "GRUDCell", "GatedGRUCell", "GatedLSTMCell", "GatedRNN", "HGRN", "HGRNCell", "IndRNN", "IndRNNCell", "JANET", "JANETCell", "LEM", "LEMCell", "LRU", "LRUCell", "LSTM", "LSTMCell", "LeakyRNN", "LeakyRNNCell", "MTSLSTM", "MinGRU", "MinGRUCell", "MinLSTM", "MinLSTMCell", "NRU", "NRUCell", "PGRU", "PGRUCell", "PLSTM", "PLSTMCell", "PLScan", "PLScanCell", "ParaGRU", "ParaGRUCell", "ParaLSTM", "ParaLSTMCell", "PhasedLSTM", "PhasedLSTMCell", "RGLRU", "RGLRUCell", "RMC", "RMCCell", "RNN", "RNNState", "SLSTM", "SLSTMCell", "SRU", "SRUCell", "SignedMinGRU", "SignedMinGRUCell", "SuRNN", "SuRNNCell", "URLSTM", "URLSTMCell", "URNN", "URNNCell", "accelerate", "explain", "free_memory", "load", "one_cell_per_layer", "restore", "results"]

class CfC(_CfC):
    """Closed-form continuous-time network: a gate of the elapsed time between two candidates. See `CfCCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: at once, but for what its recurrent weights carry on.
    Source: Hasani et al. 2022.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto') -> None: ...

class ChronoLSTM(_ChronoLSTM):
    """LSTM with chrono initialisation: forget bias ln U[1, T_max - 1], input bias its negative. See `LSTMCell`.

    Arguments: as `LSTM`, and
        T_max: the longest expected time scale, in steps. In a configuration, T_max="auto" is the task's horizon.

    Call: as `LSTM`.
    Forgets: exponentially; the initial time scales cover the range up to a longest delay.
    Source: Tallec & Ollivier 2018.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, T_max: float, frozen: Sequence[Any] = (), engine: str = 'auto') -> None: ...

class CoRNN(_CoRNN):
    """coRNN: coupled oscillators that the input drives. See `CoRNNCell`.

    Call: as `PLSTM`; the state has h and z, the velocity. A step has two products, for which there is no kernel, so
    engine="auto" is the eager engine.
    Forgets: as a damped oscillator, all units at one rate, which is not trained.
    Source: Rusch & Mishra 2021.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', delta: float = 0.042, gamma: float = 2.7, epsilon: float = 4.7) -> None: ...

class ELSTM(_ELSTM):
    """Exponential LSTM: units decay exponentially in the time since the previous step. See `ELSTMCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). See `RNN.forward`.
    Forgets: exponentially in the time since the previous step; `plstm` without its power law.
    Source: none; defined here.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', coupled: bool = True, forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class EURNN(_EURNN):
    """Tunable unitary RNN: complex units that a chain of rotations turns, and never shrinks. See `EURNNCell`.

    Call: as `GRU`; hidden_size is even, and the output has the real parts, then the imaginary ones. It has no kernel,
    so engine="auto" is the eager engine.
    Forgets: not at all: the recurrent matrix is unitary.
    Source: Jing et al. 2017.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', capacity: int = 2, style: str = 'tunable') -> None: ...

class ExpRNN(_ExpRNN):
    """Orthogonal recurrent network: the recurrent matrix is orthogonal. See `ExpRNNCell`.

    Call: as `GRU`.
    Forgets: not at all: the recurrent matrix is orthogonal.
    Source: Lezcano-Casado & Martínez-Rubio 2019.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', skew_init: str = 'cayley') -> None: ...

class GORU(_GORU):
    """Gated orthogonal recurrent unit: a GRU whose candidate turns the state by an orthogonal matrix. See `GORUCell`.

    Call: as `GRU`; dt is ignored.
    Forgets: exponentially, at a rate that it learns; its orthogonal matrix keeps the length of the state.
    Source: Jing et al. 2019.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', capacity: int = 2, style: str = 'tunable') -> None: ...

class GRU(_GRU):
    """Gated recurrent unit: torch.nn.GRU, with a choice of initializers. `GRUCell` has the equations and the arguments.

    It takes what torch.nn.GRU takes, in the same order, and has the same parameters and outputs.

    Call: `output, h_n = rnn(x, state=None, dt=None, mask=None)` with h_n (num_layers, B, hidden_size), as torch.nn.GRU;
    state is h_0. dt is ignored, so that layers can be swapped. See `RNN.forward`.
    Forgets: exponentially, at a rate that it learns.
    Source: Cho et al. 2014.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None) -> None: ...

class GRUD(_GRUD):
    """GRU for series with missing values, which fade with the time since they were seen. See `GRUDCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1). The state has h and, for each input
    with a flag, `last` and `since`, its last known number and the time since then.
    Forgets: exponentially, at a rate that it learns, and with the time that passes.
    Source: Che et al. 2018.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', flags: Sequence[Sequence[int]] = ()) -> None: ...

class GatedGRUCell(_GatedGRUCell):
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
    def __init__(self, input_size: int, hidden_size: int, *, gru_form: str = 'forget', gate: str = 'ur', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None, zoneout_h: float = 0.0, bias: bool = True) -> None: ...

class GatedLSTMCell(_GatedLSTMCell):
    """An LSTM with any of the gates of `GatedCell`, which has the table of the gates f and i and all other arguments.

        u = tanh(.)     o = sigmoid(.)          with . = gx + gh
        c' = f c + i u
        h' = o tanh(c')

    Arguments:
        zoneout_c: zoneout probability of the cell c, as zoneout_h for the output. Default: 0.

    With gate="ur" this is `URLSTMCell`. With "u" and "c" it is `LSTMCell` with the uniform and the chrono initializer.
    """
    def __init__(self, input_size: int, hidden_size: int, *, zoneout_c: float = 0.0, gate: str = 'ur', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None, zoneout_h: float = 0.0, bias: bool = True) -> None: ...

class GatedRNN(_GatedRNN):
    """LSTM or GRU with one of the nine gates of Gu et al. 2020. `GatedCell` has the table of gates and the arguments.

    Arguments: those of `GatedCell`, of the core's cell (`GatedLSTMCell`, `GatedGRUCell`), and
        core: "lstm" (default) or "gru".

    Call: as `LSTM`; with core="gru" as `GRU`.
    Forgets: with one of nine gating mechanisms, in an LSTM or a GRU.
    Source: Gu et al. 2020.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, core: str = 'lstm', engine: str = 'auto', zoneout_c: float = 0.0, gate: str = 'ur', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None, zoneout_h: float = 0.0, gru_form: str = 'forget') -> None: ...

class HGRN(_HGRN):
    """HGRN: a linear recurrence whose forget gate has a lower bound, larger in higher layers. See `HGRNCell`.

    Call: as `PLSTM`; the state has h and c.
    Forgets: exponentially, at a rate that the input sets, but no faster than a bound that is learned.
    Source: Qin et al. 2023.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto') -> None: ...

class IndRNN(_IndRNN):
    """IndRNN: each unit reads only its own output, by one weight. See `IndRNNCell`.

    Call: as `GRU`; dt is ignored.
    Forgets: exponentially, at a rate that is learned and does not depend on the input; at once where a ReLU is off.
    Source: Li et al. 2018.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', activation: str = 'relu', u_init: Sequence[float] = (0.0, 1.0)) -> None: ...

class JANET(_JANET):
    """JANET: an LSTM with only a forget gate. `JANETCell` has the equations and the arguments.

    Call: as `GRU`.
    Forgets: exponentially; the forget gate is the only gate.
    Source: van der Westhuizen & Lasenby 2018.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None, beta: float = 1.0) -> None: ...

class LEM(_LEM):
    """Long expressive memory: two coupled fields whose time steps the input sets. See `LEMCell`.

    Call: as `PLSTM`; the state has h and z. A step has two products, for which there is no kernel, so engine="auto" is
    the eager engine.
    Forgets: exponentially, at a rate that it learns, in two fields.
    Source: Rusch et al. 2022.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', delta: float = 1.0) -> None: ...

class LRU(_LRU):
    """Linear recurrent unit: damped oscillators that the input drives, without gates. See `LRUCell`.

    Call: as `PLSTM`; the state has h, the real part, and `imaginary`.
    Forgets: exponentially, at a rate that is learned and does not depend on the input; units oscillate.
    Source: Orvieto et al. 2023.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', r_min: float = 0.0, r_max: float = 1.0, max_phase: float = 6.283185307179586) -> None: ...

class LSTM(_LSTM):
    """Long short-term memory: torch.nn.LSTM, with initializers for the forget bias. `LSTMCell` has the equations.

    It takes what torch.nn.LSTM takes, in the same order, and has the same parameters and outputs.

    Arguments: as `CellRNN`, and proj_size as torch.nn.LSTM. If forget_init is a list, it has one initializer per layer.
    If frozen is a list of lists, it has one list of names of gates per layer.
    Call: `output, (h_n, c_n) = rnn(x, state=None, dt=None, mask=None)` with x (S, B, input_size), output
    (S, B, hidden_size), and h_n and c_n (num_layers, B, hidden_size), as torch.nn.LSTM; state is (h_0, c_0). If the
    layers differ in size, the state is an `RNNState`: state.h and state.c have one tensor per layer. dt is ignored, so
    that layers can be swapped. See `RNN.forward`.
    Forgets: exponentially, at a rate that it learns.
    Source: Hochreiter & Schmidhuber 1997.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, forget_init: ForgetInit | Sequence[ForgetInit] = None, frozen: Sequence[Any] = (), engine: str = 'auto') -> None: ...

class LeakyRNN(_LeakyRNN):
    """Leaky RNN: leaky integrators, each with a learned time constant. See `LeakyRNNCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially; each unit has one time constant, which is learned.
    Source: Khajehabdollahi et al. 2024.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', T_max: float = 10.0) -> None: ...

class MTSLSTM(_MTSLSTM):
    """Multi-timescale LSTM: an LSTM whose time scales are assigned to its units and not trained. See `LSTMCell`.

    With one layer, the time scales are quantiles of InvGamma(alpha, scale). With three layers, the first has T = 3 and
    T = 4 for half of the units each, the second the quantiles, and the third is a plain LSTM layer. The forget bias
    follows from T by Eq. 5 of the paper, and the input bias is its negative. For another number of layers, give `LSTM`
    lists for forget_init and frozen.

    Arguments: as `LSTM`, with num_layers 1 (default) or 3, and
        alpha, scale: shape and scale of the inverse gamma distribution. Defaults: 0.56 and 1.
        freeze_gates: gates whose biases are not trained: "if" (input and forget, default) or "ifgo" (all).
        layer1_bias: forget bias of the first of three layers, "eq5" (default) or "log_t_minus_1".
        quantiles: "interior" (default) or "authors"; see `timescales.nn.inits.InverseGamma`.
        layer1_timescale, layer3_timescale: time scale (in steps) of all units of the first and third of three layers,
            fixed. Default: None, as above.

    Call: as `LSTM`.
    Forgets: exponentially; every unit has a fixed time scale.
    Source: Mahto et al. 2021.
    Differs: the authors' code freezes the biases of all four gates (freeze_gates="ifgo"; the paper: "if"). The
    published run used ln(T - 1) in layer 1 (layer1_bias="log_t_minus_1"), and T = 0 for the last unit of the quantiles
    (quantiles="authors"). For Dyck-2 their code also sets the cell and output rows of bias_ih to zero before it freezes
    them; here they keep their random values.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, alpha: float = 0.56, scale: float = 1.0, freeze_gates: str = 'if', layer1_bias: str = 'eq5', quantiles: str = 'interior', layer1_timescale: float | None = None, layer3_timescale: float | None = None, engine: str = 'auto') -> None: ...

class MinGRU(_MinGRU):
    """minGRU: a GRU whose gates read only the input. See `MinGRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially; the gate reads only the input, as all gates of the next three do.
    Source: Feng et al. 2024.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class MinLSTM(_MinLSTM):
    """minLSTM: an LSTM whose gates read only the input and add up to 1. See `MinLSTMCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially; forget and input gate are divided by their sum.
    Source: Feng et al. 2024.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class NRU(_NRU):
    """Non-saturating recurrent unit: a memory that is written and erased by addition, without gates. See `NRUCell`.

    Call: as `GRU`; the state has h and `memory`, (num_layers, B, memory_size). dt is ignored. Its matrices have no
    kernel, so engine="auto" is the eager engine.
    Forgets: only what it subtracts; nothing decays.
    Source: Chandar et al. 2019.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', memory_size: int = 64, heads: int = 4) -> None: ...

class PGRU(_PGRU):
    """Power-law GRU: a GRU with the power-law gate of `PLSTM`. See `PGRUCell`.

    Call: as `PLSTM`; the state has h and age.
    Forgets: as in `plstm`, in a GRU.
    Source: none; defined here.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class PLSTM(_PLSTM):
    """Power-law LSTM: a unit forgets as a power of the time since its last reset. See `PLSTMCell`.

    Call: `output, state = rnn(x, state=None, dt=None, mask=None)` with x (S, B, input_size), output
    (S, B, hidden_size) and dt (S, B), the time since the previous step (default: 1). The state is an `RNNState`:
    state.h, state.c and state.age, each (num_layers, B, hidden_size). See `RNN.forward`.
    Forgets: as a power of the time since the unit was last reset.
    Source: Chien et al. 2021.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', coupled: bool = True, epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class PLSTMCell(_PLSTMCell):
    """Power-law LSTM. The state has the age d of each unit: the time since its last reset.

        r, o = sigmoid(gx + gh)     g = tanh(gx + gh)     p = sigmoid(power), one exponent per unit
        d' = (1 - r)(d + dt)
        L  = max(0, ln((d' + 1) / ((1 - r)(d + 1) + epsilon)))
        f  = exp(-p L)
        i  = 1 - f (coupled), or a separate sigmoid gate
        c' = f c + i g
        h' = o tanh(c')

    gx and gh are each gate's rows of the input projection and of the recurrent projection, with biases. With dt = 1
    this is f = ((d' + 1) / (d' + epsilon))^-p. A full reset (r = 1) gives f = epsilon^p, not 0.

    Arguments:
        input_size, hidden_size: sizes I and H.
        coupled: whether the input gate is 1 - f. Default: True.
        epsilon: between 0 and 1. Default: 0.001.
        power: "learned" (default), or one number above 0, the fixed exponent p of all units. It may exceed 1.
        power_init: (low, high), the interval of the initial p. Default: (0, 1).
        epsilon_form: "paper" (default) or "authors", see below.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); p uniform on `power_init`, clamped to [1e-4, 1 - 1e-4].
    Source: Chien, Turek, Beckage, Vo, Honey & Willke 2021 ("Slower is Better"), Eqs. 4-8; appendix A.1 for variable
    dt. The paper uses the reference time k_t = r t + (1 - r) k_{t-1}; here the state is the age d = t - k. The two
    forms are equivalent, since the absolute time t cancels.
    Precision: in float32 the error that a step adds to f and to the age is below 2^-21 (5e-7) of them, at any age and
    reset gate.
    Differences from the paper: epsilon_form="authors" is the released code, which resets the age to epsilon and also
    adds epsilon to the ratio. L is clamped at 0, because dt < epsilon would give f > 1.
    """
    def __init__(self, input_size: int, hidden_size: int, *, coupled: bool = True, epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper', bias: bool = True) -> None: ...

class PLScan(_PLScan):
    """Power-law scan: a power-law LSTM whose gates read only the input. See `PLScanCell`.

    Call: as `PLSTM`; the state has h, c and age.
    Forgets: as in `plstm`.
    Source: none; defined here.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class ParaGRU(_ParaGRU):
    """ParaGRU: a GRU whose units read only their own output. See `ParaGRUCell`.

    Call: as `GRU`; dt is ignored.
    Forgets: exponentially, at a rate that it learns; the gate reads the unit's own output.
    Source: Danieli et al. 2025.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None) -> None: ...

class ParaLSTM(_ParaLSTM):
    """ParaLSTM: an LSTM with peepholes whose units read only their own output. See `ParaLSTMCell`.

    Call: as `LSTM`; dt is ignored.
    Forgets: exponentially, at a rate that it learns; the gate reads the unit's own output and cell.
    Source: Danieli et al. 2025.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None) -> None: ...

class PhasedLSTM(_PhasedLSTM):
    """Phased LSTM: an LSTM whose units are updated only in the open phase of a clock. See `PhasedLSTMCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). The state has h, c and `time`, the
    time since the start, which goes on where a state is carried.
    Forgets: exponentially while a unit's clock is open, and hardly at all while it is closed.
    Source: Neil et al. 2016.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', period_init: Sequence[float] = (0.0, 3.0), shift_init: Sequence[float] | None = None, open_ratio: float = 0.05, train_open_ratio: bool = False, leak: float = 0.001, peephole: bool = True) -> None: ...

class RGLRU(_RGLRU):
    """RG-LRU: a diagonal linear recurrence, whose decay a gate of the input sets. See `RGLRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially, at a rate that is learned and that the input slows down.
    Source: De et al. 2024.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', c: float = 8.0, decay_init: Sequence[float] = (0.9, 0.999), signed: bool = False) -> None: ...

class RMC(_RMC):
    """Relational memory core: memories that attend to each other, each behind a gate. See `RMCCell`.

    Call: as `GRU`. Without a state the memories start as rows of the identity matrix, not as zeros. Attention has no
    kernel, so engine="auto" is the eager engine.
    Forgets: with one of the nine gating mechanisms, in memories that attend to each other.
    Source: Santoro et al. 2018; gates of Gu et al. 2020.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', memories: int = 2, heads: int = 1, memory_size: int | None = None, key_size: int | None = None, blocks: int = 1, gate: str = '-', gate_style: str = 'unit', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None) -> None: ...

class SLSTM(_SLSTM):
    """sLSTM: an LSTM with exponential gates, whose cell is a weighted mean. See `SLSTMCell`.

    Call: as `PLSTM`; the state has h, c and log_n. Without a state log_n starts at -8192, where nothing was written.
    dt is ignored.
    Forgets: exponentially, at a rate that it learns; where its forget gate is 1, as 1 / t.
    Source: Beck et al. 2024.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', heads: int = 1, forget: str = 'sigmoid', forget_init: ForgetInit = None) -> None: ...

class SRU(_SRU):
    """Statistical recurrent unit: moving averages of learned statistics, at several fixed rates. See `SRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1). The state has h and `averages`. Its
    matrices have no kernel, so engine="auto" is the eager engine.
    Forgets: exponentially, at several fixed rates at once.
    Source: Oliva et al. 2017.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', statistics: int | None = None, summary: int | None = None, alphas: Sequence[float] = (0.0, 0.25, 0.5, 0.9, 0.99)) -> None: ...

class SignedMinGRU(_SignedMinGRU):
    """Signed minGRU: a minGRU whose units may change their sign in a step. See `SignedMinGRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially, as `mingru`; a unit's value may change its sign.
    Source: Grazzi et al. 2024; Feng et al. 2024.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class SuRNN(_SuRNN):
    """suRNN: a plain RNN whose units each follow a learned schedule of updates. See `SuRNNCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). The state has h and `time`, the time
    since the start, which goes on where a state is carried.
    Forgets: a unit keeps its value unchanged until its next update, whose times are learned.
    Source: Yin et al. 2026.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto', periods: Sequence[float] = (4.0, 16.0, 64.0, 256.0)) -> None: ...

class URLSTM(_URLSTM):
    """UR-LSTM: an LSTM with uniform gate initialisation and a refine gate. See `URLSTMCell`.

    Arguments: as `LSTM`; forget_init is "uniform" by default.
    Call: as `LSTM`.
    Forgets: exponentially; initial forget gates are uniform between 0 and 1, and a refine gate adjusts the forget gate.
    Source: Gu et al. 2020, listing 2.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, forget_init: ForgetInit | Sequence[ForgetInit] = None, frozen: Sequence[Any] = (), engine: str = 'auto') -> None: ...

class URNN(_URNN):
    """Unitary evolution RNN: complex units that a unitary matrix turns, and never shrinks. See `URNNCell`.

    Call: as `GRU`; hidden_size is even, and the output has the real parts, then the imaginary ones. Without a state it
    starts from a learned state. It has no kernel, so engine="auto" is the eager engine.
    Forgets: not at all: the recurrent matrix is unitary.
    Source: Arjovsky et al. 2016.
    """
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, engine: str = 'auto') -> None: ...
