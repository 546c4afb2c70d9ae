"""Log runs to trackio, a database on this machine. Only this module imports trackio."""

import contextlib
import contextvars
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from timescales import extras, paths
from timescales.config import Config
from timescales.errors import ConfigError
from timescales.runs import dashboards
from timescales.runs.dashboards import Timescales
from timescales.runs.record import Record


class Trackio:
    """Log a run for `trackio show`, in runs/trackio or in the folder that TRACKIO_DIR names.

    trackio cannot drop the values that were logged after the last checkpoint. So a resumed run is removed, and written
    again from curve.csv with its old histograms. trackio keeps values in memory for half a second.

    saved: the run's record. timescales: returns the time scales of each layer, a tensor (H,) of steps. rows: those of
    curve.csv.
    """

    def __init__(self, saved: Record, timescales: Timescales, rows: Sequence[Mapping[str, str | float]]) -> None:
        label, config = dashboards.label(saved), saved.config
        project = config["logger"]["project"]
        before = _remove(project, label.name)
        self.run = _init(project, label, config)
        self.timescales = timescales
        for row in rows:
            at = int(row["step"])
            values = {key: float(value) for key, value in row.items() if key != "step" and value not in ("", None)}
            self.run.log(values | before.pop(at, {}), step=at)

    def log(self, values: dict[str, float], step: int) -> None:
        if not values:
            return
        drawn: dict[str, object] = {}
        if dashboards.with_histograms(values):
            import trackio

            counts = dashboards.histograms(self.timescales())
            drawn = {name: trackio.Histogram(np_histogram=pair) for name, pair in counts.items()}
        self.run.log({**values, **drawn}, step=step)

    def finish(self, record: Record | None) -> None:
        """Write the values that wait, the outcome if the run has ended, and an alert with its status."""
        import trackio

        status = "interrupted" if record is None else record.status
        with contextlib.redirect_stdout(io.StringIO()):  # trackio prints
            if record is not None and status != "interrupted":
                self.run.log(dict(dashboards.outcome(record)), step=record.steps or 0)
            levels = {"finished": trackio.AlertLevel.INFO, "interrupted": trackio.AlertLevel.WARN}
            text = None if record is None else record.error
            self.run.alert(status, text, level=levels.get(status, trackio.AlertLevel.ERROR))
            self.run.finish()


def check() -> None:
    """Raise ConfigError if trackio is not installed, or if it would send data to another machine."""
    remote = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL")
    if found := [name for name in remote if os.environ.get(name)]:
        raise ConfigError(f"{found[0]} is set, but logger=trackio writes only on this machine: unset {found[0]}")
    os.environ.setdefault("TRACKIO_DIR", str(paths.RUNS.absolute() / "trackio"))  # trackio reads it when it is imported
    try:
        import trackio  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"logger=trackio: {error}; {extras.install('trackio')}, or logger=csv") from error


def _init(project: str, label: dashboards.Label, config: Config) -> Any:
    """Call trackio.init in a separate context. Otherwise it would end the run of another seed of this process."""
    import trackio

    with contextlib.redirect_stdout(io.StringIO()), _offline():
        return contextvars.copy_context().run(
            trackio.init,
            project,
            name=label.name,
            group=label.group,
            config={**config, "tags": label.tags},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )


def _remove(project: str, name: str) -> dict[int, dict[str, object]]:
    """Remove a run if it exists. Return its histograms by step."""
    import trackio

    try:
        found = [run for run in trackio.Api().runs(project) if run.name == name]
    except ValueError:  # no such project yet
        return {}
    logs = trackio.SQLiteStorage.get_logs(project, name) if found else []
    for run in found:
        run.delete()
    by_step: dict[int, dict[str, object]] = {}
    for row in logs:
        drawn = {key: value for key, value in row.items() if isinstance(value, dict)}
        by_step.setdefault(row["step"], {}).update(drawn)
    return by_step


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep trackio, inside this context, from asking the Hugging Face Hub who owns the key on this machine."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
