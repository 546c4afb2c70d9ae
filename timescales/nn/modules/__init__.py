"""The modules of the library, one file per family. They are used like torch.nn.LSTM.

    rnn = PLSTM(10, 128, num_layers=2)
    output, state = rnn(x)                  # x (S, B, 10), output (S, B, 128); state.h, state.c, state.age (2, B, 128)
    output, state = rnn(x, state, dt, mask)

    lstm = LSTM(10, 128, num_layers=2)
    output, (h_n, c_n) = lstm(x)            # as torch.nn.LSTM

All modules take torch.nn.LSTM's arguments input_size, hidden_size, num_layers, batch_first and dropout, and `engine`;
those after num_layers by name:

    input_size: number of input features.
    hidden_size: number of units of each layer: one number, or a list with one per layer.
    num_layers: number of layers. Default: 1.
    batch_first: if True, x, output, dt and mask are (B, S, ...). Default: False.
    dropout: dropout probability between the layers, in training. Default: 0.
    engine: the time loop; see `RNN`. Default: "auto", the fastest one available.

`RNN.forward` describes the call: inputs, outputs and their shapes. The cells (`timescales.nn.cells`) have the
equations. All modules raise ValueError for a value out of range and for an argument that only torch.nn.LSTM has; the
message says what to do instead.
"""

from timescales.nn.modules.elstm import ELSTM
from timescales.nn.modules.exprnn import ExpRNN
from timescales.nn.modules.gated import GatedRNN
from timescales.nn.modules.gru import GRU, JANET
from timescales.nn.modules.leaky import LeakyRNN
from timescales.nn.modules.lru import LRU
from timescales.nn.modules.lstm import LSTM, MTSLSTM, URLSTM, ChronoLSTM
from timescales.nn.modules.mingru import MinGRU
from timescales.nn.modules.minlstm import MinLSTM
from timescales.nn.modules.plscan import PLScan
from timescales.nn.modules.plstm import PGRU, PLSTM
from timescales.nn.modules.rmc import RMC

__all__ = [
    "ELSTM",
    "GRU",
    "JANET",
    "LRU",
    "LSTM",
    "MTSLSTM",
    "PGRU",
    "PLSTM",
    "RMC",
    "URLSTM",
    "ChronoLSTM",
    "ExpRNN",
    "GatedRNN",
    "LeakyRNN",
    "MinGRU",
    "MinLSTM",
    "PLScan",
]
