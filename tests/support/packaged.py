"""The project as pyproject.toml describes it, and what distributions bring."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def normalised(name):
    """A distribution's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(requirements):
    """The distributions that requirements bring, with all that these need here, by normalised name."""
    found, todo = {}, [Requirement(text) for text in requirements]
    while todo:
        requirement = todo.pop()
        name = normalised(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if name not in found and applies:
            try:
                found[name] = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:  # such as CUDA's libraries beside a CPU build of torch
                continue
            todo += [Requirement(text) for text in found[name].requires or []]
    return found


def modules(distributions):
    """The names that distributions let one import."""
    names = {Path(path.parts[0]).stem for found in distributions for path in found.files or [] if path.suffix == ".py"}
    return {name for name in names if name.isidentifier()}
