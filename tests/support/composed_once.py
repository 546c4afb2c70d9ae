"""What Hydra reads and composes for every configuration, done once in a process that imports this module.

The results are Hydra's own. It imports no torch: tests/faults/random_overrides.py uses it, too.
"""

import functools
import pickle
from pathlib import Path

import omegaconf.base
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from timescales.config import compose, folders

CONF = Path(__file__).resolve().parents[2] / "conf"
READ: dict[str, bytes] = {}
load_file = OmegaConf.load


def load_once(file):
    """What OmegaConf.load gives. Each text is parsed once: Hydra reads the same files for every configuration."""
    if not hasattr(file, "read"):
        return load_file(file)
    text = file.read()
    if text not in READ:
        file.seek(0)  # an error names the file
        READ[text] = pickle.dumps(load_file(file))
    return pickle.loads(READ[text])


OmegaConf.load = load_once
omegaconf.base.parse = functools.lru_cache(maxsize=1000)(omegaconf.base.parse)  # of an interpolation
read_mode = Hydra.get_mode


def get_mode(hydra, config_name, overrides):
    """What Hydra's own gives. It composes a whole configuration to read hydra.mode, which no file of ours sets."""
    return read_mode(hydra, config_name, overrides) if "hydra.mode" in " ".join(overrides) else None


Hydra.get_mode = get_mode
# Hydra copies its sources of files for each configuration, and with them its store, which nothing changes.
ConfigStore.__deepcopy__ = lambda store, memo: store


def state_of(places):
    """Some folders, their files of configurations, and what changes with their content. Those of CONF never change."""
    roots = tuple(map(Path, places))
    files = [(file, file.stat()) for root in roots if root != CONF for file in sorted(root.rglob("*.yaml"))]
    return roots, *((file, status.st_mtime_ns, status.st_size) for file, status in files)


def files_of(repo):
    return state_of(source.path for source in repo.get_sources() if source.scheme() == "file")


LISTED: dict[tuple, bytes] = {}
list_files = defaults_list._create_defaults_list


def choices_in(overrides):
    """What overrides say of groups. Hydra notes there which of them it has used."""
    return {name: value for name, value in vars(overrides).items() if name != "config_overrides"}


def list_once(repo, config_name, overrides, **options):
    """What Hydra's own gives: the files that choices of groups stand for, listed once while they are as they are."""
    key = (config_name, str(choices_in(overrides)), str(options), files_of(repo))
    if key not in LISTED:
        found = list_files(repo, config_name, overrides, **options)
        LISTED[key] = pickle.dumps((found, choices_in(overrides)))
    found, noted = pickle.loads(LISTED[key])
    vars(overrides).update(noted)
    return found


defaults_list._create_defaults_list = list_once
COMPOSED: dict[tuple, bytes] = {}
compose_files = ConfigLoaderImpl._compose_config_from_defaults_list


def compose_once(loader, defaults, repo):
    """What Hydra's own gives: the files that a command chooses, composed once while they are as they are."""
    key = (str(defaults), files_of(repo))
    if key not in COMPOSED:
        COMPOSED[key] = pickle.dumps(compose_files(loader, defaults, repo))
    return pickle.loads(COMPOSED[key])


ConfigLoaderImpl._compose_config_from_defaults_list = compose_once
really_made = compose.Composer


@functools.lru_cache(maxsize=8)
def composer(files):
    """A composer, for all tests: it keeps what it has composed, for which Hydra takes a tenth of a second."""
    return really_made()


# What `Composer()` gives, kept while the files of configurations are as they are.
compose.Composer = lambda: composer(state_of(folders.places()))
