"""The Large Movie Review Dataset (Maas et al. 2011), read from its tar or the folder in it, and its tokens."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.tasks.data.cache import cached, content_hash
from timescales.tasks.data.corpus import Corpus, members, reason, whole

SPLITS, LABELS = ("train", "test"), ("neg", "pos")
MEMBER = re.compile(r"(?:^|/)(train|test)/(neg|pos)/[^/]+\.txt$")
ARCHIVE = "aclImdb-labelled.tar.gz"


class Reviews(NamedTuple):
    """One split: tokens of all reviews one after another, as numbers of types; how many each has; 1: positive."""

    tokens: Tensor
    lengths: Tensor
    labels: Tensor


def load(
    root: str | os.PathLike | None = None, allow_partial: bool = False
) -> tuple[list[str], dict[str, Reviews], list[str]]:
    """All types in alphabetical order, the reviews of "train" and "test", and what is partial (`Corpus.check`).

    Tokens are spaCy's, as they stand in the text. The order of the reviews depends on their text alone, not on where
    they come from. root: see `data_root`. The first time takes a minute; the tokens are kept in the user's cache.
    Raises MissingData if the reviews are neither there nor to be had, ValueError if they are not all there.
    """
    path = CORPUS.locate(root)
    key = {"file": content_hash(path), "tokens": "spacy", "version": 2}
    # spaCy's rules change from release to release. Where it is not installed, tokens without a release are taken.
    with contextlib.suppress(metadata.PackageNotFoundError):
        key["spacy"] = metadata.version("spacy")
    found = cached("imdb", key, lambda: _tokens(path))
    reviews = {split: Reviews(*(found[split][field] for field in Reviews._fields)) for split in SPLITS}
    counts = {f"{split} reviews": len(reviews[split].labels) for split in SPLITS}
    return found["types"].split("\0"), reviews, CORPUS.check(path, counts, allow_partial)


def read(path: Path) -> dict[str, list[tuple[int, str]]]:
    """(label, text) of every labelled review of "train" and "test", by text. Raises ValueError if it is damaged."""
    found: dict[str, list[tuple[int, str]]] = {split: [] for split in SPLITS}
    try:
        for name, text in _texts(path):
            if match := MEMBER.search(name):
                found[match[1]].append((LABELS.index(match[2]), text.decode().rstrip("\n")))
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as IMDB ({reason(error)}): delete it and fetch it again") from error
    # By text: by label, a shortened evaluation would see one class only.
    return {split: sorted(reviews, key=lambda review: review[::-1]) for split, reviews in found.items()}


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        return (
            (file.as_posix(), file.read_bytes()) for file in path.glob("*/*/*.txt") if MEMBER.search(file.as_posix())
        )
    return members(path, MEMBER.search)


def tokenizer() -> Callable[[str], list[str]]:
    """spaCy's rules for English; they need no model. Raises ValueError if spaCy is not installed."""
    try:
        import spacy
    except ImportError as error:
        raise ValueError("IMDB's tokens are spaCy's, not installed here: pip install spacy") from error
    rules = spacy.blank("en").tokenizer
    return lambda text: [token.text for token in rules(text)]


def _tokens(path: Path) -> dict[str, Any]:
    from tqdm import tqdm

    split_up = tokenizer()
    number: dict[str, int] = {}
    texts = read(path)
    content: dict[str, Any] = {}
    with tqdm(total=sum(map(len, texts.values())), desc="tokens of IMDB", disable=None, leave=False) as bar:
        for split, reviews in texts.items():
            tokens, lengths = [], []
            for _, text in reviews:
                words = split_up(text)
                tokens.append(torch.tensor([number.setdefault(w, len(number)) for w in words], dtype=torch.int32))
                lengths.append(len(words))
                bar.update()
            labels = torch.tensor([label for label, _ in reviews], dtype=torch.uint8)
            whole_split = torch.cat(tokens) if tokens else torch.empty(0, dtype=torch.int32)
            content[split] = {"tokens": whole_split, "lengths": torch.tensor(lengths), "labels": labels}
    types = sorted(number)
    place = torch.empty(len(types), dtype=torch.int32)
    place[torch.tensor([number[word] for word in types], dtype=torch.long)] = torch.arange(len(types)).int()
    for split in SPLITS:
        content[split]["tokens"] = place[content[split]["tokens"]]
    return content | {"types": "\0".join(types)}


def _count(path: Path) -> dict[str, int | str]:
    return {f"{split} reviews": len(reviews) for split, reviews in read(path).items()}


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
    patterns=("aclImdb*.tar.gz", "*/aclImdb*.tar.gz", "aclImdb", "*/aclImdb"),
    counts={"train reviews": 25_000, "test reviews": 25_000},
    count=_count,
    url="https://huggingface.co/datasets/stanfordnlp/imdb",
    download=_download,
)
