"""One bound of the store's memory: what fills it is refused in time, with the cause, and room comes back."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from api_client import EAGER_HOUSEKEEPING, Api, assert_problem, running
from app.storage.embedded.server import EmbeddedServer
from store_clients import connect
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS, DIM = 200, 48
SPARE_MB = 4  # above what an empty store takes
PAUSES = replace(EAGER_HOUSEKEEPING, memory_s=0.05)
SETTING = "SHORTLIST_MAX_STORE_MB"
Fill = Callable[[Api, int], Awaitable[httpx.Response]]


async def post(api: Api, path: str, body: Any) -> httpx.Response:
    """An answer that may be 503."""
    return await api.http.post(path, json=body, timeout=120)


async def choose(api: Api, bandit: str, requests: list[dict[str, Any]]) -> httpx.Response:
    return await post(api, f"/v1/bandits/{bandit}/choose/batch", {"requests": requests})


async def reward(api: Api, choices: httpx.Response, names: list[str]) -> httpx.Response:
    """A reward of each choice by each of these ids."""
    items = [
        {"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 1.0, "reward_id": name}
        for choice in choices.json()["results"]
        for name in names
    ]
    return await post(api, "/v1/rewards?wait=applied", {"rewards": items})


async def new_keys(api: Api, n: int) -> httpx.Response:
    """Learners of keys that were never seen."""
    choices = await choose(api, "full", [{"key": f"{n}-{i}"} for i in range(50)])
    return await reward(api, choices, ["click"])


async def events(api: Api, n: int) -> httpx.Response:
    return await choose(api, "full", [{"k": ARMS, "event_id": f"{n}-{i}"} for i in range(20)])


async def log_rows(api: Api, n: int) -> httpx.Response:
    return await choose(api, "full", [{"k": ARMS}] * 20)


async def sums_of_arms(api: Api, n: int) -> httpx.Response:
    rows = [
        {"id": f"{n}-{i}", "key": f"u{i % 10}", "arm": f"arm-{i % ARMS}", "value": float(i % 2)}
        for i in range(100)
    ]
    return await post(api, "/v1/bandits/full/observations?wait=applied", {"observations": rows})


async def dedupe_keys(api: Api, n: int) -> httpx.Response:
    names = [f"{n}-{i}-{'x' * 60}" for i in range(100)]
    return await reward(api, await choose(api, "full", [{}] * 10), names)


async def exposures(api: Api, n: int) -> httpx.Response:
    return await choose(api, "full", [{"key": f"{n}-{i}", "k": ARMS} for i in range(10)])


@dataclass(frozen=True)
class Way:
    """``full_at``: the level, in percent, at which it ends. ``counter``: of what is left out from 80 % on."""

    fill: Fill
    bandit: dict[str, Any]
    full_at: int
    counter: str = ""


WAYS = {
    "keys": Way(new_keys, {"scope": "per_key"}, 100),
    "events": Way(events, {}, 95),
    "log": Way(log_rows, {"log": {}}, 80, 'shortlist_log_rows_total{outcome="dropped"}'),
    "effects": Way(
        sums_of_arms,
        {"scope": "per_key", "arm_effects": "auto", "ridge": "auto", "prior": "learned"},
        95,
        "shortlist_decisions_without_effects_total",
    ),
    "dedupe": Way(dedupe_keys, {"reward": {"aggregate": "sum"}}, 100),
    "exposures": Way(
        exposures,
        {"scope": "per_key", "repeats": {"most": 1, "within_s": 86_400}},
        80,
        'shortlist_unlimited_repeats_total{counts="shown"}',
    ),
}


async def metric(api: Api, name: str) -> float:
    lines = (await api.call("GET", "/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


async def space(api: Api) -> list[str]:
    """The findings of want of memory."""
    found = (await api.ok("GET", "/v1/status"))["findings"]
    return [each["text"] for each in found if each["name"] == "space"]


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Api]:
    """A service whose store has room for some megabytes."""
    with EmbeddedServer(folder / "store") as server:
        async with connect(server.url) as client:
            used = int((await client.info("memory"))["used_memory"])
        bound = {"max_store_mb": (used >> 20) + SPARE_MB}
        async with running(server.url, folder / "service", pauses=PAUSES, **bound) as api:
            await api.catalogue("c", {f"arm-{n}": [1.0, n, *[0.0] * (DIM - 2)] for n in range(ARMS)})
            await api.bandit("stays", "c")
            yield api


@pytest.mark.parametrize("name", WAYS)
async def test_a_store_that_is_full_refuses_in_time_says_why_and_heals(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    async with small(tmp_path) as api:
        await api.bandit("full", "c", **way.bandit)
        before = (await api.choose("stays"))["decision"]
        most, accepted = await metric(api, "shortlist_store_most_bytes"), 0
        assert await space(api) == []
        if way.bandit.get("prior") == "learned":  # without one no arm learns, and nothing is left out
            assert (await way.fill(api, 5_000)).is_success
            await api.ok("POST", "/v1/bandits/full/prior/refresh")
        held = 0.0

        async def is_looked_at() -> bool:
            return await metric(api, "shortlist_store_bytes") != held

        for n in range(5_000):
            held = await metric(api, "shortlist_store_bytes")
            answer = await way.fill(api, n)
            if way.full_at == 95:  # between two looks at the store more than 100 % could be reached
                await wait_until(is_looked_at, what="the service knows what the store takes")
            if answer.status_code != 200 or (way.full_at == 80 and await metric(api, way.counter)):
                break
            accepted += answer.json().get("accepted", 0)
        held = max(held, await metric(api, "shortlist_store_bytes"))  # what is read by now may be gone again
        assert way.full_at / 100 - 0.05 < held / most < way.full_at / 100 + 0.1
        assert any(SETTING in text for text in await space(api))
        # of a call that is refused, rewards before may have been accepted: sent again they are duplicates
        applied = await metric(api, "shortlist_rewards_applied_total")
        assert accepted <= applied < accepted + 1_000, "all that was acknowledged"
        if way.counter:
            assert await metric(api, way.counter) > 0
        if way.full_at > 80:
            assert SETTING in assert_problem(answer, 503, "store_full")["detail"]
            assert answer.headers["retry-after"] == "60"
            numbers = itertools.count(5_000)

            async def refused() -> httpx.Response | None:
                answer = await api.http.put(f"/v1/catalogues/new-{next(numbers)}", json={"dim": 1})
                if answer.is_success:  # what was folded meanwhile has made room
                    await way.fill(api, next(numbers))
                return None if answer.is_success else answer

            answer = await wait_until(refused, what="a catalogue is refused")
            assert SETTING in assert_problem(answer, 429, "quota_reached")["detail"]
        ready = await api.http.get("/readyz")
        if way.full_at == 100:
            assert SETTING in assert_problem(ready, 503, "unavailable")["detail"]
        else:
            assert ready.is_success
            assert (await api.reward({"decision": before, "value": 1}))["accepted"] == 1
        await api.choose("stays")
        await api.ok("DELETE", f"/v1/catalogues/c/arms/arm-{ARMS - 1}", status=204)
        await api.ok("DELETE", "/v1/bandits/full", status=204)

        async def has_room() -> bool:
            return not await space(api)

        await wait_until(has_room, what="the room of the deleted bandit is free again")
        await api.ok("GET", "/readyz")
        after = (await api.choose("stays", event_id="after"))["decision"]
        assert (await api.reward({"decision": after, "value": 1}))["accepted"] == 1
        learner = await api.learner("stays")
        assert learner["observations"] == (1 if way.full_at == 100 else 2)


async def test_from_80_percent_on_jobs_are_refused_and_rewards_still_reach_rows_that_are_there(
    tmp_path: Path,
) -> None:
    async with small(tmp_path) as api:
        await api.bandit("full", "c", log={})
        choice = await api.choose("full")
        decision = choice["decision"]
        path = "/v1/bandits/full/log?limit=1"

        async def is_logged() -> bool:
            return bool((await api.ok("GET", path))["items"])

        await wait_until(is_logged, what="the first row is written")
        for n in range(5_000):
            await log_rows(api, n)
            if await metric(api, 'shortlist_log_rows_total{outcome="dropped"}'):
                break
        hidden = (await api.choose("full"))["decision"]
        assert (await api.reward({"decision": decision, "value": 1}, {"decision": hidden, "value": 1}))[
            "accepted"
        ] == 2
        first = (await api.ok("GET", path))["items"][0]
        assert first["rewards"], "a row that is there has its rewards: others would bias reports"
        answer = await api.http.post(
            "/v1/bandits/full/evaluations?wait=none", json={"policy": {"policy": "linucb"}}
        )
        assert SETTING in assert_problem(answer, 503, "store_full")["detail"]


async def test_a_store_without_memory_refuses_writes_with_the_reason(tmp_path: Path) -> None:
    """Every kind of write; reading and choosing go on, and afterwards everything does."""
    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path / "service") as api, Redis.from_url(server.url) as store:
            await api.catalogue("c", {"a": [1.0], "b": [2.0]})
            await api.bandit("b", "c")
            await api.bandit("waits", "c", reward={"wait_s": 60})
            token = (await api.choose("b"))["decision"]
            hidden = (await api.choose("b", activate=False))["decision"]
            before = await api.stored()
            await store.config_set("maxmemory", 1)
            seen = {"id": "o", "arm": "a", "value": 1}
            slates = {"id": "s", "arms": ["a", "b"], "k": 1, "noise_std": 1, "epsilon": 0.5, "delta": 0.1}
            writes: list[tuple[str, str, Any]] = [
                ("POST", "/v1/rewards", {"rewards": [{"decision": token, "value": 1}]}),
                ("POST", "/v1/bandits/b/observations", {"observations": [seen]}),
                ("POST", "/v1/bandits/b/choose", {"event_id": "e"}),
                ("POST", "/v1/bandits/waits/choose", {}),
                ("POST", "/v1/decisions/activate", {"decisions": [hidden]}),
                ("PUT", "/v1/catalogues/d", {"dim": 1}),
                ("PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "x", "features": [3.0]}]}),
                ("PUT", "/v1/bandits/d", {"catalogue": "c", "policy": "sub_ts"}),
                ("POST", "/v1/slates", slates),
            ]
            for method, path, body in writes:
                answer = await api.http.request(method, path, json=body)
                assert answer.status_code in {429, 503}, path
                assert "maxmemory" in answer.json()["detail"]
            await api.choose("b")
            await api.ok("GET", "/v1/bandits/b")
            await store.config_set("maxmemory", 0)
            assert await api.stored() == before
            await api.ok("GET", "/readyz")  # which reads the memory, too
            for method, path, body in writes:
                answer = await api.call(method, path, body)
                assert answer.status_code < 300, answer.text
