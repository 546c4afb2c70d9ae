"""Log runs to event files of TensorBoard. Only this module imports TensorBoard."""

import itertools
from pathlib import Path
from typing import Any

from timescales import extras
from timescales.errors import ConfigError
from timescales.runs import dashboards
from timescales.runs.dashboards import Timescales
from timescales.runs.record import Record, State, remove_events


class TensorBoard:
    """Log a run for `tensorboard --logdir runs`. Each value is on disk when `log` returns.

    A resumed run writes another event file. Its first event makes TensorBoard drop the values after `step`. In the
    HPARAMS tab, the seeds of a configuration are one session group.

    saved: the run's record. timescales: returns the time scales of each layer, a tensor (H,) of steps.
    """

    def __init__(self, directory: Path, saved: Record, timescales: Timescales, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if step == 0:
            remove_events(directory, saved.id)
        suffix = f".{saved.id}"
        self.writer = SummaryWriter(str(directory), purge_step=step + 1 if step else None, filename_suffix=suffix)
        self.timescales = timescales
        from tensorboard.plugins.hparams import metadata

        self._add(metadata.SESSION_START_INFO_TAG, session_start_info=_session_start(saved))

    def log(self, values: dict[str, float], step: int) -> None:
        if not values:
            return
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        if dashboards.with_histograms(values):
            for name, (counts, edges) in dashboards.histograms(self.timescales()).items():
                centres = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
                self.writer.add_histogram_raw(
                    name,
                    min=edges[0],
                    max=edges[-1],
                    num=sum(counts),
                    sum=sum(n * x for n, x in zip(counts, centres, strict=True)),
                    sum_squares=sum(n * x * x for n, x in zip(counts, centres, strict=True)),
                    bucket_limits=edges[1:],
                    bucket_counts=counts,
                    global_step=step,
                )
        self.writer.flush()

    def _add(self, tag: str, **content: Any) -> None:
        """Add an event of the HPARAMS tab. `add_hparams` of the writer has no groups, and makes a separate run."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2

        described = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(**content))
        self.writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=tag, metadata=described)]))

    def finish(self, record: Record | None) -> None:
        """Close the file. If the run has ended, write its outcome first; an interrupted run may still continue."""
        if record is not None and record.state is not State.INTERRUPTED:
            from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

            for name, value in dashboards.outcome(record).items():
                self.writer.add_scalar(name, value, record.steps or 0)
            status = api_pb2.STATUS_SUCCESS if record.state is State.FINISHED else api_pb2.STATUS_FAILURE
            end = plugin_data_pb2.SessionEndInfo(status=status)
            self._add(metadata.SESSION_END_INFO_TAG, session_end_info=end)
        self.writer.close()


def check() -> None:
    """Raise ConfigError if TensorBoard is not installed."""
    try:
        import tensorboard  # noqa: F401
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"logger=tensorboard: {error}; {extras.install('tensorboard')}, or logger=csv") from error


def _session_start(saved: Record) -> Any:
    """Return a run's settings for the HPARAMS tab."""
    from tensorboard.plugins.hparams import plugin_data_pb2

    label = dashboards.label(saved)
    start = plugin_data_pb2.SessionStartInfo(group_name=label.group or label.name)
    for key, value in {**dashboards.settings(saved.config), "tags": " ".join(label.tags)}.items():
        if isinstance(value, bool):
            start.hparams[key].bool_value = value
        elif isinstance(value, str):
            start.hparams[key].string_value = value
        else:
            start.hparams[key].number_value = value
    return start
