"""Build the documentation site: `python scripts/docs.py [FOLDER] [--runs RUN_DIR ...]`, by default build/site.

Its pages are those of docs/ and results/, the API reference from the docstrings, and the notebooks. With --runs they
are those of the given runs, and a list of them. They are laid out in a folder where docs/ and results/ keep their
places. Sphinx makes HTML of them that needs no server and no network. A warning is an error: a dead link, a page that
no other leads to.
"""

import argparse
import importlib
import io
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import notebooks  # noqa: E402
import result_pages  # noqa: E402
from PIL import Image  # noqa: E402

from timescales.errors import ConfigError  # noqa: E402
from timescales.reports.markdown import grid  # noqa: E402

SITE = ROOT / "docs" / "site"
OUT = ROOT / "build" / "site"  # the workflow site.yml publishes it
COLOURS = 128  # of a picture
NAME = re.compile(r"`([\w.]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)((?:#[^)\s]*)?\))")
FILE_NAME = re.compile(r"\[[\w./-]+\.md\](?=\((?!https?:)[^)\s]+\.md[)#])")  # as the text of a link
# The top of the site: a page of each part, and those below it by patterns; later patterns find what earlier ones left.
# What no pattern finds goes below the page of its folder.
NAVIGATION = {
    "Start": ("docs/README", "docs/tour", "README"),
    "Course": ("docs/teach", "docs/memory"),
    "Layers": ("docs/library", "docs/dropin"),
    "Write a gate": ("docs/gates",),
    "Train": ("docs/train", "docs/own", "docs/scaling", "docs/loggers"),
    "Tasks": ("docs/tasks/README", "docs/tasks/*"),
    "Models": ("docs/models/README", "docs/models/*"),
    "Reproduce": ("docs/reproduce", "docs/papers/*", "docs/statistics", "docs/coverage"),
    "Results": (
        "results/README",
        "results/FINDINGS",
        "results/LOG",
        "results/*/table",
        "results/*/README",
        "docs/results",
    ),
    "Atlas": ("docs/atlas", "docs/cards/README", "docs/cards/*/*"),
    "API": ("api/README", "api/*"),
    "Contribute": (
        "CONTRIBUTING",
        "ARCHITECTURE",
        "CHANGELOG",
        "SECURITY",
        "timescales/nn/engine/README",
        "tests/README",
    ),
}
# The reference has the modules with public names, and these packages.
PACKAGES = ("timescales.models", "timescales.tasks")


def lay_out(source: Path) -> None:
    """Write all pages of the site as Markdown, in an empty folder."""
    for name in ("docs", "results"):
        shutil.copytree(ROOT / name, source / name, ignore=but_pages)
    for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY"):
        shutil.copy(ROOT / f"{name}.md", source)
    shutil.copy(SITE / "index.md", source)
    notebooks.add_pages(source)
    result_pages.complete(source / "results")
    write_reference(source / "api")
    for page in sorted(source.rglob("*.md")):
        page.write_text(with_links(page.read_text(), page.parent, source))
    add_navigation(source)


def lay_out_runs(source: Path, runs: Sequence[Path]) -> None:
    """Write a page for each run as Markdown, in an empty folder, and a first page that lists them."""
    named = {run.name: run for run in runs}
    rows = []
    for name, run in named.items():
        try:
            outcome = result_pages.write_run(run, source / "runs" / name)
        except ConfigError as error:  # its record is damaged
            print(f"left out: {error}")
        else:
            rows.append([f"[{name}](runs/{name}/README.md)", outcome])
    (source / "index.md").write_text("\n".join(["# Runs", "", *grid(["run", "outcome"], rows)]) + "\n")
    append(source / "index.md", [f"runs/{path.name}/README" for path in sorted((source / "runs").glob("*"))])


def but_pages(folder: str, names: list[str]) -> list[str]:
    """Return the names in a folder that the site leaves out: all but pages, pictures and tables."""
    pages = (".md", ".png", ".csv", ".ipynb")
    folders = ("site", "curves", "blocks", "engineering")
    return [n for n in names if n in folders or not (n.endswith(pages) or Path(folder, n).is_dir())]


def with_links(text: str, folder: Path, source: Path) -> str:
    """Rewrite a page's links so that they hold on the site: linked files are copied, a folder becomes its README.

    A link whose text is the name of a page's file gets the title of what it leads to.
    """

    def to(found: re.Match[str]) -> str:
        link, rest = found.groups()
        target = Path(os.path.normpath(folder / link))
        if not target.is_relative_to(source):
            return found[0]
        original = ROOT / target.relative_to(source)
        if original.is_dir():
            readme = next(p / "README.md" for p in (target, *target.parents) if (p / "README.md").is_file())
            return f"]({os.path.relpath(readme, folder)}{rest}"
        if original.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()  # pages may lead to each other
            text = original.read_text()
            target.write_text(with_links(text, target.parent, source) if original.suffix == ".md" else text)
        return found[0]

    return LINK.sub(to, FILE_NAME.sub("[]", text))


def modules() -> list[str]:
    """Return the modules of the reference: those that define a public name, and those of PACKAGES."""
    import timescales

    public = {getattr(timescales, name).__module__ for name in timescales.__all__[1:]}
    names = [module.name for module in pkgutil.walk_packages(timescales.__path__, "timescales.")]
    return [name for name in names if name in public or name.startswith(PACKAGES)]


def write_reference(folder: Path) -> None:
    """Write a page for each module, and one with the public names, which leads to them."""
    import timescales

    folder.mkdir()
    for name in modules():
        module = importlib.import_module(name)
        first = (module.__doc__ or "").strip().splitlines()[:1]
        head = f"# {name}\n\n" + ("" if first else f"`{name}`\n\n")
        source = os.path.relpath(str(module.__file__), ROOT)
        link = f"Source: [{source}](../{source})\n"
        (folder / f"{name}.md").write_text(f"{head}```{{eval-rst}}\n.. automodule:: {name}\n```\n\n{link}")
    rows = []
    for name in timescales.__all__[1:]:
        thing = getattr(timescales, name)
        words = NAME.sub(r"{py:obj}`\1`", (thing.__doc__ or "").strip().splitlines()[0])
        rows.append(f"| {{py:obj}}`{name} <{thing.__module__}.{thing.__qualname__}>` | {words} |")
    (folder / "README.md").write_text((SITE / "api.md").read_text() + "\n".join(rows) + "\n")


def add_navigation(source: Path) -> None:
    """Write NAVIGATION as Sphinx's lists: of the parts on the first page, and below each page that has some."""
    pages = {path.relative_to(source).with_suffix("").as_posix() for path in source.rglob("*.md")} - {"index"}
    open_pages, parts = set(pages), dict[str, str]()
    below: dict[str, list[str]] = defaultdict(list)
    for title, patterns in NAVIGATION.items():
        found: list[str] = []
        for pattern in patterns:
            matching = [page for page in sorted(open_pages) if PurePosixPath(f"/{page}").match(f"/{pattern}")]
            found += matching
            open_pages -= set(matching)
        if found:
            parts[title] = found[0]
            below[found[0]] += found[1:]
    for page in sorted(open_pages):
        below[above(page, pages)].append(page)
    append(source / "index.md", [f"{title} <{page}>" for title, page in parts.items()])
    for page, entries in below.items():
        append(source / f"{page}.md", map(entry, entries))


def above(page: str, pages: Collection[str]) -> str:
    """Return the page of a page's folder or of the nearest one above it."""
    folders = PurePosixPath(page).parents
    found = (f"{folder}/{name}" for folder in folders for name in ("table", "README"))
    return next(each for each in found if each in pages and each != page)


def entry(page: str) -> str:
    """Write a page's line in a list, with another title if the page's own is long or says nothing there."""
    if page == "README":
        return f"Overview </{page}>"
    folder, _, name = page.rpartition("/")
    if folder == "api":
        return f"{name.removeprefix('timescales.')} </{page}>"
    return f"{PurePosixPath(folder).name} </{page}>" if name == "table" else f"/{page}"


def append(page: Path, entries: Iterable[str]) -> None:
    """Add a list of pages below a page, which only the navigation shows."""
    lines = ["", "```{toctree}", ":hidden:", "", *entries, "```", ""]
    page.write_text(page.read_text() + "\n".join(lines))


def build(source: Path, folder: Path) -> None:
    """Sphinx's HTML of the pages. Raises CalledProcessError at a warning."""
    static = source / "_static"
    static.mkdir()
    shutil.copy(SITE / "site.css", static)
    for name in ("conf.py", "hooks.py"):
        shutil.copy(SITE / name, source)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(source / "_doctrees")]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run([*command, str(source), str(folder)], check=True, env={**os.environ, "PYTHONPATH": paths})


def shrink(folder: Path) -> None:
    """Make the site smaller: reduce the colours of pictures, and drop the source maps of the theme's scripts."""
    for path in folder.rglob("*.map"):
        path.unlink()
    for path in (folder / "_images").glob("*.png"):
        small = io.BytesIO()
        Image.open(path).convert("RGB").quantize(COLOURS, method=Image.Quantize.FASTOCTREE).save(small, "png")
        if small.tell() < path.stat().st_size:
            path.write_bytes(small.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", nargs="?", type=Path, default=OUT)
    parser.add_argument("--runs", nargs="*", type=Path, help="directories of trained runs: pages of only these")
    options = parser.parse_args()
    if options.runs == []:
        sys.exit("error: no run is given: train one, or name its directory")
    for run in options.runs or []:
        if not (run / "record.json").is_file():
            sys.exit(f"error: {run} is not the directory of a run: it has no record.json")
    with tempfile.TemporaryDirectory() as place:
        if options.runs:
            lay_out_runs(Path(place), options.runs)
        else:
            lay_out(Path(place))
        try:
            build(Path(place), options.folder)
            shrink(options.folder)
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)
    print(f"written: {os.path.relpath(options.folder / 'index.html')}")


if __name__ == "__main__":
    main()
