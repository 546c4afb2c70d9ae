"""Every module of the library, and random inputs for it."""

import torch
from torch.utils._pytree import tree_flatten

import timescales

S, B, I, H = 6, 3, 4, 5  # noqa: E741


KINDS = {
    "LSTM": ("LSTM", {}),
    "ChronoLSTM": ("ChronoLSTM", {"T_max": 20}),
    "URLSTM": ("URLSTM", {}),
    "MTSLSTM": ("MTSLSTM", {}),
    "PLSTM": ("PLSTM", {}),
    "PLSTM_separate": ("PLSTM", {"coupled": False}),
    "GatedRNN": ("GatedRNN", {}),
    "GatedRNN_um_gru": ("GatedRNN", {"gate": "um", "core": "gru", "downsize": H}),
    "GRU": ("GRU", {}),
    "PGRU": ("PGRU", {}),
    "JANET": ("JANET", {"T_max": 20}),
    "ELSTM": ("ELSTM", {}),
    "ELSTM_separate": ("ELSTM", {"coupled": False, "T_max": 20}),
    "LeakyRNN": ("LeakyRNN", {}),
    "MinGRU": ("MinGRU", {"T_max": 20}),
    "MinLSTM": ("MinLSTM", {}),
    "PLScan": ("PLScan", {}),
    "LRU": ("LRU", {}),
    "ExpRNN": ("ExpRNN", {}),
    "RMC": ("RMC", {"memories": 1}),
}

NO_KERNEL = {"RMC"}  # they have the eager engine alone


SCANS = frozenset({"MinGRU", "MinLSTM", "PLScan", "LRU"})  # without recurrent weights
WITHOUT_MATRIX = SCANS | {"ExpRNN", "RMC"}  # without the parameter weight_hh


def build(kind, *args, seed=0, **more):
    torch.manual_seed(seed)
    name, arguments = KINDS[kind]
    return getattr(timescales, name)(*(args or (I, H)), **arguments, **more).double()


def layered(kind, **more):
    """Three layers: the one depth beside 1 that every kind has."""
    return build(kind, I, H, 3, **more)


def random_input(*shape, size=I, seed=1):
    g = torch.Generator().manual_seed(seed)
    shape = shape or (S, B)
    x = torch.randn(*shape, size, generator=g, dtype=torch.float64)
    return x, 0.1 + 2 * torch.rand(*shape, generator=g, dtype=torch.float64)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def close_state(a, b):
    """States of the same form: as an RNN returns it, or one cell state per layer."""
    (values, form), (others, other_form) = tree_flatten(a), tree_flatten(b)
    assert form == other_form
    for x, y in zip(values, others, strict=True):
        close(x, y)
