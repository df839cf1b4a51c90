"""The benchmark of the library on few arms."""

from __future__ import annotations

import pytest

from studies.bench import library as bench

pytestmark = pytest.mark.rest


def test_each_index_is_compared_with_all_arms(capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.run(quick=True, sizes=(600,))["rows"]
    assert [(row["k"], row["index"]) for row in rows] == [
        (k, i) for k in bench.LENGTHS for i in bench.INDEXES
    ]
    for row in rows:
        assert row["us"] > 0.0
        assert row["recall"] >= (0.9 if row["index"] in {"hnsw", "inverted_file"} else 1.0)
        assert row["speedup"] == 1.0 or row["index"] != "exact"
    assert "inverted_file" in capsys.readouterr().out
