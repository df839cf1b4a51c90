"""The whole application over HTTP, without a network: a client, and checks that every answer must pass."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from app.indexes.index_limits import IndexLimits
from app.platform.pauses import Pauses
from app.platform.settings import Settings
from app.storage import redis_keys
from headless_service import PATIENT
from server.application import Application, create_app
from server.composition import SHARED
from store_clients import Client, connect, flush
from waiting import wait_until

PROBLEM = "application/problem+json"
PROBLEM_FIELDS = {"type", "title", "status", "detail", "code", "errors"}
ANSWER_S = 120.0
ROW_LOGS = b":row-logs"

Json = dict[str, Any]


class Api:
    """Calls of one running application. ``ok`` asserts the status and returns the body."""

    def __init__(self, app: Application, http: httpx.AsyncClient, store: Client) -> None:
        self.app = app
        self.http = http
        self.store = store

    async def call(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        """One answer, within ``ANSWER_S``, that is no failure of the service."""
        if json is not None:
            options["json"] = json
        async with asyncio.timeout(ANSWER_S):
            answer = await self.http.request(method, path, **options)
        assert answer.status_code < 500, answer.text
        assert answer.headers.get_list("x-request-id") == [answer.headers["x-request-id"]]
        return answer

    async def ok(self, method: str, path: str, json: Any = None, status: int = 200, **options: Any) -> Any:
        answer = await self.call(method, path, json, **options)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
        return answer.json() if answer.content else None

    async def refused(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        status: int = 422,
        code: str = "invalid",
        loc: Sequence[str | int] | None = None,
        canary: str | None = None,
        **options: Any,
    ) -> Json:
        """The problem document, held to its shape."""
        answer = await self.call(method, path, json, **options)
        return assert_problem(answer, status, code, loc=loc, canary=canary)

    async def catalogue(
        self, name: str, arms: Mapping[str, Sequence[float]], *, dim: int | None = None
    ) -> None:
        """A new catalogue with these arms."""
        dim = dim or len(next(iter(arms.values())))
        await self.ok("PUT", f"/v1/catalogues/{name}", {"dim": dim}, 201)
        ids, each = list(arms), max(1, 100_000 // dim)
        for first in range(0, len(ids), each):
            await self.put_arms(name, {arm: arms[arm] for arm in ids[first : first + each]})

    async def put_arms(self, name: str, arms: Mapping[str, Sequence[float]]) -> Json:
        rows = [{"id": arm, "features": list(map(float, row))} for arm, row in arms.items()]
        answer: Json = await self.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": rows})
        return answer

    async def bandit(self, name: str, catalogue: str, **rest: Any) -> None:
        """Make a bandit, in the unit of nothing: what it does can then be computed by hand."""
        plain = {"exploration": 1, "ridge": 1, "intercept": False}
        body = {"catalogue": catalogue, "policy": "sub_ts", **plain, **rest}
        await self.ok("PUT", f"/v1/bandits/{name}", body, 201)

    async def choose(self, bandit: str, **body: Any) -> Json:
        answer: Json = await self.ok("POST", f"/v1/bandits/{bandit}/choose", body)
        return answer

    async def reward(self, *rewards: Json, wait: bool = True) -> Json:
        path = "/v1/rewards?wait=applied" if wait else "/v1/rewards"
        answer: Json = await self.ok("POST", path, {"rewards": list(rewards)}, 200 if wait else 202)
        return answer

    async def observe(self, bandit: str, *observations: Json) -> Json:
        path = f"/v1/bandits/{bandit}/observations?wait=applied"
        answer: Json = await self.ok("POST", path, {"observations": list(observations)})
        return answer

    async def learner(self, bandit: str, key: str = "_global", *, precision: bool = False) -> Json:
        query = "?include=precision" if precision else ""
        answer: Json = await self.ok("GET", f"/v1/bandits/{bandit}/learners/{key}{query}")
        return answer

    async def listed(self, path: str, *, limit: int = 100) -> list[Json]:
        """Everything on the pages of a list."""
        found: list[Json] = []
        page = await self.ok("GET", path, params={"limit": limit})
        found += page["items"]
        while page["next"] is not None:
            page = await self.ok("GET", path, params={"limit": limit, "cursor": page["next"]})
            found += page["items"]
        return found

    async def due_now(self) -> None:
        """As if the waiting time of all logged decisions were over."""
        for partition in range(16):
            for member in await self.store.zrange(redis_keys.due(partition), 0, -1):
                await self.store.zadd(redis_keys.due(partition), {member: 1})

    async def count_defaults(self) -> None:
        """``due_now``, and wait until all defaults are learned."""
        await self.due_now()

        async def counted() -> bool:
            due = [await self.store.zcard(redis_keys.due(partition)) for partition in range(16)]
            return not any(due) and (await self.ok("GET", "/readyz"))["backlog"] == 0

        await wait_until(counted, what="the defaults are learned")

    async def left(
        self, method: str, path: str, *chunks: bytes, headers: Mapping[str, str] = {}
    ) -> list[Json]:
        """What is sent to a client that goes away after these chunks of its body."""
        messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        sent: list[Json] = []

        async def receive() -> Json:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw, "query_string": b""}
        async with asyncio.timeout(ANSWER_S):
            await self.app(scope, receive, send)
        return sent

    async def stored(self) -> dict[bytes, Any]:
        """All that the store holds, to the byte, once rewards are applied and deletions are finished.

        But for what is renewed all the time: the lease of the worker, and from when on rows are kept.
        """

        async def settled() -> bool:
            backlog = (await self.ok("GET", "/readyz"))["backlog"]
            return backlog == 0 and not await self.store.exists(redis_keys.DELETED)

        await wait_until(settled, what="rewards are applied and deletions finished")
        every = [name async for name in self.store.scan_iter(count=1_000)]
        leases = (redis_keys.WORKERS.encode(), b":follower")  # who works, not what is kept
        names = sorted(name for name in every if not name.endswith(leases))
        async with self.store.pipeline(transaction=False) as pipeline:
            for name in names:
                (pipeline.hgetall if name.endswith(ROW_LOGS) else pipeline.dump)(name)
            found: dict[bytes, Any] = dict(zip(names, await pipeline.execute(), strict=True))
        for name, fields in found.items():
            if name.endswith(ROW_LOGS):
                found[name] = {
                    field: value for field, value in fields.items() if not field.endswith(b":from")
                }
        return found


def assert_problem(
    answer: httpx.Response,
    status: int,
    code: str,
    *,
    loc: Sequence[str | int] | None = None,
    canary: str | None = None,
) -> Json:
    """Hold an answer to the one shape of all errors; ``loc`` must be among the places it names."""
    document: Json = answer.json()
    assert (answer.status_code, document.get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == PROBLEM
    assert set(document) == PROBLEM_FIELDS
    assert document["type"] == f"/problems/{code}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    for error in document["errors"]:
        assert set(error) == {"loc", "message"}
        assert error["message"]
        assert all(isinstance(part, str | int) for part in error["loc"])
    if loc is not None:
        assert list(loc) in [error["loc"] for error in document["errors"]], answer.text
    if canary is not None:
        assert canary.lower() not in answer.text.lower(), answer.text
    return document


IS_GROUP = "SHORTLIST_TEST_WORKERS" in os.environ
"""The application under test shares arms, which another one makes (`make test-workers`)."""

# In a group also the few arms of tests are shared, and while a test runs.
INDEX_LIMITS = IndexLimits(shared_numbers=1) if IS_GROUP else IndexLimits()
PAUSES = replace(PATIENT, index_poll_s=0.005, index_idle_s=0.02) if IS_GROUP else PATIENT
EAGER_HOUSEKEEPING = replace(PAUSES, housekeeping_s=0.01)
"""What is due is looked for every 10 ms."""


@asynccontextmanager
async def _maker(settings: Settings, group_dir: Path | None, **options: Any) -> AsyncIterator[None]:
    """Another process of the group, which makes what all share; nothing without a group."""
    if group_dir is None:
        yield
        return
    (group_dir / SHARED).mkdir(parents=True, exist_ok=True)
    others = settings.model_copy(update={"worker": False})
    app = create_app(others, group_dir=group_dir, number=2, **options)
    async with app.router.lifespan_context(app):
        yield


@asynccontextmanager
async def running(
    store_url: str,
    data_dir: Path,
    *,
    empty: bool = True,
    is_group: bool = IS_GROUP,
    pauses: Pauses = PAUSES,
    index_limits: IndexLimits = INDEX_LIMITS,
    **settings: Any,
) -> AsyncIterator[Api]:
    """The application with its lifespan run, over a store that is emptied first.

    ``is_group``: it shares arms, which another one makes.
    """
    options: dict[str, Any] = {"pauses": pauses, "index_limits": index_limits}
    async with connect(store_url) as store:
        if empty:
            await flush(store)
        app_settings = Settings(redis_url=store_url, data_dir=data_dir, **settings)
        group_dir = data_dir / "indexes" if is_group else None
        app = create_app(app_settings, group_dir=group_dir, **options)
        transport = httpx.ASGITransport(app)
        async with (
            _maker(app_settings, group_dir, **options),
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            yield Api(app, http, store)
