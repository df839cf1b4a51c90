"""Evaluations begin where the log is complete, as reports do, and say so."""

import pytest

from api_client import Api
from app.storage.types.decisions import LearnerId

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEYS = [f"key-{number}" for number in range(12)]


async def test_they_count_the_decisions_that_a_report_counts(api: Api):
    await api.catalogue("c", {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    rule = {"min": 0, "max": 1, "wait_s": 600}  # so that rows are written with their decisions
    await api.bandit("b", "c", policy="softmax", temperature=1.0, log={}, scope="per_key", reward=rule)
    for number in range(96):
        choice = await api.choose("b", key=KEYS[number % len(KEYS)])
        await api.reward({"decision": choice["decision"], "value": number % 2})
    service = api.app.service
    bandit = await service.bandits.get("b")

    async def counted() -> tuple[int, int | None]:
        report = await api.ok("GET", "/v1/bandits/b/report")
        body = {"policy": {"policy": "softmax", "temperature": 1.0}, "learners": "now"}
        evaluation = await api.ok("POST", "/v1/bandits/b/evaluations", body)
        counts = report["decisions"], report["complete_from"]
        assert (evaluation["logged"]["decisions"], evaluation["complete_from"]) == counts
        return counts

    assert await counted() == (96, None)
    rows = [
        row async for page in service.decision_log.pages(bandit, from_ms=None, to_ms=None) for row in page
    ]
    first, middle = LearnerId(bandit.uid, KEYS[0]).partition(service.store.partitions), rows[48].time
    await service.store.rows.trim(first, bandit.uid, before_ms=middle, count=1_000)
    assert await counted() == (sum(row.time >= middle for row in rows), middle)
