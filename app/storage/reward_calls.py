"""Appends of callers who ask at the same time, in one call of the script ``append_rewards``.

A reward alone in a call costs the store several times as much as one of many. So while a call is
under way, appends are collected, and leave together when the call returns: of all partitions, or on a
cluster, where partitions are on several nodes, of one. A caller who is alone is not delayed.

Each append is accepted or refused alone, and gets its own answer. When a call fails as a whole the server
cannot be used: all waiting appends get the same error, rather than each its own after the next time-out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from app.storage.redis_client import Argument, RedisClient
from app.storage.redis_errors import DRIVER_ERRORS

MOST_REWARDS = 256  # of a call, unless a single append has more: the store serves nobody else meanwhile
Answer = Sequence[bytes]
Waiting = list[tuple["Append", asyncio.Future[Answer]]]


class Append(NamedTuple):
    """Keys and arguments of the script for one append with ``rewards`` rewards."""

    rewards: int
    keys: Sequence[str]
    arguments: Sequence[Argument]


class _Call:
    """Appends by partition, with the keys of the partition and who waits for the answers."""

    def __init__(self) -> None:
        self.rewards = 0
        self.partitions: dict[int, tuple[Sequence[str], Waiting]] = {}

    def join(self, partition: int, keys: Sequence[str], append: Append) -> asyncio.Future[Answer]:
        self.rewards += append.rewards
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.partitions.setdefault(partition, (keys, []))[1].append((append, answer))
        return answer

    async def send(self, redis: RedisClient) -> None:
        """Raises Unavailable; then nobody has an answer."""
        keys: list[str] = []
        arguments: list[Argument] = [len(self.partitions)]
        for partition_keys, waiting in self.partitions.values():
            first_key, first_argument = len(keys), len(arguments)
            keys += partition_keys
            arguments += (0, 0, sum(append.rewards for append, _ in waiting))
            for append, _ in waiting:
                keys += append.keys
                arguments += append.arguments
            arguments[first_argument] = len(keys) - first_key
            arguments[first_argument + 1] = len(arguments) - first_argument
        answers = await redis.script("append_rewards", keys, arguments)
        for (_, waiting), answer in zip(self.partitions.values(), answers, strict=True):
            # The script goes on with the next partition when a key of one is broken.
            if isinstance(answer, DRIVER_ERRORS):
                _fail(waiting, redis.translate(answer))
                continue
            outcomes = iter(answer)
            for append, future in waiting:
                outcomes_of_append = list(islice(outcomes, append.rewards))
                if not future.done():  # its caller was cancelled
                    future.set_result(outcomes_of_append)

    def fail(self, error: Exception) -> None:
        for _, waiting in self.partitions.values():
            _fail(waiting, error)


class RewardCalls:
    """Joins appends to calls, of which one is under way: on a cluster, of each partition."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis
        # While one is under way, the calls that wait for it. Appends join the last.
        self._waiting: dict[int, deque[_Call]] = {}
        self._senders: set[asyncio.Task[None]] = set()

    async def append(self, partition: int, keys: Sequence[str], append: Append) -> Answer:
        """Append rewards; return the outcome of each.

        ``keys``: of the partition. Raises Unavailable. A caller who is cancelled does not stop the call,
        which others may have joined.
        """
        self._redis.refuse_in_vain()
        slot = partition if self._redis.is_cluster else 0
        waiting = self._waiting.get(slot)
        if waiting is None:
            waiting = self._waiting[slot] = deque()
            sender = asyncio.create_task(self._send_all(slot, waiting))
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        if not waiting or waiting[-1].rewards + append.rewards > MOST_REWARDS:
            waiting.append(_Call())
        return await waiting[-1].join(partition, keys, append)

    async def _send_all(self, slot: int, waiting: deque[_Call]) -> None:
        while waiting:
            call = waiting.popleft()
            try:
                await call.send(self._redis)
            except Exception as error:
                for refused in (call, *waiting):
                    refused.fail(error)
                waiting.clear()
        del self._waiting[slot]


def _fail(waiting: Waiting, error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
