"""The code of docs/library.md and docs/gates.md does what the pages say; the example of the latter trains."""

import re
import shlex
from pathlib import Path

import own_pages
import pytest
import torch
from torch import Tensor

import timescales
from timescales import analysis
from timescales.analysis.gate_gradients import observed

PAGE = (Path(__file__).parents[2] / "docs/library.md").read_text()
S, B, I, H = 7, 3, 4, 5  # noqa: E741


def run(word: str, **names: object) -> dict[str, Tensor]:
    """The variables after the only block of code of the page that has this word."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if word in block)
    found = {"torch": torch, **names}
    exec(code, found)
    return found


@pytest.mark.parametrize("kind", ["PLSTM", "LeakyRNN"])
def test_skipped_time_reaches_the_next_step(kind):
    """A series with missing steps equals the series without these steps, with the times between those that exist."""
    torch.manual_seed(0)
    rnn, x, dt = getattr(timescales, kind)(I, H), torch.randn(S, 1, I), torch.rand(S, 1) + 0.1
    for mask in ([1, 0, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 1, 0], [1] * S):
        exists = torch.tensor(mask, dtype=torch.bool)
        time = dt.cumsum(0)[exists]
        short, expected = rnn(x[exists], dt=time.diff(dim=0, prepend=torch.zeros(1, 1)))
        for given in (exists[:, None], exists[:, None].float()):
            output, state = rnn(x, dt=run("cumsum", dt=dt, mask=given)["dt"], mask=given)
            torch.testing.assert_close(output[exists], short)
            torch.testing.assert_close(*(torch.utils._pytree.tree_leaves(value) for value in (state, expected)))
        dropped, _ = rnn(x, dt=dt, mask=exists[:, None])
        assert torch.allclose(dropped[exists], short, atol=1e-6) == all(mask)


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


def test_a_trained_model_is_loaded():
    model = run('timescales.load("')["model"]
    assert model.card["id"] == "2e471ad7b7ea"
    assert [len(times) for times in model.rnn.timescales()] == [model.rnn.hidden_size]


def test_a_policys_loop_over_steps_is_one_call_with_resets():
    torch.manual_seed(0)
    rnn, x, reset = timescales.LSTM(I, H), torch.randn(S, B, I), (torch.rand(S, B) < 0.3).float()
    before = (torch.rand(1, B, H), torch.rand(1, B, H))
    found = run("outputs, now", rnn=rnn, x=x, state=before, reset=reset)
    torch.testing.assert_close(found["output"], torch.cat(found["outputs"]))
    torch.testing.assert_close(found["state"], found["now"])


BLOCKS = own_pages.blocks("gates.md")
FILES = own_pages.files(BLOCKS)
(COMMAND,) = [text for language, text in BLOCKS if language == "bash"]
SMALL = ["task.batch_size=4", "task.train_size=8", "task.valid_size=4", "task.test_size=4", "loop.max_steps=2"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    with own_pages.written(FILES, tmp_path, monkeypatch, "leak") as folder:
        yield folder


def test_every_block_runs():
    names = {"__name__": "gates"}
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "docs/gates.md", "exec"), names)
    assert names["output"].shape == (200, 32, 128)
    x = torch.randn(5, 2, 3)
    assert names["RNN"]([names["Average"](3, 4)])(x)[0].shape == (5, 2, 4)


@pytest.mark.slow
def test_the_complete_example_trains_and_is_analysed(mine, train):
    assert sorted(FILES) == ["mine/leak.py", "mine/model/leak.yaml"]
    words = shlex.split(COMMAND)
    assert words[:3] == ["PYTHONPATH=mine", ".venv/bin/python", "train.py"]
    done = train(*words[3:], *SMALL, "logger=none", "device=cpu", "seeds=2", "run_dir=out")
    assert done.status == 0, done
    (directory, _) = sorted(path.parent for path in mine.rglob("record.json"))
    run = analysis.load(directory)
    assert analysis.study_run(run, "one_over_e").values["median"] > 0
    assert observed(run.model, run.task).gate.numel() > 0
    assert "note:" not in done.out
