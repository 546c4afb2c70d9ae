"""Pictures and tables of what a run has learned: `python scripts/analyse.py RUN_DIR [--only NAME] [--svg]`.

Every question of timescales/analysis that is one for the run's model and task is answered by RUN_DIR/analysis/NAME.png
and NAME.csv, and at W&B if the run was logged there. Several runs of one task go into one picture each question:
`python scripts/analyse.py RUN_DIR RUN_DIR ... --to DIR`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import analysis  # noqa: E402
from timescales.analysis import learning_curves, study  # noqa: E402
from timescales.analysis.run import Run, load  # noqa: E402
from timescales.errors import ConfigError, nearest  # noqa: E402
from timescales.papers.printed import printed  # noqa: E402
from timescales.runs import wandb_run  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, nargs="+", help="directory of a run, e.g. runs/copy-plstm-s0-...")
    parser.add_argument(
        "--only",
        metavar="NAME",
        help=f"one question: {', '.join(analysis.names('study'))}; "
        f"of several runs: {', '.join(analysis.names('compare'))}",
    )
    parser.add_argument("--svg", action="store_true", help="write NAME.svg too")
    parser.add_argument("--to", metavar="DIR", type=Path, help="where pictures of several runs go")
    options = parser.parse_args()
    several = len(options.run_dir) > 1
    try:
        if several != (options.to is not None):
            raise ConfigError(
                "--to=DIR is for several runs, and these need it; one run's pictures go into its analysis/"
            )
        wanted = choose(options.only, "compare" if several else "study")
        weights = "best" if any(map(analysis.weights_for, wanted)) else None
        runs = [load(directory, weights) for directory in options.run_dir]
        failed = (together if several else each)(runs, wanted, options)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    if failed:
        sys.exit(f"error: {', '.join(failed)} failed (--only=NAME shows where)")


def choose(only: str | None, function: str) -> list[str]:
    """The questions to put: all that have the function, or the one wanted."""
    known = analysis.names(function)
    if function == "study" and only in analysis.names("compare") and only not in known:
        raise ConfigError(f"--only={only} is asked of several runs at once: RUN_DIR RUN_DIR --only {only} --to DIR")
    if only is not None and only not in known:
        raise ConfigError(f"--only={only}: no such question{nearest(only, known)} (there are {', '.join(known)})")
    return known if only is None else [only]


def each(runs: list[Run], wanted: list[str], options: argparse.Namespace) -> list[str]:
    """Put each question to the run; returns those that failed."""
    (run,) = runs
    failed = ask(wanted, run.directory / "analysis", options, lambda name: analysis.study_run(run, name))
    wandb_run.pictures(run.directory)
    return failed


def together(runs: list[Run], wanted: list[str], options: argparse.Namespace) -> list[str]:
    """Put each question to all runs at once; returns those that failed."""
    return ask(wanted, options.to, options, lambda name: compare(runs, name))


def compare(runs: list[Run], name: str) -> study.Study:
    """The answer of several runs; curves are shown beside what papers print."""
    if name == "learning_curves":
        return learning_curves.compare(runs, printed)
    return analysis.compare_runs(runs, name)


def ask(
    wanted: list[str], folder: Path, options: argparse.Namespace, question: Callable[[str], study.Study]
) -> list[str]:
    """Write each question's answer into a folder and print its values.

    An unexpected error becomes a line, and the other questions are still asked; returns those that failed.
    """
    skipped, failed = [], []
    for name in wanted:
        try:
            found = question(name)
            paths = study.write(found, folder, name, options.svg)
        except ConfigError:
            if options.only:
                raise
            skipped.append(name)
            continue
        except Exception as error:
            if options.only:
                raise  # with its traceback
            print(f"{name} failed: {traceback.format_exception_only(error)[-1].strip()}")
            failed.append(name)
            continue
        print(" ".join(str(path) for path in paths))
        for key, value in found.values.items():
            print(f"  {name}/{key:24} {value:.6g}")
        for line in found.notes:
            print(f"  {line}")
    if skipped:
        print(f"not asked of this model and task: {', '.join(skipped)} (--only=NAME says why)")
    return failed


if __name__ == "__main__":
    main()
