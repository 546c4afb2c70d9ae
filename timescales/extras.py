"""Name the extra of pyproject.toml that installs a package beyond torch and numpy. Imports none of these packages."""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

NAME = "timescales-rnn"  # the name of the distribution: pip install timescales-rnn
TRAIN: tuple[str, ...] = ("hydra", "omegaconf", "datasets", "torchvision", "wandb", "pandas", "matplotlib", "scipy")
TRAIN += ("tqdm", "safetensors")
# The extra that installs each module.
EXTRAS = dict.fromkeys(TRAIN, "train") | {"huggingface_hub": "hub", "spacy": "imdb"}
EXTRAS |= {"tensorboard": "tensorboard", "trackio": "trackio"}


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{NAME}[{extra}]'"


def line(error: ModuleNotFoundError) -> str | None:
    """Return one line that says how to install a missing package; None for any other module."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    return extra and f"{package} is not installed: {install(extra)}, or in a clone pip install -e '.[{extra}]'"


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Wrap the imports of a command: if a package is missing, end with one line that says how to install it.

    It first checks what a command needs from Python: assertions, which Hydra's parser needs, and the three standard
    streams. A stream that was closed (2>&-) becomes the null device.
    """
    for _ in range(3):
        if (number := os.open(os.devnull, os.O_RDWR)) > 2:
            os.close(number)
            break
        os.set_inheritable(number, True)  # for the workers of a sweep, too
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (stays open)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if sys.flags.optimize:
        sys.exit("error: PYTHONOPTIMIZE (or -O) is set, and Hydra cannot read overrides with it: unset it")
    try:
        with quick_imports():
            yield
    except ModuleNotFoundError as error:
        if (how_to_install := line(error)) is None:
            raise
        sys.exit(f"error: {how_to_install}")


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Wrap imports: Python does not search what they make for garbage, now or later. There is almost none.

    A run of one step takes 29 % less of the processor's time. If nothing is imported, nothing changes.
    """
    before, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def module() -> Iterator[None]:
    """Wrap the imports of a module: if a package is missing, raise an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (how_to_install := line(error)) is None:
            raise
        raise ModuleNotFoundError(how_to_install, name=error.name) from None


def absent(name: str, error: ModuleNotFoundError) -> Callable[..., NoReturn]:
    """Return a function that replaces one whose package is missing. Calling it raises the error with the line.

    So `help(timescales)` and `from timescales import *`, which read every name, work without the extras.
    """
    if (how_to_install := line(error)) is None:
        raise error
    package = error.name

    def function(*_: Any, **__: Any) -> NoReturn:
        raise ModuleNotFoundError(how_to_install, name=package)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not available: {how_to_install}"
    return function
