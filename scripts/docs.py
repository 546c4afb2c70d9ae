"""The documentation as HTML: `python scripts/docs.py [FOLDER]`, by default into build/docs.

Three parts: the API reference from the docstrings, the pages of docs/, and the tutorial with what it prints, for which
it is run in a folder of its own. Fails at the first warning. A reader needs no network.
--site links to the pages of results/ (scripts/gallery.py) in the folder above.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.reports.html import GUIDE, Site, guide_page  # noqa: E402

DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial" / "tutorial.py"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
MATH = re.compile(r"```math\n(.*?)\n```|\$([^$\n]+)\$", re.S)
# Triton's kernels, which have no signatures; the command's entry; the old place of the layers.
LEFT_OUT = ("timescales.nn.engine.gpu.triton_kernels", "timescales.__main__", "timescales.nn.modules")


def cells(text: str) -> list[tuple[bool, str]]:
    """A script's cells, at its lines `# %%`: (whether it is Markdown, its text without comment signs or its code)."""
    parts = []
    for head, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", text, re.M):
        markdown = "[markdown]" in head
        parts.append((markdown, (re.sub(r"^# ?", "", body, flags=re.M) if markdown else body).strip()))
    return parts


def rendered(path: Path) -> str:
    """A script of cells as Markdown, with what each cell prints; it is run in the current folder."""
    names: dict[str, Any] = {"__file__": str(path)}
    parts = []
    for markdown, text in cells(path.read_text()):
        if markdown:
            parts.append(text)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, str(path), "exec"), names)
        printed = out.getvalue().rstrip()
        parts.append(f"```python\n{text}\n```" + (f"\n\n```text\n{printed}\n```" if printed else ""))
    return "\n\n".join(parts) + "\n"


def linked(text: str, page: Path, site: bool) -> str:
    """A page's Markdown with links that hold between HTML pages; what has no such page is named without a link.

    site: whether the pages of results/ lie in the folder above.
    """

    def to(found: re.Match[str]) -> str:
        picture, words, link, anchor = found.groups()
        target = (page.parent / link).resolve()
        target = target / "README.md" if (target / "README.md").is_file() else target
        there = place_of(target, site)
        return (
            f"{picture}[{words}]({os.path.relpath(there, guide_page(page).parent)}{anchor or ''})" if there else words
        )

    return LINK.sub(to, text)


def place_of(target: Path, site: bool) -> Path | None:
    """Where the HTML of a file lies, or a copy of a picture, below the folder; None if there is none."""
    if not target.exists():
        return None
    if target.suffix == ".png":
        roots = {DOCS: Path(GUIDE), paths.RESULTS: Path(GUIDE, "results")}
        return next((to / target.relative_to(root) for root, to in roots.items() if target.is_relative_to(root)), None)
    if target.is_relative_to(DOCS):
        return guide_page(target) if target.suffix == ".md" else None
    name = Site(paths.RESULTS).page_of(target) if site else ""
    return Path("..", name) if name else None


def with_mathml(text: str) -> str:
    """A page's Markdown with its equations as MathML, which browsers show without a script."""
    from latex2mathml.converter import convert

    def to(found: re.Match[str]) -> str:
        block, inline = found.groups()
        if inline:
            return f"<span>{convert(inline)}</span>"  # a line that begins with <math> would be read as HTML to its end
        aligned = block.replace("{aligned}", "{align*}")  # the name that the converter knows
        return f'<div class="equation">{convert(aligned, display="block")}</div>'

    return MATH.sub(to, text)


def write_guide(place: Path, site: bool) -> None:
    """The pages of docs/ as modules of a package, each with a page as its docstring.

    They form the package GUIDE, since pdoc makes a page of each module.
    """
    for page in sorted(DOCS.rglob("*.md")):
        text = with_mathml(linked(page.read_text(), page, site))
        path = place / GUIDE / page.relative_to(DOCS).with_suffix(".py")
        path = path.with_name("__init__.py") if page.name == "README.md" else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"__docformat__ = 'markdown'\n__doc__ = {text!r}\n")


def copy_pictures(folder: Path) -> None:
    """The pictures that the pages of docs/ show, beside the pages."""
    for page in sorted(DOCS.rglob("*.md")):
        for _, _, link, _ in LINK.findall(page.read_text()):
            picture = (page.parent / link).resolve()
            if picture.suffix == ".png" and (place := place_of(picture, site=False)):
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(picture, folder / place)


def modules() -> list[str]:
    """The package's modules, made ready for pdoc: lazy names loaded, named tuples' annotations in their module."""
    import timescales
    from timescales.nn import cells as layers

    for lazy in (timescales, layers):
        vars(lazy).update({name: getattr(lazy, name) for name in lazy.__all__})
    found = [module.name for module in pkgutil.walk_packages(timescales.__path__, "timescales.")]
    found = ["timescales", *(name for name in found if not name.startswith(LEFT_OUT))]
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
    parser.add_argument("--site", action="store_true", help="link to the pages of results/ in the folder above")
    options = parser.parse_args()
    folder = options.folder.resolve()
    import pdoc

    paths = list(sys.path)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        print("running the tutorial, about a minute", flush=True)
        page = f"__docformat__ = 'markdown'\n__doc__ = {rendered(TUTORIAL)!r}\n"
        (Path(place) / "tutorial.py").write_text(page)
        write_guide(Path(place), options.site)
        sys.path[:] = [place, *paths]  # without what the tutorial has put there
        pdoc.render.configure(template_directory=DOCS / "api", show_source=False)
        pdoc.render.env.globals["site"] = options.site
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            pdoc.pdoc(GUIDE, *modules(), *(f"!{name}" for name in LEFT_OUT), "tutorial", output_directory=folder)
    copy_pictures(folder)
    print(f"written: {os.path.relpath(folder)}/index.html")


if __name__ == "__main__":
    main()
