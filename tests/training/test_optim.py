"""NT-ASGD: when averaging begins, what is averaged, and the functions that the loop calls for any optimizer."""

import inspect
import math

import pytest
import torch
from trainings import SMALL, fit, quiet, same_weights

from timescales import PLSTM
from timescales.config import schema
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.optim import NTASGD
from timescales.tasks import Copy
from timescales.training import build, loop

# The validation perplexities of epochs that Mahto et al. 2021 publish of their PTB run; it switched after epoch 45.
FIRST_TEN = (408.87, 221.98, 176.70, 159.99, 137.53, 131.30, 118.89, 112.72, 108.37, 107.16)
LATER = {15: 89.97, 20: 82.91, 25: 79.31, 30: 77.56, 40: 75.14, 44: 74.47, 45: 75.56}
PUBLISHED = dict(enumerate(FIRST_TEN, 1)) | LATER


def published_losses():
    """The losses of all epochs up to 45, in nats, interpolated linearly between the published perplexities."""
    losses = []
    for epoch in range(1, 46):
        low, high = max(k for k in PUBLISHED if k <= epoch), min(k for k in PUBLISHED if k >= epoch)
        share = (epoch - low) / max(high - low, 1)
        losses.append(math.log(PUBLISHED[low] * (1 - share) + PUBLISHED[high] * share))
    return losses


def switches_at(losses, nonmono=5):
    """The rule as the authors write it: worse than the best of all validations but the last `nonmono` before this."""
    best_val_loss = []
    for epoch, val_loss in enumerate(losses, 1):
        if len(best_val_loss) > nonmono and val_loss > min(best_val_loss[:-nonmono]):
            return epoch
        best_val_loss.append(val_loss)
    return None


def ntasgd_switches_at(losses, nonmono=5):
    """The epoch after which NTASGD averages."""
    optimizer = NTASGD([torch.nn.Parameter(torch.zeros(1))], nonmono=nonmono)
    for epoch, loss in enumerate(losses, 1):
        optimizer.observe(loss)
        if optimizer.param_groups[0]["averaging"]:
            return epoch
    return None


def test_the_published_run_switches_after_epoch_45():
    assert switches_at(published_losses()) == ntasgd_switches_at(published_losses()) == 45


@pytest.mark.parametrize("nonmono", [1, 2, 5])
def test_trigger_equals_its_reference_implementation(nonmono):
    g = torch.Generator().manual_seed(0)
    epochs = set()
    for _ in range(50):
        losses = (5 / torch.arange(1, 31) + 0.3 * torch.rand(30, generator=g)).tolist()
        epochs.add(switches_at(losses, nonmono))
        assert ntasgd_switches_at(losses, nonmono) == switches_at(losses, nonmono)
    assert len(epochs) > 4


def test_averaging_never_ends_and_no_more_losses_are_stored():
    optimizer = NTASGD([torch.nn.Parameter(torch.zeros(1))])
    for loss in (*range(10, 2, -1), 99, 1, 0.5):
        optimizer.observe(loss)
    assert optimizer.param_groups[0]["averaging"]
    assert optimizer.param_groups[0]["losses"] == (*range(10, 2, -1), 99)


def problem(kind, **arguments):
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.randn(5, 3, dtype=torch.float64))
    unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    return w, unused, kind([w, unused], **arguments)


def gradients(w, steps=12):
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        w.grad = torch.randn(w.shape, generator=g, dtype=w.dtype) + w.detach()
        yield 0.5 + torch.rand((), generator=g).item()


def test_before_averaging_it_is_bitwise_sgd():
    w, _, ours = problem(NTASGD, lr=0.1, weight_decay=0.01)
    v, _, theirs = problem(torch.optim.SGD, lr=0.1, weight_decay=0.01)
    for a, b in zip(gradients(w), gradients(v), strict=True):
        loop.step(ours, a)
        loop.step(theirs, b)
        assert torch.equal(w, v)


@pytest.mark.parametrize("scaled", [False, True])
def test_averaging_equals_torchs_asgd(scaled):
    """Weights, averages, and the scaled learning rate, which acts one step late."""
    w, unused, ours = problem(NTASGD, lr=0.1, weight_decay=0.01)
    v, _, theirs = problem(torch.optim.ASGD, lr=0.1, weight_decay=0.01, t0=0, lambd=0.0)
    ours.param_groups[0]["averaging"] = True
    path = []
    for a, b in zip(gradients(w), gradients(v), strict=True):
        loop.step(ours, a if scaled else None)
        loop.step(theirs, b if scaled else None)
        assert ours.param_groups[0]["lr"] == 0.1
        path.append(v.detach().clone())
        # torch keeps the weight of a step in the average as a 32-bit number.
        torch.testing.assert_close(w, v, rtol=1e-6, atol=1e-7)
        with ours.eval_weights():
            torch.testing.assert_close(w.detach(), theirs.state[v]["ax"], rtol=1e-6, atol=1e-7)
            mean = torch.stack(path[1:] or path).mean(0)  # the first step is left out once there is a second
            torch.testing.assert_close(w.detach(), mean, rtol=1e-6, atol=1e-7)
    assert torch.equal(unused, torch.ones(2, dtype=torch.float64))  # no gradient: no decay, no average


def test_weights_are_restored_after_evaluation():
    w, _, optimizer = problem(NTASGD, lr=0.1)
    with optimizer.eval_weights():  # nothing averaged yet
        pass
    optimizer.param_groups[0]["averaging"] = True
    for _ in gradients(w):
        optimizer.step()
    before = w.detach().clone()
    with optimizer.eval_weights():
        assert not torch.equal(w, before)
    assert torch.equal(w, before)

    def fails():
        with optimizer.eval_weights():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert torch.equal(w, before)


def test_other_optimizers_are_left_alone():
    w, _, optimizer = problem(torch.optim.Adam, lr=0.1)
    next(gradients(w))
    before = w.detach().clone()
    with loop.eval_weights(optimizer):
        assert torch.equal(w, before)
    loop.step(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert (w.detach() - before).abs().max().item() == pytest.approx(0.05, rel=1e-6)  # Adam's first step is lr in size


@pytest.mark.parametrize("bad", [{"lr": -1}, {"weight_decay": -1e-3}, {"nonmono": 0}, {"lr": "fast"}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be a number of at least"):
        NTASGD([torch.nn.Parameter(torch.zeros(1))], **bad)


# --- Every optimizer of torch trains, or is refused in one line before training begins --------------------------------
KINDS = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
OPTIMIZERS = [kind for kind in KINDS if issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer]
REFUSED = {  # why: in torch's words
    "LBFGS": "closure",
    "SparseAdam": "dense gradients",
    "Muon": r"only supports 2D parameters whereas .* size: torch\.Size\(\[18\]\)",  # the biases of three gates
}
FORMS = {kind.__name__: {None, "foreach", "fused"} & {None, *inspect.signature(kind).parameters} for kind in OPTIMIZERS}
CASES = [(name, form) for name, forms in FORMS.items() for form in sorted(forms, key=str)]


def model_and_task():
    torch.manual_seed(0)
    task = Copy(**SMALL)
    return SequenceModel(PLSTM(task.spec.input_size, 6), task.spec), task


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_each_optimizer_of_torch_trains_or_is_refused_in_one_line(tmp_path, name, setting):
    model, task = model_and_task()
    config = {"_target_": f"torch.optim.{name}", "name": "mine", "lr": 0.01} | ({setting: True} if setting else {})
    if name in REFUSED:
        with pytest.raises(ConfigError, match=f"optimizer=mine: .*{REFUSED[name]}") as raised:
            build.build_optimizer(config, "cpu", model)
        assert "\n" not in str(raised.value)
        return
    optimizer = build.build_optimizer(config, "cpu", model)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    assert set(optimizer.state) <= set(model.parameters())  # nothing of the trial is left
    run = fit(model, task, optimizer, quiet, schema.LoopSettings(max_epochs=2), tmp_path)
    assert run.progress.step == 10
    assert not same_weights(model, model_and_task()[0])
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "form"),
    [("Adam", "fused"), ("AdamW", "fused"), ("SGD", "fused"), ("RMSprop", "foreach"), ("Rprop", "foreach")],
)
def test_the_fastest_form_of_an_optimizer_takes_the_steps_of_its_loop(name, form):
    """In float64, where an order of operations shows in the last digits only."""
    after = []
    for setting in ({}, {"foreach": False}):
        model = model_and_task()[0].double()
        config = {"_target_": f"torch.optim.{name}", "name": "mine", "lr": 0.01} | setting
        optimizer = build.build_optimizer(config, "cpu", model)
        assert bool(optimizer.param_groups[0].get(form)) is not bool(setting)
        for step in range(5):
            for k, p in enumerate(model.parameters()):
                p.grad = torch.full_like(p, 0.1).normal_(generator=torch.Generator().manual_seed(100 * step + k))
            optimizer.step()
        after.append([p.detach() for p in model.parameters()])
    for fast, plain in zip(*after, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-14)


def test_a_form_that_cannot_update_the_parameters_is_not_taken():
    """torch's fused kernels have no complex numbers."""
    model = torch.nn.ParameterList([torch.zeros(3, dtype=torch.complex64), torch.zeros(2)])
    config = {"_target_": "torch.optim.Adam", "name": "adam", "lr": 0.01}
    group = build.build_optimizer(config, "cpu", model).param_groups[0]
    assert (group["fused"], group["foreach"]) == (None, True)


def test_parameters_that_are_not_contiguous_are_updated_as_by_the_loop():
    """torch's fused kernels for CPUs read them as if they were, without an error."""
    after = []
    for setting in ({}, {"fused": False, "foreach": False}):
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.arange(24.0).reshape(4, 6)[:, :3])])
        config = {"_target_": "torch.optim.Adam", "name": "adam", "lr": 0.1} | setting
        optimizer = build.build_optimizer(config, "cpu", model)
        for _ in range(3):
            model[0].grad = torch.arange(12.0).reshape(4, 3) - 6
            optimizer.step()
        after.append(model[0].detach())
    assert torch.equal(*after)


class Refusing(torch.optim.SGD):
    """An optimizer whose argument `foreach` may only be None."""

    def __init__(self, params, lr, foreach=None):
        if foreach is not None:
            raise ValueError("foreach is not supported")
        super().__init__(params, lr)


@pytest.mark.parametrize(("wrong", "words"), [(("fused", "foreach"), "and `foreach`"), (("capturable",), "=True")])
def test_settings_that_torch_refuses_are_one_line(wrong, words):
    """By an error of its own, or by an assertion."""
    config = {"_target_": "torch.optim.Adam", "name": "adam", "lr": 0.01} | dict.fromkeys(wrong, True)
    with pytest.raises(ConfigError, match=rf"optimizer=adam: .*{words}") as raised:
        build.build_optimizer(config, "cpu", model_and_task()[0])
    assert "\n" not in str(raised.value)


def test_an_optimizer_of_matrices_is_built_for_a_model_of_matrices():
    model = model_and_task()[0]
    matrices = torch.nn.ParameterList(p for p in model.parameters() if p.dim() == 2)
    optimizer = build.build_optimizer({"_target_": "torch.optim.Muon", "name": "muon", "lr": 0.01}, "cpu", matrices)
    assert optimizer.param_groups[0]["params"] == list(matrices)


class Drawing(torch.optim.SGD):
    """One that adds noise to its step."""

    def step(self, closure=None):
        torch.rand(3)
        return super().step(closure)


@pytest.mark.parametrize("kind", [Refusing, Drawing])
def test_an_optimizer_of_ones_own_is_built_and_its_trial_draws_no_random_numbers(kind):
    model, _ = model_and_task()
    state = torch.get_rng_state()
    config = {"_target_": f"{__name__}.{kind.__name__}", "name": "mine", "lr": 0.1}
    assert isinstance(build.build_optimizer(config, "cpu", model), kind)
    assert torch.equal(torch.get_rng_state(), state)
