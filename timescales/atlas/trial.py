"""Train a user's cell on the rungs of the atlas, for `timescales-card`. Ended runs are skipped."""

import contextlib
import copy
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from timescales.atlas import own
from timescales.atlas.definition import Atlas, Rung, chosen
from timescales.atlas.scores import Score
from timescales.atlas.sizes import Sizes
from timescales.atlas.tables import measured
from timescales.config import folders
from timescales.config.compose import Composer
from timescales.config.run import Run, run_of
from timescales.errors import ConfigError, MissingData
from timescales.experiment.sweep import stopping_after
from timescales.experiment.train import train
from timescales.files import write_atomic
from timescales.papers import load
from timescales.runs import store
from timescales.runs.record import Record
from timescales.runs.store import Row
from timescales.training import build
from timescales.training.progress import pause

NAME = "own"  # the name of the model for all cells, which differ in their sources


@dataclass
class Trial:
    """A user's cell and its runs.

    source, arguments: the cell, as on the command line. folder: where its card and runs are stored. quick: the few
    rungs of the atlas that tell most, one seed, and the middle learning rate.
    """

    source: str
    arguments: Mapping[str, Any]
    folder: Path
    quick: bool
    atlas: Atlas
    minutes: float = 10.0  # the most that `quick` takes
    rate: float = 0.0  # the learning rate
    found: list[Score] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)  # the run of the first seed, by test
    missing: dict[str, str] = field(default_factory=dict)  # tests that cannot be run or have not ended, and why

    @property
    def name(self) -> str:
        """Return the class of the cell, with its arguments."""
        given = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        name = self.source.replace(":", ".").rpartition(".")[2]
        return f"{name}({given})" if given else name

    @property
    def seeds(self) -> Sequence[int]:
        """Return the seeds that are trained."""
        return self.atlas.seeds[:1] if self.quick else self.atlas.seeds

    @property
    def tests(self) -> dict[str, list[Rung]]:
        """Return the tests that are trained, each with its rungs."""
        return {name: rungs for name, rungs in self.atlas.tests.items() if not self.quick or name in self.atlas.quick}

    @property
    def rungs(self) -> list[Rung]:
        """Return the rungs on which the cell has scores."""
        done = {score.rung for score in self.found}
        return [rung for rung in self.atlas.rungs.values() if rung.name in done]

    @property
    def abilities(self) -> dict[str, list[Rung]]:
        """Return the rungs on which the cell has scores, by ability."""
        return {name: of for name in self.atlas.abilities if (of := [r for r in self.rungs if r.ability == name])}

    def train(self) -> None:
        """Train the runs that have not ended. Raises ConfigError, in one line, for a cell that cannot be trained."""
        # Built once before anything is written: a cell that cannot be built leaves no folder.
        own.OwnLayers(8, 8, source=self.source, arguments=dict(self.arguments))
        self._write_configuration()
        before = folders.places()[1:]
        try:
            folders.use(self.folder / "conf")
            composer = Composer()
            self._train(composer)
        finally:
            folders.use(before[0] if before else None)

    def _write_configuration(self) -> None:
        """Write FOLDER/conf/model/own.yaml. It is JSON, which YAML includes."""
        settings = {
            "_target_": "timescales.atlas.own.OwnLayers",
            "source": self.source,
            "arguments": dict(self.arguments),
            "digest": own.digest(self.source),
            "name": NAME,
            "hidden_size": 1,
            "num_layers": 1,
        }
        path = self.folder / "conf" / "model" / f"{NAME}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(settings, indent=1).encode())

    def _train(self, composer: Composer) -> None:
        sizes, model = Sizes(self.atlas, composer), {"model": NAME}
        self._try_out(sizes, next(iter(self.tests.values()))[0])
        units: dict[str, Mapping[str, Any]] = {}
        for test, rungs in self.tests.items():
            try:
                units[test] = sizes.matched(rungs[0], model)
            except MissingData as error:
                self.missing[test] = str(error).splitlines()[0]

        def run(test: str, rate: float, seed: int) -> Run:
            settings = self.atlas.run(self.atlas.rungs[test], units[test], rate, seed)
            return run_of(composer([*load.request(settings), "logger=none"])).within(self.folder / "runs")

        choice = [] if self.quick else [name for name in self.atlas.choice["rungs"] if name in units]
        rates = [(test, rate) for rate in self.atlas.rates for test in choice]
        trained = [(test, seed) for seed in self.seeds for test in units]
        steps = {test: len(next(sizes.task(self.atlas.rungs[test]).batches("train")).x) for test in units}
        work = sum(steps[test] for test, _ in [*rates, *trained])
        cap = self.minutes if self.quick else None
        with progress(work, self.name, cap) as bar, stopping_after(cap) as time_is_up:
            try:
                tried: dict[float, dict[str, float]] = {}
                for test, rate in rates:
                    saved = self._run(run(test, rate, self.atlas.choice["seed"]), bar, steps[test])
                    rung = self.atlas.rungs[test]
                    tried.setdefault(rate, {})[test] = rung.score(measured(_row(saved, [rung]), rung))
                self.rate = (chosen(self.atlas, tried) if tried else None) or self.atlas.rate
                for test, seed in trained:
                    made = run(test, self.rate, seed)
                    saved = self._run(made, bar, steps[test])
                    self.runs.setdefault(test, made)
                    row = _row(saved, self.tests[test])
                    self.found += [
                        Score(self.name, rung.name, seed, measured(row, rung), saved.parameters or 0)
                        for rung in self.tests[test]
                    ]
            except KeyboardInterrupt:
                if not time_is_up():
                    raise
                ended = {score.rung for score in self.found}
                late = f"not ended within {self.minutes:g} minutes: the same command continues"
                self.missing |= {test: late for test in units if test not in ended}

    def _run(self, run: Run, bar: Any, work: int) -> Record:
        """Train a run that has not ended. Return its record."""
        bar.set_postfix_str(f"{run.config['task']['name']}, seed {run.seed}")
        ended = (saved := Record.read(run.directory)) is not None and saved.ended
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                train(run)
            except ConfigError:
                raise
            except Exception as error:
                raise ConfigError(f"{self.source} cannot be trained: {own.in_one_line(error, self.source)}") from error
        saved = Record.read(run.directory)
        assert saved is not None
        if ended:  # it took no time, so it must not count for the remaining time
            bar.total -= work
            bar.refresh()
        else:
            bar.update(work)
        return saved

    def _try_out(self, sizes: Sizes, rung: Rung) -> None:
        """Train a small model for one step. Raises ConfigError, in one line, for a cell that cannot do it."""
        model = {"model": NAME, "model.hidden_size": 8, "task.train_size": 32, "task.valid_size": 16}
        try:
            config = copy.deepcopy(sizes.config(rung, model))
            made, task, optimizer = build.build(config)
            loss = task.loss(made(next(task.batches("train"))).logits, next(task.batches("train")))
            loss.backward()
            optimizer.step()
        except ConfigError as error:
            raise ConfigError(str(error).removeprefix(f"model={NAME}: ")) from error
        except Exception as error:
            raise ConfigError(f"{self.source} cannot be trained: {own.in_one_line(error, self.source)}") from error
        if not any(p.grad is not None and bool(p.grad.any()) for p in made.rnn.parameters()):
            raise ConfigError(f"{self.source} cannot be trained: no gradient reaches its parameters")


def _row(saved: Record, rungs: Sequence[Rung]) -> Row:
    """Make the row of a run, with the metrics of some rungs."""
    return store.row(saved, {}, "paper", [f"best {rung.metric}" for rung in rungs])


class Bar(tqdm):
    """Show the remaining time as {left}, which is never more than a cap allows."""

    cap: float | None = None  # in minutes

    @property
    def format_dict(self) -> Any:
        """Add "left" to the names in the bar's format."""
        found = super().format_dict
        elapsed, rate = found["elapsed"], found["rate"]
        rate = rate or (self.n / elapsed if elapsed else 0.0)
        seconds = [max(0.0, (found["total"] - self.n) / rate)] if rate else []
        seconds += [] if self.cap is None else [max(0.0, 60.0 * self.cap - elapsed)]
        return found | {"left": tqdm.format_interval(min(seconds)) if seconds else "?"}


@contextlib.contextmanager
def progress(total: int, label: str, cap: float | None = None) -> Iterator[Bar]:
    """Show a bar with the remaining time; without a terminal a line every half minute.

    cap: the minutes after which what the bar counts is stopped; None: no limit.
    """
    form = "{l_bar}{bar}| {elapsed}, {left} left{postfix}"
    with Bar(total=total, desc=label, file=sys.stderr, mininterval=pause(), bar_format=form) as bar:
        bar.cap = cap
        yield bar
