"""The pages with all results: nothing is missing or comes from elsewhere, links hold, a real browser shows them."""

import json
import math
import re
from html import escape, unescape
from html.parser import HTMLParser
from urllib.parse import quote

import browser
import pytest
from made_up import TABLE, made_row, planned_run, report_of
from matplotlib import image

from timescales import paths, plotting
from timescales.config import folders
from timescales.papers.table import SIZES, expand
from timescales.papers.verdict import Counts, Outcome, Verdict, Word, items, sum_of
from timescales.reports import charts, gallery, gather, html, markdown, report, wording
from timescales.reports.html import Site
from timescales.runs import store
from timescales.runs.loggers import Curve

STUDY = Counts(hypotheses=True)
EVIL = "<script>alert(1)</script> & \"quotes\" 'single'"


class Page(HTMLParser):
    """What a page consists of: its ids, its attributes that load, its links, its texts by tag."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loads, self.tags, self.stack, self.images, self.links = [], [], [], [], [], []
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
        self.links += [found["href"]] if tag == "a" else []

    def handle_endtag(self, tag):
        if tag == "hr":  # <hr/>
            return
        assert self.stack.pop() == tag, self.getpos()


@pytest.fixture(scope="module")
def reports():
    """With the rows that are committed with each table. papers/test_tables_yaml.py shows that runs have their ids."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(gather, "planned_runs", planned_by_axes)
        return [report.make(name, None, paths.RESULTS) for name in folders.choices("table")]


def planned_by_axes(table, composer):
    """`gather.planned_runs` in a tenth of the time: nothing is composed."""
    rows = store.read_rows(paths.RESULTS / table.name / "runs.csv")
    ids = {(row.profile, json.dumps(row.axes, sort_keys=True)): row.id for row in rows}
    planned = {}
    for size, profile in SIZES.items():
        planned[size] = []
        for k, axes in enumerate(expand(table, profile)):
            own = ids.get((size, json.dumps(axes, sort_keys=True)), f"open{k}")
            planned[size].append(planned_run({"model": "run", **axes}, own))
    return planned, []


@pytest.fixture(scope="module")
def pages(reports):
    """The pages of what is committed."""
    return gallery.pages(reports, Site(paths.RESULTS))


def test_every_table_curve_picture_and_note_of_results_is_there(pages):
    for name, text in pages.items():
        page = Page(text)
        assert page.stack == [], name  # every element is closed
        assert len(page.ids) == len(set(page.ids)), name
    assert {f"{name}.html" for name in folders.choices("table")} <= set(pages)
    for path in paths.RESULTS.glob("*/**/*.png"):  # front.png is the README's
        own = pages[f"{path.relative_to(paths.RESULTS).parts[0]}.html"]
        assert re.search('src="(.*?)"', html.picture(path, ""))[1] in own, path
    for path in paths.RESULTS.glob("*/runs.csv"):
        own = pages[f"{path.parent.name}.html"]
        assert all(row.id in own for row in store.read_rows(path)), path
        if list((path.parent / "curves").glob("*.csv")):
            assert f'aria-label="{path.parent.name}, ' in own
    for title in re.findall(r"^## (.*)$", (paths.RESULTS / "LOG.md").read_text(), re.M):
        assert f"<h2>{escape(title)}</h2>" in pages["log.html"]
        assert f">{escape(title)}</a>" in pages["index.html"]
    for path in paths.RESULTS.glob("*/sensitivity.md"):
        assert "settings that the paper does not state, varied" in pages[f"{path.parent.name}.html"], path
    for path in paths.RESULTS.glob("*.md"):
        assert path.name == "README.md" or f"{path.stem.lower()}.html" in pages, path


def test_they_load_nothing_and_the_first_one_is_small(pages):
    assert len(pages["index.html"].encode()) <= 1_000_000
    for name, text in pages.items():
        page = Page(text)
        assert [load[:60] for load in page.loads if not load.startswith("data:")] == [], name
        assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text), name
        assert "default-src 'none'" in text, name  # and the browser holds it to that
        assert name == "index.html" or all(page.images), (
            name
        )  # each picture has words; beside a thumbnail there are some


def broken(pages, docs=()):
    """Links of pages to a page, a place on a page, or a file of docs that is not there."""
    ids = {name: set(Page(text).ids) for name, text in pages.items()}
    for name, text in pages.items():
        for link in Page(text).links:
            target, _, place = link.partition("#")
            if link.startswith(("http://", "https://")) or target in docs:
                continue
            if (target or name) not in pages or (place and place not in ids[target or name]):
                yield name, link


def test_every_link_and_place_is_there(pages, reports, tmp_path):
    assert list(broken(pages)) == []
    assert not any("docs/" in link for text in pages.values() for link in Page(text).links)
    docs = {f"docs/{html.guide_page(path).as_posix()}" for path in (paths.ROOT / "docs").rglob("*.md")}
    for name in docs:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    named = ("chien_table3", "ours_elapsed_time")
    own = [found for found in reports if found.table.name in named]
    beside = pages | gallery.pages(own, Site(paths.RESULTS, tmp_path / "docs"))
    assert list(broken(beside, docs)) == []
    links = Page(beside["chien_table3.html"]).links
    assert {"docs/guide/tasks/frequency.html", "docs/guide/models/plstm.html"} <= set(links)
    assert "docs/guide/papers/ours.html" in Page(beside["ours_elapsed_time.html"]).links
    assert "docs/guide.html" in Page(beside["index.html"]).links


def test_a_verdict_is_a_badge_where_it_stands(pages):
    """Whatever the committed runs say: this test must outlive their next records."""
    texts = [pages[f"{name}.html"] for name in folders.choices("table")]
    cells = [cell for text in texts for cell in re.findall(r'<td data-head="verdict">(.*?)</td>', text)]
    assert len(cells) > 200
    for cell in cells:
        found = re.fullmatch(r'<span class="badge (good|partly|bad|open)">([^<]+)</span>', cell)
        assert found, cell
        word = found[2].partition(" (")[0].partition(" under ")[0]
        assert found[1] == next((tone for tone, words in html.TONES.items() if word in words), "open")


def test_every_claim_stands_beside_its_sentence(pages, reports):
    for found in reports:
        text = pages[f"{found.table.name}.html"]
        said = re.findall(r'<div class="said"><blockquote>(.*?)</blockquote><ul>(.*?)</ul></div>', text, re.S)
        beside = {number: source for source, items in said for number in re.findall(r'id="claim-(\d+)"', items)}
        for k, result in enumerate(found.claims):
            assert unescape(beside[str(k)]) == markdown.source_of(result)
            item = re.search(rf'<li id="claim-{k}">(.*?)</li>', text, re.S)[1]
            assert item.startswith(html.badge(result.verdict))
            assert escape(result.claim.text) in item


def test_the_first_page_counts_what_the_verdicts_count(pages, reports):
    total = sum_of([found.verdict.counts for found in reports])
    front = pages["index.html"]
    told = total.conclusions
    counts = {
        "hold": told[Outcome.HOLD],
        "refuted or too small": told[Outcome.REFUTED] + told[Outcome.TOO_SMALL],
        "undecided": told[Outcome.UNDECIDED] + told[Outcome.DEPENDS],
        "not counted": told[Outcome.NOT_RUN] + told[Outcome.CANNOT] + told[Outcome.CALIBRATED],
    }
    assert {name: int(n) for n, name in re.findall(r"<h3><b>(\d+)</b> ([\w ]+)</h3>", front)} == counts
    for kind, names in gallery.COUNTED.items():
        for name in names:
            numbers = re.findall(rf'<td data-head="{kind} {name}"[^>]*>(\d+)</td>', front)
            assert sum(map(int, numbers)) == getattr(total, kind)[name], (kind, name)
    runs, paper, small = map(int, re.search(r"(\d+) runs,\s(\d+) at paper size and (\d+) of small", front).groups())
    assert runs == paper + small == len({row.id for found in reports for row in found.all_rows})
    assert paper == len({row.id for found in reports for row in found.rows["paper"]})


def test_the_first_page_says_of_each_decided_claim_what_it_is_and_by_which_numbers(pages, reports):
    listed = re.findall(
        r'<li><a href="([\w.]+#claim-\d+)"><code>(.*?)</code></a>(.*?)<span class="numbers">(.*?)</span>'
        r'<span class="dim">(.*?)</span></li>',
        pages["index.html"],
    )
    shown = {link: [unescape(text) for text in texts] for link, *texts in listed}
    decided = {
        f"{found.table.name}.html#claim-{k}": (found.table.name, result)
        for found in reports
        for outcome, (result, *_) in items([result for result in found.claims if result.claim.decides])
        for k in [found.claims.index(result)]
        if outcome in ("hold", "refuted", "too small")
    }
    assert shown.keys() == decided.keys()
    for link, (name, result) in decided.items():
        claim, marks, numbers, said = shown[link]
        assert (claim, numbers) == (result.claim.text, wording.numbers(result))
        assert re.findall(r">([^<]+)</span>", marks) == wording.remarks(result.verdict)
        assert said in (f"{name}: “{result.claim.quote}”", f"{name}: {result.claim.hypothesis}")
    partial = next(texts for link, texts in shown.items() if link.startswith("chien_imdb.html"))
    assert partial[0] == "plstm > lstm"
    assert "part of the data" in partial[1]
    assert partial[2] == "84.65 (n=3) against 82.36 (n=3)"


def test_the_first_page_begins_with_the_findings(pages):
    first = re.search(r"^## (.*)$", (paths.RESULTS / "LOG.md").read_text(), re.M)[1]
    link = re.search(r'Start here: <a href="(log.html#log-\d+)">(.*?)</a>', pages["index.html"].partition("<main")[0])
    assert unescape(link[2]) == first
    assert f'<article id="{link[1].partition("#")[2]}"><h2>{escape(first)}</h2>' in pages["log.html"]


def test_a_card_says_which_numbers_are_conclusions_and_which_are_values(pages, reports):
    cards = re.findall(
        r"<li class=\"entry\"[^>]*><a class=\"thumbnail\" href=\"(\w+).html\".*?</li>", pages["index.html"]
    )
    assert cards == [found.table.name for found in reports]
    for found in reports:
        counts = found.verdict.counts
        card = gallery._card(found, gallery.Entry("x.html", "", ""))
        lines = {
            name: re.sub("<[^>]+>", "", text) for name, text in re.findall(r"<dt>([\w-]+)</dt><dd>(.*?)</dd>", card)
        }
        title = "Hypotheses" if counts.hypotheses else "Conclusions"
        assert (title in lines) == bool(counts.conclusions)
        assert ("Values" in lines) == bool(counts.values)
        assert sum(map(int, re.findall(r"\d+", lines.get(title, "")))) == counts.conclusions.total()
        assert sum(map(int, re.findall(r"\d+", lines.get("Values", "")))) == counts.values.total()
        assert lines["Small-scale"] == wording.text(found.small_verdict)
        assert ("data:image/webp" in card) == (found.folder / "figure.png").is_file()


@pytest.mark.parametrize(
    ("verdict", "said", "tone"),
    [
        (Verdict(Word.AGREES, n=1, few=True), "agrees (n=1)", "good"),
        (Verdict(Word.IMPRECISE), "consistent, imprecise", "partly"),
        (Verdict(Word.CLOSE_LOWER), "close, but lower", "partly"),
        (Verdict(Word.PARTLY_DECIDED), "partly decided", "partly"),
        (Verdict(Word.NOT_IN_ORDER), "not in order", "bad"),
        (Verdict(Word.NOT_RUN), "not run", "open"),
        (Verdict(Word.NOT_SHOWN), "not shown", "open"),
        (
            Verdict(Word.CANNOT, why="single runs allow no test"),
            "cannot be decided (single runs allow no test)",
            "open",
        ),
        (Verdict(Word.NOT_REPRODUCED, partial=True), "not reproduced (part of the data)", "bad"),
        (Verdict(Word.NOT_REPRODUCED, counts=STUDY), "no hypothesis holds", "bad"),
        (Verdict(Word.REPRODUCED, counts=STUDY), "all hypotheses hold", "good"),
        (Verdict(Word.HIGHER, n=1, few=True), "higher (n=1)", "bad"),
        (Verdict(Word.TOO_SMALL), "too small", "bad"),
        (
            Verdict(Word.LESS_STABLE, failed=(1, 3), at_chance=(1, 3)),
            "less stable (1 of 3 failed, 1 of 3 at chance)",
            "bad",
        ),
    ],
)
def test_tones(verdict, said, tone):
    assert f'class="badge {tone}">{said}<' in html.badge(verdict)


def made(tmp_path):
    """Results that try to break the pages, as a report and its folder."""
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
        "claims": [{"claim": "plstm > lstm", "quote": EVIL, "at": EVIL}],
        "tiny": {"set": {}},
        "notes": [EVIL],
    }
    axes = {"model": "lstm", "task": EVIL}
    about = {"seconds": 60.0, "threads": 1, "machine": EVIL, "partial": EVIL, "run": "copy/lstm", "stale": False}
    row = made_row({"last test/accuracy": 0.9, **about}, id="aa", axes=axes)
    planned = {"paper": [row.axes], "tiny": []}
    return report_of(table, {"paper": [row], "tiny": []}, planned, tmp_path / "results")


def made_pages(tmp_path, runs=()):
    found = made(tmp_path)
    return gallery.pages([found], Site(found.results), runs)


def test_text_stays_text(tmp_path):
    pages = made_pages(tmp_path)
    assert set(pages) == {"index.html", "log.html", "made_up.html"}
    for name, text in pages.items():
        page = Page(text)
        assert page.stack == []
        assert text.count("<script>") == page.tags.count("script") == (name == "index.html")
        assert "alert(1)" in text  # it is shown, as text
        assert "etc/p.png" not in re.sub("data-text=.*?data-", "", text)
    assert "data:image/png" in pages["made_up.html"]
    assert "javascript:alert" not in re.sub(r"<p>.*?</p>", "", pages["log.html"])
    assert 'href="made_up.html">t</a>' in pages["log.html"]
    assert "gone" in pages["log.html"]
    assert "docs/x.md" not in pages["log.html"]


def test_the_links_between_headings_of_a_text_hold(tmp_path):
    text = "# Machines\n\n[a b](#a-b)\n\n## A b\n\n## A b\n"
    shown = html.html(text, tmp_path, Site(tmp_path))
    assert shown.count('<h2 id="a-b">') == 1
    assert "<h1" not in shown


def test_a_runs_analyses_are_shown(tmp_path):
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
    pages = made_pages(tmp_path, [run])
    assert 'href="run-copy-plstm-s0-1.html"' in pages["index.html"]
    text = pages["run-copy-plstm-s0-1.html"]
    assert 'alt="analysis, reset units"' in text
    assert "finished: test/accuracy 0.5000" in text
    assert 'class="line m-plstm"' in text


def test_a_curve_is_shown_as_its_run_left_it(tmp_path):
    """With a checksum on each row."""
    run = tmp_path / "results" / "kept" / "copy-plstm-s0-1"
    run.mkdir(parents=True)
    curve = Curve(run / "curve.csv", 0)
    for step in (5, 10):
        curve.log({"valid/accuracy": 0.5}, step)
    curve.finish(None)
    assert "crc32" in (run / "curve.csv").read_text()
    text = made_pages(tmp_path)["kept.html"]
    assert "copy-plstm-s0-1" in text
    assert "valid/accuracy" in text


def test_the_nine_gates_of_two_tasks_can_be_told_apart():
    rows = [
        made_row(
            run=f"{task}/gated",
            axes={"task": task, "model": "gated", "model.gate": gate, "seed": seed},
            curve=[{"step": step, "valid/loss": 0.5} for step in (1, 2)],
        )
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
    assert plotting.shade({"model": "gated", "model.gate": "other"}) == "m-gated"
    assert plotting.shade({"model": "rmc", "model.gate": "ur"}) == "g-ur"
    assert plotting.shade({"model": "rmc", "model.gate": "-"}) == "m-rmc"
    assert plotting.shade({"model": "mine"}) == "other"


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


@pytest.fixture(scope="module")
def folder(pages, tmp_path_factory):
    """The pages on disk."""
    folder = tmp_path_factory.mktemp("gallery")
    for name, text in pages.items():
        (folder / name).write_text(text)
    return folder


FEW = ("index", "chien_table3", "ours_elapsed_time", "log")
CHROMIUM = pytest.mark.skipif(browser.PATH is None, reason="no chromium here: apt-get install chromium")
SHOWN = "[...document.querySelectorAll('.entry:not([hidden])')].map((e) => e.querySelector('a').getAttribute('href'))"


@CHROMIUM
@pytest.mark.parametrize(
    ("width", "dark", "every"),
    [
        (1280, False, False),
        (390, False, True),
        (390, True, False),
        pytest.param(1280, False, True, marks=pytest.mark.full),
    ],
)
def test_pages_in_a_real_browser(folder, width, dark, every):
    """No complaint, no load, nothing wider than the window, all text readable."""
    chosen = sorted(folder.glob("*.html")) if every else [folder / f"{name}.html" for name in FEW]
    with browser.Browser() as page:
        for path in chosen:
            page.open(path, width, 844, dark)
            page.run("for (const d of document.querySelectorAll('details')) d.open = true")
            assert page.run("innerWidth") == width, path.name
            assert page.run("document.documentElement.scrollWidth") <= width, path.name
            assert page.run("[...document.images].every((i) => i.complete && i.naturalWidth > 0)"), path.name
            light = page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert light != dark
            if path.stem in FEW:
                assert page.run(CONTRAST) >= 4.5, path.name
        assert page.complaints == []
        assert set(page.requests) == {path.as_uri() for path in chosen}


@CHROMIUM
def test_the_search_in_a_real_browser(folder, reports):
    path = folder / "index.html"
    with browser.Browser() as page:
        page.open(path, 1280, 900)
        everything = page.run(SHOWN)
        assert page.run("count.textContent") == f"{len(everything)} entries"
        page.run("box.value = 'Dyck'; box.dispatchEvent(new Event('input'))")
        found = page.run(SHOWN)
        assert "mahto_dyck2.html" in found
        assert "chien_table1.html" not in found
        assert page.run("count.textContent") == f"{len(found)} of {len(everything)} entries"
        assert page.run("document.getElementById('summary').hidden")
        # A run's id, which stands on the page of its table alone.
        run = next(row for each in reports for row in each.all_rows if each.table.name == "gu_forgetting")
        page.run(f"box.value = '{run.id}'; box.dispatchEvent(new Event('input'))")
        assert page.run(SHOWN) == ["gu_forgetting.html"]
        page.run("box.value = ''; box.dispatchEvent(new Event('input'))")
        assert page.run(SHOWN) == everything
        assert not page.run("document.getElementById('summary').hidden")

        words = {f"{each.table.name}.html": gallery._words(each) for each in reports}
        for word in page.run("[...verdict.options].map((o) => o.value).filter(Boolean)"):
            page.run(f"verdict.value = '{word}'; verdict.dispatchEvent(new Event('change'))")
            assert page.run(SHOWN) == [name for name, own in words.items() if word in own], word

        word = words["chien_reset_units.html"][0]
        page.open(path, 1280, 900, query=f"?q=plstm%20reset&v={quote(word)}")
        found = page.run(SHOWN)
        assert "chien_reset_units.html" in found
        assert len(found) < len(everything)
        assert page.complaints == []


@CHROMIUM
def test_a_sentence_of_the_first_page_leads_to_its_claim(folder):
    with browser.Browser() as page:
        page.open(folder / "index.html", 1280, 900)
        link = page.run("document.querySelector('.outcome a').getAttribute('href')")
        name, place = link.split("#")
        page.open(folder / name, 1280, 900, query=f"#{place}")
        assert page.run("document.querySelector(':target').id") == place
        assert page.run("document.querySelector(':target .badge').textContent").startswith("holds")


@CHROMIUM
def test_a_picture_fits_a_phone_and_is_shown_in_full_size_when_asked(folder):
    widths = "(() => { const i = document.querySelector('.picture img'); return [i.clientWidth, i.naturalWidth]; })()"
    with browser.Browser() as page:
        page.open(folder / "ours_elapsed_time.html", 390, 844)
        shown, natural = page.run(widths)
        assert shown <= 390 < natural
        page.run("document.querySelector('.picture input').click()")
        assert page.run(widths) == [natural, natural]
        assert page.run("document.documentElement.scrollWidth") <= 390  # the picture scrolls in itself
        page.open(folder / "ours_elapsed_time.html", 1280, 900)
        page.run("document.querySelector('.picture input').click()")
        assert page.run(widths) == [natural, natural]


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
