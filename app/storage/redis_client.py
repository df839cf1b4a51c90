"""One Redis server or Redis Cluster: its connections, its scripts, one error for all failures."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hiredis import pack_command
from redis import exceptions as driver
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.platform.errors import StartupError, Unavailable
from app.storage.pipelining import IN_FLIGHT, Pipeliner
from app.storage.redis_errors import (
    DRIVER_ERRORS,
    IS_REPLICA,
    may_be_replaced,
    refused,
    unavailable,
)

Argument = str | bytes | int
OLDEST = (6, 2)
CLIENT_NAME = "shortlist"  # of every connection, by which the server tells who uses it
SCAN_STEP = 1_000
_WITH = "-- WITH   "
_DURABLE = ("always", "everysec", "no")


class Script(NamedTuple):
    """Text of a script, and its digest: the server knows the script by the digest after the first run."""

    text: str
    digest: str


@cache
def scripts() -> Mapping[str, Script]:
    """The scripts of ``lua/`` by name. The first line of a script may name parts to put before the text
    (WITH).
    """
    folder = files("app.storage") / "lua"
    texts = {file.name.removesuffix(".lua"): file.read_text("ascii") for file in folder.iterdir()}
    result, parts = {}, set[str]()
    for name, text in texts.items():
        first = text.partition("\n")[0]
        before = first.removeprefix(_WITH).split(", ") if first.startswith(_WITH) else []
        parts.update(before)
        whole = "\n".join(texts[part] for part in (*before, name))
        result[name] = Script(whole, hashlib.sha1(whole.encode("ascii"), usedforsecurity=False).hexdigest())
    return {name: script for name, script in result.items() if name not in parts}


def _packing(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """The same kind of connection, with commands packed in C, several times as fast as by the driver."""

    class Packing(kind):  # type: ignore[misc, valid-type]  # a class that is known at run time
        def pack_command(self, *arguments: Argument) -> list[bytes]:
            return [pack_command(arguments)]  # type: ignore[arg-type]  # its hint allows tuples of one argument only

    return Packing


class RedisClient:
    """Commands, transactions and scripts on one server. All raise Unavailable and nothing else.

    If the server is a node of a cluster, the whole cluster is used from ``check`` on: each script and each
    transaction goes to the node of its keys, which all have one hash tag (``redis_keys``).

    Nothing is retried here. When a reply is lost the write may have been made, and only the caller knows
    whether it may be repeated.

    A server without writes (a replica, a primary without its replicas, a server still loading its data or
    with a full disk) or without answers may have been replaced: another server answers at its address, while
    connections stay with the old one. Then all connections are closed, and opened again.

    For the arguments see ``Store``.
    """

    def __init__(
        self,
        url: str,
        *,
        max_connections: int,
        pool_timeout_s: float,
        socket_timeout_s: float,
        data_dir: Path | None = None,
    ) -> None:
        self._data_dir = data_dir
        options = {
            "max_connections": max_connections,
            "socket_connect_timeout": socket_timeout_s,
            # The driver would send a write again after a lost reply, without knowing whether a second write
            # is safe.
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": False,
            "client_name": CLIENT_NAME,
            "protocol": 2,  # the one protocol whose answers have the same shape on every server
        }
        try:
            # The driver's own timeout costs a timer for each answer; here each exchange has one.
            of_transactions = {"timeout": pool_timeout_s, "socket_timeout": None}
            pool = BlockingConnectionPool.from_url(url, **of_transactions, **options)
            parts = urlsplit(url)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            # The text of the error may repeat parts of the address, the password among them.
            raise StartupError(
                "the store's URL must be redis://, rediss:// or unix:// and well formed"
            ) from None
        self.address = f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
        # The driver's client of a cluster does not wait for a free connection, so callers wait here.
        # What the two pipeliners may hold is left to them: transactions never take the last connection.
        self._transactions = asyncio.Semaphore(max(1, max_connections - 2 * IN_FLIGHT))
        self._patience_s = pool_timeout_s
        self._open_cluster = partial(RedisCluster.from_url, url, socket_timeout=socket_timeout_s, **options)
        pool.connection_class = _packing(pool.connection_class)
        self._redis: Redis | RedisCluster = Redis.from_pool(pool)
        # Two: small commands do not wait behind a megabyte of features.
        self._pipeliner, self._bulk = (Pipeliner(self._redis, patience_s=socket_timeout_s) for _ in range(2))
        self._scripts = scripts()
        self._closing: asyncio.Task[None] | None = None  # of the connections to a server that was replaced

    async def close(self) -> None:
        with self._translated():
            await asyncio.gather(*filter(None, [self._closing]))
            await self._pipeliner.close()
            await self._bulk.close()
            await self._redis.aclose()

    async def command(self, *arguments: Argument) -> Any:
        """The driver's answer to one command."""
        try:  # as ``_translated``, which takes as long as all else here
            return await self._pipeliner.command(*arguments)
        except DRIVER_ERRORS as error:
            raise self.translate(error) from error

    async def bulk(self, *arguments: Argument) -> Any:
        """As ``command``, for a large command or answer: others do not wait behind it."""
        with self._translated():
            return await self._bulk.command(*arguments)

    def scan_members(self, command: str, key: str, pattern: str) -> AsyncIterator[list[bytes]]:
        """Matching members of a set, hash or sorted set, in batches; some may come twice.

        ``command`` belongs to the type: SSCAN, HSCAN or ZSCAN. A round trip for each ``SCAN_STEP`` members.
        """
        return self._scan(partial(self.command, command, key), pattern)

    async def scan_keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Matching keys, in batches; some may come twice.

        A round trip for each ``SCAN_STEP`` keys of the store, whether they match or not.
        """
        for ask in self._askers():
            async for keys in self._scan(partial(ask, "SCAN"), pattern):
                yield keys

    async def _scan(self, ask: Callable[..., Awaitable[Any]], pattern: str) -> AsyncIterator[list[bytes]]:
        cursor: Any = 0
        while True:
            with self._translated():
                cursor, result = await ask(cursor, "MATCH", pattern, "COUNT", SCAN_STEP)
            if isinstance(cursor, dict):  # in a cluster the driver puts it under the name of the node
                (cursor,) = cursor.values()
            if members := [item[0] if isinstance(item, tuple) else item for item in result]:
                yield members
            if not int(cursor):
                return

    async def transaction(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Answers to commands run as one (MULTI, EXEC)."""
        with self._translated():
            async with asyncio.timeout(self._patience_s):
                await self._transactions.acquire()
            try:
                return await self._pipeliner.transaction(commands)
            finally:
                self._transactions.release()

    async def script(
        self, name: str, keys: Sequence[str], args: Sequence[Argument] = (), *, bulk: bool = False
    ) -> Any:
        """Result of the script ``lua/<name>.lua``; a server which does not know the script gets its text."""
        script, ask = self._scripts[name], (self._bulk if bulk else self._pipeliner).command
        try:
            return await ask("EVALSHA", script.digest, len(keys), *keys, *args)
        # The server was started again, or failed over, and knows no scripts any more. EVAL teaches it this
        # one.
        except driver.NoScriptError:
            with self._translated():
                return await ask("EVAL", script.text, len(keys), *keys, *args)
        except DRIVER_ERRORS as error:
            raise self.translate(error) from error

    def refuse_in_vain(self) -> None:
        """Raise Unavailable if a call would be refused at once."""
        with self._translated():
            self._pipeliner.refuse_in_vain()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DRIVER_ERRORS as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> Unavailable:
        """The error for callers; another server is looked for where this one may have been replaced."""
        if may_be_replaced(error):
            self._close_connections()
        return unavailable(error, self._data_dir)

    def _close_connections(self) -> None:
        """Have every later call open a connection of its own. What is under way ends first.

        The client of a cluster follows its nodes by itself.
        """
        if isinstance(self._redis, Redis) and (self._closing is None or self._closing.done()):
            self._closing = asyncio.create_task(_close_all(self._redis))

    async def check(self) -> None:
        """Raise StartupError unless this is a primary with our commands and without eviction of keys."""
        # By asking, not by a setting: one address works for both.
        if (await self.command("INFO")).get("cluster_enabled"):
            await self._use_cluster()
        for fault in await self.faults():
            raise StartupError(f"the store at {self.address} {fault}")

    async def faults(self) -> Sequence[str]:
        """Reasons why this store cannot be used; they may change while the server runs. Each continues
        "the store".
        """
        return [*chain.from_iterable(map(_faults, await self._everywhere("INFO")))]

    async def memory(self) -> Sequence[Mapping[str, Any]]:
        """The INFO of each primary about its memory."""
        return await self._everywhere("INFO", "memory")

    async def _use_cluster(self) -> None:
        # The connections to the single node are of another kind.
        await self.close()
        with self._translated():
            self._redis = await self._open_cluster().initialize()
        self._pipeliner, self._bulk = Pipeliner(self._redis), Pipeliner(self._redis)

    async def ping(self) -> None:
        """Raise unless every primary answers as a primary. Whether a primary takes writes, only a write
        tells.
        """
        await self._everywhere("PING")  # which is refused by a server that loads its data, and INFO is not
        if any(map(_is_replica, await self._everywhere("INFO", "replication"))):
            self._close_connections()
            raise Unavailable(f"the store {IS_REPLICA}")

    async def durability(self) -> str:
        """When writes reach the disk: "always", "everysec", "no", "off" (no append-only file), "unknown".

        Of a cluster, the weakest of its nodes' answers.
        """
        if not all(facts.get("aof_enabled") for facts in await self._everywhere("INFO", "persistence")):
            return "off"
        try:
            answers = await self._everywhere("CONFIG", "GET", "appendfsync")
        except Unavailable as error:
            if refused(error):  # hosted servers do not tell
                return "unknown"
            raise
        return max((bytes(answer[1]).decode() for answer in answers), key=_DURABLE.index)

    @property
    def is_cluster(self) -> bool:
        """True if keys of several hash tags may be on several servers."""
        return isinstance(self._redis, RedisCluster)

    def _askers(self) -> Sequence[Callable[..., Awaitable[Any]]]:
        """For each primary, a function with which to ask this server alone."""
        if not isinstance(self._redis, RedisCluster):
            return [self.command]
        return [partial(self._pipeliner.node, self._redis, node) for node in self._redis.get_primaries()]

    async def _everywhere(self, *arguments: Argument) -> Sequence[Any]:
        """The answers of all primaries to one command."""
        with self._translated():
            return await asyncio.gather(*(ask(*arguments) for ask in self._askers()))


def _is_replica(facts: Mapping[str, Any]) -> bool:
    return facts.get("role") not in {"master", None}


def _faults(facts: Mapping[str, Any]) -> Iterator[str]:
    """``facts``: what INFO says of one server."""
    if _is_replica(facts):
        yield IS_REPLICA
    version = str(facts.get("redis_version", "6.2"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        yield f"is version {version}: 6.2 or newer is needed"
    # A dropped key may be a learner, or the dedupe keys of rewards, which would count twice.
    if facts.get("maxmemory") and facts.get("maxmemory_policy") != "noeviction":
        yield "would drop keys when its memory is full: set its maxmemory-policy to noeviction"


async def _close_all(redis: Redis) -> None:
    pool = redis.connection_pool
    close_after_answers: Callable[[], Awaitable[None]] = pool.update_active_connections_for_reconnect
    with suppress(*DRIVER_ERRORS):
        await close_after_answers()
        await pool.disconnect(inuse_connections=False)
