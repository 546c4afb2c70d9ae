"""The packages beyond torch and numpy, and the extra of pyproject.toml that installs each. Imports none of them."""

from __future__ import annotations

import contextlib
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
    """Around the imports of a command: a package that is missing ends it with the line that says what to install."""
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
