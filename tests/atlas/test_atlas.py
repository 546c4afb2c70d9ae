"""The atlas: scores at chance and at best, sizes, the choice of rates; a small one from its tables to its page."""

import dataclasses
import math
import shutil
import sys

import numpy as np
import pytest
from made_up import made_row

import timescales
from timescales import paths
from timescales.atlas import page, scores
from timescales.atlas.definition import atlas, chosen
from timescales.atlas.scores import Score
from timescales.atlas.sizes import Sizes, kept, nearest
from timescales.atlas.tables import Tables, measured, rates_of
from timescales.config import folders
from timescales.config.compose import Composer
from timescales.config.run import run_of
from timescales.errors import ConfigError
from timescales.nn import registry
from timescales.papers import load
from timescales.papers.table import expand
from timescales.paths import ROOT
from timescales.reports import gather
from timescales.tasks import MQAR, DelayedMatch, Dyck2, Frequency, TimeRescaling


def test_every_model_is_in_the_atlas_or_left_out_with_a_reason():
    found = atlas()
    assert set(registry.BY_NAME) <= set(found.models) | set(found.left_out)
    assert not set(found.models) & set(found.left_out)
    assert found.choice["seed"] not in found.seeds
    assert (len(found.rates), found.rate) == (3, 3e-3)
    assert {*found.choice["rungs"], *found.quick} <= set(found.tests)
    assert {found.rungs[name].metric for name in found.choice["rungs"]} == {"test/accuracy"}  # which the table reads
    assert sum(len(found.of(ability)) for ability in found.abilities) == len(found.rungs)


def test_the_second_atlas_differs_in_its_block_its_size_and_its_models():
    first = atlas()
    plain = first.plain
    assert plain is not None
    for part in ("rungs", "seeds", "rates", "choice"):
        assert getattr(plain, part) == getattr(first, part)
    changed = {key: value for key, value in plain.settings.items() if first.settings[key] != value}
    assert changed == {"model.block": "plain", "model.num_layers": 1}
    for each in (first, plain):
        for said in each.hypotheses:
            assert {said["first"], said["second"]} <= set(each.models)
            assert said["rung"] in each.rungs


def test_a_score_is_0_at_chance_and_1_at_best():
    for rung in atlas().rungs.values():
        at = [rung.score(rung.chance + share * (rung.best - rung.chance)) for share in (-0.1, 0, 0.5, 1)]
        assert (at, rung.score(None), rung.score(math.nan)) == (pytest.approx([0.0, 0.0, 0.5, 1.0]), 0.0, 0.0)


@pytest.fixture(scope="module")
def sizes():
    return Sizes(atlas(), Composer())


@pytest.fixture(scope="module")
def tasks(sizes):
    """The task of each test of the atlas whose data need no download, with little data."""
    return {name: sizes.task(rungs[0]) for name, rungs in sizes.atlas.tests.items() if not name.startswith("pixels")}


@pytest.mark.parametrize("name", [name for name in atlas().tests if name != "pixels_98"])
def test_chance_is_that_of_the_task(tasks, name):
    """The best constant answer, or the simple rule that the task names; as the task says it, or as its data have it."""
    task, rungs = tasks[name], atlas().tests[name]
    for rung in rungs:
        if isinstance(task, Dyck2):  # of the strings of the atlas, which are not the few here
            assert 0.01 < rung.chance < 0.5
        elif rung.metric == "test/loss":
            assert rung.chance == pytest.approx(task.chance(), rel=1e-4)
            assert rung.best == task.optimum()
        elif rung.metric == "test/excess":
            assert task.derived({"loss": task.chance()})["excess"] == rung.chance
            assert task.derived({"loss": task.optimum()})["excess"] == rung.best
        elif isinstance(task, MQAR | DelayedMatch):
            assert rung.chance == pytest.approx(next(iter(task.trivial_baselines().values())), rel=1e-4)
        elif isinstance(task, Frequency):
            assert rung.chance == pytest.approx(0.5 + 0.5 * math.log(6 / 5) / math.log(100), abs=1e-3)
        elif isinstance(task, TimeRescaling):
            assert rung.chance == pytest.approx(1 / task.letters, rel=1e-4)
        else:
            answers = 8 if name.startswith("copy") else math.exp(task.chance())
            assert rung.chance == pytest.approx(1 / answers, rel=1e-4)


def test_the_middle_rate_stays_unless_another_is_better_by_the_margin():
    found = atlas()
    low, middle, high = found.rates

    def scored(*means):
        return {rate: dict.fromkeys(found.choice["rungs"], mean) for rate, mean in zip(found.rates, means, strict=True)}

    best = {(0.5, 0.5, 0.5): middle, (0.515, 0.5, 0.3): middle, (0.53, 0.5, 0.3): low, (0.53, 0.5, 0.6): high}
    assert {means: chosen(found, scored(*means)) for means in best} == best
    missing = scored(0.1, 0.2, 0.3)
    del missing[high][found.choice["rungs"][0]]
    assert chosen(found, missing) is None
    assert chosen(found, {}) is None


def test_nearest_units_skip_those_that_cannot_be_built():
    targets = (1, 200, 210, 2500)
    assert [nearest(lambda n: n * n if n % 4 == 0 else None, target) for target in targets] == [4, 12, 16, 48]
    assert nearest(lambda n: 10 * n + 3, 64) == 6


@pytest.mark.parametrize("model", ["plstm", "mingru", "transformer"])
def test_models_have_as_many_parameters_as_the_lstm(sizes, model):
    found, rung = sizes.atlas, sizes.atlas.rungs["a5_8"]
    settings = sizes.matched(rung, {"model": model, **found.models[model]})
    counted = sizes.parameters(rung, settings)
    assert abs(counted / sizes.target(rung) - 1) < found.tolerance
    of_a_unit = {"plstm": 3, "mingru": 1, "transformer": 0}[model]  # h, c and age; h
    assert sizes.state(rung, settings) == 2 * settings["model.hidden_size"] * of_a_unit  # in two layers
    run = run_of(sizes.composer(load.request(found.run(rung, settings, 1e-3, 0))))
    assert run.config["paper"]["name"] == "none"
    assert run.config["model"].get("block") == ("plain" if model == "transformer" else "residual")


def test_numbers_of_state_are_those_that_the_next_step_reads():
    """No step of HGRN, PLScan and SRU reads h, which is only the output."""
    units = {"LSTM": 2, "PLSTM": 3, "LRU": 2, "GRU": 1, "MinGRU": 1, "HGRN": 1, "PLScan": 2}
    for name, of_a_unit in units.items():
        assert kept(getattr(timescales, name)(3, 8).layers[0]) == 8 * of_a_unit, name
    cell = timescales.SRU(3, 8).layers[0]
    assert kept(cell) == cell.width("averages")


def test_units_that_fit_no_head_are_passed_over_and_a_wrong_setting_is_said(sizes):
    rung = sizes.atlas.rungs["a5_8"]
    heads = {"model": "transformer", "model.block": "plain", "model.heads": 8, "model.feedforward": "fill"}
    settings = sizes.matched(rung, heads)
    assert settings["model.hidden_size"] % 8 == 0
    assert abs(sizes.parameters(rung, settings) / sizes.target(rung) - 1) < sizes.atlas.tolerance
    with pytest.raises(ConfigError, match="activation"):
        sizes.matched(rung, {"model": "indrnn", "model.activation": "sine"})


def test_scores_are_read_from_rows_and_written_as_a_file(small):
    lines = [Score("lstm", "keep", seed, value, 100) for seed, value in ((0, 0.25), (1, 0.625), (2, None))]
    (cell,) = scores.cells_of(small, [*lines, Score("lstm", "gone", 0, 1.0, 100)]).values()
    assert cell.scores == {"keep": {0: 0.0, 1: pytest.approx(0.5), 2: 0.0}}
    assert cell.parameters == 100
    assert not cell.has(small.rungs.values())
    assert np.array_equal(cell.of([small.rungs["keep"]]), [[0.0, 0.5, 0.0]])


def test_a_run_that_diverged_has_no_value_even_if_an_earlier_validation_was_good(small):
    rung = small.rungs["keep"]
    values = {f"best {rung.metric}": 0.9}
    assert measured(made_row(values), rung) == 0.9
    assert measured(made_row(values, status="diverged"), rung) is None


def test_the_second_map_scores_by_other_metrics_and_leaves_out_what_tells_no_cells_apart(small):
    """By accuracy both cells have 1 on "keep", by loss not. On "slower" seeds differ more than cells."""
    second = {"metrics": {"keep": {"metric": "test/loss", "chance": 1.0, "best": 0.0}}, "spread": 2}
    values = {("lstm", 0): (0.50, 0.9, 0.33), ("lstm", 1): (0.52, 0.8, 1.00)}
    values |= {("mingru", 0): (0.10, 0.5, 1.00), ("mingru", 1): (0.12, 0.6, 0.33)}
    rows = []
    for (model, seed), (loss, same, slower) in values.items():
        found = {"keep": {"best test/accuracy": 1.0, "best test/loss": loss}}
        found["same"] = {"best test/accuracy_at_1": same, "best test/accuracy_at_2": slower}
        for rung, values_of in found.items():
            axes = {"model": model, "seed": seed, **small.rungs[rung].settings}
            rows.append(made_row(values_of, seed=seed, axes=axes))
    shown = page.Shown(dataclasses.replace(small, second=second), None, {}, rows, {})
    assert [shown.intervals[cell]["hold"].value for cell in ("lstm", "mingru")] == [1.0, 1.0]
    assert [shown.second.intervals[c]["hold"].value for c in ("lstm", "mingru")] == pytest.approx([0.49, 0.89])
    assert list(shown.second.atlas.rungs) == ["keep", "same"]
    assert shown.spreads["slower"] == pytest.approx(0.0, abs=1e-9)
    assert list(shown.second.by_ability) == ["mingru", "lstm"], "the first stands out in hold, the second in rescale"


@pytest.mark.slow
def test_a_whole_atlas_from_its_tables_to_its_page(small, train, tmp_path, monkeypatch):
    """Two cells, two tests, few steps: rates are chosen by runs of a table, then the rungs run, then all is shown."""
    conf, results = tmp_path / "conf", tmp_path / "results"
    (conf / "table").mkdir(parents=True)
    monkeypatch.setattr(paths, "RESULTS", results)
    monkeypatch.setattr(page, "PAGE", tmp_path / "atlas.md")
    monkeypatch.setattr(page, "MODELS", tmp_path / "models")
    shutil.copy(ROOT / "docs" / "atlas.md", page.PAGE)
    shutil.copytree(ROOT / "docs" / "models", page.MODELS)

    def rows(name, composer):
        folders.use(conf)
        table = load.table(name)
        composed, missing = gather.planned_runs(table, composer)
        assert missing == []
        found, _ = gather.gather(table, composed, results, paths.RUNS)
        assert len(found["paper"]) == len(expand(table))
        return found["paper"]

    def launched(name):
        assert train("--config-dir", str(conf), f"table={name}", "logger=none", "device=cpu").status == 0

    composer = Composer()
    tables = Tables(small, Sizes(small, composer), {})
    text = tables.text_of_rates()
    (conf / "table" / "small_atlas_rates.yaml").write_text(text)
    launched("small_atlas_rates")
    composer = Composer()
    rates = rates_of(small, rows("small_atlas_rates", composer))
    tables = Tables(small, Sizes(small, composer), rates)
    assert set(rates) == {"lstm", "mingru"}
    text = tables.text_of_scores()
    (conf / "table" / "small_atlas.yaml").write_text(text)
    launched("small_atlas")
    assert "8 already finished, 0 to train" in train("--config-dir", str(conf), "table=small_atlas", "logger=none").out
    composer = Composer()
    ended = rows("small_atlas", composer)
    table = load.table("small_atlas")
    assert [claim.text.split(" ")[0] for claim in table.claims] == ["mingru"]
    assert all(len(sides) == 2 for sides in table.claims[0].groups(ended, lambda row: row.axes).values())
    runs = {}
    for model in small.cells:
        for test, rungs in small.tests.items():
            made = small.run(rungs[0], tables.model(model, rungs[0]), 3e-3, 0)
            runs[model, test] = run_of(composer(load.request(made)))
    shown = page.Shown(small, tables, runs, ended, dict.fromkeys((run.cost_key for run in runs.values()), 6.0))
    found = page.texts(shown)
    page.draw(shown)
    folders.use(None)
    assert set(shown.cells) == {"lstm", "mingru"}
    assert scores.committed(tmp_path / "none.csv") == []
    (tmp_path / "scores.csv").write_text(scores.text(scores.of_rows(small, ended)))
    again = scores.cells_of(small, scores.committed(tmp_path / "scores.csv"))
    for name, cell in shown.cells.items():
        assert again[name].of(small.rungs.values()) == pytest.approx(cell.of(small.rungs.values()), abs=1e-4)
    main = found[page.PAGE]
    numbers = found[results / "small_atlas" / "scores.md"]
    assert numbers.count("](../../docs/models/lstm.md#scores-in-the-atlas)") == 1
    assert "Not run" not in main.split("## Protocol")[0]
    assert "14 runs, **0.0 core hours** together." in main
    assert "Scores of each cell and ability" in main
    assert "Not complete" not in main
    part = page.texts(dataclasses.replace(shown, rows=ended[:-1]))[page.PAGE]  # a seed of one rung is missing
    assert "**Not complete**: 7 of 8 runs have ended." in part
    own = found[page.MODELS / "lstm.md"]
    assert own.count("python train.py -m paper=none") == len(small.tests)
    assert own.count("/small_atlas/curves/") == 6
    assert (results / "small_atlas" / "atlas.png").stat().st_size > 5_000


def test_check_writes_nothing_and_fails_where_a_file_is_not_what_it_should_be(small, tmp_path, monkeypatch):
    """`scripts/pages.py atlas --check`, before the first run: of the table of rates and of the page."""
    import atlas as script
    import pages

    conf = tmp_path / "conf"
    (conf / "table").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "atlas.md", tmp_path / "atlas.md")
    monkeypatch.setattr(page, "PAGE", tmp_path / "atlas.md")
    monkeypatch.setattr(script, "atlas", lambda: small)
    monkeypatch.setattr(script, "table_file", lambda name: conf / "table" / f"{name}.yaml")
    monkeypatch.setattr(script, "rows", lambda *arguments: [])
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "no prices")
    paths.RESULTS.mkdir()
    monkeypatch.setattr(pages, "ROOT", tmp_path)

    def files():
        return {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["pages.py", "atlas", *options])
        before = files()
        try:
            pages.main()
        except SystemExit as end:
            assert files() == before
            return end.code
        return "written" if files() != before else None

    assert run("--check") == "out of date: conf/table/small_atlas_rates.yaml, atlas.md; run python scripts/pages.py"
    assert run() == "written"
    assert run("--check") is None
    assert run() is None
    page.PAGE.write_text(page.PAGE.read_text().replace(page.NOT_RUN, "Run."))
    assert run("--check") == "out of date: atlas.md; run python scripts/pages.py"
    assert run("--chec") == 2  # no option is shortened


def test_the_tables_and_the_page_are_what_the_definition_gives():
    """Without the sizes of all models, which take a minute: the rungs of the choice and the models of the table."""
    found = atlas()
    axes = expand(load.table(found.rates_table))
    assert {each["model"] for each in axes} <= set(found.cells)
    assert {each["seed"] for each in axes} == {found.choice["seed"]}
    assert {each["optimizer.lr"] for each in axes} == set(found.rates)
    per_model = len(found.rates) * len(found.choice["rungs"])
    assert len(axes) == per_model * len({each["model"] for each in axes})
    for each in axes:
        assert {key: each[key] for key in found.settings if key != "model.block"}.items() <= found.settings.items()
