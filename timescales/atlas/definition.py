"""Read the definition of the atlas, conf/atlas.yaml: abilities, their rungs, and settings of the runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import yaml

from timescales import paths
from timescales.config import Settings
from timescales.nn import registry

FILL = "fill"  # a setting with this value is set so that models have equally many parameters
SCORE_KEYS = ("metric", "chance", "best")  # the keys of a rung that are not settings of its run


@dataclass(frozen=True)
class Rung:
    """A test: a task, the metric of a run that counts, and the values of the metric at chance and at best."""

    name: str
    ability: str
    settings: Settings  # the settings of the task
    metric: str
    chance: float
    best: float

    def score(self, value: float | None) -> float:
        """Return the score of a run: 0 at chance and below, 1 at best; 0 for a diverged run, which has no value."""
        if value is None or not math.isfinite(value):
            return 0.0
        return max(0.0, (value - self.chance) / (self.best - self.chance))


class Choice(TypedDict):
    """How the learning rate of a cell is chosen: the rungs, the seed, and the margin by which it must be better."""

    seed: int
    rungs: list[str]
    margin: float


class Second(TypedDict):
    """Hold how the second map differs: the metrics of some rungs, and the least spread of a rung that is shown."""

    metrics: Mapping[str, Mapping[str, Any]]
    spread: float


@dataclass(frozen=True)
class Atlas:
    """The content of conf/atlas.yaml. The fields are its keys."""

    name: str  # the name of its table
    settings: Settings
    units: int
    tolerance: float
    seeds: Sequence[int]
    rates: Sequence[float]
    choice: Choice
    quick: Sequence[str]
    abilities: Mapping[str, str]  # each ability in words
    rungs: Mapping[str, Rung]
    models: Mapping[str, Settings]
    left_out: Mapping[str, str] = field(default_factory=dict)
    hypotheses: Sequence[Mapping[str, str]] = ()  # written before the runs: first > second on a rung, why, and the date
    second: Second | None = None  # how the second map of the same runs is made
    later: Sequence[Mapping[str, Any]] = ()  # rungs for a later study: rung, like, times, tells
    plain: Atlas | None = None  # the second atlas, of one plain layer; the key `plain` has the differences

    @property
    def rates_table(self) -> str:
        """The name of the table that learning rates are chosen by."""
        return f"{self.name}_rates"

    @property
    def cells(self) -> list[str]:
        """The models of the atlas."""
        return [name for name in self.models if name in registry.BY_NAME]

    @property
    def rate(self) -> float:
        """The default learning rate: the middle one."""
        return sorted(self.rates)[len(self.rates) // 2]

    def of(self, ability: str) -> list[Rung]:
        """Return the rungs of an ability."""
        return [rung for rung in self.rungs.values() if rung.ability == ability]

    @property
    def tests(self) -> dict[str, list[Rung]]:
        """Group the rungs that one training answers, by the first of them."""
        found: dict[str, list[Rung]] = {}
        first: dict[str, str] = {}
        for rung in self.rungs.values():
            name = first.setdefault(str(sorted(rung.settings.items())), rung.name)
            found.setdefault(name, []).append(rung)
        return found

    def rescored(self) -> Atlas:
        """Return the atlas with the metrics of its second map."""
        metrics = self.second["metrics"] if self.second else {}
        return replace(self, rungs={name: replace(rung, **metrics.get(name, {})) for name, rung in self.rungs.items()})

    def run(self, rung: Rung, model: Settings, rate: float, seed: int) -> Settings:
        """Return the settings of a run. model: those of the model, with its units."""
        return {**self.settings, **rung.settings, **model, "optimizer.lr": rate, "seed": seed}


@functools.cache
def atlas() -> Atlas:
    """Read the atlas, conf/atlas.yaml."""
    content = yaml.safe_load((paths.conf() / "atlas.yaml").read_text())
    rungs = {}
    for ability, of_ability in content["abilities"].items():
        for name, keys in of_ability["rungs"].items():
            settings = {key: value for key, value in keys.items() if key not in SCORE_KEYS}
            rungs[name] = Rung(name, ability, settings, *(keys[key] for key in SCORE_KEYS))
    abilities = {name: ability["says"] for name, ability in content["abilities"].items()}
    plain = content.pop("plain", None)
    first = Atlas(**content | {"rungs": rungs, "abilities": abilities})
    if plain is None:
        return first
    second = plain | {"settings": {**first.settings, **plain["settings"]}}
    return replace(first, plain=replace(first, **second))


def chosen(atlas: Atlas, scores: Mapping[float, Mapping[str, float]]) -> float | None:
    """Choose the learning rate of a cell: the best mean score, if it exceeds the middle rate's by the margin.

    Otherwise the middle rate. None while runs are missing. scores: of each rate, the score on each of the rungs.
    """
    rungs = atlas.choice["rungs"]
    if any(rung not in scores.get(rate, {}) for rate in atlas.rates for rung in rungs):
        return None
    means = {rate: sum(scores[rate][rung] for rung in rungs) / len(rungs) for rate in atlas.rates}
    best = max(atlas.rates, key=lambda rate: means[rate])
    return best if means[best] > means[atlas.rate] + atlas.choice["margin"] else atlas.rate
