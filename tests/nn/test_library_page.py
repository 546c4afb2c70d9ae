"""The code in docs/library.md does what the page says of it."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

import timescales

PAGE = (Path(__file__).parents[2] / "docs/library.md").read_text()
S, B, I, H = 7, 3, 4, 5  # noqa: E741


def run(word: str, **names: object) -> dict[str, Tensor]:
    """The variables after the only block of code of the page that has this word."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if word in block)
    found = {"torch": torch, **names}
    exec(code, found)
    return found


@pytest.mark.slow
def test_the_classifier_is_saved_and_exported_for_any_number_of_series(tmp_path, monkeypatch):
    """Loaded, and as a program, it gives the same numbers; masked steps count for nothing."""
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    kind = run("class Model", PLSTM=timescales.PLSTM)["Model"]
    model, mask = kind(), torch.ones(S, B)
    mask[4:, 1] = 0.0
    given = {"x": torch.randn(S, B, 1), "dt": torch.rand(S, B), "mask": mask}
    again = run("load_state_dict", model=model, Model=kind)["again"]
    expected = model(**given)
    assert torch.equal(again(**given), expected)
    torch.testing.assert_close(expected[1:2], model(*(value[:4, 1:2] for value in given.values())))
    run("torch.export", again=again, **given)
    program = torch.export.load("model.pt2").module()
    torch.testing.assert_close(program(*given.values()), expected)
    more = [torch.cat([value, value], 1) for value in given.values()]
    torch.testing.assert_close(program(*more), torch.cat([expected, expected]))
