"""The report and the export over HTTP: fields, times, bad input, clients that leave, broken answers."""

from __future__ import annotations

from typing import Any

import pytest

from api_client import Api
from app.decision_log.rows import Row
from app.measuring.export import Exports
from app.measuring.report import Reports
from logged_rows import LogInMemory, row

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
BEGIN_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
REPORT, EXPORT = "/v1/bandits/b/report", "/v1/bandits/b/log/export"


def rows() -> list[Row]:
    """One decision a minute, a third of it rewarded, for two hours."""
    return [
        row(
            *([1.0] if minute % 3 == 0 else []),
            time=BEGIN_MS + 60_000 * minute,
            group="holdout" if minute % 4 == 0 else "policy",
        )
        for minute in range(120)
    ]


async def bandit(api: Api, log: LogInMemory, **fields: Any) -> None:
    """A bandit ``b``, whose log is ``log``."""
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    reward = {"min": 0.0, "max": 1.0}
    body = {"catalogue": "c", "policy": "linear_ts", "reward": reward, **fields}
    await api.ok("PUT", "/v1/bandits/b", body, 201)
    service = api.app.service
    service.reports, service.exports = Reports(service.bandits, log, service.metrics), Exports(log)


async def test_a_report_has_the_fields_of_the_contract(api: Api):
    await bandit(api, LogInMemory(rows()))
    found = await api.ok("GET", f"{REPORT}?bucket_s=3600")
    assert found.keys() == {
        "groups", "lift", "unit", "decisions", "as_of_decisions", "next_look", "interval_kind",
        "interval_decisions", "ungrouped", "buckets", "places", "warnings", "complete_from",
        "agreement", "stages",
    }  # fmt: skip
    assert (found["unit"], found["as_of_decisions"], found["warnings"]) == ("decision", 120, [])
    assert (found["decisions"], found["next_look"], found["interval_decisions"]) == (120, None, 120)
    policy, holdout = found["groups"]
    assert (policy["group"], policy["decisions"], policy["rewarded"]) == ("policy", 90, 30)
    assert (holdout["group"], holdout["decisions"], holdout["mean_reward"]) == (
        "holdout",
        30,
        pytest.approx(1 / 3),
    )
    for group in found["groups"]:
        low, high = group["interval"]
        assert 0 <= low < group["mean_reward"] < high <= 1
    assert found["lift"]["value"] == pytest.approx(0.0)
    assert found["lift"]["interval"][0] < 0 < found["lift"]["interval"][1]
    assert (found["interval_kind"], found["ungrouped"]) == ("bounded", 0)
    assert found["complete_from"] is None
    assert [bucket["from"] for bucket in found["buckets"]] == [BEGIN_MS, BEGIN_MS + HOUR_MS]
    assert found["buckets"][0]["groups"] == [
        {"group": "policy", "decisions": 45, "rewarded": 15, "mean_reward": pytest.approx(1 / 3)},
        {"group": "holdout", "decisions": 15, "rewarded": 5, "mean_reward": pytest.approx(1 / 3)},
    ]
