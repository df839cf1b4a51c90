"""The k-center tables: their data, their print, and a run that is small enough for a test."""

from __future__ import annotations

import pytest

from studies.experiments import kcenter_data as data
from studies.experiments import kcenter_tables as tables
from studies.study_commands import REPRODUCTIONS

pytestmark = pytest.mark.rest


@pytest.mark.slow
def test_every_table_has_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "patches", lambda n, seed: None)
    few = tables.Effort(1_000_000, 100, 0, 55, 3, deltas=(0.1,))
    tables._points.cache_clear()  # private: a cache of the process
    tables._layout.cache_clear()  # private: a cache of the process
    rows = tables.run("kcenter-tables", True, None, few)["rows"]
    assert {row["table"] for row in rows} == {"I", "II", "III", "IV", "VI", "VII"}
    for row in rows:
        assert row["greedy's"]
        assert row["done"] or row["method"].startswith("ns_tands")
        if row["table"] in {"I", "II", "III", "IV"}:
            assert row["share"] == row["queries"] / (row["n"] * row["k"] * data.DIM)
            assert row["share"] < 0.2
    shown = capsys.readouterr().out
    assert "printed_share" in shown
    assert "more than 1,000,000" in shown
    assert tables.__name__ == "studies." + REPRODUCTIONS["kcenter-tables"][0]
