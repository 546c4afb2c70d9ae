"""The page with all results: nothing in it comes from elsewhere, nothing is missing, and a real browser shows it."""

import json
import math
import re
from html import escape
from html.parser import HTMLParser
from urllib.parse import quote

import browser
import pytest
from made_up import TABLE, report_of
from matplotlib import image

from timescales import paths, plotting
from timescales.config import compose, folders
from timescales.papers.verdict import Verdict, Word
from timescales.reports import charts, gallery, html, report
from timescales.runs import store
from timescales.runs.loggers import Curve

EVIL = "<script>alert(1)</script> & \"quotes\" 'single'"


class Page(HTMLParser):
    """What a page consists of: its ids, its attributes that load, its texts by tag."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loads, self.tags, self.stack, self.images, self.open = [], [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        if tag not in ("meta", "link", "input", "img", "br", "hr"):
            self.stack.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "img":
            self.images.append(found.get("alt"))
        self.loads += [v for k, v in attributes if k in ("src", "srcset", "data", "poster", "action", "xlink:href")]
        self.loads += [found["href"]] if tag == "link" else []

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, self.getpos()


@pytest.fixture(scope="module")
def text():
    """The page of what is committed."""
    with compose.composing() as composer:
        reports = [report.make(name, composer, paths.RESULTS) for name in folders.choices("table")]
    return gallery.page(reports, paths.RESULTS)


def test_every_table_curve_picture_and_note_of_results_is_there(text):
    page = Page(text)
    assert page.stack == []  # every element is closed
    assert len(page.ids) == len(set(page.ids))
    assert set(folders.choices("table")) <= set(page.ids)
    for folder in (p for p in paths.RESULTS.iterdir() if p.is_dir()):
        assert folder.name in page.ids, folder
    for path in paths.RESULTS.glob("*/**/*.png"):  # front.png is the README's
        assert html.picture(path, "").split('"')[1] in text, path
    for path in paths.RESULTS.glob("*/runs.csv"):
        assert all(row["id"] in text for row in store.read_rows(path)), path
        if list((path.parent / "curves").glob("*.csv")):
            assert f'aria-label="{path.parent.name}, ' in text
    for title in re.findall(r"^## (.*)$", (paths.RESULTS / "LOG.md").read_text(), re.M):
        assert f"<h3>{escape(title)}</h3>" in text
    for path in paths.RESULTS.glob("*/sensitivity.md"):
        assert "settings that the paper does not state, varied" in text, path


def test_it_loads_nothing(text):
    page = Page(text)
    assert page.loads
    assert [load[:60] for load in page.loads if not load.startswith("data:")] == []
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert "default-src 'none'" in text  # and the browser holds it to that
    assert all(page.images)  # each picture has words


def test_a_verdict_is_a_badge_where_it_stands(text):
    """Whatever the committed runs say: this test must outlive their next records."""
    cells = re.findall(r'<td data-head="verdict">(.*?)</td>', text)
    assert len(cells) > 200
    for cell in cells:
        found = re.fullmatch(r'<span class="badge (good|partly|bad|open)">([^<]+)</span>', cell)
        assert found, cell
        word = found[2].partition(" (")[0]
        assert found[1] == next((tone for tone, words in gallery.TONES.items() if word in words), "open")


@pytest.mark.parametrize(
    ("verdict", "said", "tone"),
    [
        (Verdict(Word.MATCH, n=1, few=True), "match (n=1)", "good"),
        (Verdict(Word.CONCLUSIONS_HOLD), "conclusions hold", "good"),
        (Verdict(Word.COMPATIBLE), "compatible", "partly"),
        (Verdict(Word.BETTER), "better", "partly"),  # no agreement and no contradiction
        (Verdict(Word.PARTLY_REPRODUCED), "partly reproduced", "partly"),
        (Verdict(Word.NOT_IN_ORDER), "not in order", "bad"),
        (Verdict(Word.VALUES_DIFFER), "values differ", "bad"),
        (Verdict(Word.MISSING), "missing", "open"),
        (Verdict(Word.NOT_SHOWN), "not shown", "open"),
        (Verdict(Word.CONTRADICTED, partial=True), "contradicted (part of the data)", "bad"),
        (Verdict(Word.DIFFERENT, n=1, few=True), "different (n=1)", "bad"),
        (Verdict(Word.UNSTABLE, failed=(1, 3)), "unstable (1 of 3 failed)", "bad"),
    ],
)
def test_tones(verdict, said, tone):
    assert f'class="badge {tone}">{said}<' in gallery.badge(verdict)


def made(tmp_path):
    """Results that try to break the page, as a report and its folder."""
    folder = tmp_path / "results" / "made_up"
    (folder / "curves").mkdir(parents=True)
    (folder / "curves" / "aa.csv").write_text("step,valid/loss\n1,100\n2,1\n3,0.01\n")
    (folder / "analysis").mkdir()
    image.imsave(folder / "analysis" / f"gates {EVIL.replace('/', '')}.png", [[0.0, 1.0]])
    (folder / "analysis" / "time.csv").write_text(f"unit,T\n0,{EVIL}\n")
    links = "[x](javascript:alert(1)) [t](made_up/table.md) [gone](../docs/x.md) ![p](../../etc/p.png)"
    (tmp_path / "results" / "LOG.md").write_text(f"# Log\n\n## A day {EVIL}\n\n{EVIL} {links}\n")
    table = TABLE | {
        "title": EVIL,
        "source": f"{EVIL}, table 1",
        "assumed": {"a": {"said": EVIL}},
        "cells": [{"where": {"model": "lstm"}, "value": 90.0}],
        "tiny": {"set": {}},
        "notes": [EVIL],
    }
    row = dict.fromkeys(store.COLUMNS) | {
        "id": "aa",
        "seed": 0,
        "axes": {"model": "lstm", "task": EVIL},
        "seconds": 60.0,
        "stale": False,
        "threads": 1,
        "status": "finished",
        "machine": EVIL,
        "partial": EVIL,
        "last test/accuracy": 0.9,
        "profile": "paper",
        "run": "copy/lstm",
        "golden": None,
    }
    planned = {"paper": [row["axes"]], "tiny": []}
    return report_of(table, {"paper": [row], "tiny": []}, planned, tmp_path / "results")


def test_text_stays_text(tmp_path):
    text = gallery.page([made(tmp_path)], tmp_path / "results")
    page = Page(text)
    assert page.stack == []
    assert text.count("<script>") == page.tags.count("script") == 1
    assert "alert(1)" in text  # it is shown, as text
    assert "javascript:alert" not in re.sub(r"<p>.*?</p>", "", text)
    assert 'href="#made_up">t</a>' in text
    assert "gone" in text
    assert "docs/x.md" not in text
    assert "etc/p.png" not in text
    assert "data:image/png" in text


def test_a_runs_analyses_are_shown(tmp_path):
    found = made(tmp_path)
    run = tmp_path / "copy-plstm-s0-1"
    (run / "analysis").mkdir(parents=True)
    record = {
        "id": "1",
        "status": "finished",
        "metrics": {"test/accuracy": 0.5},
        "seconds": 3.0,
        "config": {"model": {"name": "plstm"}},
        "curve": [{"step": 5, "valid/accuracy": 0.5}],
    }
    (run / "record.json").write_text(json.dumps(record))
    image.imsave(run / "analysis" / "reset_units.png", [[0.0, 1.0]])
    text = gallery.page([found], found.results, [run])
    assert 'id="run-copy-plstm-s0-1"' in text
    assert 'alt="analysis, reset units"' in text
    assert "finished: test/accuracy 0.5000" in text
    assert 'class="line m-plstm"' in text


def test_a_curve_is_shown_as_its_run_left_it(tmp_path):
    """With a checksum on each row."""
    found = made(tmp_path)
    run = tmp_path / "results" / "kept" / "copy-plstm-s0-1"
    run.mkdir(parents=True)
    curve = Curve(run / "curve.csv", 0)
    for step in (5, 10):
        curve.log({"valid/accuracy": 0.5}, step)
    curve.finish(None)
    assert "crc32" in (run / "curve.csv").read_text()
    text = gallery.page([found], found.results)
    assert "copy-plstm-s0-1" in text
    assert "valid/accuracy" in text


def test_the_nine_gates_of_two_tasks_can_be_told_apart():
    rows = [
        {
            "run": f"{task}/gated",
            "axes": {"task": task, "model": "gated", "model.gate": gate, "seed": seed},
            "curve": [{"step": step, "valid/loss": 0.5} for step in (1, 2)],
        }
        for task in ("adding", "copy")
        for gate in plotting.GATES
        for seed in (0, 1)
    ]
    drawn = charts.of_table(report_of(TABLE, {"paper": rows, "tiny": []}))
    looks = re.findall(r'<path class="line ([^"]+)"(?: stroke-dasharray="([^"]+)")? d="M0 5h26">', drawn)
    assert len(looks) == len(set(looks)) == 18
    assert {shade for shade, _ in looks} == {f"g-{gate}" for gate in plotting.GATES}
    style = charts.colours()
    for gate, code in plotting.GATES.items():
        assert f".g-{gate}{{stroke:{code}}}" in style
    assert charts.shade({"name": "gated", "gate": "other"}) == "m-gated"
    assert charts.shade({"name": "mine"}) == "other"


def test_a_line_of_a_chart_is_higher_where_its_value_is():
    points = [{"step": 0, "loss": 1.0}, {"step": 50, "loss": math.nan}, {"step": 100, "loss": 2.0}]
    drawn = charts.chart("t", "loss", [charts.Line("a", "other", points)])
    assert 'd="M52.0 197.0L382.0 21.0"' in drawn  # from the top: 4 % of the range are left above and below


def test_charts_have_round_ticks_and_logarithms():
    assert charts.ticks(0.0, 1.0) == pytest.approx([0, 0.5, 1.0])
    assert charts.ticks(-2.1, 2.2, whole=True) == [-2.0, 0.0, 2.0]
    assert charts.ticks(0, 15703) == [0, 5000, 10000, 15000]
    line = charts.Line("a", "m-lstm", [{"step": k, "valid/loss": 10.0**-k} for k in range(1, 5)])
    drawn = charts.chart("title", "valid/loss", [line])
    assert ">0.01<" in drawn
    assert "a ends at 0.0001" in drawn
    for lost in (math.nan, None):  # in memory, and as a record has it
        line.points = [{"step": 1, "valid/loss": lost}]
        assert charts.chart("title", "valid/loss", [line]) == ""


@pytest.mark.skipif(browser.PATH is None, reason="no chromium here: apt-get install chromium")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (390, True)])
def test_in_a_real_browser(text, tmp_path, width, dark):
    """No complaint, no load, nothing wider than the window; the filter hides what does not fit; links open entries."""
    path = tmp_path / "gallery.html"
    path.write_text(text)
    with browser.Browser() as page:
        page.open(path, width, 844, dark)
        assert page.run("innerWidth") == width
        assert page.run("document.documentElement.scrollWidth") <= width
        page.run("for (const d of document.querySelectorAll('details')) d.open = true")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("[...document.images].every((i) => i.complete && i.naturalWidth > 0)")
        light = page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light != dark
        assert page.run(CONTRAST) >= 4.5

        shown = "[...document.querySelectorAll('.entry:not([hidden])')].map((e) => e.id)"
        everything = page.run(shown)
        page.run("box.value = 'Dyck'; box.dispatchEvent(new Event('input'))")
        found = page.run(shown)
        assert "mahto_dyck2" in found
        assert "chien_table1" not in found
        assert page.run("count.textContent") == f"{len(found)} of {len(everything)} entries"
        assert page.run("document.querySelector('[data-for=chien_table1]').hidden")
        page.run("location.hash = '#gu_table2'; new Promise((done) => setTimeout(done, 50))")
        assert page.run(shown) == everything  # a link leads even to what the filter hides
        assert page.run("document.querySelector('#gu_table2 details').open")
        for word in page.run("[...verdict.options].map((o) => o.value).filter(Boolean)"):
            page.run(f"verdict.value = '{word}'; verdict.dispatchEvent(new Event('change'))")
            said = page.run(SAID.replace("WORD", word))
            assert page.run(shown) == said, word
            assert 0 < len(said) < len(everything), word

        word = page.run("document.querySelector('#chien_reset_units .badge').textContent.split(' (')[0]")
        query = f"?q=plstm%20reset&v={quote(word)}"
        both = "/plstm/i.test(e.textContent) && /reset/i.test(e.textContent)"
        expected = page.run(SAID.replace("WORD", word).replace("(e) =>", f"(e) => {both} &&"))
        page.open(path, width, 844, dark, query=query)
        assert page.run(shown) == expected
        assert "chien_reset_units" in expected
        assert len(expected) < len(everything)
        assert page.complaints == []
        assert set(page.requests) == {path.as_uri(), f"{path.as_uri()}{query}"}


# The entries with a badge of this word, whatever its count before and its runs after.
SAID = """
[...document.querySelectorAll('.entry')].filter((e) => [...e.querySelectorAll('.badge')].some(
  (b) => b.textContent.replace(/^\\d+ /, '').split(' (')[0] === 'WORD')).map((e) => e.id)
"""


# The least contrast of text against what lies behind it (WCAG: 4.5), over every element that has text of its own.
CONTRAST = """
(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  let least = 21;
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    let behind = e;
    while (behind && (rgb(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const style = getComputedStyle(e);
    const colours = [e instanceof SVGElement ? style.fill : style.color, getComputedStyle(behind).backgroundColor];
    const [low, high] = colours.map((c) => light(rgb(c))).sort((a, b) => a - b);
    least = Math.min(least, (high + 0.05) / (low + 0.05));
  }
  return least;
})()
"""
