"""Quotas over several services of one store: never more than there is, through kills of services and store.

What was answered is counted by the callers; an answer that got lost may count, and was shown to nobody.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from service_process import Service, serving
from store_server import store_server

pytestmark = pytest.mark.anyio

QUOTAS = 50
ARMS = {f"a{n}": n % (QUOTAS + 10) for n in range(240)}  # arm -> campaign; the last ten have no quota
Kill = Callable[[], Awaitable[None]]


def most_of(campaign: int, scale: int) -> int:
    return 1 + campaign * scale // QUOTAS


async def build(http: httpx.AsyncClient, scale: int) -> None:
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


class Callers:
    """Many callers of several services; ``shown``: what they were answered."""

    def __init__(self, clients: list[httpx.AsyncClient]) -> None:
        self.clients = clients
        self.shown = Counter[int]()
        self.answers = 0

    async def call(self, draw: random.Random) -> int:
        """How many arms with a quota were shown."""
        body: dict[str, Any] = {"k": draw.choice([1, 1, 2, 5])}
        if draw.random() < 0.3:
            body["event_id"] = f"e{draw.random()}"
        for _ in range(3 if "event_id" in body else 1):  # a lost answer is asked for again, of any service
            try:
                answer = await draw.choice(self.clients).post("/v1/bandits/b/choose", json=body)
            except httpx.HTTPError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code != 200:
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.02)
                continue
            self.answers += 1
            counted = [campaign for arm in answer.json()["arms"] if (campaign := ARMS[arm["id"]]) < QUOTAS]
            self.shown.update(counted)
            return len(counted)
        return 0

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
    assert sum(callers.shown.values()) >= (1.0 - lost) * total
    for campaign in range(QUOTAS):
        quota = (await callers.clients[0].get(f"/v1/bandits/b/quotas/q{campaign}")).json()
        assert quota["used"] + quota["reserved"] + quota["left"] == quota["most"]
        assert quota["used"] + quota["reserved"] >= callers.shown[campaign]


@pytest.mark.parametrize(
    ("services", "calls", "kills", "scale"),
    [(2, 2_500, 3, 150), pytest.param(4, 40_000, 40, 2_500, marks=pytest.mark.slow)],
)
async def test_never_above_through_kills_of_services(
    tmp_path: Path, services: int, calls: int, kills: int, scale: int
):
    async with AsyncExitStack() as stack:
        url = stack.enter_context(store_server(tmp_path / "redis"))

        def started(number: int) -> Service:
            return stack.enter_context(serving(tmp_path / f"{number}", "--redis-url", url))

        running = [started(number) for number in range(services)]
        clients = [await stack.enter_async_context(service.client()) for service in running]
        callers = Callers(clients)
        await build(callers.clients[0], scale)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(callers.many(calls, 50 if services == 2 else 200, seed=services))
            for number in range(kills):
                await asyncio.sleep(0.8)
                if work.done():
                    break
                victim = number % services
                if number % 3 == 2:  # one that is stopped gives its share back
                    running[victim].send(signal.SIGTERM)
                    await asyncio.to_thread(running[victim].wait)
                else:
                    running[victim].kill()
                running[victim] = await asyncio.to_thread(started, services + number)
                client = running[victim].client()
                callers.clients[victim] = await stack.enter_async_context(client)
        for _ in range(20):
            await callers.many(200, 20, seed=calls + callers.answers)
            await asyncio.sleep(0.2)  # what is held and not used goes back
        await check(callers, scale, lost=0.25)


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
async def test_never_above_through_kills_of_the_store(tmp_path: Path, kills: int):
    scale = 60 * kills
    with serving(tmp_path) as service:
        async with service.client() as http:
            callers = Callers([http])
            await build(http, scale)
            async with asyncio.TaskGroup() as group:
                group.create_task(callers.many(700 * kills, 50, seed=kills))
                for _ in range(kills):
                    await asyncio.sleep(1.0)
                    pid = service.store_pid()
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)  # the service starts it again
            for _ in range(10):
                await callers.many(200, 20, seed=callers.answers)
                await asyncio.sleep(0.3)
            await check(callers, scale, lost=0.25)
