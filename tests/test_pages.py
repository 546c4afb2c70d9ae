"""Generated pages and files are what their sources give: `scripts/pages.py --check`, part by part."""

import pages
import pytest

from timescales.paths import ROOT


def test_every_model_and_task_has_a_page():
    for group in ("model", "task"):
        names = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
        written = {path.stem for path in (ROOT / "docs" / f"{group}s").glob("*.md")} - {"README"}
        assert written == names
        index = (ROOT / "docs" / f"{group}s" / "README.md").read_text()
        assert all(f"({name}.md)" in index for name in names)


# tests/config/test_configs.py checks conf/matched.yaml, and tests/atlas the atlas, without what takes minutes.
PARTS = [part for part in pages.PARTS if part not in ("matched", "atlas")]
LONG = ("docs", "coverage")  # they make a batch of every task, and read every report


@pytest.mark.parametrize("part", [pytest.param(p, marks=[pytest.mark.slow] * (p in LONG)) for p in PARTS])
def test_what_is_generated_is_what_its_sources_give(part):
    if part == "notebooks":
        pytest.importorskip("jupytext")
    assert pages.stale(pages.PARTS[part]) == [], f"python scripts/pages.py {part} writes it again"


def test_check_names_what_is_stale_and_writes_nothing(script, tmp_path, monkeypatch):
    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "PARTS", {"made": lambda check: iter([(page, "new"), (picture, None)])})
    page.write_text("old")
    assert script("pages", "--check") == "out of date: page.md, picture.png; run python scripts/pages.py"
    assert page.read_text() == "old"
    assert script("pages", "made") == "written: page.md\n"
    picture.touch()
    assert (page.read_text(), script("pages", "--check")) == ("new", "")
    assert "no part maid" in script("pages", "maid")
