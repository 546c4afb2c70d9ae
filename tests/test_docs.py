"""`make site`: every page is there, also the reference, its links hold, it loads nothing, a browser can search it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import result_pages
from matplotlib.figure import Figure

import docs
import timescales
from timescales import plotting
from timescales.paths import ROOT
from timescales.runs import store
from timescales.runs.record import Record

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--disable-dev-shm-usage"]


class Browser:
    """One page of a headless chromium, driven over two pipes by the Chrome DevTools Protocol.

    `requests` collects the addresses that the page loads, its own data apart.
    """

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        down, self.out = os.pipe()
        self.into, up = os.pipe()
        flags = [*FLAGS, "--no-first-run", f"--user-data-dir={self.profile.name}", "about:blank"]
        # chromium reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{down} 4>&{up}'
        command = ["bash", "-c", shell, "bash", CHROMIUM, *flags]
        self.process = subprocess.Popen(command, pass_fds=(down, up), stderr=subprocess.DEVNULL)
        os.close(down)
        os.close(up)
        self.buffer, self.number, self.session, self.requests = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def call(self, method, **parameters):
        """Send a command, wait for its answer and return the result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self):
        """The next message."""
        while b"\0" not in self.buffer:
            chunk = os.read(self.into, 1 << 16)
            assert chunk, "chromium has ended"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, event):
        """Keep what an event tells of the page."""
        method, details = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent" and not details["request"]["url"].startswith("data:"):
            self.requests.append(details["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path, width, height, query=""):
        """Load a file in a window of a size in CSS pixels; a width below 600 is that of a phone."""
        size = {"width": width, "height": height, "mobile": width < 600, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.loaded = False
        self.call("Page.navigate", url=Path(path).resolve().as_uri() + query)
        while not self.loaded:
            self._note(self._next())

    def run(self, script):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What `make site` writes; a warning of Sphinx, such as a dead link, fails it."""
    site = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys, "argv", ["docs.py", str(site)])
        docs.main()
    return site


@pytest.mark.slow
def test_every_page_module_and_run_is_there(built):
    for page in PAGES:
        assert (built / page.relative_to(ROOT)).with_suffix(".html").is_file(), page
    files = [*(ROOT / "timescales" / "tasks").rglob("*.py"), *(ROOT / "timescales" / "models").rglob("*.py")]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files}
    modules |= {getattr(timescales, name).__module__ for name in timescales.__all__[1:]}
    assert {path.stem for path in (built / "api").glob("timescales.*.html")} == modules
    assert len(list(built.rglob("*.html"))) <= 300
    assert sum(path.stat().st_size for path in built.rglob("*") if path.is_file()) <= 25 * 2**20
    for path in (ROOT / "results").glob("*/runs.csv"):
        text = (built / "results" / path.parent.name / "table.html").read_text()
        rows = store.read_rows(path)
        assert len(rows) > result_pages.MAX_RUNS or all(row.id in text for row in rows), path
        assert re.search(r'href="[^"]*runs.csv"', text), path
    titles = re.findall(r'<a class="nav-link[^>]*>\s*([\w ]+?)\s*</a>', (built / "index.html").read_text())
    parts = [name for name in docs.NAVIGATION if name != "Atlas" or (ROOT / "docs" / "atlas.md").is_file()]
    assert list(dict.fromkeys(title for title in titles if title in parts)) == parts


@pytest.mark.slow
def test_the_reference_has_signatures_links_and_sources(built):
    text = (built / "api/timescales.nn.cells.plstm.html").read_text()
    assert 'id="timescales.nn.cells.plstm.PLSTM"' in text
    assert "epsilon_form" in text
    (source,) = re.findall(r'href="(\.\./_downloads/[^"]*/plstm.py)"', text)
    assert (built / "api" / source).read_text() == (ROOT / "timescales/nn/cells/plstm.py").read_text()
    assert 'href="timescales.nn.rnn.html#timescales.nn.rnn.CellRNN"' in text
    names = (built / "api/README.html").read_text()
    assert 'href="timescales.nn.cells.plstm.html#timescales.nn.cells.plstm.PLSTM"' in names


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere_and_equations_are_mathml(built):
    shown = (built / "docs/models/plstm.html").read_text()
    assert shown.count("<math ") >= 10
    assert shown.count("<mtr>") >= 4, "a line for each equation"
    for page in built.rglob("*.html"):
        text = page.read_text()
        assert "<mi>&amp;</mi>" not in text, f"{page}: an environment that the converter does not know"
        assert re.findall(r"""<(?:script|img|iframe)[^>]*src=["'](https?:[^"']+)""", text) == [], page
        assert re.findall(r"""<link[^>]*href=["'](https?:[^"']+)""", text) == [], page


@pytest.mark.slow
def test_links_have_titles_and_pictures_lead_to_their_files(built):
    index = (built / "docs/README.html").read_text()
    assert re.search(r'href="memory\.html"[^>]*><span[^>]*>How long a unit remembers</span>', index)
    table = (built / "results/chien_table3/table.html").read_text()
    picture = re.search(r'<a[^>]*href="([^"]+)"[^>]*><img[^>]*src="([^"]+verdicts[^"]*\.png)"', table)
    assert picture[1] == picture[2]
    assert (built / "results/chien_table3" / picture[1]).is_file()


# Pictures of a page whose sides are in another ratio than those of their files.
STRETCHED = """[...document.querySelectorAll('.bd-content img')].filter((e) => e.offsetWidth
    && Math.abs(e.offsetWidth / e.offsetHeight / (e.naturalWidth / e.naturalHeight) - 1) > .02).map((e) => e.src)"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_a_real_browser_shows_and_searches_it(built):
    chosen = ("index", "docs/models/plstm", "results/chien_table3/table", "api/timescales.nn.cells.plstm")
    heading = "Math.max(...[...document.querySelectorAll('h1, dt.sig')].map((e) => e.scrollWidth - e.clientWidth))"
    with Browser() as page:
        for name in chosen:
            for width in (1280, 390):
                page.open(built / f"{name}.html", width, 844)
                assert page.run("document.documentElement.scrollWidth") <= width, (name, width)
                assert page.run(heading) <= 0, (name, width)  # nothing of a title or a signature is cut off
                assert page.run(STRETCHED) == [], (name, width)
        page.open(built / "search.html", 1280, 900, query="?q=efab722f0d28")
        page.run("new Promise((done) => setTimeout(done, 2000))")
        links = page.run("[...document.querySelectorAll('#search-results a')].map((a) => a.getAttribute('href'))")
        assert any("results/chien_table3/table.html" in link for link in links)
        assert all(request.startswith("file:") for request in page.requests)


def test_links_of_a_page_hold_on_the_site(tmp_path):
    (tmp_path / "results" / "archived").mkdir(parents=True)
    (tmp_path / "results" / "archived" / "README.md").touch()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "train.md").touch()
    text = "[a](train.md#x) [b](../results/archived) [c](../conf/table/chien_copy.yaml) [d](https://x.org)"
    named = " [train.md](train.md) ([docs/train.md](train.md#engines)) [x.md](https://x.org/x.md)"
    shown = docs.with_links(text + named, tmp_path / "docs", tmp_path)
    titled = " [](train.md) ([](train.md#engines)) [x.md](https://x.org/x.md)"
    assert shown == text.replace("archived)", "archived/README.md)") + titled
    copied = (tmp_path / "conf/table/chien_copy.yaml").read_text()
    assert copied == (ROOT / "conf/table/chien_copy.yaml").read_text()


def test_the_page_of_a_run_has_its_outcome_curve_and_pictures(tmp_path):
    run = made_run(tmp_path, "copy-plstm-s0-1")
    (run / "analysis").mkdir()
    shutil.copy(ROOT / "results" / "front.png", run / "analysis" / "reset_units.png")
    (run / "analysis" / "reset_units.csv").write_text("unit,T\n0,3.5\n")
    result_pages.write_run(run, tmp_path / "site")
    text = (tmp_path / "site" / "README.md").read_text()
    assert Record.read(run).summary in text
    assert "![reset_units.png](reset_units.png)" in text
    assert "| 0 | 3.5 |" in text
    assert (tmp_path / "site" / "curve.png").read_bytes()[1:4] == b"PNG"


def made_run(folder, name):
    """Write the record of a run with one validation. Returns the run's directory."""
    values = {"id": "1", "status": "finished", "metrics": {"test/accuracy": 0.5}, "seconds": 3.0}
    values |= {"config": {"model": {"name": "plstm"}}, "curve": [{"step": 5, "valid/accuracy": 0.5}]}
    (folder / name).mkdir(parents=True)
    (folder / name / "record.json").write_text(json.dumps(values))
    return folder / name


@pytest.mark.slow
def test_a_gallery_has_the_pages_of_its_runs_alone(tmp_path, script):
    runs = [made_run(tmp_path / "runs", name) for name in ("copy-plstm-s0-1", "copy-plstm-s1-2")]
    damaged = made_run(tmp_path / "runs", "copy-plstm-s2-3")
    (damaged / "record.json").write_text("{")
    told = script("docs", tmp_path / "site", "--runs", *runs, damaged)
    assert re.search(r"^left out: .*copy-plstm-s2-3", told, re.M)
    assert re.search("^written: ", told, re.M)
    pages = {page.relative_to(tmp_path / "site").as_posix() for page in (tmp_path / "site").rglob("*.html")}
    pages = {page for page in pages if not page.startswith("_static/")}
    assert pages - {"index.html", "search.html", "genindex.html"} == {f"runs/{run.name}/README.html" for run in runs}
    index = (tmp_path / "site" / "index.html").read_text()
    assert all(f'href="runs/{run.name}/README.html"' in index for run in runs)
    assert index.count(Record.read(runs[0]).summary) == 2
    none = script("docs", tmp_path / "site", "--runs")
    assert none == "error: no run is given: train one, or name its directory"


def test_a_curve_of_one_validation_is_a_dot(tmp_path, monkeypatch):
    figure = Figure()
    monkeypatch.setattr(plotting, "write", lambda draw, path, title: draw(figure))
    result_pages.write_run(made_run(tmp_path, "copy-plstm-s0-1"), tmp_path / "site")
    (line,) = figure.axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata()), line.get_marker()) == ([5], [0.5], "o")


@pytest.mark.slow
def test_a_table_without_a_figure_gets_the_curves_and_a_line_for_each_run(tmp_path):
    shutil.copytree(ROOT / "results" / "chien_imdb", tmp_path / "chien_imdb", ignore=docs.but_pages)
    result_pages.complete(tmp_path)
    text = (tmp_path / "chien_imdb" / "table.md").read_text()
    assert text.startswith((ROOT / "results" / "chien_imdb" / "table.md").read_text())
    rows = store.read_rows(ROOT / "results" / "chien_imdb" / "runs.csv")
    assert re.findall(r"^\| ([0-9a-f]{12}) \|", text, re.M)[: len(rows)] == [row.id for row in rows]
    assert "](curves_paper.png)" in text
    assert (tmp_path / "chien_imdb" / "curves_paper.png").is_file()


def test_the_exercises_of_the_class_give_numbers_to_talk_about(capsys):
    names = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "teach.md").read_text(), re.S):
        exec(code, names)
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        "exponential: 1/e at step 100, after 1,000 steps 0.00004",
        "power law: 1/e at step 28, after 1,000 steps 0.12585",
        "the power law has more from step 150",
    ]
    longest = {line.split()[0]: float(line.split()[-2]) for line in said[3:]}
    assert list(longest) == ["lstm", "bias", "chrono", "ur"]
    assert max(longest["lstm"], longest["bias"]) < longest["ur"] < 400 < longest["chrono"] < 500


# Not those of docs/site, whose links hold from the top of the site: Sphinx checks them.
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != docs.SITE]
PROSE = [*PAGES, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]


def test_links_between_files_hold():
    links = [(page, link) for page in PROSE for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())]
    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []
