"""Train one run, a sweep (-m) or a table (table=NAME): `python train.py --help` has examples, conf/base.yaml all keys.

`python train.py model=plstm task=copy task.T=20 loop.max_steps=3000` takes some minutes, task.T=500 many hours.
"""

from __future__ import annotations

from timescales import extras

with extras.command():
    import contextlib
    import os
    import signal
    import sys
    import traceback
    import warnings
    from collections.abc import Iterator

    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.main import get_args_parser
    from hydra.types import RunMode
    from omegaconf import DictConfig

    from timescales import paths
    from timescales.config import folders
    from timescales.config.compose import WRONG_INPUT
    from timescales.config.values import spell
    from timescales.errors import ConfigError, one_line
    from timescales.experiment.train import train_all

FULL = os.environ.get("HYDRA_FULL_ERROR") == "1"  # show tracebacks, also of wrong input
# Hydra warns that our hydra/launcher/joblib.yaml replaces the plugin's. It is meant to.
warnings.filterwarnings("ignore", r"\s*'hydra/launcher/joblib' is validated against", UserWarning)


@hydra.main(version_base="1.3", config_path=str(paths.conf()), config_name="config")
def main(cfg: DictConfig) -> float | None:
    """Train what Hydra has composed: a run, or one for each of `seeds` seeds; returns their value, for a sweeper."""
    config = HydraConfig.get()
    single = config.mode is RunMode.RUN
    # Before an error of a single run Hydra would print a line of its own. Of a sweep's runs the sweeper takes note.
    with one_line_errors() if single else contextlib.nullcontext():
        folders.use_sources(config.runtime.config_sources)
        if single and (launcher := [text for text in config.overrides.hydra if "hydra/launcher=" in text]):
            raise ConfigError(f"{launcher[0]} is for sweeps: add -m")
        ours = config.runtime.choices["hydra/sweeper"] == "timescales"
        if cfg.skip == "committed" and (single or not ours):  # only our sweeper reads results/
            raise ConfigError("skip=committed is for a table or -m, without hydra/sweeper=NAME: leave it out here")
        given = [text.lstrip("+~").partition("=")[0] for text in config.overrides.task]
        for note in folders.replaced_by_recipes(config.runtime.choices, given, cfg):
            print(note, flush=True)
        return train_all(cfg, config.overrides.task, config.sweeper.get("direction"))


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End the process with one line for an error that the user can fix, unless HYDRA_FULL_ERROR=1."""
    try:
        yield
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1].filename
        # Some wrong input, such as range(0,3,0), ends in an error of Python within Hydra.
        of_user = isinstance(error, WRONG_INPUT) or {"hydra", "omegaconf"} & {*where.split(os.sep)}
        if FULL or not of_user or (isinstance(error, OSError) and error.errno and not error.filename):
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        sys.exit(1)


def arguments(words: list[str]) -> list[str]:
    """Order a command line for Hydra: options first, and the settings of a sweep or a table as `hydra.sweeper.runs`.

    Hydra takes no options between settings. And it composes a first configuration for the sweep itself, which would
    refuse a setting that only the files have that are swept over.
    """
    words = ["rung=small" if word in ("profile=small", "profile=tiny") else word for word in words]  # older names
    given = get_args_parser().parse_intermixed_args(words)  # Hydra's own, which knows the options that take a value
    options = [word for word in words if word not in given.overrides]
    several = given.multirun or any(word.startswith("table=") for word in given.overrides)
    if several and (given.config_name or given.config_path):  # the runs of a sweep are composed from conf/base.yaml
        raise ConfigError("--config-name (-cn), --config-path (-cp) are for single runs: a sweep takes --config-dir")
    foreign = any(word.startswith("hydra/sweeper=") for word in given.overrides)
    if given.cfg or given.help or given.info or foreign or not several:
        return [*options, *given.overrides]
    of_hydra = [word for word in given.overrides if word.startswith(("hydra.", "hydra/"))]
    runs = [word.replace("${", "\\${") for word in given.overrides if word not in of_hydra]
    return [*options, "--multirun", *of_hydra, f"hydra.sweeper.runs={spell(runs)}"]


def run() -> None:
    """Do what the command line asks for."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors instead of printing them
    words = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGHUP):  # in a training they save first (`training.interrupt`)
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        with one_line_errors():
            sys.argv[1:] = arguments(words)
            main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a further one would print a traceback while Python ends
        saved = f"Saved {error}" if str(error) else "Stopped without saving"
        restarts = [word for word in words if word.lstrip("+").lower() in ("force=true", "resume=false")]
        without = f" without {' '.join(restarts)}" if restarts else ""
        print(f"\n{saved}. Run the same command{without} to continue.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
