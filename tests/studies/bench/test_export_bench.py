"""The benchmark of exports on few rows: a row for each format, and all rows are in the file."""

from __future__ import annotations

import pytest

from studies.bench import export

pytestmark = pytest.mark.rest


def test_every_format_is_measured(capsys: pytest.CaptureFixture[str]):
    rows = export.run(quick=True, rows=2_000, page_count=2)["rows"]
    assert [(row["format"], row["rows"]) for row in rows] == [("ndjson", 2_000), ("parquet", 2_000)]
    for row in rows:
        assert 100 < row["bytes_a_row"] < 2_000
        assert row["rows_per_cpu_s"] > 0
    assert "rows_per_s" in capsys.readouterr().out
