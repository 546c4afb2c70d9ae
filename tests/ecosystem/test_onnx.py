"""torch.onnx.export: an exported model gives the output of the layer, in ONNX's reference implementation."""

import pytest
import torch
from onnx.reference import ReferenceEvaluator
from rnn_cases import KINDS, B, H, I, S
from torch import nn

import timescales


class OutputOnly(nn.Module):
    """A model whose only result is the layer's output."""

    def __init__(self, kind):
        super().__init__()
        name, arguments = KINDS[kind]
        self.rnn = getattr(timescales, name)(I, H, 3, **arguments)

    def forward(self, x):
        return self.rnn(x)[0]


def export(kind, path):
    torch.manual_seed(0)
    model = OutputOnly(kind).eval()
    torch.onnx.export(model, (torch.zeros(S, B, I),), dynamo=True, verbose=False).save(path)
    return model


NOT_IN_ONNX = {"ExpRNN": "linalg_matrix_exp", "URNN": "complex-valued", "EURNN": "complex-valued"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_IN_ONNX])
def test_an_exported_model_gives_the_same_output(kind, tmp_path):
    model = export(kind, tmp_path / "model.onnx")
    evaluator, x = ReferenceEvaluator(str(tmp_path / "model.onnx")), torch.randn(S, B, I)
    (output,) = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), model(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "missing"), NOT_IN_ONNX.items())
def test_onnx_has_no_matrix_exponential_and_no_complex_numbers(kind, missing, tmp_path):
    with pytest.raises(torch.onnx.OnnxExporterError, match=missing):
        export(kind, tmp_path / "model.onnx")
