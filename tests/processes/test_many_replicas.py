"""Replicas over a Redis Cluster of three nodes behind a balancer that sends each request to another of them.

A decision is made by one replica and rewarded at another, while replicas and nodes are killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from traffic import ARMS, KEYS, Traffic

from deployment import Town, town
from redis_cluster import NODES, RedisCluster
from waiting import wait_until

pytestmark = [
    pytest.mark.rest,
    pytest.mark.anyio,
    pytest.mark.skipif(not RedisCluster.is_possible(), reason="redis-server is not installed"),
]


class Balancer:
    """Sends each request to a drawn replica; ``answered`` counts the requests that each one took."""

    def __init__(self, made: Town, rng: np.random.Generator) -> None:
        self._town = made
        self._rng = rng
        self._clients: dict[str, httpx.AsyncClient] = {}
        self.answered: Counter[tuple[str, str]] = Counter()
        self.last_rewards: list[Any] = []

    def client(self, place: int) -> httpx.AsyncClient:
        replica = self._town.replicas[place]
        if replica.url not in self._clients:
            self._clients[replica.url] = replica.client()
        return self._clients[replica.url]

    async def post(self, path: str, *, json: Any) -> httpx.Response:
        http = self.client(int(self._rng.integers(len(self._town.replicas))))
        answer = await http.post(path, json=json)
        if answer.is_success:
            self.answered[str(http.base_url), path] += 1
            if path == "/v1/rewards":
                self.last_rewards = [*self.last_rewards[-20:], json]
        return answer

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


async def through_kills(traffic: Traffic, made: Town, balancer: Any, kills: list[Callable[[], None]]) -> None:
    """Traffic of every key; each kill comes after some more rewards."""
    stop = asyncio.Event()
    visitors = [asyncio.create_task(traffic.run(balancer, key, stop, endure=True)) for key in KEYS]
    try:
        for kill in [*kills, lambda: None]:
            goal = traffic.acknowledged + 15 * len(made.replicas)

            async def reached(goal: int = goal) -> bool:
                return traffic.acknowledged >= goal

            await wait_until(reached, what="rewards are acknowledged")
            await asyncio.to_thread(kill)
    finally:
        stop.set()
        await asyncio.gather(*visitors)


def node_killed(made: Town) -> None:
    made.redis.kill()
    made.redis.restart()


async def by_every_replica(
    made: Town, balancer: Balancer, done: Callable[[int, httpx.AsyncClient], Awaitable[bool]], what: str
) -> None:
    """Every replica does it, all at once, again until it is done."""

    async def of(place: int) -> None:
        await wait_until(lambda: done(place, balancer.client(place)), what=f"{what}, replica {place}")

    await asyncio.gather(*map(of, range(len(made.replicas))))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "nodes"), [(3, 1), (8, NODES)])
async def test_replicas_over_a_cluster_learn_and_change_as_one(
    tmp_path: Path, count: int, nodes: int
) -> None:
    """The first replica, the last one and ``nodes`` nodes are killed, one after the other."""
    with town(tmp_path, replicas=count, workers=2, cluster=True) as made:
        traffic, balancer = Traffic(), Balancer(made, np.random.default_rng(count))
        await traffic.build(balancer.client(0))
        kills = [lambda place=place: made.replace(place) for place in (0, count - 1)]
        kills += [lambda: node_killed(made)] * nodes
        await through_kills(traffic, made, balancer, kills)
        await traffic.settle(balancer.client(0))
        await every_replica_answers(traffic, made, balancer)
        await every_replica_has_learned_all(traffic, made, balancer)
        await every_replica_changes_the_catalogue(made, balancer)
        await traffic.settle(balancer.client(count - 1))
        await balancer.close()
        made.check_replay()
        assert traffic.statuses <= {200, 202, 503}
        assert all("Traceback" not in replica.text() for replica in made.replicas)


async def every_replica_answers(traffic: Traffic, made: Town, balancer: Balancer) -> None:
    """Each of those that live now has chosen and has taken rewards."""

    async def both(place: int, http: httpx.AsyncClient) -> bool:
        paths = {path for url, path in balancer.answered if url == str(http.base_url)}
        return paths == {"/v1/bandits/b/choose", "/v1/rewards"} or not await traffic.step(balancer, "u0")

    await by_every_replica(made, balancer, both, "it chooses and takes rewards")


async def every_replica_has_learned_all(traffic: Traffic, made: Town, balancer: Balancer) -> None:
    """Rewards that are sent again are duplicates wherever they come to, and choices are from all of them."""
    for place in range(len(made.replicas)):
        for body in balancer.last_rewards:
            answer = await balancer.client(place).post("/v1/rewards", json=body)
            assert answer.json()["duplicate"] == 1, answer.text

    async def learned(place: int, http: httpx.AsyncClient) -> bool:
        choices = [(await http.post("/v1/bandits/b/choose", json={"key": key})).json() for key in KEYS]
        return [each["learner_version"] for each in choices] == [len(traffic.expected[key]) for key in KEYS]

    await by_every_replica(made, balancer, learned, "it chooses by all that was learned")


async def every_replica_changes_the_catalogue(made: Town, balancer: Balancer) -> None:
    """Each adds an arm and deletes another's while a node is killed; then all have the same."""

    async def added(place: int, http: httpx.AsyncClient) -> bool:
        arm = {"id": f"new-{place}", "features": [1.0, 1.0, float(place)]}
        return (await http.put("/v1/catalogues/c/arms", json={"arms": [arm]})).is_success

    async def deleted(place: int, http: httpx.AsyncClient) -> bool:
        ids = [f"a{place % len(ARMS)}"]
        return (await http.post("/v1/catalogues/c/arms/delete", json={"ids": ids})).is_success

    killing = asyncio.create_task(asyncio.to_thread(node_killed, made))
    await by_every_replica(made, balancer, added, "it adds an arm")
    await by_every_replica(made, balancer, deleted, "it deletes an arm")
    await killing
    count = len(made.replicas)
    left = set(ARMS) - {f"a{place % len(ARMS)}" for place in range(count)}
    expected = left | {f"new-{place}" for place in range(count)}

    async def seen(place: int, http: httpx.AsyncClient) -> bool:
        page = await http.get("/v1/catalogues/c/arms")
        return page.is_success and {arm["id"] for arm in page.json()["items"]} == expected

    await by_every_replica(made, balancer, seen, "it has every change")
