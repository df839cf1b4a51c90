"""Another server answers at the address of the store, while connections stay with the old one."""

import asyncio
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


@pytest.mark.parametrize("answers_reads", [True, False], ids=["READONLY", "MASTERDOWN"])
async def test_the_connections_to_a_server_that_became_a_replica_are_closed(
    tmp_path: Path, *, answers_reads: bool
):
    """As behind the address of a managed Redis or a virtual IP: one refusal, then the new primary."""
    with (
        EmbeddedServer(tmp_path / "old") as old,
        EmbeddedServer(tmp_path / "new") as new,
        DroppingProxy(str(old.socket_path)) as proxy,
    ):
        store = Store(proxy.url)
        await store.open()

        async def put(word: str) -> bytes:
            return await store.write_once.put(None, word, b"1", ttl_ms=None)

        # a transaction and a long answer have connections of their own
        pages = (store.registry.read() for _ in range(CALLS))
        await asyncio.gather(
            put("a"), *pages, *(store.arms.upsert("u" * 16, [], keep_ms=1) for _ in range(2))
        )
        async with Redis.from_url(old.url) as client:
            await client.config_set("replica-serve-stale-data", "yes" if answers_reads else "no")
            await client.execute_command("REPLICAOF", "127.0.0.1", 1)
            with pytest.raises(Unavailable, match="is a replica"):
                await store.ping()  # the address leads there still
            with pytest.raises(Unavailable, match="is a replica"):
                await put("b")
            proxy.target = str(new.socket_path)

            async def is_written() -> bool:
                with suppress(Unavailable):
                    return await put("b") == b"1"
                return False

            await wait_until(is_written, what="the new primary takes a write")
            await store.ping()
            assert await asyncio.gather(*(put(f"{number}") for number in range(CALLS))) == [b"1"] * CALLS

            async def is_left() -> bool:
                return not [each for each in await client.client_list() if each["name"] == "shortlist"]

            await wait_until(is_left, what="no connection stays with the old server")
        await store.close()


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
