"""Compose random overrides without torch, and print what becomes of each case as one line of JSON.

    python tests/faults/random_overrides.py SEED FIRST LAST [small]

A case is a list of overrides that follows from the seed and its number. `small` draws no sizes above 50, so that a
valid case can take a training step.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import odd_values as odd  # noqa: E402
from omegaconf import DictConfig, OmegaConf  # noqa: E402

import train  # noqa: E402
from timescales.config import check, compose, folders, identity, messages  # noqa: E402
from timescales.config.keys import dotted  # noqa: E402

GROUPS = ("model", "task", "optimizer", "paper")
SECONDS = 30  # a composition that takes longer counts as hanging

# ------------------------------------------------------------------------------------------------------ drawing a case


def value(rng: random.Random, key: str, small: bool) -> str:
    """A random value for a key, as it is typed."""
    if key.endswith("_target_") and rng.random() < 0.8:
        return rng.choice(odd.TARGETS)
    if key in ("run_dir", "data_root"):
        return quoted(rng.choice(odd.HARMLESS_PLACES if small else odd.PLACES))
    kinds: list[Callable[[], str]] = [
        lambda: rng.choice(odd.SMALL_INTEGERS if small else odd.SMALL_INTEGERS + odd.LARGE_NUMBERS),
        lambda: str(rng.randint(-3, 50)),
        lambda: rng.choice(odd.FLOATS),
        lambda: f"{rng.uniform(-1, 2):.3g}",
        lambda: rng.choice(odd.CONSTANTS),
        lambda: quoted(rng.choice(odd.WORDS)) if rng.random() < 0.7 else rng.choice(odd.WORDS),
        lambda: quoted("".join(chr(rng.choice([rng.randint(1, 126), rng.randint(160, 0x2FFF)])) for _ in range(6))),
        lambda: rng.choice(odd.NESTED),
        lambda: rng.choice(odd.INTERPOLATIONS) if rng.random() < 0.5 else quoted(rng.choice(odd.INTERPOLATIONS)),
    ]
    return rng.choice(kinds)()


def quoted(text: str) -> str:
    """Any text, quoted for Hydra."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def override(rng: random.Random, known: list[str], small: bool) -> str:
    """A random override of a known key, or of one that does not exist."""
    key, kind = rng.choice(known), rng.random()
    if kind < 0.06:
        key = key[: rng.randrange(1, len(key) + 1)] + rng.choice("xé_. -@/0")
    elif kind < 0.09:
        key = rng.choice(odd.KEYS)
    sign = rng.choices(["", "+", "++", "~"], [88, 3, 6, 3])[0]
    if sign == "~" and rng.random() < 0.7:
        return f"~{key}"
    return f"{sign}{key}={value(rng, key, small)}"


def overrides(seed: int, number: int, small: bool, keys: Callable[[list[str]], list[str]]) -> list[str]:
    """The overrides of a case.

    Args:
        seed, number: decide the case.
        small: draw no sizes above 50.
        keys: returns the keys of the configuration that choices of groups compose.
    """
    rng = random.Random(f"{seed} fuzz {number} {small}")
    # Only 40 different choices of groups, since each takes a tenth of a second to compose.
    chosen = random.Random(f"groups {rng.randrange(40)}")
    case = [f"{group}={chosen.choice(folders.choices(group))}" for group in GROUPS if chosen.random() < 0.8]
    known = keys(list(case))
    if rng.random() < 0.03:
        case.append(f"{rng.choice((*GROUPS, 'logger', 'table'))}={value(rng, '', small)}")
    n = rng.choice([1, 1, 1, 2, 2, 3, 5])
    return case + [override(rng, known, small) for _ in range(n)]


# ---------------------------------------------------------------------------------------------------- composing a case


class Late(BaseException):
    """A case takes too long. Not an Exception, since OmegaConf would wrap one that is raised in a resolver."""


def raise_late(number: int, frame: FrameType | None) -> None:
    """The handler of the alarm."""
    raise Late


class Outcome(NamedTuple):
    """What became of a case."""

    kind: str  # "valid", "clear" (one line of error), "sweep" or "fault"
    text: str  # the line or the traceback
    overrides: list[str]


class Composing:
    """Composes cases and validates them as `train.main` does before torch is loaded."""

    def __init__(self, composer: compose.Composer) -> None:
        self.composer = composer
        self.known: dict[tuple[str, ...], list[str]] = {}

    def keys(self, groups: list[str]) -> list[str]:
        """All keys of the configuration that these choices compose."""
        if tuple(groups) not in self.known:
            plain = OmegaConf.to_container(self.composer(groups), resolve=False)
            keys = [key for key in dotted(plain) if not key.startswith(("logger", "table"))]
            self.known[tuple(groups)] = keys
        return self.known[tuple(groups)]

    def case(self, seed: int, number: int, small: bool) -> Outcome:
        """Compose and validate one case."""
        case = overrides(seed, number, small, self.keys)
        signal.signal(signal.SIGALRM, raise_late)
        signal.alarm(SECONDS)
        try:
            if any("=" in text and self.composer.parse(text).is_sweep_override() for text in case):
                return Outcome("sweep", "", case)
            self.validate(self.composer(case))
            return Outcome("valid", "", case)
        except Late:
            return Outcome("fault", f"hung: more than {SECONDS} s", case)
        except Exception as error:
            return explained(error, case)
        finally:
            signal.alarm(0)

    @staticmethod
    def validate(cfg: DictConfig) -> None:
        """What `train.main` does before it trains."""
        for single in identity.each_seed(cfg):
            train.unfinished(single)
        check.check(cfg)
        identity.resolved(cfg)


def explained(error: Exception, case: list[str]) -> Outcome:
    """The outcome of a case that raised an error: clear if the command line shows it as one line."""
    try:
        line = messages.one_line(error, case)
    except Exception as second:
        return Outcome("fault", f"in one_line: {''.join(traceback.format_exception(second))}", case)
    if line is None:
        return Outcome("fault", "".join(traceback.format_exception(error)), case)
    return Outcome("clear" if line.strip() and "\n" not in line else "fault", line, case)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("seed", "first", "last"):
        parser.add_argument(name, type=int)
    parser.add_argument("size", nargs="?", choices=["small"])
    options = parser.parse_args()
    with compose.composing() as composer:
        composing = Composing(composer)
        for number in range(options.first, options.last):
            print(json.dumps(composing.case(options.seed, number, options.size == "small")), flush=True)
    heavy = {"torch", "pandas", "wandb"} & set(sys.modules)
    assert not heavy, f"the validation imported {heavy}"


if __name__ == "__main__":
    main()
