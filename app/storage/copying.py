"""Copy everything of a store to another server or cluster, of whatever kind, while nobody writes to either.

Values are read and written by commands and not as dumps, since Valkey and Redis do not read each other's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from redis import ConnectionError, Redis, RedisCluster, ResponseError  # noqa: A004 - it is the driver's

from app.platform.errors import Conflict, NotFound, ShortlistError, StartupError, Unavailable
from app.platform.phrases import counted
from app.storage.redis_client import CLIENT_NAME
from app.storage.redis_errors import translated
from app.storage.redis_keys import PREFIX, WORKERS

BATCH = 1_000
RENEWED_MS = 2_000
# Leases renewed lately, by the clock of their own node. Workers renew theirs every half second.
RENEWED = """local now = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1], '+inf')"""

Arguments = list[Any]
Watched = Callable[[Collection[bytes], str], Iterable[bytes]]
Server = Any  # a Redis or a RedisCluster; the driver's annotations assume that answers are decoded


def copy(source: str, target: str, *, watched: Watched) -> int:
    """Copy all keys of the project from one URL to the other; return how many.

    ``watched`` yields the keys, and shows the progress.

    Raises: Conflict (the target has some of them already, or a service or a worker uses the source), NotFound
    (the source has none), StartupError (not a URL of a server), Unavailable (one of the two does not answer).
    What was copied before an error stays, and has to be removed (`FLUSHDB`) before the next try.
    """
    with translated(), _connected(source, "the source") as old, _connected(target, "the target") as new:
        if _is_used(old):
            raise Conflict(
                "a service or a worker uses the source: stop all of them first (after a kill, wait 2 seconds)"
            )
        if next(new.scan_iter(f"{PREFIX}*", count=BATCH), None) is not None:
            raise Conflict("the target already holds a store: empty it first")
        keys = sorted(set(old.scan_iter(f"{PREFIX}*", count=BATCH)))
        if not keys:
            raise NotFound("the source holds no store: there is nothing to copy")
        for key in watched(keys, "keys copied"):
            _copy_key(old, new, key)
        missing = [key for key in keys if old.exists(key) and not new.exists(key)]
    if missing:
        raise ShortlistError(f"{counted(len(missing), 'key', 'keys')} did not arrive")
    return len(keys)


def _connected(url: str, name: str) -> Server:
    """The server, or all of the cluster of which the server is a node; closed at the end of a ``with``."""
    try:
        server: Server = Redis.from_url(url)
    except ValueError:  # its text may repeat the password
        raise StartupError(f"{name}'s URL must be redis://, rediss:// or unix:// and well formed") from None
    try:
        if not server.info("cluster").get("cluster_enabled"):
            return server
    except ConnectionError as error:
        raise Unavailable(f"{name} does not answer ({type(error).__name__})") from error
    server.close()
    return RedisCluster.from_url(url)


def _is_used(server: Server) -> bool:
    """Return whether a process of Shortlist is connected, or a worker has renewed its lease a moment ago."""
    everywhere = {"target_nodes": RedisCluster.PRIMARIES} if isinstance(server, RedisCluster) else {}
    try:
        clients_found = server.client_list(**everywhere)
    except ResponseError:  # hosted servers do not tell: of these workers alone are seen
        clients_found = []
    clients = (
        chain.from_iterable(clients_found.values()) if isinstance(clients_found, dict) else clients_found
    )
    if any(client["name"] == CLIENT_NAME for client in clients):
        return True
    return bool(server.eval(RENEWED, 1, WORKERS, RENEWED_MS))


def _copy_key(old: Server, new: Server, key: bytes) -> None:
    kind = old.type(key).decode()
    lives_ms = old.pttl(key)  # -1 forever, -2 gone meanwhile
    if kind == "none" or lives_ms == -2:
        return
    for arguments in _writes(old, key, kind):
        new.execute_command(*arguments)
    if lives_ms > 0:
        new.pexpire(key, lives_ms)


def _writes(old: Server, key: bytes, kind: str) -> Iterator[Arguments]:
    """The commands with which to write the key again, piece by piece."""
    match kind:
        case "string":
            value = old.get(key)
            if value is not None:  # it has not ended meanwhile
                yield ["SET", key, value]
        case "hash":
            for pairs in _batches(old.hscan_iter(key, count=BATCH)):
                yield ["HSET", key, *(part for pair in pairs for part in pair)]
        case "set":
            for members in _batches(old.sscan_iter(key, count=BATCH)):
                yield ["SADD", key, *members]
        case "zset":
            for members in _batches(old.zscan_iter(key, count=BATCH)):
                yield ["ZADD", key, *(part for member, score in members for part in (repr(score), member))]
        case "list":
            for start in range(0, old.llen(key), BATCH):
                yield ["RPUSH", key, *old.lrange(key, start, start + BATCH - 1)]
        case _:
            yield from _stream(old, key)


def _stream(old: Server, key: bytes) -> Iterator[Arguments]:
    after = "-"
    while entries := old.xrange(key, after, "+", count=BATCH):
        for entry_id, fields in entries:
            yield ["XADD", key, entry_id, *(part for pair in fields.items() for part in pair)]
        after = f"({entries[-1][0].decode()}"


def _batches(items: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    source = iter(items)
    while batch := tuple(islice(source, BATCH)):
        yield batch
