"""Train one run, or with -m a sweep: `python train.py model=plstm task=copy task.T=500`; keys: conf/config.yaml."""

import logging
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from timescales import cli, record, schema

schema.register()


@hydra.main(version_base="1.3", config_path=str(cli.conf()), config_name="config")
@cli.job
def main(cfg: DictConfig) -> str:
    """Run one composed configuration, unless it is finished already; returns the run's status."""
    directory, run_id, slug = Path(cfg.run_dir), schema.identity(cfg), schema.slug(cfg)
    anew = record.anew(directory, cfg.force)
    if not anew and record.done(directory, run_id):
        found = record.read(directory)
        again = "stale: its numbers have changed since; force=stale" if record.stale(found) else "force=true"
        print(f"finished, skipped: {directory} ({again} runs it again)")
        print(f"  {record.summary(found)}")
        return "skipped"
    with record.lock(directory):
        try:
            schema.check(cfg)
            if anew or not cfg.resume:
                record.clear(directory)
            return train(schema.resolved(cfg), run_id, directory)
        except schema.ConfigError:
            record.discard_unless_begun(directory, slug)
            raise
        except Exception as error:
            logging.getLogger(__name__).exception("the run failed")
            record.update(directory, status="failed", error=f"{type(error).__name__}: {error}")
            raise


def train(config: dict[str, Any], run_id: str, directory: Path) -> str:
    """Build, fit, test, and write the record."""
    from timescales import build, loggers, loop  # here, not above: --help does not wait for torch

    record.start(directory, run_id, config)
    model, task, optimizer = build.build(config)
    parameters = sum(p.numel() for p in model.parameters())
    times = {"start": loop.timescale_quantiles(model)}
    record.update(
        directory, config=config, device=config["device"], parameters=parameters, timescales=times,
        partial=record.partial(config) + task.partial,
    )  # fmt: skip
    settings = schema.Loop(**config["loop"])
    begun = loop.where(directory)
    log = loggers.open_all(config, directory, begun, settings, task, model.rnn.timescales)
    try:
        if begun == 0:
            log(loop.named(times["start"]), 0)
        progress = loop.fit(model, task, optimizer, log, settings, directory)
        times["end"] = loop.timescale_quantiles(model)
        log(loop.named(times["end"]), progress.step)
        outcome = loop.outcome(model, task, optimizer, progress, settings, directory)
        record.update(directory, timescales=times, **outcome)
    finally:
        found = record.read(directory)
        log.finish(found)
    print(f"{directory}\n  {record.summary(found)}")
    return outcome["status"]


if __name__ == "__main__":
    cli.run(main)
