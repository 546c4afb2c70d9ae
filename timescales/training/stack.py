"""Several seeds of one configuration side by side: one forward and one backward for all of them.

Every run stays what it is alone, with its own model, task, optimizer, checkpoints and record. It asks for its training
steps and validations (`loop.training`), and those of all runs are computed here at once, while a run's parameters and
optimizer state are views of stacked ones, (R, ...). Nothing else knows R: cells and engines take a leading dimension.

    together([training(...) for seed in range(5)])

A run that ends, fails or diverges leaves the stack; of runs that stand at different steps those ahead wait for the
last; if the memory is too small for all, they go on one after another. Each equals its single run up to rounding, since
products of stacked matrices may be summed in another order.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from timescales.nn import engine
from timescales.nn.engine import eager
from timescales.tasks import Batch
from timescales.training import loop
from timescales.training.interrupt import Interrupt
from timescales.training.loop import State, Step, Taken, Validation
from timescales.training.model import Output, SequenceModel

# These update each number by itself: one of them over stacked parameters does what R single ones do.
OPTIMIZERS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD)
TRIED = 4  # steps of a sequence on which a model shows that it can be stacked


def together(runs: Sequence[loop.Training]) -> list[Any]:
    """Do what several runs of one configuration ask for, stacked where that is possible; returns what they return.

    Where it is not, one line says why. An error in a run's own part (data, log, checkpoint) ends that run alone, an
    error in a shared step or validation ends all that share it. Errors are raised when the other runs have ended,
    KeyboardInterrupt when all that have begun have saved.
    """
    members = [_Member(run) for run in runs]
    with Interrupt() as interrupt:
        reason, asked = None, False
        for member in members:
            if reason is None and not interrupt.requested:
                member.go_on()
                if not asked and member.asked is not None:  # the first that has anything left to train
                    reason, asked = member.why_alone(), True
        reason = reason or _unlike([m.asked for m in members if m.asked]) or _side_by_side(members)
        if reason is not None:
            print(f"{len(members)} seeds, one after another: {reason}", file=sys.stderr)
            for member in members:
                if member.begun or not interrupt.requested:
                    member.alone()
    errors = [member.error for member in members if member.error is not None]
    if not all(member.begun for member in members):
        errors.append(KeyboardInterrupt("before all seeds had begun"))
    if errors:
        raise min(errors, key=lambda error: isinstance(error, Exception))  # an interruption before all others
    return [member.result for member in members]


def _side_by_side(members: list[_Member]) -> str | None:
    """Do what the members ask for until none asks; returns why they must go on one after another, if they must."""
    stack: Stack | None = None
    stacked: list[_Member] = []
    while waiting := [(m, m.asked) for m in members if m.asked is not None]:
        first = min((asked for _, asked in waiting), key=lambda asked: asked.number)
        alike = [(m, a) for m, a in waiting if (type(a), a.number) == (type(first), first.number)]
        group, asked = [m for m, _ in alike], [a for _, a in alike]
        for a in asked:
            a.clock.start(len(group))
        try:
            if group != stacked:
                if stack is not None:
                    stack.part()
                stack = Stack([(a.model, a.optimizer) for a in asked]) if len(group) > 1 else None
                stacked = group
            answers = [loop.take(first)] if stack is None else stack.take(asked)
        except Exception as error:
            if len(group) > 1 and isinstance(error, torch.OutOfMemoryError):
                break  # part() comes after this block: the error keeps all that the step computed in memory
            for member in group:
                member.go_on(error=error)
            continue
        for member, answer in zip(group, answers, strict=True):
            member.go_on(answer)
        for a in asked:
            a.clock.stop()
    else:
        return None
    if stack is not None:
        stack.part()
    return "side by side they do not fit into memory"


class _Member:
    """A run, and what it asks for now: None before it has begun and after it has ended."""

    def __init__(self, run: loop.Training) -> None:
        self.run, self.begun = run, False
        self.asked: Step | Validation | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def go_on(self, answer: Any = None, error: Exception | None = None) -> None:
        """Give the run an answer, or the error that came instead of one."""
        self.begun = True
        try:
            self.asked = self.run.send(answer) if error is None else self.run.throw(error)
        except StopIteration as end:
            self.asked, self.result = None, end.value
        except (Exception, KeyboardInterrupt) as raised:
            self.asked, self.error = None, raised

    def alone(self) -> None:
        """Do all that the run asks for, to its end."""
        if not self.begun:
            self.go_on()
        elif self.asked is not None:
            self.asked.clock.start()
        while self.asked is not None:
            try:
                answer = loop.take(self.asked)
            except Exception as error:
                self.go_on(error=error)
            else:
                self.go_on(answer)

    def why_alone(self) -> str | None:
        """Why this run cannot be stacked with others like it; None if it can."""
        return why_not(self.asked) if isinstance(self.asked, Step) else None


# --------------------------------------------------------------------------------------------- can it be stacked?


def why_not(step: Step) -> str | None:
    """Why runs like the one that asks for this step cannot be stacked, with what to do about it; None if they can.

    Whether a model draws random numbers and whether all its parts take stacked parameters is seen by trying.
    """
    if type(step.model) is not SequenceModel:
        return f"{type(step.model).__name__} has no stacked form"
    if type(step.optimizer) not in OPTIMIZERS:
        known = ", ".join(kind.__name__ for kind in OPTIMIZERS)
        return f"{type(step.optimizer).__name__} has no stacked form ({known} have)"
    if len(step.optimizer.param_groups) > 1:
        return "an optimizer with several parameter groups has no stacked form"
    if step.batch.lr_scale is not None:
        return "every batch has a learning rate of its own (lr_scale)"
    for cell in step.model.rnn.layers:
        x = cell.weight_ih.new_zeros(2, 2, 2, cell.input_size)
        try:
            stacked = engine.pick(step.model.rnn.engine, cell, x)
            if stacked is eager.run and engine.pick(step.model.rnn.engine, cell, x[:, 0]) is not eager.run:
                return "the engine of one seed is faster than the eager one for all; engine=eager stacks them"
        except ValueError as error:
            return str(error)
    try:
        return _tried(step)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return f"the model does not take stacked parameters: {str(error).splitlines()[0]}"


@torch.no_grad()
def _tried(step: Step) -> str | None:
    model, device = step.model, step.batch.x.device
    x, _, mask, dt, _ = step.batch
    batch = Batch(x[:TRIED], x, None if mask is None else mask[:TRIED], None if dt is None else dt[:TRIED])
    state = torch.get_rng_state(), torch.cuda.get_rng_state(device) if x.is_cuda else torch.empty(0)
    one = {name: value.detach() for name, value in [*model.named_parameters(), *model.named_buffers()]}
    # Other weights for the second one, or a parameter that is read along the wrong dimension would go unnoticed.
    other = {name: 1.5 * value if value.is_floating_point() else value for name, value in one.items()}
    alone = [functional_call(model, weights, (batch,)).logits for weights in (one, other)]
    after = torch.get_rng_state(), torch.cuda.get_rng_state(device) if x.is_cuda else torch.empty(0)
    if not all(map(torch.equal, state, after)):
        torch.set_rng_state(state[0])
        if x.is_cuda:
            torch.cuda.set_rng_state(state[1], device)
        return "training draws random numbers (dropout, zoneout), which would differ in a stack"
    both = {name: torch.stack([one[name], other[name]]) for name in one}
    beside = functional_call(model, both, (_beside([batch, batch]),)).logits.unbind(-3)
    if not all(torch.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(alone, beside, strict=True)):  # TF32: 1e-3
        return "the model does not take stacked parameters: its outputs differ then (see Cell.per_unit)"
    return None


def _unlike(asked: Sequence[Step | Validation]) -> str | None:
    tensors = [dict([*a.model.named_parameters(), *a.model.named_buffers()]) for a in asked]
    for name in tensors[0] if tensors else ():
        if len(shapes := {tuple(found[name].shape) for found in tensors}) > 1:
            return f"{name} is of another size with another seed: {', '.join(map(str, sorted(shapes)))}"
    return None


# --------------------------------------------------------------------------------------------- the stack


class Stack:
    """R models of one kind as one: their parameters and optimizer states become views of stacked ones (R, ...)."""

    def __init__(self, runs: Sequence[tuple[SequenceModel, torch.optim.Optimizer]]) -> None:
        self.models, self.optimizers = [model for model, _ in runs], [optimizer for _, optimizer in runs]
        self.model = self.models[0]  # its code is run with everybody's values
        names = [name for name, _ in self.model.named_parameters()]
        self.own = [[model.get_parameter(name) for model in self.models] for name in names]
        self.parameters = []
        for own in self.own:
            self.parameters.append(nn.Parameter(torch.stack([p.detach() for p in own]), own[0].requires_grad))
            for p, view in zip(own, self.parameters[-1].detach(), strict=True):
                p.data, p.grad = view, None
        self.tensors: dict[str, Tensor] = dict(zip(names, self.parameters, strict=True))
        for name, _ in self.model.named_buffers():
            self.tensors[name] = torch.stack([model.get_buffer(name) for model in self.models])
        assert all(len(optimizer.param_groups) == 1 for optimizer in self.optimizers), "see why_not"
        kind, given = type(self.optimizers[0]), self.optimizers[0].defaults
        known = inspect.signature(kind).parameters
        self.optimizer = kind(self.parameters, **{key: value for key, value in given.items() if key in known})
        for stacked, own in zip(self.parameters, self.own, strict=True):
            states = [o.state[p] for o, p in zip(self.optimizers, own, strict=True) if p in o.state]
            for key in states[0] if states else ():
                values = [state[key] for state in states]
                self.optimizer.state[stacked][key] = torch.stack(values) if _has(own[0], values[0]) else values[0]
        self._share()

    def _share(self) -> None:
        """Let the models' optimizers hold views of the stacked state; counts of steps are shared as they are."""
        for stacked, own in zip(self.parameters, self.own, strict=True):
            for r, (optimizer, p) in enumerate(zip(self.optimizers, own, strict=True)):
                state = self.optimizer.state.get(stacked, {})
                if state:
                    optimizer.state[p] = {k: v[r] if _has(stacked, v) else v for k, v in state.items()}
        self.shared = bool(self.optimizer.state)

    def part(self) -> None:
        """Give every model and optimizer memory of its own again."""
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            for p in model.parameters():
                p.data = p.data.clone()
                for key, value in optimizer.state.get(p, {}).items():
                    optimizer.state[p][key] = value.clone() if isinstance(value, Tensor) else value

    def take(self, asked: Sequence[Any]) -> list[Any]:
        """Do what all runs ask for: R steps (`Taken`), or R validations (metrics)."""
        return self.step(asked) if isinstance(asked[0], Step) else self.validate(asked)

    def step(self, steps: Sequence[Step]) -> list[Taken]:
        """One training step of every run; torch.OutOfMemoryError leaves all as it was before."""
        assert all(step.batch.lr_scale is None for step in steps), "see why_not"
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self([(step.batch, step.state) for step in steps])
        losses = [step.task.loss(output.logits, step.batch) for step, output in zip(steps, outputs, strict=True)]
        penalties = [step.task.penalty(output) for step, output in zip(steps, outputs, strict=True)]
        torch.stack([loss + penalty for loss, penalty in zip(losses, penalties, strict=True)]).sum().backward()
        if steps[0].settings.clip_norm is not None:
            clip([p.grad for p in self.parameters if p.grad is not None], steps[0].settings.clip_norm)
        try:
            self.optimizer.step()
        except torch.OutOfMemoryError as error:  # some parameters may be updated: the step cannot be taken again
            raise RuntimeError("out of memory within an update: train with fewer seeds at once (seeds=1)") from error
        if not self.shared:
            self._share()
        states = [loop.detached(o.state) if s.task.spec.carried else None for s, o in zip(steps, outputs, strict=True)]
        return [Taken(loss.detach(), state) for loss, state in zip(losses, states, strict=True)]

    @torch.no_grad()
    def validate(self, asked: Sequence[Validation]) -> list[dict[str, float]]:
        """The metrics of every run's validation split; the model's mode stays as it was."""
        mode = self.model.training
        self.model.eval()
        try:
            return in_step([loop.scoring(a.task, "valid", a.settings.max_eval_batches) for a in asked], self)
        finally:  # after an error the models may go on, one after another
            self.model.train(mode)

    def __call__(self, asked: Sequence[tuple[Batch, State]]) -> list[Output]:
        """The output of every run for its batch, from its state."""
        batches, states = zip(*asked, strict=True)
        state = None
        if states[0] is not None:
            state = tuple(type(layer[0])(*map(torch.stack, zip(*layer))) for layer in zip(*states))  # noqa: B905
        output = functional_call(self.model, self.tensors, (_beside(batches), state))
        logits = output.logits.unbind(-3)
        if self.model.spec.readout == "all":
            logits = [part[: len(batch.x)] for part, batch in zip(logits, batches, strict=True)]
        after = [[type(layer)(*fields) for fields in zip(*layer, strict=True)] for layer in output.state]
        return [Output(part, state) for part, state in zip(logits, zip(*after, strict=True), strict=True)]


def in_step(asking: Sequence[Generator[Any, Any, Any]], answer: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Run generators that yield equally often, answering a round of them at a time; returns what they return."""
    given: list[Any] = [None] * len(asking)
    while True:
        asked, returned = [], []
        for generator, value in zip(asking, given, strict=True):
            try:
                asked.append(generator.send(value))
            except StopIteration as end:
                returned.append(end.value)
        if not asked:
            return returned
        assert not returned, "runs of one configuration validate on as many batches"
        given = answer(asked)


def clip(grads: Sequence[Tensor], max_norm: float) -> None:
    """torch.nn.utils.clip_grad_norm_ for each replica: gradients (R, ...), the norm over all of one replica's."""
    norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))


def _has(p: Tensor, value: Any) -> bool:
    """Whether an optimizer keeps this for every element of a parameter."""
    return isinstance(value, Tensor) and value.shape == p.shape


def _beside(batches: Sequence[Batch]) -> Batch:
    """R batches (S, B, ...) as one (S, R, B, ...); where one is shorter, masked steps follow. The targets stay out."""
    longest = max(len(batch.x) for batch in batches)
    uneven = any(len(batch.x) < longest for batch in batches)

    def stacked(values: Sequence[Tensor], beyond: float) -> Tensor:
        tails = [v.new_full((longest - len(v), *v.shape[1:]), beyond) for v in values]
        return torch.stack([torch.cat([v, tail]) if len(tail) else v for v, tail in zip(values, tails, strict=True)], 1)

    masks = [b.x.new_ones(b.x.shape[:2], dtype=torch.bool) if b.mask is None else b.mask for b in batches]
    mask = stacked(masks, 0) if uneven or batches[0].mask is not None else None
    dt = None if batches[0].dt is None else stacked([b.dt for b in batches if b.dt is not None], 1.0)
    return Batch(stacked([b.x for b in batches], 0), batches[0].target, mask, dt)
