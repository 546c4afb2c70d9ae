"""`make site`: the API reference without a warning, the pages of docs/, what the tutorial prints, and the results."""

import html
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from everyday import only

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import pages  # noqa: E402
import sample_data  # noqa: E402
import task_pages  # noqa: E402


def run(script, *arguments, cwd=ROOT):
    command = [sys.executable, ROOT / "scripts" / script, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the documentation, in that of the gallery: what `make site` writes."""
    pytest.importorskip("pdoc")
    site = tmp_path_factory.mktemp("site")
    run("docs.py", site / "docs", "--site", cwd=site)
    return site / "docs"


@pytest.fixture(scope="module")
def gallery(built):
    """The pages of the results, in the folder above that of the documentation."""
    run("gallery.py", "--out", built.parent)


def text(path):
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text()))


@pytest.mark.full
def test_equations_and_shapes_are_shown_as_they_are_written(built):
    import timescales

    things = {
        "timescales": timescales.PLSTM,
        "timescales/nn/rnn": timescales.RNN.forward,
        "timescales/nn/cells/plstm": timescales.PLSTMCell,
    }
    for page, thing in things.items():
        shown = text(built / f"{page}.html")
        lines = [line.strip() for line in thing.__doc__.splitlines() if line.strip()]
        at = [shown.find(line) for line in lines]
        assert -1 not in at, lines[at.index(-1)]
        assert shown[at[0] : at[-1]].count("\n") >= len(lines) - 1


@pytest.mark.full
def test_every_module_has_its_page(built):
    written = {str(path.relative_to(built).with_suffix("")) for path in built.rglob("*.html")}
    files = (ROOT / "timescales").rglob("*.py")
    modules = {str(path.relative_to(ROOT).with_suffix("")).removesuffix("/__init__") for path in files}
    left_out = {"timescales/__main__", "timescales/nn/engine/gpu/triton_kernels", "timescales/nn/modules"}
    assert modules - written == left_out


@pytest.mark.full
def test_what_the_tutorial_prints(built):
    shown = text(built / "tutorial.html")
    assert re.search(r"^finished 4\d\d\d parameters", shown, re.M)
    curve = re.findall(r"^epoch +\d+  valid/loss ([\d.]+)  valid/accuracy ([\d.]+)", shown, re.M)
    assert len(curve) == 4
    assert 0.5 < float(curve[0][0]) < 1.0
    assert "output (20, 4, 8) and the last h of each layer (2, 4, 8)" in shown
    assert "tensor([10., 10., 10., 10., 10., 10., 10., 10.])" in shown
    assert "4 runs: 2 finished, skipped; 2 to run" in shown
    accuracy = {model: float(value) for model, value in re.findall(r"^\| (lstm|decay) \| ([\d.]+)", shown, re.M)}
    assert accuracy["decay"] > max(75, accuracy["lstm"] + 10)
    claim = re.search(r"^\| decay > lstm \| (holds|in order) \(n=2\)", shown, re.M)
    assert claim
    assert f"small-scale version: {'order shown' if claim[1] == 'holds' else 'in order'}" in shown


PAGES = sorted((ROOT / "docs").rglob("*.md"))
PROSE = [*PAGES, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]


@pytest.mark.full
@pytest.mark.usefixtures("gallery")
def test_every_page_is_there_and_its_links_and_pictures_hold(built):
    for page in PAGES:
        place = (built / "guide" / page.relative_to(ROOT / "docs")).with_suffix(".html")
        place = place.parent.with_suffix(".html") if page.name == "README.md" else place
        for link in re.findall(r'(?:href|src)="([^"#]+)', place.read_text()):
            assert link.startswith(("http", "data:", "$")) or (place.parent / link).is_file(), f"{page}: {link}"
        for link in re.findall(r'<img src="([^"]+)', place.read_text()):
            assert (place.parent / link).read_bytes()[1:4] == b"PNG", f"{page}: {link}"


@pytest.mark.full
@pytest.mark.usefixtures("gallery")
def test_results_and_documentation_link_to_each_other(built):
    results = {path.name: path.read_text() for path in built.parent.glob("*.html")}
    for name, text in results.items():
        for link in re.findall(r'href="(docs/[^"#]+)', text):
            assert (built.parent / link).is_file(), f"{name}: {link}"
    assert 'href="docs/guide.html"' in results["index.html"]
    assert 'href="docs/guide/models/plstm.html"' in results["chien_table3.html"]
    assert 'href="../../chien_table3.html"' in (built / "guide" / "deviations.html").read_text()
    for page in ("guide.html", "guide/models/plstm.html", "timescales/nn/rnn.html"):
        (link,) = re.findall(r'href="([^"]+)">Results</a>', (built / page).read_text())
        assert ((built / page).parent / link).resolve() == built.parent / "index.html"


def test_documentation_alone_has_no_link_to_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    docs = importlib.import_module("docs")
    text = "[a](../results/README.md) [b](train.md#x) [c](../results/speed.csv) [d](../results/chien_copy/table.md)"
    page = ROOT / "docs" / "README.md"
    assert docs.linked(text, page, site=False) == "a [b](guide/train.html#x) c d"
    assert docs.linked(text, page, site=True) == "[a](../index.html) [b](guide/train.html#x) c [d](../chien_copy.html)"
    text, page = "![p](../../results/chien_copy/figure.png)", ROOT / "docs" / "papers" / "ours.md"
    assert docs.linked(text, page, site=False) == "![p](../results/chien_copy/figure.png)"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_hold(page):
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text()):
        assert (page.parent / link).exists(), link


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
BUT_PAIRS = [name for name in GENERATED if name != "docs/pairs.md"]  # which takes as long as all others


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("name", only(BUT_PAIRS, GENERATED))
def test_generated_parts_of_a_page_are_what_conf_and_docstrings_give(name):
    text = GENERATED[name].read_text()
    assert pages.page(text, pages.pages()[GENERATED[name]]) == text, "python scripts/pages.py writes it again"


def test_every_task_has_its_picture():
    assert all((ROOT / "docs" / "tasks" / "img" / f"{name}.png").is_file() for name in task_pages.EXAMPLES)


@pytest.mark.full
def test_equations_of_the_guide_are_shown_without_a_network(built):
    shown = (built / "guide/models/plstm.html").read_text()
    assert shown.count("<math ") >= 10
    assert "<msup>" in shown
    assert shown.count("<mtr>") >= 4, "a line for each equation"
    texts = [page.read_text() for page in built.rglob("*.html")]
    assert not any("<mi>&</mi>" in page for page in texts), "an environment that the converter does not know"
    assert not any("mathjax" in page.lower() for page in texts)
    loaded = {
        link
        for page in texts
        for link in re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["'](https?://[^"']+)""", page)
    }
    assert loaded == set()
