"""Two service processes over one store, and `serve --workers N`: what one does, the other knows."""

import asyncio
import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from traffic import KEYS, Traffic

from app.storage.embedded.server import EmbeddedServer
from dropping_proxy import DroppingProxy
from redis_cluster import RedisCluster
from service_process import children, run, serving
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {"arms": [{"id": f"a{i}", "features": [1.0, i / 10]} for i in range(6)]}
BANDIT = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with store_server(tmp_path / "redis", binary=binary()) as url:
        yield url


def binary() -> Path | None:
    """The server of the system where there is one: not the one that is embedded otherwise."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


async def ok(http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    answer = await http.request(method, path, json=body)
    assert answer.status_code < 300, (path, answer.text)
    return answer.json() if answer.content else None


async def build(http: httpx.AsyncClient) -> None:
    await ok(http, "PUT", "/v1/catalogues/c", {"dim": 2})
    await ok(http, "PUT", "/v1/catalogues/c/arms", ARMS)
    await ok(http, "PUT", "/v1/bandits/b", BANDIT)


async def test_everything_done_by_one_is_known_to_the_other(tmp_path: Path, url: str):
    """What is new is found at once, for who is asked for it polls; what has changed is known soon."""
    with (
        serving(tmp_path / "1", "--redis-url", url) as first,
        serving(tmp_path / "2", "--redis-url", url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await build(one)
            choice = await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})
            reward = {"rewards": [{"decision": choice["decision"], "value": 1}]}
            assert (await ok(one, "POST", "/v1/rewards?wait=applied", reward))["accepted"] == 1
            assert (await ok(two, "POST", "/v1/rewards", reward))["duplicate"] == 1

            async def learned() -> bool:
                again = await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})
                return bool(again["learner_version"] == 1)

            await wait_until(learned, what="the learner is followed")
            await ok(one, "POST", "/v1/catalogues/c/arms/delete", {"ids": ["a0", "a1"]})
            await ok(two, "PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "new", "features": [2, 2]}]})
            for http in (one, two):

                async def complete(http: httpx.AsyncClient = http) -> bool:
                    page = await ok(http, "GET", "/v1/catalogues/c/arms")
                    return {arm["id"] for arm in page["items"]} == {"a2", "a3", "a4", "a5", "new"}

                await wait_until(complete, what="the arms are followed")
            await ok(one, "DELETE", "/v1/bandits/b/learners/ann")

            async def forgotten() -> bool:
                again = await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})
                return bool(again["learner_version"] == 0)

            await wait_until(forgotten, what="the deletion of the learner is followed")
            await ok(two, "DELETE", "/v1/bandits/b")

            async def gone() -> bool:
                return (await one.get("/v1/bandits/b")).status_code == 404

            await wait_until(gone, what="the deletion of the bandit is followed")
            await ok(one, "DELETE", "/v1/catalogues/c")
            assert first.process.poll() is second.process.poll() is None
            for process in (first, second):
                assert [r for r in process.records() if r["level"] in {"ERROR", "WARNING"}] == []


async def test_a_paused_process_catches_up_before_it_answers(tmp_path: Path, url: str):
    """Its first answers after the pause are of what was done meanwhile, or say how old they are."""
    with (
        serving(tmp_path / "1", "--redis-url", url) as first,
        serving(tmp_path / "2", "--redis-url", url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await build(one)
            await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})
            os.kill(second.pid, signal.SIGSTOP)
            try:
                for number in range(20):
                    arm = {"id": f"n{number}", "features": [3, number]}
                    await ok(one, "PUT", "/v1/catalogues/c/arms", {"arms": [arm]})
                items = [{"id": f"o{i}", "key": "ann", "arm": f"n{i}", "value": 1} for i in range(20)]
                await ok(one, "POST", "/v1/bandits/b/observations?wait=applied", {"observations": items})
                await asyncio.sleep(1.2)  # longer than the bound: what is known now is old
                version = (await ok(one, "GET", "/v1/catalogues/c"))["version"]
                asking = [
                    asyncio.create_task(two.post("/v1/bandits/b/choose", json={"key": "ann"}))
                    for _ in range(5)
                ]
                await asyncio.sleep(0.1)
            finally:
                os.kill(second.pid, signal.SIGCONT)
            for answer in await asyncio.gather(*asking):
                choice = answer.json()
                fresh = (choice["catalogue_version"], choice["learner_version"]) == (version, 20)
                assert fresh or choice["stale_s"] > 1.0

            async def current() -> bool:
                ready = await two.get("/readyz")
                if ready.status_code != 200:
                    return False
                assert (await ok(two, "GET", "/v1/catalogues/c"))["version"] == version
                return True

            await wait_until(current, what="it is ready, and then it is up to date")


async def test_a_process_that_is_cut_off_says_so_and_catches_up(tmp_path: Path):
    """Choices go on and tell their age, rewards are refused, it is not ready; then all is as it should be."""
    with (
        EmbeddedServer(tmp_path / "redis", binary=binary()) as redis,
        DroppingProxy(str(redis.socket_path)) as proxy,
        serving(tmp_path / "1", "--redis-url", redis.url) as first,
        serving(tmp_path / "2", "--redis-url", proxy.url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await build(one)
            before = await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})
            assert "stale_s" not in before
            proxy.sever()
            await ok(one, "PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "n", "features": [9, 9]}]})

            async def told() -> bool:
                choice = await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})
                return bool(choice.get("stale_s"))

            await wait_until(told, what="choices say that they are old")
            reward = {"rewards": [{"decision": before["decision"], "value": 1}]}
            answer = await two.post("/v1/rewards", json=reward)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert (await two.get("/readyz")).status_code == 503
            assert (await two.get("/healthz")).status_code == 200
            metrics = await two.get("/metrics")
            assert metrics.status_code == 200, "they are most wanted now"
            assert "shortlist_reward_backlog NaN" in metrics.text
            proxy.mend()

            async def ready() -> bool:
                return (await two.get("/readyz")).status_code == 200

            await wait_until(ready, what="it is ready again")
            assert (await ok(two, "GET", "/v1/catalogues/c/arms/n"))["features"] == [9, 9]
            assert (await ok(two, "POST", "/v1/rewards?wait=applied", reward))["accepted"] == 1
            assert "stale_s" not in await ok(two, "POST", "/v1/bandits/b/choose", {"key": "ann"})


@pytest.mark.skipif(not RedisCluster.is_possible(), reason="redis-server is not installed")
@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_a_service_on_a_cluster_of_which_a_node_is_killed(tmp_path: Path, nodes: int):
    """Two replicas over three nodes: everything works, and goes on when the node is back."""
    with (
        RedisCluster(tmp_path / "cluster") as cluster,
        serving(tmp_path / "1", "--redis-url", cluster.url) as first,
        serving(tmp_path / "2", "--redis-url", cluster.url) as second,
    ):
        traffic = Traffic()
        async with first.client() as one, second.client() as two:
            await traffic.build(one)
            for node in range(nodes):
                stop, goal = asyncio.Event(), traffic.acknowledged + 40
                replicas = itertools.cycle((one, two))
                visitors = [
                    asyncio.create_task(traffic.run(next(replicas), key, stop, endure=True)) for key in KEYS
                ]

                async def reached(goal: int) -> bool:
                    return traffic.acknowledged >= goal

                await wait_until(lambda goal=goal: reached(goal), what="rewards are acknowledged")
                await asyncio.to_thread(cluster.kill, node)
                await asyncio.to_thread(cluster.restart, node)
                await wait_until(lambda goal=goal: reached(goal + 40), what="rewards are acknowledged again")
                stop.set()
                await asyncio.gather(*visitors)
            await traffic.settle(two)
        for process in (first, second):
            assert [r for r in process.records() if r["message"] == "request failed"] == []
        assert traffic.statuses <= {200, 202, 503}
        done = await asyncio.to_thread(run, "replay", "--check", "--redis-url", cluster.url, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


async def test_several_processes_on_one_address(tmp_path: Path):
    """Each request may meet another process; one is killed, and another takes its place."""
    with serving(tmp_path, "--workers", "2") as service:
        assert len(children(service.pid)) == 2
        accepted = 0
        async with service.client() as http:
            await build(http)
        for is_before in (True, False):
            for number in range(12):
                async with service.client() as http:  # a new connection: any process may answer
                    body = {"key": f"u{number}"}
                    choice = await ok(http, "POST", "/v1/bandits/b/choose", body)
                    reward = {"rewards": [{"decision": choice["decision"], "value": 1}]}
                    accepted += (await ok(http, "POST", "/v1/rewards?wait=applied", reward))["accepted"]
            if not is_before:
                break
            victim, *others = children(service.pid)
            os.kill(victim, signal.SIGKILL)

            async def replaced(victim: int = victim) -> bool:
                now = children(service.pid)
                return len(now) == 2 and victim not in now

            await wait_until(replaced, what="the killed process is replaced")
            assert set(others) <= set(children(service.pid))
        assert accepted == 24
        async with service.client() as http:
            for number in range(12):
                learner = await ok(http, "GET", f"/v1/bandits/b/learners/u{number}")
                assert learner["observations"] == 2
        service.send(signal.SIGTERM)
        assert await asyncio.to_thread(service.wait) == 0
        assert service.records()[-1]["message"] == "stopped"
