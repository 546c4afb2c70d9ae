"""Every cell with several arguments, and random inputs and states for it."""

import reference
import torch

from timescales.nn import cells, registry
from timescales.nn.cells import (
    ELSTMCell,
    ExpRNNCell,
    GatedGRUCell,
    GatedLSTMCell,
    GRUCell,
    JANETCell,
    LeakyRNNCell,
    LRUCell,
    LSTMCell,
    MinGRUCell,
    MinLSTMCell,
    NRUCell,
    PGRUCell,
    PhasedLSTMCell,
    PLScanCell,
    PLSTMCell,
    RMCCell,
    URLSTMCell,
)
from timescales.nn.engine import eager

S, B, I, H = 7, 3, 4, 6  # noqa: E741


CELLS = {
    "lstm": (LSTMCell, {}),
    "lstm_bias_1": (LSTMCell, {"forget_init": 1.0}),
    "lstm_frozen": (LSTMCell, {"forget_init": 2.0, "frozen": ("forget", "output")}),
    "lstm_uniform": (LSTMCell, {"forget_init": "uniform"}),
    "chrono": (LSTMCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "mts": (LSTMCell, {"forget_init": {"law": "inverse_gamma"}, "frozen": ("input", "forget")}),
    "ur": (URLSTMCell, {}),
    "refine_only": (URLSTMCell, {"forget_init": "default"}),
    "ur_chrono": (URLSTMCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "ur_frozen": (URLSTMCell, {"forget_init": 1.0, "frozen": ("forget", "refine")}),
    "plstm": (PLSTMCell, {}),
    "plstm_separate": (PLSTMCell, {"coupled": False}),
    "plstm_fixed_p": (PLSTMCell, {"power": 1.7}),
    "plstm_small_epsilon": (PLSTMCell, {"epsilon": 1e-5, "power_init": (0.1, 0.4)}),
    "plstm_authors": (PLSTMCell, {"epsilon_form": "authors"}),
    "plstm_authors_separate": (PLSTMCell, {"epsilon_form": "authors", "coupled": False}),
    "gru": (GRUCell, {}),
    "gru_chrono": (GRUCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "pgru": (PGRUCell, {}),
    "pgru_fixed_p": (PGRUCell, {"power": 0.3, "epsilon": 0.1}),
    "janet": (JANETCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "janet_tied": (JANETCell, {"beta": 0.0}),
    "elstm": (ELSTMCell, {}),
    "elstm_separate": (ELSTMCell, {"coupled": False, "forget_init": {"law": "chrono", "T_max": 30}}),
    "leaky": (LeakyRNNCell, {"T_max": 30}),
    "mingru": (MinGRUCell, {}),
    "mingru_chrono": (MinGRUCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "minlstm": (MinLSTMCell, {}),
    "minlstm_chrono": (MinLSTMCell, {"forget_init": {"law": "chrono", "T_max": 30}}),
    "plscan": (PLScanCell, {}),
    "plscan_fixed_p": (PLScanCell, {"power": 1.7, "epsilon": 0.1}),
    "lru": (LRUCell, {}),
    "lru_ring": (LRUCell, {"r_min": 0.9, "r_max": 0.99, "max_phase": 0.3}),
    "phased": (PhasedLSTMCell, {"open_ratio": 0.5}),  # a steeper clock magnifies errors of the phase
    "nru": (NRUCell, {"memory_size": 8, "heads": 2}),
    "exprnn": (ExpRNNCell, {}),
    "exprnn_henaff": (ExpRNNCell, {"skew_init": "henaff"}),
}


for gate in reference.GATES_OF_GU:
    CELLS[f"gated_lstm_{gate}"] = (GatedLSTMCell, {"gate": gate, "downsize": 1, "T_max": 30})
    CELLS[f"gated_gru_{gate}"] = (GatedGRUCell, {"gate": gate, "downsize": 1, "T_max": "unknown"})


CELLS["gated_gru_update"] = (GatedGRUCell, {"gate": "ur", "gru_form": "update"})


CELLS["rmc"] = (RMCCell, {"heads": 3})
CELLS["rmc_memory"] = (RMCCell, {"gate_style": "memory", "memories": 3, "blocks": 2})
CELLS["rmc_one"] = (RMCCell, {"memories": 1, "heads": 2, "key_size": 4, "gate": "r", "forget_bias": 0.5})
for gate in ("c", "o", "u", "om", "um", "or", "ur"):
    CELLS[f"rmc_{gate}"] = (RMCCell, {"gate": gate, "downsize": 1, "T_max": 30})
CELLS["rmc_om_3"] = (RMCCell, {"memories": 1, "gate": "om", "downsize": 3})


for model in registry.MODELS:  # with its default arguments, where there is no case yet
    if not any(kind.__name__ in model.cells for kind, _ in CELLS.values()):
        CELLS[model.name] = (getattr(cells, model.cells[0]), {})


RMCS = [name for name in CELLS if name.startswith("rmc")]


PLSTMS = [name for name in CELLS if name.startswith("plstm")]


SCANS = [name for name, (kind, _) in CELLS.items() if not kind.recurrent]


PAPER_PLSTMS = [name for name in PLSTMS if "authors" not in name]


def build(name, seed=0, shape=(I, H), dtype=torch.float64):
    """A cell with every parameter moved well away from its init (p̂ and the frozen gates' values included)."""
    kind, arguments = CELLS[name]
    torch.manual_seed(seed)
    cell = kind(*shape, **arguments).to(dtype)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter))
    return cell


def reads_dt(name):
    """Whether a step depends on the time since the one before."""
    cell = build(name)
    dt = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    gx = torch.ones(1, sum(map(cell.height, cell.gates)), dtype=torch.float64, requires_grad=True)
    after = cell.step(*shares(cell, gx, gx), random_state(cell, 1), dt)
    return torch.autograd.grad(sum(v.sum() for v in after), dt, allow_unused=True)[0] is not None


def random_state(cell, *batch, seed=1):
    g = torch.Generator().manual_seed(seed)
    draw = {
        name: torch.randn(*batch, cell.width(name), generator=g, dtype=torch.float64) for name in cell.State._fields
    }
    if "age" in draw:
        draw["age"] = 5.0 * draw["age"].abs()
    return cell.State(**draw)


def random_input(seed=2, shape=(S, B), size=I, tiny_dt=True):
    """x, and dt between .05 and 4 with two steps far below any epsilon, and a mask."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, size, generator=g, dtype=torch.float64)
    dt = 0.05 + 3.95 * torch.rand(*shape, generator=g, dtype=torch.float64)
    if tiny_dt:
        dt[2, 0], dt[4, 1] = 0.0, 1e-7
    mask = torch.rand(*shape, generator=g) < 0.7
    return x, dt, mask


def shares(cell, gx, gh):
    """The arguments gx and gh of a step: a scan cell gets None as gh."""
    return (gx, gh) if cell.recurrent else (gx, None)


def run(cell, x, state=None, dt=None, mask=None):
    state = cell.initial_state(*x.shape[1:-1]) if state is None else state
    return eager.run(cell, x, cell.weights(), state, dt, mask)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def close_state(a, b, tolerance=1e-12):
    assert a._fields == b._fields
    for x, y in zip(a, b, strict=True):
        close(x, y, tolerance)


TIMED = [name for name in CELLS if reads_dt(name)]
