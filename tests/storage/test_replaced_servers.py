"""Another server answers at the address of the store, while connections stay with the old one."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.platform.errors import Unavailable
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from dropping_proxy import DroppingProxy
from waiting import wait_until

pytestmark = pytest.mark.anyio
CALLS = 20
UID = "u" * 16


KINDS = {
    "READONLY": (["REPLICAOF", "127.0.0.1", 1], "is a replica"),
    "MASTERDOWN": (["REPLICAOF", "127.0.0.1", 1], "is a replica"),
    # as of a primary that is cut off from its replicas, one of which was promoted
    "NOREPLICAS": (["CONFIG", "SET", "min-replicas-to-write", 1], "min-replicas-to-write"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_connections_to_a_server_that_takes_no_writes_are_closed(tmp_path: Path, kind: str):
    """As behind the address of a managed Redis or a virtual IP: one refusal, then the new primary."""
    change, reason = KINDS[kind]
    with (
        EmbeddedServer(tmp_path / "old") as old,
        EmbeddedServer(tmp_path / "new") as new,
        DroppingProxy(str(old.socket_path)) as proxy,
    ):
        store = Store(proxy.url)
        await store.open()
        await use_all_connections(store)
        async with Redis.from_url(old.url) as client:
            await client.config_set("replica-serve-stale-data", "no" if kind == "MASTERDOWN" else "yes")
            await client.execute_command(*change)
            with pytest.raises(Unavailable, match=reason):
                await store.ping()  # the address leads there still
            with pytest.raises(Unavailable, match=reason):
                await put(store, "b")
            proxy.target = str(new.socket_path)
            await wait_until(lambda: is_written(store), what="the new primary takes a write")
            await store.ping()
            words = (put(store, f"{number}") for number in range(CALLS))
            assert await asyncio.gather(*words) == [b"1"] * CALLS

            async def is_left() -> bool:
                return not [each for each in await client.client_list() if each["name"] == "shortlist"]

            await wait_until(is_left, what="no connection stays with the old server")
        await store.close()


async def test_one_call_waits_for_a_server_that_fell_silent(tmp_path: Path):
    """As a machine that was cut off: calls of every kind reach the new primary after it."""
    with (
        EmbeddedServer(tmp_path / "old") as old,
        EmbeddedServer(tmp_path / "new") as new,
        DroppingProxy(str(old.socket_path)) as proxy,
    ):
        store = Store(proxy.url, socket_timeout_s=1.0)
        await store.open()
        await use_all_connections(store)
        proxy.target = str(new.socket_path)
        os.kill(old.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable, match="does not answer"):
                await put(store, "b")
            await wait_until(lambda: is_written(store), what="the new primary takes a write")
            await use_all_connections(store)
        finally:
            os.kill(old.pid, signal.SIGCONT)
        await store.close()


async def use_all_connections(store: Store) -> None:
    """A transaction and a long answer have connections of their own."""
    many = [upsert_nothing(store) for _ in range(2)]
    pages = (store.registry.read() for _ in range(CALLS))
    await asyncio.gather(put(store, "a"), read_arms(store), *pages, *many)


async def put(store: Store, word: str) -> bytes:
    return await store.write_once.put(None, word, b"1", ttl_ms=None)


async def is_written(store: Store) -> bool:
    with suppress(Unavailable):
        return await put(store, "b") == b"1"
    return False


async def read_arms(store: Store) -> Sequence[object]:
    return [arm async for batch in store.arms.scan(UID) for arm in batch]


async def upsert_nothing(store: Store) -> None:
    await store.arms.upsert(UID, [], keep_ms=1)


@pytest.mark.rest
async def test_a_read_of_the_role_is_enough_to_leave_a_replica(tmp_path: Path):
    """A service that nobody writes to becomes ready again by its own looks."""
    with (
        EmbeddedServer(tmp_path / "old") as old,
        EmbeddedServer(tmp_path / "new") as new,
        DroppingProxy(str(old.socket_path)) as proxy,
    ):
        store = Store(proxy.url)
        await store.open()
        async with Redis.from_url(old.url) as client:
            await client.execute_command("REPLICAOF", "127.0.0.1", 1)
        proxy.target = str(new.socket_path)

        async def is_ready() -> bool:
            with suppress(Unavailable):
                await store.ping()
                return True
            return False

        await wait_until(is_ready, what="the new primary is found")
        await store.close()
