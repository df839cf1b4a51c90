"""The churn benchmark on a catalogue small enough for a test: its figures are those of its own searches."""

from __future__ import annotations

import pytest

from studies.bench import churn

pytestmark = pytest.mark.rest


SMALL = churn.Sizes(arms=400, dim=4, quiet_s=0.05, arms_per_s=20_000, check_every=1)


@pytest.fixture(autouse=True)
def unchanged_switch_interval(monkeypatch):
    monkeypatch.setattr(churn.sys, "setswitchinterval", lambda seconds: None)


def test_rows_cover_the_whole_turnover(capsys):
    result = churn.run(quick=True, sizes=SMALL)
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
