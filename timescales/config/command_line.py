"""The command line, read once by Hydra's own parsers, and refused with one line where it would not do what it says.

Imports no torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import OverrideParseException

from timescales.config import folders, hydra_internals
from timescales.config.compose import of_hydra, text_of
from timescales.config.identity import is_of_identity
from timescales.errors import ConfigError

# Hydra's settings that would have no effect, or a bad one: what to write instead.
NO_EFFECT = {
    "hydra.run.dir": "has no effect: give run_dir=DIR, where a run is kept",
    "hydra.sweep.dir": "has no effect: give run_dir=DIR, and each run of a sweep is kept in DIR/<its name>",
    "hydra.sweep.subdir": "has no effect: give run_dir=DIR, and each run of a sweep is kept in DIR/<its name>",
    "hydra.searchpath": "is not for this program: leave it out; --config-dir=FOLDER adds your own files",
    "hydra.job.chdir": "would look for runs/ inside each run: leave it out; run_dir=DIR is where a run is kept",
}
# Of Hydra's settings those that our own runs and sweeps go by.
READ = ("hydra/launcher", "hydra.launcher.", "hydra/sweeper", "hydra.sweeper.", "hydra.mode")
MODES = ("run", "multirun", "cfg", "info", "shell_completion")
PACKAGES = {"joblib": "joblib", "slurm": "hydra_plugins.hydra_submitit_launcher"}  # what launchers need
KEY = r"(\+{1,2}|~)?[\w$][\w$-]*([./][\w$-]+)*"


@dataclass(frozen=True)
class CommandLine:
    """What was asked for: Hydra's options, and the overrides.

    kind: "hydra", what Hydra does by itself: help, --info, --cfg hydra, completion, another sweeper than ours; "show",
    --cfg job; "run"; "sweep"; "table".
    """

    options: argparse.Namespace
    overrides: Sequence[Override]
    kind: str

    @property
    def texts(self) -> list[str]:
        """The overrides as they were typed."""
        return [text_of(override) for override in self.overrides]

    def value(self, key: str) -> Any:
        """What the last override of a key gives it; None if there is none."""
        found = [override.value() for override in self.overrides if override.key_or_group == key]
        return found[-1] if found else None

    @property
    def of_hydra(self) -> list[Override]:
        """The overrides of Hydra's own settings."""
        return [override for override in self.overrides if of_hydra(override)]

    @property
    def of_runs(self) -> list[Override]:
        """The overrides of the runs' settings."""
        return [override for override in self.overrides if not of_hydra(override)]

    @property
    def extends(self) -> bool:
        """Whether a run is asked for that continues another."""
        return self.value("extend") is not None

    def continuing(self) -> str:
        """In words, how a command that was interrupted is continued."""
        restarting = [t for t in self.texts if t.lstrip("+").lower() in ("force=true", "resume=false")]
        if not restarting:
            return "the same command continues"
        return f"the same command without {' '.join(restarting)} continues; runs that had not begun need it again"


def read(arguments: Sequence[str]) -> CommandLine:
    """A command line. Raises ConfigError for one that has an error, or asks for what is not done."""
    options = _options(arguments)
    folders.use(options.config_dir)
    if options.shell_completion:  # its words are no overrides
        return CommandLine(options, [], "hydra")
    overrides = [_parsed(text) for text in options.overrides]
    table = [o for o in overrides if o.key_or_group == "table" and o.type is OverrideType.CHANGE and o.value()]
    own = _own_sweeper(overrides, bool(table))
    several = options.multirun or any(o.key_or_group == "hydra.mode" and o.value() == "MULTIRUN" for o in overrides)
    for override in overrides:
        _check(override, own=own, several=several or bool(table))
    if table and options.cfg in ("job", "all"):
        text, name = text_of(table[-1]), table[-1].value()
        raise ConfigError(f"{text} has many runs, --cfg shows one: make plan TABLE={name} lists them")
    if options.cfg or options.help or options.hydra_help or options.info is not None:
        return CommandLine(options, overrides, "show" if options.cfg == "job" else "hydra")
    kind = "hydra" if not own else "table" if table else "sweep" if several else "run"
    asked = CommandLine(options, overrides, kind)
    if asked.extends and kind != "run":
        raise ConfigError(
            f"extend={asked.value('extend')} continues one run: give it without -m, table=, hydra/sweeper="
        )
    return asked


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """Hydra's options, which may stand before, between and after overrides."""
    parser = hydra_internals.args_parser()
    parser.error = _wrong_option  # type: ignore[method-assign]
    options, unknown = parser.parse_known_intermixed_args(list(arguments))
    for word in unknown:
        if word.startswith("-"):
            key, _, value = word.lstrip("-").partition("=")
            raise ConfigError(f"{word}: no such option; a setting is written {key}={value or '...'}, without dashes")
    for name in ("config_name", "config_path"):
        if (given := getattr(options, name)) is not None:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option}={given}: leave it out; --config-dir=FOLDER adds your own files")
    if sum(bool(getattr(options, mode)) for mode in MODES) > 1:
        raise ConfigError("give only one of --run, --multirun (-m), --cfg, --info and --shell-completion")
    if options.resolve and not (options.cfg or options.help):
        raise ConfigError("--resolve takes --cfg job, too: it shows the configuration")
    return options


def _wrong_option(message: str) -> NoReturn:
    """Raise ConfigError for what argparse says of --cfg=nope, and of --config-dir without a folder."""
    option, _, why = message.removeprefix("argument ").partition(": ")
    chosen = re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", why)
    option = option.partition("/")[0]
    if chosen:
        raise ConfigError(f"{option}={chosen[1]}: choose {chosen[2]}")
    raise ConfigError(f"{option} takes a value: {option}=...")


def _parsed(text: str) -> Override:
    """An override as Hydra's grammar has it."""
    key = text.partition("=")[0]
    if "@" in key and re.fullmatch(rf"{KEY}(@[\w.:]*)+", key, re.ASCII):
        raise ConfigError(f"{text}: write it without @: a group has its own place")
    if not re.match(rf"{KEY}(=|$)", text, re.ASCII) and text not in ("~",):
        raise ConfigError(f"{text}: cannot be read; write key=value, and a key with letters, digits, _ and dots alone")
    if "=" not in text and not text.startswith("~"):
        raise ConfigError(f"{text}: write key=value")
    if text == "~":
        raise ConfigError("~ deletes the key that follows it, as in ~model.head_size: leave it out")
    try:
        return OverridesParser.create().parse_overrides([text])[0]
    except OverrideParseException as error:
        quoted = "'key=\"a,b\"'"
        raise ConfigError(
            f"{text}: cannot be read; write key=value, and quote a value with special characters: {quoted}"
        ) from error


def _own_sweeper(overrides: Sequence[Override], table: bool) -> bool:
    """Whether a sweep is our own, not that of another sweeper, such as Optuna's. Raises ConfigError."""
    chosen = [o for o in overrides if o.key_or_group == "hydra/sweeper" and o.value() != "timescales"]
    if chosen and table:
        raise ConfigError(f"{text_of(chosen[0])}: a table has a sweeper of its own: leave it out, or leave out table=")
    return not chosen


def _check(override: Override, own: bool, several: bool) -> None:
    """Raise ConfigError for an override that would have another effect than its writer expects."""
    key, text = override.key_or_group, text_of(override)
    given = text.partition("=")[2]
    keeps = key == "hydra.job.chdir" and given.lower() in ("false", "null")
    if key in NO_EFFECT and not keeps and not (key == "hydra.sweep.dir" and not own):
        raise ConfigError(f"{text.lstrip('+')} {NO_EFFECT[key]}")
    if any(inner.startswith(f"{key}.") for inner in NO_EFFECT):  # hydra.run={dir:x}
        raise ConfigError(f"{text}: give single settings of {key}; --cfg hydra shows them")
    if key in ("hydra.sweeper", "hydra.launcher"):
        raise ConfigError(f"{text}: leave it out; {key.replace('.', '/')}=NAME chooses one")
    if key == "hydra/launcher" and (package := PACKAGES.get(str(override.value()))) and not _is_here(package):
        raise ConfigError(f"{text} takes packages that are not here: pip install -e '.[launchers]'")
    if key == "hydra/sweeper" and override.value() == "optuna" and not _is_here("hydra_plugins.hydra_optuna_sweeper"):
        raise ConfigError(f"{text} takes a package that is not here: pip install -e '.[optuna]'")
    if own and of_hydra(override) and not key.startswith(READ):
        raise ConfigError(f"{text}: has no effect here: leave it out")
    if not override.is_sweep_override():
        return
    if of_hydra(override):
        raise ConfigError(f"{text}: give one value: a sweep is over settings of runs")
    if key == "table":
        raise ConfigError("table=A,B: one table at a time")
    if not several:
        one_value = folders.is_group(key) or "." not in key or key.startswith("loop.") or "(" in given
        or_list = "" if one_value else f"; if {key} takes a list, it is written '{key}=[{given}]'"
        raise ConfigError(f"{text}: several values are a sweep, which takes -m{or_list}")


def _is_here(package: str) -> bool:
    """Whether a package is installed."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # its parent is not
        return False


def narrows(override: Override) -> bool:
    """Whether an override is about a table's runs: it chooses some, or adds to their settings."""
    return is_of_identity(override.key_or_group)
