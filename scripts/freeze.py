"""Write tests/stable.txt: what 1.x promises, as code has it (docs/library.md#what-is-stable). --check compares only.

A test compares them, so that a change of a signature, a setting, a record or a command is a line of a commit's diff.
A line that goes or changes breaks a promise; a line that is new is an addition.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

import timescales  # noqa: E402
from timescales import commands, tasks  # noqa: E402
from timescales.files import write_atomic  # noqa: E402
from timescales.nn.rnn import CellRNN  # noqa: E402
from timescales.papers import table  # noqa: E402
from timescales.runs import record, store, weights  # noqa: E402

PATH = ROOT / "tests" / "stable.txt"
PUBLIC = {*timescales.__all__, *tasks.__all__}
COMMANDS = {
    "timescales-report": commands.report,
    "timescales-status": commands.show_status,
    "timescales-card": commands.card,
}


def text() -> str:
    """All promises, a line for each."""
    parts = {
        "timescales": [line for name in timescales.__all__[1:] for line in described(name, getattr(timescales, name))],
        "timescales.tasks": [line for name in tasks.__all__ for line in described(name, getattr(tasks, name))],
        "parameters of a layer of 3 inputs and 4 units": parameters(),
        "settings": settings(),
        "keys of a table's file": keys(),
        "files": files(),
        "options of commands": [f"{name}: {' '.join(options(main))}" for name, main in COMMANDS.items()],
    }
    return "\n".join(f"# {title}\n" + "\n".join(lines) + "\n" for title, lines in parts.items())


def described(name: str, thing: Any) -> Iterator[str]:
    """The signature of a public name, and of what a class has that it does not share with another public class."""
    if not callable(thing):
        yield name
        return
    yield f"{name}{signature(thing)}"
    for base in thing.__mro__ if isinstance(thing, type) else ():
        if base is not thing and (base.__name__ in PUBLIC or not base.__module__.startswith("timescales.")):
            return  # its lines stand there
        for member, value in sorted(vars(base).items()):
            if member.startswith("_"):
                continue
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if isinstance(value, type) and hasattr(value, "_fields"):
                yield f"{name}.{member}: {' '.join(value._fields)}"
            elif inspect.isfunction(value):
                yield f"{name}.{member}{signature(value)}"
            elif isinstance(value, property):
                yield f"{name}.{member}"
        if is_dataclass(base):
            yield f"{name}: {' '.join(each.name for each in fields(base))}"


def signature(thing: Callable[..., Any]) -> str:
    """Names, kinds and defaults of arguments, without their types; "" for a class that has them of Python."""
    try:
        found = inspect.signature(thing)
    except ValueError:
        return ""
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def parameters() -> list[str]:
    """The names and shapes in the state_dict of every layer."""
    lines = []
    for name in timescales.__all__[1:]:
        kind = getattr(timescales, name)
        if isinstance(kind, type) and issubclass(kind, CellRNN) and kind is not CellRNN:
            needed: dict[str, Any] = {"T_max": 10} if "T_max" in inspect.signature(kind).parameters else {}
            shapes = (f"{key}{[*value.shape]}" for key, value in kind(3, 4, **needed).state_dict().items())
            lines.append(f"{name}: {' '.join(shapes)}")
    return lines


def settings() -> list[str]:
    """The keys of conf/base.yaml and of each choice of a group."""
    lines = []
    for path in [ROOT / "conf" / "base.yaml", *sorted((ROOT / "conf").glob("[lmot]*/*.yaml"))]:
        if path.parent.name != "table":
            name = path.relative_to(ROOT / "conf").with_suffix("").as_posix()
            lines.append(f"{name}: {' '.join(flat(yaml.safe_load(path.read_text()) or {}))}")
    return lines


def flat(node: dict[str, Any], above: str = "") -> Iterator[str]:
    """The keys of a file, a nested one as `loop.max_epochs`; not Hydra's own."""
    for key, value in node.items():
        if key not in ("defaults", "hydra"):
            inside = isinstance(value, dict) and value
            yield from flat(value, f"{above}{key}.") if inside else [f"{above}{key}"]


def keys() -> list[str]:
    """The keys of each node of a table's file."""
    nodes = [each for each in vars(table).values() if isinstance(each, type) and each.__module__ == table.__name__]
    named = {each.__name__: {*each.KEYS, *vars(each).get("OLDER", ())} for each in nodes if hasattr(each, "KEYS")}
    return [f"{name}: {' '.join(sorted(words))}" for name, words in named.items()]


def files() -> list[str]:
    """What the files of runs and reports have."""
    schema = json.loads((ROOT / "results" / "verdicts.schema.json").read_text())
    return [
        f"record.json: {' '.join(each.name for each in fields(record.Record) if each.name not in ('keys', 'more'))}",
        f"runs.csv: {' '.join(store.COLUMNS)}",
        f"weights/index.csv: {' '.join(weights.COLUMNS)}",
        f"verdicts.json: {' '.join(schema['items']['properties'])}",
        f"of a run: {' '.join(record.FILES)}",
        f"status: {' '.join(state.value for state in record.State)}",
    ]


def options(main: Callable[[], None]) -> list[str]:
    """The options that a command's help names."""
    printed = io.StringIO()
    called, to = mock.patch.object(sys, "argv", ["command", "--help"]), contextlib.redirect_stdout(printed)
    with called, to, contextlib.suppress(SystemExit):
        main()
    return sorted(set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", printed.getvalue(), re.M)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    if not parser.parse_args().check:
        write_atomic(PATH, text().encode())
    elif PATH.read_text() != text():
        sys.exit(f"{PATH.relative_to(ROOT)} is not what the code has: make freeze, and look at the diff")


if __name__ == "__main__":
    main()
