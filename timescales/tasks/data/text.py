"""Corpora for language modelling as integers: Penn Treebank by words and characters, WikiText-2 and -103, text8."""

import codecs
import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from timescales.files import write_atomic
from timescales.tasks.data.cache import cached
from timescales.tasks.data.corpus import Corpus, digest
from timescales.tasks.data.places import File, Layout, Named, parquet_parts, plain_text

SPLITS = ("train", "valid", "test")
EOS = "<eos>"  # the word at the end of each line
MARKOV_SEED = 0  # all runs use the same text, also with different seeds
TEXT8_SYMBOLS = " abcdefghijklmnopqrstuvwxyz"


class Words(TypedDict):
    """The cached form of a text: the tokens of each split, and the word of each token."""

    splits: list[Tensor]
    symbols: list[str]


class Text(NamedTuple):
    """A corpus.

    train, valid, test: the splits, (N,) integers each. symbols: the word or character of each integer.
    partial: see `Corpus.check`.
    """

    train: Tensor
    valid: Tensor
    test: Tensor
    symbols: list[str]
    partial: list[str]

    @property
    def sizes(self) -> dict[str, int]:
        """Return the lengths of the splits, as the arguments train_size, valid_size and test_size of `Task`.

        Raises: ValueError if one is empty.
        """
        sizes = {split: len(getattr(self, split)) for split in SPLITS}
        if empty := [split for split, n in sizes.items() if n == 0]:
            raise ValueError(f"{empty[0]}: the text is empty; get the complete corpus")
        return {f"{split}_size": n for split, n in sizes.items()}


def words(corpus: str, root: str | os.PathLike | None = None, allow_partial: bool = False) -> Text:
    """Return a corpus by words, int32: "ptb", "wt2", "wt103" or "markov_ptb".

    Words are separated by white space, lines end in `<eos>`. The vocabulary is that of all three splits, in the order
    in which words first occur (Merity et al. 2018, authors' code). "markov_ptb" has the length and vocabulary of PTB,
    and is drawn by `markov` from its training split.

    root: see `data_root`.

    Raises: MissingData, with the places searched, if the files are not found and cannot be downloaded, and ValueError
    if the size or content differs from the real corpus, unless allow_partial.
    """
    source = WORDS[corpus.removeprefix("markov_")]
    path = source.locate(root)
    content = _words(source, path)
    partial = source.check(path, _count("words", **content), allow_partial)
    splits = content["splits"]
    if corpus != source.name:
        key = {"files": source.content_hash(path), "seed": MARKOV_SEED, "version": 2}
        sizes, eos = [len(split) for split in splits], content["symbols"].index(EOS)

        def drawn() -> dict[str, list[Tensor]]:
            # torch.save would store the whole text with each view of it, so the splits are copies.
            whole = markov(splits[0], eos, sum(sizes), MARKOV_SEED)
            return {"splits": [part.clone() for part in whole.split(sizes)]}

        splits = cached("markov", key, drawn)["splits"]
    train, valid, test = splits
    return Text(train, valid, test, content["symbols"], partial)


def article_begins(tokens: Tensor, symbols: Sequence[str]) -> Tensor:
    """Return where an article begins, (N,) bool: at the first word of each line like `= Title =`, as in WikiText.

    tokens: a text (N,). symbols: its vocabulary. A line with more signs, `= = Section = =`, does not begin an article.
    """
    begins = torch.zeros_like(tokens, dtype=torch.bool)
    if "=" not in symbols:
        return begins
    ends = (tokens == symbols.index(EOS)).nonzero().flatten()
    firsts = torch.cat([ends.new_zeros(1), ends[:-1] + 1])[: len(ends)]
    long_enough = ends - firsts >= 3
    firsts, ends = firsts[long_enough], ends[long_enough]
    sign = tokens == symbols.index("=")
    begins[firsts[sign[firsts] & ~sign[firsts + 1] & ~sign[ends - 2] & sign[ends - 1]]] = True
    return begins


def _words(source: Corpus, path: Path) -> Words:
    key = {"files": source.content_hash(path), "version": 2}
    return cached("words", key, lambda: _tokenise(_lines(source, file) for file in source.files(path)))


def markov(words: Tensor, eos: int, n: int, seed: int = 0) -> Tensor:
    """Draw a text of n words, (n,) int32, from the bigram probabilities of a text `words` (N,).

    Source: Mahto et al. 2021, section 3.2.1 (Markov-PTB); they do not state how they draw it. The word after w is the
    word that follows a random occurrence of w in the text; the last word of the text is followed by the first. Every
    sentence ends at some time, and sentences do not depend on each other, so many are drawn in parallel. The text
    begins with a new sentence. Raises ValueError if `words` does not contain `eos`.
    """
    if not bool((words == eos).any()):
        raise ValueError("a text without an end of sentence has no sentences to draw")
    next_word = words.roll(-1).numpy()
    occurrences = words.argsort(stable=True).numpy()  # places of word 0, then of word 1, ...
    count = np.bincount(words.numpy())
    first = count.cumsum() - count  # of each word, where its places begin in `occurrences`
    generator, texts, length = np.random.default_rng(seed), [], 0
    in_parallel = -(-n // max(1, len(words) // int(count[eos])))  # the number of sentences with about n words
    while length < n:
        word, sentence, steps = np.full(in_parallel, eos), np.arange(in_parallel), []
        while len(sentence):
            word = next_word[occurrences[first[word] + generator.integers(0, count[word])]]
            steps.append((sentence, word))
            word, sentence = word[word != eos], sentence[word != eos]
        sentences, drawn = (np.concatenate(column) for column in zip(*steps, strict=True))
        texts.append(drawn[sentences.argsort(kind="stable")])  # sentence after sentence
        length += len(drawn)
    return torch.from_numpy(np.concatenate(texts)[:n].astype(np.int32))


def _tokenise(texts: Iterable[list[str]]) -> Words:
    """Return what `words` caches. texts: the lines of each split."""
    number: dict[str, int] = {}
    splits = []
    for lines in texts:
        tokens = [number.setdefault(word, len(number)) for line in lines for word in (*line.split(), EOS)]
        splits.append(torch.from_numpy(np.array(tokens, np.int32)))
    return {"splits": splits, "symbols": list(number)}


def _count(unit: str, splits: Sequence[Tensor], symbols: Sequence[str]) -> dict[str, int | str]:
    """Return the counts of a text, in the form of `Corpus.counts`."""
    return _counts(unit, *map(len, splits), len(symbols), digest((tokens.numpy() for tokens in splits), symbols))


def ptb_characters(root: str | os.PathLike | None = None, allow_partial: bool = False) -> Text:
    r"""Return PTB by characters, int16, made from the word files: spaces become `_`, and a line ends in `\n`.

    The result equals Mikolov's character corpus. Raises what `words` raises.
    """
    path = PTB.locate(root)
    splits, symbols = _characters(path)
    partial = PTB_CHARACTERS.check(path, _count("characters", splits, symbols), allow_partial)
    train, valid, test = splits
    return Text(train, valid, test, symbols, partial)


def _characters(path: Path) -> tuple[list[Tensor], list[str]]:
    lines = (_lines(PTB, file) for file in PTB.files(path))
    texts = ["".join(f"{line.strip().replace(' ', '_')}\n" for line in split) for split in lines]
    symbols = list(dict.fromkeys("".join(texts)))
    return [_numbers(text.encode("utf-32-le"), symbols, "<u4") for text in texts], symbols


def text8(root: str | os.PathLike | None = None, allow_partial: bool = False) -> Text:
    """Return text8 by characters, int16: 0 is the space, 1 to 26 are a to z. The splits have 90, 5 and 5 million.

    An incomplete corpus, if it is allowed, is cut in the same proportions. Raises what `words` raises.
    """
    path = TEXT8.locate(root)
    data = _read_text8(path)
    partial = TEXT8.check(path, {"characters": len(data)}, allow_partial)
    numbers = _numbers(data, TEXT8_SYMBOLS, "u1")
    train, valid = len(data) * 9 // 10, len(data) // 20
    first, second, third = numbers.split([train, valid, len(data) - train - valid])
    return Text(first, second, third, list(TEXT8_SYMBOLS), partial)


def _read_text8(path: Path) -> bytes:
    (file,) = TEXT8.files(path)
    with TEXT8.reading(file.name):
        data = file.read().removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n")
        if strange := data.translate(None, TEXT8_SYMBOLS.encode())[:5]:
            raise ValueError(f"it contains {strange!r}")
        return data


def _lines(source: Corpus, file: File) -> list[str]:
    with source.reading(file.name):
        if file.parquet:  # as the Hub has it, a row for each line
            (rows,) = file.columns("text")
            return [plain_text(row).removesuffix("\n") for row in rows]
        text = file.text()
    return text.removesuffix("\n").split("\n") if text else []


def _numbers(data: bytes, symbols: Sequence[str], dtype: str) -> Tensor:
    """Return the index in `symbols` of each character, int16. data: the code points as an array of the dtype."""
    table = np.zeros(max(map(ord, symbols), default=0) + 1, np.int16)
    table[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols))
    return torch.from_numpy(table[np.frombuffer(data, dtype)])


def _rows(hub: str, *configuration: str, revision: str | None = None, column: str = "text") -> list[list[str]]:
    """Return the rows of the three splits of a data set on the Hugging Face Hub."""
    from datasets import load_dataset

    content = load_dataset(hub, *configuration, revision=revision)
    return [list(content[split][column]) for split in ("train", "validation", "test")]


def _write(path: Path, rows: Sequence[str], end: str = "\n") -> None:
    """Write a downloaded file. Raises FileExistsError instead of replacing another file."""
    data = "".join(f"{row.removesuffix(end)}{end}" if end else row for row in rows).encode()
    if path.exists() and path.read_bytes() != data:
        raise FileExistsError(f"{path} is there and differs from the download: move it elsewhere")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)


def _download(base: Path, name: str, *hub: str, **options: str) -> None:
    """Download the three files of a corpus. name: their path, with {} for the split."""
    for split, rows in zip(SPLITS, _rows(*hub, **options), strict=True):
        _write(base / name.format(split), rows)


def _counts(unit: str, *counts: int | str) -> dict[str, int | str]:
    return dict(zip((*(f"{unit} in {split}" for split in SPLITS), "types", "digest"), counts, strict=True))


def _layouts(name: str, generic: bool) -> tuple[Layout, ...]:
    """Return the layouts of three files: `name` with {} for the split, and train.txt, valid.txt and test.txt.

    generic: whether `name` does not tell which data set it is.
    """
    in_regex = {"train": "train", "valid": "val(?:id(?:ation)?)?", "test": "test"}
    return tuple(
        Layout(
            {kind.format(split): re.escape(kind).replace(r"\{\}", in_regex[split]) for split in SPLITS},
            needs_named_folder=named,
        )
        for kind, named in ((name, generic), ("{}.txt", True))
    )


HUB = "https://huggingface.co/datasets"
PTB: Corpus = Corpus(
    name="ptb",
    title="Penn Treebank",
    layouts=_layouts("ptb.{}.txt", generic=False),
    named=Named(
        folders=r"(?!.*char)(?:ptb|penn|simple-examples).*", archives=r"simple-examples|ptb|penn[-_ ]?treebank"
    ),
    counts=_counts("words", 929_589, 73_760, 82_430, 10_000, "c0fd8e0d15c8debe"),
    count=lambda path: _count("words", **_words(PTB, path)),
    url=f"{HUB}/ptb-text-only/ptb_text_only",
    download=lambda base: _download(
        base,
        "ptb/ptb.{}.txt",
        "ptb-text-only/ptb_text_only",
        "penn_treebank",
        revision="refs/convert/parquet",
        column="sentence",
    ),
)
PTB_CHARACTERS = dataclasses.replace(
    PTB,
    counts=_counts("characters", 5_017_482, 393_042, 442_423, 50, "a753085ae8d7f938"),
    count=lambda path: _count("characters", *_characters(path)),
)
WIKITEXT2: Corpus = Corpus(
    name="wt2",
    title="WikiText-2",
    layouts=(
        *_layouts("wiki.{}.tokens", generic=False),
        Layout(parquet_parts("train", "validation", "test"), needs_named_folder=True),
    ),
    named=Named(folders=r"wikitext[-_ ]?2(?!\d).*", archives=r"wikitext[-_ ]?2(?:-v1)?"),
    counts=_counts("words", 2_088_628, 217_646, 245_569, 33_278, "46ae20547edac753"),
    count=lambda path: _count("words", **_words(WIKITEXT2, path)),
    url=f"{HUB}/Salesforce/wikitext",
    download=lambda base: _download(base, "wikitext-2/wiki.{}.tokens", "Salesforce/wikitext", "wikitext-2-v1"),
)
WIKITEXT103: Corpus = Corpus(
    name="wt103",
    title="WikiText-103",
    layouts=_layouts("wiki.{}.tokens", generic=True),
    named=Named(folders=r"wikitext[-_ ]?103.*", archives=r"wikitext[-_ ]?103(?:-v1)?"),
    counts={
        "words in train": 103_227_021,
        "words in valid": 217_646,
        "words in test": 245_569,
        "types": 267_735,
    },
    count=lambda path: _count("words", **_words(WIKITEXT103, path)),
    url=f"{HUB}/Salesforce/wikitext",
    download=lambda base: _download(base, "wikitext-103/wiki.{}.tokens", "Salesforce/wikitext", "wikitext-103-v1"),
)
TEXT8 = Corpus(
    name="text8",
    title="text8",
    layouts=(Layout({"text8": r"text8(?:\.txt|\.prefix[^/]*)?"}),),
    named=Named(folders=r"text8.*", archives=r"text8"),
    counts={"characters": 100_000_000},
    count=lambda path: {"characters": len(_read_text8(path))},
    url=f"{HUB}/afmck/text8",
    download=lambda base: _write(base / "text8" / "text8", list(itertools.chain(*_rows("afmck/text8"))), end=""),
)
WORDS = {corpus.name: corpus for corpus in (PTB, WIKITEXT2, WIKITEXT103)}
