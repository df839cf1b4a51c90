"""Quotas of bandits: how often arms may be shown in a window of time, and who has which part of that.

Notation
    window      [start, end) in ms by the clock of the store; -1 and -1 while the quota does not hold
    granted     how many shows the processes were given in this window together, spent or not
    share       what one process was given in this window, of which it spends without asking

A window never comes back: when the clock of the store goes back, the latest one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol


class QuotaTerms(NamedTuple):
    """What the store has to know of a quota. ``per_ms``, ``to_ms`` 0: none. ``uid``: of this incarnation."""

    uid: str
    most: int
    per_ms: int
    from_ms: int
    to_ms: int


class ShareAsked(NamedTuple):
    """``spent`` of the share in the window that began at ``window_ms``; ``wanted`` is what to hold besides.

    ``needed``: of that, what is given even if it is a large part of what is left; ``LEAVES``: the process has
    stopped, and wants nothing.
    """

    id: str
    uid: str
    window_ms: int
    spent: int
    wanted: int
    needed: int


LEAVES = -1
FOREVER = 2**52


class Share(NamedTuple):
    """``mine``: granted to this process in the window, spent or not. ``until_ms``: when to ask again at last.

    ``fair``: what it may hold besides what it spent, as so much is left. ``deferrable``: how much more may be
    held by deferred decisions, of all processes: together they hold at most a tenth of what is left.
    ``known`` False: there is no such quota. ``holds`` False: it limits nothing before ``until_ms``.
    """

    known: bool
    holds: bool
    start_ms: int
    until_ms: int
    mine: int
    granted: int
    spent: int
    rewarded: int
    most: int
    fair: int
    deferrable: int = FOREVER


class Held(NamedTuple):
    """What a deferred decision took of a quota. ``limits``: the quota is one of what is shown."""

    id: str
    uid: str
    window_ms: int
    taken: int
    limits: bool


class QuotaChanges(NamedTuple):
    """``number``: of the last change. ``records``: what changed, None of one that is gone; or ``all``."""

    number: int
    records: Mapping[str, bytes | None]
    all: bool


Confirmed = Literal["counts", "expired", "used_up"]


class QuotaStore(Protocol):
    """All quotas of a bandit are in one place: one script counts for many of them."""

    async def changes(self, bandit_uid: str, after: int) -> QuotaChanges:
        """What has changed since a number; all records for one of another time, or too long ago."""
        ...

    async def record(self, bandit_uid: str, quota_id: str) -> bytes:
        """b"": there is none."""
        ...

    async def put(
        self, bandit_uid: str, quota_id: str, record: bytes, terms: QuotaTerms, *, expected: bytes, most: int
    ) -> bytes | None:
        """Store ``record`` in place of ``expected`` (b"": none); return what stands then.

        Counts go on for the same ``terms.uid``, else they begin anew. None: there are ``most`` already.
        """
        ...

    async def delete(self, bandit_uid: str, quota_id: str) -> bool: ...

    async def changed(self, bandit_uid: str) -> None:
        """Tell all processes that the quotas of a bandit have changed (``Registry.quotas``)."""

    async def share(
        self, bandit_uid: str, process: str, number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        """Change the shares of a process, as far as there is something left; (the store's time in ms, them).

        A process that wants less than it holds has stopped to spend the rest when it asks.
        ``number`` ascends with every call of a process: one that arrives after a later one changes nothing.
        """
        ...

    async def reward(self, bandit_uid: str, counts: Mapping[str, int]) -> None:
        """Count rewards of the arms of these quotas, in their windows of now; each call, repeated or not."""

    async def hold(
        self, bandit_uid: str, decision: str, taken: Sequence[Held], *, expires_ms: int
    ) -> Sequence[int] | None:
        """Know what a deferred decision took, unless it is more than deferred decisions may hold.

        How much that is of each quota, before this one. None: no space.
        """
        ...

    async def confirm(self, bandit_uid: str, decision: str, *, expires_ms: int, margin_ms: int) -> Confirmed:
        """It was shown: nothing of it is given back. The call may be repeated.

        What it took in a window that is over counts in that of now, if as much is left there.
        """
        ...

    async def release(self, bandit_uid: str, *, margin_ms: int, count: int) -> int:
        """Give back what decisions took that have expired so long ago; how many, ``count`` at most."""
        ...

    async def erase(self, bandit_uid: str) -> None:
        """Remove everything of a deleted bandit."""
