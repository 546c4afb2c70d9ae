"""Run a table at one of its sizes, and write the report of your runs: `python scripts/reproduce.py TABLE`.

    python scripts/reproduce.py chien_copy                  # the paper's size
    python scripts/reproduce.py chien_copy --rung t100      # a rung of its ladder (small: the first)
    python scripts/reproduce.py chien_copy --hours 2        # the largest rung that fits whole into two hours here

Further arguments are those of train.py, such as seed=200 or logger=csv. The report is written to runs/reports/TABLE.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tqdm import tqdm  # noqa: E402

from timescales import commands, paths  # noqa: E402
from timescales.config import compose  # noqa: E402
from timescales.config.compose import Composer  # noqa: E402
from timescales.errors import ConfigError, one_line  # noqa: E402
from timescales.experiment import plan  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.papers.table import PAPER, RATES, Rung, Table  # noqa: E402
from timescales.reports import report, wording  # noqa: E402
from timescales.runs import cost, found  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("table")
    parser.add_argument("overrides", nargs="*", default=[], help="for train.py")
    parser.add_argument("--rung", help="a rung of the table's ladder; small: the first")
    parser.add_argument("--hours", type=float, help="run the largest rung whose runs fit into so many hours")
    options = parser.parse_intermixed_args()
    if options.rung is not None and options.hours is not None:
        sys.exit("error: --hours chooses the rung: leave out --rung")
    composer = compose.Composer()
    try:
        table = load.table(options.table)
        size = table.size_of(options.rung)
        if options.hours is not None:
            size = fitting(table, options.hours, composer)
    except compose.WRONG_INPUT as error:
        sys.exit(f"error: {one_line(error)}")
    rung = [] if size == PAPER else [f"rung={size}"]
    command = [sys.executable, str(ROOT / "train.py"), f"table={table.name}", *rung, *options.overrides]
    if code := subprocess.run(command).returncode:
        sys.exit(code)
    made = report.make(table.name, composer, paths.RESULTS, paths.RUNS, out=commands.USERS)
    commands.write_reports([made], None)


def fitting(table: Table, hours: float, composer: Composer) -> str:
    """Print the price of each rung on this machine and what it can decide; return the largest that fits.

    Raises ConfigError where none does.
    """
    rungs = [size for size in table.sizes if size not in (PAPER, RATES)]
    if not rungs:
        table.size_of("small")  # which says why there is none
    prices = {size: seconds_of(table, size, composer) for size in tqdm(rungs, desc="timing a few steps", leave=False)}
    for size, seconds in prices.items():
        rung = table.sizes[size]
        claims = "; ".join(wording.claim_in_words(claim) for claim in rung.claims)
        price = f"{cost.duration(seconds)} here" if seconds else "has been run"
        print(f"{size}: {price}. It tests: {claims}")
    prices = {size: seconds for size, seconds in prices.items() if seconds}
    if not prices:
        raise ConfigError(f"all rungs of {table.name} have been run here: make reproduce TABLE={table.name} RUNG=NAME")
    fits = [size for size, seconds in prices.items() if seconds <= 3600 * hours]
    if not fits:
        cheapest = cost.duration(min(prices.values()))
        raise ConfigError(f"no rung of {table.name} fits into {hours:g} h: the cheapest takes {cheapest}")
    print(f"running {fits[-1]}, the largest that fits into {hours:g} h", flush=True)
    return fits[-1]


def seconds_of(table: Table, size: str, composer: Composer) -> float:
    """Estimate how long the open runs of a rung take on this machine, from a few timed steps of each kind of run."""
    runs, wrong = plan.table_runs(table, size, composer)
    if wrong:
        raise ConfigError(wrong[0])
    outcomes = [(run, found.read_state(paths.RUNS / run.name, None).outcome) for run in runs]
    ended = [(run.cost_key, outcome) for run, outcome in outcomes if outcome is not None]
    seconds = cost.spent(ended)
    part = table.sizes[size]
    for run, outcome in outcomes:
        if outcome is None and run.cost_key not in seconds:
            timing = cost.measure(run.cost_key, run.config)
            typical = part.steps if isinstance(part, Rung) else None
            share = min(1.0, typical / float(timing.steps)) if typical else 1.0
            seconds[run.cost_key] = float(timing.seconds) * share
    return sum(seconds[run.cost_key] for run, outcome in outcomes if outcome is None)


if __name__ == "__main__":
    main()
