"""Quotas over several services of one store: never more than there is, through kills and jumps of clocks.

What was answered is counted by the callers; an answer that got lost may count, and was shown to nobody.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from clock_shim import Clocks
from deployment import Cluster
from redis_cluster import RedisCluster
from redis_process import Redis
from service_process import Service, serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

QUOTAS = 50
JUMPS = sys.platform == "linux"  # a library is put before the system's
ARMS = {f"a{n}": n % (QUOTAS + 10) for n in range(240)}  # arm -> campaign; the last ten have no quota
Kill = Callable[[], Awaitable[None]]


def most_of(campaign: int, scale: int) -> int:
    return 1 + campaign * scale // QUOTAS


async def build(clients: list[httpx.AsyncClient], scale: int) -> None:
    http = clients[0]
    (await http.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
    rows = [
        {"id": arm, "features": [1.0, n / 240], "metadata": {"campaign": campaign}}
        for n, (arm, campaign) in enumerate(ARMS.items())
    ]
    (await http.put("/v1/catalogues/c/arms", json={"arms": rows})).raise_for_status()
    body = {"catalogue": "c", "policy": "softmax", "temperature": 10.0}
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()
    for campaign in range(QUOTAS):
        quota = {"filter": {"campaign": campaign}, "most": most_of(campaign, scale)}
        (await http.put(f"/v1/bandits/b/quotas/q{campaign}", json=quota)).raise_for_status()

    async def all_know_them() -> bool:
        return all([await quotas_known(each) == QUOTAS for each in clients])

    # What a service shows before it knows of a quota does not count.
    await wait_until(all_know_them, what="every service knows all quotas")


async def quotas_known(http: httpx.AsyncClient) -> float:
    lines = (await http.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("shortlist_quotas{"))


class Callers:
    """Many callers of several services; ``shown``: what they were answered."""

    def __init__(self, clients: list[httpx.AsyncClient]) -> None:
        self.clients = clients
        self.shown = Counter[int]()
        self.answers = 0

    async def call(self, draw: random.Random) -> None:
        """One choice, or a batch of five. A lost answer for events is asked for again, of any service."""
        is_for_events, is_batch = draw.random() < 0.3, draw.random() < 0.5
        bodies: list[dict[str, Any]] = [{"k": draw.choice([1, 1, 2, 5])} for _ in range(5 if is_batch else 1)]
        if is_for_events:
            bodies = [{**each, "event_id": f"e{draw.random()}"} for each in bodies]
        path, body = ("choose/batch", {"requests": bodies}) if is_batch else ("choose", bodies[0])
        if not is_batch and draw.random() < 0.3:
            bodies[0]["activate"] = False
        for _ in range(3 if is_for_events else 1):
            try:
                answer = await draw.choice(self.clients).post(f"/v1/bandits/b/{path}", json=body)
            except httpx.HTTPError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 200:
                choices = answer.json()["results"] if is_batch else [answer.json()]
                if "activate" not in body or await self.activated(choices[0], draw):
                    self.count(choices)
                return
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.02)

    async def activated(self, choice: dict[str, Any], draw: random.Random) -> bool:
        """Whether a deferred choice was shown, as far as the caller hears."""
        self.answers += 1
        body = {"decisions": [choice["decision"]]}
        try:
            answer = await draw.choice(self.clients).post("/v1/decisions/activate", json=body)
        except httpx.HTTPError:
            return False
        assert answer.status_code in {200, 503}, answer.text
        # By another process, or after a kill, it may be one that was activated before.
        return answer.status_code == 200 and answer.json()["activated"] == 1

    def count(self, choices: list[dict[str, Any]]) -> None:
        self.answers += len(choices)
        campaigns = (ARMS[arm["id"]] for choice in choices for arm in choice["arms"])
        self.shown.update(campaign for campaign in campaigns if campaign < QUOTAS)

    async def many(self, count: int, callers: int, seed: int) -> None:
        left = iter(range(count))

        async def caller(number: int) -> None:
            draw = random.Random(f"{seed}/{number}")
            for _ in left:
                await self.call(draw)

        await asyncio.gather(*(caller(number) for number in range(callers)))


async def check(callers: Callers, scale: int, lost: float) -> None:
    """Nothing is above its quota, all but ``lost`` of it was shown, and the store knows the rest."""
    over = {c: n for c, n in callers.shown.items() if n > most_of(c, scale)}
    assert over == {}
    total = sum(most_of(campaign, scale) for campaign in range(QUOTAS))
    print(f"{callers.answers} choices; {callers.shown.total()} of {total} shown")
    assert sum(callers.shown.values()) >= (1.0 - lost) * total
    for campaign in range(QUOTAS):
        quota = (await callers.clients[0].get(f"/v1/bandits/b/quotas/q{campaign}")).json()
        assert quota["used"] + quota["left"] == quota["most"]
        assert quota["used"] >= callers.shown[campaign]


@dataclass(frozen=True)
class Trial:
    """``calls``: each of three choices, on average. ``stores``: how often the store is killed and started
    again; of a cluster, one node of it. ``lost``: of all that quotas allow, what may be shown to nobody: what
    was under way when a process or the store was killed.
    """

    services: int
    calls: int
    callers: int
    kills: int
    stores: int
    scale: int
    lost: float


SMALL = Trial(services=2, calls=200, callers=50, kills=2, stores=1, scale=36, lost=0.2)
LARGE = Trial(services=4, calls=40_000, callers=200, kills=40, stores=10, scale=4_000, lost=0.1)
ON_NODES = Trial(services=2, calls=6_000, callers=200, kills=12, stores=6, scale=900, lost=0.1)


@pytest.mark.parametrize(
    "trial", [SMALL, pytest.param(LARGE, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])], ids=str
)
async def test_never_above_through_kills_and_jumps_of_clocks(tmp_path: Path, clocks: Clocks, trial: Trial):
    redis = Redis(tmp_path / "redis", preload=clocks.store.settings if JUMPS else None)
    try:
        await run(tmp_path, redis, trial, clocks if JUMPS else None)
    finally:
        redis.close()


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.skipif(not RedisCluster.is_possible(), reason="redis-server is not installed")
async def test_never_above_on_a_cluster_through_kills_of_services_and_nodes(tmp_path: Path):
    cluster = Cluster(tmp_path / "cluster")
    try:
        await run(tmp_path, cluster, ON_NODES, None)
    finally:
        cluster.close()


async def run(folder: Path, store: Redis | Cluster, trial: Trial, clocks: Clocks | None) -> None:
    """Callers of services that are killed or stopped, and started again, over a store that is killed too."""
    draw, settings = random.Random(trial.calls), clocks.services.settings if clocks else {}
    async with AsyncExitStack() as stack:

        def started(number: int) -> Service:
            return stack.enter_context(serving(folder / f"{number}", "--redis-url", store.url, **settings))

        running = [started(number) for number in range(trial.services)]
        clients = [await stack.enter_async_context(service.client()) for service in running]
        callers = Callers(clients)
        await build(clients, trial.scale)
        events = ["service"] * trial.kills + ["store"] * trial.stores
        draw.shuffle(events)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(callers.many(trial.calls, trial.callers, seed=trial.services))
            for number, what in enumerate(events):
                goal = callers.answers + draw.randrange(2 * trial.calls // len(events))
                while callers.answers < goal and not work.done():  # noqa: ASYNC110 - however long it takes
                    await asyncio.sleep(0.005)
                if clocks is not None:
                    clocks.jump_to(draw.choice([0, 3_600, -3_600, 90_000]))
                if what == "store":
                    await asyncio.to_thread(store.kill)
                    await asyncio.to_thread(store.restart)
                    continue
                victim = draw.randrange(trial.services)
                if draw.random() < 0.3:
                    running[victim].send(signal.SIGTERM)
                    await asyncio.to_thread(running[victim].wait)
                else:
                    running[victim].kill()
                running[victim] = await asyncio.to_thread(started, trial.services + number)
                client = running[victim].client()
                callers.clients[victim] = await stack.enter_async_context(client)
        for _ in range(10):
            await callers.many(70, 20, seed=trial.calls + callers.answers)
            await asyncio.sleep(0.2)  # others hear what is closed
        assert callers.answers >= 2 * trial.calls
        await check(callers, trial.scale, trial.lost)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 10])
async def test_never_above_through_kills_of_an_embedded_store(tmp_path: Path, kills: int):
    scale = 60 * kills
    with serving(tmp_path) as service:
        async with service.client() as http:
            callers = Callers([http])
            await build([http], scale)
            async with asyncio.TaskGroup() as group:
                group.create_task(callers.many(250 * kills, 50, seed=kills))
                for _ in range(kills):
                    await asyncio.sleep(1.0)
                    pid = service.store_pid()
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)  # the service starts it again
            for _ in range(5):
                await callers.many(70, 20, seed=callers.answers)
                await asyncio.sleep(0.3)
            await check(callers, scale, lost=0.25)
