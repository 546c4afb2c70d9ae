"""Build the project's views at W&B: a front page and one for each table: `python scripts/dashboard.py [TABLE ...]`.

A table's view shows its runs by their group (configuration without seed), whichever sweep trained them: at paper size,
or with --rung NAME those of a rung of its ladder. Each call makes new views: remove older ones at W&B.
Needs a key (`wandb login`) and `pip install -e ".[dashboard]"`; --out DIR writes what would be sent, and needs no key.
"""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("WANDB_SILENT", "true")

import wandb_workspaces.reports.v2 as panels  # noqa: E402
import wandb_workspaces.workspaces as views  # noqa: E402
from wandb_workspaces.expr import And, Config, Metric  # noqa: E402

from timescales import errors, files, paths, plotting  # noqa: E402
from timescales.config import compose, folders, schema  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.papers.table import PAPER, Table, expand, group, varying  # noqa: E402
from timescales.reports import markdown, report  # noqa: E402
from timescales.reports.report import Report  # noqa: E402


def groups(table: Table, size: str, composer: compose.Composer) -> list[str]:
    """Return the W&B groups that a table's runs belong to."""
    runs = {group(axes): axes for axes in expand(table, size)}.values()
    configs = [schema.resolved(composer(load.request(axes))) for axes in runs]
    return list(dict.fromkeys(map(schema.family, configs)))


def runset(wanted: list[str], keys: list[str], columns: list[str]) -> views.RunsetSettings:
    """Runs of some groups (none: all), put together by configuration keys, the models in their colours."""
    colours: dict[Any, Any] = dict(plotting.COLOURS) if keys[:1] == ["model.name"] else {}
    return views.RunsetSettings(
        filters=And(Metric("Group").isin(wanted)) if wanted else "",
        groupby=[Config(key) for key in keys],
        group_colors=colours,
        pinned_columns=columns,
    )


def workspace(
    name: str, entity: str, project: str, sections: list[views.Section], runs: views.RunsetSettings
) -> views.Workspace:
    """Return a view whose curves go over `global_step`."""
    settings = views.WorkspaceSettings(x_axis="global_step", max_runs=50)
    return views.Workspace(
        name=name,
        entity=entity,
        project=project,
        sections=sections,
        settings=settings,
        runset_settings=runs,
        auto_generate_panels=False,
    )


def line(*metrics: str, title: str = "", log: bool = False) -> panels.LinePlot:
    """Values over training: mean of a group, its range as a band."""
    return panels.LinePlot(
        title=title or metrics[0],
        x="global_step",
        y=list(metrics),
        title_x="training steps",
        log_y=log,
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )


def times() -> views.Section:
    """Return charts of the units' time scales over training: the medians, and spread and histogram of layer 1."""
    medians = line(*(f"timescale/layer{k}/q50" for k in (1, 2, 3)), title="median of each layer", log=True)
    spread = line(*(f"timescale/layer1/q{q}" for q in (10, 50, 90)), title="layer 1: tenths 1, 5, 9", log=True)
    counts = line("timescale/layer1/log10_steps", title="layer 1: how many units, by log10 of steps")
    return views.Section(name="Time scales (steps)", panels=[medians, spread, counts])


def pictures(key: str, title: str) -> panels.MediaBrowser:
    """Pictures that runs have logged under a key."""
    return panels.MediaBrowser(title=title, media_keys=[key], num_columns=2)


def front_page(entity: str, project: str) -> views.Workspace:
    """Make the first page: all tables with their verdicts, the curves of every task, all models' time scales."""
    links = r"\[([^\]]*)\]\([^)]*\)"  # they lead nowhere there
    text = re.sub(links, r"\1", (paths.RESULTS / "README.md").read_text())
    metrics = ["valid/accuracy", "valid/bpc", "valid/perplexity", "valid/loss", "train/loss_nats"]
    sections = [
        views.Section(
            name="Tables",
            is_open=True,
            panels=[
                panels.MarkdownPanel(markdown=text, layout=panels.Layout(w=24, h=16)),
                panels.WeavePanelSummaryTable(table_name="verdicts"),
            ],
        ),
        views.Section(name="Curves", is_open=True, panels=[line(metric) for metric in metrics]),
        times(),
        views.Section(name="Pictures", panels=[pictures("figure", "figures of tables")]),
    ]
    runs = runset([], ["task.name", "model.name"], ["run:state", "summary:best.value", "summary:best.step"])
    return workspace("timescales", entity, project, sections, runs)


def table_view(entity: str, project: str, found: Report, size: str, composer: compose.Composer) -> views.Workspace:
    """One table: printed and measured values, its metric by configuration, the curves behind it."""
    table = found.table.sizes[size]
    # The model first: its colour is that of the first level.
    varied = dict.fromkeys(["model", *varying(expand(found.table, size))])
    keys = [f"{key}.name" if key in ("model", "task", "paper", "optimizer") else key for key in varied]
    name = table.name if size == PAPER else f"{table.name} ({size})"
    wanted = [*groups(found.table, size, composer), table.name]
    columns = ["run:state", f"summary:{summary_metric(table) or 'best.value'}"]
    return workspace(name, entity, project, table_sections(found, table), runset(wanted, keys, columns))


def summary_metric(table: Table) -> str | None:
    """Return the table's metric in a run's summary at W&B; steps to a threshold, and analyses, are in none."""
    if not table.metric.startswith(("test/", "valid/")):
        return None
    return f"last/{table.metric}" if table.select == "last" else table.metric


def table_sections(found: Report, table: Table) -> list[views.Section]:
    """Return the parts of a table's view; table: the report's, or a rung of it."""
    metric = summary_metric(table)
    watched = re.findall(r"(?:test|valid)/\w+", table.metric)[:1]
    curves = [*(name.replace("test/", "valid/") for name in watched), "valid/loss", "train/loss_nats"]
    bars: list[Any] = []
    if metric:
        bars = [panels.BarPlot(title=metric, metrics=[metric], groupby_aggfunc="mean", groupby_rangefunc="minmax")]
    text = re.sub(r"!\[.*\]\(\w+\.png\)\n", "", markdown.table(found))
    values: list[Any] = [
        panels.MarkdownPanel(markdown=text, layout=panels.Layout(w=24, h=20)),
        panels.WeavePanelSummaryTable(table_name="verdicts"),
        pictures("figure", found.table.title),
    ]
    lines: list[Any] = [line(name) for name in dict.fromkeys(curves)]
    return [
        views.Section(name="Paper and ours", is_open=True, panels=values),
        views.Section(name="Runs", is_open=True, panels=[*bars, *lines]),
        times(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("table", nargs="*", help="names of tables; none: the front page and all tables")
    parser.add_argument("--rung", help="the runs of a rung of each table's ladder (small: the first)")
    parser.add_argument("--project", help="at W&B; default: as in conf/logger/wandb.yaml")
    parser.add_argument("--entity", help="at W&B; default: your own, or WANDB_ENTITY")
    parser.add_argument("--out", type=Path, help="write the views here as JSON, and send nothing")
    options = parser.parse_args()
    composer = compose.Composer()
    try:
        names = options.table or folders.choices("table")
        reports = [report.make(name, composer, paths.RESULTS, paths.RUNS) for name in names]
        logger = schema.resolved(composer(["logger=wandb"]))["logger"]
        project = options.project or logger["project"]
        entity = options.entity or logger["entity"] or os.environ.get("WANDB_ENTITY") or _entity(options.out)
        made = [] if options.table else [front_page(entity, project)]
        made += [table_view(entity, project, found, found.table.size_of(options.rung), composer) for found in reports]
    except errors.ConfigError as error:
        sys.exit(f"error: {error}")
    for view in made:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            path = options.out / f"{view.name.replace(' ', '_')}.json"
            files.write_atomic(path, view._to_model().model_dump_json(by_alias=True, indent=1).encode())
            print(path)
        else:
            print(view.save().url)


def _entity(out: Path | None) -> str:
    """Return the W&B entity of whoever has logged in."""
    if out is not None:
        return "nobody"
    import wandb

    try:
        found = wandb.Api(timeout=20).default_entity
    except (wandb.errors.Error, ValueError) as error:
        raise errors.ConfigError(f"W&B: {str(error).splitlines()[0]} Or --out DIR, which needs no key.") from error
    return str(found)


if __name__ == "__main__":
    main()
