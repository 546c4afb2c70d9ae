"""scripts/bench/bench_gpu.py on a CPU, at tiny sizes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from timescales.nn.engine.gpu import choice


@pytest.mark.full
def test_the_bench_rehearses_and_auto_goes_by_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu
    import bench_gpu_report
    import bench_gpu_trainings

    monkeypatch.setattr(bench_gpu_trainings, "TRAININGS", {})
    bench_gpu.main(["--device", "cpu", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*.csv")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == "layer"]
    assert len(rows) == 23
    assert len({(row["variant"], row["precision"]) for row in rows}) == 23
    assert all(0 < float(row["least_ms"]) <= float(row["ms"]) <= float(row["most_ms"]) for row in rows)
    assert all(int(row["rounds"]) >= 5 and not row["note"] for row in rows)
    parts = {row["variant"] for row in rows if not row["floor_ms"]}
    assert parts == {"products lstm", "kernels lstm", "kernels PLSTMCell"}  # of a layer's step
    assert {row["precision"] for row in rows if row["variant"] == "nn.LSTM"} == {"fp32", "tf32", "fp16"}
    assert all(float(row["ratio"]) == 1 for row in rows if row["variant"] == "nn.LSTM")
    assert "| tiny | graph PLSTMCell | fp32 |" in path.with_suffix(".md").read_text()
    numbers = [row | {"ms": float(row["ms"])} for row in rows]
    ms = {"graph PLSTMCell": 2.0, "nn.LSTM": 1.6, "eager PLSTMCell": 80.0}
    shown = [{"config": "A", "variant": name, "precision": "fp32", "ms": value} for name, value in ms.items()]
    assert [line.split(": ")[-1] for line in bench_gpu_report.targets(shown)] == ["missed", "met"]
    assert "40 times as fast" in bench_gpu_report.targets(shown)[1]
    # A line of another size was measured before, and one at this size is measured again.
    (tmp_path / "measured.csv").write_text(
        "cell,S,B,H,engine,ms,device\nlstm,500,4,8,graph,3.0,H200\nlstm,8,4,8,graph,9000.0,H200\n"
        "lstm,8,4,8,graph,9000.0,L4\n"
    )
    monkeypatch.setattr(choice, "MEASURED", tmp_path / "measured.csv")
    choice.measured.cache_clear()
    try:
        for _ in range(2):
            assert choice.measured()  # cached
            bench_gpu_report.update_measured(numbers, bench_gpu.TINY, "H200", tmp_path / "measured.csv")
        assert choice.Row("lstm", 500, 4, 8, "graph", 3.0, "H200") in choice.measured()
        assert [row.device for row in choice.measured() if row.ms == 9000.0] == ["L4"]
        assert len({row._replace(ms=0.0) for row in choice.measured()}) == len(choice.measured())
        found = {row.engine for row in choice.measured() if row.cell == "lstm"}
        assert found == {"graph", "cudnn", "eager"}
        here = [row for row in choice.measured() if (row.cell, row.S, row.device) == ("lstm", 8, "H200")]
        fastest = min(here, key=lambda row: row.ms)
        assert choice.ranking("lstm", 8, 4, 8, "H200")[0] == fastest.engine
    finally:
        choice.measured.cache_clear()


def test_the_bench_counts_what_a_variant_keeps(monkeypatch):
    """Static buffers count, which are there before the step that is looked at."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu

    held = [2**20]
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: held[0])
    for name in ("reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(bench_gpu, "seconds_of", lambda step, device: 1.0)

    def make():
        held[0] += 5 * 2**20
        return lambda: None

    (row,) = bench_gpu.measure("A", {("graph PLSTMCell", "fp32"): make}, "cuda", 0.0)
    assert row["peak_MiB"] == 5.0


def test_the_bench_rehearses_whole_trainings(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu_report
    import bench_gpu_trainings

    name = bench_gpu_trainings.COMPARED
    monkeypatch.setattr(bench_gpu_trainings, "TRAININGS", {name: bench_gpu_trainings.TRAININGS[name]})
    rows = [row for found in bench_gpu_trainings.trainings("cpu", 0.01) for row in found]
    assert [row["variant"] for row in rows] == ["lstm", "plstm", "plstm eager", "plstm x5"]
    assert all(row["ms"] > 0 and "steps/s" in row["note"] for row in rows)
    assert len(bench_gpu_report.targets(rows)) == 2


@pytest.mark.full
def test_the_bench_has_the_memory_core_with_and_without_torch_compile(monkeypatch):
    """As one graph; a row of its own part, which `engine=auto` does not read."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts" / "bench"))
    import bench_gpu

    monkeypatch.setattr(bench_gpu, "PRECISIONS", {"fp32": "highest"})
    compiled = []
    original = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda self, **options: compiled.append((type(self).__name__, options)) or original(self, **options),
    )
    (rows,) = bench_gpu.attention("cpu", 0.01)
    variants = ["nn.LSTM", "eager RMCCell", "compiled RMCCell"]
    assert [(row["variant"], row["precision"]) for row in rows] == [
        (variant, precision) for precision in bench_gpu.PRECISIONS for variant in variants
    ]
    assert {row["part"] for row in rows} == {"attention"}
    assert all(row["ms"] > 0 and "note" not in row for row in rows)
    assert compiled == [("RMC", {"backend": "aot_eager", "fullgraph": True})]
