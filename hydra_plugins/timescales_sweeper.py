"""The sweeper: skips finished runs before torch is loaded, goes on after a failed one, says how far it is."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, open_dict

from timescales import cli, record, schema

ConfigStore.instance().store("timescales", {"_target_": f"{__name__}.TimescalesSweeper"}, "hydra/sweeper")


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.partition("=")[0].lstrip("+~")


class TimescalesSweeper(BasicSweeper):
    """Hydra's basic sweeper (all combinations of the values given), over runs that are known by their identity.

    One job at a time with the basic launcher, all at once with any other. With run_dir=DIR each run gets
    DIR/<its usual name>. Raises SweepFailed at the end if any job failed.
    """

    def __init__(self) -> None:
        super().__init__(max_batch_size=None)

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        assert self.hydra_context is not None
        assert self.launcher is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        jobs = self.split_arguments(parser.parse_overrides(arguments), None)[0]
        failures, finished = 0, 0
        todo: dict[str, list[str]] = {}  # overrides by run directory: the same run asked for twice is one
        composed: dict[tuple[str, ...], DictConfig] = {}
        for overrides in jobs:
            try:
                cfg = self._compose(overrides, composed)
                schema.check(cfg)
                run_id, directory = schema.identity(cfg), Path(cfg.run_dir)
                if any(key_of(override) == "run_dir" for override in overrides):
                    directory = directory / schema.slug(cfg)
                    place = str(directory).replace("'", "\\'")
                    overrides = [*(o for o in overrides if key_of(o) != "run_dir"), f"run_dir='{place}'"]
                if not cfg.force and record.done(directory, run_id):
                    finished += 1
                else:
                    todo[str(directory)] = overrides
            except Exception as error:
                failures += self._failed(overrides, error)
        print(f"{len(jobs)} runs: {finished} finished, skipped; {len(todo)} to run", flush=True)
        returns: list[JobReturn] = []
        begun = time.monotonic()
        one_by_one = isinstance(self.launcher, BasicLauncher)
        batches = [{directory: job} for directory, job in todo.items()] if one_by_one else [todo] if todo else []
        for batch in batches:
            if one_by_one:
                left = (time.monotonic() - begun) / len(returns) * (len(todo) - len(returns)) if returns else None
                word = "" if left is None else f" (about {left / 60:.0f} min left)"
                print(f"[{len(returns) + 1}/{len(todo)}]{word} {next(iter(batch))}", flush=True)
            results = list(self.launcher.launch(list(batch.values()), initial_job_idx=len(returns)))
            returns += results
            for job, result in zip(batch.values(), results, strict=True):
                if result.status != JobStatus.COMPLETED:
                    failures += self._failed(job, result._return_value)
        if failures:
            raise cli.SweepFailed(f"{failures} of {len(jobs)} runs failed")
        return returns

    def _compose(self, overrides: list[str], composed: dict[tuple[str, ...], DictConfig]) -> DictConfig:
        """A job's configuration; composed once for all its seeds."""
        assert self.hydra_context is not None
        assert self.config is not None
        key = tuple(override for override in overrides if key_of(override) != "seed")
        if key not in composed:
            cfg = self.hydra_context.config_loader.load_sweep_config(self.config, list(key))
            with open_dict(cfg):
                del cfg["hydra"]  # much the largest part, and no part of a run
            composed[key] = cfg
        cfg = composed[key].copy()
        for override in overrides:
            if key_of(override) == "seed":
                cfg.seed = override.partition("=")[2]
        return cfg

    def _failed(self, overrides: Any, error: BaseException) -> int:
        line = cli.one_line(error, list(overrides))
        if line is None:
            line = f"{type(error).__name__}: {error} (traceback in the run's train.log)"
        print(f"failed: {' '.join(overrides)}\n  {line}", flush=True)
        # The frames of the failed job would keep its tensors alive.
        traceback.clear_frames(error.__traceback__)
        return 1
