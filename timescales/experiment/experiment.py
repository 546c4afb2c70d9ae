"""What a command line asks for, done: one run, a sweep, a table's runs, or a look at the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from timescales.config import hydra_internals, messages, schema, values
from timescales.config.command_line import CommandLine, narrows
from timescales.config.compose import Composer, chooses, composing, text_of
from timescales.errors import ConfigError
from timescales.experiment import execute, extend, plan
from timescales.experiment.plan import Plan
from timescales.experiment.queue import Launcher, Queue, outcomes
from timescales.papers import load

JOBLIB, SLURM = (f"hydra_plugins.timescales_launchers.Timescales{name}" for name in ("Joblib", "Slurm"))


def do(asked: CommandLine, main: Callable[[], object]) -> None:
    """Do what a command line asks for; main: @hydra.main's, for what Hydra does by itself."""
    with composing() as composer:
        if asked.kind == "show":
            show(asked, composer)
        elif asked.kind == "run":
            one_run(asked, composer)
        elif asked.kind in ("sweep", "table"):
            sweep(asked, composer)
        else:
            if asked.overrides:  # what is wrong is named here, before Hydra composes it
                composer([override for override in asked.of_runs if not override.is_sweep_override()])
                composer.hydra(asked.of_hydra)
    if asked.kind == "hydra":
        hydra_internals.call_main(main, asked.options)


def show(asked: CommandLine, composer: Composer) -> None:
    """Print a configuration as Hydra does (--cfg job), or a part of it (--package)."""
    cfg: Any = extend.configuration(asked.of_runs, composer) if asked.extends else composer(asked.of_runs)
    package = asked.options.package
    if package and package != "_global_":
        cfg = OmegaConf.select(cfg, package)
        if cfg is None:
            raise ConfigError(f"--package={package}: no such key; --cfg job without it shows all of them")
        print(f"# @package {package}")
    if asked.options.resolve:
        OmegaConf.resolve(cfg)
    print(OmegaConf.to_yaml(cfg) if OmegaConf.is_config(cfg) else f"{cfg}\n", end="")


def one_run(asked: CommandLine, composer: Composer) -> None:
    """Train one run, or the seeds of one configuration."""
    if asked.of_hydra:
        composer.hydra(asked.of_hydra)
    runs = [extend.run(asked.of_runs, composer)] if asked.extends else plan.single(asked.of_runs, composer)
    execute.execute(runs)


def sweep(asked: CommandLine, composer: Composer) -> None:
    """Train a sweep's or a table's runs."""
    hydra = composer.hydra(asked.overrides).hydra
    launcher, minutes = launcher_of(hydra.launcher), hydra.sweeper.minutes
    if minutes is not None and not (values.fits(minutes, float) and minutes > 0):
        raise ConfigError(f"hydra.sweeper.minutes must be a number above 0, or null; not {minutes}")
    if minutes is not None and launcher is not None:
        raise ConfigError("hydra.sweeper.minutes is for one job at a time: leave it out with this launcher")
    made, analyses = plan_of_table(asked, composer) if asked.kind == "table" else (plan_of_sweep(asked, composer), ())
    queue = Queue(made, launcher=launcher, minutes=minutes, analyses=analyses, continuing=asked.continuing())
    queue.work(note="" if asked.kind == "table" else plan.unequal(made.runs))
    if asked.kind == "sweep" and len(made.runs) > 1:
        print("\n".join(["", *outcomes(queue)]), flush=True)
    queue.raise_failures()


def plan_of_sweep(asked: CommandLine, composer: Composer) -> Plan:
    """The runs of a sweep over all combinations. Raises ConfigError for a wrong value, before others are trained."""
    made = plan.plan(plan.combinations(asked.of_runs, composer), composer)
    for wrong in made.wrong:
        if wrong.mistyped and (line := messages.one_line(wrong.error)):
            raise ConfigError(line)
    return made


def plan_of_table(asked: CommandLine, composer: Composer) -> tuple[Plan, tuple[str, ...]]:
    """The runs of a table, or those of them that are asked for, and the analyses that it asks for of each."""
    table = load.table(str(asked.value("table")))
    narrow = [override for override in asked.of_runs if narrows(override)]
    shared = [o for o in asked.of_runs if not narrows(o) and o.key_or_group not in ("table", "profile")]
    if several := [text_of(override) for override in shared if override.is_sweep_override()]:
        raise ConfigError(f"{several[0]}: give one value: it makes no other runs of a table")
    cfg = composer([o for o in asked.of_runs if o.key_or_group in ("table", "profile")])
    schema.check(cfg)
    requests = plan.requests_of(table, cfg.profile, composer, narrow)
    files = [override for request in requests[:1] for override in request if chooses(override)]
    schema.check(composer([*files, *shared]))  # task.allow_partial is a key of some tasks alone
    tag = composer.parse(f"++logger.table={table.name}")  # for W&B alone; no part of a run's identity
    made = plan.plan([[*request, *shared, tag] for request in requests], composer, seeds_named=True)
    return made, table.probe


def launcher_of(node: DictConfig) -> Launcher | None:
    """What launches a sweep's runs all together; None: they are trained here, one after another."""
    parameters: Any = OmegaConf.to_container(node, resolve=True)
    target = parameters.pop("_target_")
    return None if target == hydra_internals.BASIC_LAUNCHER else partial(launch_of(target), execute.execute, parameters)


def launch_of(target: str) -> Callable[..., Sequence[Any]]:
    """The `launch` that a launcher of Hydra's configuration stands for. Raises ConfigError for one that is not ours."""
    if target == JOBLIB:
        from timescales.experiment import processes

        return processes.launch
    if target == SLURM:
        from timescales.experiment import slurm

        return slurm.launch
    raise ConfigError(f"hydra.launcher._target_={target}: a sweep here takes hydra/launcher=joblib or slurm, or none")
