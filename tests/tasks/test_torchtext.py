"""What the papers read with torchtext, read by us: tokens, vocabulary, numbers and vectors are equal.

torchtext 0.6.0 is its last pure-Python release, the only one that loads beside the torch of today.
"""

import ssl

import pytest
import synthetic
import torch
from torch import nn

from timescales.tasks import IMDB
from timescales.tasks.data import glove, imdb, text

TOKENIZER = imdb.tokenizer  # spaCy's; tests put another in its place
data = pytest.importorskip("torchtext", "0.6.0", reason="pip install -e '.[torchtext]' for these tests").data


@pytest.fixture
def films(tmp_path):
    synthetic.write_imdb(tmp_path / "aclImdb_v1.tar.gz", train=400, test=100)
    synthetic.write_glove(tmp_path / "glove.6B.100d.txt")
    return tmp_path


@pytest.mark.parametrize("pad", ["end", "front"])
@pytest.mark.parametrize("vocabulary", [13, 25_000])
@pytest.mark.parametrize("lower", [False, True])
def test_imdb_is_what_a_field_makes(films, pad, vocabulary, lower):
    options = {"steps": 20, "valid_size": 40, "batch_size": 50, "pad": pad, "vocabulary": vocabulary, "lower": lower}
    task = IMDB(data_root=str(films), allow_partial=True, **options)
    read = imdb.read(films / "aclImdb_v1.tar.gz")
    train, test = ([(words.split(), label) for label, words in read[split]] for split in ("train", "test"))
    kept = sorted(torch.randperm(400, generator=task.generator("parts"))[40:].tolist())
    # Its tokens are given: a function takes the place of Field(tokenize="spacy"), which asks for a model.
    field = data.Field(tokenize=str.split, lower=lower, fix_length=20, pad_first=pad == "front")
    field.build_vocab([field.preprocess(" ".join(train[k][0])) for k in kept], max_size=vocabulary)
    assert field.vocab.itos == ["<unk>", "<pad>", *task.vocabulary]
    batches = list(task.batches("test"))
    theirs = field.process([field.preprocess(" ".join(words)) for words, _ in test])
    assert torch.equal(torch.cat([batch.x for batch in batches], dim=1).long(), theirs)
    assert torch.cat([batch.target for batch in batches]).tolist() == [label for _, label in test]


@pytest.mark.slow
def test_spacy_tokens_are_those_of_a_field():
    spacy = pytest.importorskip("spacy", reason="pip install -e '.[imdb]' for this test")
    sentence = "I can't say it wasn't good... \"10/10\", U.S. style!<br /><br />Don't miss it, e.g. on 3.5mm film :-)"
    rules = spacy.blank("en").tokenizer
    field = data.Field(tokenize=lambda words: [token.text for token in rules(words)])
    ours = TOKENIZER()(sentence)
    assert field.preprocess(sentence + "\n") == ours
    assert ours[:4] == ["I", "ca", "n't", "say"]


def test_words_are_those_of_a_language_modelling_dataset(corpora):
    ours = text.words("ptb", corpora, allow_partial=True)
    from torchtext.datasets import LanguageModelingDataset

    for split in ("train", "valid", "test"):
        path = next(corpora.rglob(f"ptb.{split}.txt"))
        theirs = LanguageModelingDataset(str(path), data.Field(), newline_eos=True)[0].text
        words = [ours.symbols[k] for k in getattr(ours, split).tolist()]
        assert words == theirs


def test_vectors_are_equal(tmp_path, monkeypatch):
    from torchtext import vocab

    # Vectors() switches the verification of certificates off for the whole process; this puts it back.
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_default_https_context)
    path = synthetic.write_glove(tmp_path / "glove.6B.100d.txt")
    words = ["film", "nowhere", ",", "The", "the"]
    ours = glove.vectors(words, tmp_path, allow_partial=True)
    theirs = vocab.Vectors(path.name, cache=str(tmp_path), unk_init=nn.init.zeros_)
    assert sorted(ours.rows.tolist()) == [0, 2, 4]
    for row, values in zip(ours.rows.tolist(), ours.values, strict=True):
        assert torch.equal(values, theirs[words[row]])
    assert all(theirs[word].count_nonzero() == 0 for word in ("nowhere", "The"))
