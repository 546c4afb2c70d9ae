"""Train one run, or with -m a sweep: `python train.py model=plstm task=copy task.T=500`; keys: conf/config.yaml."""

from __future__ import annotations

from timescales import extras

with extras.command():
    import hydra
    from omegaconf import DictConfig

    from timescales import cli, paths
    from timescales.config import identity
    from timescales.experiment import execute

identity.register()


@hydra.main(version_base="1.3", config_path=str(paths.conf()), config_name="config")
def main(cfg: DictConfig) -> float:
    """What Hydra calls for another sweeper than ours, such as Optuna's; returns the run's value. Else see `cli.run`."""
    return execute.composed(cfg)


if __name__ == "__main__":
    cli.run(main)
