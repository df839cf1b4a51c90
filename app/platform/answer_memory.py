"""The memory of this process for answers, and budgets for work with shared memory.

An answer takes memory long before its client can read it: many requests of a few bytes each could take all
there is. So code with a large answer says how much it holds (``hold``), in advance where known, and a request
beyond the limit is refused. ``Unread`` counts bytes sent and not yet read by slow clients. ``Budget`` makes
tasks wait until their memory is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from app.platform.errors import Unavailable

FREE_BYTES = 1 << 16  # of each answer: small ones are never refused
Reader = Callable[[str], None]
_ANSWER: ContextVar[HttpAnswer | None] = ContextVar("answer", default=None)


class Answers:
    """At most ``most`` bytes of all answers together, or those of one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = 0

    def take(self, more: int, this_answer: int) -> None:
        """For an answer that has taken ``this_answer`` so far. Raises Unavailable."""
        # A single answer may be larger than the bound: alone it is let through, or it could never be sent.
        if more > 0 and self.bytes > this_answer and self.bytes + more > self._most:
            raise Unavailable(
                "answers in progress use all the memory that is allowed for them; try again soon"
            )
        self.bytes += more


class HttpAnswer:
    """The answer of this task, until ``end``."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._bytes = self._counted = 0
        self._token = _ANSWER.set(self)

    def hold(self, amount: int) -> None:
        """Note that the answer takes so many bytes more, or less. Raises Unavailable."""
        # Bytes below the free ones are not counted at all: small answers touch nothing shared.
        counted = max(0, self._bytes + amount - FREE_BYTES)
        if counted != self._counted:
            self._answers.take(counted - self._counted, self._counted)
            self._counted = counted
        self._bytes += amount

    def end(self) -> None:
        """Note that the answer is sent, or unwanted by now."""
        _ANSWER.reset(self._token)
        if self._counted:
            self._answers.take(-self._counted, self._counted)


def hold(amount: int) -> None:
    """Note that this task's answer takes so many bytes more, or less, until sent.

    Raises Unavailable: others take as much as they may together. Constant time.
    """
    answer = _ANSWER.get()
    if answer is not None:
        answer.hold(amount)


class Unread:
    """Bytes that readers have not taken yet: at most ``most`` of all together, or those of one reader.

    A reader is a function which closes its connection at once, for a reason, and releases the unread bytes.
    Beyond ``most`` the reader without progress for the longest is given up, and then the next. Every
    operation takes constant time, for each reader given up.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Reader, int] = {}  # the one that was not seen to read for the longest comes first
        self.bytes = 0

    def hold(self, reader: Reader, amount: int) -> None:
        """``reader``, which read something just now, has so many bytes left to read."""
        self.release(reader)
        # At the end of the dictionary: its order is the order in which readers made progress.
        self._held[reader] = amount
        self.bytes += amount
        while self.bytes > self._most and len(self._held) > 1:
            slowest = next(iter(self._held))
            self.release(slowest)
            slowest("answers that are not read take too much memory")

    def release(self, reader: Reader) -> None:
        """The reader has kept up, or is gone."""
        self.bytes -= self._held.pop(reader, 0)


class Budget:
    """Tasks take a part of ``total`` for a while. A task with a need of more than is free waits.

    A task with a need of more than ``total`` takes all, so it runs alone.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._left = total
        self._given_back = asyncio.Condition()

    @asynccontextmanager
    async def taken(self, amount: int) -> AsyncIterator[None]:
        """Hold ``amount`` inside of the block."""
        amount = min(amount, self._total)
        async with self._given_back:
            await self._given_back.wait_for(lambda: self._left >= amount)
            self._left -= amount
        try:
            yield
        finally:
            self._left += amount
            async with self._given_back:
                self._given_back.notify_all()
