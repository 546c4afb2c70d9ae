"""Pictures and tables of what a run has learned: `python scripts/analyse.py RUN_DIR [--only NAME] [--svg]`.

Every analysis of timescales/analysis that is made for the run's model and task writes RUN_DIR/analysis/NAME.png and
NAME.csv. If the run was logged to W&B, the pictures go there, too.

Several runs of one task go into one picture per analysis: `python scripts/analyse.py RUN_DIR RUN_DIR ... --to DIR`.

Numbers for the record of a finished run, without a picture: `python scripts/analyse.py RUN_DIR --record NAME`.

Somebody else's LSTM language model, a file with its state_dict: `python scripts/analyse.py --weights FILE SETTINGS`.
SETTINGS name the text that it reads: `task=ptb_word`, and other settings of the task, and data_root. Without any, it is
said what only the biases say. Pictures go to FILE-analysis, or to --to=DIR.
"""

import argparse
import functools
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import analysis  # noqa: E402
from timescales.analysis import study  # noqa: E402
from timescales.errors import ConfigError, nearest  # noqa: E402
from timescales.files import make_folder  # noqa: E402
from timescales.runs import wandb_run  # noqa: E402

ANOTHER = "give another folder as --to=DIR"


def main() -> None:
    options = parse()
    try:
        if options.weights:
            study_weights(options)
            return
        if options.record:
            measure(options)
            return
        failed = compare(options) if len(options.run_dir) > 1 else study_each(options)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if not error.filename:
            raise
        sys.exit(f"error: {error.filename}: {error.strerror}")
    if failed:
        sys.exit(f"error: {', '.join(failed)} failed (--only=NAME shows where)")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    studies, comparisons, recorded = map(
        ", ".join, (analysis.names("study"), analysis.names("compare"), analysis.measurable())
    )
    parser.add_argument("run_dir", nargs="*", help="directory of a run, e.g. runs/copy-plstm-s0-...; or settings")
    parser.add_argument("--weights", metavar="FILE", type=Path, help="a state_dict instead of a run, and settings")
    parser.add_argument("--only", metavar="NAME", help=f"one analysis: {studies}; of several runs: {comparisons}")
    parser.add_argument("--svg", action="store_true", help="also write NAME.svg")
    parser.add_argument("--to", metavar="DIR", type=Path, help="the directory for pictures of several runs")
    parser.add_argument("--record", metavar="NAME", help=f"measure for the record: {recorded}")
    options = parser.parse_intermixed_args()  # settings may follow options
    if not options.weights:
        if not options.run_dir:
            parser.error("give a RUN_DIR, or --weights=FILE")
        options.run_dir = list(map(Path, options.run_dir))
    return options


def study_weights(options: argparse.Namespace) -> None:
    """Write the study of a file of weights: `timescale_law`, or that of --only."""
    from timescales.analysis import weights

    if options.record:
        raise ConfigError("--record is for a run, and --weights for a file that has no record: leave one out")
    name = choose(options.only or "timescale_law", list(weights.ANALYSES), "--only")[0]
    read, folder = weights.read(options.weights), options.to or Path(f"{options.weights}-analysis")
    check_writable(folder, ANOTHER)
    write_one(name, folder, options.svg, weights.study(read, options.run_dir, name))


def measure(options: argparse.Namespace) -> None:
    """Measure a finished run for its record and print the values."""
    if len(options.run_dir) > 1:
        raise ConfigError("--record is for one run: give one RUN_DIR")
    if options.only or options.to or options.svg:
        raise ConfigError("--record measures, and draws nothing: leave out --only, --to and --svg")
    name = choose(options.record, analysis.measurable(), "--record")[0]
    print_values(name, analysis.measure_run(options.run_dir[0], name))


def study_each(options: argparse.Namespace) -> list[str]:
    """Write the studies of one run. Returns the analyses that failed."""
    if options.to is not None:
        raise ConfigError("--to=DIR is for several runs; the pictures of one run go into its analysis/")
    if options.only in set(analysis.names("compare")) - set(analysis.names("study")):
        raise ConfigError(
            f"--only={options.only} compares several runs: RUN_DIR RUN_DIR --only {options.only} --to DIR"
        )
    names, directory = choose(options.only, analysis.names("study"), "--only"), options.run_dir[0]
    load = functools.cache(functools.partial(analysis.load, directory))  # by the weights that an analysis reads
    load(analysis.weights_for(names[0]))  # a run that cannot be loaded is an error, whatever is asked of it
    check_writable(directory / "analysis", "change its permissions, or copy the run to a folder of yours")

    def analyse(name: str) -> study.Study:
        return analysis.study_run(load(analysis.weights_for(name)), name)

    failed = write_all(names, directory / "analysis", options, analyse)
    wandb_run.pictures(directory)
    return failed


def compare(options: argparse.Namespace) -> list[str]:
    """Write the comparisons of several runs. Returns the analyses that failed."""
    if options.to is None:
        raise ConfigError("pictures of several runs need a directory: --to=DIR")
    names = choose(options.only, analysis.names("compare"), "--only")

    @functools.cache
    def load(weights: str | None) -> list[analysis.Trained]:
        return [analysis.load(directory, weights) for directory in options.run_dir]

    load(analysis.weights_for(names[0]))
    check_writable(options.to, ANOTHER)

    def analyse(name: str) -> study.Study:
        return analysis.compare_runs(load(analysis.weights_for(name)), name, **extras(name))

    return write_all(names, options.to, options, analyse)


def extras(name: str) -> dict[str, Any]:
    """Further arguments of an analysis: learning curves are shown beside what papers print."""
    from timescales.papers.printed import printed

    return {"printed": printed} if name == "learning_curves" else {}


def choose(name: str | None, known: list[str], option: str) -> list[str]:
    """Return the analysis of this name, or all that are known."""
    if name is not None and name not in known:
        raise ConfigError(f"{option}={name}: no such analysis{nearest(name, known)} (there are {', '.join(known)})")
    return known if name is None else [name]


def write_all(
    names: list[str], folder: Path, options: argparse.Namespace, analyse: Callable[[str], study.Study]
) -> list[str]:
    """Write the results of all analyses into a folder and print their values. Returns the analyses that failed.

    With --only errors are raised. Otherwise an unexpected error is printed, and the other analyses still run.
    """
    skipped, failed = [], []
    for name in names:
        try:
            write_one(name, folder, options.svg, analyse(name))
        except ConfigError:
            if options.only:
                raise
            skipped.append(name)
        except Exception as error:
            if options.only:
                raise
            print(f"{name} failed: {traceback.format_exception_only(error)[-1].strip()}")
            failed.append(name)
    if skipped:
        print(f"skipped, not made for this model or task: {', '.join(skipped)} (--only=NAME says why)")
    return failed


def check_writable(folder: Path, fix: str) -> None:
    """Make a folder. Raise ConfigError, with the fix, if it cannot be made, or if no file can be written into it."""
    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write into {folder} ({error.strerror}): {fix}") from error


def write_one(name: str, folder: Path, svg: bool, result: study.Study) -> None:
    """Write the result of an analysis and print its values and notes."""
    print(" ".join(str(path) for path in study.write(result, folder, name, svg)))
    if not result.words:
        print_values(f"  {name}", result.values)
    for line in (*result.words, *result.notes):
        print(f"  {line}")


def print_values(name: str, values: Mapping[str, float]) -> None:
    """Print a line per value."""
    for key, value in values.items():
        print(f"{name}/{key:24} {value:.6g}")


if __name__ == "__main__":
    main()
