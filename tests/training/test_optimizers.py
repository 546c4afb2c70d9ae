"""Every optimizer of torch trains, or is refused in one line before training begins."""

import inspect

import pytest
import torch
from trainings import SMALL, fit, quiet, same_weights

from timescales import PLSTM
from timescales.config import schema
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.tasks import Copy
from timescales.training import build

OPTIMIZERS = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
REFUSED = {  # why: in torch's words
    "LBFGS": "closure",
    "SparseAdam": "dense gradients",
    "Muon": r"only supports 2D parameters whereas .* size: torch\.Size\(\[18\]\)",  # the biases of three gates
}
CASES = [
    (name, setting)
    for name, kind in OPTIMIZERS.items()
    for setting in (None, "foreach", "fused")
    if setting is None or setting in inspect.signature(kind).parameters
]


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


def test_settings_that_exclude_each_other_are_one_line():
    config = {"_target_": "torch.optim.Adam", "name": "adam", "lr": 0.01, "fused": True, "foreach": True}
    with pytest.raises(ConfigError, match=r"optimizer=adam: .*`fused` and `foreach` cannot be `True` together"):
        build.build_optimizer(config, "cpu", model_and_task()[0])


def test_an_assertion_of_an_optimizer_is_one_line():
    config = {"_target_": "torch.optim.Adam", "name": "adam", "lr": 0.01, "capturable": True}
    with pytest.raises(ConfigError, match=r"optimizer=adam: .*capturable=True") as raised:
        build.build_optimizer(config, "cpu", model_and_task()[0])
    assert "\n" not in str(raised.value)


def test_an_optimizer_of_matrices_trains_a_model_of_matrices():
    model = model_and_task()[0]
    matrices = torch.nn.ParameterList(p for p in model.parameters() if p.dim() == 2)
    optimizer = build.build_optimizer({"_target_": "torch.optim.Muon", "name": "muon", "lr": 0.01}, "cpu", matrices)
    assert optimizer.param_groups[0]["params"] == list(matrices)


class Drawing(torch.optim.SGD):
    """One that adds noise to its step."""

    def step(self, closure=None):
        torch.rand(3)
        return super().step(closure)


def test_the_trial_draws_no_random_numbers():
    model, _ = model_and_task()
    state = torch.get_rng_state()
    build.build_optimizer({"_target_": f"{__name__}.Drawing", "name": "drawing", "lr": 0.1}, "cpu", model)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam"])
def test_the_command_line_says_so(train, name):
    yaml = f"optimizer={{_target_:torch.optim.{name},name:mine}}"
    done = train("task=copy", yaml, "~optimizer.alpha", "~optimizer.momentum", "model.hidden_size=4", "logger=none")
    assert done.status == 1
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
