"""List the models, one line each: `MODELS` are made of cells, `BASELINES` are not.

Everything that needs the names of all models reads them here: exports, pages, pictures, tables of sizes, tests. This
module imports nothing, so names and colours are known without torch.
"""

from typing import NamedTuple

# Families. FIVE: the models that the papers compare. SCAN: cells whose gates read only the input. OTHER: cells with a
# computed recurrent matrix, attention, or averages instead of recurrent weights. BASELINE: models that are not made of
# cells. DEEP: baselines in which each layer doubles the reach, so their number of layers follows the sequence length.
FIVE, GATED, SCAN, OTHER, BASELINE, DEEP = "five", "gated", "scan", "other", "baseline", "deep"


class Model(NamedTuple):
    """A model.

    name: `model=NAME` of the command line, conf/model/NAME.yaml, and docs/models/NAME.md.
    layer: its class, in nn/cells/NAME.py, or for a baseline in models/baselines.py.
    cells: the classes with its equations, in the same file or in that of another model.
    colour: in pictures.
    family: see above.
    """

    name: str
    layer: str
    cells: tuple[str, ...]
    colour: str
    family: str

    @property
    def module(self) -> str:
        """Return the module that defines the layer."""
        return "timescales.models.baselines" if self.family in (BASELINE, DEEP) else f"timescales.nn.cells.{self.name}"


MODELS = (
    Model("lstm", "LSTM", ("LSTMCell",), "#666666", FIVE),
    Model("chrono", "ChronoLSTM", ("LSTMCell",), "#2471a3", FIVE),
    Model("ur", "URLSTM", ("URLSTMCell",), "#8e44ad", FIVE),
    Model("mts", "MTSLSTM", ("LSTMCell",), "#1e8449", FIVE),
    Model("plstm", "PLSTM", ("PLSTMCell",), "#c0392b", FIVE),
    Model("gated", "GatedRNN", ("GatedLSTMCell", "GatedGRUCell"), "#8e44ad", GATED),
    Model("gru", "GRU", ("GRUCell",), "#a0522d", GATED),
    Model("pgru", "PGRU", ("PGRUCell",), "#e67e22", GATED),
    Model("janet", "JANET", ("JANETCell",), "#16a085", GATED),
    Model("elstm", "ELSTM", ("ELSTMCell",), "#b7950b", GATED),
    Model("leaky", "LeakyRNN", ("LeakyRNNCell",), "#117a65", GATED),
    Model("mingru", "MinGRU", ("MinGRUCell",), "#6e2c00", SCAN),
    Model("minlstm", "MinLSTM", ("MinLSTMCell",), "#1a5276", SCAN),
    Model("plscan", "PLScan", ("PLScanCell",), "#ec7063", SCAN),
    Model("lru", "LRU", ("LRUCell",), "#00b8d4", SCAN),
    Model("indrnn", "IndRNN", ("IndRNNCell",), "#5d8aa8", SCAN),
    Model("phased", "PhasedLSTM", ("PhasedLSTMCell",), "#d68910", GATED),
    Model("nru", "NRU", ("NRUCell",), "#7d6608", GATED),
    Model("sru", "SRU", ("SRUCell",), "#af7ac5", OTHER),
    Model("urnn", "URNN", ("URNNCell",), "#4a235a", OTHER),
    Model("eurnn", "EURNN", ("EURNNCell",), "#839192", OTHER),
    Model("goru", "GORU", ("GORUCell",), "#196f3d", GATED),
    Model("exprnn", "ExpRNN", ("ExpRNNCell",), "#7f8c8d", OTHER),
    Model("rmc", "RMC", ("RMCCell",), "#2c3e8f", OTHER),
    Model("slstm", "SLSTM", ("SLSTMCell",), "#d68910", GATED),
    Model("rglru", "RGLRU", ("RGLRUCell",), "#3949ab", SCAN),
    Model("signed_mingru", "SignedMinGRU", ("SignedMinGRUCell",), "#af601a", SCAN),
    Model("lem", "LEM", ("LEMCell",), "#7d3c98", GATED),
    Model("cornn", "CoRNN", ("CoRNNCell",), "#45b39d", GATED),
    Model("cfc", "CfC", ("CfCCell",), "#2980b9", GATED),
    Model("paragru", "ParaGRU", ("ParaGRUCell",), "#9a7d0a", SCAN),
    Model("paralstm", "ParaLSTM", ("ParaLSTMCell",), "#6c3483", SCAN),
    Model("hgrn", "HGRN", ("HGRNCell",), "#229954", SCAN),
    Model("grud", "GRUD", ("GRUDCell",), "#cb4335", GATED),
    Model("surnn", "SuRNN", ("SuRNNCell",), "#5b2c6f", GATED),
)
BASELINES = (
    Model("torch_lstm", "TorchLSTM", (), "#212f3c", BASELINE),
    Model("torch_gru", "TorchGRU", (), "#935116", BASELINE),
    Model("transformer", "Transformer", (), "#2e86c1", BASELINE),
    Model("dilated", "DilatedRNN", (), "#52be80", DEEP),
    Model("tcn", "TCN", (), "#dc7633", DEEP),
    Model("trellis", "TrellisNet", (), "#a569bd", DEEP),
)
BY_NAME = {model.name: model for model in (*MODELS, *BASELINES)}


def modules() -> dict[str, str]:
    """Return the module of each layer and each cell, by the name of the class."""
    layers = {model.layer: model.module for model in MODELS}
    return layers | {cell: model.module for model in reversed(MODELS) for cell in model.cells}
