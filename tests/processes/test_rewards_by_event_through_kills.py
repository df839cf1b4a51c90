"""SIGKILL for service and store while rewards come by token and by event: each counts once."""

import asyncio
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from traffic import KEYS, LOST, Traffic

from service_process import serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

TOGETHER = 20  # choices of a key in one call
KILLS = 5  # of the service, and as many of the store
REWARDS = 10_000


class ByEvent(Traffic):
    """Clients who choose for events of their own, and reward most by event. A third of the rewards come
    again, in the same call or in a later one, by the other name of the decision.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.by_name: dict[str, list[tuple[dict[str, Any], list[float], float]]] = {}
        self.came_again = 0
        self.made = defaultdict[str, int](int)

    async def step(self, http: httpx.AsyncClient, key: str) -> bool:
        try:
            if key not in self.by_name and not await self._choose(http, key):
                return False
            return await self._reward(http, key)
        except LOST:
            return False

    async def _choose(self, http: httpx.AsyncClient, key: str) -> bool:
        """Choose for the next events, or again for those whose answer was lost."""
        if key not in self.asked:
            numbers = range(self.made[key], self.made[key] + TOGETHER)
            self.asked[key] = [{"key": key, "event_id": f"e{number}"} for number in numbers]
            self.made[key] += TOGETHER
        body = {"requests": self.asked[key]}
        answer = await http.post("/v1/bandits/b/choose/batch", json=body)
        self.statuses.add(answer.status_code)
        if answer.status_code != 200:
            return False
        rows = []
        for request, choice in zip(self.asked.pop(key), answer.json()["results"], strict=True):
            names = {"by event": {"bandit": "b", **request}, "by token": {"decision": choice["decision"]}}
            rows.append(
                (names, self.learned_from(choice["arms"][0]["id"], request), float(next(self.numbers)))
            )
        self.by_name[key] = rows
        self.pending[key] = ("", [], 0.0)  # ``settle`` asks for what is pending
        return True

    async def _reward(self, http: httpx.AsyncClient, key: str) -> bool:
        rows = self.by_name[key]
        first, again = list[dict[str, Any]](), list[dict[str, Any]]()
        for number, (names, _, value) in enumerate(rows):
            # every third by token first, of which one half comes by event in the same call
            order = ("by token", "by event") if number % 3 == 0 else ("by event", "by token")
            first.append({**names[order[0]], "value": value})
            if number % 3 == 0:
                (first if number % 2 else again).append({**names[order[1]], "value": value})
        receipt = await self._send(http, first)
        if receipt is None:
            return False
        assert receipt["accepted"] + receipt["duplicate"] == len(first), receipt
        receipt = await self._send(http, again)
        if receipt is None:
            return False
        assert receipt == {"accepted": 0, "duplicate": len(again), "rejected": []}
        del self.by_name[key], self.pending[key]
        self.expected[key] += [(row, value) for _, row, value in rows]
        self.acknowledged += len(rows)
        self.came_again += len(first) + len(again) - len(rows)
        return True

    async def _send(self, http: httpx.AsyncClient, rewards: list[dict[str, Any]]) -> dict[str, Any] | None:
        answer = await http.post("/v1/rewards", json={"rewards": rewards})
        self.statuses.add(answer.status_code)
        if answer.status_code not in {200, 202}:
            self.sent_again += 1
            return None
        receipt: dict[str, Any] = answer.json()
        assert receipt["rejected"] == []
        return receipt


async def kill_all(folder: Path, traffic: ByEvent, *, kills: int, rewards: int) -> None:
    """Kill store and service in turn, and go on until so many rewards are acknowledged."""
    each = -(-rewards // (2 * kills))

    async def until(count: int) -> None:
        async def enough() -> bool:
            return traffic.acknowledged >= count

        await wait_until(enough, what="rewards are acknowledged")

    for number in range(kills):
        with serving(folder) as service:
            async with service.client() as http:
                if number == 0:
                    await traffic.build(http)
                await traffic.settle(http)
                stop = asyncio.Event()
                clients = [asyncio.create_task(traffic.run(http, key, stop, endure=True)) for key in KEYS]
                await until(traffic.acknowledged + each)
                pid = await wait_until(
                    lambda service=service: asyncio.to_thread(service.store_pid), what="the store runs"
                )
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                await until(traffic.acknowledged + each)
                service.kill()
                stop.set()
                await asyncio.gather(*clients)
    with serving(folder) as service:
        async with service.client() as http:
            await traffic.settle(http)
    assert traffic.acknowledged >= rewards
    assert traffic.statuses <= {200, 202, 503}


async def test_rewards_by_token_and_event_count_once_through_kills(tmp_path: Path):
    traffic = ByEvent()
    await kill_all(tmp_path, traffic, kills=KILLS, rewards=REWARDS)
    assert traffic.came_again >= REWARDS / 3
