"""Batched seeds: several models of one kind as one, with one forward and one backward pass for all of them.

The parameters and the optimizer states of R models become views of stacked ones, (R, ...). Nothing else knows R: cells
and engines take a leading dimension. Each model's numbers equal those that it has alone up to rounding, since products
of stacked matrices may be summed in another order. `Single` is one model with the same interface.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from timescales.models.sequence import Output, SequenceModel, State
from timescales.nn import engine
from timescales.nn.engine import eager
from timescales.nn.engine.cpu import fused
from timescales.nn.rnn import RNN
from timescales.tasks import Batch
from timescales.torch_private import tree_map, tree_map_only

# These update each number by itself: one of them over stacked parameters does what R single ones do.
OPTIMIZERS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD)
TRIED = 4  # steps of a sequence on which a model shows that it can be batched


class Single:
    """One model with the interface of a `Stack`: one batch, one state and one output, each in a list."""

    def __init__(self, model: SequenceModel) -> None:
        self.model = model

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers by name."""
        return dict([*self.model.named_parameters(), *self.model.named_buffers()])

    def __call__(self, batches: Sequence[Batch], states: Sequence[State]) -> list[Output]:
        """The output for the batch, from the state."""
        return [self.model(batches[0], states[0])]

    def clip_gradients(self, max_norm: float) -> None:
        """Scale the gradients so that their norm is at most max_norm."""
        nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)


class Stack:
    """R models of one kind as one: their parameters become views of stacked ones (R, ...), until `separate`."""

    def __init__(self, models: Sequence[SequenceModel]) -> None:
        self.model = models[0]  # its code, and its mode, are used with the values of all
        self.parameters: dict[str, nn.Parameter] = {}
        for name, parameter in self.model.named_parameters():
            singles = [model.get_parameter(name) for model in models]
            stacked = nn.Parameter(torch.stack([p.detach() for p in singles]), parameter.requires_grad)
            for p, view in zip(singles, stacked.detach(), strict=True):
                p.data, p.grad = view, None
            self.parameters[name] = stacked
        self.tensors: dict[str, Tensor] = dict(self.parameters)
        for name, _ in self.model.named_buffers():
            self.tensors[name] = torch.stack([model.get_buffer(name) for model in models])

    def __call__(self, batches: Sequence[Batch], states: Sequence[State]) -> list[Output]:
        """The output of every model for its batch, from its state."""
        output = functional_call(self.model, self.tensors, (stack_batches(batches), stack_states(states)))
        logits = output.logits.unbind(-3)
        if self.model.spec.readout == "all":
            logits = [part[: len(batch.x)] for part, batch in zip(logits, batches, strict=True)]
        states = unstack_states(output.state, len(logits))
        return [Output(part, state) for part, state in zip(logits, states, strict=True)]

    def clip_gradients(self, max_norm: float) -> None:
        """Scale the gradients of each model so that their norm is at most max_norm."""
        clip([p.grad for p in self.parameters.values() if p.grad is not None], max_norm)


class StackedOptimizer:
    """One optimizer for stacked parameters; the optimizers of the single models hold views of its state."""

    def __init__(self, stack: Stack, models: Sequence[SequenceModel], optimizers: Sequence[Optimizer]) -> None:
        assert all(len(optimizer.param_groups) == 1 for optimizer in optimizers), "see reason_not_batched"
        optimizer_class, defaults = type(optimizers[0]), optimizers[0].defaults
        known = inspect.signature(optimizer_class).parameters
        settings = {key: value for key, value in defaults.items() if key in known}
        self.optimizer = optimizer_class(stack.parameters.values(), **settings)
        self.optimizers = optimizers
        self.singles = {p: [m.get_parameter(name) for m in models] for name, p in stack.parameters.items()}
        for stacked, singles in self.singles.items():
            states = [o.state[p] for o, p in zip(optimizers, singles, strict=True) if p in o.state]
            for key in states[0] if states else ():
                values = [state[key] for state in states]
                per_element = is_per_element(values[0], singles[0])
                self.optimizer.state[stacked][key] = torch.stack(values) if per_element else values[0]
        self._share_state()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        self.optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        """Update all models. Raises RuntimeError if memory runs out: some parameters may be updated, others not."""
        self.optimizer.param_groups[0]["lr"] = self.optimizers[0].param_groups[0]["lr"]  # a schedule changes it
        try:
            self.optimizer.step()
        except torch.OutOfMemoryError as error:
            raise RuntimeError("out of memory within an update: train with fewer seeds at once (seeds=1)") from error
        if not self.shared:
            self._share_state()

    def _share_state(self) -> None:
        """Let the single optimizers hold views of the stacked state; counts of steps are shared as they are."""
        for stacked, singles in self.singles.items():
            state = self.optimizer.state.get(stacked, {})
            for r, (optimizer, p) in enumerate(zip(self.optimizers, singles, strict=True)):
                if state:
                    optimizer.state[p] = {k: v[r] if is_per_element(v, stacked) else v for k, v in state.items()}
        self.shared = bool(self.optimizer.state)  # it is made in the first step


AnyOptimizer = Optimizer | StackedOptimizer  # of one model, or of several


def separate(models: Sequence[SequenceModel], optimizers: Sequence[Optimizer]) -> None:
    """Give every model and optimizer of a stack memory of its own again."""
    for model, optimizer in zip(models, optimizers, strict=True):
        for p in model.parameters():
            p.data = p.data.clone()
            for key, value in optimizer.state.get(p, {}).items():
                optimizer.state[p][key] = value.clone() if isinstance(value, Tensor) else value


def is_per_element(value: Any, parameter: Tensor) -> bool:
    """Whether an optimizer keeps this value for every element of a parameter."""
    return isinstance(value, Tensor) and value.shape == parameter.shape


def clip(grads: Sequence[Tensor], max_norm: float) -> None:
    """torch.nn.utils.clip_grad_norm_ for each model: gradients (R, ...), the norm over all of one model's."""
    norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))


def stack_states(states: Sequence[State]) -> State:
    """The states of R models as one, whose tensors are (..., R, B, H); None if they are None."""

    def stacked(*values: Tensor | None) -> Tensor | None:  # None: a field that a layer lacks, or no state
        return None if values[0] is None else torch.stack(values, -3)  # type: ignore[arg-type]  # all, or none

    return tree_map(stacked, *states)


def unstack_states(state: State, replicas: int) -> list[State]:
    """The state of each of R models. Inverse of `stack_states`."""

    def of_model(r: int, value: Tensor) -> Tensor:
        return value.select(-3, r)

    return [tree_map_only(Tensor, functools.partial(of_model, r), state) for r in range(replicas)]


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """R batches (S, B, ...) as one (S, R, B, ...); where one is shorter, masked steps follow. The targets stay out."""
    longest = max(len(batch.x) for batch in batches)
    mask = None
    if any(batch.mask is not None or len(batch.x) < longest for batch in batches):
        masks = [b.x.new_ones(b.x.shape[:2], dtype=torch.bool) if b.mask is None else b.mask for b in batches]
        mask = stack_padded(masks, longest, 0)
    dts = [batch.dt for batch in batches if batch.dt is not None]
    dt = stack_padded(dts, longest, 1.0) if dts else None
    reset = None
    if any(batch.reset is not None for batch in batches):
        resets = [b.x.new_zeros(b.x.shape[:2], dtype=torch.bool) if b.reset is None else b.reset for b in batches]
        reset = stack_padded(resets, longest, 0)
    return Batch(stack_padded([b.x for b in batches], longest, 0), batches[0].target, mask, dt, reset=reset)


def stack_padded(values: Sequence[Tensor], length: int, padding: float) -> Tensor:
    """R tensors (S, ...) as one (length, R, ...), padded at their ends."""
    tails = [value.new_full((length - len(value), *value.shape[1:]), padding) for value in values]
    padded = [torch.cat([v, tail]) if len(tail) else v for v, tail in zip(values, tails, strict=True)]
    return torch.stack(padded, 1)


def reason_not_batched(model: SequenceModel, optimizer: Optimizer, batch: Batch) -> str | None:
    """Why seeds of this model are not batched, with what to do about it; None if they are.

    "" where one seed after another is faster: the engine of one seed (C++) has no counterpart for several.

    Whether a model draws random numbers and whether all its parts take stacked parameters is found by a trial.
    """
    if type(model) is not SequenceModel:
        return f"{type(model).__name__} cannot be batched over seeds"
    if not isinstance(model.rnn, RNN):
        return f"{type(model.rnn).__name__} is not made of cells, and takes no stacked parameters"
    if type(optimizer) not in OPTIMIZERS:
        known = ", ".join(kind.__name__ for kind in OPTIMIZERS)
        return f"{type(optimizer).__name__} cannot be batched over seeds ({known} can)"
    if len(optimizer.param_groups) > 1:
        return "an optimizer with several parameter groups cannot be batched over seeds"
    if batch.lr_scale is not None:
        return "every batch has a learning rate of its own (lr_scale)"
    try:
        if faster_alone(model, batch):
            return ""
    except ValueError as error:
        return str(error)
    try:
        return reason_from_trial(model, batch)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return f"the model does not take stacked parameters: {str(error).splitlines()[0]}"


def faster_alone(model: SequenceModel, batch: Batch) -> bool:
    """Whether a single model has a faster engine than a stack. Raises ValueError if its engine takes no stack."""
    steps, batch_size = batch.x.shape[:2]
    for cell in model.rnn.layers:
        x = cell.weight_ih.new_zeros(()).expand(steps, batch_size, cell.input_size)  # of the real size, in no memory
        stacked = engine.pick(model.rnn.engine, cell, x.unsqueeze(1).expand(-1, 2, -1, -1))
        if stacked is fused.run:  # it runs one seed after another
            return True
        if stacked is eager.run and engine.pick(model.rnn.engine, cell, x) is not eager.run:
            return True
    return False


@torch.no_grad()
def reason_from_trial(model: SequenceModel, batch: Batch) -> str | None:
    """Compare the outputs of two models alone and batched; why they cannot be batched, or None if they can."""
    x = batch.x[:TRIED]
    mask, dt, reset = (None if part is None else part[:TRIED] for part in (batch.mask, batch.dt, batch.reset))
    short = Batch(x, batch.target, mask, dt, reset=reset)
    one = {name: value.detach() for name, value in [*model.named_parameters(), *model.named_buffers()]}
    # Other weights for the second one, or a parameter that is read along the wrong dimension would go unnoticed.
    other = {name: 1.5 * value if value.is_floating_point() else value for name, value in one.items()}
    state = random_state(x)
    alone = [functional_call(model, weights, (short,)).logits for weights in (one, other)]
    if not all(map(torch.equal, state, random_state(x))):  # the models have drawn: put the generators back
        torch.set_rng_state(state[0])
        if x.is_cuda:
            torch.cuda.set_rng_state(state[1], x.device)
        return "training draws random numbers (dropout, zoneout), which would differ between seeds alone and batched"
    both = {name: torch.stack([one[name], other[name]]) for name in one}
    batched = functional_call(model, both, (stack_batches([short, short]),)).logits.unbind(-3)
    if not all(torch.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(alone, batched, strict=True)):  # TF32: 1e-3
        return "the model does not take stacked parameters: its outputs differ then (see Cell.per_unit)"
    return None


def random_state(x: Tensor) -> tuple[Tensor, Tensor]:
    """The states of torch's random generators on the CPU and on the device of x."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else torch.empty(0)


def reason_unlike(models: Sequence[SequenceModel]) -> str | None:
    """Why these models cannot be batched: a parameter or buffer that differs in size; None if none does."""
    tensors = [dict([*model.named_parameters(), *model.named_buffers()]) for model in models]
    for name in tensors[0] if tensors else ():
        if len(shapes := {tuple(of_model[name].shape) for of_model in tensors}) > 1:
            return f"{name} is of another size with another seed: {', '.join(map(str, sorted(shapes)))}"
    return None
