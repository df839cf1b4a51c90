"""`shortlist copy`: everything arrives on a server of another kind, with what is left of its life."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from app.platform.errors import Conflict, NotFound, StartupError, Unavailable
from app.storage.copying import BATCH, copy
from app.storage.embedded.server import EmbeddedServer
from app.storage.redis_keys import WORKERS
from server import cli
from shortlist_client.progress import progress
from store_clients import connect_sync, flush_sync
from store_server import patient_store

pytestmark = pytest.mark.rest

MANY = 2 * BATCH + 7
WORDS = {
    "HSET": [word for n in range(MANY) for word in (f"f{n}" if n else "", b"\x00\xff%d" % n)],
    "SADD": [f"m{n}" for n in range(MANY)],
    "ZADD": [word for n in range(MANY) for word in (n + 0.1, f"m{n}")],
    "RPUSH": [b"%d" % n for n in range(MANY)],
}
HOUR_MS = 3_600_000


@pytest.fixture
def source(store_url: str) -> Iterator[Redis]:
    with connect_sync(store_url) as client:
        flush_sync(client)
        yield client


@pytest.fixture
def target(store_server: str) -> Iterator[Redis]:
    with connect_sync(store_server) as client:
        flush_sync(client)
        yield client


def contents(server: Redis) -> dict[bytes, Any]:
    """Every key with its value, and whether it ends."""
    readers = {
        b"string": server.get,
        b"hash": server.hgetall,
        b"set": server.smembers,
        b"zset": lambda key: server.zrange(key, 0, -1, withscores=True),
        b"list": lambda key: server.lrange(key, 0, -1),
        b"stream": server.xrange,
    }
    return {key: (readers[server.type(key)](key), server.pttl(key) > 0) for key in server.scan_iter()}


def test_a_store_that_a_worker_uses_is_not_copied(
    source: Redis, target: Redis, store_url: str, store_server: str
):
    """What is written meanwhile would be missing from the copy."""
    seconds, micros = source.execute_command("TIME")
    now = 1_000 * seconds + micros // 1_000
    source.set("shortlist3:text", "1")
    source.zadd(WORKERS, {"worker": now + HOUR_MS})
    with pytest.raises(Conflict, match="a service or a worker uses the source: stop all of them first"):
        copy(store_url, store_server, watched=progress)
    assert contents(target) == {}
    source.zadd(WORKERS, {"worker": now - HOUR_MS})  # it was killed
    assert copy(store_url, store_server, watched=progress) == 2


@pytest.mark.anyio
async def test_a_store_that_a_service_without_a_worker_uses_is_not_copied(
    source: Redis, target: Redis, store_url: str, store_server: str
):
    """It holds no lease, and writes rewards all the same."""
    source.set("shortlist3:text", "1")
    service = patient_store(store_url)
    await service.open()
    try:
        with pytest.raises(Conflict, match="a service or a worker uses the source"):
            await asyncio.to_thread(copy, store_url, store_server, watched=progress)
    finally:
        await service.close()
    assert contents(target) == {}
    await asyncio.to_thread(copy, store_url, store_server, watched=progress)
    assert target.get("shortlist3:text") == b"1"


def test_every_type_arrives_whole_and_others_keys_stay_behind(
    source: Redis, target: Redis, store_url: str, store_server: str
):
    source.set("shortlist3:text", b"\x00\x80", px=HOUR_MS)
    for command, words in WORDS.items():
        source.execute_command(command, f"shortlist3:{command}", *words)
    with source.pipeline(transaction=False) as pipeline:
        for number in range(1, MANY):
            pipeline.xadd(
                "shortlist3:log", {b"p": b"%d" % number, b"q": b""}, id=f"{number // 3 + 1}-{number}"
            )
        pipeline.execute()
    expected = contents(source)
    source.set("another", "1")
    assert copy(store_url, store_server, watched=progress) == len(expected) == 6
    assert contents(target) == expected
    assert 0 < target.pttl("shortlist3:text") <= HOUR_MS


def test_a_target_in_use_is_left_alone(source: Redis, target: Redis, store_url: str, store_server: str):
    source.set("shortlist3:a", "1")
    target.set("shortlist3:b", "2")
    with pytest.raises(Conflict):
        copy(store_url, store_server, watched=progress)
    assert list(target.scan_iter()) == [b"shortlist3:b"]


def test_a_server_that_is_not_there_is_said_to_be_away(store_url: str, tmp_path: Path):
    nobody = f"unix://{tmp_path}/nobody.sock"
    with pytest.raises(Unavailable, match="the target does not answer"):
        copy(store_url, nobody, watched=progress)
    with pytest.raises(Unavailable, match="the source does not answer"):
        copy(nobody, store_url, watched=progress)


def test_what_is_no_store_is_named(source: Redis, target: Redis, store_url: str, store_server: str):
    with pytest.raises(StartupError, match="the target's URL"):
        copy(store_url, "nonsense", watched=progress)
    source.set("another", "1")
    with pytest.raises(NotFound, match="the source holds no store"):
        copy(store_url, store_server, watched=progress)


def test_the_command_copies_a_stopped_embedded_store(
    target: Redis, store_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with EmbeddedServer(tmp_path) as server, Redis.from_url(server.url) as client:
        client.set("shortlist3:a", "1")
        assert cli.main(["copy", "--data-dir", str(tmp_path), "--to", store_server]) == 2
        assert "stop the service first" in capsys.readouterr().err
    assert cli.main(["copy", "--data-dir", str(tmp_path), "--to", store_server]) == 0
    assert "1 key copied" in capsys.readouterr().out
    assert target.get("shortlist3:a") == b"1"
    assert cli.main(["copy", "--data-dir", str(tmp_path), "--to", store_server]) == 2
    assert "empty it first" in capsys.readouterr().err
