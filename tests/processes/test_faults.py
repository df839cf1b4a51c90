"""Everything that can go wrong, under traffic, with real processes. Afterwards, always the same.

Every acknowledged reward counts exactly once, the states are those of a replay of the log bit for bit, and
clients saw nothing but 200, 202 and 503. Seeds are parameters, so a run can be repeated.
"""

import asyncio
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis
from traffic import KEYS, Traffic

from clock_shim import Clocks
from deployment import Town, town
from dropping_proxy import DroppingProxy
from redis_process import Redis
from service_process import run, serving
from store_server import ON_CLUSTER
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def drive(traffic: Traffic, town: Town, rng: np.random.Generator, kills: Counter[str]) -> None:
    """Traffic on all replicas while what ``kills`` says is killed, in a drawn order, at drawn moments."""
    stop = asyncio.Event()

    async def visitor(key: str) -> None:
        while not stop.is_set():
            replica = town.replicas[int(rng.integers(len(town.replicas)))]
            async with replica.client() as http:
                for _ in range(20):
                    if stop.is_set() or not await traffic.step(http, key):
                        await asyncio.sleep(0.005)
                        break
                    await asyncio.sleep(0)

    visitors = [asyncio.create_task(visitor(key)) for key in KEYS]
    try:
        for what in rng.permutation(sorted(kills.elements())):
            goal = traffic.acknowledged + int(rng.integers(3, 25))
            await wait_until(lambda goal=goal: _reached(traffic, goal), what="rewards are acknowledged")
            await asyncio.to_thread(kill, town, str(what), rng)
    finally:
        stop.set()
        await asyncio.gather(*visitors)


async def _reached(traffic: Traffic, goal: int) -> bool:
    return traffic.acknowledged >= goal


def kill(town: Town, what: str, rng: np.random.Generator) -> None:
    if what == "worker":
        town.crew.kill(int(rng.choice(town.crew.pids)))
        town.crew.hire()
    elif what == "store":
        town.redis.kill()
        town.redis.restart()
    else:
        town.replace(int(rng.integers(len(town.replicas))))


async def settled(traffic: Traffic, town: Town) -> None:
    async with town.replicas[0].client() as http:
        await traffic.settle(http)
    town.check_replay()
    assert traffic.statuses <= {200, 202, 503}
    for replica in town.replicas:
        assert "Traceback" not in replica.text()


async def killed(folder: Path, seed: int, **kills: int) -> Traffic:
    print(f"seed {seed}")
    traffic = Traffic()
    with town(folder, replicas=2, workers=2, cluster=ON_CLUSTER) as made:
        async with made.replicas[0].client() as http:
            await traffic.build(http)
        await drive(traffic, made, np.random.default_rng(seed), Counter(kills))
        await settled(traffic, made)
    return traffic


async def test_workers_replicas_and_the_store_are_killed(tmp_path: Path):
    """Two replicas, two workers and a store, five kills in a drawn order."""
    traffic = await killed(tmp_path, 1, worker=2, store=2, replica=1)
    assert traffic.acknowledged > 30
    assert traffic.sent_again > 0, "kills hit rewards under way"


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(10))
async def test_workers_replicas_and_the_store_are_killed_many_times(tmp_path: Path, seed: int):
    """In all runs together 500 workers, 200 stores and 30 replicas."""
    await killed(tmp_path, 100 + seed, worker=50, store=20, replica=3)


async def test_replies_are_lost(tmp_path: Path):
    """One in twelve replies of the store never arrives: the write was made, nobody knows."""
    with (
        town(tmp_path, replicas=0, workers=1) as made,
        DroppingProxy(str(made.redis.socket), seed=2) as proxy,
        serving(tmp_path, "--redis-url", proxy.url) as service,
    ):
        made.replicas = [service]
        traffic = Traffic()
        async with service.client() as http:
            await traffic.build(http)
            proxy.drop = 1 / 12
            for _ in range(20):  # how many replies there are, and of which calls, is up to the machine
                await acknowledged(traffic, http, 150)
                if proxy.dropped > 5 and traffic.sent_again:
                    break
            assert proxy.dropped > 5
            assert traffic.sent_again > 0
            proxy.mend()
        await settled(traffic, made)


async def acknowledged(
    traffic: Traffic, http: httpx.AsyncClient, count: int, meanwhile: Callable[[], None] | None = None
) -> None:
    """Traffic until so many more rewards are acknowledged; half way, something happens."""
    stop, goal = asyncio.Event(), traffic.acknowledged + count
    visitors = [asyncio.create_task(traffic.run(http, key, stop, endure=True)) for key in KEYS]
    try:
        if meanwhile is not None:
            await wait_until(lambda: _reached(traffic, goal - count // 2), what="half of the rewards")
            await asyncio.to_thread(meanwhile)
        await wait_until(lambda: _reached(traffic, goal), what="all of the rewards")
    finally:
        stop.set()
        await asyncio.gather(*visitors)


@pytest.mark.slow
async def test_a_worker_is_paused_beyond_its_lease(tmp_path: Path):
    """Its partitions go to the other one; what it had read by then it cannot write any more."""
    with town(tmp_path, replicas=1, workers=2, cluster=ON_CLUSTER) as made:
        traffic = Traffic()
        async with made.replicas[0].client() as http:
            await traffic.build(http)
            for cycle in range(3):
                pid = made.crew.pids[cycle % 2]
                await acknowledged(traffic, http, 60, lambda pid=pid: os.kill(pid, signal.SIGSTOP))

                async def applied() -> bool:
                    return bool((await http.get("/readyz")).json()["backlog"] == 0)

                await wait_until(applied, what="the other worker has taken over")
                os.kill(pid, signal.SIGCONT)
        await settled(traffic, made)


async def away(folder: Path, seconds: float) -> None:
    """Choices go on and say how old they are; rewards are refused, none is lost; then all is as before."""
    with (
        town(folder, replicas=0, workers=1) as made,
        DroppingProxy(str(made.redis.socket)) as proxy,
        serving(folder, "--redis-url", proxy.url) as service,
    ):
        made.replicas = [service]
        traffic = Traffic()
        async with service.client() as http:
            await traffic.build(http)
            await acknowledged(traffic, http, 60)
            await traffic.settle(http)
            for key in KEYS:
                (await http.post("/v1/bandits/b/choose", json={"key": key})).raise_for_status()
            proxy.sever()
            until_s = asyncio.get_running_loop().time() + seconds
            choices = refused = 0
            while asyncio.get_running_loop().time() < until_s or choices <= 50:
                key = KEYS[choices % len(KEYS)]
                answer = await http.post("/v1/bandits/b/choose", json={"key": key})
                assert answer.status_code == 200, answer.text
                choices += 1
                refused += not await traffic.step(http, key)
                await asyncio.sleep(0.01)
            assert answer.json()["stale_s"] > 1.0
            assert refused == choices, "no reward is acknowledged that nobody stored"
            assert 503 in traffic.statuses
            proxy.mend()
            await acknowledged(traffic, http, 60)
            answer = await http.post("/v1/bandits/b/choose", json={"key": "u0"})
            assert "stale_s" not in answer.json()
        await settled(traffic, made)


async def test_the_store_is_away(tmp_path: Path):
    await away(tmp_path, 3.0)


@pytest.mark.slow
async def test_the_store_is_away_for_a_minute(tmp_path: Path):
    await away(tmp_path, 60.0)


@pytest.mark.slow
async def test_the_store_is_slow_and_then_hangs(tmp_path: Path):
    """Who is in memory is chosen for at once, whatever the store does."""
    with (
        town(tmp_path, replicas=0, workers=1) as made,
        DroppingProxy(str(made.redis.socket)) as proxy,
        serving(tmp_path, "--redis-url", proxy.url) as service,
    ):
        made.replicas = [service]
        traffic = Traffic()
        async with service.client() as http:
            await traffic.build(http)
            await acknowledged(traffic, http, 40)
            proxy.delay_s = 0.15
            await acknowledged(traffic, http, 40)
            proxy.delay_s = 0.0
            await traffic.settle(http)
            choose = {"key": "u0"}
            (await http.post("/v1/bandits/b/choose", json=choose)).raise_for_status()
            proxy.hang = True

            async def told() -> bool:
                answer = await http.post("/v1/bandits/b/choose", json=choose)
                return bool(answer.json().get("stale_s"))

            await wait_until(told, what="choices say that they are old")
            proxy.mend()
            await acknowledged(traffic, http, 40)
        await settled(traffic, made)


@pytest.mark.skipif(sys.platform != "linux", reason="a library put before the system's: Linux only")
async def test_clocks_jump(tmp_path: Path, clocks: Clocks):
    """The store's clock, and that of services and workers, jump by hours, ahead and back, each by itself."""
    stores, services = clocks.store, clocks.services
    with town(tmp_path, workers=2, preload=stores.settings, **services.settings) as made:
        traffic = Traffic()
        async with made.replicas[0].client() as http:
            await traffic.build(http)
            jumps = [(stores, 3_600), (services, -7_200), (stores, -7_200), (services, 3_600), (stores, 0)]
            for clock, offset_s in jumps:
                await acknowledged(traffic, http, 40, lambda c=clock, o=offset_s: c.jump_to(o))
            made.crew.kill(made.crew.pids[0])
            stores.jump_to(-20_000)  # the lease of the dead worker lies far ahead now
            await acknowledged(traffic, http, 40)
            with redis.Redis(unix_socket_path=str(made.redis.socket)) as store:
                assert abs(store.time()[0] - time.time() + 20_000) < 60, "the clock did jump"
        await settled(traffic, made)


@pytest.mark.slow
async def test_two_services_on_one_data_directory(tmp_path: Path):
    """The second is refused in the middle of traffic, and does no harm."""
    with serving(tmp_path) as service:
        traffic = Traffic()
        async with service.client() as http:
            await traffic.build(http)

            def second() -> None:
                words = ("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
                done = run(*words, cwd=tmp_path)
                assert done.returncode == 2
                assert f"in use by process {service.pid}" in done.stderr

            await acknowledged(traffic, http, 60, second)
            await traffic.settle(http)
        done = run("replay", "--check", "--data-dir", str(tmp_path / "data"), cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert traffic.statuses <= {200, 202}


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process: Linux only")
async def test_the_disk_is_full(tmp_path: Path):
    """The store's files may not grow any more: nothing is acknowledged that is not on disk."""
    with town(tmp_path, replicas=1, workers=2) as made:
        traffic = Traffic()
        async with made.replicas[0].client() as http:
            await traffic.build(http)
            await acknowledged(traffic, http, 60)
            await traffic.settle(http)
            for key in KEYS:
                (await http.post("/v1/bandits/b/choose", json={"key": key})).raise_for_status()
            largest = max(path.stat().st_size for path in made.redis.folder.rglob("*") if path.is_file())
            ignore_file_size_signal(made.redis)
            resource.prlimit(made.redis.process.pid, resource.RLIMIT_FSIZE, (largest + 8_000,) * 2)

            async def full() -> bool:
                for key in KEYS:
                    await traffic.step(http, key)
                return 503 in traffic.statuses

            await wait_until(full, what="the disk is full")
            before = traffic.acknowledged
            for key in KEYS:
                answer = await http.post("/v1/bandits/b/choose", json={"key": key})
                assert answer.status_code == 200
                assert not await traffic.step(http, key)
            assert traffic.acknowledged == before
            made.redis.kill()
            made.redis.restart()  # with room
            await acknowledged(traffic, http, 60)
        await settled(traffic, made)


def ignore_file_size_signal(store: Redis) -> None:
    """A full disk is an error of a write; a limit is a signal too, which the server must ignore."""
    status = Path(f"/proc/{store.process.pid}/status").read_text()
    ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    assert ignored & 1 << (signal.SIGXFSZ - 1)
