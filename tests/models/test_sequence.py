"""Check SequenceModel, its residual blocks and the time since the previous step as an input."""

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from configs import config
from synthetic import sizes
from torch.nn import functional as F

from timescales import LSTM, PLSTM, RNN
from timescales.config import schema
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn.cells.rmc import LayerNorm
from timescales.tasks.task import Batch, Spec
from timescales.training import build, gates

if TYPE_CHECKING:
    from collections.abc import Sequence


def tokens(embedding, **more):
    spec = Spec("tokens", 7, 3, "last", horizon=5, embedding=embedding, **more)
    torch.manual_seed(0)
    return SequenceModel(LSTM(spec.width, 4), spec)


BATCH = Batch(torch.tensor([[0, 1], [6, 2], [3, 3]]), torch.tensor([0, 1]))


@pytest.mark.parametrize(("wrong", "words"), [
    ({"input": "tokenz"}, "input must be one of one_hot, tokens, real; not 'tokenz'"),
    ({"readout": "lastt"}, "readout must be one of all, last; not 'lastt'"),
    ({"select": ("accuracy", "higher")}, "the second of select must be one of max, min; not 'higher'"),
])  # fmt: skip
def test_a_misspelt_spec_is_refused(wrong, words):
    """If it were accepted, a training would run and keep the worst epoch as the best."""
    with pytest.raises(ValueError, match=words):
        Spec(**{"input": "real", "input_size": 1, "output_size": 2, "readout": "all", "horizon": 5} | wrong)


def test_frozen_vectors_are_neither_trained_nor_stored():
    vectors = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    model = tokens(vectors)
    assert not [name for name in model.state_dict() if "vectors" in name]
    assert sum(p.numel() for p in model.parameters()) == 4 * 4 * (5 + 4 + 2) + 4 * 3 + 3
    model(BATCH).logits.sum().backward()
    assert model.vectors.grad is None
    # The same numbers as those of the RNN on the vectors of the tokens.
    _, (h_n, _) = model.rnn(vectors[BATCH.x])
    torch.testing.assert_close(model(BATCH).logits, model.readout(h_n[-1]), rtol=0, atol=0)
    assert model.double()(BATCH).logits.dtype == torch.float64


def test_trained_vectors():
    model = tokens(5)
    assert model.vectors.shape == (7, 5)
    assert sum(p.numel() for p in model.parameters()) == 7 * 5 + 4 * 4 * (5 + 4 + 2) + 4 * 3 + 3
    model(BATCH).logits.sum().backward()
    seen = model.vectors.grad.abs().sum(1) > 0
    assert seen.tolist() == [True, True, True, True, False, False, True]
    assert torch.equal(model.state_dict()["vectors"], model.vectors)


def test_dropout_is_on_what_the_readout_reads():
    model = tokens(torch.randn(7, 5), dropout=0.4)
    h = model.rnn(model.vectors[BATCH.x])[1][0][-1]
    torch.manual_seed(3)
    trained = model(BATCH).logits
    torch.manual_seed(3)
    torch.testing.assert_close(trained, model.readout(F.dropout(h, 0.4)), rtol=0, atol=0)
    torch.testing.assert_close(model.eval()(BATCH).logits, model.readout(h), rtol=0, atol=0)


def test_without_dropout_no_random_number_is_drawn():
    model = tokens(torch.randn(7, 5))
    before = torch.get_rng_state()
    model(BATCH)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_class_may_name_types_that_are_imported_for_type_checkers_alone():
    class Own:
        def __init__(self, sizes: "Sequence[int]"):
            self.sizes = sizes

    assert build.call("model", Own, {"sizes": [3, 4]}).sizes == [3, 4]


# --- Residual blocks -------------------------------------------------------------------------------------------------


S, B, I, H = 7, 3, 4, 5  # noqa: E741
ALL = Spec("real", I, 2, "all", horizon=S)
WORDS = ["task.allow_partial=true", "task.length=12", "task.embedding=6", "model.hidden_size=6", "model.num_layers=1"]
LAST = Spec("real", I, 2, "last", horizon=S)


def residual(spec=ALL, kind=PLSTM, layers=2, **more):
    torch.manual_seed(0)
    return SequenceModel(kind(H, H, layers), spec, block="residual", **more).double()


def batch(seed=1, masked=False):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(S, B, I, generator=random, dtype=torch.float64)
    dt = 0.2 + torch.rand(S, B, generator=random, dtype=torch.float64)
    mask = torch.rand(S, B, generator=random) < 0.7 if masked else None
    return Batch(x, x, mask, dt)


def reference(model, batch, states):
    """The equations of `ResidualBlocks`, with torch's own functions; the layers as they are."""
    blocks = model.blocks
    x = F.linear(batch.x, blocks.encoder.weight, blocks.encoder.bias)
    for cell, block, start in zip(model.rnn.layers, blocks.blocks, states, strict=True):
        normed = F.layer_norm(x, (H,), block.norm.weight, block.norm.bias)
        output, _ = RNN([cell])(normed, [start], batch.dt, batch.mask)
        x = x + output
        norm, first, _, second = block.mlp
        inner = F.gelu(F.linear(F.layer_norm(x, (H,), norm.weight, norm.bias), first.weight, first.bias))
        x = x + F.linear(inner, second.weight, second.bias)
    return F.layer_norm(x, (H,), blocks.norm.weight, blocks.norm.bias)


@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_reference(masked):
    model, one = residual(), batch(masked=masked)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    state = model(batch(2)).state
    found = model(one, state)
    expected = model.readout(reference(model, one, model.rnn.split_state(state)))
    exists = slice(None) if one.mask is None else one.mask  # what comes out at other steps is of no use
    torch.testing.assert_close(found.logits[exists], expected[exists], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found.logits, model(one).logits)


def test_two_segments_are_the_whole():
    model, one = residual(), batch(masked=True)
    first, second = (Batch(*(None if v is None else v[part] for v in one[:4])) for part in (slice(3), slice(3, S)))
    start = model(first)
    parts = [start.logits, model(second, start.state).logits]
    torch.testing.assert_close(torch.cat(parts), model(one).logits, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", ["plain", "residual"])
def test_a_batch_that_begins_again_is_two_batches(block):
    """Where `reset` is not 0 the state is that of the beginning: for one of the three sequences here."""
    torch.manual_seed(0)
    model = SequenceModel(PLSTM(H if block == "residual" else I, H, 2), ALL, block=block).double()
    one, at = batch(masked=True), 3
    reset = torch.zeros(S, B)
    reset[at, 1] = 1
    state = model(batch(2)).state
    first, second = (Batch(*(v[part] for v in one[:4])) for part in (slice(at), slice(at, S)))
    start = model(first, state)
    expected, fresh = (torch.cat([start.logits, model(second, then).logits]) for then in (start.state, None))
    expected[:, 1] = fresh[:, 1]
    found = model(one._replace(reset=reset), state)
    torch.testing.assert_close(found.logits, expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found.logits[at:, 1], model(one, state).logits[at:, 1])
    assert torch.equal(gates.part(one._replace(reset=reset), slice(1, 2)).reset, reset[:, 1:2])


def test_padding_does_not_count():
    """A model that reads the last step reads the last one that exists; what stands at padding has no effect."""
    model, one = residual(LAST), batch()
    mask = torch.ones(S, B, dtype=torch.bool)
    mask[4:, 1] = False
    mask[:2, 2] = False
    x = one.x.masked_fill(~mask.unsqueeze(-1), torch.nan)
    found = model(Batch(x, x, mask, one.dt)).logits
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    for b, steps in ((0, slice(S)), (1, slice(4)), (2, slice(2, S))):
        alone = Batch(one.x[steps, b : b + 1], one.x, None, one.dt[steps, b : b + 1])
        torch.testing.assert_close(model(alone).logits, found[b : b + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model_name", ["plstm", "gru", "mts", "rmc", "eurnn", "plscan"])  # one for each kind of state
def test_models_take_a_block_and_the_gap(model_name):
    """Every parameter gets a gradient; the fused engine has the numbers of the eager one."""
    more = ["model.hidden_size=8", "model.block=residual", "model.gap_input=true"]
    more += ["model.num_layers=3" if model_name == "mts" else "model.num_layers=2"]
    cfg = config("task=frequency", f"model={model_name}", *more, *sizes("frequency", 40, 16, 16))
    network, task, _ = build.build(schema.resolved(cfg))
    one = next(task.batches("train"))
    other = copy.deepcopy(network)
    other.rnn.engine = "eager"
    for each in (network, other):
        task.loss(each(one).logits, one).backward()
    assert torch.allclose(network(one).logits, other(one).logits, atol=1e-5)
    assert all(cell.input_size == cell.hidden_size == 8 for cell in network.rnn.layers)
    assert network.blocks.encoder.in_features == 2  # the wave and the gap
    trained = [p for p in network.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    assert all(p.grad.any() for p in network.blocks.parameters())


def test_gap_is_the_last_input():
    torch.manual_seed(0)
    model, one = SequenceModel(LSTM(I + 1, H), ALL, gap_input=True).double(), batch()
    expected, _ = model.rnn(torch.cat([one.x, one.dt.unsqueeze(-1)], -1))
    assert torch.equal(model(one).logits, model.readout(expected))
    with pytest.raises(ValueError, match="gap_input=true is for batches with dt"):
        model(one._replace(dt=None))


@pytest.mark.parametrize(("overrides", "message"), [
    (["task=copy", "model.block=residuall"], "block must be one of plain, residual; not 'residuall'"),
    (["task=copy", "model.block=residual", "model.num_layers=2", "model.hidden_size=[4,5]"], "give one hidden_size"),
    (["task=adding", "model.block=residual", "+model.bidirectional=true"], "leave out bidirectional"),
    (["task=copy", "+model.bidirectional=true"], "leave out bidirectional"),
    (["task=copy", "model.gap_input=true"], "such as task=frequency"),
    (["task=copy", "model.gap_input=1"], "model.gap_input must be true or false"),
    (["task=ptb_word", "model.block=residual", *WORDS], "model.block is no argument of .*AWDModel: it takes "),
])  # fmt: skip
def test_what_cannot_be_built_is_refused(overrides, message, corpora):
    cfg = config("model=lstm", *overrides, f"data_root={corpora}")
    with pytest.raises(ConfigError, match=message):
        build.build(schema.resolved(cfg))


def test_a_key_at_its_default_is_not_in_the_id():
    def of(*overrides):
        return schema.identity(schema.resolved(config("task=frequency", "model=plstm", *overrides)))

    assert of() == "7eda5edfd218"  # the id that it had before there were these keys
    defaults = ["model.block=plain", "model.gap_input=false", "model.auxiliary=none", "model.auxiliary_steps=600"]
    assert of(*defaults, "task.time_unit=raw", "task.dt=true") == of()
    other = ("model.block=residual", "model.gap_input=true", "task.time_unit=longest", "task.dt=false")
    more = ("model.auxiliary=predict", "model.auxiliary=reconstruct", "model.auxiliary_steps=5")
    assert len({of(), *map(of, (*other, *more))}) == 8
    plain = schema.resolved(config("task=frequency", "model=plstm"))
    for part, key in (("model", "block"), ("model", "gap_input"), ("task", "time_unit"), ("task", "dt")):
        del plain[part][key]
    assert schema.identity(plain) == of()


def test_the_layer_norm_is_torchs_but_for_rounding():
    x, ours, torchs = torch.randn(B, H), LayerNorm(H), torch.nn.LayerNorm(H)
    for norm in (ours, torchs):
        torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(0))
        torch.nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours(x), torchs(x))
