"""Servers that do not answer, are full, or are not what they say."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
import contextlib
import logging
import os
import shutil
import signal

import pytest
import uvloop
from redis import exceptions as driver
from redis.asyncio import Redis
from test_redis_errors import opened, server

from app.platform.errors import StartupError, Unavailable
from app.storage.redis_client import RedisClient
from app.storage.redis_errors import translated
from app.storage.store import Store
from app.storage.types import ArmWrite, LearnerId, RewardWrite
from waiting import wait_until

pytestmark = pytest.mark.rest

UID = "0123456789abcdef"


ANN = LearnerId(UID, "ann")


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (driver.ConnectionError("gone"), False),
        (driver.ResponseError("MISCONF Errors writing to the AOF file"), False),
        (driver.ResponseError("ERR Error running script: -NOREPLICAS Not enough good replicas"), False),
        (driver.ResponseError("The user executing the script can't run this command or subcommand"), False),
        (driver.ResponseError("WRONGTYPE Operation against a key"), True),
        (driver.DataError("Invalid input of type"), True),
    ],
)
def test_only_what_may_be_our_own_mistake_is_logged(error, logged, caplog):
    with pytest.raises(Unavailable), caplog.at_level(logging.ERROR, "shortlist.store"), translated():
        raise error
    assert bool(caplog.records) == logged


@pytest.mark.anyio
async def test_a_server_that_is_silent_is_unavailable():
    async def never_answers(reader, writer):
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="TimeoutError"):
            async with opened(f"redis://127.0.0.1:{port}", socket_timeout_s=0.1):
                pass


@pytest.mark.anyio
async def test_a_full_server_refuses_writes_whole_and_still_answers_reads(server):
    async with opened(server.url) as store, Redis.from_url(server.url) as client:
        await store.arms.upsert(UID, [ArmWrite("a", b"1")], keep_ms=1_000)
        await client.config_set("maxmemory", 1)
        rewards = [RewardWrite(ANN, 1, b"", f"{n}", ttl_ms=1_000) for n in range(3)]
        for write in (
            store.arms.upsert(UID, [ArmWrite("a", b"2"), ArmWrite("b", b"2")], keep_ms=1_000),
            store.rewards.append(0, rewards),
            store.side_data.append_forget(ANN, payload=b"", now_ms=1, ttl_ms=1_000),
            store.learners.apply(0, expected="0-0", watermark="1-1", states={ANN: b""}),
            store.write_once.put(None, "word", b"", ttl_ms=None),
            store.registry.create_catalogue("films", UID.encode()),
            store.registry.create_bandit("b", UID.encode(), catalogue="films"),
        ):
            with contextlib.suppress(Unavailable):
                assert await write is None  # a bandit of no catalogue is no write
        assert [arm.features async for batch in store.arms.scan(UID) for arm in batch] == [b"1"]
        assert (await store.arms.version(UID), await store.learners.watermark(0)) == (1, "0-0")
        assert await store.rewards.read(0, "0-0", 10) == []
        await client.config_set("maxmemory", 0)
        assert [o.status for o in await store.rewards.append(0, rewards)] == ["accepted"] * 3


@pytest.mark.anyio
async def test_scripts_are_sent_again_to_a_server_that_lost_them(server):
    async with opened(server.url) as store, Redis.from_url(server.url) as client:
        await store.write_once.put(None, "word", b"1", ttl_ms=None)
        await client.script_flush()
        assert await store.write_once.put(None, "word", b"2", ttl_ms=None) == b"1"


@pytest.mark.anyio
async def test_a_cancelled_call_does_not_poison_its_connection(server):
    """The reply to a cancelled call must never be read as the reply to the next one."""
    async with opened(server.url, max_connections=1) as store:
        for cycle in range(50):
            call = asyncio.create_task(store.write_once.get(None, "nothing"))
            for _ in range(cycle % 10):
                await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            word = b"%d" % cycle
            assert await store.write_once.put(0, f"word-{cycle}", word, ttl_ms=None) == word


@pytest.mark.anyio
async def test_a_store_of_version_2_is_refused_until_all_of_it_is_converted(server):
    refused = pytest.raises(StartupError, match="one of version 2: run `shortlist upgrade`")
    async with Redis.from_url(server.url) as client:
        await client.set("shortlist:{registry}:partitions", 16)
        with refused:
            async with opened(server.url):
                pass
        assert await client.keys("shortlist3:*") == [], "nothing was written"
        await client.set("shortlist3:{registry}:partitions", 16)
        await client.set("shortlist3:{registry}:upgrade", "convert")
        with refused:
            async with opened(server.url):
                pass
        await client.delete("shortlist3:{registry}:upgrade")
        async with opened(server.url) as store:
            assert await store.registry.version() == 0


@pytest.mark.anyio
async def test_the_first_start_fixes_the_number_of_partitions(server):
    async with opened(server.url, partitions=8):
        pass
    async with opened(server.url, partitions=8):
        pass
    with pytest.raises(StartupError, match=r"8 partitions.*set SHORTLIST_PARTITIONS.*16"):
        async with opened(server.url, partitions=16):
            pass


@pytest.mark.anyio
async def test_an_old_server_is_refused(server, monkeypatch):
    async def answer(self, *words):
        return {"role": "master", "redis_version": "6.0.16"}

    monkeypatch.setattr(RedisClient, "command", answer)
    with pytest.raises(StartupError, match=r"6\.0\.16"):
        async with opened(server.url):
            pass


@pytest.mark.anyio
async def test_a_wrong_password_is_unavailable_and_told_to_nobody(server):
    async with Redis.from_url(server.url) as client:
        await client.config_set("requirepass", "right-secret")
    with pytest.raises(Unavailable, match="another user or password") as caught:
        async with opened(f"{server.url}?password=wrong-secret"):
            pass
    assert "secret" not in str(caught.value)
    with pytest.raises(Unavailable, match="no database of the number"):
        async with opened(f"{server.url}?password=right-secret&db=99"):
            pass
    async with opened(f"{server.url}?password=right-secret") as store:
        assert "secret" not in repr(store)


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:s3cret@localhost:6379/2",
        "rediss://:s3cret@[::1]:6380?ssl_cert_reqs=none&password=s3cret",
        "unix://ann@/tmp/x.sock?password=s3cret&db=1",
    ],
)
def test_no_password_is_shown(url):
    assert "s3cret" not in repr(Store(url))
    assert "ann" not in repr(Store(url))


@pytest.mark.parametrize(
    "url", ["http://:s3cret@host", "localhost:6379", "redis://h:s3cret", "redis://h?db=s3cret", ""]
)
def test_a_url_that_is_not_one_is_a_startup_error(url):
    with pytest.raises(StartupError) as caught:
        Store(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_callers_of_a_server_that_is_killed_see_unavailable_and_nothing_else(server, new_loop):
    async def call(store, outcomes, n):
        for i in range(10_000):
            try:
                await store.write_once.put(n % 16, f"{n}-{i}", b"x" * 1_000, ttl_ms=None)
            except Unavailable:
                outcomes.append(i)
                return

    async def main():
        async with opened(server.url) as store:
            outcomes = []
            calls = asyncio.gather(*(call(store, outcomes, n) for n in range(30)))
            await wait_until(lambda: store.write_once.get(0, "0-20"), what="calls are under way")
            os.kill(server.pid, signal.SIGKILL)
            await calls
            assert len(outcomes) == 30
            await wait_until(lambda: _answers(store), what="the server is back")
            assert await store.write_once.get(0, "0-20")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def _answers(store):
    try:
        await store.ping()
    except Unavailable:
        return False
    return True


@pytest.mark.anyio
async def test_a_full_disk_is_named(tmp_path, monkeypatch):
    """Of the embedded server, which ends at a write, and by what another one says."""
    gone = Store(f"unix://{tmp_path}/none.sock", data_dir=tmp_path)
    with pytest.raises(Unavailable) as caught:
        await gone.ping()
    assert "disk" not in caught.value.detail
    # private: the type that shutil answers with
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40 - 9, 9))
    with pytest.raises(Unavailable, match="the disk of SHORTLIST_DATA_DIR is full"):
        await gone.ping()
    await gone.close()
    said = driver.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")
    with pytest.raises(Unavailable, match="cannot write to its disk"), translated():
        raise said
