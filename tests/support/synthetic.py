"""Small files in the formats of the real data sets, so that every test runs without them."""

import gzip
import io
import os
import pickle
import tarfile

import numpy as np
import texts

from timescales.tasks.data.corpus import data_root


def write_idx(path, array):
    """An idx file of bytes: 0 0 8 and the number of dimensions, the sizes as big-endian words, the data."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    data = head + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)


def write_mnist(folder, train=600, test=100, suffix=""):
    """Images that contain their own number: pixels 0-2 are it in base 256, and the label is its last digit.

    Test images count from 100,000. The other pixels are noise, the same in every run.
    """
    rng = np.random.default_rng(0)
    for prefix, n, first in (("train", train, 0), ("t10k", test, 100_000)):
        number = np.arange(n) + first
        images = np.tile(rng.integers(0, 256, (min(n, 100), 28, 28), np.uint8), (-(-n // 100), 1, 1))[:n]
        for k in range(3):
            images[:, 0, k] = number // 256**k % 256
        write_idx(folder / f"{prefix}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{suffix}", (number % 10).astype(np.uint8))
    return folder


class _Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote strings, as in the files of CIFAR-10."""

    def save_bytes(self, data):
        self.write(pickle.BINSTRING + len(data).to_bytes(4, "little") + data)
        self.memoize(data)

    dispatch = {**pickle._Pickler.dispatch, bytes: save_bytes}


def write_cifar(path, train=600, test=100):
    """A tar like CIFAR-10's, of images that contain their number: the first pixel's channels are it in base 256."""
    rng = np.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:

        def add(name, data):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))

        add("readme.html", b"<meta HTTP-EQUIV>")
        for name, numbers in [
            *((f"data_batch_{k + 1}", np.arange(train)[k * train // 5 : (k + 1) * train // 5]) for k in range(5)),
            ("test_batch", np.arange(test) + 100_000),
        ]:
            images = rng.integers(0, 256, (len(numbers), 3, 1024), np.uint8)
            for channel in range(3):
                images[:, channel, 0] = numbers // 256**channel % 256
            content = {
                b"batch_label": name.encode(),
                b"labels": [int(n) % 10 for n in numbers],
                b"data": images.reshape(-1, 3072),
                b"filenames": [b"%d.png" % n for n in numbers],
            }
            buffer = io.BytesIO()
            _Python2Pickler(buffer, 2).dump(content)
            add(name, buffer.getvalue())
    return path


WORDS = ["the", "a", "film", "good", "bad", "It", "was", "not", "plot", "end", "Never", "see"]


def reviews(split, label, n):
    """Reviews of 1 to 40 words; "good" or "bad" is among them, and the last word is the review's own."""
    rng = np.random.default_rng([split == "test", label])
    for k in range(n):
        words = rng.choice(WORDS, rng.integers(0, 39)).tolist()
        yield " ".join([*words, ("bad", "good")[label], f"{split}{label}x{k}"][-40:])


def write_imdb(path, train=600, test=100):
    """A tar like that of the Large Movie Review Dataset; `train` and `test` count both labels together."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for split, n in (("train", train), ("test", test)):
            for label, folder in enumerate(("neg", "pos")):
                for k, text in enumerate(reviews(split, label, n // 2)):
                    data = text.encode()
                    member = tarfile.TarInfo(f"aclImdb/{split}/{folder}/{k}_{1 + 9 * label}.txt")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
            member = tarfile.TarInfo(f"aclImdb/{split}/unsup/0_0.txt")
            tar.addfile(member, io.BytesIO(b""))
    return path


GLOVE = ["the", ",", "a", "film", "good", "bad", "was", "it"]  # lower case, as the real ones


def write_glove(path):
    """Vectors in the format of GloVe's text file; row k is k + 1/100, k + 2/100, ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [" ".join([word, *(f"{k + n / 100:.2f}" for n in range(1, 101))]) for k, word in enumerate(GLOVE)]
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def write_own(root):
    """Files of one's own: a text, own.txt, and series, own.csv: two of 160 rows, at irregular times, with gaps."""
    rng = np.random.default_rng(0)
    lines = [" ".join(texts.word(k) for k in rng.integers(0, 30, 8)) for _ in range(300)]
    (root / "own.txt").write_text("".join(f"{line}\n" for line in lines))
    rows = ["name,time,x,y"]
    for name in ("a", "b"):
        times = rng.uniform(0.5, 2.0, 160).cumsum()
        for time, x, y, gap in zip(times, rng.normal(size=160), np.sin(times), rng.integers(0, 10, 160), strict=True):
            rows.append(f"{name},{time:.3f},{'' if gap == 0 else f'{x:.3f}'},{'nan' if gap <= 1 else f'{y:.3f}'}")
    (root / "own.csv").write_text("\n".join(rows))


def write_corpora(root):
    """Every data set, small, under a data root."""
    write_mnist(root / "MNIST" / "raw", train=400, test=50)
    write_cifar(root / "cifar-10-python.tar.gz", train=400, test=50)
    write_imdb(root / "aclImdb_v1.tar.gz", train=400, test=50)
    write_glove(root / "glove.6B.100d.txt")
    write_own(root)
    return texts.write_texts(root, lengths=(3000, 300, 200))


# Without dropout, whose masks are not the same on every machine.
DROPOUTS = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_drop")
NO_DROPOUT = [f"task.{name}=0.0" for name in DROPOUTS]
WORD_MODEL = ["task.allow_partial=true", "task.length=12", "task.embedding=${model.hidden_size}", *NO_DROPOUT]

# What makes a task small, apart from its number of sequences.
SMALL = {
    "copy": ["task.T=5"], "variable_copy": ["task.low=2", "task.high=6"],
    "adding": ["task.T=12"], "linear_functional": ["task.T=12"],
    "delayed_match": ["task.delay=8", "task.distractors=0.5"], "program": ["task.length=2", "task.nesting=2"],
    "selective_copy": ["task.T=10", "task.length=3"], "word_problem": ["task.T=6"],
    "mqar": ["task.T=10", "task.pairs=2"], "contextual_match": ["task.delay=5"],
    "rescaling": ["task.unit=1", "task.test_units=[1,2]"], "scifar": ["task.allow_partial=true"],
    "imdb": ["task.allow_partial=true", "task.steps=12"], "ptb_char": ["task.allow_partial=true", "task.length=12"],
    "text8": ["task.allow_partial=true", "task.length=12"], "ptb_word": WORD_MODEL,
    "wt2": WORD_MODEL,
    "wt103": [*WORD_MODEL[:3], "task.cutoffs=[10]", "task.dropout_embedding=0.0"],
    "text": ["task.data=own.txt", "task.length=12", "task.embedding=8"],
    "series": [
        *("task.data=own.csv", "task.time=time", "task.id=name", "task.inputs=[x,y]", "task.target=y"),
        *("task.window=8", "task.horizon=2", "task.valid_fraction=0.2", "task.test_fraction=0.2"),
    ],
}  # fmt: skip


def unpack(tar, folder):
    """Unpack an archive that a test has written. Python before 3.11.4 has no filters."""
    tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def sizes(task, train, valid=4, test=4):
    """The overrides for numbers of sequences; none for a text or series, whose size is fixed."""
    if task in ("ptb_char", "text8", "ptb_word", "wt2", "wt103", "text", "series"):
        return []
    return [f"task.train_size={train}", f"task.valid_size={valid}", f"task.test_size={test}"]


def real(corpus):
    """The path of a real data set under TIMESCALES_DATA, or None."""
    return corpus.find(data_root(None)) if os.environ.get("TIMESCALES_DATA") else None


def stand_alone(monkeypatch, folder):
    """Keep caches in a folder, and split the reviews at spaces, as spaCy would."""
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", lambda: folder)
    monkeypatch.setattr("timescales.tasks.data.imdb.tokenizer", lambda: str.split)
