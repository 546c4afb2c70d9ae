"""Helpers for tests of the engines: models with a kernel, and their comparison with the eager engine in float64."""

from __future__ import annotations

import torch

from timescales import LSTM, PLSTM, URLSTM, GatedRNN

MODELS = {
    "lstm": LSTM,
    "ur": URLSTM,
    "plstm": PLSTM,
    "plstm_separate": lambda i, h: PLSTM(i, h, coupled=False),
    "plstm_authors": lambda i, h: PLSTM(i, h, epsilon_form="authors"),
    "plstm_fixed": lambda i, h: PLSTM(i, h, power=1.7, epsilon=0.3),
}
# The other gates of Gu et al. that have a kernel: they use those of the LSTM and of the refine gate.
GATED = {gate: lambda i, h, gate=gate: GatedRNN(i, h, gate=gate, T_max=30) for gate in ("-", "c", "u", "r", "ur")}
# (S, B, I, H) with incomplete blocks of every kind: units (1, 3, 17, 110 are no multiple of a vector), rows (6 at a
# time), inputs, and two blocks of k (300).
SHAPES = [(1, 1, 1, 1), (2, 5, 3, 17), (9, 1, 70, 3), (9, 2, 1, 64), (2, 33, 3, 110), (3, 13, 2, 300)]

# float32 against float64, relative to the largest number of a tensor: rounding is 6e-8 per operation, and a sequence of
# dependent steps adds up some tens of roundings.
TOLERANCE = 1e-5
CELL_TOLERANCE = 5e-6  # short sequences of small cells; ExpRNN has 2.3e-6 with either engine, all others below 1e-6
THETA_TOLERANCE = 4e-5  # of LRU's `theta_log`: a phase of 40 is rounded by 2e-6; the eager engine is as far off
SKEW_TOLERANCE = 3e-4  # of ExpRNN's `skew`: torch's gradient of matrix_exp in float32; the eager engine is as far off


def close(a, b, tolerance=TOLERANCE, what=""):
    error = (a.double() - b.double()).abs().max().item()
    scale = b.double().abs().max().item()
    assert error <= tolerance * (scale + 1e-3), f"{what}: error {error:.2e} at scale {scale:.2e}"


def gradient(v):
    """The gradient of a leaf, zeros if it has none."""
    return torch.zeros_like(v) if v.grad is None else v.grad


def evaluate(model, engine, dtype, x, state, dt, mask, last, reset=None, states=False):
    """Results and gradients by name, with every result in the loss (or only the final state).

    states: also the state after every step.
    """
    model.engine = engine
    model.to(dtype).zero_grad()
    x = x.detach().to(dtype).requires_grad_()
    if state is not None:
        state = [type(s)(*(v.detach().to(dtype).requires_grad_() for v in s)) for s in state]
    dt = None if dt is None else dt.detach().to(dtype).requires_grad_()
    y, after, *every = model(x, state, dt, mask, reset=reset, states=states)
    after = model.split_state(after)
    steps = {f"every {name}{k}": v for s in every for name, field in vars(s).items() for k, v in enumerate(field)}
    results = [*after[-1], *([] if last else [y]), *steps.values()]
    factors = [torch.linspace(-1.0, k + 1.5, v.numel(), dtype=dtype).to(v.device) for k, v in enumerate(results)]
    loss = sum((factor.view_as(v) * v).sum() for factor, v in zip(factors, results, strict=True))
    loss.backward()
    out = {"output": y.detach(), "d x": x.grad} | {name: v.detach() for name, v in steps.items()}
    for k, s in enumerate(after):
        out |= {f"{name}{k}": value.detach() for name, value in s._asdict().items()}
    if dt is not None:
        out["d dt"] = gradient(dt)
    for k, s in enumerate(state or ()):
        out |= {f"d {name}{k}": gradient(value) for name, value in s._asdict().items()}
    return out | {f"d {name}": gradient(p) for name, p in model.named_parameters()}


def compare(engine, model, x, state=None, dt=None, mask=None, last=False, tolerance=TOLERANCE, **more):
    """Assert that an engine's results and gradients are those of the eager engine in float64."""
    fast = evaluate(model, engine, torch.float32, x, state, dt, mask, last, **more)
    expected = evaluate(model, "eager", torch.float64, x, state, dt, mask, last, **more)
    model.float()
    assert fast.keys() == expected.keys()
    for name in expected:
        assert fast[name].shape == expected[name].shape
        own = {"skew": SKEW_TOLERANCE, "theta_log": THETA_TOLERANCE}.get(name.rpartition(".")[2], tolerance)
        close(fast[name], expected[name], own, name)


def some_state(model, B):
    """A random state; ages are positive."""
    return [
        type(zero)(*(torch.rand(B, cell.hidden_size) * (5.0 if name == "age" else 1.0) for name in zero._fields))
        for cell in model.layers
        for zero in [cell.initial_state(B)]
    ]


def assert_nan_propagates(engine, models=MODELS):
    """A NaN in one sequence reaches its later outputs, and no other sequence."""
    for name, make in models.items():
        model = make(2, 4)
        model.engine = engine
        x = torch.zeros(3, 2, 2)
        x[1, 0, 0] = float("nan")
        output, _ = model(x)
        assert output[1:, 0].isnan().all(), name
        assert not output[:, 1].isnan().any(), name


def learned_start(kind):
    """A class of cells that begin from a learned vector, the same one in every field but for a factor."""

    class Learned(kind):
        def __init__(self, *sizes, **arguments):
            super().__init__(*sizes, **arguments)
            self.start = torch.nn.Parameter(0.1 + torch.rand(self.hidden_size))

        def initial_state(self, *batch):
            return self.State(*(self.start / (k + 1) for k, _ in enumerate(self.State._fields)))

    return Learned
