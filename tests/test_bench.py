"""scripts/bench/bench.py: how long a task takes to make a batch, beside its training step."""

from __future__ import annotations

from pathlib import Path


def test_programs_of_the_papers_size_are_measured_with_a_small_network(monkeypatch):
    """128 programs of length 9 and nesting 4, an LSTM of 256 units."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "scripts" / "bench"))
    import bench

    (job,) = [job for job in bench.data_jobs(quick=True) if job.config == "program 256"]
    config = bench.data_config(job.config)
    settings = {"length": 9, "nesting": 4, "strategy": "baseline", "batch_size": 128}
    assert settings.items() <= config["task"].items()
    assert (config["model"]["name"], config["model"]["hidden_size"]) == ("lstm", 256)
    rows = {row["variant"]: row for row in bench.data_rows(job._replace(seconds=0.0))}
    assert set(rows) == {"training step", "its data"}
    assert all((row["B"], row["I"], row["H"]) == (128, 28, 256) for row in rows.values())
    assert all(row["seconds"] > 0 for row in rows.values())
