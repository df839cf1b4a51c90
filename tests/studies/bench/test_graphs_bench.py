"""The benchmark of graphs, on a catalogue small enough for a test."""

from __future__ import annotations

import pytest

from studies.bench import graphs

pytestmark = pytest.mark.rest


def test_both_graphs_are_measured_at_every_ef() -> None:
    pytest.importorskip("faiss")
    rows = graphs.case(3_000, 8, "unit", most_ef=48)
    assert [(row["ef"], row["graph"]) for row in rows] == [
        (ef, name) for ef in (32, 40, 48) for name in ("hnswlib", "faiss_sq8")
    ]
    assert all(row["recall_at_1"] > 0.9 and row["us"] > 0.0 for row in rows)
    sizes = {row["graph"]: row["memory_mb"] for row in rows}
    assert 0.0 < sizes["faiss_sq8"] < sizes["hnswlib"]
    for name in sizes:
        assert sum(row["at_target"] for row in rows if row["graph"] == name) <= 1
