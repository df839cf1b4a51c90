"""Requests compute in threads of their own: when these are full, others are refused, and learning goes on.

What is short is computed on the event loop, where many requests take turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from api_client import Api, assert_problem
from app.api.gateway import CALLER
from app.platform import pools
from app.platform.deadlines import Caller
from app.platform.errors import Unavailable
from app.serving import choosing, dry_runs
from time_slices import let_no_time_be_left
from workers import reward_ingestion

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{arm}": [1.0, arm / 10] for arm in range(150)}
LONG = {"k": 140, "rules": {"at_most": [{"field": "maker", "count": 140}]}}  # goes to a thread


@asynccontextmanager
async def all_places_taken() -> AsyncIterator[None]:
    """By work that ends after the block."""
    gate, begun = threading.Event(), threading.Barrier(pools.THREADS + 1)

    def held() -> None:
        begun.wait(30)
        assert gate.wait(30)

    def queued() -> None:
        assert gate.wait(30)

    tasks = [asyncio.create_task(pools.REQUESTS.run(held)) for _ in range(pools.THREADS)]
    tasks += [asyncio.create_task(pools.REQUESTS.run(queued)) for _ in range(pools.WAITING)]
    await asyncio.to_thread(begun.wait, 30)
    with pytest.raises(Unavailable):
        await pools.REQUESTS.run(queued)
    try:
        yield
    finally:
        gate.set()
        await asyncio.gather(*tasks)


async def test_when_requests_fill_their_threads_rewards_are_folded_and_more_requests_are_refused(
    shared: Api, monkeypatch: pytest.MonkeyPatch
):
    await shared.catalogue("full", ARMS)
    for policy in ("softmax", "igw", "sub_ts", "linear_ts"):
        await shared.bandit(policy, "full", policy=policy)
    monkeypatch.setattr(reward_ingestion, "is_short", lambda _: False)  # every fold goes to a thread
    decisions = [await shared.choose(policy, **LONG) for policy in ("softmax", "igw", "sub_ts", "linear_ts")]
    async with all_places_taken():
        for policy in ("softmax", "igw", "sub_ts", "linear_ts"):
            answer = await shared.http.post(f"/v1/bandits/{policy}/choose", json=LONG)
            assert_problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "1"
        rewards = [
            {"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 1.0}
            for choice in decisions
        ]
        receipt = await shared.ok("POST", "/v1/rewards?wait=applied", {"rewards": rewards})
        assert receipt["accepted"] == len(decisions)
        await shared.ok("GET", "/v1/bandits/softmax/report")
    await shared.choose("softmax")


async def asgi(api: Api, path: str, body: Any, caller: Caller) -> list[Any]:
    """What is sent to a caller."""
    sent: list[Any] = []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("localhost", 80),
        "root_path": "", CALLER: caller,
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": msgspec.json.encode(body), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    # In a context of its own, as a server has it: the caller is not that of what the test does next.
    await asyncio.create_task(api.app(scope, receive, send))
    return sent


async def test_a_batch_ends_when_its_caller_has_left(shared: Api, monkeypatch: pytest.MonkeyPatch):
    await shared.catalogue("batch", ARMS)
    await shared.bandit("batch", "batch", policy="softmax")
    service, made, leaves = shared.app.service.choosing, list[Any](), [False]
    choice = service._choice  # private: in which thread it is called

    async def counted(*request: Any) -> Any:
        made.append(request)
        caller.left = leaves[0] and len(made) == 2
        return await choice(*request)

    monkeypatch.setattr(service, "_choice", counted)
    caller = Caller()
    sent = await asgi(shared, "/v1/bandits/batch/choose/batch", {"requests": [{}] * 5}, caller)
    assert (sent[0]["status"], len(made)) == (200, 5)
    made.clear()
    leaves[0] = True
    sent = await asgi(shared, "/v1/bandits/batch/choose/batch", {"requests": [{}] * 5}, caller)
    assert (sent, len(made)) == ([], 2)


async def test_a_choice_of_one_who_left_before_it_began_is_not_made(shared: Api):
    await shared.catalogue("left", ARMS)
    await shared.bandit("left", "left", policy="softmax")
    caller = Caller()
    assert (await asgi(shared, "/v1/bandits/left/choose", LONG, caller))[0]["status"] == 200
    caller.left = True
    assert await asgi(shared, "/v1/bandits/left/choose", LONG, caller) == []


@pytest.mark.parametrize(
    ("module", "step", "body"),
    [
        (choosing, "arms_of", {"k": 5}),
        (choosing, "arms_of", {"k": 5, "event_id": ""}),
        (dry_runs, "new_decision_id", {"k": 5, "dry_run": True}),
    ],
)
async def test_of_many_choices_at_once_one_is_made_between_two_looks_at_the_network(
    shared: Api, monkeypatch: pytest.MonkeyPatch, module: Any, step: str, body: dict[str, Any]
):
    name = f"turns-{'-'.join(body)}"
    await shared.catalogue(name, ARMS)
    await shared.bandit(name, name)
    await shared.choose(name)
    let_no_time_be_left(monkeypatch)
    looks, made, taken = [0], list[int](), getattr(module, step)

    def counted(*arguments: Any) -> Any:
        made.append(looks[0])
        return taken(*arguments)

    async def look() -> None:
        while True:
            looks[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(module, step, counted)
    looking = asyncio.create_task(look())
    bodies = [body | ({"event_id": f"e{n}"} if "event_id" in body else {}) for n in range(20)]
    path = f"/v1/bandits/{name}/choose"
    answers = await asyncio.gather(*(asgi(shared, path, each, Caller()) for each in bodies))
    looking.cancel()
    assert {sent[0]["status"] for sent in answers} == {200}
    assert len(set(made)) == len(made) == 20, made
