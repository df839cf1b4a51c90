"""`serve --no-worker` and `shortlist worker` processes over one external store."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from app.storage.embedded.server import EmbeddedServer
from dropping_proxy import CHUNK, DroppingProxy
from service_process import Service, ShortlistProcess, run, serving
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

SAMPLE = "prior-sample"  # what a fit reads first, once in a process
WRITE = b":prior-times:"  # what it writes last, and nobody reads


class HoldingProxy(DroppingProxy):
    """What a fit writes does not pass, nor what follows it."""

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while WRITE not in (data := await reader.read(CHUNK)) and data:
            writer.write(data)
            await writer.drain()
        if data:
            await asyncio.Event().wait()
        raise ConnectionResetError


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A redis-server of the system where there is one: not the server that is embedded otherwise."""
    binary = shutil.which("redis-server")
    with store_server(tmp_path / "redis", binary=Path(binary) if binary else None) as url:
        yield url


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """The same, also where other tests have a cluster: a proxy does not stand between its nodes."""
    binary = shutil.which("redis-server")
    with EmbeddedServer(tmp_path / "redis", binary=Path(binary) if binary else None) as server:
        yield server


@asynccontextmanager
async def worker(folder: Path, url: str) -> AsyncIterator[ShortlistProcess]:
    process = ShortlistProcess(folder / "workers", ["worker", "--redis-url", url], {})
    try:
        await asyncio.to_thread(process.await_message, "worker is ready")  # meanwhile clients go on
        yield process
    finally:
        process.kill()


@asynccontextmanager
async def service(
    folder: Path, url: str, **settings: str
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    with serving(folder, "--redis-url", url, "--no-worker", **settings) as process:
        async with process.client() as http:
            yield process, http


async def build(http: httpx.AsyncClient, prior: str = "learned") -> None:
    arms = [{"id": f"a{i}", "features": [1.0, float(i)]} for i in range(6)]
    (await http.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
    (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "prior": prior}
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()


async def reward(http: httpx.AsyncClient, key: str, *, wait: bool = False) -> httpx.Response:
    choice = (await http.post("/v1/bandits/b/choose", json={"key": key})).json()
    body = {"rewards": [{"decision": choice["decision"], "value": 1}]}
    answer = await http.post("/v1/rewards" + ("?wait=applied" if wait else ""), json=body)
    assert answer.json()["accepted"] == 1, answer.text
    return answer


async def test_rewards_wait_for_a_worker_and_are_applied_by_it(tmp_path: Path, url: str):
    async with service(tmp_path, url) as (_, http):
        await build(http)
        for _ in range(5):
            assert (await reward(http, "ann")).status_code == 202
        learner = (await http.get("/v1/bandits/b/learners/ann")).json()
        assert (learner["observations"], (await http.get("/readyz")).json()["backlog"]) == (0, 5)
        async with worker(tmp_path, url) as process:
            assert (await reward(http, "ann", wait=True)).status_code == 200
            learner = (await http.get("/v1/bandits/b/learners/ann")).json()
            assert (learner["observations"], (await http.get("/readyz")).json()["backlog"]) == (6, 0)

            async def chosen_from() -> bool:
                choice = (await http.post("/v1/bandits/b/choose", json={"key": "ann"})).json()
                return bool(choice["learner_version"] == 6)

            await wait_until(chosen_from, what="the cached learner is read again")
            process.send(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait) == 0
            assert [r for r in process.records() if r["level"] in {"ERROR", "WARNING"}] == []


async def test_a_worker_learns_the_prior_of_bandits_that_it_does_not_serve(tmp_path: Path, url: str):
    """Also without a key that a service forgets. No service here fits a prior by itself."""
    async with service(tmp_path, url) as (_, http), worker(tmp_path, url):
        await build(http)
        for number in range(7):
            await reward(http, f"u{number}", wait=True)

        async def prior(keys: int) -> dict[str, int]:
            found = (await http.get("/v1/bandits/b/prior")).json()
            return found if found["keys"] == keys else {}

        first = await wait_until(lambda: prior(7), what="a prior of all keys")
        (await http.delete("/v1/bandits/b/learners/u3")).raise_for_status()
        second = await wait_until(lambda: prior(6), what="the next one after a key was forgotten")
        assert second["version"] > first["version"]
        choice = (await http.post("/v1/bandits/b/choose", json={"key": "new"})).json()
        assert choice["prior_version"] >= 2


async def test_a_worker_that_is_killed_while_it_fits_changes_nothing_and_the_next_one_fits(
    tmp_path: Path, server: EmbeddedServer
):
    """It is killed at some moment after the first read of the fit. What the fit writes does not arrive."""
    rng, url = np.random.default_rng(1), server.url
    keys, dim = 500, 40
    arms = [{"id": f"a{i}", "features": row.tolist()} for i, row in enumerate(rng.normal(size=(50, dim)))]
    observations = [
        {"id": str(i), "key": f"u{i % keys}", "arm": f"a{i % 49}", "value": i % 3} for i in range(2 * keys)
    ]
    async with service(tmp_path, url) as (_, http):
        (await http.put("/v1/catalogues/c", json={"dim": dim})).raise_for_status()
        (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
        body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
        (await http.put("/v1/bandits/b", json=body)).raise_for_status()
        done = await asyncio.to_thread(run, "worker", "--burst", "--redis-url", url, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        sent = await http.post("/v1/bandits/b/observations", json={"observations": observations})
        assert sent.raise_for_status().json()["accepted"] == len(observations)
        done = await asyncio.to_thread(run, "worker", "--burst", "--redis-url", url, cwd=tmp_path)
        assert done.returncode == 0, done.stderr  # all is learned, and a burst fits nothing
        learner = (await http.get("/v1/bandits/b/learners/u7")).json()
        with (
            HoldingProxy(str(server.socket_path)) as proxy,
            redis.Redis.from_url(url) as store,
            store.monitor() as monitor,
        ):
            process = ShortlistProcess(tmp_path / "killed", ["worker", "--redis-url", proxy.url], {})

            def kill_in_a_fit() -> None:
                for command in monitor.listen():
                    if SAMPLE in command["command"]:
                        process.kill()
                        return

            await asyncio.to_thread(kill_in_a_fit)
        assert (await http.get("/v1/bandits/b/prior")).json()["version"] == 0
        assert (await http.get("/v1/bandits/b/learners/u7")).json() == learner
        assert (await http.post("/v1/bandits/b/choose", json={"key": "u7"})).json()["prior_version"] == 0
        async with worker(tmp_path, url):

            async def prior() -> dict[str, int]:
                found = (await http.get("/v1/bandits/b/prior")).json()
                return found if found["version"] else {}

            found = await wait_until(prior, what="the prior of the next worker")
            assert (found["version"], found["keys"], found["observations"]) == (1, keys, 2 * keys)

            async def chosen_by_it() -> bool:
                choice = (await http.post("/v1/bandits/b/choose", json={"key": "u7"})).json()
                return bool(choice["prior_version"] == 1)

            await wait_until(chosen_by_it, what="choices are made by it")


async def test_a_burst_applies_what_is_there_and_ends(tmp_path: Path, url: str):
    async with service(tmp_path, url) as (_, http):
        await build(http)
        for number in range(20):
            await reward(http, f"u{number}")
        assert (await http.get("/readyz")).json()["backlog"] == 20
        for _ in range(2):
            done = await asyncio.to_thread(run, "worker", "--burst", "--redis-url", url, cwd=tmp_path)
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
            assert (await http.get("/readyz")).json()["backlog"] == 0
        lost = await asyncio.to_thread(
            run, "worker", "--burst", "--redis-url", "redis://127.0.0.1:1", cwd=tmp_path
        )
        assert lost.returncode == 2
        assert "the store does not answer" in lost.stderr


async def test_a_backlog_beyond_its_bound_is_not_ready(tmp_path: Path, url: str):
    async with service(tmp_path, url, SHORTLIST_MAX_BACKLOG="3") as (_, http):
        await build(http)
        for _ in range(4):
            await reward(http, "ann")
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert (await reward(http, "ann")).status_code == 202, "rewards are durable all the same"
        async with worker(tmp_path, url):

            async def ready() -> bool:
                return (await http.get("/readyz")).status_code == 200

            await wait_until(ready, what="the backlog is applied")


@pytest.mark.slow
async def test_workers_that_are_killed_and_race_apply_every_reward_once(tmp_path: Path, url: str):
    """Two workers at a time; one of them is killed again and again while rewards come in.

    Slow: in the ordinary run ``test_faults`` kills workers, replicas and the store.
    """
    async with service(tmp_path, url) as (_, http):
        await build(http, prior="plain")
        stop = asyncio.Event()
        sent = dict.fromkeys((f"u{i}" for i in range(8)), 0)

        async def client(key: str) -> None:
            while not stop.is_set():
                await reward(http, key)
                sent[key] += 1

        async def more() -> None:
            wanted = sum(sent.values()) + 60

            async def enough() -> bool:
                return sum(sent.values()) > wanted

            await wait_until(enough, what="rewards are accepted")

        clients = [asyncio.create_task(client(key)) for key in sent]
        async with worker(tmp_path, url):
            for _ in range(3):
                async with worker(tmp_path, url) as victim:
                    await more()
                    victim.kill()
            stop.set()
            await asyncio.gather(*clients)

            async def applied() -> bool:
                return bool((await http.get("/readyz")).json()["backlog"] == 0)

            await wait_until(applied, what="the backlog is applied")
        for key, count in sent.items():
            learner = (await http.get(f"/v1/bandits/b/learners/{key}?include=precision")).json()
            assert learner["observations"] == learner["version"] == count
            assert np.array(learner["precision"])[0][0] == learner["used"]["ridge"] + count


async def test_a_worker_beside_a_service_with_its_own(tmp_path: Path, url: str):
    """Nobody needs to do this, but nothing may break: choices see what either of them applied."""
    with serving(tmp_path, "--redis-url", url) as process:
        async with worker(tmp_path, url), process.client() as http:
            await build(http)
            for _ in range(30):
                await reward(http, "ann", wait=True)
            assert (await http.get("/v1/bandits/b/learners/ann")).json()["observations"] == 30

            async def chosen_from() -> bool:
                choice = (await http.post("/v1/bandits/b/choose", json={"key": "ann"})).json()
                return bool(choice["learner_version"] == 30)

            await wait_until(chosen_from, what="the service notices what the other worker did")


async def test_a_worker_waits_for_a_store_that_is_away(tmp_path: Path):
    """Its store is stopped and comes back: the worker goes on by itself."""
    binary = shutil.which("redis-server")
    options = {"binary": Path(binary)} if binary else {}
    with EmbeddedServer(tmp_path / "redis", **options) as first:
        async with service(tmp_path, first.url) as (_, http):
            await build(http)
            async with worker(tmp_path, first.url) as process:
                await reward(http, "ann", wait=True)
                first.stop()
                process.await_message("not available")
                with EmbeddedServer(tmp_path / "redis", **options):
                    answer = await wait_until(lambda: accepted(http), what="rewards are accepted again")
                    assert answer.status_code == 200
                    learner = (await http.get("/v1/bandits/b/learners/ann")).json()
                    assert learner["observations"] == 2
                    assert process.process.poll() is None


async def accepted(http: httpx.AsyncClient) -> httpx.Response | None:
    """A reward that is applied, or None while there is no store."""
    choice = await http.post("/v1/bandits/b/choose", json={"key": "ann"})
    if choice.status_code != 200:
        return None
    body = {"rewards": [{"decision": choice.json()["decision"], "value": 1}]}
    answer = await http.post("/v1/rewards?wait=applied", json=body)
    return answer if answer.status_code != 503 else None
