"""Upload weights to the Hugging Face hub: `python scripts/push.py chien_table3 OWNER/REPOSITORY`.

FROM is a table whose weights are in results/, or a folder with an index.csv. The files that the index names go there,
each with its card, and README.md, the repository's own card. Then `timescales.load("hf:OWNER/REPOSITORY/plstm")` gives
a model. It needs the extra `hub` and the hub's own login (`hf auth login`). --list sends nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import extras, paths  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.runs import weights  # noqa: E402


def folder_of(name: str) -> Path:
    """The folder of weights of a table, or the folder itself. Raises ConfigError if there is none."""
    for folder in (paths.RESULTS / name / weights.FOLDER, Path(name), Path(name) / weights.FOLDER):
        if (folder / weights.INDEX).is_file():
            return folder
    raise ConfigError(f"{name} is no table with weights in results/, and no folder with {weights.INDEX}")


def files_of(folder: Path) -> list[str]:
    """The names of the files that go. Raises ConfigError for weights that are not the index's, or have no card."""
    kept = [entry for entry in weights.read_index(folder / weights.INDEX) if entry.kept]
    for entry in kept:
        about, card = weights.about_file(folder / entry.file), folder / f"{entry.id}.md"
        if about is None or about["id"] != entry.id or (folder / entry.file).stat().st_size != entry.bytes:
            raise ConfigError(f"{folder / entry.file} is not what {weights.INDEX} says: write the report again")
        if not card.is_file():
            raise ConfigError(f"{card} is missing: write the report again")
    if not kept:
        raise ConfigError(f"{folder} has no weights")
    return ["README.md", weights.INDEX, *(name for each in kept for name in (f"{each.id}.md", each.file))]


def upload(folder: Path, names: list[str], repository: str, private: bool) -> str:
    """Create the repository if it is not there, and upload the files in one commit; returns its address."""
    with extras.command():
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    try:
        api = HfApi(library_name="timescales")
        api.create_repo(repository, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, allow_patterns=names, commit_message=f"Weights: {len(names)} files"
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ConfigError(f"{repository}: {str(error).strip().splitlines()[0]}") from error
    return str(done.commit_url)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("source", metavar="FROM", help="a table, or a folder of weights")
    parser.add_argument("repository", metavar="OWNER/REPOSITORY", help="where it goes")
    parser.add_argument("--private", action="store_true", help="a new repository is private")
    parser.add_argument("--list", action="store_true", help="say what would go; send nothing")
    options = parser.parse_args()
    try:
        folder = folder_of(options.source)
        names = files_of(folder)
        for name in names:
            print(f"{(folder / name).stat().st_size:>10,}  {name}")
        if not options.list:
            print(f"uploaded: {upload(folder, names, options.repository, options.private)}")
    except ConfigError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
