"""Small made-up data in the formats of the real data sets, for the examples in docs/tasks.

The real texts may not be copied into this repository, and the pages can be written on a machine without any data.
"""

import contextlib
import math
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from timescales.tasks.data.corpus import Images

DATA = "timescales.tasks.data"

SENTENCES = (
    "the river rose in the night and the bridge was closed",
    "a unit that forgets slowly still knows how the sentence began",
    "prices of <unk> fell by N % in march said the ministry",
    "she opened the letter that her brother had sent from the coast",
    "the committee met on monday and decided nothing",
    "long words are rare and short words are not",
)
REVIEWS = {
    "pos": (
        "I did not expect to like this film , but it is a quiet and clever one .",
        "The actors are wonderful and the ending is better than that of the book .",
        "Lovely . See it with your children .",
    ),
    "neg": (
        "The plot is thin and the ending is worse .",
        "Two hours that I want back , and I liked the book .",
        "Nobody in this film knows why they do what they do , nor do I .",
    ),
}
# The segments of a seven-segment display, each (top, left, height, width) in pixels: top, upper left, upper right,
# middle, lower left, lower right, bottom; and which of them each digit lights.
LYING, STANDING = (3, 12), (10, 3)
SEGMENTS = (
    (4, 8, *LYING),
    (4, 8, *STANDING),
    (4, 17, *STANDING),
    (12, 8, *LYING),
    (13, 8, *STANDING),
    (13, 17, *STANDING),
    (21, 8, *LYING),
)
DIGITS = ("1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Make a data root with small texts and reviews. Patched `load` functions return small images."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        root = Path(name)
        _texts(root)
        write_tides(root / "tides.csv")
        _reviews(root)
        replaced = {
            "cache.cache_dir": lambda: root / "cache",
            "imdb.tokenizer": lambda: str.split,
            "mnist.load": lambda *_: _digits(),
            "cifar.load": lambda *_: _pictures(),
        }
        for target, function in replaced.items():
            stack.enter_context(mock.patch(f"{DATA}.{target}", function))
        stack.enter_context(mock.patch.dict(os.environ, {"TIMESCALES_DATA": name}))
        yield root


def _texts(root: Path) -> None:
    drawn = random.Random(0)
    for kind, names in (("ptb", "ptb.{}.txt"), ("wikitext-2", "wiki.{}.tokens")):
        (root / kind).mkdir()
        for split, lines in (("train", 2000), ("valid", 200), ("test", 200)):
            text = "".join(f" {line} \n" for line in drawn.choices(SENTENCES, k=lines))
            (root / kind / names.format(split)).write_text(text)
    (root / "wikitext-103").mkdir()
    for split, articles in (("train", 500), ("valid", 50), ("test", 50)):
        text = "".join(
            f" \n = A title = \n \n {' '.join(random.Random(k).choices(SENTENCES, k=4))} \n" for k in range(articles)
        )
        (root / "wikitext-103" / f"wiki.{split}.tokens").write_text(text)
    (root / "text8").mkdir()
    plain = [line for line in SENTENCES if "<" not in line]
    (root / "text8" / "text8").write_text(" ".join(drawn.choices(plain, k=2000)))
    (root / "book.txt").write_text("".join(f"{line}.\n" for line in drawn.choices(plain, k=1000)))


def write_tides(path: Path) -> None:
    """Heights of the sea at three places, at irregular times, with some empty cells: a file for `task=series`."""
    drawn = random.Random(0)
    lines = ["place,hour,height,pressure"]
    for k, place in enumerate(("north", "south", "west")):
        hour = 0.0
        for _ in range(400):
            hour += 0.25 + drawn.expovariate(2.0)
            height = 2.0 + 1.5 * math.sin(math.tau * hour / 12.4 + k) + 0.5 * math.sin(math.tau * hour / 25.8 + k)
            pressure = 1013.0 + 5.0 * math.sin(hour / 60.0 + k) + drawn.gauss(0.0, 0.5)
            cells = [f"{height + drawn.gauss(0.0, 0.05):.2f}", f"{pressure:.1f}"]
            cells = [cell if drawn.random() > 0.05 else "" for cell in cells]
            lines.append(f"{place},{hour:.2f},{','.join(cells)}")
    path.write_text("\n".join(lines) + "\n")


def _reviews(root: Path) -> None:
    for split in ("train", "test"):
        for label, texts in REVIEWS.items():
            place = root / "aclImdb" / split / label
            place.mkdir(parents=True)
            for k in range(20):
                (place / f"{k}_{9 if label == 'pos' else 2}.txt").write_text(texts[k % len(texts)])
    words = sorted({word.lower() for texts in REVIEWS.values() for text in texts for word in text.split()})
    lines = [" ".join([word, *(f"{k / 100:.2f}" for _ in range(100))]) for k, word in enumerate(words)]
    (root / "glove.6B.100d.txt").write_text("".join(f"{line}\n" for line in lines))


def digit(number: int) -> Tensor:
    """Draw a digit like a seven-segment display, (28, 28) bytes."""
    image = torch.zeros(28, 28, dtype=torch.uint8)
    for lit, (top, left, height, width) in zip(DIGITS[number], SEGMENTS, strict=True):
        if lit == "1":
            image[top : top + height, left : left + width] = 254
    return image


def _digits() -> Images:
    """Images, (N, 784)."""
    labels = torch.arange(40, dtype=torch.uint8) % 10
    images = torch.stack([digit(k) for k in labels.tolist()]).flatten(1)
    return Images(images, labels, images, labels, partial=[])


def _pictures() -> Images:
    """Coloured discs on a ground that becomes brighter, (N, 3, 1024) bytes; the label is the disc's size."""
    row, column = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    labels = torch.arange(40, dtype=torch.uint8) % 10
    images = []
    for label in labels.tolist():
        ground = torch.stack([4 * row, 4 * column, 255 - 4 * row])
        disc = (row - 16) ** 2 + (column - 16) ** 2 < (3 + label) ** 2
        images.append(torch.where(disc, torch.tensor([220, 60, 40]).reshape(3, 1, 1), ground).flatten(1).byte())
    pictures = torch.stack(images)
    return Images(pictures, labels, pictures, labels, partial=[])
