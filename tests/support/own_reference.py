"""A cell against its step in NumPy, which a test file has as `reference`; and its gradients against differences.

    def reference(own, x, state, dt): ...

is one step of one sequence: `own` has the cell's parameters by name, x is (I,), `state` the fields by name, each (H,),
dt a number. It returns the new state by name. The loop over steps and sequences, and what a mask does, stand here.
"""

import numpy as np
import torch
from cell_cases import B, I, close, random_input, random_state, run

from timescales.nn.engine import eager


def parameters(cell):
    """The cell's parameters and buffers by name, in NumPy."""
    return {name: value.detach().numpy() for name, value in [*cell.named_parameters(), *cell.named_buffers()]}


def moved(cell, seed=0, size=1.0):
    """The cell in float64, every parameter moved away from its start."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in cell.double().parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return cell


def unrolled(reference, cell, x, state, dt, mask):
    """What the reference makes of sequences: the outputs (S, B, H), and the last state by name, each (B, H)."""
    own, x = parameters(cell), x.numpy()
    state = {name: value.numpy().copy() for name, value in state._asdict().items()}
    outputs = np.empty((*x.shape[:2], state["h"].shape[-1]))
    for t in range(len(x)):
        for b in range(x.shape[1]):
            if mask is None or mask[t, b]:
                before = {name: value[b] for name, value in state.items()}
                after = reference(own, x[t, b], before, 1.0 if dt is None else float(dt[t, b]))
                assert after.keys() == state.keys()
                for name, value in after.items():
                    state[name][b] = value
        outputs[t] = state["h"]
    return outputs, state


def compare(reference, cell, timed=False, masked=False, state=None, tolerance=1e-12):
    """Assert that seven steps of three sequences are those of the reference, in every field of the state."""
    (x, dt, mask), state = random_input(size=cell.input_size), random_state(cell, B) if state is None else state
    dt, mask = dt if timed else None, mask if masked else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt, mask)
    expected, last = unrolled(reference, cell, x, state, dt, mask)
    close(output, torch.from_numpy(expected), tolerance)
    for name, value in final._asdict().items():
        close(value, torch.from_numpy(last[name]), tolerance)


def check_gradients(cell, state):
    """Assert that the gradients of x, dt, the state and the parameters are those of finite differences."""
    names = [k for k, _ in cell.named_parameters()]
    g = torch.Generator().manual_seed(4)
    x = torch.randn(3, 2, cell.input_size, generator=g, dtype=torch.float64)
    dt = 0.2 + torch.rand(3, 2, generator=g, dtype=torch.float64)
    mask = torch.tensor([[1, 0], [0, 1], [1, 1]])

    class Run(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, dt, *state):
            output, final = eager.run(self.cell, x, self.cell.weights(), self.cell.State(*state), dt, mask)
            return (output, *final)

    module, n = Run(), len(state)

    def function(x, dt, *rest):
        parameters = {f"cell.{k}": v for k, v in zip(names, rest[n:], strict=True)}
        return torch.func.functional_call(module, parameters, (x, dt, *rest[:n]))

    inputs = [x, dt, *state, *(v.detach() for v in cell.parameters())]
    assert torch.autograd.gradcheck(function, [v.clone().requires_grad_() for v in inputs])


def against_eager(make, dt=None, tolerance=1e-5):
    """Assert that a layer's C++ engine gives the results and gradients of the eager one, in float32.

    make: the layer, by its engine.
    """
    x = torch.randn(11, B, I, generator=torch.Generator().manual_seed(5))
    results = []
    for engine in ("eager", "fused"):
        torch.manual_seed(0)
        rnn = make(engine)
        inputs = x.clone().requires_grad_()
        output, state = rnn(inputs, dt=dt)
        values = [*rnn.split_state(state)[-1]]
        (output.square().sum() + sum(value.sin().sum() for value in values)).backward()
        results.append([output, *values, inputs.grad, *(p.grad for p in rnn.parameters())])
    for ours, expected in zip(*results, strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            close(ours, expected, tolerance)
