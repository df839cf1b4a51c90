"""Everything that can go wrong with the driver or the server is Unavailable, and tells no secrets."""

import contextlib
import inspect
import pkgutil
import socket

import pytest
import redis
from redis.asyncio import Redis

from app.platform.errors import StartupError, Unavailable
from app.storage.embedded.server import EmbeddedServer
from app.storage.redis_errors import translated
from app.storage.store import Store


@pytest.fixture
def server(tmp_path):
    with EmbeddedServer(tmp_path) as server:
        yield server


@contextlib.asynccontextmanager
async def opened(url, **options):
    store = Store(url, **options)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def errors_of_the_driver():
    """Every exception class that any module of the driver defines."""
    found = set()
    for module in pkgutil.walk_packages(redis.__path__, "redis."):
        with contextlib.suppress(ImportError):  # extras of the driver that are not installed
            members = vars(__import__(module.name, fromlist=["_"])).values()
            found |= {c for c in members if inspect.isclass(c) and issubclass(c, Exception)}
    return sorted(
        (c for c in found if c.__module__.startswith("redis.")), key=lambda c: (c.__module__, c.__name__)
    )


# Parts of the driver that the store does not use: tokens of identity providers, its own listeners, HTTP, and
# several databases behind one client.
NOT_USED = ("redis.auth.", "redis.event", "redis.http.", "redis.multidb.", "redis.asyncio.multidb.")


def test_the_driver_has_errors():
    names = {c.__name__ for c in errors_of_the_driver()}
    assert {"ConnectionError", "ReadOnlyError", "OutOfMemoryError", "BusyLoadingError", "MovedError"} <= names


@pytest.mark.parametrize(
    "kind",
    [c for c in errors_of_the_driver() if not c.__module__.startswith(NOT_USED)]
    + [OSError, ConnectionResetError, BrokenPipeError, TimeoutError, socket.gaierror],
    ids=lambda c: f"{c.__module__}.{c.__name__}",
)
def test_no_error_of_the_driver_is_unmapped(kind, caplog):
    error = kind.__new__(kind)  # some want arguments that say nothing here
    error.args = ("secret",)
    with pytest.raises(Unavailable) as caught, translated():
        raise error
    assert caught.value.__cause__ is error
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
async def test_a_server_that_may_drop_keys_is_refused(server):
    async with Redis.from_url(server.url) as client:
        await client.config_set("maxmemory-policy", "allkeys-lru")
        await client.config_set("maxmemory", 1 << 30)
        with pytest.raises(StartupError, match="noeviction"):
            async with opened(server.url):
                pass
        await client.config_set("maxmemory", 0)
        async with opened(server.url):
            pass
