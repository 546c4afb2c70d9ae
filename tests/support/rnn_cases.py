"""Every module of the library, and random inputs for it."""

import torch
from torch.utils._pytree import tree_flatten

import timescales
from timescales.nn import registry

S, B, I, H = 6, 3, 4, 6  # noqa: E741


ARGUMENTS = {
    "ChronoLSTM": {"T_max": 20}, "JANET": {"T_max": 20}, "MinGRU": {"T_max": 20}, "RMC": {"memories": 1},
    "GRUD": {"flags": [[0, I - 1]]},
}  # fmt: skip
VARIANTS = {
    "PLSTM": {"PLSTM_separate": {"coupled": False}},
    "GatedRNN": {"GatedRNN_um_gru": {"gate": "um", "core": "gru", "downsize": H}},
    "ELSTM": {"ELSTM_separate": {"coupled": False, "T_max": 20}},
}
# Every layer of the registry, and some once more with other arguments.
KINDS = {
    kind: (model.layer, arguments)
    for model in registry.MODELS
    for kind, arguments in {model.layer: ARGUMENTS.get(model.layer, {}), **VARIANTS.get(model.layer, {})}.items()
}
FAMILIES = {model.layer: model.family for model in registry.MODELS}

# They have the eager engine alone.
NO_KERNEL = {m.layer for m in registry.MODELS if not all(getattr(timescales, cell).compiled for cell in m.cells)}


SCANS = frozenset(name for name, family in FAMILIES.items() if family == registry.SCAN)  # without recurrent weights
# Without the parameter weight_hh.
WITHOUT_MATRIX = SCANS | {name for name, family in FAMILIES.items() if family == registry.OTHER}
# bias=False: those with equations that need no bias.
NEEDS_NO_BIAS = {"LSTM", "URLSTM", "PLSTM", "PLSTM_separate", "GatedRNN", "GatedRNN_um_gru", "GRU", "PGRU", "ELSTM"}
NEEDS_NO_BIAS |= {"LeakyRNN", "MinLSTM", "PLScan", "LRU", "IndRNN", "SignedMinGRU", "CfC", "SuRNN"}


def build(kind, *args, seed=0, **more):
    torch.manual_seed(seed)
    name, arguments = KINDS[kind]
    return getattr(timescales, name)(*(args or (I, H)), **arguments, **more).double()


FIELDS = {kind: build(kind).layers[0].State._fields for kind in KINDS}


def with_fields(*names):
    """The kinds whose state has these fields."""
    return [kind for kind in KINDS if FIELDS[kind] == names]


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
