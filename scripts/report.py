"""Write results/, docs/papers and parts of the README from the records: `python scripts/report.py [TABLE ...]`.

--check compares and writes nothing; --wandb puts the tables at W&B, too. --config-dir FOLDER, as for train.py, is for
tables of your own: their reports go to FOLDER/results/.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import files, paths  # noqa: E402
from timescales.config import compose, folders, identity  # noqa: E402
from timescales.config.compose import Composer  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.reports import cards, markdown, readme, report, write  # noqa: E402
from timescales.reports.report import Report  # noqa: E402
from timescales.runs import cost  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="*", help="names of tables; none: all")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a committed report is not what its runs give"
    )
    parser.add_argument("--wandb", action="store_true", help="put the tables with their verdicts at W&B, too")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="your own folder of configurations")
    options = parser.parse_args()
    own = options.config_dir is not None
    results = options.config_dir / "results" if own else paths.RESULTS
    known = folders.choices("table")
    if own:
        known = sorted(path.stem for path in (options.config_dir / "table").glob("*.yaml"))
    with compose.composing() as composer:

        def make(names: Sequence[str]) -> list[Report]:
            runs = None if options.check else paths.RUNS
            return [report.make(name, composer, results, runs, own) for name in names]

        try:
            folders.check_user_folder()
            reports = make(options.table or known)
        except ConfigError as error:
            sys.exit(f"error: {error}")
        if options.check:
            check(reports, whole=not (options.table or own))
            return
        for found in reports:
            write_table(found, composer if options.wandb else None)
        if not own:
            write_pages(make(known) if options.table else reports)


def write_table(found: Report, composer: Composer | None) -> None:
    """Write one report, and say in lines what became of the table; with a composer put it at W&B, too."""
    from timescales.reports import figures

    if write.write(found):
        figures.draw(found)
        if composer is not None:
            publish(found, composer)
    paper, small = markdown.text_with_counts(found.verdict), markdown.text(found.small_verdict)
    print(f"{found.table.name:24} {paper}; small-scale version: {small}")
    for line in found.missing:
        print(f"  cannot run here: {line}")
    for line in found.unread:
        print(f"  {line}")
    if found.dropped:
        print(f"  left out: {found.dropped} committed runs that the table does not ask for (has a key changed?)")


def write_pages(reports: Sequence[Report]) -> None:
    """Write the index of all tables, the pages of the papers, and the README's parts."""
    files.write_atomic(paths.RESULTS / "README.md", markdown.index(reports).encode())
    readme.draw(readme.pictured(reports))
    readme.write(readme.parts(reports))
    for path, text in cards.pages(reports).items():
        files.write_atomic(path, text.encode())
    print(f"written: results/README.md, {readme.README.name}, {cards.FOLDER.relative_to(ROOT)}/")


def publish(found: Report, composer: Composer) -> None:
    """Put one table, its verdicts and its files at W&B (offline where there is no key)."""
    from timescales.runs import wandb_run

    shown = [found.folder / name for name in ("table.md", "runs.csv", "figure.png")]
    paper, small = markdown.text_with_counts(found.verdict), markdown.text(found.small_verdict)
    summary = {"paper size": paper, "small-scale version": small, "source": found.table.source}
    logger = identity.resolved(composer(["logger=wandb"]))["logger"]
    name = found.table.name
    there = [path for path in shown if path.is_file()]
    wandb_run.publish(logger, name, paths.RUNS / f"report-{name}", *markdown.verdicts(found), there, summary)


def check(reports: Sequence[Report], whole: bool) -> None:
    """Compare with what is committed; exit with status 1 where it differs."""
    wrong = [os.path.relpath(path, ROOT) for path in map(differs, reports) if path is not None]
    if whole:
        check_costs(reports)
        if (paths.RESULTS / "README.md").read_text() != markdown.index(reports):
            wrong.append("results/README.md")
        if (text := readme.README.read_text()) != readme.put(text, readme.parts(reports)):
            wrong.append("README.md")
        wrong += [os.path.relpath(path, ROOT) for path in cards.stale(reports)]
    if wrong:
        sys.exit(f"not what the committed runs give: {', '.join(wrong)}; run make report and commit")
    print(f"{len(reports)} reports are what their runs give")


def differs(found: Report) -> Path | None:
    """The path of a table.md that is not what its runs give."""
    path = found.folder / "table.md"
    ours = markdown.table(found) if found.all_rows else None  # None: its runs are gone, the text is not
    return path if ours != (path.read_text() if path.is_file() else None) else None


def check_costs(reports: Sequence[Report]) -> None:
    """Exit with status 1 where speed.csv has kinds of runs that no table asks for."""
    timed = {row["kind"] for row in cost.rows()}
    if unknown := timed - set().union(*(found.kinds for found in reports)):
        sys.exit(
            f"{len(unknown)} kinds of runs in results/speed.csv are of no table: a key has changed since they were "
            "timed; remove their rows, and time them again with make status MEASURE=1"
        )


if __name__ == "__main__":
    main()
