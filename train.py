"""Train one run, or with -m a sweep: `python train.py model=plstm task=copy task.T=500`; keys: conf/config.yaml."""

import contextlib
import copy
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from omegaconf import DictConfig

from timescales import cli, errors, paths
from timescales.config import check, identity, schema
from timescales.runs import lock, record
from timescales.runs.decide import Action, decide

identity.register()


class Run(NamedTuple):
    """One run that is asked for."""

    cfg: DictConfig
    run_id: str
    slug: str
    directory: Path
    anew: bool  # whether what lies in the directory is to be thrown away


@hydra.main(version_base="1.3", config_path=str(paths.conf()), config_name="config")
@cli.job
def main(cfg: DictConfig) -> str:
    """Run one composed configuration, or each of its seeds, unless it is finished already; returns the status."""
    todo = [run for one in identity.each_seed(cfg) if (run := unfinished(one))]
    with lock.hold_all([run.directory for run in todo]) as ours:
        todo = [run for run in todo if run.directory in ours]
        try:
            check.check(cfg)
            # It may have gone on or ended elsewhere since we looked.
            todo = [found for run in todo if (found := unfinished(run.cfg))]
            return train(todo, ours) if todo else "skipped"
        except lock.RunningElsewhere:  # taken over: what lies there is another process's
            raise
        except errors.ConfigError:
            for run in todo:
                record.discard_unless_begun(run.directory, run.slug)
            raise


def unfinished(cfg: DictConfig) -> Run | None:
    """The run of a configuration; None, with a line that says so, if it is finished and not to be run again."""
    directory, run_id = Path(cfg.run_dir), identity.identity(cfg)
    action = decide(directory, run_id, cfg.force, cfg.resume, cfg.task.get("allow_partial", True))
    if action is not Action.SKIP:
        return Run(cfg, run_id, identity.slug(cfg), directory, action is Action.RESTART)
    found = record.read(directory)
    again = "stale: its numbers have changed since; force=stale" if record.stale(found) else "force=true"
    print(f"finished, skipped: {directory} ({again} runs it again)")
    print(f"  {record.summary(found)}")
    return None


def train(runs: list[Run], ours: dict[Path, lock.Lock]) -> str:
    """Train one run, or several that differ in their seeds side by side."""
    from timescales.training import loop, stack  # here, not above: --help does not wait for torch

    trained = [training(identity.resolved(run.cfg), run.run_id, ours[run.directory], run.anew) for run in runs]
    found = [loop.answered(trained[0], loop.take)] if len(runs) == 1 else stack.together(trained)
    return ", ".join(sorted(set(found)))


def training(config: dict[str, Any], run_id: str, held: lock.Lock, anew: bool) -> Generator[Any, Any, str]:
    """Build, fit, test, and write the record; asks for every step and validation as `loop.training` does."""
    from timescales.runs import loggers, wandb_run
    from timescales.training import build, loop

    directory, log = held.directory, None
    asked = copy.deepcopy(config)  # building fills in what is "auto"
    replaces = anew and record.begun(directory)  # what is there is lost only when its successor can begin
    if not replaces:
        record.start(directory, run_id, asked, anew)
    try:
        model, task, optimizer = build.build(config)
        wandb_run.check(config["logger"])
        if replaces:
            record.start(directory, run_id, asked, anew)
        settings, begun = schema.Loop(**config["loop"]), loop.resume_step(directory, task.partial)
        parameters, chance = sum(p.numel() for p in model.parameters()), task.chance()
        times = {"start": loop.timescale_quantiles(model)}
        record.update(
            directory, config=config, device=config["device"], parameters=parameters, chance=chance,
            timescales=times, partial=record.partial(config) + task.partial,
        )  # fmt: skip
        log = loggers.open_all(config, directory, begun, settings, task, chance, model.rnn.timescales, held.check)
        if begun == 0:
            log(loop.timescale_values(times["start"]), 0)
        progress = yield from loop.training(model, task, optimizer, log, settings, directory)
        times["end"] = loop.timescale_quantiles(model)
        log(loop.timescale_values(times["end"]), progress.step)
        outcome = loop.outcome(model, task, optimizer, progress, settings, directory)
        held.check()
        record.update(directory, timescales=times, **outcome)
    except errors.ConfigError:
        raise
    except Exception as error:
        record.failed(directory, error)
        with contextlib.suppress(OSError):  # the log cannot be written: that is not what went wrong
            logging.getLogger(__name__).exception("the run failed")
        raise
    finally:
        if log is not None:
            log.finish(record.read(directory))
    print(f"{directory}\n  {record.summary(record.read(directory))}")
    return outcome["status"]


if __name__ == "__main__":
    cli.run(main)
