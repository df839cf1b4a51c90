"""Clients of the driver for a store under test, of one server or of a cluster, and how it is emptied."""

from __future__ import annotations

from functools import cache
from typing import Any

import redis
import redis.asyncio
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

Client = Redis | RedisCluster


@cache
def is_cluster(url: str) -> bool:
    """Whether the server at the URL is a node of a cluster."""
    with redis.Redis.from_url(url) as node:
        try:
            node.execute_command("CLUSTER INFO")
        except ResponseError:
            return False
        return True


def connect(url: str, **options: Any) -> Client:
    """A client of everything that is behind the URL; an asynchronous context manager."""
    return (RedisCluster if is_cluster(url) else Redis).from_url(url, **options)


def connect_sync(url: str) -> redis.Redis | redis.RedisCluster:
    """As ``connect``, without asyncio."""
    return redis.RedisCluster.from_url(url) if is_cluster(url) else redis.Redis.from_url(url)


async def flush(client: Client) -> None:
    """Remove every key, of every node."""
    if isinstance(client, RedisCluster):
        await client.flushall(target_nodes=RedisCluster.PRIMARIES)
    else:
        await client.flushall()


def flush_sync(client: redis.Redis | redis.RedisCluster) -> None:
    """As ``flush``, without asyncio."""
    if isinstance(client, redis.RedisCluster):
        client.flushall(target_nodes=redis.RedisCluster.PRIMARIES)
    else:
        client.flushall()


async def traces(client: Client, text: str) -> set[str]:
    """Where the text stands in the store: names of keys, "<key>: member" for what is in one, without prefix.

    Members are fields of hashes, members of sets, and values of entries of streams; values are not searched.
    """
    found = set()
    async for key in client.scan_iter():
        name = key.decode().removeprefix("shortlist3:")
        if text in name:
            found.add(name)
        members = [member.decode(errors="replace") for member in await _members(client, key)]
        found |= {f"{name}: {member}" for member in members if text in member}
    return found


async def _members(client: Client, key: bytes) -> list[bytes]:
    kind = (await client.type(key)).decode()
    if kind == "hash":
        return list(await client.hkeys(key))  # type: ignore[misc]
    if kind == "set":
        return list(await client.smembers(key))  # type: ignore[misc]
    if kind == "zset":
        return list(await client.zrange(key, 0, -1))
    if kind == "stream":
        return [b" ".join(fields.values()) for _, fields in await client.xrange(key)]
    return []
