"""SequenceModel: its inputs, its outputs, and which of its parameters are trained and stored."""

import io
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional as F

from timescales import LSTM
from timescales.models.sequence import SequenceModel
from timescales.tasks.task import Batch, Spec
from timescales.training import build

if TYPE_CHECKING:
    from collections.abc import Sequence


def tokens(embedding, **more):
    spec = Spec("tokens", 7, 3, "last", horizon=5, embedding=embedding, **more)
    torch.manual_seed(0)
    return SequenceModel(LSTM(spec.width, 4), spec)


BATCH = Batch(torch.tensor([[0, 1], [6, 2], [3, 3]]), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"input": "tokenz"}, "input must be one of one_hot, tokens, real; not 'tokenz'"),
        ({"readout": "lastt"}, "readout must be one of all, last; not 'lastt'"),
        ({"select": ("accuracy", "higher")}, "the second of select must be one of max, min; not 'higher'"),
    ],
)
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
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    other = tokens(5)
    other.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    assert torch.equal(other.vectors, model.vectors)


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
