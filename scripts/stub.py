"""Write timescales/__init__.pyi, the public names for editors and type checkers: `pages.py stub`.

The names are those of the registry. Of a class whose constructor passes `**arguments` on, the stub has the signature
that `inspect.signature` shows.
"""

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import timescales
from timescales.nn import inits

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "timescales" / "__init__.pyi"
HEAD = '''"""The public names, for editors and type checkers. Written by scripts/pages.py."""

from collections.abc import Sequence
from typing import Any

import torch

from timescales.nn.inits import ForgetInit
'''


def texts(check: bool) -> Iterator[tuple[Path, str]]:
    """Yield the stub's file and its text."""
    imports, classes = [], []
    for name in sorted(set(timescales.__all__) - {"__version__"}):
        found: Any = getattr(timescales, name)
        module = found.__module__
        if hasattr(getattr(found, "__init__", None), "__signature__"):
            imports.append(f"from {module} import {name} as _{name}")
            classes.append(described(found))
        else:
            imports.append(f"from {module} import {name} as {name}")
    version = [f"__version__: str\n__all__ = {[*timescales.__all__]!r}".replace("'", '"')]
    yield PATH, "\n".join([HEAD + "\n".join(imports), "", *version, "", *classes])


def described(kind: type) -> str:
    """Write a class for the stub: its docstring, which editors show, and its constructor."""
    signature = inspect.signature(kind)
    named = [p.replace(annotation=Type(p.annotation)) for p in signature.parameters.values()]
    arguments = str(signature.replace(parameters=named)).removeprefix("(")
    name, words = kind.__name__, textwrap.indent(inspect.getdoc(kind) or "", "    ").strip()
    return f'class {name}(_{name}):\n    """{words}\n    """\n    def __init__(self, {arguments} -> None: ...\n'


class Type:
    """A type, as the stub spells it."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        shown = inspect.formatannotation(self.kind)
        for long, short in ((inspect.formatannotation(inits.ForgetInit), "ForgetInit"), ("collections.abc.", "")):
            shown = shown.replace(long, short)
        return shown.replace("typing.", "")
