"""The benchmark of elimination: what its columns say is so."""

from __future__ import annotations

import pytest

from studies.bench import elimination

pytestmark = pytest.mark.rest


def test_every_method_is_measured_against_the_largest_width():
    rows = {row["method"]: row for row in elimination.measure(3_000, 6, steps=60, indexed=True)}
    assert set(rows) == {"scan", "rank_one", "sub_elim", "sample", "alternating", "quadratic"}
    for name, row in rows.items():
        assert 0.0 < row["least"] <= row["mean"] <= 1.001, name
        assert row["us"] > 0.0
    assert rows["scan"]["least"] == pytest.approx(1.0)
    assert rows["rank_one"]["least"] == pytest.approx(1.0, rel=1e-3), "the update of rank one is exact"
    assert rows["quadratic"]["mean"] > 0.9
    assert rows["sub_elim"]["least"] >= 0.5, "what is not a null is at least half of the largest"
    assert rows["sub_elim"]["living"] <= 3_000
