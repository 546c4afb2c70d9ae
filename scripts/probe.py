"""Put one question to a finished run and show the answer: `python scripts/probe.py RUN_DIR NAME`.

The answer is kept in the run's record. NAME is a file of timescales/analysis.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import analysis  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.runs import record  # noqa: E402

NAMES = analysis.names("measure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, help="directory of a finished run, e.g. runs/copy-plstm-s0-...")
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    options = parser.parse_args()
    try:
        if record.read(options.run_dir) is None:
            raise ConfigError(f"{options.run_dir} has no record.json: give the directory of a finished run")
        for key, value in analysis.measure_run(options.run_dir, options.name).items():
            print(f"{options.name}/{key:24} {value:.6g}")
    except ConfigError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
