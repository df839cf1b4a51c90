"""SIGKILL of the service and of its store: what was rewarded is in the log, and nothing is there twice.

Clients choose and reward until there is no answer, and send the same reward again to the next service. Some
decisions are rewarded only after a kill, when their rows may be lost.
"""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from service_process import Service, serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{i}": [1.0, float(i), float(i * i)] for i in range(5)}
CLIENTS = 16
TOGETHER = 5  # decisions, in a request
PAGE = 1_000
DEFAULT = -7.0


class Traffic:
    """Decisions, and what is known to have come of them."""

    def __init__(self) -> None:
        self.rewards: dict[str, tuple[str, float]] = {}  # by token: arm and value, acknowledged
        self.pending: list[tuple[str, str, float]] = []  # sent, or to be sent, and not acknowledged
        self.made = 0

    async def client(self, http: httpx.AsyncClient, name: int) -> None:
        """Until there is no answer."""
        try:
            while True:
                bandit = "waits" if name % 4 == 0 else "b"
                asks = [{"key": f"k{name}", "k": 2}] * TOGETHER
                answer = await http.post(f"/v1/bandits/{bandit}/choose/batch", json={"requests": asks})
                if answer.status_code != 200:
                    return
                items = []
                for choice in answer.json()["results"]:
                    self.made += 1
                    items.append((choice["decision"], choice["arms"][1]["id"], float(self.made)))
                self.pending.append(items.pop())  # it is rewarded after the next kill
                await self.send(http, items)
        except httpx.TransportError:
            return

    async def send(self, http: httpx.AsyncClient, items: list[tuple[str, str, float]]) -> None:
        self.pending += items
        rewards = [{"decision": token, "arm": arm, "value": value} for token, arm, value in items]
        answer = await http.post("/v1/rewards", json={"rewards": rewards})
        if answer.status_code != 202:
            return
        receipt = answer.json()
        assert receipt["accepted"] + receipt["duplicate"] == len(items), receipt
        self.rewards |= {token: (arm, value) for token, arm, value in items}
        for item in items:
            self.pending.remove(item)

    async def send_pending(self, http: httpx.AsyncClient) -> None:
        pending, self.pending = self.pending, []
        for start in range(0, len(pending), 500):
            await self.send(http, pending[start : start + 500])

    async def check(self, http: httpx.AsyncClient) -> None:
        await self.send_pending(http)
        assert self.pending == []
        found = [row for bandit in ("b", "waits") for row in await all_rows(http, bandit)]
        tokens = Counter(row["decision"] for row in found)
        assert max(tokens.values()) == 1, "a row is there twice"
        assert self.rewards.keys() <= tokens.keys(), "a decision that was rewarded is missing"
        for row in found:
            came = [(reward["arm"], reward["value"]) for reward in row["rewards"] if not reward["default"]]
            expected = self.rewards.get(row["decision"])
            assert came == ([] if expected is None else [expected]), row
            defaults = [reward["arm"] for reward in row["rewards"] if reward["default"]]
            assert len(set(defaults)) == len(defaults), row


async def all_rows(http: httpx.AsyncClient, bandit: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": PAGE}
    while True:
        page = (await http.get(f"/v1/bandits/{bandit}/log", params=query)).json()
        found += page["items"]
        if page["next"] is None:
            return found
        query["cursor"] = page["next"]


async def build(http: httpx.AsyncClient) -> None:
    arms = [{"id": name, "features": row} for name, row in ARMS.items()]
    (await http.put("/v1/catalogues/c", json={"dim": 3})).raise_for_status()
    (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
    body = {"catalogue": "c", "policy": "linear_ts", "scope": "per_key", "log": {}}
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()
    waits = {"reward": {"wait_s": 0.3, "default": DEFAULT}}
    (await http.put("/v1/bandits/waits", json=body | waits)).raise_for_status()


async def until_the_kill(
    traffic: Traffic, service: Service, http: httpx.AsyncClient, count: int, *, store_first: bool
) -> None:
    await traffic.send_pending(http)
    clients = [asyncio.create_task(traffic.client(http, name)) for name in range(CLIENTS)]
    await decided(traffic, clients, count)
    if store_first and (pid := service.store_pid()) is not None:
        os.kill(pid, signal.SIGKILL)  # the service starts it again
        await decided(traffic, clients, count // 2)
    service.kill()
    await asyncio.gather(*clients)


async def decided(traffic: Traffic, clients: list[asyncio.Task[None]], count: int) -> None:
    """Return when so many decisions more were made, or nobody makes any."""
    before = traffic.made

    async def enough() -> bool:
        return traffic.made - before >= count or all(client.done() for client in clients)

    await wait_until(enough, what="decisions are made")


async def kill_again_and_again(folder: Path, *, kills: int, between: int) -> Traffic:
    traffic = Traffic()
    for number in range(kills + 1):
        with serving(folder) as service:
            async with service.client() as http:
                if number == 0:
                    await build(http)
                if number < kills:
                    await until_the_kill(traffic, service, http, between, store_first=number % 2 == 1)
                else:
                    await traffic.check(http)
    return traffic


async def test_killed_services_lose_no_decision_that_was_rewarded(tmp_path: Path):
    traffic = await kill_again_and_again(tmp_path, kills=2, between=150)
    assert len(traffic.rewards) > 200


@pytest.mark.slow
@pytest.mark.timeout(3_600)
async def test_a_hundred_thousand_rewarded_decisions_through_many_kills(tmp_path: Path):
    traffic = await kill_again_and_again(tmp_path, kills=40, between=3_200)
    assert len(traffic.rewards) > 100_000
