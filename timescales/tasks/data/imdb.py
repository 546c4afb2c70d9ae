"""Read the Large Movie Review Dataset (Maas et al. 2011) from its tar, a zip or a folder, and tokenise it."""

import contextlib
import io
import os
import re
import tarfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.tasks.data.cache import cached
from timescales.tasks.data.corpus import Corpus, whole
from timescales.tasks.data.places import File, Layout, Named, parquet_parts, plain_text

SPLITS, LABELS = ("train", "test"), ("neg", "pos")
ARCHIVE = "aclImdb-labelled.tar.gz"


class Reviews(NamedTuple):
    """The reviews of one split.

    tokens: the tokens of all reviews, one review after another, as indices of types.
    lengths: number of tokens of each review, (N,).
    labels: 1 for positive, (N,).
    """

    tokens: Tensor
    lengths: Tensor
    labels: Tensor


class Collection(NamedTuple):
    """All reviews.

    types: the distinct tokens in alphabetical order. reviews: those of "train" and "test". partial: see `Corpus.check`.
    """

    types: list[str]
    reviews: dict[str, Reviews]
    partial: list[str]


def load(root: str | os.PathLike | None = None, allow_partial: bool = False) -> Collection:
    """Return all reviews as tokens.

    Tokens are spaCy's, in the case of the text. The order of the reviews depends only on their text, not on the files.
    The first call takes a minute; the tokens are then in the user's cache. root: see `data_root`.

    Raises: MissingData if the reviews are not found and cannot be downloaded, ValueError if they are incomplete.
    """
    path = CORPUS.locate(root)
    key = {"file": CORPUS.content_hash(path), "tokens": "spacy", "version": 4}
    # spaCy's rules differ between releases. Without spaCy, only tokens cached without a release can be read.
    with contextlib.suppress(metadata.PackageNotFoundError):
        key["spacy"] = metadata.version("spacy")
    content = cached("imdb", key, lambda: _tokens(path))
    reviews = {split: Reviews(*(content[split][field] for field in Reviews._fields)) for split in SPLITS}
    counts = {f"{split} reviews": len(reviews[split].labels) for split in SPLITS}
    return Collection(content["types"], reviews, CORPUS.check(path, counts, allow_partial))


def read(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Return (label, text) of every labelled review by split, sorted by text. Raises ValueError if damaged."""
    from tqdm import tqdm

    reviews: dict[str, list[tuple[int, str]]] = {split: [] for split in SPLITS}
    for file in tqdm(CORPUS.files(path), f"reading {path.name}", unit=" reviews", delay=1, disable=None, leave=False):
        with CORPUS.reading(file.name):
            split, pairs = _reviews(file)
            reviews[split] += pairs
    # If they were sorted by label, a shortened evaluation would see only one class.
    return {split: sorted(pairs, key=lambda pair: pair[::-1]) for split, pairs in reviews.items()}


def _reviews(file: File) -> tuple[str, list[tuple[int, str]]]:
    """Return the split of a file and the (label, text) of its reviews: many in the Hub's parquet files, else one."""
    name = file.name.lower()
    if file.parquet:
        split = next(split for split in SPLITS if re.search(rf"(?:^|/){split}[-/][^/]*$", name))
        texts, labels = file.columns("text", "label")
    else:
        split, folder = name.split("/")[-3:-1]
        texts, labels = [file.text()], [LABELS.index(folder)]
    if strange := set(labels) - {0, 1}:
        raise ValueError(f"it has the label {strange.pop()}")
    return split, [(label, plain_text(text).rstrip("\n")) for label, text in zip(labels, texts, strict=True)]


def tokenizer() -> Callable[[str], list[str]]:
    """Return spaCy's tokeniser for English, which needs no trained model. Raises ValueError without spaCy."""
    try:
        import spacy
    except ImportError as error:
        raise ValueError("IMDB's tokens need spaCy, which is not installed: pip install spacy") from error
    rules = spacy.blank("en").tokenizer
    return lambda text: [token.text for token in rules(text)]


def _tokens(path: Path) -> dict[str, Any]:
    """Return what `load` caches: the types and the fields of `Reviews` of each split."""
    reviews = read(path)
    number: dict[str, int] = {}  # of each type, in the order in which types first occur
    splits = {split: _tokenise(split, pairs, number) for split, pairs in reviews.items()}
    types = sorted(number)
    place = torch.empty(len(types), dtype=torch.int32)  # of each number, the place of its type in alphabetical order
    place[torch.tensor([number[word] for word in types], dtype=torch.long)] = torch.arange(len(types)).int()
    for split in SPLITS:
        splits[split]["tokens"] = place[splits[split]["tokens"]]
    return {**splits, "types": types}


def _tokenise(split: str, reviews: list[tuple[int, str]], number: dict[str, int]) -> dict[str, Tensor]:
    """Return the fields of `Reviews`. New types are added to `number`."""
    from tqdm import tqdm

    tokens_of = tokenizer()
    tokens, lengths = [], []
    for _, text in tqdm(reviews, desc=f"tokens of IMDB, {split}", disable=None, leave=False):
        words = tokens_of(text)
        tokens.append(torch.tensor([number.setdefault(word, len(number)) for word in words], dtype=torch.int32))
        lengths.append(len(words))
    return {
        "tokens": torch.cat(tokens) if tokens else torch.empty(0, dtype=torch.int32),
        "lengths": torch.tensor(lengths),
        "labels": torch.tensor([label for label, _ in reviews], dtype=torch.uint8),
    }


def _download(base: Path) -> None:
    import datasets

    with whole(base / ARCHIVE) as folder, tarfile.open(folder / ARCHIVE, "w:gz") as tar:
        for split in SPLITS:
            for k, row in enumerate(datasets.load_dataset("stanfordnlp/imdb", split=split)):
                text = row["text"].encode()
                member = tarfile.TarInfo(f"aclImdb/{split}/{LABELS[row['label']]}/{k}.txt")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))


CORPUS = Corpus(
    name="imdb",
    title="IMDB",
    layouts=(
        Layout(  # number_rating.txt, or number.txt
            {"train/pos, train/neg, test/pos, test/neg": r"(?:train|test)/(?:neg|pos)/\d+(?:_\d+)?\.txt"}, many=True
        ),
        Layout(parquet_parts(*SPLITS), many=True, needs_named_folder=True),
    ),
    named=Named(folders=r"(?:aclimdb|imdb|large.?movie).*", archives=r"aclimdb.*|imdb"),
    counts={"train reviews": 25_000, "test reviews": 25_000},
    count=lambda path: {f"{split} reviews": len(reviews) for split, reviews in read(path).items()},
    url="https://huggingface.co/datasets/stanfordnlp/imdb",
    download=_download,
)
