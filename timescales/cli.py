"""What a command line asks for, done: one run, a sweep, a table's runs, or a look at the configuration.

Wrong input becomes one line and exit status 1, a bug keeps its traceback. Imports no torch.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import OmegaConf

from timescales.config import command_line, hydra_internals, identity, messages, schema, values
from timescales.config.command_line import CommandLine
from timescales.config.compose import Composer, composing, text_of
from timescales.errors import ConfigError
from timescales.experiment import execute, extend, plan
from timescales.experiment.plan import Plan
from timescales.experiment.queue import Launcher, Queue, number_of_runs, outcomes
from timescales.papers import load

# Of the launchers in Hydra's configuration, the modules that launch.
LAUNCHERS = {
    "hydra_plugins.timescales_plugins.TimescalesJoblib": "timescales.experiment.processes",
    "hydra_plugins.timescales_plugins.TimescalesSlurm": "timescales.experiment.slurm",
}


def run(main: Callable[[], object]) -> None:
    """Do what the command line asks for; main: @hydra.main's, for what Hydra does by itself.

    Wrong input becomes one line and exit status 1, unless HYDRA_FULL_ERROR=1.
    """
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing and exiting
    logging.raiseExceptions = False  # no traceback for a log that a full disk does not take
    continuing = "the same command continues"
    try:
        asked = command_line.read(sys.argv[1:])
        continuing = asked.continuing()
        do(asked, main)
        sys.stdout.flush()
    except BrokenPipeError:
        output = select.poll()
        output.register(sys.stdout, 0)
        if not output.poll(0):
            raise  # another pipe than our output: a bug
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)  # the reader of our output has gone, as `head` does
    except KeyboardInterrupt as interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a further one would print a traceback while Python ends
        saved = f"interrupted {interrupt}: saved" if str(interrupt) else "interrupted: what was not saved yet is lost"
        print(f"\n{saved}; {continuing}", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        line = None if full_error else messages.one_line(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        sys.exit(1)


def do(asked: CommandLine, main: Callable[[], object]) -> None:
    """Do what a command line asks for; main: @hydra.main's, for what Hydra does by itself."""
    with composing() as composer:
        if asked.kind == "show":
            show(asked, composer)
        elif asked.kind == "run":
            if asked.of_hydra:  # what is wrong in them is named
                composer.hydra(asked.of_hydra)
            extends = asked.value("extend") is not None
            execute.execute([extend.run(asked.of_runs, composer)] if extends else plan.single(asked.of_runs, composer))
        elif asked.kind in ("sweep", "table"):
            sweep(asked, composer)
        elif asked.overrides:  # what is wrong is named here, before Hydra composes it
            composer([override for override in asked.of_runs if not override.is_sweep_override()])
            composer.hydra(asked.of_hydra)
    if asked.kind == "hydra":
        hydra_internals.call_main(main, asked.options)


def show(asked: CommandLine, composer: Composer) -> None:
    """Print a configuration as Hydra does (--cfg job), or a part of it (--package)."""
    extends, package = asked.value("extend") is not None, asked.options.package
    cfg: Any = extend.continued(asked.of_runs, composer)[0] if extends else composer(asked.of_runs)
    if package and package != "_global_":
        cfg = OmegaConf.select(cfg, package)
        if cfg is None:
            raise ConfigError(f"--package={package}: no such key; --cfg job without it shows all of them")
        print(f"# @package {package}")
    if asked.options.resolve:
        OmegaConf.resolve(cfg)
    print(OmegaConf.to_yaml(cfg) if OmegaConf.is_config(cfg) else f"{cfg}\n", end="")


def sweep(asked: CommandLine, composer: Composer) -> None:
    """Train a sweep's or a table's runs."""
    hydra = composer.hydra(asked.overrides).hydra
    launcher, minutes = launcher_of(OmegaConf.to_container(hydra.launcher, resolve=True)), hydra.sweeper.minutes
    if minutes is not None and not (values.fits(minutes, float) and minutes > 0):
        raise ConfigError(f"hydra.sweeper.minutes must be a number above 0, or null; not {minutes}")
    if minutes is not None and launcher is not None:
        raise ConfigError("hydra.sweeper.minutes is for one job at a time: leave it out with this launcher")
    if asked.kind == "table":
        made, analyses = plan_of_table(asked, composer)
    else:
        made, analyses = plan.plan(plan.combinations(asked.of_runs, composer), composer), ()
    queue = Queue(made, launcher=launcher, minutes=minutes, analyses=analyses, continuing=asked.continuing())
    queue.work(note="" if asked.kind == "table" else plan.unequal(made.runs))
    if asked.kind == "sweep" and len(made.runs) > 1:
        print("\n".join(["", *outcomes(queue)]), flush=True)
    if queue.failures:
        raise ConfigError(f"{queue.failures} of {number_of_runs(made.requested)} failed")


def launcher_of(parameters: Any) -> Launcher | None:
    """What trains runs by Hydra's configuration of a launcher; None for one after another in this process."""
    target = parameters.pop("_target_")
    if target == hydra_internals.BASIC_LAUNCHER:
        return None
    return partial(launch_of(target), execute.execute, parameters)


def launch_of(target: str) -> Callable[..., Any]:
    """The `launch` that a launcher of Hydra's configuration stands for. Raises ConfigError for one that is not ours."""
    if target not in LAUNCHERS:
        raise ConfigError(
            f"hydra.launcher._target_={target}: hydra/launcher is joblib, slurm or none here; "
            "a sweep without table= takes another one on the command line: -m hydra/launcher=NAME"
        )
    return importlib.import_module(LAUNCHERS[target]).launch


def plan_of_table(asked: CommandLine, composer: Composer) -> tuple[Plan, tuple[str, ...]]:
    """The runs of a table, or those of them that are asked for, and the analyses that it asks for of each."""
    table, chosen = load.table(str(asked.value("table"))), ("table", "rung")
    narrow = [o for o in asked.of_runs if identity.is_of_identity(o.key_or_group)]
    shared = [o for o in asked.of_runs if o not in narrow and o.key_or_group not in chosen]
    if several := [text_of(override) for override in shared if override.is_sweep_override()]:
        raise ConfigError(f"{several[0]}: give one value: it makes no other runs of a table")
    cfg = composer([o for o in asked.of_runs if o.key_or_group in chosen])
    schema.check(cfg)
    requests = plan.requests_of(table, table.size_of(cfg.rung), composer, narrow)
    tag = composer.parse(f"++logger.table={table.name}")  # for W&B alone; no part of a run's identity
    made = plan.plan([[*request, *shared, tag] for request in requests], composer, seeds_named=True)
    together = composer([*requests[0], *shared]).seeds if requests else 1
    families = {identity.family(run.config) for run in made.runs} if together > 1 else set()
    if families and len(families) == len(made.runs):
        print(
            f"note: seeds={together} trains seeds of a setting together, and each has one here: name more, as seed=0,1"
        )
    return made, table.probe
