"""The commands `timescales-report`, `timescales-status` (as scripts/report.py and status.py) and `timescales-card`."""

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
    from timescales.config import compose, folders, identity, messages, values
    from timescales.config.compose import Composer
    from timescales.errors import ConfigError
    from timescales.papers.table import SIZES, profile_of
    from timescales.reports import report as reports
    from timescales.reports import status, verdicts, weights, wording, write
    from timescales.reports.report import Report
    from timescales.runs import cost

REPORT = """\
Write the report of tables from the records in ./runs: FOLDER/TABLE/table.md, runs.csv and figure.png. A report is
written again from runs and from the runs.csv that is there already. --config-dir FOLDER, as for timescales-train, is
for tables of your own."""

STATUS = """\
What is done of each table and what the rest costs. With a run's id, name or directory instead of tables: how it was
made, and the command that makes it again. --list lists the runs of one table: settings, seed, state,
directory. Settings narrow the list: seed=0 model=lstm,plstm. --profile small lists those of the small-scale version.
--config-dir FOLDER, as for timescales-train, is for tables of your own. Hours are from finished runs of the same kind,
else from a few steps timed with --measure (results/speed.csv). They are an upper bound where a task may stop before its
last epoch."""


CARD = """\
Train a cell of your own on the tests of the atlas of memory, and write its card: what it remembers beside the cells of
this project, how long its units remember, its speed and memory. CELL is a file and a class, mine.py:MyCell, or a class,
package.module.MyCell; arguments of the class follow as key=value. The same command continues after an interruption."""


@dataclass(frozen=True)
class Tables:
    """The tables that a command is about.

    results: the folder of reports and committed runs; known: all tables there; own: whether they are the user's own.
    """

    composer: Composer
    named: Sequence[str]
    results: Path
    known: Sequence[str]
    own: bool

    def reports(self, names: Sequence[str] = (), runs: Path | None = paths.RUNS) -> list[Report]:
        """The reports of these tables, by default of those that were named on the command line, else of all.

        runs: where trained runs lie; None: only those in `results` count.
        """
        names = names or self.named or self.known
        return [reports.make(name, self.composer, self.results, runs, self.own) for name in names]


def _parser(description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=description, allow_abbrev=False)


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where tables and reports are."""
    default = (
        "results/ of the checkout or, without one, of the current folder; of tables of your own that of --config-dir"
    )
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="your own folder of configurations")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"the folder of reports; default: {default}")


@contextlib.contextmanager
def tables(options: argparse.Namespace) -> Iterator[Tables]:
    """The tables of a command's options. An error that the user can fix ends the program with one line."""
    own = options.config_dir
    results = options.out or (own / "results" if own else paths.RESULTS if paths.in_checkout() else Path("results"))
    known = sorted(path.stem for path in (own / "table").glob("*.yaml")) if own else folders.choices("table")
    named = [word for word in options.table if "=" not in word]
    try:
        if len(named) < len(options.table) and not getattr(options, "list", False):
            raise ConfigError("settings such as seed=0 are for timescales-status TABLE --list: leave them out")
        folders.use(own)
        with compose.composing() as composer:
            yield Tables(composer, named, results, known, own is not None)
    except OSError as error:
        if not Path(error.filename or "").is_relative_to(results):
            raise
        sys.exit(f"error: {error.filename}: {error.strerror}; choose another folder with --out, or give access there")
    except Exception as error:
        if (line := messages.one_line(error)) is None:
            raise
        sys.exit(f"error: {line}")


def report() -> None:
    """Write reports: the command `timescales-report`."""
    parser = _parser(REPORT)
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
    """Write reports, and say in lines what became of each table; with a composer put them at W&B."""
    from timescales.reports import figures

    for found in made:
        written = write.write(found)
        weights.write(found)
        if written:
            figures.draw(found)
        if written and composer is not None:
            _publish(found, composer)
        paper, small = wording.text_with_counts(found.verdict), wording.text(found.small_verdict)
        print(f"{found.table.name:24} {paper}; small-scale version: {small}")
        told = [*(f"cannot run here: {line}" for line in found.missing), *found.unread]
        if found.dropped and not found.missing:
            told.append(
                f"left out: {found.dropped} committed runs that the table does not ask for (has a key changed?)"
            )
        print("".join(f"  {line}\n" for line in told), end="")
    if made:
        verdicts.write(made, made[0].results)


def _publish(found: Report, composer: Composer) -> None:
    """Put one table, its verdicts and its files at W&B (offline where there is no key)."""
    from timescales.runs import wandb_run

    name = found.table.name
    paper, small = wording.text_with_counts(found.verdict), wording.text(found.small_verdict)
    summary = {"paper size": paper, "small-scale version": small, "source": found.table.source}
    logger = identity.resolved(composer(["logger=wandb"]))["logger"]
    shown = [found.folder / file for file in ("table.md", "runs.csv", "figure.png")]
    rows, columns = [astuple(line) for line in verdicts.lines(found)], [key.name for key in fields(verdicts.Line)]
    there = [path for path in shown if path.is_file()]
    wandb_run.publish(logger, name, paths.RUNS / f"report-{name}", columns, rows, there, summary)


def show_status() -> None:
    """Print what is done and what is left: the command `timescales-status`."""
    parser = _parser(STATUS)
    add = parser.add_argument
    add("table", nargs="*", help="names of tables (none: all), or one run; with --list also settings")
    add("--measure", action="store_true", help="time a few steps of every kind of run whose cost is not known")
    add("--list", action="store_true", help="list the runs of a table; trains and measures nothing")
    add("--profile", type=profile_of, choices=["small"], help="with --list: the runs of the small-scale version")
    add_folders(parser)
    options = parser.parse_intermixed_args()  # settings may follow --list
    with tables(options) as found:
        if len(found.named) == 1 and found.named[0] not in found.known and status.is_run(found.named[0]):
            if options.list or options.measure or options.profile:
                raise ConfigError("--list, --measure and --profile are for tables: leave them out")
            print(status.how_it_was_made(found.named[0], found.composer, found.results))
        elif options.list:
            _plan(found, [word for word in options.table if "=" in word], options.profile)
        elif options.profile:
            raise ConfigError("--profile is for --list: add --list, or leave it out")
        else:
            _overview(found, options.measure)


def _plan(found: Tables, settings: Sequence[str], profile: str | None) -> None:
    """Print the runs of one table, a line each."""
    if len(found.named) != 1:
        raise ConfigError("--list is for one table: give its name, as in chien_table3 --list")
    (name,), composer = found.named, found.composer
    given = map(composer.parse, settings)
    where = {o.key_or_group: [each.value() for each in composer.each_value(o)] for o in given}
    sizes = [s for s in status.status(name, composer, found.results, paths.RUNS) if SIZES[s.size] == profile]
    if not sizes:
        raise ConfigError(f"{name} has no small-scale version (its key `small`)")
    print(status.table_text(sizes[0].plan(where)))


def _overview(found: Tables, measure: bool) -> None:
    """Print a line for each table and size; measure: first time a few steps of the kinds of runs not known."""
    from timescales.tasks.data.all import CORPORA
    from timescales.tasks.data.corpus import data_root

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
    if unknown and not measure:
        kinds = f"{len(unknown)} kinds of runs are not measured"
        print(f"\n{kinds}: --measure (make status MEASURE=1) times a few steps of each")


def card() -> None:
    """Train a cell of one's own on the atlas and write its card: the command `timescales-card`."""
    parser = _parser(CARD)
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
