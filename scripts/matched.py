"""The units with which models have as many parameters as a task's LSTM: writes conf/matched.yaml.

For the tasks whose recipe says `hidden_size: ${matched:UNITS}`; networks whose layers double their reach are left out.
A model that is within 1 % with the LSTM's units keeps them. `matched.py --check` writes nothing, and ends with
status 1 if the file is not what would be written.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable

import pairs
import sample_data
import task_pages
import yaml

from timescales import paths
from timescales.atlas.sizes import nearest
from timescales.errors import ConfigError
from timescales.nn import registry

HEADER = "# Units with which a model has as many parameters as the LSTM of its task. Written by scripts/matched.py.\n"
FILE = paths.conf() / "matched.yaml"


def tasks() -> list[str]:
    """The tasks whose recipe matches sizes."""
    files = sorted((paths.conf() / "recipe").glob("*/*.yaml"))
    return [file.stem for file in files if "${matched:" in file.read_text()]


def matched(task: str) -> dict[str, int]:
    """The units of each model that needs others than the LSTM on a task."""
    parameters, lstm = counted(task)
    found = {}
    for model in sorted(name for name, model in registry.BY_NAME.items() if model.family != registry.DEEP):
        same = parameters(model, lstm.units[0])
        if not stated(task, model) and (same is None or abs(same / lstm.parameters - 1) > pairs.CLOSE):
            found[model] = nearest(functools.partial(parameters, model), lstm.parameters)
    return found


def counted(task: str) -> tuple[Callable[[str, int], int | None], pairs.Pair]:
    """The parameters of a model with so many units on a task, None where it cannot be built; and the task's LSTM."""
    made = pairs.real_size(task_pages.command(task))

    def parameters(model: str, units: int) -> int | None:
        try:
            return pairs.pair(made, task, model, [f"model.hidden_size={units}"]).parameters
        except ConfigError:  # such as a number that its heads do not divide
            return None

    return parameters, pairs.pair(made, task, "lstm")


def stated(task: str, model: str) -> bool:
    """Whether a recipe for one model alone states its units."""
    files = (paths.conf() / "recipe").glob(f"*/{task}_{model}.yaml")
    return any("hidden_size:" in file.read_text() for file in files)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    with sample_data.folder():
        text = HEADER + yaml.safe_dump({task: matched(task) for task in tasks()}, sort_keys=True)
    if not check:
        FILE.write_text(text)
    elif text != FILE.read_text():
        sys.exit("conf/matched.yaml is out of date: run scripts/matched.py")


if __name__ == "__main__":
    main()
