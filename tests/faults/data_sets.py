"""Data sets and their caches that are cut short or changed: read whole, refused in one line, or prepared again."""

from __future__ import annotations

import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import synthetic
import texts
from compare import plain, same, spoil
from harness import FaultTests
from tqdm import tqdm

from timescales.tasks.data import cifar, glove, imdb, mnist, text

# Plain files of which no digest is known, since no whole copy was at hand.
UNKNOWN = ("GloVe, text", "text8")


class DataSet(NamedTuple):
    """A small data set: its corpus, how it is written under a data root, and how it is read."""

    corpus: Any
    write: Callable[[Path], Any]
    load: Callable[[Path], Any]


def write_zipped_text8(root: Path) -> None:
    """text8 as it is published: a zip of one file."""
    plain_file = texts.write_text8(root / "text8")
    with zipfile.ZipFile(root / "text8.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain_file, "text8")
    plain_file.unlink()


def write_ptb(root: Path) -> None:
    """Penn Treebank's three files."""
    texts.write_words(root / "ptb", texts.PTB)


def load_mnist(root: Path) -> Any:
    """All arrays of MNIST, and whether a record would say that the images are others."""
    return mnist.load(root)


def load_glove(root: Path) -> Any:
    """The vectors of a few words."""
    return glove.vectors(synthetic.GLOVE, root)


def load_words(corpus: str) -> Callable[[Path], Any]:
    """A function that reads a corpus as words."""
    return lambda root: text.words(corpus, root)


DATA_SETS = {
    "MNIST, raw": DataSet(mnist.CORPUS, lambda root: synthetic.write_mnist(root / "MNIST" / "raw", 60, 20), load_mnist),
    "MNIST, gzipped": DataSet(
        mnist.CORPUS, lambda root: synthetic.write_mnist(root / "MNIST" / "raw", 60, 20, ".gz"), load_mnist
    ),
    "CIFAR-10, tar": DataSet(
        cifar.CORPUS, lambda root: synthetic.write_cifar(root / "cifar-10-python.tar.gz", 50, 10), cifar.load
    ),
    "IMDB, tar": DataSet(imdb.CORPUS, lambda root: synthetic.write_imdb(root / "aclImdb_v1.tar.gz", 40, 20), imdb.load),
    "GloVe, text": DataSet(glove.CORPUS, lambda root: synthetic.write_glove(root / "glove.6B.100d.txt"), load_glove),
    "GloVe, gzipped": DataSet(
        glove.CORPUS, lambda root: synthetic.write_glove(root / "glove.6B.100d.txt.gz"), load_glove
    ),
    "PTB, words": DataSet(text.PTB, write_ptb, load_words("ptb")),
    "PTB, Markov": DataSet(text.PTB, write_ptb, load_words("markov_ptb")),
    "PTB, characters": DataSet(text.PTB_CHARACTERS, write_ptb, text.ptb_characters),
    "WikiText-2": DataSet(
        text.WIKITEXT2, lambda root: texts.write_words(root / "wikitext-2", texts.WIKITEXT2), load_words("wt2")
    ),
    "text8": DataSet(text.TEXT8, lambda root: texts.write_text8(root / "text8" / "text8"), text.text8),
    "text8, zip": DataSet(text.TEXT8, write_zipped_text8, text.text8),
}


class DataSets(FaultTests):
    """Damaged data sets and caches."""

    title = "Damaged data sets"
    description = (
        "A file of a small data set, or of what was prepared from it and is kept in the cache, is cut at a random "
        "length or has 1 to 8 random bytes changed, and is read again; the counts and digests of the whole are those "
        "of the small one. *one line*: refused, with what to do. *same result*: the damage was where nothing is read, "
        "or the source was read again. *the record says so*: images that are not MNIST's are taken, and marked. "
        f"*another content* is a fault, except for {', '.join(UNKNOWN)}: plain files of which no digest is known here, "
        "so that a change that leaves their counts as they are cannot be detected."
    )

    def run(self) -> None:
        """Write every data set, then damage a copy of it for each case."""
        self.report.sort = True
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.sound = {name: self.written(name, data) for name, data in DATA_SETS.items()}
        for k in tqdm(range(self.times(1200)), desc="damaged data", unit="file"):
            name = list(DATA_SETS)[k % len(DATA_SETS)]
            root = self.folder / f"corpora {k}"
            shutil.copytree(self.folder / "sound" / name, root)
            use_cache(root)
            self.damage_and_read(k, name, root)
            shutil.rmtree(root)

    def written(self, name: str, data: DataSet) -> Any:
        """Write a data set and read it; its counts and digests become those of the corpus."""
        root = self.folder / "sound" / name
        root.mkdir(parents=True)
        use_cache(root)
        data.write(root)
        place = data.corpus.find(root)
        assert place is not None
        counts = data.corpus.count(place)
        # A digest is compared only where that of the real corpus is known.
        data.corpus.counts.update({key: counts[key] for key in data.corpus.counts})
        return plain(list(data.load(root)))

    def damage_and_read(self, k: int, name: str, root: Path) -> None:
        """Damage one file of a data set or of its cache, read it, and count what became of it."""
        rng = self.random("corpora", k)
        path, cached = choose_file(rng, root)
        how = spoil(path, rng)
        row = f"{name}{', its cache' if cached else ''}, {how}"
        column, error = self.outcome(name, root)
        self.report.count(row, column)
        if column == "fault" or (column == "another content" and (cached or name not in UNKNOWN)):
            self.report.fault(f"corpora {k} ({row}, {path.name})", column, error)

    def outcome(self, name: str, root: Path) -> tuple[str, str]:
        """The column of a case and the text of the error, if there was one."""
        try:
            found = plain(list(DATA_SETS[name].load(root)))
        except ValueError as error:
            line = str(error).strip()
            fix = re.search(r"delete|download|fetch_data|allow_partial|again|replace", line)
            return "one line" if fix and "\n" not in line else "fault", line
        except Exception as error:
            return "fault", repr(error)
        if same(found, self.sound[name]):
            return "same result", ""
        marked = name.startswith("MNIST") and found[-1]
        return "the record says so" if marked else "another content", ""


def use_cache(root: Path) -> None:
    """Keep prepared data beside a data set."""
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")


def choose_file(rng: random.Random, root: Path) -> tuple[Path, bool]:
    """A random file of a data set, and whether it is one of its cache."""
    cache = sorted((root / "cache").rglob("*.pt"))
    if cache and rng.random() < 0.4:
        return rng.choice(cache), True
    return rng.choice(sorted(path for path in root.rglob("*") if path.is_file() and path not in cache)), False
