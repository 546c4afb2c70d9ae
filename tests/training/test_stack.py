"""Batched seeds: a model with stacked parameters is each of the single ones, or says why it cannot be."""

import math
from dataclasses import asdict
from typing import NamedTuple

import pytest
import torch
from everyday import only
from synthetic import SMALL, sizes
from trainings import COPY, batched, close, parts, same, single

from timescales.nn.cells import Cell
from timescales.nn.rnn import RNN
from timescales.training import optimizers, stack
from timescales.training.outcome import outcome
from timescales.training.stack import reason_not_batched

CASES = {
    "lstm": [*COPY, "model=lstm", "loop.clip_norm=0.05"],  # always clipped
    "plstm, two layers": [*COPY, "model=plstm", "model.num_layers=2", "optimizer=adam"],
    "plstm, fixed power": [*COPY, "model=plstm", "model.power=0.5", "loop.clip_norm=null"],
    "ur": [*COPY, "model=ur", "optimizer=sgd", "optimizer.momentum=0.9"],
    "chrono": [*COPY, "model=chrono", "optimizer.momentum=0.5", "optimizer.weight_decay=0.01"],
    "mts": [*COPY, "model=mts", "model.num_layers=3", "optimizer.weight_decay=0.1"],
    "om": [*COPY, "model=gated", "model.gate=om", "model.downsize=2"],
    "gru, ur, head": [*COPY, "model=gated", "model.core=gru", "model.head_size=5"],
    "gru": [*COPY, "model=gru", "loop.eval_every=2"],
    "pgru": [*COPY, "model=pgru"],
    "janet": [*COPY, "model=janet"],
    "elstm": ["task=frequency", "model=elstm", *sizes("frequency", 40, 16, 16)],
    "leaky": ["task=frequency", "model=leaky", *sizes("frequency", 40, 16, 16)],
    "mingru": [*COPY, "model=mingru", "model.T_max=auto"],
    "minlstm": ["task=frequency", "model=minlstm", *sizes("frequency", 40, 16, 16)],
    "plscan": ["task=frequency", "model=plscan", *sizes("frequency", 40, 16, 16)],
    "lru": ["task=frequency", "model=lru", *sizes("frequency", 40, 16, 16)],
    "residual blocks": [*COPY, "model=plstm", "model.block=residual", "model.num_layers=2"],
    "residual blocks, last step": [
        "task=frequency",
        "model=lstm",
        "model.block=residual",
        "model.gap_input=true",
        *sizes("frequency", 40, 16, 16),
    ],
    "exprnn": [*COPY, "model=exprnn"],
    "rmc": [*COPY, "model=rmc", "model.hidden_size=8", "model.heads=2", "model.gate=ur"],
    "mask, dt and uneven lengths": ["task=frequency", "model=plstm", *sizes("frequency", 40, 16, 16)],
    "uneven lengths, all read": ["task=variable_copy", "model=lstm", *SMALL["variable_copy"], *sizes("", 40, 16, 16)],
    "strings": ["task=dyck2", "model=gru", *sizes("dyck2", 40, 16, 16)],
    "vectors": ["task=imdb", "model=gru", "task.dropout=0", *SMALL["imdb"], *sizes("imdb", 40, 16, 16)],
    "vectors, mask": [
        "task=imdb",
        "model=plstm",
        "task.dropout=0",
        "task.readout=true_length",
        *SMALL["imdb"],
        *sizes("imdb", 40, 16, 16),
    ],
    "carried state": ["task=ptb_char", "model=plstm", "loop.max_steps=12", "loop.eval_every=6", *SMALL["ptb_char"]],
}

# The others have the parts of these, in other cells.
FEW = ("lstm", "mts", "gru, ur, head", "exprnn", "rmc", "plscan", "residual blocks, last step", "carried state")
FEW += ("uneven lengths, all read", "mask, dt and uneven lengths", "vectors, mask")


@pytest.mark.parametrize("name", only(FEW, CASES))
def test_batched_is_single(tmp_path, corpora, capsys, name):
    overrides = ["loop.max_epochs=2", *CASES[name]]
    ones = single(overrides, tmp_path / "single", (0, 1, 2), corpora=str(corpora))
    both = batched(overrides, tmp_path / "batched", (0, 1, 2), corpora=str(corpora))
    assert "one after another" not in capsys.readouterr().err
    same(ones, both)
    assert ones[0].progress.curve != ones[1].progress.curve  # the seeds differ
    for runs in zip(ones, both, strict=True):
        results = [outcome(run) for run in runs]
        for result in results:
            result.seconds = 0.0
        close(*map(asdict, results), 1e-9)


def test_a_checkpoint_of_a_batched_run_is_no_larger(tmp_path):
    overrides = [*COPY, "model=gru", "model.hidden_size=40", "loop.max_epochs=1"]
    single(overrides, tmp_path / "single", (0,))
    batched(overrides, tmp_path / "batched", (0, 1, 2, 3))
    size = [(tmp_path / kind / "0" / "last.pt").stat().st_size for kind in ("single", "batched")]
    assert size[1] < 1.05 * size[0]


def test_a_stack_begins_again_where_each_of_its_models_does():
    """One batch has resets, the other none."""
    both = [parts([*COPY, "model=gru"], seed) for seed in (0, 1)]
    models = [model for model, *_ in both]
    batches = [next(task.batches("train")) for _, task, *_ in both]
    reset = torch.zeros(batches[0].x.shape)
    reset[3, ::2] = 1
    batches[0] = batches[0]._replace(reset=reset)
    assert reason_not_batched(models[0], both[0][2], batches[0]) is None
    expected = [model(batch).logits.detach() for model, batch in zip(models, batches, strict=True)]
    without = models[0](batches[0]._replace(reset=None)).logits
    assert not torch.allclose(without, expected[0])
    found = stack.Stack(models)(batches, [None, None])
    for output, logits in zip(found, expected, strict=True):
        torch.testing.assert_close(output.logits, logits)


def test_what_a_stack_would_leave_out_is_refused():
    model, task, optimizer, _ = parts([*COPY, "model=gru"], 0)
    batch = next(task.batches("train"))
    assert reason_not_batched(model, optimizer, batch) is None
    assert "lr_scale" in reason_not_batched(model, optimizer, batch._replace(lr_scale=0.5))
    one = stack.Stack([model])
    with pytest.raises(AssertionError):
        optimizers.step(stack.StackedOptimizer(one, [model], [optimizer]), lr_scale=0.5)
    optimizer.add_param_group({"params": [torch.zeros(1)]})
    assert "several parameter groups" in reason_not_batched(model, optimizer, batch)
    with pytest.raises(AssertionError):
        stack.StackedOptimizer(one, [model], [optimizer])


class Careless(Cell):
    """Reads a parameter of its own without `per_unit`: with as many seeds as sequences it would be the wrong one's."""

    gates = ("cell",)

    class State(NamedTuple):
        h: torch.Tensor

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.scale = torch.nn.Parameter(torch.rand(hidden_size))

    def step(self, gx, gh, state, dt=1.0):
        return self.State((self.scale * (gx + gh)).tanh())

    def timescales(self):
        return self.scale


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ([*COPY, "model=gru", "+model.head_size=4", "+model.head_dropout=0.5"], "draws random numbers"),
        ([*COPY, "model=gated", "model.zoneout_h=0.1"], "draws random numbers"),
        ([*COPY, "model=gru", "model.dropout=0.3", "model.num_layers=2"], "draws random numbers"),
        (["task=imdb", "model=gru", *SMALL["imdb"], *sizes("imdb", 40, 16, 16)], "draws random numbers"),
        ([*COPY, "model=gru", "optimizer=nt_asgd", "optimizer.lr=0.1"], "NTASGD cannot be batched"),
        (["task=ptb_word", "model=lstm", "loop.max_steps=2", *SMALL["ptb_word"]], "AWDModel cannot be batched"),
    ],
)
def test_what_cannot_be_batched_runs_one_after_another(tmp_path, corpora, capsys, overrides, reason):
    overrides = ["loop.max_epochs=1", *overrides]
    both = batched(overrides, tmp_path / "batched", (0, 1), corpora=str(corpora))
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("2 seeds, one after another: ")
    assert reason in line
    # Built in turn, as the command does: both would draw from one generator here.
    for seed, found in enumerate(both if reason != "draws random numbers" else ()):
        same(single(overrides, tmp_path / "single", (seed,), corpora=str(corpora)), [found], 0.0)


@pytest.mark.parametrize("batch_size", [2, 3])
def test_a_cell_that_takes_no_stacked_parameters_is_seen(batch_size):
    model, task, optimizer, _ = parts([*COPY, "model=gru"], 0)
    model.rnn = RNN([Careless(10, 6)]).double()
    batch = next(task.batches("train"))
    batch = batch._replace(x=batch.x[:, :batch_size])
    assert "does not take stacked parameters" in reason_not_batched(model, optimizer, batch)


def test_clip_is_torchs_for_each_replica():
    torch.manual_seed(0)
    grads = [torch.randn(3, 4, 5), torch.randn(3, 7)]
    for grad in grads:
        grad[1] *= 1e-3  # not clipped
        grad[2, 0] = math.nan
    expected = []
    for r in range(3):
        own = [torch.zeros_like(grad[r]) for grad in grads]
        for p, grad in zip(own, grads, strict=True):
            p.grad = grad[r].clone()
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        expected.append([p.grad for p in own])
    stack.clip(grads, 1.0)
    for r in range(3):
        close([grad[r] for grad in grads], expected[r], 1e-6)
