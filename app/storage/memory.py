"""The memory of the store, and the levels from which on writes are refused.

There is one bound for all kinds of data. A process reads the memory of each server once a second (``look``)
and refuses by the last reading, so the writes of all processes within one second may exceed a level. While a
server does not answer, the last level stands: its writes fail anyway.

Deletes, erasure, expiry and the fold are never refused: by them room comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from app.platform.errors import QuotaReached, StoreFull
from app.storage.redis_client import RedisClient

SHARE = 0.7  # of the ``maxmemory`` of a server, or of its machine, where no bound is set
ROOM = 2  # percent: a level that was reached ends so far below it, not at each answer that was read
HEADROOM = 0.95  # of its ``maxmemory``: above, it refuses by itself, and knows no levels
# What a server holds for its clients, replicas and files: an export must not refuse choices.
BUFFERS = ("mem_clients_normal", "mem_clients_slaves", "mem_replication_backlog", "mem_aof_buffer")


class Level(IntEnum):
    """The part of the bound, in percent, from which on something is refused."""

    OPTIONAL = 80  # jobs; left out: log rows, notes of keys without a history, what arms learn
    NEW = 95  # choices for an event or that wait, observations, arms, catalogues, bandits, campaigns
    REWARDS = 100  # and activations


class Use(NamedTuple):
    """Bytes of one server. ``most`` 0: the server does not tell its memory, and nothing is refused."""

    used: int
    most: int

    @property
    def share(self) -> float:
        return self.used / self.most if self.most else 0.0

    def __str__(self) -> str:
        return (
            f"the store takes {self.used / 2**20:,.0f} of the {self.most / 2**20:,.0f} MB that it may "
            "(SHORTLIST_MAX_STORE_MB, at most 95 % of its maxmemory)"
        )


class StoreMemory:
    """The memory of all servers. ``most_bytes``: bound of each server; None: ``SHARE`` of the server's
    memory.
    """

    def __init__(self, redis: RedisClient, most_bytes: int | None = None) -> None:
        self._redis = redis
        self._most_bytes = most_bytes
        self.use = Use(0, 0)  # at the last look, of the server that is fullest
        self._reached: frozenset[Level] = frozenset()

    async def look(self) -> Use:
        """Read the memory of each server. Raises Unavailable."""
        self.use = max(
            (self._use_of(facts) for facts in await self._redis.memory()), key=lambda use: use.share
        )
        percent = 100 * self.use.share
        self._reached = frozenset(
            level for level in Level if percent >= level - (ROOM if level in self._reached else 0)
        )
        return self.use

    def is_reached(self, level: Level) -> bool:
        return level in self._reached

    def check(self, level: Level, what: str) -> None:
        """Raise StoreFull if the level is reached. ``what`` is refused then: "rewards", say."""
        if self.is_reached(level):
            raise StoreFull(f"{self.use}: from {level} % on {what} are refused, until some data expire")

    def check_kept(self, level: Level, what: str, bytes_more: int = 0) -> None:
        """As ``check``, for records which stay until somebody deletes them: raises QuotaReached.

        ``bytes_more``: size of the new record, where large.
        """
        used, most = self.use
        if self.is_reached(level) or (most and 100 * (used + bytes_more) >= level * most):
            raise QuotaReached(f"{self.use}: from {level} % on {what} are refused: delete some")

    def _use_of(self, facts: Mapping[str, Any]) -> Use:
        """``facts``: what INFO says of one server."""
        used = facts.get("used_memory", 0) - sum(facts.get(name, 0) for name in BUFFERS)
        limit = facts.get("maxmemory", 0)
        most = self._most_bytes or int(SHARE * (limit or facts.get("total_system_memory", 0)))
        return Use(max(0, used), max(1, min(most, int(HEADROOM * limit))) if limit else most)
