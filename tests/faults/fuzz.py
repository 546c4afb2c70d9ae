"""Two parts of tests/faults/run.py: random overrides, and data sets and their caches that are cut or changed.

    python tests/faults/fuzz.py SEED FIRST LAST [small]    # compose these cases, without torch; one JSON line each

A case is a list of overrides that follows from the seed and its number. `small` draws no sizes above 50, so that
what is valid can take a step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from omegaconf import DictConfig, OmegaConf  # noqa: E402
from tqdm import tqdm  # noqa: E402

import train  # noqa: E402
from timescales.config import (  # noqa: E402
    check,
    compose,
    folders,
    identity,
    keys,
    messages,
)

if TYPE_CHECKING:
    from harness import Report
    from torture import Torture

# Plain files of which no digest is known, since no whole copy was at hand.
UNKNOWN = ("GloVe, text", "text8")
SECONDS = 30  # a composition that takes longer hangs

# --------------------------------------------------------------------------------------------- random overrides

GROUPS = ("model", "task", "optimizer", "paper")
WORDS = ("paper", "authors", "async", "ur", "auto", "random", "eager", "fused", "cpu", "cuda", "mps", "tf32", "learned",
         "stale", "chrono", "uniform", "true_length", "x", "None", "nan", "a b", "ünï", "日本", "🙂", "", " ", "'", '"',
         "a=b", "a,b", "a:b", "[", "{", "(", "\\", "$", "#", "!x", "&a", "*a", "%", "\t", "x" * 5000)  # fmt: skip
NESTED = ("[]", "{}", "[1,2]", "[0.1,0.2]", "[[1],[2,[3]]]", "[null]", "[a,1,true]", "{a:1}", "{law:chrono,T_max:5}",
          "{law:chrono}", "{law:constant,value:1}", "{law:inverse_gamma,alpha:1.5}", "{law:nope}", "{a:{b:{c:[1]}}}",
          "[forget]", "[forget,input]", "{law:uniform,low:1,high:0}", "[5,5]", "{law:chrono,T_max:-1}",
          "[{law:constant,value:0}]", "{_target_:os.system}", "[" * 40 + "]" * 40)  # fmt: skip
POINTERS = ("${seed}", "${nope}", "${model}", "${task}", "${model.hidden_size}", "${task.batch_size}", "${oc.env:HOME}",
            "${oc.env:NOPE}", "${oc.env:NOPE,3}", "${oc.env:NOPE,null}", "${oc.decode:'1'}", "${run_dir:}", "${",
            "${nope:1}", "${loop.log_every}", "${hydra:job.name}", "${.name}", "${..seed}", "${oc.dict.keys:model}",
            "${oc.select:nope,2}", "${${seed}}", "${oc.create:{a:1}}", "???")  # fmt: skip
PLACES = ("/dev/null", "/proc/nowhere", "nowhere", "a/b/c", "x" * 300, "~nobody/x", "a\0b", "/", "..", "con:", "ü/ñ")
TARGETS = ("os.system", "builtins.eval", "torch.load", "torch.hub.load", "torch.nn.Linear", "torch.optim.Optimizer",
           "torch.optim.LBFGS", "torch.optim.AdamW", "timescales.LSTM", "timescales.tasks.Task",
           "timescales.nn.rnn.RNN", "timescales.tasks.Copy", "timescales.nope.X", ".", "..", "a.", ".a", "timescales",
           "5", "ü.ñ", "", "timescales.URLSTM", "timescales.optim.NTASGD", "torch.optim.SparseAdam")  # fmt: skip


def value(rng: random.Random, key: str, small: bool) -> str:
    """A random value, as it is typed."""
    if key.endswith("_target_") and rng.random() < 0.8:
        return rng.choice(TARGETS)
    if key in ("run_dir", "data_root"):
        places = PLACES if not small else [p for p in PLACES if p not in ("/", "..", "/dev/null")]
        return quoted(rng.choice(places))
    large = ["1000", "1000000", "2147483648", "9223372036854775808", "-9223372036854775809", "1" + "0" * 40,
             "1e300", "1e-300", "0x10", "1_000"]  # fmt: skip
    kinds: list[Callable[[], str]] = [
        lambda: rng.choice(["-1", "0", "1", "2", "3", "4", "5", "7", "50"] + ([] if small else large)),
        lambda: str(rng.randint(-3, 50)),
        lambda: rng.choice(["0.0", "0.5", "-0.5", "1.0", "1.5", "1e-3", "1e-9", "inf", "-inf", "nan", ".5", "1."]),
        lambda: f"{rng.uniform(-1, 2):.3g}",
        lambda: rng.choice(["true", "false", "null", "True", "NULL", "yes"]),
        lambda: quoted(rng.choice(WORDS)) if rng.random() < 0.7 else rng.choice(WORDS),
        lambda: quoted("".join(chr(rng.choice([rng.randint(1, 126), rng.randint(160, 0x2FFF)])) for _ in range(6))),
        lambda: rng.choice(NESTED),
        lambda: rng.choice(POINTERS) if rng.random() < 0.5 else quoted(rng.choice(POINTERS)),
    ]
    return rng.choice(kinds)()


def quoted(text: str) -> str:
    """Text as Hydra takes any."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def overrides(seed: int, number: int, small: bool, keys: Callable[[list[str]], list[str]]) -> list[str]:
    """The overrides of a case; keys: of the configuration that choices of groups compose."""
    rng = random.Random(f"{seed} fuzz {number} {small}")
    # Of few choices of groups, since each takes a tenth of a second to compose.
    chosen = random.Random(f"groups {rng.randrange(40)}")
    groups = [f"{group}={chosen.choice(folders.choices(group))}" for group in GROUPS if chosen.random() < 0.8]
    known = keys(list(groups))
    if rng.random() < 0.03:
        groups.append(f"{rng.choice((*GROUPS, 'logger', 'table'))}={value(rng, '', small)}")
    found = groups
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5])):
        key, kind = rng.choice(known), rng.random()
        if kind < 0.06:
            key = key[: rng.randrange(1, len(key) + 1)] + rng.choice("xé_. -@/0")
        elif kind < 0.09:
            key = rng.choice(
                ["ü", "", ".", "a.b.c", "model.", "task..T", "loop", "hydra.nope", "task@x", "model/x", "x[0]"]
            )
        sign = rng.choices(["", "+", "++", "~"], [88, 3, 6, 3])[0]
        found.append(f"{sign}{key}" + ("" if sign == "~" and rng.random() < 0.7 else f"={value(rng, key, small)}"))
    return found


class Composing:
    """Composes cases and says what comes of each, as `train.main` would before torch is loaded."""

    def __init__(self, composer: compose.Composer) -> None:
        self.composer = composer
        self.known: dict[tuple[str, ...], list[str]] = {}

    def keys(self, groups: list[str]) -> list[str]:
        """All keys of what these choices compose."""
        if tuple(groups) not in self.known:
            plain = OmegaConf.to_container(self.composer(groups), resolve=False)
            self.known[tuple(groups)] = [
                key for key in keys.dotted(plain) if not key.startswith(("logger", "table"))
            ]
        return self.known[tuple(groups)]

    def case(self, seed: int, number: int, small: bool) -> tuple[str, str, list[str]]:
        """What comes of a case, "valid", "clear", "sweep" or "fault"; the line or the traceback; its overrides."""
        words = overrides(seed, number, small, self.keys)
        signal.signal(signal.SIGALRM, _late)
        signal.alarm(SECONDS)
        try:
            if any("=" in w and self.composer.parse(w).is_sweep_override() for w in words):
                return "sweep", "", words
            self.validate(self.composer(words))
            return "valid", "", words
        except Late:
            return "fault", f"hung: more than {SECONDS} s", words
        except Exception as error:
            import traceback

            try:
                line = messages.one_line(error, words)
            except Exception as another:
                return "fault", f"in one_line: {''.join(traceback.format_exception(another))}", words
            if line is None:
                return "fault", "".join(traceback.format_exception(error)), words
            return ("clear" if line.strip() and "\n" not in line else "fault"), line, words
        finally:
            signal.alarm(0)

    @staticmethod
    def validate(cfg: DictConfig) -> None:
        """What `train.main` does before it trains."""
        for one in identity.each_seed(cfg):
            train.unfinished(one)
        check.check(cfg)
        identity.resolved(cfg)


class Late(BaseException):
    """A case takes too long. No Exception: a resolver's would come back as OmegaConf's own."""


def _late(number: int, frame: FrameType | None) -> None:
    raise Late


def fuzz(torture: Torture) -> tuple[Report, str]:
    """Random overrides: composed, and of the valid ones some take a step."""
    from harness import Report

    report = Report()
    for number, (outcome, line, words) in composed(torture, torture.times(10_000), False, "compositions"):
        report.count("composed and validated, without torch", outcome)
        if outcome == "fault":
            report.fault(f"fuzz composition {number}", f"`{' '.join(words)[:300]}`", line)
    wanted, taken = torture.times(500), 0
    bar = tqdm(total=wanted, desc="steps", unit="step")
    for number, (outcome, line, words) in composed(torture, 4 * wanted, True, "compositions for steps"):
        if outcome == "fault":
            report.count("composed for a step", outcome)
            report.fault(f"fuzz composition {number} for steps", f"`{' '.join(words)[:300]}`", line)
        if outcome != "valid" or taken == wanted:
            continue
        taken += 1
        bar.update()
        cwd = torture.folder / f"fuzz {number}"
        case = torture.bench.run(one_step(words, torture.bench.data), cwd, before=offline)
        column = "ran" if case.status == 0 else "one line" if case.clear else "fault"
        report.count("valid ones, one training step", column)
        if column == "fault":
            report.fault(f"fuzz step {number}", f"`{' '.join(words)[:300]}`", case.out)
        shutil.rmtree(cwd, ignore_errors=True)
    bar.close()
    return report, (
        "Random overrides: choices of groups, keys right, misspelt, deleted, added and nonsensical; values of every "
        "type, out of range, huge, nested, null, Unicode, paths, classes, interpolations. *valid*: composes, passes "
        "`schema.check` and has an identity. *clear*: one line says what is wrong. *sweep*: is one, and not composed "
        "as one run. Whatever takes longer than its limit counts as a fault, as does a traceback. The steps are "
        "taken by `train.py` itself, with small sizes and without a network."
    )


def one_step(words: list[str], data: Path) -> list[str]:
    """A case's overrides, and before and after them what makes one step of them, small and on the CPU."""
    from synthetic import SMALL, sizes

    groups = [w for w in words if w.partition("=")[0] in GROUPS]
    task = next((w.removeprefix("task=") for w in reversed(groups) if w.startswith("task=")), "copy")
    small = ["logger=csv", "device=cpu", "model.hidden_size=5", "task.batch_size=4", *sizes(task, 40, 8, 8)]
    last = ["loop.max_steps=1", "loop.max_eval_batches=1", "loop.max_epochs=1", "loop.eval_every=null"]
    rest = [w for w in words if w not in groups]
    return [*groups, *small, *SMALL.get(task, []), f"data_root={data}", *rest, *last]


def offline() -> None:
    """No network, and no more memory than a small machine has."""
    import resource
    import socket

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network here")

    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.getaddrinfo = refuse  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def composed(torture: Torture, n: int, small: bool, label: str) -> Iterator[tuple[int, tuple[str, str, list[str]]]]:
    """What comes of n cases, from a process without torch."""
    words = [sys.executable, __file__, str(torture.seed), "0", str(n), *(["small"] if small else [])]
    cwd = torture.folder / label
    cwd.mkdir()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
        assert process.stdout is not None
        number = 0
        for number, line in enumerate(tqdm(process.stdout, total=n, desc=label, unit="case", smoothing=0.02), 1):
            yield number - 1, tuple(json.loads(line))
    assert process.returncode == 0, f"{number} of {n} cases, then exit status {process.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("seed", "first", "last"):
        parser.add_argument(name, type=int)
    parser.add_argument("size", nargs="?", choices=["small"])
    asked = parser.parse_args()
    with compose.composing() as composer:
        composing = Composing(composer)
        for number in range(asked.first, asked.last):
            print(json.dumps(composing.case(asked.seed, number, asked.size == "small")), flush=True)
    heavy = {"torch", "pandas", "wandb"} & set(sys.modules)
    assert not heavy, f"validated with {heavy}"


# --------------------------------------------------------------------------------------------- damaged data sets


def corpora(torture: Torture) -> tuple[Report, str]:
    """Data sets and caches that are cut or changed: read whole, refused in one line, or made anew."""
    import synthetic
    import texts
    from harness import Report, plain, same, spoil

    from timescales.tasks.data import cifar, glove, imdb, mnist, text

    def zipped(path: Path) -> None:
        texts.write_text8(path.with_suffix(""))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(path.with_suffix(""), "text8")
        path.with_suffix("").unlink()

    def vectors(root: Path) -> Any:
        return glove.vectors(synthetic.GLOVE, root)

    def images(root: Path) -> Any:
        arrays = mnist.load(root)
        return *arrays, mnist.partial(arrays)

    def words(corpus: str) -> Callable[[Path], Any]:
        return lambda root: text.words(corpus, root)

    made: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
        "MNIST, raw": (lambda r: synthetic.write_mnist(r / "MNIST" / "raw", 60, 20), images),
        "MNIST, gzipped": (lambda r: synthetic.write_mnist(r / "MNIST" / "raw", 60, 20, ".gz"), images),
        "CIFAR-10, tar": (lambda r: synthetic.write_cifar(r / "cifar-10-python.tar.gz", 50, 10), cifar.load),
        "IMDB, tar": (lambda r: synthetic.write_imdb(r / "aclImdb_v1.tar.gz", 40, 20), imdb.load),
        "GloVe, text": (lambda r: synthetic.write_glove(r / "glove.6B.100d.txt"), vectors),
        "GloVe, gzipped": (lambda r: synthetic.write_glove(r / "glove.6B.100d.txt.gz"), vectors),
        "PTB, words": (lambda r: texts.write_words(r / "ptb", texts.PTB), words("ptb")),
        "PTB, Markov": (lambda r: texts.write_words(r / "ptb", texts.PTB), words("markov_ptb")),
        "PTB, characters": (lambda r: texts.write_words(r / "ptb", texts.PTB), text.ptb_characters),
        "WikiText-2": (lambda r: texts.write_words(r / "wikitext-2", texts.WIKITEXT2), words("wt2")),
        "text8": (lambda r: texts.write_text8(r / "text8" / "text8"), text.text8),
        "text8, zip": (lambda r: zipped(r / "text8.zip"), text.text8),
    }  # fmt: skip
    of = {"MNIST": mnist.CORPUS, "CIFAR-10": cifar.CORPUS, "IMDB": imdb.CORPUS, "GloVe": glove.CORPUS, "PTB": text.PTB,
          "WikiText-2": text.WIKITEXT2, "text8": text.TEXT8, "text8, zip": text.TEXT8}  # fmt: skip
    report, sound = Report(sort=True), {}
    os.environ["HF_HUB_OFFLINE"] = "1"
    for row, (write, load) in made.items():
        root = torture.folder / "sound" / row
        root.mkdir(parents=True)
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        write(root)
        corpus = of.get(row) or of[row.split(",")[0]]
        corpus = text.PTB_CHARACTERS if row == "PTB, characters" else corpus
        place = corpus.find(root)
        assert place is not None
        counts = corpus.count(place)  # a digest only where the real one's is known
        corpus.counts.update({what: counts[what] for what in corpus.counts})
        sound[row] = plain(list(load(root)))
    for k in tqdm(range(torture.times(1200)), desc="damaged data", unit="file"):
        row, rng = list(made)[k % len(made)], torture.random("corpora", k)
        root = torture.folder / f"corpora {k}"
        shutil.copytree(torture.folder / "sound" / row, root)
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        kept = sorted((root / "cache").rglob("*.pt"))
        cache = bool(kept) and rng.random() < 0.4
        path = rng.choice(kept if cache else sorted(p for p in root.rglob("*") if p.is_file() and p not in kept))
        how = spoil(path, rng)
        label = f"{row}{', its cache' if cache else ''}, {how}"
        try:
            error_text = ""
            found = plain(list(made[row][1](root)))
            column = "same result" if same(found, sound[row]) else "another content"
            if row.startswith("MNIST") and found[-1] and column == "another content":
                column = "the record says so"
        except ValueError as error:
            error_text = str(error).strip()
            mend = re.search(r"delete|download|fetch_data|allow_partial|again|replace", error_text)
            column = "one line" if mend and "\n" not in error_text else "fault"
        except Exception as error:
            column, error_text = "fault", repr(error)
        report.count(label, column)
        if column == "fault" or (column == "another content" and (cache or row not in UNKNOWN)):
            report.fault(f"corpora {k} ({label}, {path.name})", column, error_text)
        shutil.rmtree(root)
    return report, (
        "A file of a small data set, or of what was made of it and is kept in the cache, is cut at a random length or "
        "has 1 to 8 random bytes changed, and is read again; the counts and digests of the whole are those of the "
        "small one. *one line*: refused, with what to do. *same result*: the damage was where nothing is read, or what "
        "it was made of was read again. *the record says so*: other images than "
        "MNIST's are taken, and marked. *another content* is a fault, except for "
        f"{', '.join(UNKNOWN)}: plain files of which no digest is known here, so that a change that leaves their "
        "counts as they are cannot be seen."
    )


if __name__ == "__main__":
    main()
