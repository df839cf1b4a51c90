"""The k-center benchmark on few points: its figures are those of its own runs."""

from __future__ import annotations

import pytest

from app.bench import kcenter


def test_every_method_is_compared_with_exact_greedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kcenter, "QUICK_SIZES", (20, 60))
    monkeypatch.setattr(kcenter, "RUNS", 1)
    record = kcenter.run(quick=True)
    rows = record["rows"]
    assert len(rows) == 3 * len(kcenter.COUNTS) * len(kcenter.METHODS)
    for row in rows:
        assert row["kept"] == pytest.approx(row["speed"] / row["saving"])
        assert row["speed"] == pytest.approx(row["exact_ms"] / row["ms"])
        if row["data"] == "clusters":
            assert row["greedy's"]
            assert row["saving"] > 5
        assert row["guarantee"] == ("none" if "experiment" in row["method"] else "pac")
    assert "kept" in capsys.readouterr().out
