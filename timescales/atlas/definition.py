"""The atlas as data, conf/atlas.yaml: abilities, their rungs, and the settings of the runs. Imports no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import yaml

from timescales import paths
from timescales.config import Settings
from timescales.nn import registry

FILL = "fill"  # the value of a setting that evens out the parameters
OF_SCORE = ("metric", "chance", "best")  # the keys of a rung that are no settings of its run


@dataclass(frozen=True)
class Rung:
    """A test: a task, which metric of a run counts, and what it is at chance and at best."""

    name: str
    ability: str
    settings: Settings  # of the task
    metric: str
    chance: float
    best: float

    def score(self, value: float | None) -> float:
        """The score of a run: 0 at chance and below, 1 at best; 0 for a run that diverged, which has no value."""
        if value is None or not math.isfinite(value):
            return 0.0
        return max(0.0, (value - self.chance) / (self.best - self.chance))


class Choice(TypedDict):
    """How the learning rate of a cell is chosen: on which rungs and seed, and by how much it must be better."""

    seed: int
    rungs: list[str]
    margin: float


@dataclass(frozen=True)
class Atlas:
    """What conf/atlas.yaml says; the fields are its keys."""

    name: str  # of its table
    settings: Settings
    units: int
    tolerance: float
    seeds: Sequence[int]
    rates: Sequence[float]
    choice: Choice
    quick: Sequence[str]
    abilities: Mapping[str, str]  # what each is, in words
    rungs: Mapping[str, Rung]
    models: Mapping[str, Settings]
    left_out: Mapping[str, str] = field(default_factory=dict)
    hypotheses: Sequence[Mapping[str, str]] = ()  # before the runs: first > second on a rung, why, and the day
    plain: Atlas | None = None  # the second atlas, of one plain layer: the key `plain` says what differs

    @property
    def rates_table(self) -> str:
        """The name of the table by which learning rates are chosen."""
        return f"{self.name}_rates"

    @property
    def cells(self) -> list[str]:
        """The models that there are."""
        return [name for name in self.models if name in registry.BY_NAME]

    @property
    def rate(self) -> float:
        """The learning rate that is the default: the middle one."""
        return sorted(self.rates)[len(self.rates) // 2]

    def of(self, ability: str) -> list[Rung]:
        """The rungs of an ability."""
        return [rung for rung in self.rungs.values() if rung.ability == ability]

    @property
    def tests(self) -> dict[str, list[Rung]]:
        """The rungs by the first of those that one training answers."""
        found: dict[str, list[Rung]] = {}
        first: dict[str, str] = {}
        for rung in self.rungs.values():
            name = first.setdefault(str(sorted(rung.settings.items())), rung.name)
            found.setdefault(name, []).append(rung)
        return found

    def run(self, rung: Rung, model: Settings, rate: float, seed: int) -> Settings:
        """The settings of a run; model: those of the model, with its units."""
        return {**self.settings, **rung.settings, **model, "optimizer.lr": rate, "seed": seed}


@functools.cache
def atlas(path: Path | None = None) -> Atlas:
    """The atlas; path: another file than conf/atlas.yaml, for tests."""
    said = yaml.safe_load((path or paths.conf() / "atlas.yaml").read_text())
    rungs = {rung.name: rung for rung in _rungs(said["abilities"])}
    abilities = {name: ability["says"] for name, ability in said["abilities"].items()}
    plain = said.pop("plain", None)
    first = Atlas(**said | {"rungs": rungs, "abilities": abilities})
    if plain is None:
        return first
    second = plain | {"settings": {**first.settings, **plain["settings"]}}
    return replace(first, plain=replace(first, **second))


def _rungs(abilities: Mapping[str, Any]) -> Iterator[Rung]:
    for ability, said in abilities.items():
        for name, keys in said["rungs"].items():
            settings = {key: value for key, value in keys.items() if key not in OF_SCORE}
            yield Rung(name, ability, settings, *(keys[key] for key in OF_SCORE))


def chosen(atlas: Atlas, scores: Mapping[float, Mapping[str, float]]) -> float | None:
    """The learning rate of a cell: the one with the best mean score, if that is higher than the middle one's by the
    margin; else the middle one. None while runs are missing.

    scores: of each rate, the score on each of the rungs of the choice.
    """
    rungs = atlas.choice["rungs"]
    if any(rung not in scores.get(rate, {}) for rate in atlas.rates for rung in rungs):
        return None
    means = {rate: sum(scores[rate][rung] for rung in rungs) / len(rungs) for rate in atlas.rates}
    best = max(atlas.rates, key=lambda rate: means[rate])
    return best if means[best] > means[atlas.rate] + atlas.choice["margin"] else atlas.rate
