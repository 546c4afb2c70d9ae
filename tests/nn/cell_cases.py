"""Cells with several arguments, and random inputs and states for them."""

import numpy as np
import torch
from scipy import stats

from timescales.nn import cells, registry
from timescales.nn.engine import eager

S, B, I, H = 7, 3, 4, 6  # noqa: E741
CHRONO = {"forget_init": {"law": "chrono", "T_max": 30}}

# One case of every class.
CELLS = {
    "lstm": (cells.LSTMCell, {}), "ur": (cells.URLSTMCell, {}),
    "plstm": (cells.PLSTMCell, {}), "gru": (cells.GRUCell, {}),
    "pgru": (cells.PGRUCell, {}), "janet": (cells.JANETCell, CHRONO),
    "elstm": (cells.ELSTMCell, {}), "leaky": (cells.LeakyRNNCell, {"T_max": 30}),
    "mingru": (cells.MinGRUCell, {}), "minlstm": (cells.MinLSTMCell, {}),
    "plscan": (cells.PLScanCell, {}), "lru": (cells.LRUCell, {}),
    "phased": (cells.PhasedLSTMCell, {"open_ratio": 0.5}),  # a steeper clock magnifies errors of the phase
    "nru": (cells.NRUCell, {"memory_size": 8, "heads": 2}),
    "gated_lstm_om": (cells.GatedLSTMCell, {"gate": "om", "downsize": 1}),
    "gated_gru_ur": (cells.GatedGRUCell, {"gate": "ur"}), "rmc": (cells.RMCCell, {"heads": 3}),
}  # fmt: skip
for model in registry.MODELS:  # with its default arguments, where there is no case yet
    if not any(kind.__name__ in model.cells for kind, _ in CELLS.values()):
        CELLS[model.name] = (getattr(cells, model.cells[0]), {})

# Other arguments, which change the equations.
VARIANTS = {
    "lstm_frozen": (cells.LSTMCell, {"forget_init": 2.0, "frozen": ("forget", "output")}),
    "lstm_uniform": (cells.LSTMCell, {"forget_init": "uniform"}),
    "mts": (cells.LSTMCell, {"forget_init": {"law": "inverse_gamma"}, "frozen": ("input", "forget")}),
    "refine_only": (cells.URLSTMCell, {"forget_init": "default"}),
    "ur_frozen": (cells.URLSTMCell, {"forget_init": 1.0, "frozen": ("forget", "refine")}),
    "plstm_separate": (cells.PLSTMCell, {"coupled": False}),
    "plstm_fixed_p": (cells.PLSTMCell, {"power": 1.7}),
    "plstm_small_epsilon": (cells.PLSTMCell, {"epsilon": 1e-5, "power_init": (0.1, 0.4)}),
    "plstm_authors": (cells.PLSTMCell, {"epsilon_form": "authors"}),
    "plstm_authors_separate": (cells.PLSTMCell, {"epsilon_form": "authors", "coupled": False}),
    "pgru_fixed_p": (cells.PGRUCell, {"power": 0.3, "epsilon": 0.1}),
    "janet_tied": (cells.JANETCell, {"beta": 0.0}),
    "elstm_separate": (cells.ELSTMCell, {"coupled": False, **CHRONO}),
    "plscan_fixed_p": (cells.PLScanCell, {"power": 1.7, "epsilon": 0.1}),
    "lru_ring": (cells.LRUCell, {"r_min": 0.9, "r_max": 0.99, "max_phase": 0.3}),
    "phased_plain": (cells.PhasedLSTMCell, {"open_ratio": 0.5, "leak": 0.1, "peephole": False, "shift_init": (-4, 9)}),
    "phased_ratio": (cells.PhasedLSTMCell, {"open_ratio": 0.5, "leak": 0.1, "train_open_ratio": True}),
    "slstm_heads": (cells.SLSTMCell, {"heads": 3}),
    "slstm_exp": (cells.SLSTMCell, {"heads": 2, "forget": "exp"}),
    "lem_slow": (cells.LEMCell, {"delta": 0.3}),
    "cornn_undamped": (cells.CoRNNCell, {"delta": 0.2, "gamma": 1.0, "epsilon": 0.0}),
    "hgrn_bound": (cells.HGRNCell, {"lower_bound": 0.4}),
    "indrnn_tanh": (cells.IndRNNCell, {"activation": "tanh", "u_init": (-1.2, 1.2)}),
    "rglru_fast": (cells.RGLRUCell, {"c": 0.7}),
    "rglru_signed": (cells.RGLRUCell, {"c": 0.7, "signed": True}),
    "sru_small": (cells.SRUCell, {"statistics": 5, "summary": 3, "alphas": (0.0, 0.5, 0.99)}),
    "surnn_fast": (cells.SuRNNCell, {"periods": (3.0, 10.0, 40.0)}),
    "exprnn_henaff": (cells.ExpRNNCell, {"skew_init": "henaff"}),
    "eurnn_5": (cells.EURNNCell, {"capacity": 5}),
    "eurnn_1": (cells.EURNNCell, {"capacity": 1}),
    "eurnn_fft": (cells.EURNNCell, {"style": "fft"}),
    "goru_3": (cells.GORUCell, {"capacity": 3}),
    "goru_fft": (cells.GORUCell, {"style": "fft"}),
    "grud_two": (cells.GRUDCell, {"flags": ((0, 2), (1, 3))}),
    "grud_third": (cells.GRUDCell, {"flags": ((2, 1),)}),
    "gated_gru_update": (cells.GatedGRUCell, {"gate": "ur", "gru_form": "update"}),
    "gated_lstm_um_3": (cells.GatedLSTMCell, {"gate": "um", "downsize": 3}),
    "gated_gru_om_3": (cells.GatedGRUCell, {"gate": "om", "downsize": 3}),
    "rmc_memory": (cells.RMCCell, {"gate_style": "memory", "memories": 3, "blocks": 2}),
    "rmc_one": (cells.RMCCell, {"memories": 1, "heads": 2, "key_size": 4, "gate": "r", "forget_bias": 0.5}),
    "rmc_om_3": (cells.RMCCell, {"memories": 1, "gate": "om", "downsize": 3}),
}
for gate in ("-", "c", "o", "u", "r", "om", "um", "or", "ur"):
    VARIANTS[f"gated_lstm_{gate}"] = (cells.GatedLSTMCell, {"gate": gate, "downsize": 1, "T_max": 30})
    VARIANTS[f"gated_gru_{gate}"] = (cells.GatedGRUCell, {"gate": gate, "downsize": 1, "T_max": "unknown"})
for gate in ("c", "o", "u", "om", "um", "or", "ur"):
    VARIANTS[f"rmc_{gate}"] = (cells.RMCCell, {"gate": gate, "downsize": 1, "T_max": 30})
ALL = CELLS | VARIANTS
UNITS = {"eurnn_fft": 16, "goru_fft": 8, "goru_3": 5}  # other numbers of units than H


def build(name, seed=0, shape=None, dtype=torch.float64):
    """A cell with every parameter moved well away from its init (p̂ and the frozen gates' values included)."""
    kind, arguments = ALL[name]
    torch.manual_seed(seed)
    return moved(kind(*(shape or (I, UNITS.get(name, H))), **arguments).to(dtype))


def moved(cell, size=1.0):
    """The cell, every parameter moved away from its start."""
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return cell


def random_state(cell, *batch, seed=1):
    g = torch.Generator().manual_seed(seed)
    draw = {
        name: torch.randn(*batch, cell.width(name), generator=g, dtype=torch.float64) for name in cell.State._fields
    }
    for name in {"age", "since"} & draw.keys():
        draw[name] = (5.0 if name == "age" else 1.0) * draw[name].abs()
    return cell.State(**draw)


def random_input(seed=2, shape=(S, B), size=I, tiny_dt=True, flags=()):
    """x, and dt between .05 and 4 with two steps far below any epsilon, and a mask.

    flags: pairs of an input and the place of its flag, which is 0 where the input is missing, as GRU-D has them.
    """
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, size, generator=g, dtype=torch.float64)
    dt = 0.05 + 3.95 * torch.rand(*shape, generator=g, dtype=torch.float64)
    if tiny_dt:
        dt[2, 0], dt[4, 1] = 0.0, 1e-7
    mask = torch.rand(*shape, generator=g) < 0.7
    for place, flag in flags:
        x[..., flag] = (x[..., flag] > 0).double()
        x[..., place] *= x[..., flag]
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


# --- Comparison of random draws with a distribution -------------------------------------------------------------------
def same_distribution(sample, distribution):
    """Kolmogorov-Smirnov test. A correct sample fails for one seed in a thousand, and the seed is fixed.

    distribution: a distribution of scipy.stats, or a cumulative distribution function.
    """
    assert stats.kstest(np.asarray(sample), getattr(distribution, "cdf", distribution)).pvalue > 1e-3
