"""Write results/ and what the README shows of it from the records: `python scripts/report.py [TABLE ...]`.

--check compares and writes nothing; --wandb puts the tables at W&B, too. --config-dir FOLDER, as for train.py, is for
tables of one's own: what is said of them goes to FOLDER/results/.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import front  # noqa: E402

from timescales import errors, files, paths  # noqa: E402
from timescales.config import (  # noqa: E402
    compose,
    folders,
    identity,
)
from timescales.reports import (  # noqa: E402
    markdown,
    report,
    write,
)
from timescales.runs import cost  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="*", help="names of tables; none: all")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a committed report is not what its runs give"
    )
    parser.add_argument("--wandb", action="store_true", help="put the tables with their verdicts at W&B, too")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="one's own folder of configurations")
    options = parser.parse_args()
    known = folders.choices("table")
    if options.config_dir:
        paths.RESULTS = options.config_dir / "results"
        known = sorted(path.stem for path in (options.config_dir / "table").glob("*.yaml"))
    with compose.composing() as composer:
        try:
            folders.check_user_folder()
            wanted = options.table or known
            own = options.config_dir is not None
            reports = [report.make(name, composer, local=not options.check, own=own) for name in wanted]
        except errors.ConfigError as error:
            sys.exit(f"error: {error}")
        if options.check:
            check(reports, whole=not (options.table or options.config_dir))
            return
        from timescales.reports import figures

        for found in reports:
            if write.write(found):
                figures.draw(found)
                if options.wandb:
                    publish(found, composer)
            print(f"{found.table['name']:24} {found.verdict:24} shown here: {found.shown_here()}")
            for line in found.missing:
                print(f"  cannot run here: {line}")
            for line in found.unread:
                print(f"  {line}")
            if found.dropped:
                print(
                    f"  left out: {found.dropped} committed runs that the table does not ask for (has a key changed?)"
                )
        if options.config_dir:
            return
        everything = (
            reports if not options.table else [report.make(name, composer) for name in folders.choices("table")]
        )
        files.write_atomic(paths.RESULTS / "README.md", markdown.index(everything).encode())
        front.draw(next(found for found in everything if found.table["name"] == front.PICTURE))
        front.write(front.parts(everything))
    print(f"written: {paths.RESULTS.relative_to(ROOT)}/README.md, {front.README.name}")


def publish(found: report.Report, composer: compose.Composer) -> None:
    """Put one table, its verdicts and its files at W&B (offline where there is no key)."""
    from timescales.runs import wandb_run

    folder = paths.RESULTS / found.table["name"]
    files = [folder / name for name in ("table.md", "runs.csv", "figure.png") if (folder / name).is_file()]
    said = {"paper size": found.verdict, "shown here": found.shown_here(), "source": found.table["source"]}
    logger = identity.resolved(composer(["logger=wandb"]))["logger"]
    name = found.table["name"]
    wandb_run.publish(logger, name, paths.RUNS / f"report-{name}", *markdown.verdicts(found), files, said)


def check(reports: list[report.Report], whole: bool) -> None:
    """Compare with what is committed; exit with status 1 where it differs."""
    wrong = []
    for found in reports:
        path = paths.RESULTS / found.table["name"] / "table.md"
        ours = markdown.table(found) if any(found.rows.values()) else None  # None: its runs are gone, the text is not
        if ours != (path.read_text() if path.is_file() else None):
            wrong.append(os.path.relpath(path, ROOT))
    timed = {row["kind"] for row in cost.rows()}
    if whole and (unknown := timed - set().union(*(found.kinds for found in reports))):
        sys.exit(
            f"{len(unknown)} kinds of runs in results/speed.csv are of no table: a key has changed since they were "
            "timed; remove their rows, and time them again with make status MEASURE=1"
        )
    if whole and (paths.RESULTS / "README.md").read_text() != markdown.index(reports):
        wrong.append("results/README.md")
    if whole and (text := front.README.read_text()) != front.put(text, front.parts(reports)):
        wrong.append("README.md")
    if wrong:
        sys.exit(f"not what the committed runs give: {', '.join(wrong)}; run make report and commit")
    print(f"{len(reports)} reports are what their runs give")


if __name__ == "__main__":
    main()
