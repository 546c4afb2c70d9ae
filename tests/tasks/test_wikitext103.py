"""WikiText-103: where articles begin, words by frequency, windows, in the format of the corpus."""

import pytest
import texts
import torch
from language import wikitext103, words

from timescales.tasks import WikiText103
from timescales.tasks.data import text
from timescales.tasks.data.text import SPLITS, article_begins

LINES = """
 = Valkyria =

 Senjō no Valkyria 3 : <unk> Chronicles
 = = Gameplay = =
 = = = Characters = = =
 = a
 =
 = =
 a = b
 = Two words =
 = x
 = x = =
 E = m c =
 = E = m =
 the end"""


def tokens_of(lines):
    found = [word for line in lines.split("\n") for word in (*line.split(), text.EOS)]
    symbols = list(dict.fromkeys(found))
    return torch.tensor([symbols.index(word) for word in found], dtype=torch.int32), symbols


def is_title(line):
    """One sign at each end, and something between them."""
    words = line.split()
    return len(words) > 2 and words[0] == words[-1] == "=" and "=" not in (words[1], words[-2])


def begins_of(lines):
    """The same, line by line."""
    return [title and k == 0 for line in lines for title in [is_title(line)] for k in range(len(line.split()) + 1)]


def test_articles_begin_at_titles_alone():
    tokens, symbols = tokens_of(LINES)
    found = article_begins(tokens, symbols)
    assert found.tolist() == begins_of(LINES.split("\n"))
    lines = [line for line in LINES.split("\n") if is_title(line)]
    assert lines == [" = Valkyria =", " = Two words =", " = E = m ="]
    assert not article_begins(*tokens_of("no sign\nat all")).any()
    assert article_begins(*tokens_of("= At once =\nx")).tolist() == [True, *[False] * 6]
    cut = tokens_of("x\n= Cut off =")[0][:-1], tokens_of("x\n= Cut off =")[1]
    assert not article_begins(*cut).any()  # a text need not end with a line


@pytest.mark.parametrize("split", SPLITS)
def test_words_are_numbered_by_their_frequency(text_root, split):
    task = wikitext103(text_root)
    lines = (text_root / "wikitext-103" / f"wiki.{split}.tokens").read_text().removesuffix("\n").split("\n")
    expected = [word for line in lines for word in (*line.split(), text.EOS)]
    assert [task.vocabulary[k] for k in task.tokens[split].tolist()] == expected
    assert task.tokens[split].dtype == torch.int32
    counts = task.counts(("train",))
    assert counts.sum() == len(task.tokens["train"])
    assert torch.equal(counts, counts.sort(descending=True).values)
    assert len(set(task.vocabulary)) == len(counts) == task.spec.input_size
    assert task.chance() == pytest.approx(words(text_root, corpus="wt103").chance(), rel=1e-12)


@pytest.mark.parametrize("split", SPLITS)
def test_windows_and_resets(text_root, split):
    task = wikitext103(text_root, length=25)
    stream = task.streams[split].long()
    batches = list(task.batches(split, 1))
    x, target = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("x", "target"))
    reset = torch.cat([torch.zeros_like(b.x, dtype=torch.bool) if b.reset is None else b.reset for b in batches])
    assert torch.equal(x, stream[:-1])
    assert torch.equal(target, stream[1:])
    assert [len(batch.x) for batch in batches[:-1]] == [25] * (len(batches) - 1)
    assert all(batch.lr_scale is None for batch in batches)
    lines = (text_root / "wikitext-103" / f"wiki.{split}.tokens").read_text().removesuffix("\n").split("\n")
    begins = torch.tensor(begins_of(lines))[: stream.numel()].view(stream.shape[1], -1).T
    assert torch.equal(reset, begins[:-1])
    assert reset.sum() > 1
    assert [task.vocabulary[k] for k in x[reset].tolist()] == ["="] * int(reset.sum())
    rest = list(task.batches(split, 1, 2))
    for batch, again in zip(batches[2:], rest, strict=True):
        assert torch.equal(batch.x, again.x)
        assert (batch.reset is None) == (again.reset is None)
        assert batch.reset is None or torch.equal(batch.reset, again.reset)


@pytest.mark.parametrize("length", [5, 25])
def test_a_window_in_which_no_article_begins_has_no_reset(text_root, length, monkeypatch):
    """So that the layers may take an engine without resets. It is known before: no step waits for a GPU."""
    task = wikitext103(text_root, length=length)
    assert task.has_resets
    monkeypatch.setattr(torch.Tensor, "item", None)
    monkeypatch.setattr(torch.Tensor, "__bool__", None)
    windows = {split: list(task.batches(split)) for split in SPLITS}
    monkeypatch.undo()
    for split, batches in windows.items():
        begins = task.resets[split][:-1].split(length)
        assert [batch.reset is not None for batch in batches] == [bool(part.any()) for part in begins]
        assert all(batch.reset is None or torch.equal(batch.reset, b) for batch, b in zip(batches, begins, strict=True))
    if length == 5:
        assert {batch.reset is None for batch in windows["train"]} == {True, False}


def test_steps_of_epochs(text_root):
    task = wikitext103(text_root)
    n = -(-(len(task.streams["train"]) - 1) // 12)
    assert len(list(task.batches("train"))) == n == task.start_of(1)
    assert task.start_of(5) == 5 * n
    assert task.position(2 * n + 3) == (2, 3)


def test_a_carried_state_and_a_text_without_titles(text_root):
    assert all(batch.reset is None for batch in wikitext103(text_root, articles="carried").batches("train"))
    without = wikitext103(text_root, corpus="ptb")
    assert all(batch.reset is None for batch in without.batches("train"))
    assert not without.has_resets
    with pytest.raises(ValueError, match="reset, carried"):
        wikitext103(text_root, articles="zero")
    with pytest.raises(ValueError, match="ptb, wt2, wt103, markov_ptb"):
        wikitext103(text_root, corpus="text8")


def test_an_incomplete_corpus_is_refused(tmp_path):
    texts.write_articles(tmp_path / "wikitext-103", texts.WIKITEXT2)
    with pytest.raises(ValueError, match=r"is not the complete WikiText-103: .* of 103,227,021 words in train"):
        wikitext103(tmp_path, allow_partial=False)
    assert "WikiText-103 subset" in wikitext103(tmp_path).partial[0]


def test_defaults_are_those_of_the_configuration():
    import inspect

    given = {name: p.default for name, p in inspect.signature(WikiText103).parameters.items()}
    assert (given["length"], given["batch_size"], given["cutoffs"]) == (128, 128, (10_000, 20_000, 200_000))
