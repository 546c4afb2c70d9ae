"""The API reference, from the docstrings, and the tutorial with what it prints: `python scripts/docs.py [FOLDER]`.

Writes HTML to build/docs/ and fails at the first warning. The tutorial is run for it, in a folder of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import pkgutil
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TUTORIAL = ROOT / "docs" / "tutorial" / "tutorial.py"
KERNELS = "timescales.nn.engine.triton_kernels"  # Triton's; they have no signatures


def cells(text: str) -> list[tuple[bool, str]]:
    """A script's cells, at its lines `# %%`: (whether it is text, its text without comment signs or its code)."""
    found = []
    for head, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", text, re.M):
        told = "[markdown]" in head
        found.append((told, (re.sub(r"^# ?", "", body, flags=re.M) if told else body).strip()))
    return found


def rendered(path: Path) -> str:
    """A script of cells as Markdown, with what each cell prints; it is run in the current folder."""
    names: dict[str, Any] = {"__file__": str(path)}
    parts = []
    for told, text in cells(path.read_text()):
        if told:
            parts.append(text)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, str(path), "exec"), names)
        shown = out.getvalue().rstrip()
        parts.append(f"```python\n{text}\n```" + (f"\n\n```text\n{shown}\n```" if shown else ""))
    return "\n\n".join(parts) + "\n"


def modules() -> list[str]:
    """The package's modules, made ready for pdoc: lazy names loaded, named tuples' annotations in their module."""
    import timescales

    vars(timescales).update({name: getattr(timescales, name) for name in timescales.__all__})
    found = [module.name for module in pkgutil.walk_packages(timescales.__path__, "timescales.")]
    found = ["timescales", *(name for name in found if name not in (KERNELS, "timescales.__main__"))]
    for name in found:
        importlib.import_module(name)
    for kind in tuple.__subclasses__():
        if kind.__module__.startswith("timescales") and hasattr(kind, "_fields"):
            kind.__new__.__module__ = kind.__module__
    # pdoc finds a package's modules itself, except where the package has __all__.
    return [name for name in found if hasattr(sys.modules[name.rpartition(".")[0] or name], "__all__")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "docs")
    folder = parser.parse_args().folder.resolve()
    import pdoc

    paths = list(sys.path)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        print("running the tutorial, about a minute", flush=True)
        page = f"__docformat__ = 'markdown'\n__doc__ = {rendered(TUTORIAL)!r}\n"
        (Path(place) / "tutorial.py").write_text(page)
        sys.path[:] = [place, *paths]  # without what the tutorial has put there
        pdoc.render.configure(template_directory=ROOT / "docs" / "api", show_source=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            pdoc.pdoc(*modules(), f"!{KERNELS}", "tutorial", output_directory=folder)
    print(f"written: {os.path.relpath(folder)}/index.html")


if __name__ == "__main__":
    main()
