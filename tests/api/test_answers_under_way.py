"""Many large answers at once do not fill the memory: 503 beyond a bound, and small ones go on."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from api_client import Api, assert_problem, running
from app.api.request_limits import MAX_TRANSFER_S
from app.platform.answer_memory import Unread
from app.platform.settings import Settings
from server.http_protocol import Clients
from server.serving import Server, listen
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM = 600
ARMS = 1_000


@pytest.fixture
async def bounded_api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
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
        assert "answers in progress" in answer.json()["detail"]
        assert answer.headers["retry-after"] == "1"
    return answer.status_code


INCLUDE = {"k": ARMS, "include": ["metadata"]}
BATCH = {"requests": [{"k": 500, "include": ["metadata"]}, {"k": 500}]}


@pytest.mark.parametrize(
    ("path", "body"), [("choose", INCLUDE), ("choose", {**INCLUDE, "dry_run": True}), ("choose/batch", BATCH)]
)
async def test_of_many_at_once_some_are_answered_and_the_rest_is_told_to_wait(
    bounded_api: Api, path: str, body: Any
) -> None:
    path = f"/v1/bandits/b/{path}"
    found = Counter(await asyncio.gather(*(status(bounded_api, "POST", path, body) for _ in range(30))))
    assert found.keys() == {200, 503}, found
    assert await status(bounded_api, "POST", path, body) == 200, "alone it may be larger than the bound"


async def test_whatever_answer_is_large_waits_for_the_others_and_small_ones_go_on(
    bounded_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {f"a{n}": [float(n == place) for place in range(DIM)] for n in range(50)}
    await bounded_api.catalogue("wide", rows)
    await bounded_api.bandit("wide", "wide")
    await bounded_api.observe("wide", {"id": "o", "arm": "a1", "value": 1})
    for _ in range(3):
        await bounded_api.choose("b", k=500)
    reading, goes_on, documents = (
        asyncio.Event(),
        asyncio.Event(),
        bounded_api.app.service.store.arms.documents,
    )

    async def paused(uid: str, ids: Sequence[str], **how: Any) -> Sequence[bytes]:
        if len(ids) == 500 and not reading.is_set():
            reading.set()
            await goes_on.wait()
        return await documents(uid, ids, **how)

    monkeypatch.setattr(bounded_api.app.service.store.arms, "documents", paused)
    requests = [INCLUDE] * 2
    first = asyncio.create_task(
        status(bounded_api, "POST", "/v1/bandits/b/choose/batch", {"requests": requests})
    )
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
    assert [path for path in large if await status(bounded_api, "GET", path) != 503] == []
    assert await status(bounded_api, "POST", "/v1/bandits/b/choose", INCLUDE) == 503
    for body in ({}, {"k": 100}, {"k": 3, "include": ["metadata"]}, {"k": 3, "dry_run": True}):
        assert await status(bounded_api, "POST", "/v1/bandits/b/choose", body) == 200
    for path in ("/v1/catalogues/c/arms/a1", "/v1/bandits/b/learners", "/v1/status"):
        assert await status(bounded_api, "GET", path) == 200
    goes_on.set()
    assert await first == 200
    for path in large:
        assert await status(bounded_api, "GET", path) == 200, path


async def test_who_reads_nothing_of_a_large_answer_loses_it_and_others_have_its_memory(
    bounded_api: Api,
) -> None:
    """On a real socket: the second of two answers waits for the first, and holds its memory meanwhile."""
    path, requests = "/v1/bandits/b/choose", [INCLUDE] * 2
    body = json.dumps({"requests": requests}).encode()
    head = f"POST {path}/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    begun = list[Message]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            begun.extend([message] if message["type"] == "http.response.start" else [])
            await send(message)

        await bounded_api.app(scope, receive, counted)

    async def both_have_begun() -> bool:
        return len(begun) == 2

    async def is_let_go() -> bool:
        return await status(bounded_api, "POST", path, INCLUDE) == 200

    with listen(Settings(port=0)) as listener, socket.socket() as client:
        server = Server(app, Clients(Unread(1 << 30)))
        serving = asyncio.create_task(server.serve([listener]))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        client.connect(listener.getsockname())
        client.sendall(2 * (f"{head}content-length: {len(body)}\r\n\r\n".encode() + body))
        await wait_until(both_have_begun, what="the second answer waits for the first")
        assert await status(bounded_api, "POST", path, INCLUDE) == 503
        for _ in range(MAX_TRANSFER_S + 2):
            server.look_at_clients()
        await wait_until(is_let_go, what="its memory is given back")
        server.stop()
        await serving
