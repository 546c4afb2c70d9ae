"""Write results/, docs/papers and parts of the README from the records: `python scripts/report.py [TABLE ...]`.

It is the command `timescales-report` of an installation, but writes results/, which has the project's own runs. Reports
of your runs go to runs/reports/ with `make reproduce` and `make small`, or with --out FOLDER. --check compares and
writes nothing; --wandb puts the tables at W&B, too. --config-dir FOLDER, as for train.py, is for your own tables.
--reanalyse only computes what needs no training, results/reanalysed/values.csv, by which reports judge: minutes of CPU
time. It reads the time scales that Mahto et al. 2021 released, Penn Treebank and WikiText-2 (docs/own.md).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import commands, files, paths  # noqa: E402
from timescales.papers import reanalysed  # noqa: E402
from timescales.papers.table import PAPER  # noqa: E402
from timescales.reports import cards, figures, index, markdown, readme, speed, verdicts, write  # noqa: E402
from timescales.reports.report import Report  # noqa: E402
from timescales.runs import cost  # noqa: E402

TIMES = ("ours_elapsed_time", "ours_kernels")  # studies whose T_1/e stand in one picture, on the page of our studies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    commands.add_report_options(parser)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a committed report is not what its runs give"
    )
    parser.add_argument("--reanalyse", action="store_true", help="only compute results/reanalysed/values.csv")
    options = parser.parse_args()
    if options.reanalyse:
        reanalyse(options.check)
        return
    if options.out is None and options.config_dir is None:
        options.out = paths.RESULTS
    if options.out and (lost := paths.lost_results(options.out)):
        sys.exit(f"error: {lost}")
    with commands.tables(options) as tables:
        if options.check:
            check(tables.reports(runs=None), whole=not tables.named and tables.out == paths.RESULTS)
            return
        reports = tables.reports()
        commands.write_reports(reports, tables.composer if options.wandb else None)
        if tables.out == paths.RESULTS:
            write_pages(tables.reports(tables.known) if tables.named else reports)


def reanalyse(check: bool) -> None:
    """Compute the numbers that need no training, and write or compare them."""
    from timescales.analysis import released  # after --help: it imports torch

    path = paths.RESULTS / reanalysed.FOLDER / "values.csv"
    try:
        text = reanalysed.text(released.sources())
    except ValueError as error:  # missing or damaged data
        sys.exit(f"error: {error}")
    if not check:
        path.parent.mkdir(exist_ok=True)
        files.write_atomic(path, text.encode())
        print(f"written: {path}; make report judges tables by it")
    elif text != path.read_text():
        sys.exit(f"{path} has other numbers: python scripts/report.py --reanalyse writes them again")


def write_pages(reports: Sequence[Report]) -> None:
    """Write the index of all tables, the pages of the papers, the README's parts, and the pictures that pages share."""
    times = [found for found in reports if found.table.name in TIMES]

    def draw() -> None:
        readme.draw(readme.pictured(reports))
        speed.draw(paths.RESULTS)
        figures.draw_times(times, paths.RESULTS / "times.png")

    curves = [found.curve(row) for found in times for row in found.rows[PAPER]]
    shown = [*map(write.shown, times), curves, speed.rows(paths.RESULTS)]
    write.unless_drawn(paths.RESULTS, ("front.png", "speed.png", "times.png"), shown, draw)
    for path, text in pages(reports).items():
        files.write_atomic(path, text.encode())
    print(f"written: the pages of results/, {readme.README.name}, {cards.FOLDER.relative_to(ROOT)}/")


def pages(reports: Sequence[Report]) -> dict[Path, str]:
    """Return the pages that are about all tables or all of a paper's, and the README."""
    blocks = {readme.README: readme.blocks(reports), paths.RESULTS / "README.md": index.blocks(reports)}
    evidence = index.reanalysed(reanalysed.read(paths.RESULTS), reports)
    blocks[paths.RESULTS / reanalysed.FOLDER / "README.md"] = evidence
    own = {path: markdown.put(path.read_text(), of_page) for path, of_page in blocks.items()}
    return own | verdicts.texts(reports, paths.RESULTS) | cards.pages(reports)


def check(reports: Sequence[Report], whole: bool) -> None:
    """Compare with what is committed; exit with status 1 where it differs."""
    wrong = [os.path.relpath(path, ROOT) for path in map(differs, reports) if path is not None]
    if whole:
        check_costs(reports)
        wrong += [
            os.path.relpath(path, ROOT)
            for path, text in pages(reports).items()
            if not path.is_file() or path.read_text() != text
        ]
    if wrong:
        sys.exit(f"these differ from what the committed runs give: {', '.join(wrong)}; run make report and commit")
    n = len(reports)
    print("1 report agrees with its runs" if n == 1 else f"{n} reports agree with their runs")


def differs(found: Report) -> Path | None:
    """Return the path of a table's table.md if its committed runs give another text, else None."""
    path = found.folder / "table.md"
    return path if not path.is_file() or path.read_text() != markdown.table(found) else None


def check_costs(reports: Sequence[Report]) -> None:
    """Exit with status 1 where speed.csv has kinds of runs that no table asks for."""
    timed = {row.kind for row in cost.rows()}
    if unknown := timed - {run.cost_key for found in reports for run in found.composed.values()}:
        sys.exit(
            f"{len(unknown)} kinds of runs in results/speed.csv belong to no table: a key has changed since they were "
            "timed; remove their rows, and time them again with make status MEASURE=1"
        )


if __name__ == "__main__":
    main()
