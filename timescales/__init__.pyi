"""The public names, for editors and type checkers. Written by scripts/stub.py: `make stub`."""

from collections.abc import Sequence
from typing import Any

from timescales.nn.inits import ForgetInit
from timescales.nn.cells.cell import Cell as Cell
from timescales.nn.rnn import CellRNN as CellRNN
from timescales.nn.cells.chrono import ChronoLSTM as _ChronoLSTM
from timescales.nn.cells.elstm import ELSTM as _ELSTM
from timescales.nn.cells.elstm import ELSTMCell as ELSTMCell
from timescales.nn.cells.exprnn import ExpRNN as _ExpRNN
from timescales.nn.cells.exprnn import ExpRNNCell as ExpRNNCell
from timescales.nn.cells.gru import GRU as _GRU
from timescales.nn.cells.gru import GRUCell as GRUCell
from timescales.nn.cells.gated import GatedGRUCell as _GatedGRUCell
from timescales.nn.cells.gated import GatedLSTMCell as _GatedLSTMCell
from timescales.nn.cells.gated import GatedRNN as _GatedRNN
from timescales.nn.cells.indrnn import IndRNN as _IndRNN
from timescales.nn.cells.indrnn import IndRNNCell as IndRNNCell
from timescales.nn.cells.janet import JANET as _JANET
from timescales.nn.cells.janet import JANETCell as JANETCell
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
from timescales.nn.cells.pgru import PGRU as _PGRU
from timescales.nn.cells.pgru import PGRUCell as PGRUCell
from timescales.nn.cells.plstm import PLSTM as _PLSTM
from timescales.nn.cells.plstm import PLSTMCell as _PLSTMCell
from timescales.nn.cells.plscan import PLScan as _PLScan
from timescales.nn.cells.plscan import PLScanCell as PLScanCell
from timescales.nn.cells.rmc import RMC as _RMC
from timescales.nn.cells.rmc import RMCCell as RMCCell
from timescales.nn.rnn import RNN as RNN
from timescales.nn.state import RNNState as RNNState
from timescales.nn.cells.ur import URLSTM as _URLSTM
from timescales.nn.cells.ur import URLSTMCell as URLSTMCell
from timescales.nn.explain import explain as explain
from timescales.nn.engine.cpu.workspace import free_memory as free_memory
from timescales.nn.rnn import one_cell_per_layer as one_cell_per_layer
from timescales.reports.frames import results as results

__version__: str
__all__ = ["__version__", "Cell", "CellRNN", "ChronoLSTM", "ELSTM", "ELSTMCell", "ExpRNN", "ExpRNNCell", "GRU", "GRUCell", "GatedGRUCell", "GatedLSTMCell", "GatedRNN", "IndRNN", "IndRNNCell", "JANET", "JANETCell", "LRU", "LRUCell", "LSTM", "LSTMCell", "LeakyRNN", "LeakyRNNCell", "MTSLSTM", "MinGRU", "MinGRUCell", "MinLSTM", "MinLSTMCell", "PGRU", "PGRUCell", "PLSTM", "PLSTMCell", "PLScan", "PLScanCell", "RMC", "RMCCell", "RNN", "RNNState", "URLSTM", "URLSTMCell", "explain", "free_memory", "one_cell_per_layer", "results"]

class ChronoLSTM(_ChronoLSTM):
    """LSTM with chrono initialisation: forget bias ln U[1, T_max - 1], input bias its negative. See `LSTMCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, T_max: float, frozen: Sequence[Any] = (), batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto') -> None: ...

class ELSTM(_ELSTM):
    """Exponential LSTM: units decay exponentially in the time since the previous step. See `ELSTMCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', coupled: bool = True, forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class ExpRNN(_ExpRNN):
    """Orthogonal recurrent network: the recurrent matrix is orthogonal. See `ExpRNNCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', skew_init: str = 'cayley') -> None: ...

class GRU(_GRU):
    """Gated recurrent unit. It equals torch.nn.GRU. `GRUCell` has the equations and the arguments."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', forget_init: ForgetInit = None) -> None: ...

class GatedGRUCell(_GatedGRUCell):
    """A GRU with one of the gates of `GatedCell` as its update gate. `GatedCell` has the table and all other arguments."""
    def __init__(self, input_size: int, hidden_size: int, *, gru_form: str = 'forget', gate: str = 'ur', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None, zoneout_h: float = 0.0) -> None: ...

class GatedLSTMCell(_GatedLSTMCell):
    """An LSTM with any of the gates of `GatedCell`, which has the table of the gates f and i and all other arguments."""
    def __init__(self, input_size: int, hidden_size: int, *, zoneout_c: float = 0.0, gate: str = 'ur', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None, zoneout_h: float = 0.0) -> None: ...

class GatedRNN(_GatedRNN):
    """LSTM or GRU with one of the nine gates of Gu et al. 2020. `GatedCell` has the table of gates and the arguments."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, core: str = 'lstm', batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', zoneout_c: float = 0.0, gate: str = 'ur', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None, zoneout_h: float = 0.0, gru_form: str = 'forget') -> None: ...

class IndRNN(_IndRNN):
    """IndRNN: each unit reads its own output alone, by one weight. See `IndRNNCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', activation: str = 'relu', u_init: Sequence[float] = (0.0, 1.0)) -> None: ...

class JANET(_JANET):
    """JANET: an LSTM with only a forget gate. `JANETCell` has the equations and the arguments."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None, beta: float = 1.0) -> None: ...

class LRU(_LRU):
    """Linear recurrent unit: damped oscillators that the input drives, without gates. See `LRUCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', r_min: float = 0.0, r_max: float = 1.0, max_phase: float = 6.283185307179586) -> None: ...

class LSTM(_LSTM):
    """Long short-term memory with a choice of initializers for the forget bias. `LSTMCell` has the equations."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, forget_init: ForgetInit | Sequence[ForgetInit] = None, frozen: Sequence[Any] = (), batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto') -> None: ...

class LeakyRNN(_LeakyRNN):
    """Leaky RNN: leaky integrators, each with a learned time constant. See `LeakyRNNCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', T_max: float = 10.0) -> None: ...

class MTSLSTM(_MTSLSTM):
    """Multi-timescale LSTM: an LSTM whose time scales are assigned to its units and not trained. See `LSTMCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, alpha: float = 0.56, scale: float = 1.0, freeze_gates: str = 'if', layer1_bias: str = 'eq5', quantiles: str = 'interior', layer1_timescale: float | None = None, layer3_timescale: float | None = None, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto') -> None: ...

class MinGRU(_MinGRU):
    """minGRU: a GRU whose gates read the input alone. See `MinGRUCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class MinLSTM(_MinLSTM):
    """minLSTM: an LSTM whose gates read the input alone and add up to 1. See `MinLSTMCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', forget_init: ForgetInit = None, T_max: float | None = None) -> None: ...

class PGRU(_PGRU):
    """Power-law GRU: a GRU with the power-law gate of `PLSTM`. See `PGRUCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class PLSTM(_PLSTM):
    """Power-law LSTM: a unit forgets as a power of the time since its last reset. See `PLSTMCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', coupled: bool = True, epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class PLSTMCell(_PLSTMCell):
    """Power-law LSTM. The state has the age d of each unit: the time since its last reset."""
    def __init__(self, input_size: int, hidden_size: int, *, coupled: bool = True, epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class PLScan(_PLScan):
    """Power-law scan: a power-law LSTM whose gates read the input alone. See `PLScanCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', epsilon: float = 0.001, power: str | float = 'learned', power_init: Sequence[float] = (0.0, 1.0), epsilon_form: str = 'paper') -> None: ...

class RMC(_RMC):
    """Relational memory core: memories that attend to each other, each behind a gate. See `RMCCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto', memories: int = 2, heads: int = 1, memory_size: int | None = None, key_size: int | None = None, blocks: int = 1, gate: str = '-', gate_style: str = 'unit', forget_bias: float = 1.0, T_max: str | float = 'hidden_size', downsize: int = 16, train_bias: bool = True, subtract_bias: bool | None = None) -> None: ...

class URLSTM(_URLSTM):
    """UR-LSTM: an LSTM with uniform gate initialisation and a refine gate. See `URLSTMCell`."""
    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, *, forget_init: ForgetInit | Sequence[ForgetInit] = None, frozen: Sequence[Any] = (), batch_first: bool = False, dropout: float = 0.0, engine: str = 'auto') -> None: ...
