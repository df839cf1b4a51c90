"""The server of a store: opened where it is, copied first, and refused while something else uses it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from secrets import token_hex
from typing import Any

from redis import ConnectionError, Redis, RedisCluster, RedisError, ResponseError  # noqa: A004 - the driver's

from shortlist_service.commands import Settings
from shortlist_service.engines import EmbeddedServer
from shortlist_service.errors import Conflict, ShortlistError, StartupError, Unavailable

BATCH = 1_000
CLIENT_NAME = "shortlist-upgrade-"
NAME_OF_SERVICES = "shortlist"  # of every connection of a service or a worker
COPY = "store-of-2.x"  # in the data directory
PATIENCE_S = 600.0
YOUNG_MS = 60_000
# Those that are younger, by the clock of their own node.
YOUNG = """local now = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1], '+inf')"""
# When leases of workers were renewed; until when those of jobs last, which processes of services renew.
LEASES = {"shortlist:{registry}:workers": YOUNG_MS, "shortlist:{jobs}:alive": 0}

Commands = Sequence[Sequence[Any]]


@contextmanager
def opened(settings: Settings, *, reads_only: bool, copies: bool) -> Iterator[Server]:
    """The store named by the settings. An embedded one is copied, unless only read.

    Raises StartupError (no such store, or one of a running service), Conflict (a store in use), Unavailable.
    """
    if settings.redis_url is not None:
        with connected(settings.redis_url.get_secret_value()) as server:
            if not reads_only:
                server.refuse_use()
            yield server
        return
    if not settings.data_dir.is_dir():
        raise StartupError(f"there is no data directory {settings.data_dir}")
    socket = settings.data_dir.absolute() / EmbeddedServer.SOCKET
    if reads_only and socket.exists():
        with suppress(Unavailable), connected(f"unix://{socket}") as server:
            yield server
            return
    embedded = EmbeddedServer(settings.data_dir, start_timeout_s=PATIENCE_S)
    with embedded, connected(embedded.url) as server:
        if copies and not reads_only:
            _copy_files(server, settings.data_dir)
        yield server


@contextmanager
def connected(url: str) -> Iterator[Server]:
    """A server, or all of its cluster.

    Raises StartupError, Unavailable, ShortlistError.
    """
    try:
        name = CLIENT_NAME + token_hex(8)
        redis: Any = Redis.from_url(url, client_name=name)
    except ValueError:  # its text may repeat the password
        raise StartupError("the store's URL must be redis://, rediss:// or unix:// and well formed") from None
    try:
        if redis.info("cluster").get("cluster_enabled"):
            redis.close()
            redis = RedisCluster.from_url(url, client_name=name)
        yield Server(redis)
    except ConnectionError as error:
        raise Unavailable(f"the store does not answer ({type(error).__name__})") from error
    except RedisError as error:
        raise ShortlistError(
            f"the store refuses it, nothing is lost, and it can be repeated: {error}"
        ) from error
    finally:
        # The driver leaves connections to the nodes of a cluster open when it is closed.
        nodes: Any = redis.nodes_manager.nodes_cache.values() if isinstance(redis, RedisCluster) else []
        for node in nodes:
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect()
        redis.close()


class Server:
    """Commands, many in one round trip. The driver's annotations assume that answers are decoded."""

    def __init__(self, redis: Any) -> None:
        self.redis = redis

    def ask(self, *arguments: Any) -> Any:
        """The answer to one command."""
        return self.redis.execute_command(*arguments)

    def ask_all(self, commands: Iterable[Sequence[Any]]) -> list[Any]:
        """The answers to commands, in their order. Of one server they are done in their order too."""
        results = list[Any]()
        for batch in batches(commands, BATCH):
            with self.redis.pipeline(**({} if self.is_cluster else {"transaction": False})) as pipeline:
                for command in batch:
                    pipeline.execute_command(*command)
                results += pipeline.execute()
        return results

    @property
    def is_cluster(self) -> bool:
        return isinstance(self.redis, RedisCluster)

    def scan(self, pattern: str) -> Iterator[list[bytes]]:
        """Keys that match, in batches. Some may come twice."""
        return batches(self.redis.scan_iter(pattern, count=BATCH), BATCH)

    def refuse_use(self) -> None:
        """Raise Conflict while a service or a worker uses the store, or another upgrade."""
        everywhere = {"target_nodes": RedisCluster.PRIMARIES} if self.is_cluster else {}
        try:
            clients_found = self.redis.client_list(**everywhere)
        except ResponseError:  # hosted servers do not tell
            clients_found = []
        clients = (
            chain.from_iterable(clients_found.values()) if isinstance(clients_found, dict) else clients_found
        )
        names = {client["name"] for client in clients}
        if NAME_OF_SERVICES in names:
            raise Conflict("a service or a worker is connected to the store: stop all of them first")
        if sum(name.startswith(CLIENT_NAME) for name in names) > 1:
            raise Conflict("another upgrade of this store is under way")
        if any(self.redis.eval(YOUNG, 1, key, young_ms) for key, young_ms in LEASES.items()):
            raise Conflict(
                "the lease of a worker or of a job is younger than a minute: stop all workers and services; "
                "after a kill, wait for a minute"
            )


def batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def _copy_files(server: Server, data_dir: Path) -> None:
    """Copy the files of the store, whose server has the lock, into the data directory, once."""
    target, partial = data_dir / COPY, data_dir / f"{COPY}.partial"
    if target.exists():
        return
    # A rewrite would take files away during the copy. Nobody writes, so the files are whole.
    server.redis.config_set("auto-aof-rewrite-percentage", 0)
    deadline = time.monotonic() + PATIENCE_S
    while server.redis.info("persistence")["aof_rewrite_in_progress"]:
        if time.monotonic() > deadline:
            raise Unavailable("the store's server rewrites its files: try again")
        time.sleep(0.1)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    for path in [*data_dir.glob("appendonly*"), *data_dir.glob("*.json")]:
        copied = shutil.copytree if path.is_dir() else shutil.copy2
        copied(path, partial / path.name)
    os.sync()
    partial.rename(target)
