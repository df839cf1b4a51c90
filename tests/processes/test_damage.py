"""Services whose data were damaged, emptied or put back: refused, or served with the loss on record."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app.storage.embedded.server import EmbeddedServer
from service_process import Service, run, serving

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

SERVE = ("serve", "--port", "0", "--data-dir", "data")


async def build(http: httpx.AsyncClient, rewards: int = 5) -> None:
    arms = [{"id": f"a{i}", "features": [1.0, float(i)]} for i in range(4)]
    (await http.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
    (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
    (await http.put("/v1/bandits/b", json={"catalogue": "c", "policy": "sub_ts"})).raise_for_status()
    await reward(http, rewards)


async def reward(http: httpx.AsyncClient, count: int) -> None:
    for _ in range(count):
        choice = (await http.post("/v1/bandits/b/choose", json={})).json()
        body = {"rewards": [{"decision": choice["decision"], "value": 1}]}
        (await http.post("/v1/rewards?wait=applied", json=body)).raise_for_status()


async def observations(http: httpx.AsyncClient) -> int:
    return int((await http.get("/v1/bandits/b/learners/_global")).json()["observations"])


async def loss(http: httpx.AsyncClient) -> Any:
    return (await http.get("/v1/status")).json()["loss"]


def refused(folder: Path, *words: str, command: tuple[str, ...] = SERVE, **settings: str) -> None:
    done = run(*command, cwd=folder, **settings)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in ("--accept-loss", *words):
        assert word in done.stderr


def doctor(folder: Path, *arguments: str) -> str:
    return run("doctor", "--port", "1", "--data-dir", "data", *arguments, cwd=folder).stdout


def cut(folder: Path) -> None:
    """As a disk leaves it that lost its last writes."""
    [log] = folder.rglob("*.incr.aof")
    os.truncate(log, log.stat().st_size * 9 // 10)


def stop(service: Service) -> None:
    service.process.terminate()
    assert service.wait() == 0


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.slow)])
async def test_a_cut_log_is_refused_and_accepted_as_a_loss(tmp_path: Path, processes: str):
    with serving(tmp_path, "--workers", "1") as service:  # the last that is written are rewards
        async with service.client() as http:
            await build(http)
            assert await loss(http) is None
        stop(service)
    cut(tmp_path)
    refused(tmp_path, "and was at", "the data directory data")

    with serving(tmp_path, "--accept-loss", "--workers", processes) as service:
        async with service.client() as http:
            found = await loss(http)
            assert found["at"].startswith("20")
            assert "and was at" in found["what"]
            assert await observations(http) < 5
            await reward(http, 3)
            count = await observations(http)
        assert "the loss is accepted" in service.text()
        assert any(record.get("level") == "ERROR" for record in service.records())
        stop(service)
    with serving(tmp_path) as service:  # without the flag from now on, and nothing more was lost
        async with service.client() as http:
            assert await observations(http) == count
            assert (await loss(http))["what"] == found["what"]
            said = run("doctor", "--port", str(service.port), "--data-dir", "data", cwd=tmp_path)
            assert said.returncode == 1
            assert found["what"] in said.stdout
            (tmp_path / "data" / "losses.json").unlink()
            assert await loss(http) is None
            stop(service)
    assert "loss" not in doctor(tmp_path)


@pytest.mark.slow
async def test_an_embedded_store_that_is_gone_is_refused(tmp_path: Path):
    with serving(tmp_path) as service:
        async with service.client() as http:
            await build(http)
        stop(service)
    data = tmp_path / "data"
    shutil.rmtree(data / "appendonlydir")
    refused(tmp_path, "it has no identity")
    refused(tmp_path, "it has no identity", command=(*SERVE, "--workers", "2"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "redis") as server:
        yield server


async def test_an_external_store_that_was_emptied_is_refused(tmp_path: Path, store: EmbeddedServer):
    given = ("--redis-url", store.url)
    with serving(tmp_path, *given, "--no-worker") as service:
        async with service.client() as http:
            await build(http, rewards=0)
        stop(service)
    worker = ("worker", "--burst", "--data-dir", "data2", *given)
    assert run(*worker, cwd=tmp_path).returncode == 0
    assert "has what this data directory last saw of it" in doctor(tmp_path, *given)
    with redis.Redis.from_url(store.url) as connection:
        connection.flushall()
    refused(tmp_path, "it has no identity", command=(*SERVE, *given))
    refused(tmp_path, "it has no identity", command=worker)
    assert "FAIL store" in doctor(tmp_path, *given)
    assert run(*worker, "--accept-loss", cwd=tmp_path).returncode == 0
    refused(tmp_path, "it is another one", command=(*SERVE, *given))
    with serving(tmp_path, *given, SHORTLIST_ACCEPT_LOSS="true") as service:
        async with service.client() as http:
            assert "it is another one" in (await loss(http))["what"]


@pytest.mark.slow
async def test_an_older_copy_of_an_external_store_is_refused(tmp_path: Path):
    """Also at replicas that have data directories of their own; a new one takes the store as it is."""
    with (
        EmbeddedServer(tmp_path / "redis") as store,
        serving(tmp_path, "--redis-url", store.url) as one,
        serving(tmp_path, "--redis-url", store.url, data_dir=tmp_path / "data2") as other,
    ):
        async with one.client() as http:
            await build(http)
            stop(other)
            older = tmp_path / "older"
            shutil.copytree(tmp_path / "redis", older, ignore=shutil.ignore_patterns("*.sock"))
            await reward(http, 2)
        stop(one)
    with EmbeddedServer(tmp_path / "older") as store:
        given = ("--redis-url", store.url)
        refused(tmp_path, "log ", "and was at 7", command=(*SERVE, *given))
        for folder in ("data2", "new"):
            with serving(tmp_path, *given, data_dir=tmp_path / folder) as service:
                async with service.client() as http:
                    assert await observations(http) == 5
                    assert await loss(http) is None
