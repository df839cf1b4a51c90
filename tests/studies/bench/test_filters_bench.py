"""The benchmark of filters on catalogues small enough for a test: what it counts is what happened."""

from __future__ import annotations

import pytest

from app.filtering.filter_limits import FilterLimits
from studies.bench import filter_churn, filters

pytestmark = pytest.mark.rest


SMALL = filters.Sizes(
    arms=(2_000,),
    shares=(0.5, 0.01),
    queries=60,
    turn=15,
    limits=FilterLimits(small_numbers=-1),  # no filter is small
    largest=2_000,
    churn=filter_churn.Sizes(arms=1_000, shares=(0.5, 0.05), answers=2_000, arms_per_s=1_000_000),
    memory=2_000,
)


@pytest.fixture
def unchanged_switch_interval(monkeypatch):
    monkeypatch.setattr(filter_churn.sys, "setswitchinterval", lambda seconds: None)


def test_every_case_and_part_has_its_rows(unchanged_switch_interval, capsys):
    result = filters.run(quick=True, sizes=SMALL)
    assert result["benchmark"] == "filters"
    rows = result["rows"]
    searches = [row for row in rows if row["part"] == "search"]
    for row in searches:
        assert row["eligible"] == 2_000 * row["share"]
        assert (row["ineligible"], row["false_exact"]) == (0, 0)
        if row["filter"] == "new":
            assert (row["exact"], row["recall_at_1"], row["reported"]) == (1.0, 1.0, 1.0)
    churn = [row for row in rows if row["part"] == "churn"]
    assert sum(row["answers"] for row in churn) >= 2_000
    for row in churn:
        assert (row["K"], row["ineligible"], row["dead"]) == (1_000, 0, 0)
        assert row["recall_at_1"] > 0.9
    (memory,) = (row for row in rows if row["part"] == "memory")
    assert memory["fields"] == 5
    assert "vs_numpy" in capsys.readouterr().out
