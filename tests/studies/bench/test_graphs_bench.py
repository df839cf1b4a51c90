"""The benchmark of graphs, on a catalogue small enough for a test."""

from __future__ import annotations

import numpy as np
import pytest

from app.platform.errors import ShortlistError
from studies.bench import choose, graphs

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


def test_without_faiss_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "find_spec", lambda _: None)
    with pytest.raises(ShortlistError, match="peers"):
        graphs.run(quick=True)


def test_arms_of_low_rank_are_unit_vectors_near_a_subspace() -> None:
    arms = choose.make(2_000, 128, "low_rank", np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(arms, axis=1), 1.0, rtol=1e-12)
    energy = np.linalg.svd(arms, compute_uv=False) ** 2
    assert 0.98 < energy[: choose.RANK].sum() / energy.sum() < 0.999
    assert energy[choose.RANK - 1] > 20.0 * energy[choose.RANK]
