"""The packages beyond torch and numpy, and the extra of pyproject.toml that installs each. Imports none of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

NAME = "timescales-rnn"  # of the distribution: pip install timescales-rnn
TRAIN = (
    "hydra",
    "omegaconf",
    "datasets",
    "torchvision",
    "wandb",
    "pandas",
    "matplotlib",
    "scipy",
    "tqdm",
    "safetensors",
)
# The extra of each module that is imported.
EXTRAS = {
    **dict.fromkeys(TRAIN, "train"),
    "huggingface_hub": "hub",
    "spacy": "imdb",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
}


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{NAME}[{extra}]'"


def line(error: ModuleNotFoundError) -> str | None:
    """What to install for a package that is missing, in one line; None for any other module."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    return extra and f"{package} is not installed: {install(extra)}, or in a clone pip install -e '.[{extra}]'"


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Around the imports of a command: a package that is missing ends it with the line that says what to install.

    Before them, what a command needs of Python: its assertions, by which Hydra's parser works, and the three streams. A
    stream that was closed (2>&-) is the null device from then on.
    """
    for _ in range(3):
        if (number := os.open(os.devnull, os.O_RDWR)) > 2:
            os.close(number)
            break
        os.set_inheritable(number, True)  # for the workers of a sweep, too
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (stays open)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if sys.flags.optimize:
        sys.exit("error: PYTHONOPTIMIZE (or -O) is set, with which Hydra cannot read overrides: unset it")
    try:
        yield
    except ModuleNotFoundError as error:
        if (said := line(error)) is None:
            raise
        sys.exit(f"error: {said}")


@contextlib.contextmanager
def module() -> Iterator[None]:
    """Around the imports of a module: the same as an error of Python, which has that line."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (said := line(error)) is None:
            raise
        raise ModuleNotFoundError(said, name=error.name) from None


def absent(name: str, error: ModuleNotFoundError) -> Callable[..., NoReturn]:
    """A function in the place of one that needs a package that is missing: the call raises the error with that line.

    So `help(timescales)` and `from timescales import *`, which take every name, work without the extras.
    """
    if (said := line(error)) is None:
        raise error
    package = error.name

    def function(*_: Any, **__: Any) -> NoReturn:
        raise ModuleNotFoundError(said, name=package)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not here: {said}"
    return function
