"""The pages of models and tasks, and the generated parts of other pages, are what conf and docstrings give."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import pages  # noqa: E402
import sample_data  # noqa: E402
import task_pages  # noqa: E402


def test_every_model_and_task_has_a_page():
    for group in ("model", "task"):
        names = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
        written = {path.stem for path in (ROOT / "docs" / f"{group}s").glob("*.md")} - {"README"}
        assert written == names
        index = (ROOT / "docs" / f"{group}s" / "README.md").read_text()
        assert all(f"({name}.md)" in index for name in names)


@pytest.fixture(scope="module")
def made_up():
    with sample_data.folder():
        yield


GENERATED = {str(path.relative_to(ROOT)): path for path in pages.pages()}
SLOW = ("docs/pairs.md",)  # it takes as long as all others
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in GENERATED]


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("name", NAMES)
def test_generated_parts_of_a_page_are_what_conf_and_docstrings_give(name):
    text = GENERATED[name].read_text()
    assert pages.page(text, pages.pages()[GENERATED[name]]) == text, "python scripts/pages.py writes it again"


def test_every_task_has_its_picture():
    assert all((ROOT / "docs" / "tasks" / "img" / f"{name}.png").is_file() for name in task_pages.EXAMPLES)
