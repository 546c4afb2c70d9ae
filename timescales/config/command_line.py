"""The command line, read once by Hydra's own parsers, and refused with one line where it would not do what it says.

Imports no torch.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hydra.core.override_parser.types import Override

from timescales.config import folders, hydra_internals
from timescales.config.compose import OF_GROUPS, of_hydra, parse, text_of
from timescales.errors import ConfigError

# Of Hydra's settings those that our own runs and sweeps go by.
READ = ("hydra/launcher", "hydra.launcher.", "hydra/sweeper", "hydra.sweeper.", "hydra.mode")
# With another sweeper these would move runs to another place, or take files from elsewhere.
NEVER_READ = ("hydra.run.dir", "hydra.job.chdir", "hydra.searchpath")
MODES = ("run", "multirun", "cfg", "info", "shell_completion")
LAUNCHERS = (None, "basic", "joblib", "slurm")  # with another one, such as Ray's, Hydra's own sweeper sweeps
OLDER_WORDS = {"profile=small": "rung=small", "profile=tiny": "rung=small"}
# What chosen files need: a package, and the extra of this one that installs it.
PACKAGES = {
    "hydra/launcher=joblib": ("joblib", "launchers"),
    "hydra/launcher=slurm": ("hydra_plugins.hydra_submitit_launcher", "launchers"),
    "hydra/sweeper=optuna": ("hydra_plugins.hydra_optuna_sweeper", "optuna"),
}


@dataclass(frozen=True)
class CommandLine:
    """What was asked for: Hydra's options, and the overrides.

    kind: "hydra", what Hydra does by itself: help, --info, --cfg hydra, completion, another sweeper or launcher than
    ours; "show", --cfg job; "run"; "sweep"; "table".
    """

    options: argparse.Namespace
    overrides: Sequence[Override]
    kind: str

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

    def continuing(self) -> str:
        """In words, how a command that was interrupted is continued."""
        texts = map(text_of, self.overrides)
        restarting = [text for text in texts if text.lstrip("+").lower() in ("force=true", "resume=false")]
        if not restarting:
            return "the same command continues"
        return f"the same command without {' '.join(restarting)} continues; runs that had not begun need it again"


def read(arguments: Sequence[str]) -> CommandLine:
    """A command line. Raises ConfigError for one that has an error, or asks for what is not done."""
    arguments = [OLDER_WORDS.get(argument, argument) for argument in arguments]
    options = _options(arguments)
    folders.use(options.config_dir)
    if options.shell_completion:  # its words are no overrides
        return CommandLine(options, [], "hydra")
    asked = CommandLine(options, [parse(text) for text in options.overrides], "hydra")
    table, sweeper, extends = (asked.value(key) for key in ("table", "hydra/sweeper", "extend"))
    other = sweeper not in (None, "timescales")
    several = options.multirun or asked.value("hydra.mode") == "MULTIRUN"
    for override in asked.overrides:
        _check(override, own=not other, several=several or bool(table))
    if other and table:
        raise ConfigError(f"hydra/sweeper={sweeper}: a table has a sweeper of its own: leave out one of the two")
    if table and options.cfg in ("job", "all"):
        raise ConfigError(f"table={table} has many runs, --cfg shows one: make plan TABLE={table} lists them")
    if options.cfg or options.help or options.hydra_help or options.info is not None:
        return CommandLine(options, asked.overrides, "show" if options.cfg == "job" else "hydra")
    kind = "table" if table else "sweep" if several else "run"
    if kind == "sweep" and not other and asked.value("hydra/launcher") not in LAUNCHERS:
        return read([*arguments, "hydra/sweeper=basic"])
    kind = "hydra" if kind == "sweep" and other else kind
    if extends is not None and kind != "run":
        text = text_of(next(o for o in asked.overrides if o.key_or_group == "extend"))
        raise ConfigError(f"{text} continues one run: give it without -m, table=, hydra/sweeper=")
    return CommandLine(options, asked.overrides, kind)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """Hydra's options, which may stand before, between and after overrides."""
    parser = hydra_internals.args_parser()
    parser.error = _wrong_option  # type: ignore[method-assign]
    options, unknown = parser.parse_known_intermixed_args(list(arguments))
    for word in unknown:
        if word.startswith("-"):
            key, _, value = word.lstrip("-").partition("=")
            raise ConfigError(f"{word}: no such option; a setting is written {key}={value or '...'}, without dashes")
    for option, given in (("config-name", options.config_name), ("config-path", options.config_path)):
        if given is not None:
            raise ConfigError(f"--{option}={given}: leave it out; --config-dir=FOLDER adds your own files")
    if sum(bool(getattr(options, mode)) for mode in MODES) > 1:
        raise ConfigError("give only one of --run, --multirun (-m), --cfg, --info and --shell-completion")
    if options.resolve and not (options.cfg or options.help):
        raise ConfigError("--resolve takes --cfg job, too: it shows the configuration")
    return options


def _wrong_option(message: str) -> NoReturn:
    """Raise ConfigError for what argparse says of --cfg=nope, and of --config-dir without a folder."""
    option, _, why = message.removeprefix("argument ").partition(": ")
    raise ConfigError(f"{option.partition('/')[0]} takes another value: {why.removeprefix('invalid choice: ')}")


def _check(override: Override, own: bool, several: bool) -> None:
    """Raise ConfigError for an override that would have another effect than its writer expects.

    own: with our own sweeper; several: in a sweep.
    """
    key, text = override.key_or_group, text_of(override)
    if of_hydra(override):
        no_effect = not key.startswith(READ) if own else any(f"{name}.".startswith(f"{key}.") for name in NEVER_READ)
        if no_effect:
            raise ConfigError(f"{text}: has no effect here: leave it out; there are run_dir=DIR and --config-dir=DIR")
    package, extra = PACKAGES.get(f"{key}={override.value()}", ("", ""))
    if package and importlib.util.find_spec(package) is None:
        raise ConfigError(f"{text} takes a package that is not here: pip install -e '.[{extra}]'")
    if override.is_sweep_override():
        if of_hydra(override) or key == "table":
            raise ConfigError(f"{text}: give one value: a sweep is over settings of runs")
        if not several:
            may_be_list = key.startswith(OF_GROUPS) and "(" not in text
            or_list = f"; a list is written '{key}=[{text.partition('=')[2]}]'" if may_be_list else ""
            raise ConfigError(f"{text}: several values are a sweep, which takes -m{or_list}")
