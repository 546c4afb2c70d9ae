"""Run the commands `timescales-report`, `timescales-status` (as scripts/report.py, status.py) and `timescales-card`."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from timescales import extras

with extras.command():
    from tqdm import tqdm

    from timescales import paths
    from timescales.config import compose, folders, schema, values
    from timescales.config.compose import Composer
    from timescales.errors import ConfigError, one_line
    from timescales.papers import load
    from timescales.papers.table import PAPER
    from timescales.reports import report as reports
    from timescales.reports import status, verdicts, weights, wording, write
    from timescales.reports.report import Report
    from timescales.runs import cost

USERS = paths.RUNS / "reports"  # in a checkout, the reports of its user's own runs: results/ has the project's


@dataclass(frozen=True)
class Tables:
    """The tables that a command is about.

    results: the folder of committed runs; out: where reports are written; known: all tables; own: whether they are the
    user's own.
    """

    composer: Composer
    named: Sequence[str]
    results: Path
    out: Path
    known: Sequence[str]
    own: bool

    def reports(self, names: Sequence[str] = (), runs: Path | None = paths.RUNS) -> list[Report]:
        """Return the reports of these tables, by default of those that were named on the command line, else of all.

        runs: the folder of trained runs; None: only those in `results` count.
        """
        names = names or self.named or self.known
        return [reports.make(name, self.composer, self.results, runs, self.own, self.out) for name in names]


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where tables and reports are."""
    default = "runs/reports in a checkout (scripts/report.py: results), else ./results; of your own tables results/ "
    default += "in the folder of --config-dir"
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="your own folder of configurations")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"the folder of reports; default: {default}")


@contextlib.contextmanager
def tables(options: argparse.Namespace) -> Iterator[Tables]:
    """Enter the tables of a command's options. An error that the user can fix ends the program with one line."""
    own = options.config_dir
    results = own / "results" if own else paths.results()
    out = options.out or (results if own or not paths.in_checkout() else USERS)
    known = sorted(path.stem for path in (own / "table").glob("*.yaml")) if own else folders.choices("table")
    named = [word for word in options.table if "=" not in word]
    try:
        if len(named) < len(options.table) and not getattr(options, "list", False):
            raise ConfigError("settings such as seed=0 are for timescales-status TABLE --list: leave them out")
        folders.use(own)
        yield Tables(Composer(), named, results, out, known, own is not None)
    except OSError as error:
        if not Path(error.filename or "").is_relative_to(out):
            raise
        sys.exit(f"error: {error.filename}: {error.strerror}; choose another folder with --out, or give access there")
    except compose.WRONG_INPUT as error:
        sys.exit(f"error: {one_line(error)}")


def report() -> None:
    """Write reports: the command `timescales-report`."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description="Write the report of tables from the records in ./runs: FOLDER/TABLE/table.md, runs.csv and "
        "pictures. A report is written again from runs and from the runs.csv that is there already. "
        "--config-dir FOLDER, as for timescales-train, is for your own tables.",
    )
    add_report_options(parser)
    options = parser.parse_args()
    with tables(options) as found:
        write_reports(found.reports(), found.composer if options.wandb else None)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `timescales-report`."""
    parser.add_argument("table", nargs="*", help="names of tables; none: all")
    parser.add_argument("--wandb", action="store_true", help="put the tables with their verdicts at W&B, too")
    add_folders(parser)


def write_reports(made: Sequence[Report], composer: Composer | None) -> None:
    """Write reports, and say in lines what was seen and where the pages are; with a composer put them at W&B."""
    for found in made:
        write.write(found)
        weights.write(found)
        write.draw(found)
        if composer is not None:
            _publish(found, composer)
        print("\n".join(summary(found)))
        notes = [*(f"cannot run here: {line}" for line in found.missing), *found.unread]
        if found.dropped and not found.missing:
            notes.append(
                f"left out: {found.dropped} committed runs that the table does not ask for (has a key changed?)"
            )
        print("".join(f"  {line}\n" for line in notes), end="")
    if made:
        verdicts.write(made, made[0].out)


def summary(found: Report) -> list[str]:
    """Return what the runs of a table say, in lines: at each size that has runs, and where the page is."""
    lines = [f"{found.table.name}, {found.table.title}"]
    if found.rows[PAPER]:
        lines.append(f"  at {wording.full_size(found)}: {wording.answer(found)}")
    for size in found.rows:
        steps = [(judged, step) for judged in found.ladder_claims for step in judged.steps if step.name == size]
        if found.rows[size] and steps:
            lines.append(f"  {size}: {len(found.rows[size])} of {len(found.planned[size])} runs")
            lines += [
                f"    {wording.claim_in_words(judged.claim)}: {wording.step(judged, step)}" for judged, step in steps
            ]
    if not found.all_rows:
        lines.append("  no run has ended yet")
    pictures = [name for name in ("verdicts.png", "ladder.png", "figure.png") if (found.folder / name).is_file()]
    return [*lines, f"  Report: {found.folder / 'table.md'}" + "".join(f", {name}" for name in pictures)]


def _publish(found: Report, composer: Composer) -> None:
    """Put one table, its verdicts and its files at W&B (offline where there is no key)."""
    from timescales.runs import wandb_run

    name = found.table.name
    answers = {"the paper's size": wording.answer(found), "source": found.table.source}
    answers |= {
        wording.claim_in_words(c.claim): ", ".join(f"{s.name}: {s.word}" for s in c.steps) for c in found.ladder_claims
    }
    logger = schema.resolved(composer(["logger=wandb"]))["logger"]
    shown = [found.folder / file for file in ("table.md", "runs.csv", "verdicts.png", "ladder.png", "figure.png")]
    rows, columns = [astuple(line) for line in verdicts.lines(found)], [key.name for key in fields(verdicts.Line)]
    pictures = [path for path in shown if path.is_file()]
    wandb_run.publish(logger, name, paths.RUNS / f"report-{name}", columns, rows, pictures, answers)


def show_status() -> None:
    """Print what is done and what is left: the command `timescales-status`."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description="What is done of each table and what the rest costs. With a run's id, name or directory instead of "
        "tables: how it was made, and the command that makes it again. --list lists the runs of one table: "
        "settings, seed, state, directory. Settings narrow the list: seed=0 model=lstm,plstm. --rung NAME lists "
        "those of a rung of its ladder. --config-dir FOLDER, as for timescales-train, is for tables of your own. "
        "Hours are from finished runs of the same kind, else from a few steps timed with --measure "
        "(results/speed.csv). They are an upper bound where a task may stop before its last epoch.",
    )
    add = parser.add_argument
    add("table", nargs="*", help="names of tables (none: all), or one run; with --list also settings")
    add("--measure", action="store_true", help="time a few steps of every kind of run whose cost is not known")
    add("--list", action="store_true", help="list the runs of a table; trains and measures nothing")
    add("--rung", help="with --list: the runs of a rung of the table's ladder (small: the first)")
    add_folders(parser)
    options = parser.parse_intermixed_args()  # settings may follow --list
    with tables(options) as found:
        if len(found.named) == 1 and found.named[0] not in found.known and status.is_run(found.named[0]):
            if options.list or options.measure or options.rung:
                raise ConfigError("--list, --measure and --rung are for tables: leave them out")
            print(status.how_it_was_made(found.named[0], found.composer, found.results))
        elif options.list:
            _plan(found, [word for word in options.table if "=" in word], options.rung)
        elif options.rung:
            raise ConfigError("--rung is for --list: add --list, or leave it out")
        else:
            _overview(found, options.measure)


def _plan(found: Tables, settings: Sequence[str], rung: str | None) -> None:
    """Print the runs of one table, a line each."""
    if len(found.named) != 1:
        raise ConfigError("--list is for one table: give its name, as in chien_table3 --list")
    (name,), composer = found.named, found.composer
    given = {text: map(compose.parse, composer.each_value(text)) for text in settings}
    where = {compose.parse(text).key_or_group: [each.value() for each in found] for text, found in given.items()}
    size = load.table(name).size_of(rung)
    far = next(s for s in status.status(name, composer, found.results, paths.RUNS) if s.size == size)
    print(status.table_text(far.plan(where)))
    if lost := paths.lost_results(found.results):
        print(f"\nwithout committed runs: {lost}")


def _overview(found: Tables, measure: bool) -> None:
    """Print a line for each table and size; measure: first time a few steps of the kinds of runs not known."""
    from timescales.tasks.data.all import CORPORA
    from timescales.tasks.data.corpus import data_root

    if measure and (lost := paths.lost_results(found.results)):  # a new results/ with only costs would hide that
        raise ConfigError(lost)
    absent = [name for name, corpus in CORPORA.items() if not corpus.present(data_root(None))]

    def all_of() -> list[status.Status]:
        bar = tqdm(found.named or found.known, leave=False)
        return [s for name in bar for s in status.status(name, found.composer, found.results, paths.RUNS, absent)]

    lines = all_of()
    unknown = {key: run for s in lines for key, run in s.unknown.items()}
    if measure:
        found.results.mkdir(parents=True, exist_ok=True)
        for key, run in tqdm(unknown.items(), desc="timing"):
            try:
                cost.write([cost.measure(key, run.config)], found.results)
            except ConfigError as error:
                tqdm.write(f"{run.name}: {error}")
        lines = all_of()
    print(status.table_text([status.HEAD, *(s.line() for s in lines)]))
    if lost := paths.lost_results(found.results):
        print(f"\nwithout committed runs and costs: {lost}")
    elif unknown and not measure:
        kinds = f"{len(unknown)} kinds of runs are" if len(unknown) > 1 else "1 kind of runs is"
        print(f"\n{kinds} not measured: --measure (make status MEASURE=1) times a few steps of each")


def card() -> None:
    """Train a user's cell on the atlas and write its card: the command `timescales-card`."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description="Train a cell of your own on the tests of the atlas of memory, and write its card: what it "
        "remembers beside the cells of this project, how long its units remember, its speed and memory. CELL is a "
        "file and a class, mine.py:MyCell, or a class, package.module.MyCell; arguments of the class follow as "
        "key=value. The same command continues after an interruption.",
    )
    add = parser.add_argument
    add("cell", metavar="CELL", help="mine.py:MyCell, or package.module.MyCell")
    add("argument", nargs="*", metavar="KEY=VALUE", help="arguments of the class")
    add("--quick", action="store_true", help="a few rungs and one seed, at most ten minutes: a look, no result")
    add("--out", type=Path, metavar="FOLDER", help="where the card and its runs go; default: card-CELL")
    options = parser.parse_intermixed_args()
    from timescales.atlas import card as cards
    from timescales.atlas.definition import atlas
    from timescales.atlas.trial import Trial

    try:
        given = {}
        for text in options.argument:
            key, sign, value = text.partition("=")
            if not sign or not key.isidentifier():
                raise ConfigError(f"{text}: arguments of the class are given as key=value")
            given[key] = values.read_yaml(value)
        trial = Trial(options.cell, given, Path(), options.quick, atlas())
        trial.folder = options.out or Path(f"card-{re.sub('[^A-Za-z0-9]+', '-', trial.name).strip('-')}")
        trial.train()
        written = cards.write(trial)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: the same command continues")
    print(f"written: {', '.join(map(str, written))}")
