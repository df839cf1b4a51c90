"""The churn benchmark on a catalogue small enough for a test: its figures are those of its own searches."""

from __future__ import annotations

import pytest

from studies.bench import churn, index_loop

pytestmark = pytest.mark.rest


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(churn, "DIM", 4)
    monkeypatch.setattr(churn, "QUICK_ARMS", 400)
    monkeypatch.setattr(churn, "QUIET_S", 0.05)
    monkeypatch.setattr(churn, "ARMS_PER_S", 20_000)
    monkeypatch.setattr(index_loop, "CHECK_EVERY", 1)
    monkeypatch.setattr(churn.sys, "setswitchinterval", lambda seconds: None)


def test_rows_cover_the_whole_turnover(small, capsys):
    result = churn.run(quick=True)
    assert result["benchmark"] == "churn"
    assert [round(row["share"], 1) for row in result["rows"]] == [round(0.2 * i, 1) for i in range(11)]
    for row in result["rows"]:
        assert row["K"] == 400
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["recall_at_1"] > 0.9
        assert row["worst_recall_at_1"] <= row["narrow_recall_at_1"] <= 1.0
        assert row["narrow_recall_at_1"] > 0.9
        assert row["told"] <= 1.0
        assert row["queries"] >= 1
    assert result["rows"][-1]["folds"] >= result["rows"][0]["folds"] >= 1
    assert "p99_ratio" in capsys.readouterr().out


def test_a_search_that_is_wrong_shows(small, monkeypatch):
    """The broken variant: recall is measured, not assumed."""
    original = churn.LiveIndex.snapshot

    def wrong(index):
        snapshot = original(index)
        monkeypatch.setattr(type(snapshot), "search", lambda self, query, k: self.search_exact(-query, k))
        return snapshot

    monkeypatch.setattr(churn.LiveIndex, "snapshot", wrong)
    for row in churn.run(quick=True)["rows"]:
        assert max(row["recall_at_1"], row["narrow_recall_at_1"]) < 0.1
