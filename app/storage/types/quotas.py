"""Quotas of bandits: how often arms may be shown in a window of time, and who has which part of that.

Notation
    window      [start, end) in ms by the clock of the store; -1 and -1 while the quota does not hold
    granted     how many shows the processes were given in this window together, spent or not
    share       what one process was given in this window, of which it spends without asking

A window never comes back: when the clock of the store goes back, the latest one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LEAVES = -1


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


class Share(NamedTuple):
    """``mine``: granted to this process in the window, spent or not. ``until_ms``: when to ask again at last.

    ``fair``: what it may hold besides what it spent, as so much is left.
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


class QuotaChanges(NamedTuple):
    """``number``: of the last change. ``records``: what changed, None of one that is gone; or ``all``."""

    number: int
    records: Mapping[str, bytes | None]
    all: bool
