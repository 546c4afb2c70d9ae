"""Build what is released, and check it: `python scripts/release.py [FOLDER] [--tag v1.2.0]`, by default into dist/.

The version of the package, CITATION.cff, the newest section of CHANGELOG.md and conda/recipe.yaml must be one, and the
tag that of it. Then the wheel and the sdist are built and looked into. It needs the package `build`; --no-isolation
builds with the hatchling that is installed.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Where the version stands; in the first two also the date of its release.
VERSIONS = {
    "CHANGELOG.md": r"^## (\d\S*), \d{4}-\d\d-\d\d$",
    "CITATION.cff": r"^version: (\S+)$",
    "timescales/__init__.py": r'^__version__ = "(.+)"$',
    "conda/recipe.yaml": r"^  version: (\S+)$",
}
DATES = {"CHANGELOG.md": r"^## \d\S*, (\S+)$", "CITATION.cff": r"^date-released: (\S+)$"}
SDIST_FILES = ("train.py", "conf/config.yaml", "conf/base.yaml", "tests/golden_curves.json", "docs/library.md")
PLAIN = ("constraints.txt", "LICENSE")


def stated(places: dict[str, str]) -> dict[str, str]:
    """Return the first match in each file."""
    found = {name: re.search(pattern, (ROOT / name).read_text(), re.M) for name, pattern in places.items()}
    return {name: match[1] if match else "nothing" for name, match in found.items()}


def version(tag: str | None = None) -> str:
    """Return the version to release. End the program if files disagree about the version or its date."""
    for places in (VERSIONS, DATES):
        if len(set(values := stated(places).values())) > 1:
            sys.exit("error: " + ", ".join(f"{name} says {value}" for name, value in zip(places, values, strict=True)))
    (found,) = set(stated(VERSIONS).values())
    if tag is not None and tag != f"v{found}":
        sys.exit(f"error: the tag is {tag}, the version {found}: tag v{found}, or change the version")
    section = re.search(r"^## Unreleased\b(.*?)(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S)
    if section and section[1].strip():
        sys.exit(f"error: CHANGELOG.md has changes that are not released: put them below {found}")
    return found


def build(folder: Path, isolation: bool = True) -> list[Path]:
    """Build the wheel and the sdist. Return their paths."""
    plain = [] if isolation else ["--no-isolation"]
    subprocess.run([sys.executable, "-m", "build", *plain, "--outdir", str(folder), str(ROOT)], check=True)
    return [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]


def check(files: list[Path], expected: str) -> None:
    """End the program if the two files are not those of this version, or lack something."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{expected}"
    if [path.name for path in files] != [f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"]:
        sys.exit(f"error: built {', '.join(path.name for path in files)}: empty the folder, and build again")
    with zipfile.ZipFile(files[0]) as wheel, tarfile.open(files[1]) as sdist:
        metadata = Parser().parsestr(wheel.read(f"{stem}.dist-info/METADATA").decode())
        needed = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
        missing = {f"{stem}/{name}" for name in (*SDIST_FILES, *PLAIN)} - set(sdist.getnames())
        if "timescales/py.typed" not in wheel.namelist():
            missing.add("timescales/py.typed")
    if (metadata["Version"], len(needed)) != (expected, len(project["dependencies"])) or missing:
        sys.exit(f"error: version {metadata['Version']}, needs {needed}, lacks {sorted(missing)}")


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--tag", help="the tag of the commit; it must be that of the version")
    parser.add_argument("--no-isolation", action="store_true", help="build with the packages of this environment")
    options = parser.parse_args()
    expected = version(options.tag)
    files = build(options.folder, not options.no_isolation)
    check(files, expected)
    print("\n".join(map(str, files)))


if __name__ == "__main__":
    main()
