"""Evaluations that go on by themselves: what is said of them, cancelling, and processes that die."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api_client import Api, Json
from app.measuring.jobs import LOST, MOST_OWN, NO_ROOM, Jobs
from app.storage import redis_keys
from logged_rows import MemoryLog
from test_evaluations import Stuck, create_softmax_bandit, decide, evaluate, logged
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


def path(name: str, job: str = "") -> str:
    return f"/v1/bandits/{name}/evaluations" + (f"/{job}" if job else "")


async def start(api: Api, name: str, policy: Json, **rest: Any) -> str:
    job: str = (await api.ok("POST", path(name) + "?wait=none", {"policy": policy, **rest}, 202))["id"]
    return job


async def ended(api: Api, name: str, job: str) -> Json:
    async def found() -> Json | None:
        answer: Json = await api.ok("GET", path(name, job))
        return None if answer["state"] in ("waiting", "running") else answer

    answer: Json = await wait_until(found, what="the evaluation has ended")
    return answer


async def test_a_job_has_the_answer_of_the_call(shared: Api):
    await create_softmax_bandit(shared, "job")
    await decide(shared, "job", 40, [{"k": 2}])
    policy = {"temperature": 0.3}
    expected = await evaluate(shared, "job", policy)
    job = await start(shared, "job", policy, learners="now")
    answer = await ended(shared, "job", job)
    assert answer["result"] == expected
    assert (answer["state"], answer["error"]) == ("done", None)
    assert answer["progress"] == {"decisions": 40, "of": 40}
    listed = await shared.ok("GET", path("job"))
    head = {name: value for name, value in answer.items() if name != "result"}
    assert listed == {"items": [head], "next": None}
    await shared.ok("DELETE", path("job", job), status=204)
    await shared.refused("GET", path("job", job), status=404, code="not_found")
    await shared.refused("DELETE", path("job", job), status=404, code="not_found")


async def test_a_result_is_kept_for_an_hour(shared: Api):
    """By the clock of the store, which is moved by moving what it is compared with."""
    await create_softmax_bandit(shared, "hour")
    await decide(shared, "hour", 5, [{"k": 2}])
    job = await start(shared, "hour", {}, learners="now")
    await ended(shared, "hour", job)
    until_key = redis_keys.JOBS[2]
    (name,) = [each for each in await shared.store.zrange(until_key, 0, -1) if each.endswith(job.encode())]
    await shared.store.zincrby(until_key, -3_540_000, name)
    assert (await shared.ok("GET", path("hour", job)))["state"] == "done"
    await shared.store.zincrby(until_key, -60_000, name)
    gone = await shared.refused("GET", path("hour", job), status=404, code="not_found")
    assert "an hour" in gone["detail"]
    assert (await shared.ok("GET", path("hour")))["items"] == []


async def test_jobs_are_of_their_bandit_and_come_in_pages(shared: Api):
    for name in ("paged", "unpaged"):
        await create_softmax_bandit(shared, name)
    logged(shared, MemoryLog())
    made = [await start(shared, "paged", {}) for _ in range(3)]
    for job in made:
        await ended(shared, "paged", job)
        await shared.refused("GET", path("unpaged", job), status=404, code="not_found")
    first = await shared.ok("GET", path("paged") + "?limit=2")
    rest = await shared.ok("GET", path("paged") + f"?limit=2&cursor={first['next']}")
    assert [job["id"] for job in first["items"] + rest["items"]] == sorted(made)
    assert rest["next"] is None
    assert (await shared.ok("GET", path("unpaged")))["items"] == []
    await shared.refused("GET", path("none"), status=404, code="not_found")


async def test_what_is_wrong_is_said_at_once_or_by_the_job(shared: Api):
    await create_softmax_bandit(shared, "wrongly", policy="sub_ts", temperature=None)
    await decide(shared, "wrongly", 4)
    body = {"policy": {"policy": "sub_elim"}}
    await shared.refused("POST", path("wrongly") + "?wait=none", body, loc=["body", "policy", "policy"])
    told = await shared.refused("POST", path("wrongly"), {"policy": {"explore": 3}})
    assert "is gone" in told["detail"]
    await shared.refused("POST", path("wrongly") + "?wait=applied", {"policy": {}}, loc=["query", "wait"])
    answer = await ended(shared, "wrongly", await start(shared, "wrongly", {"policy": "softmax"}))
    assert (answer["state"], answer["result"]) == ("failed", None)
    assert "none of the 4 decisions" in answer["error"]


async def test_a_deleted_job_ends(shared: Api):
    await create_softmax_bandit(shared, "deleted")
    log = Stuck()
    logged(shared, log)
    job = await start(shared, "deleted", {})
    await log.started.wait()
    await create_softmax_bandit(shared, "another")
    await shared.refused("DELETE", path("another", job), status=404, code="not_found")
    assert (await shared.ok("GET", path("deleted", job)))["state"] == "waiting"
    assert not log.ended.is_set(), "it is cancelled by its own bandit alone"
    await shared.ok("DELETE", path("deleted", job), status=204)
    await log.ended.wait()
    assert (await shared.ok("GET", path("deleted")))["items"] == []


async def test_a_job_that_another_process_deleted_ends(shared: Api, monkeypatch: pytest.MonkeyPatch):
    """``monkeypatch``: so that a process says more often how its jobs stand."""
    monkeypatch.setattr(shared.app.service.jobs, "beat_s", 0.01)
    await create_softmax_bandit(shared, "elsewhere")
    log = Stuck()
    logged(shared, log)
    job = await start(shared, "elsewhere", {})
    await log.started.wait()
    service = shared.app.service
    other = Jobs(service.store.jobs, service.metrics)
    bandit = await service.bandits.get("elsewhere")
    assert (await other.find(bandit.uid, job)).state in ("waiting", "running")
    await other.delete(bandit.uid, job)
    await log.ended.wait()


async def test_a_job_whose_process_has_died_is_lost(shared: Api, monkeypatch: pytest.MonkeyPatch):
    """``monkeypatch``: a lease of a millisecond, which ends as that of a dead process does."""
    monkeypatch.setattr(shared.app.service.jobs, "lease_ms", 1)
    await create_softmax_bandit(shared, "lost")
    log = Stuck()
    logged(shared, log)
    job = await start(shared, "lost", {})
    answer = await ended(shared, "lost", job)
    assert (answer["state"], answer["result"]) == ("lost", None)
    assert answer["error"] == LOST
    assert (await shared.ok("GET", path("lost")))["items"][0]["state"] == "lost"
    monkeypatch.undo()
    await shared.ok("DELETE", path("lost", job), status=204)
    await log.ended.wait()


async def test_jobs_are_bounded_and_others_are_still_evaluated(shared: Api):
    await create_softmax_bandit(shared, "bounded")
    log = Stuck()
    logged(shared, log)
    jobs = [await start(shared, "bounded", {}) for _ in range(MOST_OWN)]
    full = await shared.http.post(path("bounded") + "?wait=none", json={"policy": {}})
    assert (full.status_code, full.json()["code"]) == (503, "unavailable")
    logged(shared, MemoryLog())
    assert (await evaluate(shared, "bounded", {}))["logged"]["decisions"] == 0
    for job in jobs:
        await shared.ok("DELETE", path("bounded", job), status=204)
    await log.ended.wait()


async def test_results_that_have_no_room_are_said(shared: Api, monkeypatch: pytest.MonkeyPatch):
    jobs = shared.app.service.store.jobs
    monkeypatch.setattr(jobs, "most_result_bytes", 10)
    await create_softmax_bandit(shared, "large")
    logged(shared, MemoryLog())
    answer = await ended(shared, "large", await start(shared, "large", {}))
    assert (answer["state"], answer["error"]) == ("failed", NO_ROOM)
    monkeypatch.setattr(jobs, "most_of_bandit", 1)
    refusal = {"status": 429, "code": "quota_reached"}
    await shared.refused("POST", path("large") + "?wait=none", {"policy": {}}, **refusal)


async def test_a_service_that_stops_leaves_no_job_behind(shared: Api):
    await create_softmax_bandit(shared, "stopped")
    log = Stuck()
    logged(shared, log)
    await start(shared, "stopped", {})
    await log.started.wait()
    await shared.app.service.jobs.stop()
    assert log.ended.is_set()
    await asyncio.sleep(0)
    assert not shared.app.service.jobs._tasks  # private: nothing else tells that no task is left
