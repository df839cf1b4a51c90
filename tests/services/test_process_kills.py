"""SIGKILL for the service and for its store, under traffic: what was acknowledged counts, and counts once.

Every reward is of one bandit with aggregate "first" and has a value of its own. A client that got no answer
sends the same reward again, to the next service if need be. In the end each reward was sent until it was
acknowledged, so the sums are known exactly: values are integers and their sums have no rounding.
"""

import asyncio
import os
import signal
from collections import defaultdict
from pathlib import Path

import httpx
import numpy as np
import pytest
from service_process import Service, serving
from waiting import until

pytestmark = pytest.mark.anyio

KEYS = [f"u{i}" for i in range(12)]
ARMS = {f"a{i}": [1.0, float(i % 3), float(i)] for i in range(8)}
LOST = (httpx.TransportError,)


class Traffic:
    """Clients, one per key, who choose and reward, and remember what must have been learned."""

    def __init__(self) -> None:
        self.expected: dict[str, list[tuple[list[float], float]]] = defaultdict(list)
        self.pending: dict[str, tuple[str, str, float]] = {}
        self.numbers = iter(range(1, 10**9))
        self.statuses: set[int] = set()
        self.acknowledged = 0
        self.sent_again = 0

    async def step(self, http: httpx.AsyncClient, key: str) -> bool:
        """Choose if nothing is pending, then reward; False when there was no answer."""
        try:
            if key not in self.pending:
                answer = await http.post("/v1/bandits/b/choose", json={"key": key})
                self.statuses.add(answer.status_code)
                if answer.status_code != 200:
                    return False
                choice = answer.json()
                self.pending[key] = (choice["decision"], choice["arms"][0]["id"], float(next(self.numbers)))
            else:
                self.sent_again += 1
            token, arm, value = self.pending[key]
            body = {"rewards": [{"decision": token, "value": value}]}
            answer = await http.post("/v1/rewards", json=body)
        except LOST:
            return False
        self.statuses.add(answer.status_code)
        if answer.status_code not in {200, 202}:
            return False
        receipt = answer.json()
        assert receipt["accepted"] + receipt["duplicate"] == 1, receipt
        del self.pending[key]
        self.expected[key].append((ARMS[arm], value))
        self.acknowledged += 1
        return True

    async def run(self, http: httpx.AsyncClient, key: str, stop: asyncio.Event, *, endure: bool) -> None:
        """Until told to stop, or, unless it should ``endure``, until the service is gone."""
        while not stop.is_set():
            if not await self.step(http, key):
                if not endure:
                    return
                await asyncio.sleep(0.005)

    async def settle(self, http: httpx.AsyncClient) -> None:
        """Send again what was not acknowledged, and compare every learner with what it must be, exactly."""
        for key in list(self.pending):
            await until(lambda key=key: self.step(http, key), what="the reward is acknowledged")

        async def applied() -> bool:
            return bool((await http.get("/readyz")).json().get("backlog") == 0)  # none while it is not ready

        await until(applied, what="the backlog is applied")
        for key in KEYS:
            learner = (await http.get(f"/v1/bandits/b/learners/{key}?include=precision")).json()
            rows = self.expected[key]
            assert learner["observations"] == learner["version"] == len(rows), key
            X, r = np.array([row for row, _ in rows]).reshape(-1, 3), np.array([value for _, value in rows])
            V = np.array(learner["precision"])
            assert np.array_equal(V, np.eye(3) + X.T @ X), key
            np.testing.assert_allclose(V @ learner["theta"], X.T @ r, rtol=1e-9, atol=1e-6)

    async def build(self, http: httpx.AsyncClient) -> None:
        arms = [{"id": name, "features": row} for name, row in ARMS.items()]
        (await http.put("/v1/catalogues/c", json={"dim": 3})).raise_for_status()
        (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
        body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
        (await http.put("/v1/bandits/b", json=body)).raise_for_status()


async def kill_service(folder: Path, kills: int) -> Traffic:
    traffic = Traffic()
    for number in range(kills + 1):
        with serving(folder) as service:
            async with service.client() as http:
                if number == 0:
                    await traffic.build(http)
                await traffic.settle(http)
                if number < kills:
                    await one_kill(traffic, service, http, number)
    assert traffic.statuses == {200, 202}
    return traffic


async def one_kill(traffic: Traffic, service: Service, http: httpx.AsyncClient, number: int) -> None:
    """Kill it after some more rewards, a different number each time, while others are under way."""
    before, stop = traffic.acknowledged, asyncio.Event()
    clients = [asyncio.create_task(traffic.run(http, key, stop, endure=False)) for key in KEYS]

    async def enough() -> bool:
        return traffic.acknowledged - before > 50 + 37 * number

    await until(enough, what="rewards are acknowledged")
    service.kill()
    await asyncio.gather(*clients)


async def test_a_killed_service_counts_every_reward_once(tmp_path: Path):
    traffic = await kill_service(tmp_path, kills=5)
    assert traffic.acknowledged > 500
    assert traffic.sent_again >= 5, "kills hit rewards under way"


@pytest.mark.slow
async def test_a_service_killed_many_times_counts_every_reward_once(tmp_path: Path):
    traffic = await kill_service(tmp_path, kills=30)
    assert traffic.sent_again >= 30


async def kill_store(folder: Path, kills: int) -> Traffic:
    traffic, stop = Traffic(), asyncio.Event()
    with serving(folder) as service:
        async with service.client() as http:
            await traffic.build(http)
            clients = [asyncio.create_task(traffic.run(http, key, stop, endure=True)) for key in KEYS]
            for _ in range(kills):
                await one_store_kill(traffic, service)
            stop.set()
            await asyncio.gather(*clients)
            await traffic.settle(http)
            await served_is_stored(http)
        assert service.process.poll() is None
        assert "Traceback" not in service.text()
    return traffic


async def one_store_kill(traffic: Traffic, service: Service) -> None:
    before = traffic.acknowledged

    async def enough() -> bool:
        return traffic.acknowledged > before + 100

    async def server() -> int | None:
        return await asyncio.to_thread(service.store_pid)

    await until(enough, what="rewards are acknowledged")
    pid = await until(server, what="the store runs")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def served_is_stored(http: httpx.AsyncClient) -> None:
    """Choices are made from the learners as stored: none was left behind by a lost reply."""
    for key in KEYS:
        stored = (await http.get(f"/v1/bandits/b/learners/{key}")).json()
        choice = (await http.post("/v1/bandits/b/choose", json={"key": key})).json()
        assert choice["learner_version"] == stored["version"], key


async def test_a_killed_store_is_unavailable_for_a_moment_and_loses_nothing(tmp_path: Path):
    """The service answers 503 until the store is back, never 500; then every reward counts once."""
    traffic = await kill_store(tmp_path, kills=3)
    assert traffic.statuses == {200, 202, 503}


@pytest.mark.slow
async def test_a_store_killed_many_times_loses_nothing(tmp_path: Path):
    traffic = await kill_store(tmp_path, kills=15)
    assert traffic.statuses == {200, 202, 503}


async def test_without_its_store_the_service_says_so_everywhere(tmp_path: Path):
    """A store that is stopped, not dead: every call that needs it is a 503 with Retry-After, in seconds."""
    with serving(tmp_path) as service:
        async with service.client() as http:
            await Traffic().build(http)
            token = (await http.post("/v1/bandits/b/choose", json={"key": "u0"})).json()["decision"]
            pid = service.store_pid()
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                reward = {"rewards": [{"decision": token, "value": 1}]}
                arm = {"arms": [{"id": "new", "features": [1, 2, 3]}]}
                choose = "/v1/bandits/b/choose"
                calls = [
                    http.get("/readyz"),
                    http.get("/v1/status"),
                    http.get("/v1/bandits/b/learners/u0"),
                    http.put("/v1/catalogues/c/arms", json=arm),
                    http.put("/v1/catalogues/d", json={"dim": 1}),
                    http.post("/v1/rewards", json=reward),
                    http.post(choose, json={"key": "new"}),
                    http.post(choose, json={"key": "u0", "event_id": "e"}),
                ]
                answers = await asyncio.gather(*calls)
                for answer in answers:
                    assert answer.status_code == 503, answer.text
                    assert answer.json()["code"] == "unavailable"
                    assert int(answer.headers["retry-after"]) >= 1
                alive = await http.post(choose, json={"key": "u0"})
                assert alive.status_code == 200, "a learner in memory goes on choosing"
                assert (await http.get("/healthz")).status_code == 200
            finally:
                os.kill(pid, signal.SIGCONT)

            async def ready() -> bool:
                return (await http.get("/readyz")).status_code == 200

            await until(ready, what="the service is ready again")
            (await http.put("/v1/catalogues/c/arms", json=arm)).raise_for_status()
            assert (await http.get("/v1/catalogues/c/arms/new")).json()["features"] == [1, 2, 3]
            answer = (await http.post("/v1/rewards?wait=applied", json=reward)).json()
            assert answer["accepted"] + answer["duplicate"] == 1
            assert (await http.get("/v1/bandits/b/learners/u0")).json()["observations"] == 1
