"""The benchmark of choices, on a catalogue small enough for a test."""

from __future__ import annotations

from studies.bench import choose


def test_every_method_is_timed_and_the_exact_ones_find_the_best_arm():
    # private: one row of the table, of a size of its own
    rows = {row["method"]: row for row in choose._case(600, 6, "gaussian", 40)}
    assert {"scan", "norm_pruned", "hnsw", "auto", "igw"} <= set(rows)
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in rows.values())
    assert rows["scan"]["recall_at_1"] == rows["norm_pruned"]["recall_at_1"] == 1.0
    # It explores: mostly the best arm, and never a better one.
    assert 0.3 < rows["igw"]["recall_at_1"] <= 1.0
    assert rows["igw"]["ratio_mean"] <= 1.0 + 1e-9
