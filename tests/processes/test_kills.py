"""SIGKILL for the service and for its store, under traffic: what was acknowledged counts, and counts once."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest
from traffic import KEYS, Traffic

from service_process import Service, serving
from waiting import wait_until

pytestmark = pytest.mark.anyio


async def kill_service(folder: Path, traffic: Traffic, kills: int) -> Traffic:
    """Kill it so often, and then until so many rewards were under way at a kill: 40 more are enough."""
    for number in range(kills + 40):
        with serving(folder) as service:
            async with service.client() as http:
                if number == 0:
                    await traffic.build(http)
                await traffic.settle(http)
                if number >= kills and traffic.sent_again >= kills:
                    break
                await one_kill(traffic, service, http, number)
    assert traffic.sent_again >= kills, "kills hit rewards under way"
    assert traffic.statuses == {200, 202}
    return traffic


async def one_kill(traffic: Traffic, service: Service, http: httpx.AsyncClient, number: int) -> None:
    """Kill it after some more rewards, a different number each time, while others are under way."""
    before, stop = traffic.acknowledged, asyncio.Event()
    clients = [asyncio.create_task(traffic.run(http, key, stop, endure=False)) for key in KEYS]

    async def enough() -> bool:
        return traffic.acknowledged - before > 50 + 37 * number

    await wait_until(enough, what="rewards are acknowledged")
    service.kill()
    await asyncio.gather(*clients)


async def test_a_killed_service_counts_every_reward_once(tmp_path: Path):
    traffic = await kill_service(tmp_path, Traffic(), kills=3)
    assert traffic.acknowledged > 3 * 50 + 37 * (1 + 2), "each kill comes after some more"


@pytest.mark.slow
async def test_a_service_killed_many_times_counts_every_reward_once(tmp_path: Path):
    await kill_service(tmp_path, Traffic(), kills=30)


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

    await wait_until(enough, what="rewards are acknowledged")
    pid = await wait_until(server, what="the store runs")
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
                status = (await http.get("/v1/status")).json()
                assert (status["ready"], status["arms"], status["store_away_since"] > 0) == (False, 8, True)
                alive = await http.post(choose, json={"key": "u0"})
                assert alive.status_code == 200, "a learner in memory goes on choosing"
                assert (await http.get("/healthz")).status_code == 200
            finally:
                os.kill(pid, signal.SIGCONT)

            async def ready() -> bool:
                return (await http.get("/readyz")).status_code == 200

            await wait_until(ready, what="the service is ready again")
            (await http.put("/v1/catalogues/c/arms", json=arm)).raise_for_status()
            assert (await http.get("/v1/catalogues/c/arms/new")).json()["features"] == [1, 2, 3]
            answer = (await http.post("/v1/rewards?wait=applied", json=reward)).json()
            assert answer["accepted"] + answer["duplicate"] == 1
            assert (await http.get("/v1/bandits/b/learners/u0")).json()["observations"] == 1
