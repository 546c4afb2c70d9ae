"""Forecast your own series, or classify whole series."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from timescales.files import digest_of
from timescales.tasks.data import own, series
from timescales.tasks.data.text import SPLITS
from timescales.tasks.task import Batch, Spec, Task, check_at_least, check_choice, entropy, time_since_last

# Steps that the model reads, if no other number is given. Those of a classification are more than any series has.
WINDOW = {"forecast": 50, "classification": 10**9}


class Series(Task):
    """Your own CSV or parquet file: forecast a column, or predict the class of each series.

        time    ...  31.2  33.9  34.0   38.1  39.5      a forecast with horizon=2: the model reads a window, and then
        input   ...   .81  -.33  -.40     0     0       two steps whose values it must predict
        asked   ...    0     0     0      1     1
        target                           .95  1.02      scored

    Forecasting: after `window` rows the model must predict the target in each of the next `horizon` rows, at their
        times. Loss: mean squared error of the scaled target; at chance, the training mean, about 1. Metrics: mae and
        rmse, the mean absolute error and the root of the mean squared error, in the unit of the data.
    Classification: one class for each series, read from the final state. Loss: cross-entropy; at chance, the entropy of
        the classes in the training part. Metric: accuracy.

    A row without any known input is masked. If only some inputs of a row are unknown, they are 0, the mean; an
    additional input for each input with gaps says whether it is known. Unknown targets are not scored. `dt` is the time
    since the last row that is not masked, in units of the median gap of the training part; None if all are 1. Inputs
    and target are scaled by mean and standard deviation of the training part.

    data: the file; a relative path may begin in the current folder or in data_root.
    time: the column of times, numbers or dates; None: rows are one step apart. Dates have a UTC offset in all rows or
        in none.
    id: the column that names the series of a row; None: all rows are one series.
    inputs: the columns that the model reads; empty: the target's own past (forecasting).
    target: the column to forecast, or the column of the class.
    kind: "forecast" or "classification".
    window: steps that are read; None: 50, or for classification all. Of longer series only the last `window` steps are
        read.
    split: "time", the validation and test parts are the last times of all series; a window may read rows of an earlier
        part, but predicts only rows of its own part; "id", whole series, chosen by a hash of their names and, for
        classification, from each class.
    valid_fraction, test_fraction: the shares of rows or series.
    season: rows of a season, for the seasonal baseline; None: none.
    Raises ValueError for a file that cannot be used, with the row.
    """

    def __init__(
        self,
        *,
        data: str | None = None,
        time: str | None = None,
        id: str | None = None,
        inputs: Sequence[str] = (),
        target: str | None = None,
        kind: str = "forecast",
        horizon: int = 1,
        window: int | None = None,
        split: str = "time",
        valid_fraction: float = 0.15,
        test_fraction: float = 0.15,
        season: int | None = None,
        batch_size: int = 32,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("kind", kind, ("forecast", "classification"))
        check_choice("split", split, ("time", "id"))
        window = WINDOW[kind] if window is None else window
        check_at_least(1, horizon=horizon, window=window, season=1 if season is None else season, batch_size=batch_size)
        own.check_fractions(valid_fraction, test_fraction)
        self.path = own.locate(data, data_root, "FILE.csv")
        if not target:
            raise ValueError("target is missing: give task.target=COLUMN, the column to predict")
        if len(set(inputs)) < len(inputs):
            raise ValueError("inputs names a column twice: leave one out")
        if kind == "classification":
            _check_classification(split, id, inputs, target, season)
        elif season is not None and season > window:
            raise ValueError(f"season {season} is longer than the window {window}: give task.window={season} or more")
        self.kind, self.horizon, self.window = kind, horizon, window
        self.inputs = list(inputs) or [target]
        self.series = series.read(
            self.path, time=time, identity=id, inputs=self.inputs, target=target, labels=kind == "classification"
        )
        self.time_name, self.target_name, self.season = time, target, season
        fractions = (valid_fraction, test_fraction)
        self.part = self._parts_by_time(fractions) if split == "time" else self._parts_by_id(fractions)
        self._scale()
        self.begins = {name: self._begins(k) for k, name in enumerate(SPLITS)}
        sizes = {f"{name}_size": len(found) for name, found in self.begins.items()}
        if empty := [name for name in SPLITS if not len(self.begins[name])]:
            raise ValueError(f"{self.path}: the {empty[0]} part is empty: {self._more(split)}")
        super().__init__(batch_size=batch_size, seed=seed, device=device, **sizes)
        self.data = {str(self.path): digest_of(self.path)}
        channels = len(self.channels)
        if kind == "forecast":
            self.spec = Spec("real", channels, 1, "all", horizon=window + horizon, select=("rmse", "min"))
        else:
            longest = min(int(np.diff(self.series.begins).max()), window)
            self.spec = Spec("real", channels, len(self.series.classes), "last", horizon=longest)

    # --- parts, scale, windows ----------------------------------------------------------------------------------------

    def _parts_by_time(self, fractions: tuple[float, float]) -> np.ndarray:
        """Return the part of each row: 0 training, 1 validation, 2 test. Rows of one time are in one part."""
        cuts = own.cuts(len(self.series.time), *fractions)
        borders = np.sort(self.series.time)[list(cuts)]
        return np.searchsorted(borders, self.series.time, side="right")

    def _parts_by_id(self, fractions: tuple[float, float]) -> np.ndarray:
        """Return the part of each row, the same for all rows of a series. Each class gets its share of every part."""
        names, begins = self.series.names, self.series.begins
        if len(names) < 3:
            raise ValueError(f"{self.path} has {len(names)} series, and split=id needs three or more: give more")
        classes = self.series.target[begins[:-1]] if self.series.classes else np.zeros(len(names))
        part = np.zeros(len(names), int)
        for label in np.unique(classes):
            members = sorted(np.flatnonzero(classes == label), key=lambda k: hashlib.sha256(names[k].encode()).digest())
            n_valid, n_test = (round(share * len(members)) for share in fractions)
            if not self.series.classes:
                n_valid, n_test = max(1, n_valid), max(1, n_test)
            part[members[:n_test]], part[members[n_test : n_test + n_valid]] = 2, 1
        return np.repeat(part, np.diff(begins))

    def _scale(self) -> None:
        """Scale inputs and target by the training part, and find the rows with a known input."""
        training = self.part == 0
        known = np.isfinite(self.series.inputs)
        for k, name in enumerate(self.inputs):
            if not known[training, k].any():
                raise ValueError(f"{self.path}: {name} has no number in the training part: fill it, or leave it out")
        mean, deviation = _moments(self.series.inputs[training])
        scaled = np.where(known, (self.series.inputs - mean) / np.where(deviation > 0.0, deviation, 1.0), 0.0)
        present = known.any(1)
        partly = [k for k in range(len(self.inputs)) if not known[present, k].all()]
        seen = [known[:, k : k + 1].astype(float) for k in partly]
        self.values = torch.from_numpy(np.concatenate([scaled, *seen], 1))
        self.present = torch.from_numpy(present)
        self.channels = [*self.inputs, *(f"{self.inputs[k]} known" for k in partly)]
        if self.kind == "forecast":
            self.channels.append("asked")
            self.mean, self.deviation = (float(v[0]) for v in _moments(self.series.target[training, None]))
            if not self.deviation > 0.0:
                fix = "give more rows, or another target"
                raise ValueError(f"{self.path}: {self.target_name} is constant in the training part: {fix}")
        gaps = np.diff(self.series.time)
        within = np.ones(len(gaps), bool)
        within[self.series.begins[1:-1] - 1] = False  # gaps between two series
        of_training = gaps[within & training[1:] & training[:-1]]
        self.unit = float(np.median(of_training)) if len(of_training) else 1.0
        self.time = torch.from_numpy(self.series.time / self.unit)
        equal = np.abs(gaps[within] - self.unit) <= 1e-3 * self.unit
        self.regular = bool(present.all() and equal.all())

    def _begins(self, part: int) -> np.ndarray:
        """Return the first row of each sequence of a part: of each window of a forecast, or of each series."""
        found = []
        for k, (first, end) in enumerate(zip(self.series.begins, self.series.begins[1:], strict=False)):
            if self.kind == "classification":
                found += [[first]] if self.part[first] == part else []
                continue
            steps = self.window + self.horizon
            if end - first < steps:
                named = f"series {self.series.names[k]}" if len(self.series.names) > 1 else "the series"
                raise ValueError(
                    f"{self.path}, row {self.series.rows[first]:,}: {named} begins here and has only "
                    f"{end - first:,} rows: window {self.window} and horizon {self.horizon} need {steps:,}; "
                    "give a smaller task.window or task.horizon"
                )
            begin = np.arange(first, end - steps + 1)
            asked = begin[:, None] + np.arange(self.window, steps)
            own_rows = (self.part[asked] == part).all(1) & np.isfinite(self.series.target[asked]).any(1)
            read = np.cumsum(np.concatenate([[0], self.present[first:end].numpy()]))
            found.append(begin[own_rows & (read[begin - first + self.window] > read[begin - first])])
        return np.concatenate(found) if found else np.empty(0, int)

    def _more(self, split: str) -> str:
        if self.kind == "forecast" and split == "time":
            return f"it needs {self.horizon} rows in a row; give more rows, larger fractions or a smaller task.horizon"
        return "give more series, or larger fractions"

    # --- batches ------------------------------------------------------------------------------------------------------

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        order = self.shuffled(epoch) if split == "train" else torch.arange(self.size(split))
        return self.sequences(split, order[first:end])

    def sequences(self, split: str, which: Tensor) -> Batch:
        """Return the sequences of a split with these numbers (B,), as a batch."""
        begin = torch.from_numpy(self.begins[split])[which]
        return self._windows(begin) if self.kind == "forecast" else self._whole(begin)

    def _windows(self, begin: Tensor) -> Batch:
        """Return windows and the rows to predict, (S, B)."""
        steps = torch.arange(self.window + self.horizon).unsqueeze(1)
        rows, asked = begin + steps, (steps >= self.window).expand(-1, len(begin))
        present = self.present[rows] | asked
        x = torch.cat([self.values[rows].masked_fill(asked.unsqueeze(-1), 0.0), asked.unsqueeze(-1)], -1)
        target = (torch.from_numpy(self.series.target)[rows] - self.mean) / self.deviation
        return self._made(x, torch.where(asked, target, math.nan), rows, present)

    def _whole(self, begin: Tensor) -> Batch:
        """Return whole series, padded at the front."""
        ends = torch.from_numpy(self.series.begins)
        end = ends[torch.searchsorted(ends, begin, right=True)]
        begin = torch.maximum(begin, end - self.window)
        longest = int((end - begin).max())
        rows = end - longest + torch.arange(longest).unsqueeze(1)
        within = rows >= begin
        rows = torch.maximum(rows, begin)
        present = self.present[rows] & within
        label = torch.from_numpy(self.series.target)[begin].long()
        return self._made(self.values[rows].masked_fill(~present.unsqueeze(-1), 0.0), label, rows, present)

    def _made(self, x: Tensor, target: Tensor, rows: Tensor, present: Tensor) -> Batch:
        dtype = torch.get_default_dtype()
        dt = None if self.regular else self.moved(time_since_last(self.time[rows], present).to(dtype))
        mask = None if bool(present.all()) else self.moved(present.to(dtype))
        target = target.to(dtype) if target.is_floating_point() else target
        return Batch(self.moved(x.to(dtype)), self.moved(target), mask, dt)

    # --- loss, metrics, baselines -------------------------------------------------------------------------------------

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        if self.kind == "classification":
            return super().loss(logits, batch)
        error, scored = _errors(logits, batch)
        return error.square().sum() / scored.sum().clamp(min=1)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        if self.kind == "classification":
            return super().metrics(logits, batch)
        error, scored = _errors(logits, batch)
        n = int(scored.sum())
        return {"loss": (error.square().sum(), n), "mae": (error.abs().sum() * self.deviation, n)}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        if self.kind == "classification":
            return metrics
        return metrics | {"rmse": math.sqrt(metrics["loss"]) * self.deviation}

    def chance(self) -> float:
        """Return the loss at chance: the variance of the scaled target, or the entropy of the classes."""
        return 1.0 if self.kind == "forecast" else entropy(self._counts("train"))

    def _counts(self, split: str) -> Tensor:
        """Count how often each class occurs in a split, (C,)."""
        labels = torch.from_numpy(self.series.target[self.begins[split]]).long()
        return torch.bincount(labels, minlength=len(self.series.classes))

    def trivial_baselines(self) -> dict[str, float]:
        """Return what simple rules reach on the test split: the rmse, or the accuracy of the most common class."""
        if self.kind == "classification":
            counts = self._counts("test")
            right = int(counts[self._counts("train").argmax()])
            return {"the commonest class": right / self.size("test")}
        return {rule: rmse for rule, (_, rmse) in self.baselines().items()}

    def rules(self, begin: np.ndarray) -> dict[str, np.ndarray]:
        """Return the forecasts of simple rules for windows that begin at these rows (N,), each (N, horizon).

        An unknown value of the past is replaced by the last known one before it, or by the training mean if there is
        none.
        """
        target, rows = self.series.target, np.arange(len(self.series.target))
        known = np.maximum.accumulate(np.where(np.isfinite(target), rows, -1))  # of each row, the last known one so far
        first = np.repeat(self.series.begins[:-1], np.diff(self.series.begins))
        past = np.where(known >= first, target[np.maximum(known, 0)], self.mean)
        last = begin[:, None] + self.window - 1
        ahead = np.arange(1, self.horizon + 1)
        found = {
            "last value": np.repeat(past[last], self.horizon, 1),
            "mean": np.full((len(begin), self.horizon), self.mean),
        }
        if self.season:
            found[f"value {self.season} rows before"] = past[last + ahead - self.season * -(-ahead // self.season)]
        return found

    def baselines(self) -> dict[str, tuple[float, float]]:
        """Return the mae and rmse of each simple rule on the test split, in the unit of the data."""
        begin = self.begins["test"]
        truth = self.series.target[begin[:, None] + self.window + np.arange(self.horizon)]
        errors = {rule: forecast - truth for rule, forecast in self.rules(begin).items()}
        return {
            rule: (float(np.nanmean(np.abs(error))), float(np.sqrt(np.nanmean(error**2))))
            for rule, error in errors.items()
        }

    def notes(self) -> list[str]:
        """Return what was read from the file, and what simple rules reach on the test part."""
        counted = ", ".join(f"{self.size(split):,} for {split}" for split in SPLITS)
        what = "windows" if self.kind == "forecast" else "series"
        lines = [f"{self.path}: {len(self.series.names):,} series, {len(self.series.time):,} rows; {what}: {counted}"]
        gaps = int((~self.present).sum())
        lines.append(
            f"  rows without any input: {gaps:,}; steps: {'regular' if self.regular else 'irregular, with dt'}"
        )
        if self.kind == "forecast":
            reached = [f"{rule}: mae {mae:.4g}, rmse {rmse:.4g}" for rule, (mae, rmse) in self.baselines().items()]
        else:
            reached = [f"{rule}: accuracy {value:.4g}" for rule, value in self.trivial_baselines().items()]
        return [*lines, *(f"  test, simple rule, {line}" for line in reached)]


def _errors(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the errors of the forecasts, (S, B), 0 where nothing is scored, and which steps are scored."""
    scored = ~batch.target.isnan()
    target = batch.target.nan_to_num().to(logits.dtype)
    return torch.where(scored, logits.squeeze(-1) - target, 0.0), scored


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each column, of its known numbers; nan for a column without any."""
    known = np.isfinite(values)
    n = np.maximum(known.sum(0), 1)
    mean = np.where(known, values, 0.0).sum(0) / n
    variance = np.where(known, (values - mean) ** 2, 0.0).sum(0) / n
    return mean, np.sqrt(variance)


def _check_classification(
    split: str, identity: str | None, inputs: Sequence[str], target: str, season: int | None
) -> None:
    """Raise ValueError for arguments with which whole series cannot be classified."""
    if identity is None:
        raise ValueError("classification needs the name of each row's series: give task.id=COLUMN")
    if split != "id":
        raise ValueError("classification puts whole series into the parts: give task.split=id")
    if not inputs:
        raise ValueError("inputs is empty: give task.inputs=[COLUMN,...], the columns that the model reads")
    if target in inputs:
        raise ValueError(f"inputs has the class, {target}: leave it out")
    if season is not None:
        raise ValueError("season is for the seasonal baseline of forecasts: leave it out")
