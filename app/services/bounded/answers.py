"""What a process holds of answers that are being made, from what is read for them until they are sent.

An answer takes memory long before its client can read it: many at once, of some bytes of request each, could
take all there is. So whatever gathers a large answer says how much it holds (``hold``), before it does where
that is known. What was sent and is not read is ``unread``'s.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from app.errors import Unavailable
from app.services.bounded.caller import Caller

FREE_BYTES = 1 << 16  # of each answer: small ones are never refused
MAX_SENDING_S = 120.0


class Answers:
    """At most ``most`` bytes of all answers together, or those of one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = 0

    def take(self, more: int, own: int) -> None:
        """For an answer that has taken ``own`` so far. Raises Unavailable."""
        if more > 0 and self.bytes > own and self.bytes + more > self._most:
            raise Unavailable("answers under way take as much memory as they may; try again soon")
        self.bytes += more


class HttpAnswer:
    """One that this task makes, until ``end``; ``caller`` waits for it.

    Who takes longer than ``MAX_SENDING_S`` to read a large one, or what was sent before it, loses the
    connection: others may wait for its memory.
    """

    def __init__(self, answers: Answers, caller: Caller | None) -> None:
        self._answers = answers
        self._caller = caller
        self._bytes = self._counted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._token = _ANSWER.set(self)

    def hold(self, amount: int) -> None:
        """It takes so many bytes more, or less. Raises Unavailable."""
        counted = max(0, self._bytes + amount - FREE_BYTES)
        if counted != self._counted:
            self._answers.take(counted - self._counted, self._counted)
            self._counted = counted
        self._bytes += amount

    def sending(self) -> None:
        """It is sent from now on."""
        give_up = None if self._caller is None else self._caller.give_up
        if self._counted and give_up is not None:
            reason = f"its client took more than {MAX_SENDING_S:.0f} s to read a large answer"
            self._timer = asyncio.get_running_loop().call_later(MAX_SENDING_S, give_up, reason)

    def end(self) -> None:
        """It is sent, or nobody wants it any more."""
        _ANSWER.reset(self._token)
        if self._counted:
            self._answers.take(-self._counted, self._counted)
        if self._timer is not None:
            self._timer.cancel()


_ANSWER: ContextVar[HttpAnswer | None] = ContextVar("answer", default=None)


def hold(amount: int) -> None:
    """The answer that this task makes takes so many bytes more, or less, until it is sent.

    Raises Unavailable: others take as much as they may together. Constant time.
    """
    answer = _ANSWER.get()
    if answer is not None:
        answer.hold(amount)
