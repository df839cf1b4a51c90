"""Bandits with a context, through kills, in several processes and on a cluster: as without one."""

import asyncio
import itertools
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
from test_kills import kill_service
from traffic import ARMS, KEYS, Traffic

from redis_cluster import RedisCluster
from service_process import run, serving
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

FIELDS = [
    {"name": "device", "kind": "category", "values": ["mobile", "desktop"]},
    {"name": "query", "kind": "hash", "size": 4},
]


class ContextTraffic(Traffic):
    """Contexts of small integers, another one each time, so that all sums have no rounding."""

    options: ClassVar[dict[str, Any]] = {"context": {"dim": 2}}
    dim = 3 + 3 * 2
    least_ratio = 320 / (2.5 + 2.5 * 2)  # of three numbers of an arm 2.5 are not 0, on average

    def request(self, key: str) -> dict[str, Any]:
        number = next(self.numbers)
        return {"key": key, "context": [number % 3 - 1, number % 5]}

    def learned_from(self, arm: str, request: dict[str, Any]) -> list[float]:
        return [*ARMS[arm], *(x * u for x in ARMS[arm] for u in request["context"])]

    def estimate(self, learner: dict[str, Any]) -> list[float]:
        return [*learner["theta"], *itertools.chain.from_iterable(learner["weights"])]


@pytest.mark.slow
async def test_a_killed_service_counts_every_reward_once_in_its_context(tmp_path: Path):
    await kill_service(tmp_path, ContextTraffic(), kills=3)
    done = await asyncio.to_thread(
        run, "replay", "--check", "--data-dir", str(tmp_path / "data"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def ok(http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    answer = await http.request(method, path, json=body)
    assert answer.status_code < 300, (path, answer.text)
    return answer.json() if answer.content else None


async def test_two_processes_serve_one_bandit(tmp_path: Path):
    """They have the same directions and the same numbers for a context, so seeded choices are the same."""
    rng = np.random.default_rng(2)
    arms = [{"id": f"a{n}", "features": rng.normal(size=6).tolist()} for n in range(50)]
    options = {"catalogue": "c", "policy": "sub_ts", "context": {"fields": FIELDS}, "interactions": 2}
    asked = {"context": {"device": "mobile", "query": "red shoes"}, "k": 3, "seed": 5}
    with (
        store_server(tmp_path / "store") as url,
        serving(tmp_path / "1", "--redis-url", url) as first,
        serving(tmp_path / "2", "--redis-url", url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await ok(one, "PUT", "/v1/catalogues/c", {"dim": 6})
            await ok(one, "PUT", "/v1/catalogues/c/arms", {"arms": arms})
            made = await ok(one, "PUT", "/v1/bandits/b", options)
            await ok(one, "PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "far", "features": [90] * 6}]})
            assert await ok(two, "PUT", "/v1/bandits/b", options) == made
            path = "/v1/bandits/b/learners/_global?include=directions"
            assert await ok(two, "GET", path) == await ok(one, "GET", path)
            choice = await ok(two, "POST", "/v1/bandits/b/choose", asked)
            reward = {"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 2.0}
            await ok(one, "POST", "/v1/rewards?wait=applied", {"rewards": [reward]})

            async def learned() -> bool:
                found = [await ok(http, "POST", "/v1/bandits/b/choose", asked) for http in (one, two)]
                current = all(each["learner_version"] == 1 for each in found)
                same = found[0]["arms"] == found[1]["arms"]
                assert same or len({each["catalogue_version"] for each in found}) > 1 or not current
                return current and same

            await wait_until(learned, what="both have learned")


@pytest.mark.skipif(not RedisCluster.is_possible(), reason="redis-server is not installed")
@pytest.mark.slow
async def test_two_processes_on_a_cluster(tmp_path: Path):
    traffic = ContextTraffic()
    with (
        RedisCluster(tmp_path / "cluster") as cluster,
        serving(tmp_path / "1", "--redis-url", cluster.url) as first,
        serving(tmp_path / "2", "--redis-url", cluster.url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await traffic.build(one)
            stop, replicas = asyncio.Event(), itertools.cycle((one, two))
            visitors = [
                asyncio.create_task(traffic.run(next(replicas), key, stop, endure=True)) for key in KEYS
            ]

            async def enough() -> bool:
                return traffic.acknowledged >= 150

            await wait_until(enough, what="rewards are acknowledged")
            stop.set()
            await asyncio.gather(*visitors)
            await traffic.settle(two)
        done = await asyncio.to_thread(run, "replay", "--check", "--redis-url", cluster.url, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
