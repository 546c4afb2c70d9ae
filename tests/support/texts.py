"""Small texts in the formats of the corpora of language modelling."""

import itertools

import numpy as np

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"  # 48: with _ and the line's end the 50 of PTB


def word(k):
    """Three letters that are k in base 48."""
    return "".join(ALPHABET[k // 48**place % 48] for place in range(3))


def write_words(folder, names, types=40, lengths=(600, 90, 80)):
    """Three files of ten words a line, `types` different ones with <eos>; the first file begins with each of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name, n in zip(names, lengths, strict=True):
        drawn = rng.integers(0, types - 1, n)
        drawn[: types - 1] = np.arange(types - 1)[:n] if name == names[0] else drawn[: types - 1]
        lines = [" ".join(map(word, drawn[k : k + 10])) for k in range(0, n, 10)]
        (folder / name).write_text("".join(f" {line} \n" for line in lines))
    return folder


def write_articles(folder, names, every=4, **arguments):
    """The files of `write_words` with a title and a heading before every few lines, in the format of WikiText."""
    write_words(folder, names, **arguments)
    for name in names:
        lines = (folder / name).read_text().splitlines(keepends=True)
        heads = [
            [" \n", f" = {word(k % 7)} {word(k % 7 + 1)} = \n", " \n", " = = baa = = \n"] for k in range(len(lines))
        ]
        new = [[*(heads[k] if k % every == 0 else ()), line] for k, line in enumerate(lines)]
        (folder / name).write_text("".join(itertools.chain(*new)))
    return folder


def write_text8(path, n=4000):
    """Letters and spaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    letters = np.frombuffer(b" abcdefghijklmnopqrstuvwxyz", np.uint8)
    path.write_bytes(letters[np.random.default_rng(0).integers(0, 27, n)].tobytes())
    return path


PTB = ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")
WIKITEXT2 = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")


def write_texts(root, **arguments):
    """PTB, WikiText-2 and -103 and text8, small, under a data root."""
    write_words(root / "ptb", PTB, **arguments)
    write_words(root / "wikitext-2", WIKITEXT2, **arguments)
    write_articles(root / "wikitext-103", WIKITEXT2, **arguments)
    write_text8(root / "text8" / "text8")
    return root
