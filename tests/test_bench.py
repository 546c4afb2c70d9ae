"""scripts/bench/bench.py: how long a task takes to make a batch, beside its training step; and scripts/bench_gpu.py."""

import json
import sys

import bench_gpu
import pytest
import torch


@pytest.fixture
def bench(monkeypatch):
    """scripts/bench/bench.py; what it adds to the path is gone after the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    import bench

    return bench


def test_a_step_of_layers_of_each_kind(bench):
    """Forward and backward with gaps in time, which only our layers get; every variant of a job is a layer."""
    named = {name for section in bench.SECTIONS.values() for job in section() for name in job.variants}
    assert named - {"training step", "its data"} == set(bench.LAYERS)
    job = bench.Job("layer", "F", bench.Config(5, 2, 1, 8, True), ("nn.LSTM", "loop pLSTM", "eager coupled", "lstm ur"))
    rows = list(bench.time_rows(job._replace(seconds=0.0)))
    assert [row["variant"] for row in rows] == list(job.variants)
    assert all(row["seconds"] > 0 for row in rows)


def test_a_training_step_and_its_data_are_measured(bench, monkeypatch):
    small = ("task.length=2", "task.nesting=1", "task.batch_size=4", "model.hidden_size=5", "model.head_size=null")
    monkeypatch.setitem(bench.DATA, "program 256", ("task=program", *small))
    (job,) = [job for job in bench.data_jobs() if job.config == "program 256"]
    rows = {row["variant"]: row for row in bench.data_rows(job._replace(seconds=0.0))}
    assert set(rows) == {"training step", "its data"}
    assert all((row["B"], row["I"], row["H"]) == (4, 28, 5) for row in rows.values())
    assert rows["training step"]["seconds"] > rows["its data"]["seconds"] > 0


def test_what_a_machine_with_a_gpu_is_asked(monkeypatch, tmp_path, capsys):
    """The rows of two cells and of a training, on a CPU, with pieces that are not compiled; then with wrong ones."""
    cpu, report, gpu = torch.device("cpu"), bench_gpu.Report(tmp_path / "gpu.json"), bench_gpu.engine.gpu
    monkeypatch.setattr(gpu, "_compiled_piece", lambda key: gpu.piece)
    monkeypatch.setattr(gpu.caches, "TRIAL_RESULTS", {})
    names = {name for name, *_ in bench_gpu.calls_of_cells()}
    assert {"LSTMCell", "GRUCell", "GRUDCell", "RMCCell", "HGRNCell"} <= names
    report.add("cells", bench_gpu.compared, "GRUCell", {}, True, cpu)
    report.add("cells", bench_gpu.compared, "RMCCell", {}, False, cpu)
    report.add("training", bench_gpu.training, True, cpu)
    report.add("cells", bench_gpu.compared, "NoCell", {}, False, cpu)
    rows = json.loads((tmp_path / "gpu.json").read_text())
    first, second, missing = rows["cells"]
    assert (first["right"], first["engine"], second["right"]) == (True, "compiled", True)
    assert "NoCell" in missing["failed"]
    (learned,) = rows["training"]
    assert learned["falls"], learned
    assert len(capsys.readouterr().out.splitlines()) == 4
    monkeypatch.setattr(gpu.AllSteps, "backward", staticmethod(lambda ctx, d: (None, None, None, None)))
    monkeypatch.setattr(gpu, "_difference", lambda *a: None)  # which would find it
    report.add("cells", bench_gpu.compared, "GRUCell", {}, True, cpu)
    assert report.rows["cells"][-1]["right"] is False
