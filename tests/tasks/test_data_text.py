"""Check corpora of language modelling: found, counted, numbered, refused or marked; articles of WikiText-103."""

import dataclasses
import hashlib
import sys
import types
from collections import Counter

import pytest
import synthetic
import texts
import torch
from language import wikitext103, words

from timescales.tasks.data import text
from timescales.tasks.data.text import SPLITS, article_begins

pytestmark = pytest.mark.usefixtures("cache")


def write(folder, contents, names=texts.PTB):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_text(content)
    return folder


SMALL = (" a b \n b <unk> N\n", "c  d\n", "\n a e")


def test_words_are_numbered_in_order_of_first_sight_and_characters_are_made_from_them(tmp_path):
    write(tmp_path / "ptb", SMALL)
    found = text.words("ptb", tmp_path, allow_partial=True)
    assert found.symbols == ["a", "b", "<eos>", "<unk>", "N", "c", "d", "e"]
    assert [split.tolist() for split in found[:3]] == [[0, 1, 2, 1, 3, 4, 2], [5, 6, 2], [2, 0, 7, 2]]
    assert found.train.dtype == torch.int32
    counted = "7 of 929,589 words in train, 3 of 73,760 words in valid, 4 of 82,430 words in test, 8 of 10,000 types"
    assert found.partial == [f"Penn Treebank subset: {counted}"]
    found = text.ptb_characters(tmp_path, allow_partial=True)
    read = ["".join(found.symbols[k] for k in split) for split in found[:3]]
    assert read == ["a_b\nb_<unk>_N\n", "c__d\n", "\na_e\n"]
    assert found.symbols == ["a", "_", "b", "\n", "<", "u", "n", "k", ">", "N", "c", "d", "e"]
    assert "14 of 5,017,482 characters in train" in found.partial[0]


def test_text8_is_cut_in_nineties_and_fives(tmp_path):
    path = texts.write_text8(tmp_path / "text8" / "text8", 2000)
    found = text.text8(tmp_path, allow_partial=True)
    assert [len(split) for split in found[:3]] == [1800, 100, 100]
    assert "".join(found.symbols[k] for split in found[:3] for k in split) == path.read_text()
    assert found.symbols == list(" abcdefghijklmnopqrstuvwxyz")
    assert found.partial == ["text8 subset: 2,000 of 100,000,000 characters"]
    path.write_text(path.read_text()[:-1] + " \n")  # a last space is the text's, the line's end is not
    found = text.text8(tmp_path, allow_partial=True)
    assert (sum(map(len, found[:3])), int(found.test[-1])) == (2000, 0)


@pytest.mark.parametrize(
    ("load", "differs"),
    [
        (lambda root: text.words("ptb", root), "594 of 929,589 words in train"),
        (lambda root: text.words("wt2", root), "594 of 2,088,628 words in train"),
        (lambda root: text.words("wt103", root), "of 103,227,021 words in train"),
        (text.ptb_characters, "of 5,017,482 characters in train"),
        (text.text8, "4,000 of 100,000,000 characters"),
    ],
)
def test_another_size_is_refused(tmp_path, load, differs):
    texts.write_texts(tmp_path, lengths=(540, 90, 80))
    with pytest.raises(ValueError, match=r"is not the complete .*task\.allow_partial=true") as error:
        load(tmp_path)
    assert differs in str(error.value)
    assert "\n" not in str(error.value)


def test_the_whole_corpus_has_nothing_to_say(tmp_path, monkeypatch):
    write(tmp_path / "ptb", SMALL)
    counts = dict(zip(text.PTB.counts, (7, 3, 4, 8, "5c1930d7ed2f93aa"), strict=True))
    monkeypatch.setitem(text.WORDS, "ptb", dataclasses.replace(text.PTB, counts=counts))
    assert text.words("ptb", tmp_path).partial == []
    changed = tmp_path / "ptb" / "ptb.valid.txt"
    changed.write_text("d  c\n")  # as many words, of the same types
    with pytest.raises(ValueError, match=r"as long, with another content \(digest"):
        text.words("ptb", tmp_path)


def test_what_is_damaged_is_named(tmp_path):
    write(tmp_path / "ptb", SMALL)
    (tmp_path / "ptb" / "ptb.test.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"ptb\.test\.txt is not UTF-8 \(byte 0xff at 0\): save it as UTF-8, or"):
        text.words("ptb", tmp_path, allow_partial=True)
    (tmp_path / "ptb" / "ptb.test.txt").unlink()
    for load in (lambda: text.words("ptb", tmp_path, True), lambda: text.ptb_characters(tmp_path, True)):
        with pytest.raises(ValueError, match=r"ptb\.test\.txt"):
            load()
    for name, content in (("text8", b"Capitals"), ("text8.zip", b"no zip")):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}.*(contains b'C'|cannot be read).*fetch it again"):
            text.text8(tmp_path, True)
        (tmp_path / name / name).unlink()


def test_download(tmp_path, monkeypatch):
    """Rows of the Hub become lines, empty ones too; text8's rows are one text."""
    asked, written = [], []

    def load_dataset(name, *configuration, revision=None):
        asked.append((name, *configuration, revision))
        column = "sentence" if "ptb" in name else "text"
        rows = [f"{k} words" for k in range(3)] if "text8" not in name else ["ab ", "cd"] * 20
        ends = {split: [] if "text8" in name else ["", f" {split} \n"] for split in ("train", "validation", "test")}
        return {split: {column: [*rows, *end]} for split, end in ends.items()}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr("timescales.tasks.data.corpus._check_reachable", lambda url: None)
    monkeypatch.setattr(text, "write_atomic", lambda path, data: (written.append(path.name), path.write_bytes(data)))
    for name, folder in (("ptb", "ptb"), ("wt2", "wikitext-2"), ("wt103", "wikitext-103")):
        found = text.words(name, tmp_path, allow_partial=True)
        assert found.symbols == ["0", "words", "<eos>", "1", "2", "train", "validation", "test"]
        assert found.test.tolist() == [0, 1, 2, 3, 1, 2, 4, 1, 2, 2, 7, 2]
        assert len(list((tmp_path / folder).iterdir())) == 3
    assert text.text8(tmp_path, allow_partial=True).sizes == {"train_size": 270, "valid_size": 15, "test_size": 15}
    assert asked == [
        ("ptb-text-only/ptb_text_only", "penn_treebank", "refs/convert/parquet"),
        ("Salesforce/wikitext", "wikitext-2-v1", None),
        ("Salesforce/wikitext", "wikitext-103-v1", None),
        ("afmck/text8", None),
    ]
    assert written == [*texts.PTB, *texts.WIKITEXT2, *texts.WIKITEXT2, "text8"]


# Mikolov's character files: every character, the line's end too, followed by a space.
MD5 = ["874909f99060142f6b88cc74c34baaa2", "9e0fe5bec2a8bf43fd686dc23d5ab8bb", "1f9a2d1afe00f76e8bfbe09a65439681"]


@pytest.mark.slow
@pytest.mark.skipif(
    None in map(synthetic.real, (text.PTB, text.WIKITEXT2, text.TEXT8)),
    reason="needs the Penn Treebank, WikiText-2 and text8 under TIMESCALES_DATA",
)
def test_the_real_corpora():
    for corpus in ("ptb", "wt2"):
        assert text.words(corpus).partial == []
    found = text.ptb_characters()
    assert found.partial == []
    for split, md5 in zip(found[:3], MD5, strict=True):
        spaced = "".join(f"{found.symbols[k]} " for k in split.tolist())
        assert hashlib.md5(spaced.encode()).hexdigest() == md5
    assert text.text8(allow_partial=True).train.max() == 26


def slow_bigrams(words):
    """How often each word follows each other one; the first follows the last."""
    return Counter(zip(words, [*words[1:], words[0]], strict=True))


def test_the_markov_text_has_the_bigrams_and_nothing_else():
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, 4, (60,), generator=generator).int()  # 0 ends a sentence
    made = text.markov(source, eos=0, n=200_000)
    assert (made.dtype, len(made)) == (torch.int32, 200_000)
    of, drawn = slow_bigrams(source.tolist()), slow_bigrams(made.tolist()[:-1])
    assert set(drawn) <= set(of) | {(made[-2].item(), made[0].item())}
    leaving = Counter(source.tolist())
    first = Counter(made.tolist())
    for (a, b), n in of.items():
        assert drawn[a, b] / first[a] == pytest.approx(n / leaving[a], abs=0.012)
    # Given the word before, the one before that says nothing: three words in a row, as often as a chain has them.
    triples = Counter(zip(*(made.tolist()[k:] for k in range(3)), strict=False))
    for (a, b, c), n in triples.most_common(20):
        assert n / drawn[a, b] == pytest.approx(of[b, c] / leaving[b], abs=0.02)


def test_the_markov_text_is_one_for_all_and_ends_anywhere():
    source = torch.tensor([1, 2, 0, 2, 0, 3, 1, 1, 0], dtype=torch.int32)
    assert text.markov(source, 0, 50).tolist() == text.markov(source, 0, 50).tolist()
    assert text.markov(source, 0, 50).tolist() != text.markov(source, 0, 50, seed=1).tolist()
    assert text.markov(torch.tensor([1, 0]), 0, 5).tolist() == [1, 0, 1, 0, 1]  # only one text is possible
    assert text.markov(torch.tensor([0, 1, 2]), 2, 5).tolist() == [0, 1, 2, 0, 1]  # it begins a sentence
    with pytest.raises(ValueError, match="without an end of sentence"):
        text.markov(torch.tensor([1, 2]), 0, 5)


def test_the_markov_corpus_is_as_large_as_the_real_one(tmp_path, monkeypatch):
    texts.write_texts(tmp_path)
    real, made = (text.words(corpus, tmp_path, allow_partial=True) for corpus in ("ptb", "markov_ptb"))
    assert (made.sizes, made.symbols) == (real.sizes, real.symbols)
    assert made.partial == real.partial != []
    assert not torch.equal(made.train, real.train)
    whole = sum(map(len, real[:3]))
    assert torch.equal(torch.cat(made[:3]), text.markov(real.train, real.symbols.index(text.EOS), whole, seed=0))
    texts.write_texts(tmp_path / "changed", types=30)
    assert int(text.words("markov_ptb", tmp_path / "changed", allow_partial=True).train.max()) == 29
    monkeypatch.setattr(text, "markov", lambda *arguments: pytest.fail("again"))
    again = text.words("markov_ptb", tmp_path, allow_partial=True)
    assert all(map(torch.equal, made[:3], again[:3]))
    with pytest.raises(ValueError, match=r"is not the complete Penn Treebank"):
        text.words("markov_ptb", tmp_path)


# --- WikiText-103 ----------------------------------------------------------------------------------------------------
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
