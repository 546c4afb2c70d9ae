"""Define the errors that every package may raise for bad input, and shorten them to one line for the user."""

import difflib
import re
from collections.abc import Iterator
from typing import Any


class ConfigError(ValueError):
    """A configuration that cannot run; its text is one line that says how to fix it."""


class MissingData(ConfigError):
    """A data set is not on disk and could not be downloaded."""


class NotMadeFor(ConfigError):
    """An analysis that is not made for a run's model or task."""


class WrongShape(ConfigError, RuntimeError):
    """A tensor of a call does not fit the layer or its cell. The message is one line with the shapes.

    It is a RuntimeError, too: torch's layers raise one for an input, state or weight of a wrong size.
    """


def nearest(wrong: str, right: Any) -> str:
    """Return "; did you mean X?" for the nearest right word, or nothing if none is near."""
    near = difflib.get_close_matches(str(wrong), [str(r) for r in right], 1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def one_line(error: BaseException) -> str:
    """Put an error for wrong input into one line.

    Errors of Hydra and OmegaConf are said in their words, without the lines for developers, and with the nearest right
    name where there is one.
    """
    causes = [error]  # the error that a user sees first
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    if ours := next((cause for cause in causes if isinstance(cause, ConfigError)), None):
        return " ".join(str(ours).splitlines())
    if isinstance(error, OSError) and error.filename:
        why = f"{error.filename}: {error.strerror}"
        return f"{why}; choose another place with run_dir=DIR or data_root=DIR, or make room and give access there"
    texts: list[str] = []
    for cause in causes[:2]:
        lines = [line.strip() for line in str(cause).splitlines()]
        text = " ".join(line for line in lines if not re.match("full_key:|object_type=|reference_type=", line))
        text = " ".join(text.partition("Config search path:")[0].split()).rstrip(".")
        if text != "None" and text not in ". ".join(texts):
            texts.append(text)
    message = ". ".join(texts)
    no_file = re.search(r"Could not find '(?:[\w/]+/)?(\S+)' Available options in '\S+': (.*)", message)
    near = nearest(no_file[1], no_file[2].split()) if no_file else ""
    near = near or next(filter(None, (_near_key(cause, message) for cause in causes)), "")
    if near:  # then Hydra's advice to add the key with + misleads
        message = re.sub(r" To append to your config use \S+", "", message)
    if "raised while composing config: Key" in message:
        near = "; a file whose keys are those of a run begins with the line # @package _global_"
    return f"{message}{near}" or type(error).__name__


def _near_key(cause: BaseException, message: str) -> str:
    """Return "; did you mean X?" for OmegaConf's error about a key that is not there."""
    parent, wrong = getattr(cause, "parent_node", None), re.search(r"Could not override '([\w.]+)'", message)
    if parent is None or wrong is None:
        return ""
    of_hydra = wrong[1].startswith("hydra.")
    known = [key for key, _ in dotted(parent._get_root()) if key.startswith("hydra.") is of_hydra]
    parent_key, dot, name = wrong[1].rpartition(".")
    if same := [key for key in known if key.rpartition(".")[2] == name]:  # lr: optimizer.lr
        near = difflib.get_close_matches(wrong[1], same, 1, cutoff=0.0)
    else:
        beside = {key.removeprefix(parent_key + dot): key for key in known if key.startswith(parent_key + dot)}
        near = [beside[key] for key in difflib.get_close_matches(name, beside, 1)]
    return f"; did you mean {near[0]}?" if near else ""


def dotted(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all keys of a configuration, written with dots, and their values; a key that holds others before these."""
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(node) if OmegaConf.is_config(node) else node
    for key, value in plain.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
