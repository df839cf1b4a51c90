"""Many large answers at once do not fill the memory: 503 beyond a bound, and small ones go on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from api_client import Api, assert_problem, running

pytestmark = pytest.mark.anyio

DIM = 600
ARMS = 1_000


@pytest.fixture
async def small(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application with a megabyte for large answers."""
    async with running(store_url, tmp_path, max_answers_mb=1) as api:
        await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
        for start in range(0, ARMS, 200):
            arms = [
                {"id": f"a{n}", "features": [1.0, n], "metadata": {"title": f"t{n}", "text": "x" * 4_000}}
                for n in range(start, start + 200)
            ]
            await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
        await api.bandit("b", "c", log={})
        yield api


async def status(api: Api, method: str, path: str, body: Any = None) -> int:
    answer = await api.http.request(method, path, json=body)
    if answer.status_code != 200:
        assert_problem(answer, 503, "unavailable")
        assert "answers under way" in answer.json()["detail"]
        assert answer.headers["retry-after"] == "1"
    return answer.status_code


INCLUDE = {"k": ARMS, "include": ["metadata"]}
BATCH = {"requests": [{"k": 500, "include": ["metadata"]}, {"k": 500}]}


@pytest.mark.parametrize(
    ("path", "body"), [("choose", INCLUDE), ("choose", {**INCLUDE, "dry_run": True}), ("choose/batch", BATCH)]
)
async def test_of_many_at_once_some_are_answered_and_the_rest_is_told_to_wait(
    small: Api, path: str, body: Any
) -> None:
    path = f"/v1/bandits/b/{path}"
    found = Counter(await asyncio.gather(*(status(small, "POST", path, body) for _ in range(30))))
    assert found.keys() == {200, 503}, found
    assert await status(small, "POST", path, body) == 200, "alone it may be larger than the bound"


async def test_whatever_answer_is_large_waits_for_the_others_and_small_ones_go_on(
    small: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {f"a{n}": [float(n == place) for place in range(DIM)] for n in range(50)}
    await small.catalogue("wide", rows)
    await small.bandit("wide", "wide")
    await small.observe("wide", {"id": "o", "arm": "a1", "value": 1})
    for _ in range(3):
        await small.choose("b", k=500)
    reading, goes_on, documents = asyncio.Event(), asyncio.Event(), small.app.service.store.arms.documents

    async def paused(uid: str, ids: Sequence[str], **how: Any) -> Sequence[bytes]:
        if len(ids) == 500 and not reading.is_set():
            reading.set()
            await goes_on.wait()
        return await documents(uid, ids, **how)

    monkeypatch.setattr(small.app.service.store.arms, "documents", paused)
    requests = [INCLUDE] * 2
    first = asyncio.create_task(status(small, "POST", "/v1/bandits/b/choose/batch", {"requests": requests}))
    await reading.wait()
    large = [
        "/v1/catalogues/c/arms?limit=1000",
        "/v1/catalogues/c/arms?limit=1000&sample_seed=1",
        "/v1/bandits/b/log?limit=1000",
        "/v1/bandits/b/log/rewards?limit=1000",
        "/v1/bandits/wide/log/arms?limit=1000",
        "/v1/bandits/wide/learners?limit=1000",
        "/v1/bandits/wide/learners/_global?include=precision",
    ]
    assert [path for path in large if await status(small, "GET", path) != 503] == []
    assert await status(small, "POST", "/v1/bandits/b/choose", INCLUDE) == 503
    for body in ({}, {"k": 100}, {"k": 3, "include": ["metadata"]}, {"k": 3, "dry_run": True}):
        assert await status(small, "POST", "/v1/bandits/b/choose", body) == 200
    for path in ("/v1/catalogues/c/arms/a1", "/v1/bandits/b/learners", "/v1/status"):
        assert await status(small, "GET", path) == 200
    goes_on.set()
    assert await first == 200
    for path in large:
        assert await status(small, "GET", path) == 200, path
